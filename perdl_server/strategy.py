"""PerMA as a Flower strategy: initialise, match, T rounds, finish.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 1.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from common.errors import PerdlError
from common.logs import about
from common.mask import simulated_mask
from common.settings import Settings
from common.simulation import is_simulation
from perdl_server.algorithm.server import PermaServer
from perdl_server.checkpoint import Checkpoint
from perdl_server.diagnostics import RunOutcome, warnings
from perdl_server.federation.members import Member, State
from perdl_server.federation.messages import Exchange
from perdl_server.federation.rounds import LAST_WORD, Federation
from perdl_server.federation.secure import ONLY_SUMS, RoundSum, SecureRounds
from perdl_server.federation.steps import arrays_of, match_members, take_round
from perdl_server.held_out import held_out_summary
from perdl_server.results import RunFolder
from perdl_server.summary import describe, final_metrics, privacy_facts, spread

_log = logging.getLogger("perdl.server")


class PerMA(Strategy):
    """Personalized matching and averaging.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    folder : RunFolder
        Where results are written.

    Notes
    -----
    Clients are ordered by name, for matching and for sums. The order of arrival does not matter. Each round asks every
    member. It ends when all have answered, or after ``round_timeout`` if at least ``quorum`` have.
    """

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self.settings = settings
        self.folder = folder
        former = folder.checkpoint
        self.server = (
            PermaServer(settings, former.dictionary, former.consensus, former.membership, former.sharers)
            if former
            else PermaServer(settings)
        )
        self._report: dict[str, Any] = {}
        self._began = time.monotonic()

    def summary(self) -> None:
        """Log the plan of the run."""
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
            Flower's connection to the nodes.
        initial_arrays : flwr.app.ArrayRecord, optional
            Not used: PerMA finds its start itself.
        num_rounds : int, optional
            Replaces the setting ``rounds``.
        timeout : float, optional
            Replaces the setting ``round_timeout``, in seconds.
        train_config, evaluate_config : flwr.app.ConfigRecord, optional
            Not used.
        evaluate_fn : callable, optional
            Not used.

        Returns
        -------
        Result
            ``arrays`` holds the final D^g.

        Raises
        ------
        PerdlError
            If too few clients join or answer, or they do not fit together. Work done so far is saved.
        """
        changes = {"rounds": num_rounds, "round_timeout": timeout}
        self.settings = self.settings.model_copy(update={k: v for k, v in changes.items() if v is not None})
        self._report = describe(self.settings)
        federation = self._gather(grid)
        with about(run=federation.run):
            return self._run(federation)

    def _run(self, federation: Federation) -> Result:
        self.summary()
        result, reason, former = Result(), "interrupted", self.folder.checkpoint
        ended = former.ended if former else ""
        if former and ended == "rounds" and former.round < self.settings.rounds:
            ended = ""  # resumed with more rounds
        federation.patience = LAST_WORD if ended else None  # all rounds are done: do not wait for absent clients
        try:
            known = former.report.get("agreed_scale") if former else None
            if constants := federation.agree_on_scale(known):
                self._report["agreed_scale"] = constants
            if former is None:
                federation.join()
                self._report |= match_members(federation)
                self._checkpoint(federation, 0)
            else:
                federation.rejoin()
            reason = ended or self._rounds(federation, result)
            federation.finish(self._final_arrays())
        except KeyboardInterrupt:
            federation.dismiss(self._final_arrays(), "it was interrupted at the server")
            raise
        except Exception as error:
            reason = f"failed: {error}" if isinstance(error, PerdlError) else f"failed: {type(error).__name__}: {error}"
            federation.dismiss(self._final_arrays(), "it failed at the server, whose log says why")
            raise
        finally:
            self._save(federation, reason)
            _log.info("ended: %s", reason)
        found = {"global_dictionary": self._readable()} if self.server.matched else {}
        result.arrays = ArrayRecord({key: Array(value) for key, value in found.items()})
        return result

    def _gather(self, grid: Grid) -> Federation:
        """Set up the members: none for a new run, those of the checkpoint for a resumed one."""
        former = self.folder.checkpoint
        self._began = time.monotonic() - (former.seconds if former else 0.0)
        exchange = Exchange(grid, self.folder.asked_to_stop, former.bytes if former else {})
        if former is None:
            return Federation(self.settings, exchange, secrets.token_hex(8), self.server)
        resumed = former.report.get("resumed", 0) + 1
        known = {"rounds": former.round, "resumed": resumed, "started": former.report["started"]}
        self._report = {**former.report, **self._report, **known}
        members = [
            Member(name, dict(facts), state=State.AWAY, indices=former.matches.get(name))
            for name, facts in former.members.items()
        ]
        _log.info("going on after round %d", former.round)
        return Federation(self.settings, exchange, former.run, self.server, members)

    def _rounds(self, federation: Federation, result: Result) -> str:
        """Run up to T rounds, and return why they ended."""
        former, server = self.folder.checkpoint, self.server
        secure = SecureRounds(federation) if self.settings.privacy.mode == "aggregated" else None
        if secure is not None:
            self._report.setdefault("secure_sums", {"note": ONLY_SUMS, "void_rounds": []})
        for t in range(former.round + 1 if former else 1, self.settings.rounds + 1):
            if secure is None:
                rows = take_round(federation, t)
                self._report["rounds"] = t  # from here on D^g is this round's, also if the run is interrupted
                errors = [row["error_before_update"] for row in rows if "error_before_update" in row]
                error, told = spread(errors), {"error_before_update": float(np.mean(errors))} if errors else {}
            else:
                with about(round=t):
                    sums = secure.round(t, arrays_of(server))
                if sums is None:
                    self._report["secure_sums"]["void_rounds"].append(t)
                    self._checkpoint(federation, t)
                    continue
                rows = self._aggregate_sum(t, sums)
                error = {"mean": sums.means["error_before_update"]}
                told = {"error_before_update": error["mean"]}
            result.train_metrics_clientapp[t] = MetricRecord({**told, "clients": len(rows)})
            row = {
                "round": t,
                "change": server.change,
                "consensus": spread(server.shared_consensus.tolist()),
                "error_before_update": error,
                "clients": len(rows),
                "bytes": sum(sum(phase.values()) for phase in federation.exchange.bytes.values()),
                "seconds": time.monotonic() - self._began,
            }
            self.folder.add_round(row, rows)
            with about(round=t):
                _log.info("round done: %d clients, change %.3g", len(rows), server.change)
            self.folder.save_dictionary(self._readable(), server.shared_consensus, every=1.0)
            ended = "tolerance" if server.at_rest else "rounds" if t == self.settings.rounds else ""
            self._checkpoint(federation, t, ended)
            if ended:
                return ended
            if wish := self.folder.last_round():  # not saved in the checkpoint, so that the run can be resumed
                return wish
        return "rounds"

    def _aggregate_sum(self, t: int, sums: RoundSum) -> list[dict[str, Any]]:
        """Compute D^g from the sums of round ``t``, and return which clients took part."""
        self.server.aggregate_sum(sums.contributions, sums.weights, len(sums.names))
        self._report["rounds"] = t
        return [{"round": t, "client": name} for name in sums.names]

    def _checkpoint(self, federation: Federation, t: int, ended: str = "") -> None:
        members = federation.members
        self.folder.save_checkpoint(
            lambda: Checkpoint(
                run=federation.run,
                round=t,
                dictionary=self.server.global_dictionary,
                consensus=self.server.consensus,
                members={member.name: member.facts for member in members},
                matches={member.name: member.indices for member in members if member.indices is not None},
                membership=self.server.membership,
                sharers=self.server.names,
                report=self._report,
                bytes=federation.exchange.bytes,
                seconds=time.monotonic() - self._began,
                ended=ended,
            )
        )

    def _save(self, federation: Federation, reason: str) -> None:
        """Write all results, whether the run ended well or not."""
        facts, server = {member.name: member.facts for member in federation.members}, self.server
        D = None
        if server.matched:
            D, consensus, shared = self._readable(), server.shared_consensus, server.shared.tolist()
            self.folder.save_dictionary(D, consensus)
            if server.membership is not None:
                self._report["n_global"] = len(shared)
                sharers = zip(server.names, server.membership.members[:, shared], strict=True)
                self._report["members"] = {name: np.flatnonzero(row).tolist() for name, row in sharers}
            idle = [shared.index(j) for j in server.idle if j in shared]
            outcome = RunOutcome(self._report, facts, self.settings, D, consensus, idle, server.change)
            self._report["warnings"] = warnings(outcome)
        shapes = {known["shape"] for known in facts.values() if known.get("shape")}
        if len(shapes) == 1:
            self._report["shape"] = [int(side) for side in shapes.pop().split("x")]
        held_out = held_out_summary(facts, self.settings, server.shared_dictionary.shape[1])
        self.folder.save_summary(
            {
                **self._report,
                **({"held_out": held_out} if held_out else {}),
                **({"masked": True} if self._masked else {}),
                "privacy": privacy_facts(self.settings, bool(facts)),
                "rounds": self._report.get("rounds", 0),
                "stop_reason": reason,
                "clients": facts,
                "final": final_metrics(facts, server, self.settings, None if self._masked else D),
                "bytes": dict(federation.exchange.bytes),
                "seconds": time.monotonic() - self._began,
            }
        )

    @property
    def _masked(self) -> bool:
        """Whether D^g is in coordinates that only the clients know."""
        return self.settings.privacy.mode == "masked" and not is_simulation()

    def _readable(self) -> NDArray[np.floating]:
        """Return D^g, in the clients' own coordinates where they belong to the server's user too."""
        D = self.server.shared_dictionary
        if self.settings.privacy.mode != "masked" or self._masked:
            return D
        return simulated_mask(self.settings.seed, len(D)).show(D)

    def _final_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the last message: D^g, and which of its atoms are still shared if some may not be."""
        arrays, server = arrays_of(self.server), self.server
        return arrays if server.membership is None else {**arrays, "shared": server.membership.shared}

    def _not_used(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: Flower's own loop would call these four methods, and `start` replaces that loop.

        Parameters
        ----------
        *args, **kwargs : object
            Not used.
        """
        raise NotImplementedError("PerMA runs by start() alone")

    configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = _not_used
