"""What people do wrong: each mistake is made, and what perdl says names the culprit and the cure."""

from __future__ import annotations

import os
from pathlib import Path

import page
import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mistakes.md").read_text(encoding="utf-8")
ALL = [(title, mistake) for title, mistakes in page.SECTIONS.items() for mistake in mistakes]


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """In a folder of its own; what a client's command sets for its process is set back."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    mask = os.umask(0o022)
    yield
    os.umask(mask)


@pytest.mark.parametrize(("title", "mistake"), ALL, ids=[f"{title}: {one.what}" for title, one in ALL])
def test_a_mistake_is_told_with_its_cure(title, mistake):
    said = mistake.do()
    told = said.about(mistake.words)
    assert said.code == mistake.code, said.text
    assert all(word in told for word in mistake.words), told
    assert bool(told) == bool(mistake.words)
    assert "\n" not in told
    assert "Traceback" not in told
    if not said.foreign:
        rows = [line for line in PAGE.splitlines() if line.startswith(f"| {mistake.what} | ")]
        words = [word.replace("|", "\\|") for word in mistake.words]
        held = any(all(word in row for word in words) and row.endswith(f" | {mistake.cure} |") for row in rows)
        assert held, "run: python tests/mistakes/page.py > docs/mistakes.md"


def test_the_page_has_these_mistakes_and_no_others():
    told = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert [one for one in told if one != "mistake"] == [mistake.what for _, mistake in ALL]
    titles = [mistake.what for _, mistake in ALL]
    assert len(titles) >= 40
    assert all(len(set(names)) == len(names) for names in ([m.what for m in part] for part in page.SECTIONS.values()))
