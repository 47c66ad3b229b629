"""Choose settings by held-out error over a federation: many short runs, its trials, with the same connected clients.

A trial is what any run is (join, match, rounds), but no client writes a model. At its end each client tells the error
of its held-out samples, and forgets the trial. :mod:`perdl_server.algorithm.search` says what is tried.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Set
from hashlib import blake2b
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from common.errors import FederationError, PerdlError
from common.files import plain, write_json, write_text
from common.logs import about
from common.protocol import FINISH, MEASURE, Payload, ProtocolError, Scalar, pack
from common.settings import Settings
from common.threads import one_blas_thread
from common.words import listed
from perdl_server.algorithm.search import Outcome, Sizes, Trial, search
from perdl_server.algorithm.server import PermaServer
from perdl_server.app import begin
from perdl_server.federation.members import Members, State
from perdl_server.federation.messages import Exchange, Question
from perdl_server.federation.rounds import Federation
from perdl_server.federation.steps import arrays_of, match_members, take_round
from perdl_server.results import FIXED, STOP, TRIALS, TUNING

_log = logging.getLogger("perdl.server")

TUNED = "tuned"
"""Stop reason of a search that came to its end."""

TRIED = "tried"
"""Key of the log's lines that tell of a trial that is over."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Search settings with the clients that join, from the settings in ``context.run_config``.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's connection to the nodes.
    context : flwr.app.Context
        Holds the configuration.
    """
    config = dict(context.run_config)
    fixed = str(config.pop(FIXED, ""))
    Tuner(begin(config), grid, frozenset(fixed.split(",")) - {""}).run()


class Tuner:
    """One search of settings over a grid. It writes ``trials.jsonl`` as it goes on, and at its end ``tuning.json``.

    Parameters
    ----------
    settings : Settings
        Where the search begins. ``rounds`` is the number of rounds of each trial. All ``n_clients`` take part in every
        trial, else their errors could not be compared: ``quorum`` is not heeded.
    grid : flwr.serverapp.Grid
        Flower's connection to the nodes.
    fixed : set of str
        Settings that are not varied.

    Attributes
    ----------
    trials : list of Trial
        The trials so far.
    """

    def __init__(self, settings: Settings, grid: Grid, fixed: Set[str] = frozenset()) -> None:
        self.settings = settings.model_copy(update={"quorum": None})
        self.trials: list[Trial] = []
        self._grid, self._fixed, self._folder = grid, fixed, Path(settings.output)
        self._exchange = Exchange(grid, (self._folder / STOP).exists)
        self._search, self._begun, self._began = secrets.token_hex(8), 0, time.monotonic()
        self._federation = Federation(self.settings, self._exchange, self._search, PermaServer(self.settings))
        self._scale: list[float] | None = None
        self._judged: list[str] = []
        self._facts: dict[str, dict[str, Any]] = {}  # of each client, as it told them first
        self._shown: dict[str, set[bytes]] = {}  # hashes of the first dictionaries that each client sent

    def run(self) -> None:
        """Search, let the clients go, and write the result.

        Raises
        ------
        PerdlError
            If a client is lost, or no settings can be used. The trials so far are in the folder.
        """
        reason, best = "interrupted", None  # best: its place among the trials
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text(self._folder / TRIALS, "")
        try:
            with one_blas_thread():
                trials, chosen = search(self._measure, self._sizes, self.settings, self._note, self._fixed)
            best = next(i for i, one in enumerate(trials) if one is chosen)
            reason = TUNED
            self._let_go()
        except KeyboardInterrupt:
            self._let_go("it was interrupted at the server")
            raise
        except Exception as error:
            reason = f"failed: {error}" if isinstance(error, PerdlError) else f"failed: {type(error).__name__}: {error}"
            self._let_go("it failed at the server, whose log says why")
            raise
        finally:
            self._save(reason, best)
            _log.info("ended: %s", reason)

    def _measure(self, settings: Settings) -> Outcome:
        """Do one trial. Raise if a client is lost: without it, errors cannot be compared."""
        self._begun += 1
        run = f"{self._search}/{self._begun}"
        self._exchange.open.clear()
        self._federation = federation = Federation(settings, self._exchange, run, PermaServer(settings))
        with about(run=run, trial=self._begun):
            try:
                return self._trial(federation)
            except PerdlError as failure:
                if _has_lost_one(federation):
                    here = {member.name for member in federation.members}
                    lost = [name for name in self._facts if name not in here]
                    raise FederationError(
                        f"trial {self._begun}: {failure}{f', without {listed(lost)}' if lost else ''}; each trial "
                        f"needs all {settings.n_clients} clients: start server and clients again"
                    ) from None
                return Outcome(failed=str(failure))

    def _trial(self, federation: Federation) -> Outcome:
        server = federation.server
        self._scale = federation.agree_on_scale(self._scale)
        try:
            federation.join()
        finally:
            self._learn_of(federation.members)
        match_members(federation)
        for t in range(1, federation.settings.rounds + 1):
            take_round(federation, t)
            if server.at_rest:
                break
        answers = federation.ask(Question(MEASURE, "the end", _check_error, arrays_of(server)))
        told = {member.name: payload.scalars for member, payload in answers}
        errors = {name: float(one["held_out_error"]) for name, one in told.items() if "held_out" in one}
        if errors and not self._judged:
            self._judged = list(errors)
            if others := [name for name in told if name not in errors]:
                _log.warning("too few samples to hold some out: errors of %s do not count", listed(others))
        return Outcome(server.global_dictionary.shape[1], errors)

    def _learn_of(self, members: Members) -> None:
        """Note the sizes of the clients' samples, and that the server has seen their first dictionaries."""
        for member in members:
            self._facts.setdefault(member.name, member.facts)
            self._shown.setdefault(member.name, set()).add(blake2b(member.dictionary.tobytes()).digest())

    def _sizes(self) -> Sizes:
        if not self._facts:  # no client could start
            raise PerdlError(self.trials[0].failed)
        facts = self._facts.values()
        return Sizes(*(min(one[key] for one in facts) for key in ("n_features", "n_samples")))

    def _note(self, trial: Trial) -> None:
        """Add a trial to the file, and log it."""
        self.trials.append(trial)
        write_text(self._folder / TRIALS, "".join(json.dumps(plain(self._row(one))) + "\n" for one in self.trials))
        shared = f"{trial.n_global} shared atom{'s' * (trial.n_global != 1)}"
        what = trial.failed or f"error {trial.error:.3g}, {shared}"
        with about(**{TRIED: len(self.trials)}):
            _log.info("trial %d, %s: %s (%.1f s)", len(self.trials), trial.group, what, trial.seconds)

    def _row(self, trial: Trial) -> dict[str, Any]:
        errors = dict(zip(self._judged, trial.errors.tolist(), strict=False))
        return {
            "group": trial.group,
            "values": trial.values,
            "n_global": trial.n_global,
            "errors": errors,
            "seconds": trial.seconds,
            "failed": trial.failed,
        }

    def _let_go(self, reason: str = "") -> None:
        """Tell every node that this is the end. One with a fault of its own is told that instead of the reason."""
        federation = self._federation
        faults = {member.node: member.fault for member in federation.members if member.fault}
        faults |= federation.admission.refusals
        messages = {}
        for i in self._grid.get_node_ids():
            told: dict[str, Scalar] = {"reason": faults.get(i, reason)} if reason else {"trials": self._begun}
            messages[i] = Message(pack(None, run=self._search, **told), i, FINISH)
        federation.let_go(messages)

    def _save(self, reason: str, best: int | None) -> None:
        write_json(
            self._folder / TUNING,
            plain(
                {
                    "stop_reason": reason,
                    "settings": self.settings.model_dump(exclude_none=True),
                    "trials": [self._row(one) for one in self.trials],
                    "chosen": best,
                    "not_judged": [name for name in self._facts if name not in self._judged],
                    "first_dictionaries": {name: len(one) for name, one in self._shown.items()},
                    "bytes": dict(self._exchange.bytes),
                    "seconds": time.monotonic() - self._began,
                }
            ),
        )


def _has_lost_one(federation: Federation) -> bool:
    """Whether a client is gone or does not answer. One that failed in its own words is still there."""
    admission, silent = federation.admission, (State.AWAY, State.ASKED)
    here = len(admission.candidates) >= federation.settings.n_clients
    return not here or bool(admission.awaited) or any(member.state in silent for member in federation.members)


def _check_error(payload: Payload, name: str) -> None:
    """Raise ProtocolError if what a client tells of its held-out samples cannot be."""
    if "held_out" not in payload.scalars:
        return
    n, error = payload.scalar("held_out", int), payload.scalar("held_out_error", float)
    if n < 1 or not 0 <= error <= 1.001:  # what is left of a sample after least squares is no longer than the sample
        raise ProtocolError(f"held_out_error = {error:.3g} of {n} samples cannot be")
