"""The ClientApp: five messages, each one step of PerMA on private data.

Replies hold what ``common.protocol`` lists. They never hold samples, codes or local atoms.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.blocks import Columns
from common.dictionaries import ABSENT, chosen, dictionary_distance
from common.errors import DataError, PerdlError, SettingsError
from common.learning_settings import LearningSettings
from common.logs import FAULT, about, join_log, log_file
from common.mask import fingerprint
from common.protocol import (
    FINISH,
    INITIALISE,
    LAST_ROUND,
    MEASURE,
    OPEN,
    QUESTIONS,
    SCALE,
    UPDATE,
    Payload,
    ProtocolError,
    Scalar,
    check_run,
    one_line,
    pack,
    search_of,
    unpack,
)
from common.settings import Settings, settings_from_values
from common.simulation import is_simulation
from common.statistics import largest_feature_share, largest_size, mean_share, rms
from common.threads import one_blas_thread
from perdl_client.data.load import Allow, ClientData, load_data, own_scale_sums
from perdl_client.data.memory import memory_of
from perdl_client.data.samples import names_mark
from perdl_client.data.sources import truth
from perdl_client.identity import Identity
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import evaluate_client, held_out_error
from perdl_client.learning.guard import rounded
from perdl_client.learning.measures import Measures, measured
from perdl_client.learning.missing import zero_filled
from perdl_client.learning.received import check_received
from perdl_client.ledger import count_round, count_run, count_start, read_ledger
from perdl_client.model import ClientModel, save_model
from perdl_client.record import record
from perdl_client.secure import begin_round, introduction, open_sum
from perdl_client.state import ALL_SHARED, NOTHING_USED, ClientState, find_state, forget_state, save_state

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.client")

_MOST_GLOBAL = 4096
"""Global atoms that a client takes where their number was not agreed on before, if it has not more itself."""

_LARGEST = 1e6
"""Largest norm of D^g's atoms that a client takes without a guard, which takes less."""

app = ClientApp()


@app.train(SCALE.partition(".")[2])
def on_scale(message: Message, context: Context) -> Message:
    """Answer with the sums from which the server computes scales that all clients agree on.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_scale, message, context)


@app.train(INITIALISE.partition(".")[2])
def on_initialise(message: Message, context: Context) -> Message:
    """Answer with the used atoms of D_i^(0) and their usage.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_initialise, message, context)


@app.train(UPDATE.partition(".")[2])
def on_update(message: Message, context: Context) -> Message:
    """Answer with this client's global atoms after one local update.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_update, message, context)


@app.train(OPEN.partition(".")[2])
def on_open(message: Message, context: Context) -> Message:
    """Answer with what the server needs of this client to open a round's sum (``privacy = "aggregated"``).

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_open, message, context)


@app.train(MEASURE.partition(".")[2])
def on_measure(message: Message, context: Context) -> Message:
    """End a trial of a search of settings: answer with the error of held-out samples, and forget the trial.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_measure, message, context)


@app.train(FINISH.partition(".")[2])
def on_finish(message: Message, context: Context) -> Message:
    """Write this client's own model and answer with scalars.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(_finish, message, context)


def _answer(handle: Callable[[Payload, Context], RecordDict], message: Message, context: Context) -> Message:
    """Run a handler. Of an unforeseen exception only the type is sent: its text may hold data."""
    began, run = time.monotonic(), ""
    join_log()
    with ExitStack() as stack:  # failures are logged with the client's name too
        try:
            payload = unpack(message.content, QUESTIONS.get(message.metadata.message_type, ()))
            run = check_run(payload.scalar("run", str))
            known = {key: payload.scalars[key] for key in ("run", "round") if key in payload.scalars}
            stack.enter_context(about(client=Identity.of(context.node_config).name, **known))
            with one_blas_thread():
                answer = Message(handle(payload, context), reply_to=message)
            _record(answer, message, context, run)
            _log.info("answered %s in %.3f s", message.metadata.message_type, time.monotonic() - began)
            return answer
        except PerdlError as error:
            _log.info("%s", error)
            reason = one_line(str(error))
        except OSError as error:  # such as a full disk: the server may ask for this round again
            _tell_of_disk(error)
            where = f"{error.filename}: " if error.filename and is_simulation() else ""
            reason = f"its own disk or folder fails it: {where}{error.strerror or type(error).__name__}"
        except Exception as error:
            _log.exception("unforeseen failure")
            reason = f"{type(error).__name__} (details are in {_where_to_read()})"
    answer = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    with suppress(OSError):  # it holds no data
        _record(answer, message, context, run)
    return answer


