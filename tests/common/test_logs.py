"""What a line of the log says, and what it never does."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from common.logs import LOG, PlainLog, about, logged_to, start_log


@pytest.fixture
def lines(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    monkeypatch.setenv(LOG, str(path))
    start_log()
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    monkeypatch.delenv(LOG)
    start_log()


def test_every_line_is_json_and_says_what_it_is_about(lines):
    log = logging.getLogger("perdl.server")
    with about(run="f00", client='a "name"\nof two lines'):
        with about(round=3):
            log.warning("left out: %s", "no answer within 0.2 s")
        log.info("at the end")
    log.info("of nothing")
    first, second, third = lines()
    assert first.items() >= {
        ("level", "warning"),
        ("logger", "perdl.server"),
        ("run", "f00"),
        ("round", 3),
        ("client", 'a "name"\nof two lines'),
        ("text", "left out: no answer within 0.2 s"),
    }
    assert "round" not in second
    assert second["run"] == "f00"
    assert "run" not in third


def test_the_text_of_an_exception_is_never_written(lines):
    record = []
    handler = logging.Handler()
    handler.emit = lambda r: record.append(PlainLog().format(r))
    logging.getLogger("perdl.client").addHandler(handler)
    try:
        try:
            float("secret 0.12345")
        except ValueError:
            logging.getLogger("perdl.client").exception("unforeseen failure")
    finally:
        logging.getLogger("perdl.client").removeHandler(handler)
    (line,) = lines()
    assert line["exception"] == "ValueError"
    assert any(__file__ in frame for frame in line["frames"])
    for text in (json.dumps(line), record[0]):
        assert "unforeseen failure" in text
        assert "secret" not in text


def test_a_warning_is_a_note_and_all_lines_tell_their_time(capsys):
    root, log = logging.getLogger(), logging.getLogger("perdl.client")
    former, root.handlers = root.handlers, []
    try:
        told = {logging.WARNING: r"ada: note: units", logging.INFO: r"\d{4}-.* perdl\.client units"}
        for level, expected in told.items():
            root.handlers = []
            start_log(level)
            with about(client="ada"):
                log.warning("units")
            assert re.fullmatch(expected, capsys.readouterr().err.strip())
    finally:
        root.handlers = former


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_log_on_a_full_disk_ends_nothing():
    """The second line looks the file up anew and flushes what the first one left."""
    with logged_to(Path("/dev/full")):
        for _ in range(3):
            logging.getLogger("perdl.server").warning("one line")
