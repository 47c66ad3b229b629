"""One typed, validated schema for all settings of a run.

A setting has one name everywhere: ``n_global`` in TOML, in ``-c n_global=3``, in Flower's run configuration and in
Python. Tables nest with a dot: ``data.source``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from common.aggregations import AGGREGATIONS
from common.data_settings import DataSettings, EvaluationSettings, SyntheticSettings
from common.errors import SettingsError
from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.privacy_settings import PrivacySettings
from common.registered import NameIn
from common.secure_sum import FEWEST, threshold
from common.settings_errors import first_error, toml_error

Dtype = Literal["float64", "float32"]
_T = TypeVar("_T", bound=BaseModel)


class Settings(LearningSettings):  # numpydoc ignore=PR01
    """All settings of a run."""

    n_clients: int = Field(10, ge=1, description="how many clients can take part at most (N)")
    n_global: int | Literal["auto"] = Field(
        3, description="number of shared atoms (r^g); auto: as many as lie nearer across clients than chance"
    )
    sharing: Literal["all", "some"] = Field(
        "all",
        description="all: every shared atom is shared by all clients (the paper); some: each shared atom has members, "
        'two clients or more, which are found by their atoms (needs n_global = "auto")',
    )
    matching: Literal["auto", "chain", "star"] = Field(
        "auto",
        description="chain: the paper's shortest paths; star: around one client, for doubtful or hostile ones; auto: "
        "star with trimmed, geometric-median and private runs, else chain",
    )
    rounds: int = Field(50, ge=0, description="at most so many rounds (T)")
    tolerance: float = Field(1e-12, ge=0, description="stop when no atom of D^g moves more than this")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random stream")
    dtype: Dtype = Field("float64", description="of data, dictionaries and messages")
    aggregation: Annotated[str, NameIn(AGGREGATIONS)] = Field(
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
    privacy: PrivacySettings = PrivacySettings()
    clients: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by client's name: settings of how it learns that differ"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.n_global, int) and self.n_global < 0:
            raise ValueError(f'n_global = {self.n_global}: must be 0 or more, or "auto"')
        if self.sharing == "some":
            if self.n_global != "auto":
                raise ValueError(
                    f'n_global = {self.n_global}: must be "auto" where sharing = "some", which finds the number itself'
                )
            if AGGREGATIONS[self.aggregation].contribution != "atoms":
                raise ValueError(
                    f'aggregation = "{self.aggregation}": must be one of those that take atoms, as mean or energy, '
                    'where sharing = "some"'
                )
        if self.privacy.mode == "masked" and self.data.site_scale == "agree":
            raise ValueError(
                'data.site_scale = "agree": tells the server the spread of each feature, which privacy = "masked" is '
                "to hide; divide by known units (data.divide_by)"
            )
        if self.privacy.mode == "private":
            self._check_private()
        if self.data.source == "synthetic" and self.data.path is not None:
            raise ValueError(f'data.path = {self.data.path!r}: needs data.source = "files" (or "mnist")')
        if self.quorum is not None and self.quorum > self.n_clients:
            raise ValueError(f"quorum = {self.quorum}: must be at most n_clients = {self.n_clients}")
        for name in ("", *self.clients):
            self._check_client(name)
        if self.privacy.mode == "aggregated":
            self._check_sums()
        return self

    def _check_private(self) -> None:
        """Refuse what looks at a client's samples in other ways than by noisy sums."""
        data, why = self.data, 'looks at all samples of a client without noise, which privacy = "private" rules out'
        wrong = [
            f"data.{key} = {getattr(data, key)}"
            for key, plain in (
                ("center", False),
                ("drop_constant", False),
                ("scale", "none"),
                ("site_scale", "none"),
                ("whiten", False),
                ("missing", "refuse"),
            )
            if getattr(data, key) != plain
        ]
        if self.sharing == "some":
            wrong.append("sharing = some")
        for name in ("", *self.clients):
            one, where = self.for_client(name), f" (clients.{name})" if name else ""
            if (learner := LEARNERS[one.learner]).atom_by_atom or learner.products == 0:
                wrong.append(f"learner = {one.learner}{where}")
            if one.outliers != "keep":
                wrong.append(f"outliers = {one.outliers}{where}")
            if one.start == "l4":
                wrong.append(f"start = l4{where}")
        if wrong:
            raise ValueError(f"{wrong[0]}: {why}")

    def _check_sums(self) -> None:
        """Raise unless rounds can be sums over clients of which the server sees no summand."""
        why = 'where privacy = "aggregated"'
        if AGGREGATIONS[self.aggregation].robust:
            fitting = ", ".join(name for name, kind in AGGREGATIONS.items() if not kind.robust)
            raise ValueError(
                f'aggregation = "{self.aggregation}": must be one of {fitting} {why}: the server sees sums over '
                f"clients alone, and {self.aggregation} compares clients with each other"
            )
        if self.sharing == "some":
            raise ValueError(
                f'sharing = "some": must be "all" {why}: who shares which atom is found by comparing clients each round'
            )
        if self.n_clients < FEWEST:
            raise ValueError(
                f"n_clients = {self.n_clients}: must be {FEWEST} or more {why}, for a sum of two tells each the other's"
            )
        least = threshold(self.n_clients)
        if self.quorum is not None and self.quorum < least:
            raise ValueError(
                f"quorum = {self.quorum}: must be {least} or more of {self.n_clients} clients {why}, for fewer cannot "
                "open a sum"
            )

    def _check_client(self, name: str) -> None:
        one, where = self.for_client(name), f" (clients.{name})" if name else ""
        if one.start == "samples" and self.privacy.guarded:
            raise ValueError(
                f'start = "samples"{where}: must be another one with privacy = "{self.privacy.mode}": such atoms are '
                "samples, which it is there to hide"
            )
        r = one.n_atoms
        if r is None and self.data.source == "synthetic":
            r = self.synthetic.n_features
        if r is not None and one.counts_atoms and one.n_nonzero > r:
            raise ValueError(f"n_nonzero = {one.n_nonzero}{where}: must be at most n_atoms = {r}")
        if r is not None and isinstance(self.n_global, int) and self.n_global > r:
            raise ValueError(f"n_global = {self.n_global}: must be at most n_atoms = {r}{where}")
        if (
            LEARNERS[one.learner].orthonormal
            and self.data.source == "synthetic"
            and r
            and r > self.synthetic.n_features
        ):
            raise ValueError(
                f"n_atoms = {r}{where}: must be at most synthetic.n_features = {self.synthetic.n_features} for the "
                f"{one.learner} learner"
            )
        if AGGREGATIONS[self.aggregation].orthonormal and isinstance(self.n_global, int):
            d = self.synthetic.n_features if self.data.source == "synthetic" else None
            if d is not None and self.n_global > d:
                raise ValueError(f'n_global = {self.n_global}: must be at most {d} features for "{self.aggregation}"')

    def for_client(self, name: str, own: Mapping[str, Any] | None = None) -> LearningSettings:
        """Return the settings of how one client learns.

        Parameters
        ----------
        name : str
            Stable client id.
        own : mapping, optional
            The client's own settings; they win over the run's.
        """
        base = {field: getattr(self, field) for field in LearningSettings.model_fields}
        if changes := {**self.clients.get(name, {}), **(own or {})}:
            one = _validated(LearningSettings, {**base, **changes}, f"clients.{name}" if name else "")
        else:  # these settings are valid already
            one = LearningSettings.model_construct(**base)
        if AGGREGATIONS[self.aggregation].contribution == "procrustes" and not LEARNERS[one.learner].orthonormal:
            where = f" (clients.{name})" if name else ""
            fitting = " or ".join(f'"{key}"' for key, learner in LEARNERS.items() if learner.orthonormal)
            raise SettingsError(
                f'learner = "{one.learner}"{where}: must be {fitting} where aggregation = "{self.aggregation}", '
                "which needs every client's polar decomposition"
            )
        return one

    def with_agreed_scale(self, constants: Sequence[float]) -> Settings:
        """Return these settings with the constants that clients agreed on, as they are sent to clients.

        Parameters
        ----------
        constants : sequence of float
            One for each feature or channel; if there are none, the settings stay as they are.
        """
        return self.model_copy(update={"data": self.data.with_agreed_scale(constants)}) if constants else self

    @property
    def matching_method(self) -> Literal["chain", "star"]:
        """The method that ``matching`` stands for.

        Robust aggregations take ``star``: hostile clients break a chain. So do single starts in wrong basins, of which
        private runs have more, because they cannot choose among restarts.
        """
        if self.matching != "auto":
            return self.matching
        return "star" if AGGREGATIONS[self.aggregation].robust or self.privacy.mode == "private" else "chain"

    def flat(self, *, given: bool = False) -> dict[str, bool | int | float | str]:
        """Return the settings that are not None by dotted name, as Flower's run configuration holds them.

        Parameters
        ----------
        given : bool
            Whether to leave out those that no one gave, which have their defaults.
        """
        return dict(_flatten(self.model_dump(exclude_none=True, exclude_unset=given)))


