"""Mistakes that people make, and how to make them: in this process, in an empty folder that is the present one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from common.errors import PerdlError
from common.synthetic import generate
from perdl import NotFittedError, PerDL
from perdl.cli.app import app


@dataclass(frozen=True)
class Said:
    """What perdl answered.

    Attributes
    ----------
    code : int
        The exit code of a command, or the one that goes with an exception.
    text : str
        The line of an error; of a run that went on its notes, a line each.
    foreign : bool
        Whether the line is not perdl's own, and another one with other versions of other packages.
    """

    code: int
    text: str
    foreign: bool = False

    def about(self, words: Sequence[str]) -> str:
        """Return the error, or of the notes the one that holds all the words."""
        if self.code or not words:
            return self.text if self.code else ""
        return next((line for line in self.text.splitlines() if all(word in line for word in words)), self.text)


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes
    ----------
    what : str
        In words.
    do : callable () -> Said
        Makes it.
    code : int
        0 where perdl goes on, with a note or because it is no mistake after all.
    words : tuple of str
        What the message must hold: the culprit and the cure.
    cure : str
        For the page.
    """

    what: str
    do: Callable[[], Said]
    code: int
    words: tuple[str, ...]
    cure: str


NAMES = ("ada", "bob", "cy")
D = 5


def draw(name: str, n: int = 60) -> np.ndarray:
    """Good samples in rows: two shared atoms, two of the client's own."""
    made = generate(0, name, n_features=D, n_global=2, n_local=2, n_samples=n, sparsity=0.3)
    return np.ascontiguousarray(made.data.T)


def good_files(suffix: str = ".csv", wrong: str = "bob") -> Path:
    """Write good tables into ``data``, one for each client but the one whose table is to be ``wrong``."""
    folder = Path("data")
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        if name != wrong and suffix == ".csv":
            np.savetxt(folder / f"{name}.csv", draw(name), delimiter=",", fmt="%.6f")
        elif name != wrong:
            np.save(folder / f"{name}.npy", draw(name))
    return folder


def command(*words: str) -> Said:
    """Run perdl as the command line does."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code:
        return Said(
            done.exit_code, _error_line(done.stderr), foreign="Usage:" in done.stderr or "downloaded" in done.stderr
        )
    return Said(0, "\n".join(line for line in done.output.splitlines() if line.startswith("note: ")))


def _error_line(text: str) -> str:
    """Ours is one line; typer puts its own into a box under the usage."""
    if "Usage:" not in text:
        return text.strip()
    words = " ".join(line.strip("│╭╮╰╯─ ") for line in text.partition("Error")[2].splitlines())
    return " ".join(words.split())


def over_files(*words: str, path: str = "data") -> Said:
    """Simulate over the files in ``data``."""
    return command("simulate", "files", "-c", f"data.path={path}", "--output", "run", "-c", "rounds=3", *words)


def python(function: Callable[[], object]) -> Said:
    """Call perdl as Python does; the text has the exception's type in front, warnings follow."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function()
        except (PerdlError, NotFittedError, TypeError, ValueError) as error:
            code = error.exit_code if isinstance(error, PerdlError) else 1
            return Said(code, f"{type(error).__name__}: {error}", foreign=type(error) is TypeError)
    return Said(0, "\n".join(f"warning: {w.message}" for w in caught if w.category is UserWarning))


def fit(second: Any, **params: Any) -> Said:
    """Fit three clients, of whom the second has these samples."""
    data = {"ada": draw("ada"), "bob": second, "cy": draw("cy")}
    return python(lambda: PerDL(**{"n_global": 2, "n_atoms": 4, "rounds": 2, "n_restarts": 3, **params}).fit(data))


def fitted() -> PerDL:
    """Return a model of the three clients."""
    return PerDL(n_global=2, n_atoms=4, rounds=2, n_restarts=2).fit({name: draw(name) for name in NAMES})


def plain(text: str, here: Path) -> str:
    """Take out of a message what is another one at each call: the folder, ports, node numbers."""
    for folder in {str(here), str(here.resolve())}:
        text = text.replace(f"{folder}/", "").replace(folder, ".")
    text = re.sub(r"(127\.0\.0\.1:|port )\d{4,5}", r"\1PORT", text)
    return re.sub(r"\s+", " ", text)
