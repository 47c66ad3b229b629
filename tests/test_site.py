"""The docs as a site: it builds without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Page(HTMLParser):
    """What a page of HTML refers to, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.loaded, self.anchors = path, [], [], set()
        self.text = path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.anchors |= {a[key] for key in ("id", "name") if a.get(key)}
        if tag == "a" and "href" in a:
            self.links.append(a["href"])
        self.loaded += [a[key] for key in ("src", "data", "poster", "srcset") if key in a]
        if tag == "link" and a.get("rel") not in ("index", "search", "next", "prev", "author"):
            self.loaded.append(a["href"])
        self.loaded += re.findall(r"url\(([^)]+)\)", a.get("style") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "myst_parser", "numpydoc", "furo", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra: docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-n",
        "-q",
        "--keep-going",
        "-d",
        f"{folder}/trees",
        "docs",
        f"{folder}/html",
    ]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.resolve(): Page(path) for path in (folder / "html").rglob("*.html")}


def test_every_page_of_the_docs_is_in_the_site_and_its_tables_of_contents(site):
    home = site[min(path.parent for path in site) / "index.html"]
    here = {link.partition("#")[0] for link in home.links if not urlsplit(link).scheme}
    listed = {home.path, *((home.path.parent / link).resolve() for link in here)}
    for source in (ROOT / "docs").rglob("*.md"):
        path = (home.path.parent / source.relative_to(ROOT / "docs")).with_suffix(".html").resolve()
        assert path in site
        assert path in listed, f"{source.name} is in no table of contents"


def test_links_within_the_site_lead_to_pages_and_places_that_are_there(site):
    checked = 0
    for page in site.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
            assert target.is_file(), f"{page.path.name}: {link}"
            if parts.fragment and target in site:
                assert unquote(parts.fragment) in site[target].anchors, f"{page.path.name}: {link}"
            checked += 1
    assert checked > 500


def test_the_site_loads_nothing_from_elsewhere(site):
    home = min(path.parent for path in site)
    for page in site.values():
        for loaded in page.loaded:
            parts = urlsplit(loaded)
            assert parts.scheme in ("", "data"), f"{page.path.name} loads {loaded}"
            assert not parts.netloc, f"{page.path.name} loads {loaded}"
            if not parts.scheme:
                assert (page.path.parent / unquote(parts.path)).is_file(), f"{page.path.name}: {loaded}"
    for sheet in home.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s+)['\"]?(https?:)?//", sheet.read_text()), sheet.name


def test_formulas_are_drawn_by_the_browser_itself(site):
    pages = {page.path.name: page.text for page in site.values()}
    assert pages["concepts.html"].count("<math") >= 5
    assert pages["reference.html"].count("<math") > 10
    for name, text in pages.items():
        assert "$$" not in text, name
        assert not re.search(r"<script[^>]*(mathjax|katex)", text, re.I), name


def test_the_figures_of_the_concepts_can_be_drawn_again(tmp_path):
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs" / "figures" / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    shown = re.findall(r"figures/concepts_(\w+)\.png", (ROOT / "docs" / "concepts.md").read_text())
    assert sorted(shown) == sorted(draw.FIGURES)
    assert {path.name for path in draw.FOLDER.glob("concepts_*")} == {f"concepts_{name}.png" for name in shown}
    for path in draw.main(tmp_path, ["paths", "jump"]):  # the others take longer
        assert path.stat().st_size > 5000
