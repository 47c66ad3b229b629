"""A round: the client's global atoms after one local update, and what opens a sum of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from flwr.app import Context, RecordDict

from common.aggregations import AGGREGATIONS
from common.errors import PerdlError
from common.protocol import LAST_ROUND, Payload, ProtocolError, Scalar, pack
from common.settings import Settings
from perdl_client.answers.resume import as_told, learner_of, resume, settings_of
from perdl_client.identity import Identity
from perdl_client.ledger import count_round
from perdl_client.secure import begin_round, open_sum
from perdl_client.state import ALL_SHARED, NOTHING_USED, find_state, save_state


def update(payload: Payload, context: Context) -> RecordDict:
    """Return this client's global atoms after one local update.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity = Identity.of(context.node_config)
    step = payload.scalar("round", int)
    if not 1 <= step <= LAST_ROUND:
        raise ProtocolError(f"{identity.name} was asked for round {step}")
    state, settings, D_g = resume(payload, context, identity, before=step)
    asked = hashlib.sha256(np.ascontiguousarray(D_g).tobytes()).hexdigest()[:16]
    if settings.privacy.mode == "private":
        _check_budget(identity, settings, state.run, step, asked, context)
    aggregated = settings.privacy.mode == "aggregated"
    masked = begin_round(payload, identity, settings, step, context) if aggregated else None
    client, data = learner_of(identity, settings, state, payload, D_g, context, f"round {step} {asked}")
    terms = identity.terms()
    if terms is not None:
        terms.check_global(client.shared(D_g).shape[1], data.Y.shape[1], identity.name)
        count_round(identity.ledger(), state.run, terms, identity.name)
    new = client.update(D_g, step)
    mask, own = identity.mask(settings, state.run, len(D_g)), new.contribution(settings.aggregation)
    if mask is not None:  # what the guard holds goes back with the bits it came with, so that the server leaves it out
        came = client.shared(payload.array("global_dictionary", D_g.shape))
        held = (own == client.shared(D_g)).all(axis=0)
        own = np.where(held, came.astype(own.dtype), mask.hide(own))
    arrays = {"contribution": own}
    if client.members is not None:
        arrays["spread"], arrays["nearest"] = client.evidence(new, D_g)
    if AGGREGATIONS[settings.aggregation].weighted:
        arrays["energies"] = new.energies
    if not all(np.isfinite(a).all() for a in (new.local_dictionary, *arrays.values())):
        raise PerdlError(f"{identity.name}: the update is not finite; lower step_size or rescale the data")
    after = replace(
        state,
        step=step,
        local_dictionary=client.dictionary,
        n_global=D_g.shape[1],
        used=NOTHING_USED,
        members=ALL_SHARED if client.members is None else client.members,
        watch=client.watch,
        asked=asked,
    )
    if masked is not None:
        arrays = masked.answer(new, settings.aggregation)
    save_state(after, context, identity.state_folder())
    scalars: dict[str, Scalar] = {"round": step}
    if masked is None:  # else how it fared is in the sum
        scalars["reassigned"] = new.reassigned
    if masked is None and settings.privacy.mode != "private":
        scalars["error_before_update"] = as_told(settings, new.error)
        scalars["nonzeros"] = as_told(settings, new.nonzeros)
    return pack(arrays, client=identity.name, **scalars)


def _check_budget(identity: Identity, settings: Settings, run: str, step: int, asked: str, context: Context) -> None:
    """Refuse a release that the run's epsilon does not pay for: a round beyond the last, or one for another D^g."""
    if step > settings.rounds:
        raise ProtocolError(
            f"{identity.name} was asked for round {step}: its epsilon is for {settings.rounds} rounds; start a new run"
        )
    newest = find_state(run, context, identity.state_folder(), before=step + 1)
    if newest is not None and newest.step == step and newest.asked != asked:
        raise ProtocolError(f"{identity.name} has answered round {step} for another D^g; epsilon pays for one answer")


def open_round(payload: Payload, context: Context) -> RecordDict:
    """Return what the server needs of this client to open a round's sum (``privacy = "aggregated"``).

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity = Identity.of(context.node_config)
    state = find_state(payload.scalar("run", str), context, identity.state_folder())
    if state is None:
        raise ProtocolError(f"{identity.name} has no state of this run")
    told = open_sum(payload, identity, settings_of(state.settings), context)
    return pack(told, client=identity.name, round=payload.scalar("round", int))
