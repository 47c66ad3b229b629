"""One page about a run, whatever became of it: whole, self-contained, and nothing in it but text is a run's own."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from common.errors import FederationError
from common.privacy_settings import MODES
from common.settings import load_settings
from perdl import PerDL
from perdl.cli.app import app
from perdl.engines.in_process import run_in_process
from perdl.report.page import render_report
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app
from perdl_server.summary import privacy_facts

VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    """A page taken apart; complains of tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def said(self):
        return " ".join(" ".join(self.text).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def check(text):
    """Hold a page to what every report must be; return it taken apart."""
    page = Page(text)
    assert page.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    assert not page.all("script")
    assert not page.all("link")
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            if value := attributes.get(name):
                assert value.startswith(("#", "data:image/png;base64,")), (tag, value)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for a in page.all("a")]
    assert set(targets) <= set(ids)
    assert all("scope" in th for th in page.all("th"))
    assert len(page.all("h1")) == 1
    assert len(page.all("figcaption")) == len(page.all("figure"))
    pictures = [one for one in [*page.all("svg"), *page.all("img")] if "viewbox" in one or "alt" in one]
    assert all(len(one.get("aria-label") or one.get("alt")) > 40 for one in pictures)
    assert len(pictures) >= len(page.all("figure"))
    return page


def federate(folder, *overrides, **keywords):
    run_in_process(server_app, client_app, load_settings(None, [f"output={folder}", *overrides]), **keywords)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return federate(tmp_path_factory.mktemp("runs") / "run", "n_clients=3", "synthetic.noise=0.05", "n_global=auto")


@pytest.fixture(scope="module")
def text(run):
    return render_report(run)


def test_a_simulation_has_all_parts(run, text):
    page, summary = check(text), json.loads((run / "summary.json").read_text())
    assert len(page.all("figure")) == 6 + 3  # own atoms of each client
    for part in (
        "3 clients, 3 shared atoms over 6 features",
        f"{summary['rounds']} rounds",
        "No warnings.",
        "synthetic.noise 0.05 0.0",
        "n_global auto 3",
        f"client-2 200 6 {summary['clients']['client-2']['nonzeros']:.1f}",
        "global_dictionary.npz",
        "initialise",
        f"numpy {np.__version__}",
    ):
        assert part in page.said, part
    assert "No figure: all clients share all shared atoms." in page.said
    assert "prefers-color-scheme" in text
    assert "@media print" in text


def test_the_command_writes_it_and_the_same_again(run, text, tmp_path):
    told = CliRunner().invoke(app, ["report", str(run), "--output", str(tmp_path / "sub" / "page.html")])
    assert told.exit_code == 0, told.output
    first = (tmp_path / "sub" / "page.html").read_text()
    assert first == text
    small = run / "clients" / "client-1"
    for _ in range(2):
        assert CliRunner().invoke(app, ["report", str(small)]).exit_code == 0
        assert "report.html" not in (small / "report.html").read_text(), "a page does not list itself"
    wrong = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert wrong.exit_code == 1
    assert "holds no summary.json" in wrong.output
    (tmp_path / "summary.json").write_text("{")
    assert "is not JSON" in CliRunner().invoke(app, ["report", str(tmp_path)]).output


def test_of_atoms_that_some_share_it_shows_who_shares_which(tmp_path):
    overrides = ["sharing=some", "n_global=auto", "synthetic.absence=0.3", "n_clients=5", "seed=3"]
    folder = federate(tmp_path / "some", *overrides)
    page, summary = check(render_report(folder)), json.loads((folder / "summary.json").read_text())
    counts = [len(summary["members"][name]) for name in summary["clients"]]
    assert "Who shares which of 3 atoms: " in page.said
    assert "atoms that some clients share are matched in groups, not along paths" in page.said
    assert "Hatched: the client does not share that atom." in page.said
    assert "nothing was learnt there" not in page.said
    for count in counts:
        assert f"{count} of 3" in page.said
    name = next(name for name, mine in summary["members"].items() if 0 < len(mine) < 3)
    small = check(render_report(folder / "clients" / name)).said
    assert f"The model of {name}: {len(summary['members'][name])} of 3 shared atoms and " in small
    assert "nothing was learnt there" not in small
    assert "unused" not in small


def test_of_a_server_it_says_where_the_clients_models_are(run, tmp_path):
    shutil.copytree(run, tmp_path / "served", ignore=shutil.ignore_patterns("clients", "report.html"))
    page = check(render_report(tmp_path / "served"))
    assert "no client's model is here: a server's clients keep theirs, each in its own folder" in page.said
    assert len(page.all("figure")) == 5


def test_of_a_client_it_shows_the_model(run):
    page = check(render_report(run / "clients" / "client-2"))
    assert "The model of client-2: 3 shared atoms and 3 of its own over 6 features." in page.said
    assert len(page.all("figure")) == 3
    assert "Settings" not in page.said


def test_clients_are_shown_with_their_files(run, tmp_path):
    shutil.copytree(run, tmp_path / "filed", ignore=shutil.ignore_patterns("clients", "report.html"))
    summary = json.loads((tmp_path / "filed" / "summary.json").read_text())
    for name, facts in summary["clients"].items():
        facts["file"] = f"somewhere/of {name}.csv"
    (tmp_path / "filed" / "summary.json").write_text(json.dumps(summary))
    said = check(render_report(tmp_path / "filed")).said
    assert "error file client-1" in said
    assert "of client-2.csv client-3" in said


