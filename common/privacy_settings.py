"""The table of settings that says how what clients send is protected."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from common.data_settings import SettingsTable, in_proportion

Mode = Literal["none", "guarded", "aggregated", "masked", "private"]

MODES: tuple[str, ...] = get_args(Mode)


class PrivacySettings(SettingsTable):  # numpydoc ignore=PR01
    """What protects a client's samples from those who read its messages, the server among them."""

    mode: Mode = Field(
        "guarded",
        description="none: atoms are sent as learnt; guarded: no atom moves by few samples; aggregated: of rounds the "
        "server sees only sums over clients; masked: the server sees atoms only in coordinates that it does not know; "
        "private: differential privacy",
    )
    epsilon: float | None = Field(None, gt=0, description="private: the budget of a run, a sample's epsilon")
    delta: float = Field(1e-5, gt=0, lt=1, description="private: the probability with which epsilon may not hold")
    clip: float | None = Field(
        None, gt=0, description="private: longest sample, in the data's units; longer ones are shortened to it"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """Read ``privacy = "masked"`` as ``privacy.mode = "masked"``."""
        return {"mode": given} if isinstance(given, str) else given

    @field_validator("clip")
    @classmethod
    def _in_proportion(cls, value: float | None) -> float | None:
        return value if value is None else in_proportion(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.mode == "private":
            for key in ("epsilon", "clip"):
                if getattr(self, key) is None:
                    raise ValueError(f'{key} must be set where privacy = "private"')
        return self

    @property
    def guarded(self) -> bool:
        """Whether clients hold what they send to the guard: in all modes but ``none`` and ``private``."""
        return self.mode not in ("none", "private")
