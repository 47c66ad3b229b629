"""The site of the docs: `sphinx-build docs site`.

Sphinx with MyST because the pages stay the Markdown that a forge shows, numpydoc because it is the docstrings' style,
furo because it loads nothing from elsewhere, latex2mathml because browsers draw MathML without help, offline too.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from perdl import __version__  # noqa: E402

project, author, version = "perdl", "The perdl authors", __version__
copyright = "The perdl authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
html_title = f"perdl {version}"
html_copy_source = False
autodoc_typehints = "none"  # the docstrings say more
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
html_math_renderer = "mathml"

ELSEWHERE = {"overview": "README.md", "changes": "CHANGELOG.md", "benchmarks": "benchmarks/README.md"}
"""Pages whose text is a file outside this folder; in the repository each is a line with a link to it."""


def take_from_elsewhere(app: Sphinx, page: str, source: list[str]) -> None:
    """Put in the text of a file outside this folder, and turn links to such files to their pages."""
    path = DOCS / f"{page}.md"
    if page in ELSEWHERE:
        path = ROOT / ELSEWHERE[page]
        app.env.note_dependency(str(path))
        source[0] = path.read_text(encoding="utf-8")
    homes = {ROOT / file: DOCS / f"{name}.md" for name, file in ELSEWHERE.items()}

    def turned(match: re.Match[str]) -> str:
        target, place = match.groups()
        there = (path.parent / target).resolve()
        if not there.exists():  # an address, or an error that Sphinx reports
            return match[0]
        return f"]({os.path.relpath(homes.get(there, there), (DOCS / page).parent)}{place})"

    source[0] = re.sub(r"\]\(([^)#\s]+)((?:#[^)\s]*)?)\)", turned, source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", take_from_elsewhere)
    app.add_html_math_renderer("mathml", inline_renderers=(inline_math, None), block_renderers=(block_math, None))


def inline_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block_math(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
