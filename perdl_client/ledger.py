"""The ledger: how many runs and first dictionaries a client's data served so far, beside the data."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.files import write_json
from common.locks import locked_file
from common.privacy_settings import PrivacySettings
from common.protocol import search_of
from perdl_client.formats.file_checks import LEDGER
from perdl_client.terms import Terms, TermsError

_KIND = "perdl ledger"
_VERSION = 1


@dataclass(frozen=True)
class Used:
    """What the data served in one run, or in one search of settings.

    Parameters
    ----------
    began : str
        When the run first asked for something.
    first_dictionaries : int
        How many were sent. The same one, sent again in another trial of a search, counts once.
    rounds : int
        Rounds that were answered, those asked again included.
    trials : int
        Trials of a search that were begun.
    epsilon, delta : float
        Budget that was spent, with ``privacy = "private"``.
    """

    began: str
    first_dictionaries: int = 0
    rounds: int = 0
    trials: int = 0
    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True)
class Ledger:
    """What the data served in all.

    Parameters
    ----------
    path : Path
        Its file.
    runs : mapping of str to Used
        By the id of the run, or of the search.
    """

    path: Path
    runs: Mapping[str, Used] = field(default_factory=dict)

    def total(self, what: str) -> float:
        """Return a sum over all runs.

        Parameters
        ----------
        what : str
            A field of `Used`.
        """
        return sum(float(getattr(one, what)) for one in self.runs.values())

    def check_run(self, run: str, terms: Terms, name: str) -> None:
        """Refuse a run that is one too many.

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
        if search_of(run) not in self.runs and len(self.runs) >= terms.runs:
            raise self._refused(
                f"{name} does not take part in another run: its data served {len(self.runs)}",
                f"{terms.runs} in all",
                "runs",
            )

    def check_start(self, run: str, privacy: PrivacySettings, terms: Terms, name: str) -> None:
        """Refuse a run, a trial or a first dictionary that is one too many, or an epsilon that is not left.

        Parameters
        ----------
        run : str
            The run's id.
        privacy : PrivacySettings
            The run's.
        terms : Terms
            The client's terms.
        name : str
            The client's name, for errors.

        Raises
        ------
        TermsError
            It names the ledger and the numbers.
        """
        self.check_run(run, terms, name)
        if self.total("first_dictionaries") >= terms.first_dictionaries:
            raise self._refused(
                f"{name} sends no other first dictionary: its data gave {self.total('first_dictionaries'):g}",
                f"{terms.first_dictionaries} in all",
                "first_dictionaries",
            )
        trials = self.runs[search_of(run)].trials if search_of(run) in self.runs else 0
        if search_of(run) != run and trials >= terms.trials:
            raise self._refused(
                f"{name} begins no other trial: this search began {trials}", f"{terms.trials} in a search", "trials"
            )
        for what, asked in zip(("epsilon", "delta"), spent(privacy), strict=True):
            before, most = self.total(what), getattr(terms, what)
            if before + asked > most:
                raise self._refused(
                    f"{name} does not take part with {what} = {asked:g}: its data spent {before:g}",
                    f"{most:g} in all",
                    what,
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
        used = self.runs.get(search_of(run), Used(""))
        most = terms.rounds * max(used.trials, 1)
        if used.rounds >= most:
            raise self._refused(
                f"{name} answers no other round: it answered {used.rounds} in this run, those asked again included",
                f"{most}",
                "rounds",
            )

    def in_words(self, terms: Terms) -> str:
        """Return what is used up, as comments of a TOML file.

        Parameters
        ----------
        terms : Terms
            The client's terms.
        """
        lines = [f"# used up, by {self.path}:", f"# runs: {len(self.runs)} of {terms.runs}"]
        for what in ("first_dictionaries", "epsilon", "delta"):
            lines.append(f"# {what}: {self.total(what):g} of {getattr(terms, what):g}")
        return "\n".join(lines)

    def _refused(self, why: str, allowed: str, term: str) -> TermsError:
        return TermsError(
            f"{why}, and its terms allow {allowed}; let the client's owner raise `{term}` in its terms if that is "
            f"meant (the count is in {self.path.name})"
        )


def spent(privacy: PrivacySettings) -> tuple[float, float]:
    """Return the epsilon and the delta that a run spends. Those of several runs add up.

    Parameters
    ----------
    privacy : PrivacySettings
        The run's.
    """
    private = privacy.mode == "private" and privacy.epsilon is not None
    return (privacy.epsilon or 0.0, privacy.delta) if private else (0.0, 0.0)


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
        for one in runs.values():
            counts, sums = (one.first_dictionaries, one.rounds, one.trials), (one.epsilon, one.delta)
            if not all(type(count) is int for count in counts) or not all(
                0 <= some < math.inf for some in counts + sums
            ):
                raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(path, "holds other values than a ledger") from None
    return Ledger(path, runs)


def count_run(path: Path, run: str, terms: Terms, name: str) -> None:
    """Write down that the data serve a run.

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

    def one_more(ledger: Ledger, used: Used) -> Used:
        ledger.check_run(run, terms, name)
        return used

    _change(path, run, one_more)


def count_start(path: Path, run: str, privacy: PrivacySettings, terms: Terms, name: str, *, is_new: bool) -> None:
    """Write down that a first dictionary is about to be sent.

    Parameters
    ----------
    path : Path
        The ledger's file.
    run : str
        The run's id.
    privacy : PrivacySettings
        The run's.
    terms : Terms
        The client's terms.
    name : str
        The client's name, for errors.
    is_new : bool
        Whether this dictionary was not sent before, in another trial of a search.

    Raises
    ------
    TermsError
        If it is one too many.
    DataError
        If the ledger is damaged.
    """

    def one_more(ledger: Ledger, used: Used) -> Used:
        ledger.check_start(run, privacy, terms, name)
        epsilon, delta = spent(privacy)
        return replace(
            used,
            first_dictionaries=used.first_dictionaries + is_new,
            trials=used.trials + (search_of(run) != run),
            epsilon=used.epsilon + epsilon,
            delta=used.delta + delta,
        )

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

    def one_more(ledger: Ledger, used: Used) -> Used:
        ledger.check_round(run, terms, name)
        return replace(used, rounds=used.rounds + 1)

    _change(path, run, one_more)


def _change(path: Path, run: str, change: Callable[[Ledger, Used], Used]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = search_of(run)
    with locked_file(path):
        ledger = read_ledger(path)
        used = ledger.runs.get(owner) or Used(time.strftime("%Y-%m-%d %H:%M:%S"))
        runs = {**ledger.runs, owner: change(ledger, used)}
        values: dict[str, Any] = {key: vars(one) for key, one in runs.items()}
        write_json(path, {"kind": _KIND, "version": _VERSION, "runs": values})


def _damaged(path: Path, how: str) -> DataError:
    return DataError(
        f"the ledger {path} {how}: put it back from a backup, or, if you accept that its counts are lost, move it away"
    )
