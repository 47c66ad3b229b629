"""Turn the estimator's parameters into the settings of a run, and messages about settings into Python's words."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from common.errors import PerdlError, SettingsError
from common.files import plain
from common.settings import Settings, changed, load_settings, settings_from_values
from perdl.estimator.arrays import InputError

if TYPE_CHECKING:
    from perdl.estimator.fitted import Fitted

P = ParamSpec("P")
T = TypeVar("T")

DATA_PARAMETERS = ("missing", "center", "drop_constant", "divide_by", "site_scale", "scale", "whiten")
"""Parameters of the estimator that belong to the table ``data`` of the settings."""

EVALUATION_PARAMETERS = ("held_out",)
"""Parameters of the estimator that belong to the table ``evaluation``."""

NO_SETTINGS = ("preset", "random_state", "verbose")
"""Parameters of the estimator that are not settings of a run."""

_MAY_CHANGE = ("rounds", "tolerance", "output", "n_clients")
"""Settings that ``partial_fit`` may change, similar to `perdl server --resume`."""


def preset_values(preset: object, known: Sequence[str]) -> dict[str, Any]:
    """Return the estimator's parameters that a preset sets; none without a preset.

    Parameters
    ----------
    preset : str or Path, optional
        Name of one of perdl's presets, or a TOML file.
    known : sequence of str
        Names of the estimator's parameters; other settings of the preset are ignored.

    Raises
    ------
    SettingsError
        If there is no such preset, or it is for videos.
    """
    if preset is None:
        return {}
    from perdl.cli.command import find_config, presets

    settings = load_settings(find_config(str(preset)))
    if settings.data.source == "video":
        fit = [name for name, path in sorted(presets().items()) if load_settings(path).data.source != "video"]
        raise SettingsError(f"preset = {str(preset)!r}: is for videos; for arrays there are {', '.join(fit)}")
    values = settings.model_dump(exclude_unset=True)
    for table, parameters in (("data", DATA_PARAMETERS), ("evaluation", EVALUATION_PARAMETERS)):
        values |= {key: value for key, value in values.pop(table, {}).items() if key in parameters}
    return {key: value for key, value in values.items() if key in known and key != "output"}


def with_preset(init: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """Make a constructor take parameters that were not given from its ``preset``.

    Parameters
    ----------
    init : callable
        The constructor; it has a parameter ``preset``.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def filled(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if unknown := [name for name in kwargs if name not in signature.parameters]:
            near = difflib.get_close_matches(unknown[0], signature.parameters, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {unknown[0]!r}{meant}")
        given = signature.bind(self, *args, **kwargs).arguments
        missing = [name for name in signature.parameters if name not in given]
        values = preset_values(given.get("preset"), missing) if missing else {}
        init(**{**values, **given})  # type: ignore[call-arg]

    return filled


def settings_of(params: Mapping[str, Any], names: Sequence[str], former: Fitted | None) -> Settings:
    """Return the settings of a run over arrays.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator by name. Numbers may be NumPy's or Python's.
    names : sequence of str
        Names of the clients.
    former : Fitted, optional
        Run to continue; ``rounds`` are added to its rounds.

    Raises
    ------
    SettingsError, InputError
        If a setting is wrong, the former run had another value that may not change, or one of its clients is missing.
    """
    given = {key: value for key, value in params.items() if value is not None and key not in NO_SETTINGS}
    given["seed"] = _seed(params)
    data = {"source": "memory", **{key: given.pop(key) for key in DATA_PARAMETERS if key in given}}
    evaluation = {key: given.pop(key) for key in EVALUATION_PARAMETERS if key in given}
    if "output" in given:
        given["output"] = str(given["output"])
    settings = settings_from_values(plain({**given, "n_clients": len(names), "data": data, "evaluation": evaluation}))
    if unknown := sorted(set(settings.clients) - set(names)):
        raise SettingsError(f"clients: there is no data set {unknown[0]}; there are {', '.join(names)}")
    if former is None:
        return settings
    if former.settings.sharing == "some":
        raise SettingsError('sharing = "some": partial_fit cannot go on with such a run; call fit, with more rounds')
    if missing := [name for name in former.local_dictionaries if name not in names]:
        raise InputError(f"partial_fit needs the data of all clients of the model; {missing[0]} is missing")
    before, now = settings_from_values(former.summary["settings"]).flat(), settings.flat()
    for key in before | now:
        if key not in _MAY_CHANGE and now.get(key) != before.get(key):
            raise SettingsError(
                f"{key} = {now.get(key)!r}, but was {before.get(key)!r} when the run began: partial_fit may change "
                "rounds, tolerance and output only; call fit for a new run"
            )
    return changed(settings, rounds=settings.rounds + former.summary["rounds"])


def _seed(params: Mapping[str, Any]) -> Any:
    """Return the seed, given as ``seed`` or as ``random_state``."""
    seed, state = params.get("seed", 0), params.get("random_state")
    if state is None:
        return seed
    if not isinstance(state, (int, np.integer)) or isinstance(state, bool):
        raise SettingsError(
            f"random_state = {state!r}: must be a whole number or None; draw one, as rng.integers(2**31)"
        )
    if seed not in (0, state):
        raise SettingsError(f"seed = {seed!r} and random_state = {state!r}: are two names of one; give one of them")
    return state


def in_python(text: str) -> str:
    """Replace settings as a file writes them by Python's words: ``data.center = true`` becomes ``center=True``.

    Parameters
    ----------
    text : str
        A message.
    """
    names = "|".join(DATA_PARAMETERS)
    text = re.sub(rf"\bevaluation\.({'|'.join(EVALUATION_PARAMETERS)})\b", r"\1", text)
    text = re.sub(rf"\bdata\.({names}) = (true|false)\b", lambda m: f"{m[1]}={m[2].title()}", text)
    return re.sub(rf"\bdata\.({names})\b", r"\1", text)


@contextmanager
def speaking_python() -> Iterator[None]:
    """Apply `in_python` to the errors raised inside."""
    try:
        yield
    except PerdlError as error:
        said = in_python(str(error))
        if said == str(error):
            raise
        raise type(error)(said) from None
