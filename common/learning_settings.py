"""The settings that say how a client learns."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from common.coders import CODERS, Coder
from common.data_settings import SettingsTable, in_proportion
from common.learners import LEARNERS
from common.registered import NameIn

MIN_SAMPLES = 5
"""Samples that must use an atom before it is sent: the default of the setting, and of what a client asks for."""


class LearningSettings(SettingsTable):  # numpydoc ignore=PR01
    """How one client learns; clients may differ."""

    n_atoms: int | None = Field(
        None, ge=1, description="atoms of a client in all, shared and own (r_i); default: as many as features"
    )
    learner: Annotated[str, NameIn(LEARNERS)] = Field(
        "orthogonal", description="the step by which a client improves its dictionary (A_i)"
    )
    step_size: float = Field(0.5, gt=0, lt=2, description="of gradient and projected, in units of 1 / ||X X'||_2")
    coder: Annotated[str, NameIn(CODERS)] = Field(
        "hard-threshold",
        description="how samples are written with atoms: codes over a threshold, the n_nonzero largest, or pursuit",
    )
    threshold: float = Field(0.15, ge=0, description="hard-threshold keeps codes of this size or more (zeta)")
    threshold_unit: Literal["data", "rms"] = Field(
        "data", description="rms: thresholds are times the root mean square of a client's data"
    )
    n_nonzero: int = Field(5, ge=1, description="atoms that a sample may use with top-k, omp and ols (k)")
    outliers: Literal["keep", "mask"] = Field(
        "keep", description="mask: wild entries and wild samples are found, and count as missing"
    )
    start: Literal["auto", "warm-up", "l4", "svd", "samples", "random", "identity"] = Field(
        "auto",
        description="a client's first dictionary; warm-up: learnt from random ones; l4: from one whose codes have "
        "large fourth powers; auto: l4 for ten orthonormal atoms or more of four samples each, else warm-up; samples: "
        "some of its samples",
    )
    warmup_steps: int = Field(20, ge=0, description="learner steps of the start, thresholds shrinking")
    warmup_threshold: float = Field(0.8, ge=0, description="threshold of the first warm-up step, in threshold_unit")
    n_restarts: int = Field(
        10, ge=1, description="random starts of warm-up, of which the one of least objective is kept"
    )
    local_restarts: int = Field(
        10, ge=0, description="random starts of a client's own atoms when its fit stalls; 0: never"
    )
    min_usage: float = Field(
        1e-4, ge=0, lt=1, description="atoms carrying less than this share of the most used one's energy are not sent"
    )
    min_samples: int = Field(
        MIN_SAMPLES,
        ge=1,
        description="samples that must use an atom before it moves or is sent; a client may itself ask for more",
    )
    refine_steps: int = Field(0, ge=0, description="steps on a client's own atoms alone before each update")
    local_steps: int = Field(1, ge=1, description="updates that a client does in each round before it answers")
    device: str = Field(
        "cpu",
        description="where a client computes: cpu; with perdl[gpu], cuda, cuda:1, mps or xpu; torch: torch on the CPU",
    )

    @field_validator("threshold", "warmup_threshold")
    @classmethod
    def _in_proportion(cls, value: float) -> float:
        return in_proportion(value)

    @field_validator("device")
    @classmethod
    def _is_device(cls, value: str) -> str:
        if re.fullmatch(r"cpu|torch|mps|(cuda|xpu)(:\d{1,3})?", value) is None:
            raise ValueError(f'must be cpu, cuda, cuda:1, mps, xpu, xpu:1 or torch, and is "{value}"')
        return value

    @model_validator(mode="after")
    def _k_fits(self) -> Self:
        if self.n_atoms is not None and self.counts_atoms and self.n_nonzero > self.n_atoms:
            raise ValueError(f"n_nonzero = {self.n_nonzero}: must be at most n_atoms = {self.n_atoms}")
        return self

    @model_validator(mode="after")
    def _start_fits(self) -> Self:
        if self.start == "samples" and LEARNERS[self.learner].orthonormal:
            raise ValueError(
                f'start = "samples": must be another one with learner = "{self.learner}"; samples are not orthogonal'
            )
        return self

    @property
    def counts_atoms(self) -> bool:
        """Whether the coder takes ``n_nonzero``."""
        return CODERS[self.coder].setting == "n_nonzero"

    def make_coder(self, rms: float = 1.0) -> Coder:
        """Return the coder that these settings name.

        Parameters
        ----------
        rms : float
            Root mean square of the data; used if ``threshold_unit`` is ``"rms"``.
        """
        number = self.n_nonzero if self.counts_atoms else self.threshold * self.threshold_scale(rms)
        return CODERS[self.coder].make(number)

    def threshold_scale(self, rms: float) -> float:
        """Return the factor that brings thresholds to the data's units.

        Parameters
        ----------
        rms : float
            Root mean square of the data.
        """
        return rms if self.threshold_unit == "rms" else 1.0
