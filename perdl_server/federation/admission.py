"""The door: every node that appears is asked who it is, and what it answers is held to the protocol."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

from common.errors import PerdlError
from common.protocol import FINISH, INITIALISE, Payload, ProtocolError, check_name, one_line, pack, unpack
from common.settings import Settings
from perdl_server.federation.messages import Exchange

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")

_ABSURD = 1e6
"""First atoms are near norm one; anything up to this is harmless."""

_FACTS = {"start_error": _ABSURD, "mean_share": 1 + 1e-6, "largest_feature_share": 1 + 1e-6}
"""What a client tells of itself in numbers of zero or more, and the most that they can be."""

_LOOK = 0.5
"""Seconds between two looks for new nodes: each costs the SuperLink some 10 ms."""


class GoneError(ProtocolError):
    """Flower answered in a node's place."""


class StrangerError(ProtocolError):
    """A node's key is not that of the client that it says it is."""


@dataclass(frozen=True)
class Arrival:
    """What a node said of itself.

    Attributes
    ----------
    node : int
    name : str
    step : int
        The last round that it answered in this run; 0 where it sent its first dictionary.
    returning : bool
        Whether it had a state of this run.
    facts : dict
    dictionary : (d, m) array
    usage : (m,) array
    """

    node: int
    name: str
    step: int
    returning: bool
    facts: dict[str, Any]
    dictionary: Floats
    usage: Floats


class Door:
    """Asks every node once for each time that it appears; a process that was started again appears again.

    Parameters
    ----------
    settings : Settings
    run : str
    exchange : Exchange

    Attributes
    ----------
    asked : dict of int to str
        The nodes that were asked, and since when Flower has them.
    online : set of int
        The nodes that were there at the last look.
    refused : dict of int to str
        Why a node may not take part.
    """

    def __init__(self, settings: Settings, run: str, exchange: Exchange) -> None:
        self.asked: dict[int, str] = {}
        self.online: set[int] = set()
        self.refused: dict[int, str] = {}
        self._settings = settings
        self._run = run
        self._exchange = exchange
        self._waiting: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._told: set[int] = set()
        self._next_look = 0.0
        self.asked_at = time.monotonic()

    @property
    def nodes(self) -> list[int]:
        """Nodes that were asked and not turned away."""
        return sorted(self.asked.keys() - self._told)

    @property
    def waiting(self) -> bool:
        """Whether a node has not answered yet."""
        return bool(self._waiting)

    def awaits(self, node: int) -> bool:
        """Whether this node was asked and has not answered yet."""
        return node in self._waiting.values()

    def look_at_once(self) -> None:
        """Let the next look for new nodes be the very next."""
        self._next_look = 0.0

    def look(self, *, invite: bool = True) -> list[Arrival]:
        """Ask the nodes that are new, if ``invite``, and return those that have answered."""
        if invite and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK
            self._invite()
        arrivals = []
        for _, node, reply in self._exchange.receive("initialise", self._waiting):
            try:
                arrivals.append(self._arrival(node, reply))
            except GoneError:
                self.asked.pop(node, None)
            except StrangerError as error:
                self.turn_away(node, str(error))
            except PerdlError as error:
                self.refused[node] = str(error)
        return arrivals

    def turn_away(self, node: int, why: str) -> None:
        """Tell a node at once that it does not take part, once."""
        if node in self._told:
            return
        _log.warning("left out: %s", why)
        self.refused[node] = why
        self._told.add(node)
        self._exchange.send("finish", [Message(pack({}, run=self._run, reason=why), node, FINISH)])

    def _invite(self) -> None:
        nodes = {info.node_id: info for info in self._exchange.grid.get_nodes()}
        self.online = set(nodes)
        new = sorted(node for node, info in nodes.items() if self.asked.get(node) != info.last_activated_at)
        self.asked |= {node: nodes[node].last_activated_at for node in new}
        self._told -= set(new)
        for node in new:  # what its former process did wrong, this one may do right
            self.refused.pop(node, None)
        self._names |= {node: nodes[node].name for node in new}
        text = self._settings.model_dump_json(exclude_none=True)
        messages = [Message(pack(settings=text, run=self._run), node, INITIALISE) for node in new]
        ids = self._exchange.send("initialise", messages)
        self._waiting |= {i: node for i, node in zip(ids, new, strict=True) if i}
        if new:
            self.asked_at = time.monotonic()

    def _arrival(self, node: int, reply: Message) -> Arrival:
        payload = content_of(reply)
        name = check_name(payload.scalar("client", str))
        known_as = self._names.get(node)
        if known_as and name != known_as:
            raise StrangerError(
                f"its key is that of {known_as}, but it calls itself {name}: start it with its own name"
            )
        self.refused.pop(node, None)
        step = _possible(payload, "step", int, 0, 2**31)
        if step > 0:
            return Arrival(node, name, step, True, {}, np.empty((0, 0)), np.empty(0))
        dictionary, usage = self._first_dictionary(name, payload)
        n_atoms = _possible(payload, "n_atoms", int, dictionary.shape[1], 2**31)
        facts = {
            "n_features": len(dictionary),
            "n_samples": _possible(payload, "n_samples", int, 1, 2**53),
            "n_atoms": n_atoms,
            "nonzeros": _possible(payload, "nonzeros", float, 0, n_atoms),
            **{key: _possible(payload, key, float, 0, most) for key, most in _FACTS.items()},
            "shape": _shape(payload.scalar("shape", str), len(dictionary)),
            "names": one_line(payload.scalar("names", str), 50),
        }
        return Arrival(node, name, 0, payload.scalar("returning", bool), facts, dictionary, usage)

    def _first_dictionary(self, name: str, payload: Payload) -> tuple[Floats, Floats]:
        dtype = self._settings.dtype
        with np.errstate(over="ignore"):
            dictionary = payload.array("dictionary", (-1, -1)).astype(dtype, copy=False)
            usage = payload.array("usage", (dictionary.shape[1],)).astype(dtype, copy=False)
            norms = np.linalg.norm(dictionary, axis=0)
        if not dictionary.size:
            raise ProtocolError(f"{name} sent no atoms")
        if not ((norms > 1 / _ABSURD) & (norms < _ABSURD) & (usage >= 0) & np.isfinite(usage)).all():
            raise ProtocolError(f"{name} sent atoms or energies out of all proportion")
        return dictionary, usage


