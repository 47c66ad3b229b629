"""What all answers begin with: the run's settings, the client's samples, and its state after its last answer."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from common.dictionaries import ABSENT, chosen
from common.errors import DataError
from common.learning_settings import LearningSettings
from common.protocol import Payload, ProtocolError, search_of
from common.settings import Settings, settings_from_values
from perdl_client.data.load import Allow, ClientData, load_data
from perdl_client.data.memory import memory_of
from perdl_client.data.samples import names_mark
from perdl_client.identity import Identity
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.guard import rounded
from perdl_client.learning.received import check_received
from perdl_client.state import ClientState, find_state

Floats = NDArray[np.floating]

_MOST_GLOBAL = 4096
"""Global atoms that a client takes where their number was not agreed on before, if it has not more itself."""

_LARGEST = 1e6
"""Largest norm of D^g's atoms that a client takes without a guard, which takes less."""


def resume(
    payload: Payload, context: Context, identity: Identity, before: int | None = None
) -> tuple[ClientState, Settings, Floats]:
    """Return the state for a message (split, if it was not), the settings, and the received D^g.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    identity : Identity
        The client.
    before : int, optional
        Only a state that has not answered this round will do.

    Raises
    ------
    ProtocolError
        If there is no such state, or D^g is not one that this run's server may send.
    """
    state = _state(payload.scalar("run", str), context, identity, before)
    settings = settings_of(state.settings)
    D_l = state.local_dictionary
    D_g = payload.array("global_dictionary", (D_l.shape[0], -1))
    if D_g.dtype != D_l.dtype:
        raise ProtocolError(f"{identity.name} was sent a D^g of type {D_g.dtype}, {D_l.dtype} was agreed")
    # The client replies with as many atoms as it receives, so a server must not widen D^g later.
    agreed, r_g = state.n_global if state.n_global >= 0 else settings.n_global, D_g.shape[1]
    if isinstance(agreed, int) and r_g != agreed:
        raise ProtocolError(f"{identity.name} was sent {r_g} global atoms, {agreed} were agreed")
    if r_g > max(_MOST_GLOBAL, D_l.shape[1]):
        raise ProtocolError(f"{identity.name} was sent {r_g} global atoms, and takes {_MOST_GLOBAL} at most")
    with np.errstate(over="ignore"):
        largest = np.linalg.norm(D_g, axis=0).max(initial=0)
    if largest > _LARGEST:
        raise ProtocolError(
            f"{identity.name} was sent a D^g out of all proportion, an atom of norm {largest:.3g}: if the run "
            "diverges, rescale the data (data.scale)"
        )
    if settings.privacy.guarded:
        check_received(D_g, identity.name)
    if state.step == 0:
        indices = payload.array("indices", (D_g.shape[1],), "i")
        own = indices[indices != ABSENT]
        if len(np.unique(own)) < len(own) or not np.isin(own, np.arange(len(state.used))).all():
            raise ProtocolError(f"{identity.name} was sent indices that are not its own")
        newest = find_state(state.run, context, identity.state_folder()) or state
        if len(newest.split) and not np.array_equal(newest.split, indices):
            raise ProtocolError(f"{identity.name} was sent other indices than before")
        state = replace(state, split=indices.astype(np.intp))
        # Indices count the atoms that were sent. If an earlier answer got lost, the newest state is split already.
    mask = identity.mask(settings, state.run, len(D_g))
    return state, settings, mask.show(D_g) if mask else D_g


def learner_of(
    identity: Identity,
    settings: Settings,
    state: ClientState,
    payload: Payload,
    D_g: Floats,
    context: Context,
    purpose: str = "end",
) -> tuple[ClientLearner, ClientData]:
    """Return the client as it was after its last answer, sharing the atoms that the server says, with its samples.

    Parameters
    ----------
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    state : ClientState
        Its state.
    payload : Payload
        Content of the server's message.
    D_g : (d, r_g) array
        D^g as received.
    context : flwr.app.Context
        This node's context, which keeps the samples.
    purpose : str
        What is released, for the noise of a private run.
    """
    data = samples_of(identity, settings, state.run, state, context)
    learning, D = identity.learning(settings), state.local_dictionary
    members = state.members if len(state.members) else None
    client = ClientLearner(
        data.Y,
        learning,
        settings.seed,
        identity.name,
        min_samples=identity.min_samples(learning),
        dictionary=D,
        watch=state.watch,
        members=members,
        guarded=settings.privacy.guarded,
        private=identity.private(settings, state.run, purpose),
    )
    if state.step == 0:
        client.split(chosen(state.used, state.split), settings.sharing)
    if settings.sharing == "some":
        client.share(_members(identity, client, payload.array("members", D_g.shape[1:], "b")), D_g)
    return client, data


