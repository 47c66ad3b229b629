"""One typed, validated schema for everything a run can be told.

A setting has one name everywhere: ``n_global`` in TOML, in ``-c n_global=3``, in Flower's run configuration and in
Python. Tables nest with a dot: ``data.source``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from common.aggregations import AGGREGATIONS
from common.coders import CODERS, Coder
from common.data_settings import DataSettings, EvaluationSettings, SyntheticSettings, Table
from common.errors import SettingsError
from common.settings_errors import one_line, toml_error

if TYPE_CHECKING:
    from typing import TypeAlias

    CoderName: TypeAlias = str
    AggregationName: TypeAlias = str
else:
    CoderName, AggregationName = Literal[tuple(CODERS)], Literal[tuple(AGGREGATIONS)]
Dtype = Literal["float64", "float32"]
_T = TypeVar("_T", bound=BaseModel)


class LearningSettings(Table):
    """How one client learns; each may differ from its neighbours."""

    n_atoms: int | None = Field(
        None, ge=1, description="atoms of a client in all, shared and own (r_i); default: as many as features"
    )
    learner: Literal["orthogonal", "gradient", "projected"] = Field(
        "orthogonal", description="the step by which a client improves its dictionary (A_i)"
    )
    step_size: float = Field(0.5, gt=0, lt=2, description="of gradient and projected, in units of 1 / ||X X'||_2")
    coder: CoderName = Field(
        "hard-threshold",
        description="how samples are written with atoms: codes over a threshold, the n_nonzero largest, or pursuit",
    )
    threshold: float = Field(0.15, ge=0, description="hard-threshold keeps codes of this size or more (zeta)")
    threshold_unit: Literal["data", "rms"] = Field(
        "data", description="rms: thresholds are times the root mean square of a client's data"
    )
    n_nonzero: int = Field(5, ge=1, description="atoms that a sample may use with top-k and omp (k)")
    start: Literal["warm-up", "svd", "random", "identity"] = Field(
        "warm-up", description="a client's first dictionary; warm-up: learnt from random ones"
    )
    warmup_steps: int = Field(20, ge=0, description="learner steps of the start, thresholds shrinking")
    warmup_threshold: float = Field(0.8, ge=0, description="threshold of the first warm-up step, in threshold_unit")
    n_restarts: int = Field(10, ge=1, description="random starts, of which the one of least objective is kept")
    local_restarts: int = Field(
        10, ge=0, description="random starts of a client's own atoms when its fit stalls; 0: never"
    )
    min_usage: float = Field(
        1e-4, ge=0, lt=1, description="atoms carrying less than this share of the most used one's energy are not sent"
    )
    min_samples: int = Field(
        2, ge=1, description="samples that must use an atom before it is sent; a client may itself ask for more"
    )
    refine_steps: int = Field(0, ge=0, description="steps on a client's own atoms alone before each update")

    @model_validator(mode="after")
    def _k_fits(self) -> Self:
        if self.n_atoms is not None and self.counts_atoms and self.n_nonzero > self.n_atoms:
            raise ValueError(f"n_nonzero = {self.n_nonzero}: must be at most n_atoms = {self.n_atoms}")
        return self

    @property
    def counts_atoms(self) -> bool:
        """Whether the coder takes ``n_nonzero``."""
        return CODERS[self.coder].setting == "n_nonzero"

    def make_coder(self, rms: float = 1.0) -> Coder:
        """Return the coder these settings name.

        Parameters
        ----------
        rms : float
            Root mean square of the data, used where ``threshold_unit`` is ``"rms"``.
        """
        number = self.n_nonzero if self.counts_atoms else self.threshold * self.threshold_scale(rms)
        return CODERS[self.coder].make(number)

    def threshold_scale(self, rms: float) -> float:
        """Return what thresholds are multiplied by to be in the data's units."""
        return rms if self.threshold_unit == "rms" else 1.0


