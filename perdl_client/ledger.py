"""The ledger: how many runs and first dictionaries a client's data served so far, beside the data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.files import write_json
from common.locks import locked_file
from perdl_client.formats.file_checks import LEDGER
from perdl_client.terms import Terms, TermsError

_KIND = "perdl ledger"
_VERSION = 1


@dataclass(frozen=True)
class Used:
    """What the data served in one run.

    Parameters
    ----------
    began : str
        When the run first asked for a first dictionary.
    first_dictionaries : int
        How many different ones were sent.
    rounds : int
        Rounds that were answered, those asked again included.
    """

    began: str
    first_dictionaries: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Ledger:
    """What the data served in all.

    Parameters
    ----------
    path : Path
        Its file.
    runs : mapping of str to Used
        By the run's id.
    """

    path: Path
    runs: Mapping[str, Used] = field(default_factory=dict)

    @property
    def first_dictionaries(self) -> int:
        """First dictionaries that were sent."""
        return sum(one.first_dictionaries for one in self.runs.values())

    def check_start(self, run: str, terms: Terms, name: str) -> None:
        """Refuse a first dictionary that is one too many.

        Parameters
        ----------
        run : str
            The run's id.
        terms : Terms
            The client's terms.
        name : str
            The client's name, for errors.

        Raises
        ------
        TermsError
            It names the ledger and the numbers.
        """
        cure = f"let the client's owner raise `{{}}` in its terms if that is meant (the count is in {self.path.name})"
        if run not in self.runs and len(self.runs) >= terms.runs:
            raise TermsError(
                f"{name} does not take part in another run: its data served {len(self.runs)}, and its terms allow "
                f"{terms.runs} in all; {cure.format('runs')}"
            )
        if self.first_dictionaries >= terms.first_dictionaries:
            raise TermsError(
                f"{name} sends no other first dictionary: its data gave {self.first_dictionaries}, and its terms allow "
                f"{terms.first_dictionaries} in all; {cure.format('first_dictionaries')}"
            )

    def check_round(self, run: str, terms: Terms, name: str) -> None:
        """Refuse a round that is one too many.

        Parameters
        ----------
        run : str
            The run's id.
        terms : Terms
            The client's terms.
        name : str
            The client's name, for errors.

        Raises
        ------
        TermsError
            It names the numbers.
        """
        answered = self.runs[run].rounds if run in self.runs else 0
        if answered >= terms.rounds:
            raise TermsError(
                f"{name} answers no other round: it answered {answered} in this run, those asked again included, and "
                f"its terms allow {terms.rounds}; let the client's owner raise `rounds` in its terms if that is meant"
            )

    def in_words(self, terms: Terms) -> str:
        """Return what is used up, as comments of a TOML file.

        Parameters
        ----------
        terms : Terms
            The client's terms.
        """
        return (
            f"# used up, by {self.path}:\n# runs: {len(self.runs)} of {terms.runs}\n"
            f"# first_dictionaries: {self.first_dictionaries} of {terms.first_dictionaries}"
        )


def ledger_path(data: Path, folder: Path) -> Path:
    """Return where the ledger of some data lies: beside the data, or in the client's folder if that cannot be written.

    Parameters
    ----------
    data : Path
        File or folder of samples.
    folder : Path
        The client's folder.
    """
    beside = data.with_name(data.name + LEDGER)
    if os.access(beside.parent, os.W_OK) and (not beside.exists() or os.access(beside, os.W_OK)):
        return beside
    return folder / beside.name


def read_ledger(path: Path) -> Ledger:
    """Return the ledger; an empty one if there is no file.

    Parameters
    ----------
    path : Path
        Its file.

    Raises
    ------
    DataError
        If it is damaged. It is never begun anew without the owner.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Ledger(path)
    except (ValueError, RecursionError):
        raise _damaged(path, "is no JSON") from None
    if not isinstance(values, dict) or values.get("kind") != _KIND:
        raise _damaged(path, "is no ledger")
    if values.get("version") != _VERSION:
        raise _damaged(path, f"is of format {values.get('version')!r}, this perdl reads {_VERSION}")
    try:
        runs = {str(run): Used(**one) for run, one in values["runs"].items()}
        numbers = [count for one in runs.values() for count in (one.first_dictionaries, one.rounds)]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(path, "holds other values than a ledger") from None
    return Ledger(path, runs)


def count_start(path: Path, run: str, terms: Terms, name: str) -> None:
    """Write down that a first dictionary is about to be sent.

    Parameters
    ----------
    path : Path
        The ledger's file.
    run : str
        The run's id.
    terms : Terms
        The client's terms.
    name : str
        The client's name, for errors.

    Raises
    ------
    TermsError
        If it is one too many.
    DataError
        If the ledger is damaged.
    """

    def one_more(ledger: Ledger) -> Used:
        ledger.check_start(run, terms, name)
        used = ledger.runs.get(run) or Used(time.strftime("%Y-%m-%d %H:%M:%S"))
        return Used(used.began, used.first_dictionaries + 1, used.rounds)

    _change(path, run, one_more)


def count_round(path: Path, run: str, terms: Terms, name: str) -> None:
    """Write down that a round is about to be answered.

    Parameters
    ----------
    path : Path
        The ledger's file.
    run : str
        The run's id.
    terms : Terms
        The client's terms.
    name : str
        The client's name, for errors.

    Raises
    ------
    TermsError
        If it is one too many.
    DataError
        If the ledger is damaged.
    """

    def one_more(ledger: Ledger) -> Used:
        ledger.check_round(run, terms, name)
        used = ledger.runs.get(run) or Used(time.strftime("%Y-%m-%d %H:%M:%S"))
        return Used(used.began, used.first_dictionaries, used.rounds + 1)

    _change(path, run, one_more)


def _change(path: Path, run: str, change: Callable[[Ledger], Used]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(path):
        ledger = read_ledger(path)
        runs = {**ledger.runs, run: change(ledger)}
        values: dict[str, Any] = {key: vars(one) for key, one in runs.items()}
        write_json(path, {"kind": _KIND, "version": _VERSION, "runs": values})


def _damaged(path: Path, how: str) -> DataError:
    return DataError(
        f"the ledger {path} {how}: put it back from a backup, or, if you accept that its counts are lost, move it away"
    )
