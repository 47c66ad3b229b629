"""Admission: ask every node for its name, and refuse nodes that may not take part."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from common.errors import PerdlError
from common.protocol import FINISH, INITIALISE, Payload, ProtocolError, check_name, one_line, pack
from common.settings import Settings
from perdl_server.federation.members import Member
from perdl_server.federation.messages import Exchange, GoneError, content_of
from perdl_server.federation.validation import LARGEST, largest_energy, number

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")

_MOST_ATOMS = 10_000  # of a client; matching compares all atoms of two clients
_FACTS = {"start_error": LARGEST, "mean_share": 1 + 1e-6, "largest_feature_share": 1 + 1e-6}  # largest values
_LONGEST_CARD = 8192  # characters of a client's signed key; some 1,200 are usual
_LOOK = 0.5  # seconds between two requests for the list of nodes; each costs the SuperLink about 10 ms


class KeyMismatchError(ProtocolError):
    """A client's name differs from the name that belongs to its node's key.

    Parameters
    ----------
    text : str
        What is wrong.
    """


@dataclass(eq=False)
class Node:
    """A Flower node, and the process that runs there now.

    Parameters
    ----------
    id : int
        Flower's number of the node.
    session : str, optional
        When Flower first saw the process. Another time means another process.
    key_name : str
        Name that belongs to the node's key, if keys have names.
    refusal : str
        Why the process may not take part; empty if it may.
    told : bool
        Whether the process was told so.
    """

    id: int
    session: str | None = None
    key_name: str = ""
    refusal: str = ""
    told: bool = False


class Admission:
    """Asks every process once for its name and first dictionary.

    Parameters
    ----------
    settings : Settings
        Settings that every node is sent.
    run : str
        The run's id.
    exchange : Exchange
        Connection to the nodes.

    Attributes
    ----------
    settings : Settings
        Settings that every node is sent, with the scale that clients agreed on.
    """

    def __init__(self, settings: Settings, run: str, exchange: Exchange) -> None:
        self.online: set[int] = set()  # nodes in Flower's last list
        self.asked_at = time.monotonic()  # when a node was asked last
        self.settings = settings
        self._run = run
        self._exchange = exchange
        self._nodes: dict[int, Node] = {}
        self._next_look = 0.0

    @property
    def candidates(self) -> list[Node]:
        """Nodes that were asked and were not told to leave, by id."""
        return [node for _, node in sorted(self._nodes.items()) if not node.told]

    @property
    def refusals(self) -> dict[int, str]:
        """Why nodes may not take part, by node, whether they were told or not."""
        return {node.id: node.refusal for node in self._nodes.values() if node.refusal}

    @property
    def awaited(self) -> set[int]:
        """Nodes that were asked and have not answered yet."""
        return {i for i, node in self._nodes.items() if node in self._exchange.open}

    def invite(self, *, now: bool = False) -> None:
        """Ask every new process for its name.

        Parameters
        ----------
        now : bool
            Whether to look for new processes at once. Otherwise this happens twice a second at most.
        """
        if time.monotonic() < self._next_look and not now:
            return
        self._next_look = time.monotonic() + _LOOK
        listed = {info.node_id: info for info in self._exchange.grid.get_nodes()}
        self.online = set(listed)
        new = []
        for i, info in sorted(listed.items()):
            node = self._nodes.setdefault(i, Node(i))
            if node.session != info.last_activated_at:  # a new process may have fixed the fault of the former one
                node.session, node.key_name, node.refusal, node.told = info.last_activated_at, info.name, "", False
                new.append(node)
        text = self.settings.model_dump_json(exclude_none=True)
        questions = {node: Message(pack(settings=text, run=self._run), node.id, INITIALISE) for node in new}
        self._exchange.ask("initialise", questions)
        if new:
            self.asked_at = time.monotonic()

    def hear(self, node: Node, reply: Message, *, tell: bool) -> list[Member]:
        """Return the client at a node, in a list that is empty if the node has gone or is refused.

        Parameters
        ----------
        node : Node
            Sender of the answer.
        reply : Message
            The answer.
        tell : bool
            Whether to tell a refused node at once, whatever the reason.
        """
        try:
            return [read_introduction(content_of(reply, INITIALISE), node, self.settings)]
        except GoneError:
            self._nodes.pop(node.id, None)
        except PerdlError as error:
            self.refuse(node.id, str(error), tell=tell or isinstance(error, KeyMismatchError))
        return []

    def refuse(self, node: int, why: str, *, tell: bool = True) -> None:
        """Record that a node may not take part.

        Parameters
        ----------
        node : int
            Flower's number of the node.
        why : str
            The reason, in words.
        tell : bool
            Whether to tell the node, once, and let it leave. Otherwise it stays a candidate.
        """
        known = self._nodes.setdefault(node, Node(node))
        if known.told:
            return
        known.refusal = why
        if tell:
            _log.warning("left out: %s", why)
            known.told = True
            self._exchange.send("finish", [Message(pack(run=self._run, reason=why), node, FINISH)])


def read_introduction(payload: Payload, node: Node, settings: Settings) -> Member:
    """Return the client at a node, after checking its answer.

    Parameters
    ----------
    payload : Payload
        The node's answer.
    node : Node
        Sender of the answer.
    settings : Settings
        The run's settings. In a private run clients tell no exact measures of their samples.

    Raises
    ------
    KeyMismatchError
        If the node's key belongs to another name.
    ProtocolError
        If the answer violates the protocol, or a number is impossible.
    """
    name = check_name(payload.scalar("client", str))
    if node.key_name and name != node.key_name:
        raise KeyMismatchError(
            f"its key is that of {node.key_name}, but it calls itself {name}: start it with its own name"
        )
    aggregated = settings.privacy.mode == "aggregated"  # its public key
    card = payload.scalar("card", str) if aggregated else ""
    if len(card) > _LONGEST_CARD:
        raise ProtocolError(f"{name} sent a key of {len(card)} characters")
    bound = number(payload, "exponent", int, -1000, 1000) if aggregated else 0
    step = number(payload, "step", int, 0, 2**31)
    if step > 0:
        return Member(name, {}, node.id, step=step, returning=True, card=card, exponent=bound)
    with np.errstate(over="ignore"):
        dictionary = payload.array("dictionary", (-1, -1))
        usage = payload.array("usage", (dictionary.shape[1],))
        norms = np.linalg.norm(dictionary, axis=0)
    if not (dictionary.size or (len(dictionary) and settings.privacy.guarded)):  # the guard may let none pass
        raise ProtocolError(f"{name} sent no atoms")
    if dictionary.dtype != settings.dtype or usage.dtype != settings.dtype:
        raise ProtocolError(f"{name} sent atoms of type {dictionary.dtype}, expected {settings.dtype}")
    if dictionary.shape[1] > _MOST_ATOMS:
        raise ProtocolError(f"{name} sent {dictionary.shape[1]} atoms, and may send {_MOST_ATOMS} at most")
    if not ((norms > 1 / LARGEST) & (norms < LARGEST) & (usage >= 0) & (usage <= largest_energy(usage.dtype))).all():
        raise ProtocolError(f"{name} sent atoms or energies out of all proportion")
    n_atoms = number(payload, "n_atoms", int, dictionary.shape[1], 2**31)
    facts = {
        "n_features": len(dictionary),
        "n_samples": number(payload, "n_samples", int, 1, 2**53),
        "n_atoms": n_atoms,
        "shape": _shape(payload.scalar("shape", str), len(dictionary)),
        "names": one_line(payload.scalar("names", str), 50),
    }
    if settings.privacy.mode != "private":
        facts["nonzeros"] = number(payload, "nonzeros", float, 0, n_atoms)
        facts |= {key: number(payload, key, float, 0, most) for key, most in _FACTS.items()}
    if "secret" in payload.scalars:
        facts["secret"] = one_line(payload.scalar("secret", str), 50)
    returning = payload.scalar("returning", bool)
    return Member(
        name,
        facts,
        node.id,
        returning=returning,
        dictionary=dictionary,
        usage=usage,
        card=card,
        exponent=bound,
    )


def _shape(text: str, d: int) -> str:
    """Return the shape of a sample, such as "28x28", if it has ``d`` numbers; else an empty string."""
    sides = text.split("x")
    good = len(sides) <= 4 and all(side.isascii() and side.isdecimal() and len(side) < 10 for side in sides)
    return text if good and math.prod(map(int, sides)) == d else ""
