"""Tables of the settings: source of the samples, their preprocessing, and the evaluation of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

LARGEST = 1e18
"""Largest number in units of the data that a setting takes: its square is finite in single precision too."""


class SettingsTable(BaseModel):
    """A table of settings. Unknown names, wrong types and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def in_proportion(value: float) -> float:
    """Return a number in units of the data, if it is not so large that its square overflows.

    Parameters
    ----------
    value : float
        The number.

    Raises
    ------
    ValueError
        If it is too large.
    """
    if value > LARGEST:
        raise ValueError(f"{value:g} is out of all proportion: must be at most {LARGEST:g}")
    return value


@dataclass(frozen=True)
class Preprocesses:
    """Marks a setting that, unless at its default, changes samples before learning.

    Parameters
    ----------
    bends : callable ``(value) -> bool``
        Whether this value makes learnt atoms differ from atoms of the original samples.
    """

    bends: Callable[[Any], bool] = lambda value: False


class DataSettings(SettingsTable):  # numpydoc ignore=PR01
    """Where samples come from, and how they are preprocessed."""

    source: Literal["synthetic", "mnist", "files", "video", "memory"] = Field(
        "synthetic", description="what a simulation learns from; memory: arrays that perdl.PerDL was given"
    )
    path: str | None = Field(
        None,
        description="mnist: folder of the IDX files; files: folder or glob, a file or a folder a client; "
        "video: folder of frames, or a video file (extra: video)",
    )
    samples_in: Literal["rows", "columns"] = Field("rows", description="orientation of files")
    variable: str | None = Field(None, description="name of the array in .npz, .mat and HDF5 files")
    drop: str | None = Field(
        None,
        description='names or numbers, from 1, of columns of tables (CSV, Parquet, Feather) to leave out: "id, time"; '
        "a name is left out of the files that have it",
    )
    missing: Literal["refuse", "mask"] = Field(
        "refuse",
        description="mask: NaN and empty cells of tables mark what was not measured; a client learns from the rest",
    )
    in_memory: bool | Literal["auto"] = Field(
        "auto",
        description="false: samples are read from their files block by block, in each round anew; auto: where they are "
        "too large for memory; the results are the same",
    )
    n_samples: int | None = Field(None, ge=1, description="samples a client; default 200 synthetic, 500 mnist")
    center: Annotated[bool, Preprocesses()] = Field(
        False, description="subtract each client's own mean of every feature"
    )
    drop_constant: Annotated[bool, Preprocesses()] = Field(
        False, description="set features that are constant at a client to zero there; center does so too"
    )
    divide_by: Annotated[str | None, Preprocesses(bends=bool)] = Field(
        None, description='constants that features (or channels) are divided by, agreed by all: "1, 200, 0.5"'
    )
    site_scale: Annotated[Literal["none", "agree"], Preprocesses(lambda value: value == "agree")] = Field(
        "none",
        description="agree: before the run, find constants to divide features by, from sums that all clients send: the "
        "pooled standard deviation within clients",
    )
    scale: Annotated[Literal["none", "client", "features"], Preprocesses(lambda scale: scale == "features")] = Field(
        "none",
        description="client: divide by the client's own root mean square; features: each feature by its own standard "
        "deviation, which bends what is shared unless clients are alike",
    )
    whiten: Annotated[bool, Preprocesses(bends=bool)] = Field(
        False, description="make each client's second moments equal (ZCA); shared atoms are then of whitened data"
    )
    majority: float = Field(0.9, ge=0, le=1, description="mnist: share of a client's own digit")
    layout: Literal["thumbnails", "blocks", "fixed-camera"] = Field(
        "thumbnails", description="video: what a column of a frame's matrix is, see perdl_client/data/video_layouts.py"
    )
    patch: int | None = Field(
        None,
        ge=1,
        description="cut images into patches of so many pixels a side; video: default 40; with blocks, how many blocks "
        "along each side",
    )
    window: int | None = Field(
        None,
        ge=1,
        description="cut a time series (rows are moments) into windows of so many rows; video, fixed-camera: frames in "
        "a row that a client holds, default 4",
    )
    stride: int | None = Field(
        None, ge=1, description="rows or pixels from one window or patch to the next; default: no overlap"
    )
    every: int = Field(1, ge=1, description="video: take every so many-th frame")
    n_frames: int | None = Field(None, ge=1, description="video: take at most so many frames")
    masks: str | None = Field(
        None, description="video: folder of masks of what moves; default: groundtruth beside the frames"
    )

    @field_validator("divide_by", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Turn a number, or a list of numbers, into the text form that is used everywhere."""
        values = value if isinstance(value, list | tuple) else [value]
        numbers = bool(values) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        return ", ".join(f"{one:g}" if one == float(f"{one:g}") else repr(one) for one in values) if numbers else value

    @field_validator("divide_by")
    @classmethod
    def _positive(cls, value: str | None) -> str | None:
        if value is not None and not all(1 / LARGEST <= number <= LARGEST for number in numbers_in(value) or [0.0]):
            raise ValueError(f'"{value}" must be positive numbers with commas between, as "1, 200, 0.5"')
        return value

    @field_validator("drop", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """Turn a column, or a list of columns, into the text form that is used everywhere."""
        values = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(one, int | float | str) and not isinstance(one, bool) for one in values):
            return value
        return value if isinstance(value, str) else ", ".join(map(_quoted, map(str, values)))

    @model_validator(mode="after")
    def _cut_one_way(self) -> Self:
        if self.source != "video" and self.window is not None and self.patch is not None:
            raise ValueError(f"window = {self.window}: is for time series and patch for images: set one of them")
        cut = "window" if self.window is not None else "patch"
        if self.source == "synthetic" and (self.window is not None or self.patch is not None):
            what = "time series in files" if self.window is not None else "images in files"
            raise ValueError(f"{cut} = {self.window or self.patch}: is for {what}: set data.source = files")
        if self.stride is not None and self.window is None and self.patch is None:
            raise ValueError(f"stride = {self.stride}: needs window (time series) or patch (images)")
        return self

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.site_scale == "agree" and self.divide_by is not None:
            raise ValueError(f'site_scale = "agree": finds what divide_by = "{self.divide_by}" gives: set one of them')
        return self

    def with_agreed_scale(self, constants: Sequence[float]) -> DataSettings:
        """Return these settings with the constants that clients agreed on in ``divide_by``.

        Parameters
        ----------
        constants : sequence of float
            One for each feature or channel.
        """
        return self.model_copy(update={"site_scale": "none", "divide_by": ", ".join(map(repr, constants))})

    @property
    def bends(self) -> bool:
        """Whether learnt atoms differ from atoms of the original samples."""
        return any(mark.bends(getattr(self, name)) for name, mark in self.preprocessing_settings().items())

    @property
    def prepares(self) -> bool:
        """Whether samples are cut or changed at all before learning."""
        cut = self.source != "video" and (self.window or self.patch) is not None
        fields = type(self).model_fields
        return cut or any(getattr(self, name) != fields[name].default for name in self.preprocessing_settings())

    @classmethod
    def preprocessing_settings(cls) -> dict[str, Preprocesses]:
        """Return the settings that change samples before learning."""
        fields = cls.model_fields.items()
        return {name: mark for name, field in fields for mark in field.metadata if isinstance(mark, Preprocesses)}

    @property
    def video_patch(self) -> int:
        """Side of a video's patch, in pixels."""
        return self.patch or 40

    @property
    def video_window(self) -> int:
        """Consecutive frames that each client of a fixed camera holds."""
        return self.window or 4


def numbers_in(text: str) -> list[float]:
    """Return numbers with commas between; nothing if one of them is none.

    Parameters
    ----------
    text : str
        Numbers with commas between.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []


def _quoted(name: str) -> str:
    """Quote a name where CSV needs it."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set('",') else name


class SyntheticSettings(SettingsTable):  # numpydoc ignore=PR01
    """The paper's generative model."""

    n_features: int = Field(6, ge=1, description="number of features (d)")
    n_global: int = Field(3, ge=0, description="shared atoms in truth")
    n_local: int = Field(3, ge=0, description="atoms of each client's own in truth")
    absence: float = Field(
        0.0, ge=0, lt=1, description="chance that a client lacks a shared atom; it then has one more of its own"
    )
    sparsity: float = Field(0.2, gt=0, le=1, description="chance that a code is not zero (p)")
    amplitude: float = Field(0.3, ge=0, description="least size of a nonzero code")
    noise: float = Field(0.0, ge=0, description="standard deviation on every entry of the data")
    weak_clients: int = Field(0, ge=0, description="how many of the first clients have few samples")
    weak_samples: int = Field(20, ge=1, description="samples of a weak client")

    @model_validator(mode="after")
    def _atoms_fit(self) -> Self:
        if self.n_global + self.n_local > self.n_features:
            raise ValueError(
                f"n_global + n_local = {self.n_global + self.n_local}: must be at most n_features = {self.n_features}"
            )
        return self


class EvaluationSettings(SettingsTable):  # numpydoc ignore=PR01
    """What is measured after the run, on samples that it did not learn from."""

    held_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each client's samples that it does not learn from; on them it measures in the end "
        "whether federating helped; 0: none",
    )
    n_nonzero: int = Field(5, ge=1, description="atoms that a held-out sample, or a test image of mnist, may use (OMP)")
    pooled: bool = Field(
        False,
        description="simulations: learn from all clients' samples pooled too, and compare on held-out samples",
    )
    n_test: int = Field(1000, ge=1, le=10_000, description="mnist: how many of the last test images")