def content_of(reply: Message) -> Payload:
    """Take an answer apart.

    Raises
    ------
    GoneError
        If Flower says that the node is not there.
    ProtocolError
        With the client's own words where it failed, or if the answer is not the protocol's.
    """
    if reply.has_error():
        if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
            raise GoneError("its node has gone")
        if reply.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
            raise ProtocolError("its answer was announced and did not come")
        raise ProtocolError(reply.error.reason or f"Flower's error {reply.error.code}")
    return unpack(reply.content)


def _possible(payload: Payload, key: str, kind: type, least: float, most: float) -> Any:
    """Return a number that a client told of itself, if it can be."""
    value = payload.scalar(key, kind)
    if not least <= value <= most:
        raise ProtocolError(f"{key} = {value:g} cannot be")
    return value


def _shape(text: str, d: int) -> str:
    """Return the shape of a sample, as "28x28", if it is one of ``d`` numbers, else nothing."""
    sides = text.split("x")
    good = len(sides) <= 4 and all(side.isascii() and side.isdecimal() and len(side) < 10 for side in sides)
    return text if good and math.prod(map(int, sides)) == d else ""


def misfits(arrivals: Mapping[str, Floats], wanted: int, n_features: int | None = None) -> dict[str, str]:
    """Return which clients cannot be matched with the others, and why.

    Parameters
    ----------
    arrivals : mapping of str to (d, m) array
        First dictionaries by client.
    wanted : int
        Atoms that each must have at least.
    n_features : int, optional
        d; default the one that most clients have.

    Returns
    -------
    dict of str to str
    """
    sizes = [len(D) for D in arrivals.values()]
    d = n_features or max(sizes, key=sizes.count, default=0)
    typical = next((name for name, D in arrivals.items() if len(D) == d), "the run")
    found = {}
    for name, D in arrivals.items():
        if len(D) != d:
            found[name] = (
                f"{name} has {len(D)} features, {typical} has {d}: all clients' samples must have the same features "
                "in the same order (a client leaves columns out with --drop COLUMN; samples that are in columns are "
                "read with --samples-in columns)"
            )
        elif D.shape[1] < wanted:
            found[name] = f"{name} has {D.shape[1]} usable atoms, fewer than n_global = {wanted}"
    return found


def other_names(marks: Mapping[str, str]) -> dict[str, str]:
    """Return which clients' features are called otherwise than most others', and what to do.

    Parameters
    ----------
    marks : mapping of str to str
        By client: the mark of its features' names, empty where its file has none.

    Returns
    -------
    dict of str to str
    """
    given = [mark for mark in marks.values() if mark]
    usual = max(given, key=given.count, default="")
    typical = next((name for name, mark in marks.items() if mark == usual), "")
    return {
        name: f"{name}'s features have other names or another order than {typical}'s: give both files the same columns "
        "in the same order, or take the line of names out of one if only the spelling differs"
        for name, mark in marks.items()
        if mark not in ("", usual)
    }