def test_a_run_that_failed_before_it_began(tmp_path):
    with pytest.raises(FederationError):
        federate(tmp_path, "threshold=50", "n_clients=2")
    page = check(render_report(tmp_path))
    assert "The run failed: 0 of 2 clients could start" in page.said
    assert "no shared atoms: nothing was matched" in page.said
    assert not page.all("figure")
    assert "No warnings." not in page.said


def test_a_run_that_was_interrupted(tmp_path):
    def stop(message):
        if message.metadata.message_type == "train.update":
            (tmp_path / "stop").touch()

    with pytest.raises(KeyboardInterrupt):
        federate(tmp_path, "n_clients=2", record=stop)
    page = check(render_report(tmp_path))
    assert "The run was interrupted. What is here was done until then." in page.said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["n_clients=2", "rounds=0"], "No figure: no round was done."),
        (["n_clients=1"], "No figure: there is one client alone, and no path."),
        (["n_global=0", "n_clients=2"], "No figure: there is no shared atom."),
        (["n_global=6", "n_clients=2"], "No figure: client-1 has no atoms of its own."),
    ],
)
def test_small_runs(tmp_path, overrides, said):
    assert said in check(render_report(federate(tmp_path, "rounds=2", *overrides))).said


def test_a_folder_that_tells_less_shows_what_it_has(run, tmp_path):
    """As of clients that sent no final measures, and of a server, which has no models."""
    shutil.copytree(run, tmp_path / "less", ignore=shutil.ignore_patterns("report.html", "clients"))
    summary = json.loads((tmp_path / "less" / "summary.json").read_text())
    for facts in summary["clients"].values():
        for key in ("final_shared", "final_own", "shape", "largest_feature_share"):
            facts.pop(key, None)
    for key in ("shape", "unrelated_edges", "unrelated_bound", "warnings"):
        summary.pop(key, None)
    summary["final"].pop("change")
    summary["settings"]["gone"] = {"since": 1}
    (tmp_path / "less" / "summary.json").write_text(json.dumps(summary))
    page = check(render_report(tmp_path / "less"))
    assert "no client reported what its atoms explain" in page.said
    assert "gone.since" in page.said


def test_what_comes_from_the_run_is_text_and_nothing_else(run, tmp_path):
    evil = "<script>alert(1)</script>"
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((60, 4)) for name in ("<img src=x onerror=alert(1)>", "a\"b'c&amp;")}
    folder = tmp_path / "<b>"
    with pytest.warns(UserWarning, match="global atoms"):
        PerDL(n_global=1, rounds=1, threshold=0.8, output=folder).fit(data)
    summary = json.loads((folder / "summary.json").read_text())
    summary["warnings"].append(evil)
    summary["clients"][evil] = dict(next(iter(summary["clients"].values())))
    summary["settings"]["data"]["path"] = evil
    summary["versions"]["numpy"] = evil
    (folder / "summary.json").write_text(json.dumps(summary))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 1, "client": evil}) + '\n{"round": 1, "cli')
    text = render_report(folder)
    page = check(text)
    assert "<script" not in text
    assert not [image for image in page.all("img") if image.get("src") == "x"]
    assert page.said.count(evil) >= 4
    assert "<img src=x onerror=alert(1)>" in page.said


def test_a_browser_shows_it_at_once_and_without_a_word(text, tmp_path, page):
    path = tmp_path / "report.html"
    path.write_text(text)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("figure svg").first.bounding_box()["width"] > 300
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != "rgb(255, 255, 255)"
    assert page.said == []
    assert asked == [path.as_uri()]


@pytest.mark.parametrize("text", ["[1]", "{}", '{"clients": {"a": 1}, "settings": 5}', "{", '{"settings": {}}'])
def test_a_summary_of_something_else_is_called_so(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 1
    assert re.fullmatch(rf"perdl: {tmp_path}/summary.json is not (JSON|of a run): .*\n", done.stderr)


def test_a_folder_is_no_name_for_the_page(run, tmp_path):
    done = CliRunner().invoke(app, ["report", str(run), "--output", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (2, f"perdl: --output {tmp_path}: is a folder; name a file\n")


@pytest.mark.parametrize("mode", MODES)
def test_the_head_tells_the_mode_of_privacy_and_what_a_private_run_spent(tmp_path, mode):
    told = ["privacy.epsilon=7.5", "privacy.delta=1e-6", "privacy.clip=2"] if mode == "private" else []
    settings = load_settings(
        None, [f"output={tmp_path}", "n_clients=3", "rounds=1", "n_restarts=1", f"privacy.mode={mode}", *told]
    )
    run_in_process(server_app, client_app, settings)
    facts = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    said = check(render_report(tmp_path)).said
    spent = {"epsilon_spent": 7.5, "delta_spent": 1e-6} if mode == "private" else {}
    assert facts == {"mode": mode, **spent}
    assert f"privacy {mode}: " in said
    assert ("differential privacy for each sample of a client; spent epsilon = 7.5 with delta = 1e-06" in said) == bool(
        spent
    )


def test_a_private_run_that_no_client_joined_spent_nothing():
    settings = load_settings(None, ["privacy.mode=private", "privacy.epsilon=3", "privacy.clip=2"])
    assert privacy_facts(settings, asked=False) == {"mode": "private", "epsilon_spent": 0.0, "delta_spent": 0.0}