def _record(answer: Message, message: Message, context: Context, run: str) -> None:
    """Write down what is about to leave, if the client keeps a record. Without it nothing leaves."""
    if (folder := Identity.of(context.node_config).record_folder()) is not None:
        record(folder, answer, message.metadata.message_type, run)


def _tell_of_disk(error: OSError) -> None:
    """Log what could not be written. Clients of a simulation share one disk, so people are told once."""
    known = {FAULT: error.strerror} if is_simulation() else {}
    _log.error("cannot write %s: %s", error.filename or "a file", error.strerror, extra=known)


def _where_to_read() -> str:
    """Name the log. A deployed client tells the server none of its paths."""
    return (log_file() if is_simulation() else None) or "the client's own log"


def _scale(payload: Payload, context: Context) -> RecordDict:
    identity, settings = Identity.of(context.node_config), _settings(payload.scalar("settings", str))
    allow = _held_to_terms(identity, settings, identity.learning(settings))
    identity.check_privacy(settings)
    run, terms = payload.scalar("run", str), identity.terms()
    if terms is not None:
        read_ledger(identity.ledger()).check_run(run, terms, identity.name)
    counts, squares = own_scale_sums(identity, settings, memory_of(context).look(settings.dtype), allow)
    if terms is not None:
        count_run(identity.ledger(), run, terms, identity.name)
    return pack({"counts": counts, "squares": squares}, client=identity.name)


def _initialise(payload: Payload, context: Context) -> RecordDict:
    identity = Identity.of(context.node_config)
    run = payload.scalar("run", str)
    state = find_state(run, context, identity.state_folder())
    text = state.settings if state is not None else payload.scalar("settings", str)
    settings = _settings(text)
    identity.check_privacy(settings)
    secret = identity.secret(settings)

    def key() -> dict[str, Scalar]:
        if settings.privacy.mode != "aggregated":
            return {}
        return introduction(identity, settings, run, lambda: _data(identity, settings, run, state, context).Y, context)

    if state is not None and state.step > 0:  # the client has answered a round: its atoms are split
        return pack({}, client=identity.name, step=state.step, **key())
    learning = identity.learning(settings)
    allow = _held_to_terms(identity, settings, learning)
    device = memory_of(context).device(learning.device, settings.dtype, identity.name)
    terms = identity.terms() if state is None else None
    if terms is not None:
        read_ledger(identity.ledger()).check_start(run, settings.privacy, terms, identity.name)
    data = _data(identity, settings, run, state, context, allow)
    Y, card, memory, way = data.Y, key(), memory_of(context), learning.model_dump_json()
    client = ClientLearner(
        Y,
        learning,
        settings.seed,
        identity.name,
        min_samples=identity.min_samples(learning),
        dictionary=memory.first(way) if state is None else state.local_dictionary,
        guarded=settings.privacy.guarded,
        private=identity.private(settings, run, "start"),
        size=data.rms,
        device=device,
    )
    if client.not_on_device:
        why = client.not_on_device
        _log.warning('computes with numpy: device = "%s" takes no %s', learning.device, why, extra={FAULT: why})
    start = client.start()
    D, found, used = client.dictionary, start.measures, start.used
    r = D.shape[1]
    known = zero_filled(Y)
    if not largest_size(known):
        how = "zero" if not data.preprocessing.shifts else "equal, thus zero once their mean is taken off"
        held_out = 0 if data.held_out is None or largest_size(data.held_out.Z) else data.held_out.Z.shape[1]
        n = Y.shape[1] + held_out
        raise DataError(f"all {n} samples of {identity.name} are {how}: look at its data, or leave it out")
    if not start.takes_part or (len(used) == 0 and _has_wild(known)):
        raise SettingsError(_why_unused(identity, learning, known, found))
    if isinstance(settings.n_global, int) and r < settings.n_global:
        raise SettingsError(f"{identity.name} has {r} atoms, fewer than n_global = {settings.n_global}: lower n_global")
    names = names_mark(data.names)
    if terms is not None:
        is_new = memory.first(way) is None
        count_start(identity.ledger(), run, settings.privacy, terms, identity.name, is_new=is_new)
    if data.held_out is not None or search_of(run) != run:
        memory.keep_first(D, way)
    save_state(ClientState(run, text, 0, D, used=used, names=names), context, identity.state_folder())
    scalars: dict[str, Scalar] = {
        "client": identity.name,
        "step": 0,
        "returning": state is not None,
        "n_features": Y.shape[0],
        "n_samples": Y.shape[1],
        "n_atoms": r,
        "shape": "x".join(map(str, data.cut.piece)),
        "names": names,
        **card,
    }
    if settings.privacy.mode != "private":  # exact measures of all samples
        channels = data.cut.channels if data.cut.kind == "window" else 0
        scalars["start_error"] = _told(settings, found.error)
        scalars["nonzeros"] = _told(settings, found.nonzeros)
        scalars["mean_share"] = _told(settings, mean_share(known))
        scalars["largest_feature_share"] = _told(settings, largest_feature_share(known, channels))
    mask = identity.mask(settings, run, len(Y))
    if mask:
        scalars["secret"] = fingerprint(secret, run)
    atoms = mask.hide(start.atoms) if mask else start.atoms
    return pack({"dictionary": atoms, "usage": start.usage}, **scalars)


