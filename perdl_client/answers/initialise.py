"""The start of a run: sums for agreed scales, then the used atoms of D_i^(0)."""

from __future__ import annotations

import logging

from flwr.app import Context, RecordDict

from common.blocks import Columns
from common.errors import DataError, SettingsError
from common.learning_settings import LearningSettings
from common.logs import FAULT
from common.mask import fingerprint
from common.protocol import Payload, Scalar, pack, search_of
from common.statistics import largest_feature_share, largest_size, mean_share, rms
from perdl_client.answers.resume import as_told, held_to_terms, samples_of, settings_of
from perdl_client.data.load import own_scale_sums
from perdl_client.data.memory import memory_of
from perdl_client.data.samples import names_mark
from perdl_client.identity import Identity
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.measures import Measures
from perdl_client.learning.missing import zero_filled
from perdl_client.ledger import count_run, count_start, read_ledger
from perdl_client.secure import introduction
from perdl_client.state import ClientState, find_state, save_state

_log = logging.getLogger("perdl.client")


def scale(payload: Payload, context: Context) -> RecordDict:
    """Return the sums from which the server computes scales that all clients agree on.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity, settings = Identity.of(context.node_config), settings_of(payload.scalar("settings", str))
    allow = held_to_terms(identity, settings, identity.learning(settings))
    identity.check_privacy(settings)
    run, terms = payload.scalar("run", str), identity.terms()
    if terms is not None:
        read_ledger(identity.ledger()).check_run(run, terms, identity.name)
    counts, squares = own_scale_sums(identity, settings, memory_of(context).look(settings.dtype), allow)
    if terms is not None:
        count_run(identity.ledger(), run, terms, identity.name)
    return pack({"counts": counts, "squares": squares}, client=identity.name)


def initialise(payload: Payload, context: Context) -> RecordDict:
    """Return the used atoms of D_i^(0) and their usage.

    Parameters
    ----------
    payload : Payload
        Content of the server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    identity = Identity.of(context.node_config)
    run = payload.scalar("run", str)
    state = find_state(run, context, identity.state_folder())
    text = state.settings if state is not None else payload.scalar("settings", str)
    settings = settings_of(text)
    identity.check_privacy(settings)
    secret = identity.secret(settings)

    def key() -> dict[str, Scalar]:
        if settings.privacy.mode != "aggregated":
            return {}
        return introduction(
            identity, settings, run, lambda: samples_of(identity, settings, run, state, context).Y, context
        )

    if state is not None and state.step > 0:  # the client has answered a round: its atoms are split
        return pack({}, client=identity.name, step=state.step, **key())
    learning = identity.learning(settings)
    allow = held_to_terms(identity, settings, learning)
    device = memory_of(context).device(learning.device, settings.dtype, identity.name)
    terms = identity.terms() if state is None else None
    if terms is not None:
        read_ledger(identity.ledger()).check_start(run, settings.privacy, terms, identity.name)
    data = samples_of(identity, settings, run, state, context, allow)
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
    if why := client.not_on_device:
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
        scalars["start_error"] = as_told(settings, found.error)
        scalars["nonzeros"] = as_told(settings, found.nonzeros)
        scalars["mean_share"] = as_told(settings, mean_share(known))
        scalars["largest_feature_share"] = as_told(settings, largest_feature_share(known, channels))
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