class Settings(LearningSettings):
    """Everything a run can be told."""

    n_clients: int = Field(10, ge=1, description="how many clients can take part at most (N)")
    n_global: int | Literal["auto"] = Field(
        3, description="number of shared atoms (r^g); auto: from the jump in path lengths"
    )
    matching: Literal["auto", "chain", "star"] = Field(
        "auto",
        description="chain: the paper's shortest paths; star: around one client, for doubtful or hostile ones; auto: "
        "star with trimmed and geometric-median, else chain",
    )
    rounds: int = Field(50, ge=0, description="at most so many rounds (T)")
    tolerance: float = Field(1e-12, ge=0, description="stop when no atom of D^g moves more than this")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random stream")
    dtype: Dtype = Field("float64", description="of data, dictionaries and messages")
    aggregation: AggregationName = Field(
        "mean", description="how the server combines clients' atoms, see docs/algorithms.md"
    )
    trim: float = Field(0.3, ge=0, lt=0.5, description="share of clients that trimmed leaves out for each atom")
    quorum: int | None = Field(None, ge=1, description="how many clients a round needs at least; default: all")
    join_timeout: float = Field(120.0, gt=0, description="seconds to wait for clients to join or come back")
    round_timeout: float = Field(600.0, gt=0, description="seconds to wait for a round's answers")
    output: str = Field("runs/latest", min_length=1, description="folder of the run's results")
    data: DataSettings = DataSettings()
    synthetic: SyntheticSettings = SyntheticSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    clients: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by client's name: settings of how it learns that differ"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.n_global, int) and self.n_global < 0:
            raise ValueError(f'n_global = {self.n_global}: must be 0 or more, or "auto"')
        if self.data.source == "synthetic" and self.data.path is not None:
            raise ValueError(f'data.path = {self.data.path!r}: needs data.source = "files" (or "mnist")')
        if self.quorum is not None and self.quorum > self.n_clients:
            raise ValueError(f"quorum = {self.quorum}: must be at most n_clients = {self.n_clients}")
        for name in ("", *self.clients):
            self._check_client(name)
        return self

    def _check_client(self, name: str) -> None:
        one, where = self.for_client(name), f" (clients.{name})" if name else ""
        r = one.n_atoms
        if r is None and self.data.source == "synthetic":
            r = self.synthetic.n_features
        if r is not None and one.counts_atoms and one.n_nonzero > r:
            raise ValueError(f"n_nonzero = {one.n_nonzero}{where}: must be at most n_atoms = {r}")
        if r is not None and isinstance(self.n_global, int) and self.n_global > r:
            raise ValueError(f"n_global = {self.n_global}: must be at most n_atoms = {r}{where}")
        if one.learner == "orthogonal" and self.data.source == "synthetic" and r and r > self.synthetic.n_features:
            raise ValueError(
                f"n_atoms = {r}{where}: must be at most synthetic.n_features = {self.synthetic.n_features} for the "
                "orthogonal learner"
            )
        if AGGREGATIONS[self.aggregation].orthonormal and isinstance(self.n_global, int):
            d = self.synthetic.n_features if self.data.source == "synthetic" else None
            if d is not None and self.n_global > d:
                raise ValueError(f'n_global = {self.n_global}: must be at most {d} features for "{self.aggregation}"')

    def for_client(self, name: str, own: Mapping[str, Any] | None = None) -> LearningSettings:
        """Return how one client learns.

        Parameters
        ----------
        name : str
            Stable client id.
        own : mapping, optional
            What the client itself was told; wins over the run's settings.
        """
        base = self.model_dump(include=set(LearningSettings.model_fields))
        values = {**base, **self.clients.get(name, {}), **(own or {})}
        one = _validated(LearningSettings, values, f"clients.{name}" if name else "")
        if AGGREGATIONS[self.aggregation].contribution == "stretched" and one.learner != "orthogonal":
            where = f" (clients.{name})" if name else ""
            raise SettingsError(
                f'learner = "{one.learner}"{where}: must be "orthogonal" where aggregation = "{self.aggregation}", '
                "which needs every client's polar decomposition"
            )
        return one

    @property
    def matching_method(self) -> Literal["chain", "star"]:
        """What ``matching`` comes to: to bear hostile clients is of no use behind a chain that they cut."""
        if self.matching != "auto":
            return self.matching
        return "star" if AGGREGATIONS[self.aggregation].robust else "chain"

    def flat(self) -> dict[str, bool | int | float | str]:
        """Return the settings that are set, with dotted names, as Flower's run configuration holds them."""
        return dict(_flatten(self.model_dump(exclude_none=True)))


