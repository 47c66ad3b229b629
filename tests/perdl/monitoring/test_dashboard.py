"""The page of a server's run: what it tells, to whom, and that it holds up nothing."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import signal
import threading
import time

import numpy as np
import pytest

from common.errors import SettingsError
from common.files import write_json
from common.settings import load_settings
from perdl.monitoring.dashboard import dashboard
from perdl_server.results import RunFolder


def row(t):
    spread = {"min": 0.1 / t, "median": 0.2 / t, "max": 0.4 / t}
    facts = {"round": t, "change": 10.0**-t, "consensus": {"min": 1 - 0.5 / t}, "error_before_update": spread}
    clients = [{"round": t, "client": name, "error_before_update": 0.3 / t} for name in ("c-2", "c-10")]
    return {**facts, "clients": 2, "bytes": 100 * t, "seconds": 0.5 * t}, clients


def ask(url, path="/state.json", method="GET", host=None):
    port = int(re.search(r":(\d+)/", url)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def state(url):
    return json.loads(ask(url)[1])


@pytest.fixture
def settings(tmp_path):
    return load_settings(None, [f"output={tmp_path / 'run'}", "n_clients=2"])


def test_it_tells_what_the_files_tell_and_bears_half_lines(settings, tmp_path):
    folder, log = RunFolder(tmp_path / "run"), tmp_path / "run" / "log.jsonl"
    folder.add_round(*row(7))  # of a former run
    log.write_text('{"logger": "perdl.server", "client": "old", "text": "was here"}\n')
    write_json(tmp_path / "run" / "summary.json", {"stop_reason": "rounds"})
    with dashboard(settings, log) as url:
        told = state(url)
        assert (told["rounds"], told["curve"], told["clients"], told["log"], told["ended"]) == (0, [], [], [], "")
        folder = RunFolder(tmp_path / "run")
        for t in (1, 2, 3):
            folder.add_round(*row(t))
        told = state(url)
        assert told["rounds"] == 3
        assert [dict(zip(told["columns"], one, strict=True)) for one in told["curve"]][1] == {
            "round": 2, "change": 0.01, "error min": 0.05, "error median": 0.1, "error max": 0.2, "consensus": 0.75,
            "clients": 2,
        }  # fmt: skip
        assert told["clients"] == [{"name": name, "round": 3, "error": pytest.approx(0.1)} for name in ("c-2", "c-10")]
        line = json.dumps({"logger": "perdl.server", "level": "warning", "text": "left out: <b>", "client": "c-11"})
        for path, text in ((log, line), (folder.path / "rounds.jsonl", json.dumps(row(4)[0]))):
            with path.open("a") as file:
                file.write(text[:20])
                file.flush()
                before = state(url)
                assert (before["rounds"], before["log"]) == (3, [] if path == log else before["log"])
                file.write(text[20:] + "\n" + '{"cut short\n' + text + "\n")
        told = state(url)
        assert told["rounds"] == 4
        assert [(one["client"], one["text"], one["level"]) for one in told["log"]] == [
            ("c-11", "left out: <b>", "warning")
        ] * 2
        assert [one["name"] for one in told["clients"]] == ["c-2", "c-10", "c-11"]
        assert not told["ended"]
        folder.save_summary({"stop_reason": "failed: too few", "warnings": ["beware"]})
        assert (state(url)["ended"], state(url)["notes"]) == ("failed: too few", ["beware"])
        assert not state(url)["report"]
        assert ask(url, "/report.html")[0].status == 404
        (folder.path / "report.html").write_text("<!DOCTYPE html>")
        assert state(url)["report"]
        assert ask(url, "/report.html")[1] == "<!DOCTYPE html>"


def test_a_long_run_is_thinned_and_a_resumed_one_read_again(settings, tmp_path):
    folder = RunFolder(tmp_path / "run")
    for t in range(1, 8):
        folder.add_round(*row(t))
    with dashboard(settings, tmp_path / "log") as url:
        assert state(url)["rounds"] == 0
        rows = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "run" / "new").write_text("".join(rows[:5]))
        (tmp_path / "run" / "new").rename(tmp_path / "run" / "rounds.jsonl")  # as a server that resumes does
        assert [one[0] for one in state(url)["curve"]] == [1, 2, 3, 4, 5]
        for t in range(6, 1001):
            folder.add_round(*row(t))
        curve = state(url)["curve"]
        assert len(curve) == 300
        assert [curve[0][0], curve[-1][0]] == [1, 1000]


def test_it_is_for_this_machine_and_to_be_read_only(settings, tmp_path):
    with dashboard(settings, tmp_path / "log") as url:
        assert url.startswith("http://127.0.0.1:")
        port = re.search(r":(\d+)/", url)[1]
        for host, status in (("localhost", 200), (f"localhost:{port}", 200), ("evil.example", 400), ("10.0.0.1", 400)):
            assert ask(url, host=host)[0].status == status
        for path in ("/state.json", "/"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                assert ask(url, path, method)[0].status == 405
        for path in ("/", "/dashboard.js", "/dashboard.css", "/icon.svg", "/state.json"):
            answer, _ = ask(url, path)
            assert answer.status == 200
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Access-Control-Allow-Origin"] is None
        for path in ("/../dashboard.py", "/%2e%2e/dashboard.py", "/nothing"):
            assert ask(url, path)[0].status == 404
        page = ask(url, "/")[1]
        assert not re.search(r"https?://", page)
        with pytest.raises(SettingsError, match=f"--dashboard-port {port}: Address already in use"):
            dashboard(settings, tmp_path / "log", int(port)).__enter__()
    assert not [thread for thread in threading.enumerate() if thread.name == "dashboard"]
    with pytest.raises(ConnectionRefusedError):
        ask(url)


def test_an_open_page_hears_of_the_end_and_no_page_costs_no_time(settings, tmp_path):
    began = time.monotonic()
    with dashboard(settings, tmp_path / "log"):
        pass
    assert time.monotonic() - began < 2.0, "nobody looks: nothing to wait for"
    heard, stop = [], threading.Event()
    with dashboard(settings, tmp_path / "log") as url:

        def look():
            while not stop.wait(0.3):
                heard.append(state(url)["ended"])
                if heard[-1]:
                    return

        state(url)
        thread = threading.Thread(target=look)
        thread.start()
    stop.set()
    thread.join()
    assert heard[-1] == "the server ended without results"


KEEP_ALL_THAT_IS_SHOWN = """() => {
  const status = document.getElementById("status");
  window.shown = [status.textContent];
  new MutationObserver(() => window.shown.push(status.textContent)).observe(status, {childList: true});
}"""
SHOWS_A_LATER_ROUND = "t => Number(document.getElementById('status').textContent.match(/^Round (\\d+)/)?.[1]) > t"


def test_a_browser_sees_a_real_run_grow_and_end(processes, page):
    rng = np.random.default_rng(0)
    D = np.linalg.qr(rng.standard_normal((6, 6))).Q
    for name in ("ada", "bob"):
        np.save(processes.folder / f"{name}.npy", (D @ (rng.random((6, 150)) * (rng.random((6, 150)) < 0.3))).T)
    processes.server("-c", "n_clients=2", "-c", "rounds=20", "-c", "tolerance=0", "--dashboard", config="files")
    processes.wait_for(lambda: "dashboard: " in processes.log("server"))
    page.goto(re.search(r"dashboard: (\S+)", processes.log("server"))[1])
    page.get_by_text("Waiting for 2 clients; 0 seen.").wait_for()
    page.evaluate(KEEP_ALL_THAT_IS_SHOWN)
    for name in ("ada", "bob"):
        processes.client(name, "--data", f"{name}.npy")
    last = 0
    for _ in range(2):
        processes.wait_for_round(len(processes.rounds()) + 1)
        # The page asks once a second, and a run may end sooner: it waits for ada until the page has shown where it is.
        processes.started["ada"].send_signal(signal.SIGSTOP)
        page.wait_for_function(SHOWS_A_LATER_ROUND, arg=last, timeout=120_000)
        last = int(re.match(r"Round (\d+) of at most 20", page.text_content("#status"))[1])
        processes.started["ada"].send_signal(signal.SIGCONT)
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Ended')", timeout=120_000)
    seen = [text for text, _ in itertools.groupby(page.evaluate("window.shown"))]
    assert seen[-1] == "Ended after round 20: all rounds are done."
    rounds = [int(found[1]) for found in (re.match(r"Round (\d+) of at most 20", text) for text in seen) if found]
    assert len(rounds) > 1
    assert rounds == sorted(set(rounds))
    assert page.locator("#clients tr").all_inner_texts()[0].split()[:2] == ["ada", "20"]
    assert "ada takes part" in page.text_content("#log")
    error = processes.rounds()[-1]["error_before_update"]["median"]
    assert page.get_attribute("#error", "aria-label") == f"median relative error: {error:.3g} in round 20"
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("#report").wait_for()
    assert processes.wait("server") == 0
    with page.expect_download() as saved:  # the page keeps it, for the server has ended
        page.locator("#report").click()
    assert saved.value.suggested_filename == "report.html"
    assert saved.value.path().read_text() == (processes.folder / "served" / "report.html").read_text()
    assert page.said == []
    assert [processes.wait(name) for name in ("ada", "bob")] == [0, 0]