def load_settings(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Settings:
    """Read settings from TOML and overrides.

    Parameters
    ----------
    path : path, optional
        TOML file; without it the defaults apply.
    overrides : sequence of str
        ``"key=value"`` with dotted keys. Values are written as in TOML; quotes around text are optional.

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
    """Return settings with some values replaced.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    overrides : sequence of str, or mapping
        ``key=value``, or a mapping from dotted names to values.
    """
    values = settings.model_dump(exclude_unset=True)
    for key, value in overrides.items() if isinstance(overrides, Mapping) else map(parse_override, overrides):
        _set(values, key, value)
    return _validated(Settings, values, "")


def learning_overrides(overrides: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Read a client's own ``key=value`` settings. Only names of :class:`LearningSettings` are allowed.

    Parameters
    ----------
    overrides : sequence of str
        Items ``key=value``.

    Raises
    ------
    SettingsError
        One line that names key, value and what is allowed.
    """
    values = dict(map(parse_override, overrides))
    # Each is checked alone: the run's settings, which it must agree with, are not known yet.
    for key, value in values.items():
        _validated(LearningSettings, {"n_nonzero": 1, key: value}, "")
    return values


def parse_override(override: str) -> tuple[str, Any]:
    """Return the name and the value of ``key=value``.

    Parameters
    ----------
    override : str
        Text of the form ``key=value``.

    Raises
    ------
    SettingsError
        If the text has another form.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip() or not override.isprintable():
        shown = override if override.isprintable() else repr(override)[1:-1]
        raise SettingsError(f'"{shown}" is not an override: write key=value, for example n_global=3')
    return key.strip(), _value(text.strip())


def settings_from_flat(flat: Mapping[str, Any]) -> Settings:
    """Build settings from dotted names, as in Flower's run configuration. ``""`` means not set.

    Parameters
    ----------
    flat : mapping
        Values by dotted names.
    """
    values: dict[str, Any] = {}
    for key, value in flat.items():
        if value != "":
            _set(values, key, value)
    return _validated(Settings, values, "")


def settings_from_values(values: Mapping[str, Any]) -> Settings:
    """Validate nested values, such as a parsed TOML file.

    Parameters
    ----------
    values : mapping
        Settings by name; tables are mappings.
    """
    return _validated(Settings, values, "")


def changed(settings: Settings, **changes: Any) -> Settings:
    """Return validated settings with some values replaced. Tables are merged.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    **changes : object
        New values by name.
    """
    values = settings.model_dump(exclude_unset=True)
    for key, value in changes.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return _validated(Settings, values, "")


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text  # a date is text: a folder's name


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    if len(tables) > 1 and tables[0] == "clients":  # clients' names may hold dots
        tables, last = ["clients", ".".join(tables[1:])], last
    if key == "privacy" and isinstance(value, str):  # short for its mode, and may stand beside other keys of the table
        tables, last = ["privacy"], "mode"
    for table in tables:
        if table == "privacy" and isinstance(values.get(table), str):
            values[table] = {"mode": values[table]}
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
        line = first_error(model, error.errors(include_url=False), Settings)
        raise SettingsError(f"{where}: {line}" if where else line) from None