def _has_wild(Y: Columns) -> bool:
    """Return whether a number is so far beyond the others that it may be none, as -999 for what is missing."""
    return largest_size(Y) > 10 * rms(Y)


def _why_unused(identity: Identity, learning: LearningSettings, Y: Columns, found: Measures) -> str:
    """Say why a client sends no atom, and what to do."""
    largest, size, least = largest_size(Y), rms(Y), identity.min_samples(learning)
    why = (
        f"has no code that passes {learning.coder} (threshold {learning.threshold:g} {learning.threshold_unit}, root "
        f"mean square of its data {size:.3g})"
    )
    cure = "lower threshold" + ("" if learning.threshold_unit == "rms" else ', or set threshold_unit = "rms"')
    if found.users.any():
        why = f"has no atom that {least} of its {Y.shape[1]} samples use without one of them making it up"
        cure = "give it more samples, lower threshold, or lower min_samples (and what the client itself asks for)"
    if _has_wild(Y):
        cure = f"look for numbers that are none, as -999 for what is missing: the largest is {largest:.3g}; or {cure}"
    return f"{identity.name} {why}: {cure}"


def _update(payload: Payload, context: Context) -> RecordDict:
    identity = Identity.of(context.node_config)
    step = payload.scalar("round", int)
    if not 1 <= step <= LAST_ROUND:
        raise ProtocolError(f"{identity.name} was asked for round {step}")
    state, settings, D_g = _resume(payload, context, identity, before=step)
    asked = hashlib.sha256(np.ascontiguousarray(D_g).tobytes()).hexdigest()[:16]
    if settings.privacy.mode == "private":
        _check_budget(identity, settings, state.run, step, asked, context)
    aggregated = settings.privacy.mode == "aggregated"
    masked = begin_round(payload, identity, settings, step, context) if aggregated else None
    client, data = _learner(identity, settings, state, payload, D_g, context, f"round {step} {asked}")
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
        scalars["error_before_update"] = _told(settings, new.error)
        scalars["nonzeros"] = _told(settings, new.nonzeros)
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


def _open(payload: Payload, context: Context) -> RecordDict:
    identity = Identity.of(context.node_config)
    state = find_state(payload.scalar("run", str), context, identity.state_folder())
    if state is None:
        raise ProtocolError(f"{identity.name} has no state of this run")
    told = open_sum(payload, identity, _settings(state.settings), context)
    return pack(told, client=identity.name, round=payload.scalar("round", int))


