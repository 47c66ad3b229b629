"""The end: of a trial, the error of held-out samples; of a run, the client's own model."""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from common.dictionaries import dictionary_distance
from common.logs import tell_of_disk
from common.protocol import Payload, ProtocolError, Scalar, pack
from common.settings import Settings
from common.simulation import is_simulation
from perdl_client.answers.resume import as_told, learner_of, resume
from perdl_client.data.load import ClientData
from perdl_client.data.memory import memory_of
from perdl_client.data.sources import truth
from perdl_client.identity import Identity
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import evaluate_client, held_out_error
from perdl_client.learning.measures import measured
from perdl_client.model import ClientModel, save_model
from perdl_client.state import forget_state

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.client")


def measure(payload: Payload, context: Context) -> RecordDict:
    """End a trial of a search of settings: return the error of held-out samples, and forget the trial.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity = Identity.of(context.node_config)
    state, settings, D_g = resume(payload, context, identity)
    if (mode := settings.privacy.mode) in ("aggregated", "private"):
        raise ProtocolError(f'{identity.name} takes part in no search of settings where privacy = "{mode}"')
    client, data = learner_of(identity, settings, state, payload, D_g, context)
    told: dict[str, Scalar] = {}
    if data.held_out is not None:
        Z = data.held_out.Z
        e = held_out_error(Z, D_g, client.finish(D_g), settings.evaluation.n_nonzero)
        told = {"held_out": Z.shape[1], "held_out_error": e}
    # Of a trial the server learns one number, whatever it asks.
    forget_state(context, identity.state_folder())
    return pack({}, client=identity.name, **told)


def finish(payload: Payload, context: Context) -> RecordDict:
    """Write this client's own model, and return scalars.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity = Identity.of(context.node_config)
    for key, kind in (("reason", str), ("trials", int)):
        if key in payload.scalars:
            payload.scalar(key, kind)
    if payload.arrays and "global_dictionary" not in payload.arrays:
        raise ProtocolError(f"{identity.name} was sent {min(payload.arrays)} without a D^g")
    if not payload.arrays:  # no run was matched, or it was a search: there is no model to write
        memory_of(context).clear()
        return pack({}, client=identity.name)
    state, settings, D_g = resume(payload, context, identity)
    client, data = learner_of(identity, settings, state, payload, D_g, context)
    if client.members is not None:
        still = payload.array("shared", client.members.shape, "b")
        client.share(client.members & still, D_g)  # what nobody else shares any more becomes its own
        client.keep(np.flatnonzero(still))
        D_g = np.where(client.members, D_g[:, still], 0)  # in its model, atoms that it does not share are zero
    D_l = client.finish(D_g)
    D = np.hstack([D_g, D_l])
    found = measured(client.trusted(D), D, client.coder, D_g.shape[1])
    measures = {"error": found.error, "shared": found.shared, "own": found.own}
    told = {key: as_told(settings, value) for key, value in measures.items()}
    scalars: dict[str, Scalar] = {} if settings.privacy.mode == "private" else {**told}
    known = truth(identity, settings)
    if known is not None and known.local_dictionary.shape == D_l.shape and not settings.data.bends:
        scalars["local_distance"] = dictionary_distance(D_l, known.local_dictionary)
    measures["n_samples"] = found.n_samples
    if "reason" not in payload.scalars:  # a run that ends before its time is not kept waiting
        first = memory_of(context).first(client.learning.model_dump_json())
        told = _evaluated(data, client, D_g, D_l, settings, state.step, first)
        scalars |= told if settings.privacy.mode != "private" else {}
        measures |= told
    model = ClientModel(D_g, D_l, data.preprocessing, client.coder, data.cut, data.names, found.carried, measures)
    # The state is kept: an interrupted run may be resumed.
    try:
        save_model(model, identity.folder(settings))
    except OSError as error:
        if not is_simulation():  # a simulation's results are whole without it, a deployed client needs its model
            raise
        tell_of_disk(error)
    memory_of(context).clear()
    return pack({}, client=identity.name, **scalars)


def _evaluated(
    data: ClientData, client: ClientLearner, D_g: Floats, D_l: Floats, settings: Settings, rounds: int, D: Floats | None
) -> dict[str, int | float]:
    """Return what the client tells of its held-out samples; nothing if there are none."""
    if data.held_out is None:
        return {}
    if D is None:  # a new process learns again what it sent first; alone, nothing is guarded
        first = ClientLearner(
            data.Y,
            client.learning,
            settings.seed,
            client.name,
            min_samples=client.min_samples,
            guarded=client.guard is not None,
        )
        D = first.dictionary
    began = ClientLearner(data.Y, client.learning, settings.seed, client.name, dictionary=np.ascontiguousarray(D))
    found = evaluate_client(data.held_out, began, D_g, D_l, rounds, settings)
    _log.info("%s", found.in_words())
    return found.scalars()