def load_settings(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Settings:
    """Read settings from TOML and overrides.

    Parameters
    ----------
    path : path, optional
        TOML file; without it the defaults.
    overrides : sequence of str
        ``"key=value"``, with dotted keys; values as TOML writes them, quotes around text optional.

    Returns
    -------
    Settings

    Raises
    ------
    SettingsError
        One line that names file, key, value and what is allowed.
    """
    values, text = {}, ""
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
            values = tomllib.loads(text)
        except OSError as error:
            raise SettingsError(f"cannot read the configuration {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is not valid TOML: {toml_error(text, str(error))}") from None
    changes = [parse_override(override) for override in overrides]
    for key, value in changes:
        _set(values, key, value)
    try:
        return _validated(Settings, values, "")
    except SettingsError as error:
        begin = [f"{key}{mark}" for key, _ in changes for mark in (" =", ":")]
        begin += [f"{key.rpartition('.')[0]}:" for key, _ in changes if "." in key]
        told = str(error).startswith(tuple(begin))
        raise error if told or path is None else SettingsError(f"{path}: {error}") from None


def override_settings(settings: Settings, overrides: Sequence[str] | Mapping[str, Any]) -> Settings:
    """Return settings with some ``key=value``, or values by dotted names, put over them."""
    values = settings.model_dump(exclude_unset=True)
    for key, value in overrides.items() if isinstance(overrides, Mapping) else map(parse_override, overrides):
        _set(values, key, value)
    return _validated(Settings, values, "")


def learning_overrides(overrides: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Read a client's own ``key=value`` settings; only those of :class:`LearningSettings` are a client's own.

    Raises
    ------
    SettingsError
        One line that names key, value and what is allowed.
    """
    values = dict(map(parse_override, overrides))
    # Alone: how they go together with the run's settings shows when these are known.
    for key, value in values.items():
        _validated(LearningSettings, {"n_nonzero": 1, key: value}, "")
    return values


def parse_override(override: str) -> tuple[str, Any]:
    """Return the name and the value of ``key=value``.

    Raises
    ------
    SettingsError
        If it is none.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip() or not override.isprintable():
        shown = override if override.isprintable() else repr(override)[1:-1]
        raise SettingsError(f'"{shown}" is not an override: write key=value, for example n_global=3')
    return key.strip(), _value(text.strip())


def settings_from_flat(flat: Mapping[str, Any]) -> Settings:
    """Build settings from dotted names, such as Flower's run configuration, where ``""`` stands for not set."""
    values: dict[str, Any] = {}
    for key, value in flat.items():
        if value != "":
            _set(values, key, value)
    return _validated(Settings, values, "")


def settings_from_values(values: Mapping[str, Any]) -> Settings:
    """Validate nested values, such as a parsed TOML file."""
    return _validated(Settings, values, "")


def changed(settings: Settings, **changes: Any) -> Settings:
    """Return settings with other values, validated; tables are merged."""
    values = settings.model_dump(exclude_unset=True)
    for key, value in changes.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return _validated(Settings, values, "")


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text  # a date is a folder's name


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    if len(tables) > 1 and tables[0] == "clients":  # names of clients may hold dots
        tables, last = ["clients", ".".join(tables[1:])], last
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{key}: {table} is not a table")
    values[last] = value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, bool | int | float | str]]:
    out: list[tuple[str, bool | int | float | str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            out += _flatten(value, f"{prefix}{key}.")
        else:
            out.append((f"{prefix}{key}", value))
    return out


def _validated(model: type[_T], values: Mapping[str, Any], where: str) -> _T:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        line = one_line(model, error.errors(include_url=False), Settings)
        raise SettingsError(f"{where}: {line}" if where else line) from None