def _measure(payload: Payload, context: Context) -> RecordDict:
    identity = Identity.of(context.node_config)
    state, settings, D_g = _resume(payload, context, identity)
    if (mode := settings.privacy.mode) in ("aggregated", "private"):
        raise ProtocolError(f'{identity.name} takes part in no search of settings where privacy = "{mode}"')
    client, data = _learner(identity, settings, state, payload, D_g, context)
    told: dict[str, Scalar] = {}
    if data.held_out is not None:
        Z = data.held_out.Z
        e = held_out_error(Z, D_g, client.finish(D_g), settings.evaluation.n_nonzero)
        told = {"held_out": Z.shape[1], "held_out_error": e}
    # Of a trial the server learns one number, whatever it asks.
    forget_state(context, identity.state_folder())
    return pack({}, client=identity.name, **told)


def _finish(payload: Payload, context: Context) -> RecordDict:
    identity = Identity.of(context.node_config)
    for key, kind in (("reason", str), ("trials", int)):
        if key in payload.scalars:
            payload.scalar(key, kind)
    if payload.arrays and "global_dictionary" not in payload.arrays:
        raise ProtocolError(f"{identity.name} was sent {min(payload.arrays)} without a D^g")
    if not payload.arrays:  # no run was matched, or it was a search: there is no model to write
        memory_of(context).clear()
        return pack({}, client=identity.name)
    state, settings, D_g = _resume(payload, context, identity)
    client, data = _learner(identity, settings, state, payload, D_g, context)
    if client.members is not None:
        still = payload.array("shared", client.members.shape, "b")
        client.share(client.members & still, D_g)  # what nobody else shares any more becomes its own
        client.keep(np.flatnonzero(still))
        D_g = np.where(client.members, D_g[:, still], 0)  # in its model, atoms that it does not share are zero
    D_l = client.finish(D_g)
    D = np.hstack([D_g, D_l])
    found = measured(client.trusted(D), D, client.coder, D_g.shape[1])
    measures = {"error": found.error, "shared": found.shared, "own": found.own}
    told = {key: _told(settings, value) for key, value in measures.items()}
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
        _tell_of_disk(error)
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


def _resume(
    payload: Payload, context: Context, identity: Identity, before: int | None = None
) -> tuple[ClientState, Settings, Floats]:
    """Return the state for a message (split, if it was not), the settings, and the received D^g."""
    state = _state(payload.scalar("run", str), context, identity, before)
    settings = _settings(state.settings)
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


def _learner(
    identity: Identity,
    settings: Settings,
    state: ClientState,
    payload: Payload,
    D_g: Floats,
    context: Context,
    purpose: str = "end",
) -> tuple[ClientLearner, ClientData]:
    """Return the client as it was after its last answer, sharing the atoms that the server says, with its samples."""
    data = _data(identity, settings, state.run, state, context)
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
        size=data.rms,
        device=memory_of(context).device(learning.device, settings.dtype, identity.name),
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


def _told(settings: Settings, value: float) -> float:
    """Return a figure as it is sent."""
    return rounded(value) if settings.privacy.guarded else value


@functools.lru_cache(16)
def _settings(text: str) -> Settings:
    """Return the settings of a run. They are the same in each of its messages, and cannot be changed."""
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


def _held_to_terms(identity: Identity, settings: Settings, learning: LearningSettings) -> Allow:
    """Refuse settings beyond the client's terms. Return what refuses too much for its number of samples."""
    terms = identity.terms()
    if terms is None:
        return lambda d, n, in_memory: None
    terms.check_settings(settings, learning, identity.name)
    return lambda d, n, in_memory: terms.check_size(settings, learning, d, n, identity.name, in_memory)


def _data(
    identity: Identity,
    settings: Settings,
    run: str,
    state: ClientState | None,
    context: Context,
    allow: Allow = lambda d, n, in_memory: None,
) -> ClientData:
    """Return the samples, after checking that they are like those at the start of the run."""
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
