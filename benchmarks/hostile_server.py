"""A server that asks what it likes, and sees no more than a real one: the clients are perdl's own client app.

Their terms, guard, checks, ledgers, masks and noise act. In ``aggregated`` runs the server opens the sum of a round as
the real one does, and sees nothing else of it; in ``masked`` runs it sees the coordinates that clients send.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from common import fixed_point
from common import secure_sum as sums
from common.aggregations import AGGREGATIONS
from common.protocol import INITIALISE, OPEN, UPDATE, Payload, pack, unpack
from common.settings import load_settings
from perdl.deploy.certs import make_secret
from perdl_client.app import app
from perdl_client.terms import Terms
from perdl_server.federation.secure import unmasked

Floats = NDArray[np.floating]
AGGREGATED = 3
"""Clients of an aggregated run; in the other modes one is enough."""

_RUNS = itertools.count(1)


class Refused(Exception):
    """A client does not do what it was asked; the text is its reason."""


@dataclass(frozen=True)
class Seen:
    """What the server reads of one round.

    Parameters
    ----------
    contribution : (d, r_g) array
        The client's, or the mean over the clients of an aggregated run; weighted by energies, where these are sent.
    energies : (r_g,) array, optional
        With the aggregations that send them; of aggregated runs the sum.
    nonzeros, error : float, optional
        As told; of aggregated runs the mean. None in private runs.
    """

    contribution: Floats
    energies: Floats | None
    nonzeros: float | None
    error: float | None


class HostileServer:
    """Runs of one mode of privacy with deployed clients that hold some samples.

    Parameters
    ----------
    folder : Path
        An empty folder for the clients' files.
    samples : sequence of (d, n) arrays
        Of each client.
    mode : str
        Mode of privacy.
    told : str
        Settings of all runs, as on the command line.
    terms : dict, optional
        What the clients' terms say otherwise than the default.
    """

    def __init__(
        self, folder: Path, samples: Sequence[Floats], mode: str, *told: str, terms: dict[str, Any] | None = None
    ) -> None:
        os.environ.pop("PERDL_SIMULATION", None)
        own = {**({"privacy": ["none"], "min_samples": 1} if mode == "none" else {}), **(terms or {})}
        self.mode, self.told, self.samples = mode, told, samples
        self._contexts = []
        for i, Y in enumerate(samples):
            np.save(folder / f"data-{i}.npy", Y.T)
            config = {
                "name": f"client-{i + 1}",
                "data": str(folder / f"data-{i}.npy"),
                "folder": str(folder / f"own-{i}"),
            }
            config["terms"] = Terms.model_validate(own).model_dump_json()
            if mode == "masked":
                if not (folder / "secret").exists():
                    make_secret(folder / "secret", folder / "server")
                config["secret"] = str(folder / "secret")
            self._contexts.append(
                Context(run_id=5, node_id=3 + i, node_config=config, state=RecordDict(), run_config={})
            )
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1

    def start(self, *told: str) -> list[Floats]:
        """Begin a run, and return the clients' first dictionaries, each atom times the root of its energy."""
        self.run, self.round = f"run {next(_RUNS)}", 0
        mine = [f"n_clients={len(self.samples)}", "data.source=files", f"privacy.mode={self.mode}"]
        if self.mode == "none":
            mine.append("min_samples=1")
        self.settings = load_settings(None, [*mine, *self.told, *told])
        text = self.settings.model_dump_json(exclude_none=True)
        answers = [self._ask(context, INITIALISE, {}, settings=text) for context in self._contexts]
        self._used = [answer.arrays["dictionary"].shape[1] for answer in answers]
        if self.mode == "aggregated":
            self._cards = {answer.scalars["client"]: answer.scalars["card"] for answer in answers}
            self._bits = fixed_point.fraction_bits(int(answer.scalars["exponent"]) for answer in answers)
        return [answer.arrays["dictionary"] * np.sqrt(answer.arrays["usage"]) for answer in answers]

    def ask(self, D_g: Floats) -> Seen:
        """Ask for a round with a D^g, and return what is seen of it."""
        self.round += 1
        arrays = {"global_dictionary": D_g}
        if self.mode == "aggregated":
            return self._sum(arrays)
        answer = self._ask(self._contexts[0], UPDATE, self._with_indices(arrays, 0), round=self.round)
        told = [answer.scalars.get(key) for key in ("nonzeros", "error_before_update")]
        return Seen(answer.arrays["contribution"], answer.arrays.get("energies"), *told)

    def _sum(self, arrays: dict[str, Floats]) -> Seen:
        """Do both exchanges of a round of secure sums, and open the one sum that clients open."""
        names, text = list(self._cards), sums.roster_text(self._cards)
        mark, roster = sums.digest(text).hex(), np.frombuffer(text.encode(), np.uint8)
        answers, told, n = {}, {}, len(names)
        for i, context in enumerate(self._contexts):
            own = self._with_indices({**arrays, "clients": roster}, i)
            answers[names[i]] = self._ask(context, UPDATE, own, round=self.round, roster=mark, bits=self._bits).arrays
        for i, context in enumerate(self._contexts):
            shares = np.zeros((n, sums.SEALED), np.uint8)
            for j in set(range(n)) - {i}:
                shares[j] = answers[names[j]]["shares"][i]
            own = {"present": np.ones(n, bool), "shares": shares}
            told[names[i]] = self._ask(context, OPEN, own, round=self.round, roster=mark).arrays["told"]
        total = unmasked(answers, told, names, np.ones(n, bool))
        d, r = arrays["global_dictionary"].shape
        values = fixed_point.decode(total[: r * (d + 1)], self._bits)
        error, nonzeros, _ = fixed_point.decode(total[r * (d + 1) :], fixed_point.METRIC_BITS) / n
        A, w = values[: d * r].reshape(d, r), values[d * r :]
        if not AGGREGATIONS[self.settings.aggregation].weighted:
            return Seen(A / n, None, nonzeros, error)
        return Seen(A / np.where(w > 0, w, 1), w, nonzeros, error)

    def _with_indices(self, arrays: dict[str, Floats], i: int) -> dict[str, Any]:
        if self.round > 1:
            return arrays
        r_g, used = arrays["global_dictionary"].shape[1], self._used[i]
        indices = np.where(np.arange(r_g) < used, np.arange(r_g), -1)
        return {**arrays, "indices": indices}

    def _ask(self, context: Context, kind: str, arrays: dict[str, Any], **scalars: Any) -> Payload:
        answer = app(Message(pack(arrays, run=self.run, **scalars), context.node_id, kind), context)
        if answer.has_error():
            raise Refused(answer.error.reason)
        return unpack(answer.content)
