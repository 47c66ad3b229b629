"""PerMA as a Flower strategy: initialise, match, T rounds, finish.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 1.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from common.errors import PerdlError
from common.logs import about
from common.protocol import UPDATE, Payload
from common.settings import Settings
from perdl_server.aggregation import AGGREGATIONS, combiner, consensus, idle_atoms
from perdl_server.checkpoint import Checkpoint
from perdl_server.checks import METRICS, check_update
from perdl_server.doubts import Ended, warnings
from perdl_server.exchange import Exchange
from perdl_server.federation import LAST_WORD, Federation
from perdl_server.initial_matching import initial_matching
from perdl_server.matching import MatchingError
from perdl_server.results import RunFolder
from perdl_server.roster import Member, Roster
from perdl_server.summary import describe, final_metrics, spread

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")
_ARRAY = "global_dictionary"


class PerMA(Strategy):
    """Personalized matching and averaging.

    Parameters
    ----------
    settings : Settings
    folder : RunFolder
        Where results go while the run goes on.

    Notes
    -----
    Clients are taken in the order of their names, whatever the order of arrival: in the chain of the matching and in
    every sum. Each round asks every member; it goes on when all have answered or ``round_timeout`` is over and at
    least ``quorum`` have.
    """

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self.settings = settings
        self.folder = folder
        self._federation: Federation | None = None
        self._aggregation = AGGREGATIONS[settings.aggregation]
        self._combine = combiner(settings.aggregation, settings.trim)
        self._present: Floats = np.empty((0, 0))
        self._consensus: Floats = np.empty(0)
        self._change: float | None = None
        self._idle: list[int] = []
        self._rows: list[dict[str, Any]] = []
        self._report: dict[str, Any] = {}
        self._began = time.monotonic()

    def summary(self) -> None:
        """Log what is going to be done."""
        s = self.settings
        _log.info(
            "PerMA: %d clients, n_global %s, %s, at most %d rounds", s.n_clients, s.n_global, s.aggregation, s.rounds
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run PerMA to its end and write the run's folder.

        Parameters
        ----------
        grid : Grid
        initial_arrays, train_config, evaluate_config, evaluate_fn
            Not used: PerMA finds its start itself.
        num_rounds, timeout : optional
            Instead of the settings' ``rounds`` and ``round_timeout``.

        Returns
        -------
        Result
            ``arrays`` holds the final D^g.

        Raises
        ------
        PerdlError
            If too few clients join or answer, or they do not fit together. What was done until then is saved.
        """
        changes = {"rounds": num_rounds, "round_timeout": timeout}
        self.settings = self.settings.model_copy(update={k: v for k, v in changes.items() if v is not None})
        self._report = describe(self.settings)
        federation = self._federation = self._gather(grid)
        with about(run=federation.roster.run):
            return self._run(federation)

    def _run(self, federation: Federation) -> Result:
        self.summary()
        result, reason, former = Result(), "interrupted", self.folder.checkpoint
        # Of a run whose rounds are all done nothing depends on who comes back to hear so.
        more = former is not None and former.ended == "rounds" and former.round < self.settings.rounds
        ended = former.ended if former and not more else ""
        patience = LAST_WORD if ended else None
        try:
            if former is None:
                federation.join()
                result.arrays = self._match(federation)
            else:
                result.arrays = _record(former.dictionary)
                federation.rejoin(patience)
            reason = ended or self._rounds(federation, result)
            federation.finish(_content(result.arrays), patience)
        except KeyboardInterrupt:
            federation.dismiss(_content(result.arrays), "it was interrupted at the server")
            raise
        except Exception as error:
            reason = f"failed: {error}" if isinstance(error, PerdlError) else f"failed: {type(error).__name__}: {error}"
            federation.dismiss(_content(result.arrays), "it failed at the server, whose log says why")
            raise
        finally:
            self._save(federation, result.arrays, reason)
            _log.info("ended: %s", reason)
        return result

    def _gather(self, grid: Grid) -> Federation:
        """Set up the members: none yet, or those of the run that is resumed."""
        former = self.folder.checkpoint
        self._began = time.monotonic() - (former.seconds if former else 0.0)
        exchange = Exchange(grid, self.folder.asked_to_stop, former.bytes if former else {})
        if former is None:
            return Federation(Roster(self.settings, exchange, secrets.token_hex(8)))
        resumed = former.report.get("resumed", 0) + 1
        self._report = {**former.report, **self._report, "rounds": former.round, "resumed": resumed}
        self._consensus = former.consensus
        members = [
            Member(name, dict(facts), gone=True, match=dict(former.matches.get(name, {})))
            for name, facts in former.members.items()
        ]
        roster = Roster(self.settings, exchange, former.run, members)
        roster.global_dictionary = former.dictionary
        _log.info("going on after round %d", former.round)
        return Federation(roster)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each member, with D^g and, until it has answered, its own match."""
        return self._members.messages(UPDATE, _content(arrays), self._members.members, round=server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the new D^g from clients' contributions, and the mean of their metrics."""
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        answers = [
            (member, self._members.read(member, by_node[member.node], self._check(server_round)))
            for member in self._members.members
            if member.node in by_node
        ]
        return self._aggregate(server_round, answers)

    def _check(self, t: int) -> Callable[[Payload], object]:
        return lambda payload: check_update(payload, t, self._present, self._aggregation)

    def _aggregate(
        self, server_round: int, answers: Sequence[tuple[Member, Payload]]
    ) -> tuple[ArrayRecord, MetricRecord]:
        A = np.stack([payload.arrays["contribution"] for _, payload in answers])
        w = np.stack([payload.arrays.get("energies", np.ones(A.shape[2], A.dtype)) for _, payload in answers])
        self._consensus = consensus(A)
        self._idle = idle_atoms(A, w)
        with np.errstate(over="ignore", invalid="ignore"):
            new = self._combine(A, w, self._present)
        if not np.isfinite(new).all():
            raise PerdlError(f"round {server_round}: D^g is not finite any more; rescale the data")
        self._rows = [
            {"round": server_round, "client": member.name, **{key: payload.scalars[key] for key in METRICS}}
            for member, payload in answers
        ]
        errors = [row["error_before_update"] for row in self._rows]
        return _record(new), MetricRecord({"error_before_update": float(np.mean(errors)), "clients": len(answers)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return nothing: clients measure what they train on."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing."""
        return None

    def _match(self, federation: Federation) -> ArrayRecord:
        """Phase 0: find the shared atoms, and tell each member its own."""
        members = federation.members
        try:
            start = initial_matching(
                {member.name: member.dictionary for member in members},
                [member.usage for member in members],
                self.settings,
            )
        except MatchingError as error:
            federation.roster.blame(error.client, str(error))
            raise
        for member, index, sign in zip(members, start.matching.indices, start.matching.signs, strict=True):
            member.match = {"indices": index, "signs": sign}
            member.dictionary = np.empty((len(member.dictionary), 0))  # the server keeps no client's atoms
        self._report |= start.report
        self._consensus = start.consensus
        federation.roster.global_dictionary = start.global_dictionary
        self._checkpoint(federation, 0, start.global_dictionary)
        return _record(start.global_dictionary)

    def _rounds(self, federation: Federation, result: Result) -> str:
        """T rounds; return why they ended."""
        former, reason = self.folder.checkpoint, "rounds"
        for t in range(former.round + 1 if former else 1, self.settings.rounds + 1):
            present = self._present = result.arrays[_ARRAY].numpy()
            with about(round=t):
                answers = federation.ask(UPDATE, _content(result.arrays), f"round {t}", self._check(t), round=t)
            result.arrays, result.train_metrics_clientapp[t] = self._aggregate(t, answers)
            self._report["rounds"] = t  # from here on D^g is this round's, whatever interrupts
            new = federation.roster.global_dictionary = result.arrays[_ARRAY].numpy()
            change = self._change = float(np.linalg.norm(new - present, axis=0).max(initial=0.0))
            row = {
                "round": t,
                "change": change,
                "consensus": spread(self._consensus.tolist()),
                "error_before_update": spread([row["error_before_update"] for row in self._rows]),
                "clients": len(self._rows),
                "bytes": sum(sum(phase.values()) for phase in federation.exchange.bytes.values()),
                "seconds": time.monotonic() - self._began,
            }
            self.folder.add_round(row, self._rows)
            with about(round=t):
                _log.info("round done: %d clients, change %.3g", len(self._rows), change)
            self.folder.save_dictionary(new, self._consensus, every=1.0)
            if new.size and change <= self.settings.tolerance:  # with r^g = 0 nothing can come to rest
                reason = "tolerance"
            ended = reason if reason == "tolerance" or t == self.settings.rounds else ""
            self._checkpoint(federation, t, new, ended)
            if ended:
                break
            if wish := self.folder.last_round():  # its checkpoint says nothing of that: the run can be resumed
                return wish
        return reason

    def _checkpoint(self, federation: Federation, t: int, D_g: Floats, ended: str = "") -> None:
        members = federation.members
        self.folder.save_checkpoint(
            lambda: Checkpoint(
                run=federation.roster.run,
                round=t,
                dictionary=D_g,
                consensus=self._consensus,
                members={member.name: member.facts for member in members},
                matches={member.name: member.match for member in members if member.match},
                report=self._report,
                bytes=federation.exchange.bytes,
                seconds=time.monotonic() - self._began,
                ended=ended,
            )
        )

    def _save(self, federation: Federation, arrays: ArrayRecord | None, reason: str) -> None:
        """Write what is known, whether the run ended well or not."""
        facts = {member.name: member.facts for member in federation.members}
        D = arrays[_ARRAY].numpy() if arrays else None
        final = final_metrics(facts, D, self.settings)
        if D is not None:
            self.folder.save_dictionary(D, self._consensus)
            final["consensus"] = spread(self._consensus.tolist())
            if self._change is not None:
                final["change"] = self._change
            self._report["warnings"] = warnings(
                Ended(self._report, facts, self.settings, D, self._consensus, self._idle)
            )
        shapes = {member.facts["shape"] for member in federation.members if member.facts.get("shape")}
        if len(shapes) == 1:
            self._report["shape"] = [int(side) for side in shapes.pop().split("x")]
        summary = {
            **self._report,
            "rounds": self._report.get("rounds", 0),
            "stop_reason": reason,
            "clients": facts,
            "final": final,
            "bytes": dict(federation.exchange.bytes),
            "seconds": time.monotonic() - self._began,
        }
        self.folder.save_summary(summary)

    @property
    def _members(self) -> Federation:
        assert self._federation is not None, "start() gathers the clients"
        return self._federation


def _content(arrays: ArrayRecord | None) -> dict[str, NDArray[Any]]:
    return {_ARRAY: arrays[_ARRAY].numpy()} if arrays else {}


def _record(D: Floats) -> ArrayRecord:
    return ArrayRecord({_ARRAY: Array(np.ascontiguousarray(D))})