def _state(run: str, context: Context, identity: Identity, before: int | None) -> ClientState:
    folder = identity.state_folder()
    state = find_state(run, context, folder, before)
    if state is not None:
        return state
    newest = find_state(run, context, folder)
    if newest is None:
        raise ProtocolError(
            f"{identity.name} has no state of this run: it was restarted without its folder, or joined too late"
        )
    raise ProtocolError(
        f"{identity.name} has answered round {newest.step} already, was asked for round {before}, and has nothing left "
        "of the time before: take `state` out of its folder and start it again, to be matched anew"
    )


def as_told(settings: Settings, value: float) -> float:
    """Return a figure as it is sent.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    value : float
        The figure.
    """
    return rounded(value) if settings.privacy.guarded else value


@functools.lru_cache(16)
def settings_of(text: str) -> Settings:
    """Return the settings of a run. They are the same in each of its messages, and cannot be changed.

    Parameters
    ----------
    text : str
        The settings as the server sent them (JSON).

    Raises
    ------
    ProtocolError
        If they are not JSON.
    SettingsError
        If one of them is wrong.
    """
    try:
        return settings_from_values(json.loads(text))
    except (ValueError, RecursionError):
        raise ProtocolError("the run's settings are not JSON") from None


def _members(identity: Identity, client: ClientLearner, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the atoms that the server says a client shares, after checking that it has as many."""
    before = members if client.members is None else client.members
    joined, own = np.count_nonzero(members & ~before), client.dictionary.shape[1]
    if joined > own:
        raise ProtocolError(f"{identity.name} was told to share {joined} atoms more, and has {own} of its own")
    return members


def held_to_terms(identity: Identity, settings: Settings, learning: LearningSettings) -> Allow:
    """Refuse settings beyond the client's terms. Return what refuses too much for its number of samples.

    Parameters
    ----------
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    learning : LearningSettings
        How the client learns.

    Returns
    -------
    callable ``(d, n, in_memory) -> None``
        Raises SettingsError if the run asks too much of so many features and samples.
    """
    terms = identity.terms()
    if terms is None:
        return lambda d, n, in_memory: None
    terms.check_settings(settings, learning, identity.name)
    return lambda d, n, in_memory: terms.check_size(settings, learning, d, n, identity.name, in_memory)


def samples_of(
    identity: Identity,
    settings: Settings,
    run: str,
    state: ClientState | None,
    context: Context,
    allow: Allow = lambda d, n, in_memory: None,
) -> ClientData:
    """Return the samples, after checking that they are like those at the start of the run.

    Parameters
    ----------
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    run : str
        The run's id.
    state : ClientState, optional
        The client's state, if it has one.
    context : flwr.app.Context
        This node's context, which keeps the samples.
    allow : callable ``(d, n, in_memory) -> None``
        Raises SettingsError if the samples are too many.

    Raises
    ------
    DataError
        If the samples have other features than before.
    """
    memory = memory_of(context)
    owner = search_of(run)  # trials of a search learn from the same samples
    data = memory.recall(owner) or memory.keep(owner, load_data(identity, settings, memory.take(settings.dtype), allow))
    if state is None:
        return data
    d, names = len(state.local_dictionary), names_mark(data.names)
    other = f"samples of {len(data.Y)} features, and began this run with {d}" if len(data.Y) != d else ""
    if not other and state.names and names and names != state.names:
        other = "features of other names, or in another order, than it began this run with"
    if other:
        raise DataError(f"{identity.name} has {other}: start it with the data that it had")
    return data
