"use strict";
// Asks the server each second how the run is, and shows it. Text is always put in as text, never as markup.

const NS = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
const short = (x) => (x === null || x === undefined ? "-" : x === 0 ? "0" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e4 ? String(Number(x.toPrecision(3))) : x.toExponential(1));

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Draw y over t, and where there are low and high a band between them; logarithmic where it spans more than 30 times.
function draw(id, name, t, y, low = y, high = y, bounds = null) {
  const svg = at(id);
  const points = t.map((_, i) => i).filter((i) => y[i] !== null);
  if (!points.length) return;
  const positive = points.flatMap((i) => [low[i], y[i], high[i]]).filter((v) => v > 0);
  const log = !bounds && positive.length && Math.max(...positive) > 30 * Math.min(...positive);
  const scale = (v) => (log ? Math.log10(Math.max(v, Math.min(...positive))) : v);
  const floor = bounds ? bounds[0] : log ? scale(Math.min(...positive)) : 0;
  const top = bounds ? bounds[1] : scale(Math.max(...points.map((i) => high[i]), 0));
  const L = 58, R = 350, T = 10, B = 128;
  const [first, last] = [t[points[0]], t[points[points.length - 1]]];
  const px = (i) => (last > first ? L + ((R - L) * (t[i] - first)) / (last - first) : (L + R) / 2).toFixed(1);
  const py = (v) => (top > floor ? B - ((B - T) * (scale(v) - floor)) / (top - floor) : B).toFixed(1);
  const line = (values) => points.map((i) => `${px(i)},${py(values[i])}`);
  const drawn = [element("path", { class: "axis", d: `M${L},${T}V${B}H${R}` })];
  if (low !== y) drawn.push(element("polygon", { class: "band", points: [...line(high), ...line(low).reverse()].join(" ") }));
  drawn.push(element("polyline", { class: "curve", points: line(y).join(" ") }));
  if (points.length < 40) for (const i of points) drawn.push(element("circle", { class: "dot", r: 2.2, cx: px(i), cy: py(y[i]) }));
  const label = (x, yy, anchor, text) => drawn.push(element("text", { x, y: yy, "text-anchor": anchor }, text));
  label(L - 5, T + 8, "end", short(log ? 10 ** top : top));
  label(L - 5, B, "end", short(log ? 10 ** floor : floor));
  if (log) label(L - 5, (T + B) / 2, "end", "log");
  label(L, B + 16, "start", `round ${first}`);
  if (last > first) label(R, B + 16, "end", String(last));
  svg.replaceChildren(...drawn);
  svg.setAttribute("aria-label", `${name}: ${short(y[points[points.length - 1]])} in round ${last}`);
}

function bytes(n) {
  for (const unit of ["B", "kB", "MB"]) {
    if (n < 1000) return `${Number(n.toPrecision(3))} ${unit}`;
    n /= 1000;
  }
  return `${Number(n.toPrecision(3))} GB`;
}

function show(state) {
  document.title = `${state.rounds} of ${state.most_rounds} - ${state.title}`;
  at("title").textContent = state.title;
  const status = at("status");
  const going = state.rounds ? `Round ${state.rounds} of at most ${state.most_rounds}.` : `Waiting for ${state.n_clients} clients; ${state.clients.length} seen.`;
  const good = /^(all rounds|no atom)/.test(state.ended);
  status.textContent = state.ended ? `Ended after round ${state.rounds}: ${state.ended}.` : going;
  status.className = state.ended ? (good ? "good" : "bad") : "";
  at("progress").max = state.most_rounds;
  at("progress").value = good ? state.most_rounds : state.rounds;
  at("facts").textContent = state.seconds === undefined ? "" : `${state.seconds.toFixed(0)} s, ${bytes(state.bytes)} travelled`;
  const column = (name) => state.curve.map((row) => row[state.columns.indexOf(name)]);
  const t = column("round");
  draw("error", "median relative error", t, column("error median"), column("error min"), column("error max"));
  draw("change", "largest move of a shared atom", t, column("change"));
  draw("consensus", "consensus of the least agreed atom", t, column("consensus"), undefined, undefined, [0, 1]);
  at("clients").replaceChildren(
    ...state.clients.map((client) => {
      const row = document.createElement("tr");
      if (client.round < state.rounds) row.className = "behind";
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = client.name;
      row.append(name);
      for (const text of [client.round ? String(client.round) : "none yet", short(client.error)]) row.append(Object.assign(document.createElement("td"), { textContent: text }));
      return row;
    }),
  );
  at("notes").replaceChildren(
    ...state.notes.map((text) => Object.assign(document.createElement("li"), { textContent: `note: ${text}` })),
  );
  at("log").replaceChildren(
    ...state.log.toReversed().map((line) => {
      const item = document.createElement("li");
      item.className = line.level;
      item.textContent = `${line.time} ${line.level === "info" ? "" : line.level + ": "}${line.client ? line.client + " " : ""}${line.text}`;
      return item;
    }),
  );
}

// The server ends soon, so the page keeps the report itself.
async function keepReport() {
  const answer = await fetch("report.html", { cache: "no-store" });
  if (!answer.ok) return;
  at("report").href = URL.createObjectURL(await answer.blob());
  at("report").hidden = false;
}

async function poll() {
  let last = false;
  try {
    const answer = await fetch("state.json", { cache: "no-store" });
    const state = await answer.json();
    show(state);
    last = state.closing;
    if (last && state.report) await keepReport();
  } catch {
    at("status").textContent = "The server does not answer any more. Below is what was seen last.";
    at("status").className = "bad";
  }
  if (!last) setTimeout(poll, 1000);
}

poll();
