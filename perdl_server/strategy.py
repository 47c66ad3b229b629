"""PerMA as a Flower strategy: initialise, match, T rounds, finish.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 1.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from common.dictionaries import dictionary_distance
from common.errors import FederationError, PerdlError
from common.protocol import FINISH, INITIALISE, UPDATE, Payload, ProtocolError, natural_key, pack, unpack
from common.settings import Settings
from common.synthetic import true_global_dictionary
from perdl_server.aggregation import AGGREGATIONS, consensus, trimmed
from perdl_server.exchange import Exchange
from perdl_server.matching import global_matching, suggest_n_global
from perdl_server.results import RunFolder, describe, spread

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")
_ARRAY = "global_dictionary"


@dataclass
class Member:
    """A client of the run, as the server knows it."""

    node: int
    name: str
    facts: dict[str, Any]
    dictionary: Floats
    usage: Floats
    match: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Its own indices and signs, sent with each message until it has answered one."""


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
        self.members: list[Member] = []
        self._aggregation = AGGREGATIONS[settings.aggregation]
        self._present: Floats = np.empty((0, 0))
        self._consensus: Floats = np.empty(0)
        self._rows: list[dict[str, Any]] = []
        self._report: dict[str, Any] = describe(settings)
        self._exchange: Exchange | None = None

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
        self._exchange = Exchange(grid, self.folder.asked_to_stop)
        self.summary()
        result, began = Result(), time.monotonic()
        reason = "interrupted"
        try:
            self._join()
            result.arrays = self._match()
            reason = self._rounds(grid, result, began)
            self._finish(result.arrays)
        except PerdlError as error:
            reason = f"failed: {error}"
            raise
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {error}"
            raise
        finally:
            self._save(result.arrays, reason, time.monotonic() - began)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each member, with D^g and, until it has answered, its own match."""
        content = {_ARRAY: arrays[_ARRAY].numpy()}
        return [self._message(member, UPDATE, content, round=server_round) for member in self.members]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the new D^g from clients' contributions, and the mean of their metrics."""
        answers = self._accept(replies, f"round {server_round}", self._check_update)
        A = np.stack([payload.arrays["contribution"] for _, payload in answers])
        w = np.stack([payload.arrays.get("energies", np.ones(A.shape[2], A.dtype)) for _, payload in answers])
        self._consensus = consensus(A)
        new = self._combine(A, w, self._present)
        self._rows = [
            {"round": server_round, "client": member.name, **_metrics(payload)} for member, payload in answers
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

    def _join(self) -> None:
        """Phase 0: wait for nodes, ask each for D_i^(0), and put them in the order of their names."""
        s = self.settings
        nodes = self._traffic.nodes(s.n_clients, s.join_timeout)
        if len(nodes) < self._quorum:
            raise FederationError(
                f"{len(nodes)} of {s.n_clients} clients joined within {s.join_timeout:g} s (quorum {self._quorum}): "
                "start the others, or lower n_clients or quorum"
            )
        text = s.model_dump_json(exclude_none=True)
        messages = [Message(pack(settings=text), dst_node_id=node, message_type=INITIALISE) for node in nodes]
        replies = self._traffic.ask("initialise", messages, s.round_timeout)
        members, refused = [], []
        for reply in replies:
            try:
                payload = _payload(reply)
                dictionary = payload.array("dictionary", (-1, -1)).astype(s.dtype, copy=False)
                usage = payload.array("usage", (dictionary.shape[1],)).astype(s.dtype, copy=False)
                name = payload.scalar("client", str)
            except PerdlError as error:
                refused.append(str(error))
                continue
            members.append(Member(reply.metadata.src_node_id, name, _metrics(payload), dictionary, usage))
        if len(members) < self._quorum:
            why = f": {'; '.join(sorted(set(refused)))}" if refused else f" within {s.round_timeout:g} s"
            raise FederationError(f"{len(members)} of {len(nodes)} clients could start (quorum {self._quorum}){why}")
        for text in refused:
            _log.warning("left out: %s", text)
        members.sort(key=lambda member: natural_key(member.name))
        names = [member.name for member in members]
        twice = sorted({name for name in names if names.count(name) > 1}, key=natural_key)
        if twice:
            raise FederationError(f"two clients are called {', '.join(twice)}: give each its own --name")
        self.members = members

    def _match(self) -> ArrayRecord:
        """Phase 0: find the shared atoms; D^{g,(0)} is the aggregation of each path's atoms."""
        dictionaries = [member.dictionary for member in self.members]
        names = [member.name for member in self.members]
        n_global = self.settings.n_global
        if n_global == "auto":
            n_global, lengths = suggest_n_global(dictionaries)
            _log.info("n_global = auto: %d, from path lengths %s", n_global, np.round(lengths, 3).tolist())
            self._report["suggested_from_path_lengths"] = lengths
        matching = global_matching(dictionaries, n_global, names)
        if self._aggregation.orthonormal and n_global > len(matching.global_dictionary):
            raise PerdlError(
                f"n_global = {n_global}: must be at most the {len(matching.global_dictionary)} features for "
                f'aggregation = "{self.settings.aggregation}"'
            )
        self._report |= {"n_global": n_global, "path_lengths": matching.path_lengths}
        chosen = zip(self.members, matching.indices, matching.signs, strict=True)
        A = np.stack([member.dictionary[:, index] * sign for member, index, sign in chosen])
        w = np.stack([member.usage[index] for member, index in zip(self.members, matching.indices, strict=True)])
        for member, index, sign in zip(self.members, matching.indices, matching.signs, strict=True):
            member.match = {"indices": index, "signs": sign}
            member.dictionary = member.dictionary[:, :0]  # the server keeps no client's atoms
        self._consensus = consensus(A)
        if self._aggregation.contribution == "stretched":
            return _record(AGGREGATIONS["energy"].combine(A, w, matching.global_dictionary))
        return _record(self._combine(A, w, matching.global_dictionary))

    def _rounds(self, grid: Grid, result: Result, began: float) -> str:
        """T rounds; return why they ended."""
        for t in range(1, self.settings.rounds + 1):
            present = self._present = result.arrays[_ARRAY].numpy()
            messages = self.configure_train(t, result.arrays, ConfigRecord(), grid)
            replies = self._traffic.ask("update", list(messages), self.settings.round_timeout)
            arrays, metrics = self.aggregate_train(t, replies)
            assert arrays is not None
            assert metrics is not None
            result.arrays, result.train_metrics_clientapp[t] = arrays, metrics
            new = arrays[_ARRAY].numpy()
            change = float(np.linalg.norm(new - present, axis=0).max(initial=0.0))
            row = {
                "round": t,
                "change": change,
                "consensus": spread(self._consensus.tolist()),
                "error_before_update": spread([row["error_before_update"] for row in self._rows]),
                "clients": len(self._rows),
                "bytes": sum(sum(phase.values()) for phase in self._traffic.bytes.values()),
                "seconds": time.monotonic() - began,
            }
            self.folder.add_round(row, self._rows)
            self.folder.save_dictionary(new, self._consensus, every=1.0)
            self._report["rounds"] = t
            if change <= self.settings.tolerance:
                return "tolerance"
        return "rounds"

    def _finish(self, arrays: ArrayRecord) -> None:
        """Send the final D^g; each client writes its own model and answers with scalars."""
        content = {_ARRAY: arrays[_ARRAY].numpy()}
        messages = [self._message(member, FINISH, content) for member in self.members]
        replies = self._traffic.ask("finish", messages, self.settings.round_timeout)
        for member, payload in self._accept(replies, "the end", lambda payload: payload.scalar("error", float)):
            member.facts |= {f"final_{name}": value for name, value in _metrics(payload).items()}

    def _save(self, arrays: ArrayRecord | None, reason: str, seconds: float) -> None:
        """Write what is known, whether the run ended well or not."""
        final: dict[str, Any] = {
            "error": spread([m.facts["final_error"] for m in self.members if "final_error" in m.facts])
        }
        distances = [m.facts["final_local_distance"] for m in self.members if "final_local_distance" in m.facts]
        if distances:
            final["local_distance_max"] = max(distances)
        if arrays:
            D = arrays[_ARRAY].numpy()
            self.folder.save_dictionary(D, self._consensus)
            final["consensus"] = spread(self._consensus.tolist())
            s = self.settings.synthetic
            if self.settings.data.source == "synthetic" and D.shape == (s.n_features, s.n_global):
                truth = true_global_dictionary(self.settings.seed, s.n_features, s.n_global)
                final["global_distance"] = dictionary_distance(D, truth)
        summary = {
            **self._report,
            "rounds": self._report.get("rounds", 0),
            "stop_reason": reason,
            "clients": {member.name: member.facts for member in self.members},
            "final": final,
            "bytes": dict(self._exchange.bytes) if self._exchange else {},
            "seconds": seconds,
        }
        self.folder.save_summary(summary)

    def _message(self, member: Member, kind: str, arrays: dict[str, NDArray[Any]], **scalars: int) -> Message:
        content = pack({**arrays, **member.match}, **scalars)
        return Message(content, dst_node_id=member.node, message_type=kind)

    def _accept(
        self, replies: Iterable[Message], when: str, check: Callable[[Payload], object]
    ) -> list[tuple[Member, Payload]]:
        """Return the valid answers in the order of the members, or stop if they are fewer than the quorum."""
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        accepted, missing = [], []
        for member in self.members:
            try:
                if member.node not in by_node:
                    raise ProtocolError(f"no answer within {self.settings.round_timeout:g} s")
                payload = _payload(by_node[member.node])
                if payload.scalar("client", str) != member.name:
                    raise ProtocolError("answered under another client's name")
                check(payload)
            except PerdlError as error:
                missing.append(f"{member.name}: {error}")
                continue
            member.match = {}
            accepted.append((member, payload))
        for text in missing:
            _log.warning("%s: left out: %s", when, text)
        if len(accepted) < self._quorum:
            raise FederationError(
                f"{when}: {len(accepted)} of {len(self.members)} clients answered (quorum {self._quorum}): "
                f"{'; '.join(missing)}"
            )
        return accepted

    def _check_update(self, payload: Payload) -> None:
        shape = self._present.shape
        payload.array("contribution", shape)
        payload.scalar("error_before_update", float)
        if self._aggregation.weighted and (payload.array("energies", shape[1:]) < 0).any():
            raise ProtocolError("energies are negative")

    @functools.cached_property
    def _combine(self) -> Callable[[Floats, Floats, Floats], Floats]:
        if self._aggregation.combine is trimmed:
            return functools.partial(trimmed, trim=self.settings.trim)
        return self._aggregation.combine

    @property
    def _quorum(self) -> int:
        return self.settings.quorum or self.settings.n_clients

    @property
    def _traffic(self) -> Exchange:
        assert self._exchange is not None, "start() opens the exchange"
        return self._exchange


def _payload(reply: Message) -> Payload:
    if reply.has_error():
        raise ProtocolError(reply.error.reason or f"Flower's error {reply.error.code}")
    return unpack(reply.content)


def _metrics(payload: Payload) -> dict[str, Any]:
    """The scalars that a client reports, without the protocol's own."""
    own = {"protocol", "client", "round"}
    return {name: value for name, value in payload.scalars.items() if name not in own and not isinstance(value, str)}


def _record(D: Floats) -> ArrayRecord:
    return ArrayRecord({_ARRAY: Array(np.ascontiguousarray(D))})
