"""Writes docs/mistakes.md from what perdl really says: ``python tests/mistakes/page.py > docs/mistakes.md``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from wrong import Mistake, Said, arrays, deployment, files, plain, settings

SECTIONS = {
    "Files": files.MISTAKES,
    "Settings and the command line": settings.MISTAKES,
    "Python": arrays.MISTAKES,
    "Servers and clients": deployment.MISTAKES,
}
HEAD = """# Mistakes, and what perdl says

Each row was made, and perdl's answer to it is what you see. `tests/mistakes` makes them again at every test, and
holds the key words of each answer to this page. In *Files* the client called bob has the mistake. Where perdl goes on,
a note or a warning says what is doubtful. Exit codes are in [Running](running.md#when-it-fails).
"""


def row(mistake: Mistake, said: Said, here: Path) -> str:
    """Return a mistake's line of the page."""
    told = plain(said.about(mistake.words), here).replace("|", "\\|")
    return f"| {mistake.what} | {f'`` {told} ``' if told else '(nothing)'} | {mistake.cure} |"


def main() -> None:
    """Make every mistake, each in a folder of its own, and print the page."""
    print(HEAD, end="")
    home = Path.cwd()
    for title, mistakes in SECTIONS.items():
        print(f"\n## {title}\n\n| mistake | perdl says | cure |\n|---|---|---|")
        for mistake in mistakes:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                print(row(mistake, mistake.do(), Path(folder)))
                os.chdir(home)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()
