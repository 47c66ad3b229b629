r"""Whether federating helped: errors of dictionaries on held-out samples, as clients measure and the server reads them.

The error is :math:`\lVert Z - DX\rVert_F / \lVert Z\rVert_F` of preprocessed samples Z, with X from orthogonal matching
pursuit with k atoms a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DICTIONARIES = ("alone", "federated", "shared")
"""What a client measures: its dictionary without the federation, [D^g D^l_i], and D^g alone."""

_COUNTS = (1, 3, 5, 10)

EXACT = 1e-3
"""An error below this is as good as none: what is left of a thousandth is rounding or noise, not a gain or a loss."""


@dataclass(frozen=True)
class Evaluation:
    """What a client tells of its held-out samples.

    Parameters
    ----------
    n : int
        Number of held-out samples.
    k : int
        Atoms a sample, for the gain.
    errors : dict of int to dict of str to float
        By number of atoms a sample: the error of each of `DICTIONARIES`.
    low, high : float
        Ends of the 95 % interval of the gain.
    """

    n: int
    k: int
    errors: dict[int, dict[str, float]]
    low: float
    high: float

    @property
    def gain(self) -> float:
        """Share by which federating lowered the error with k atoms a sample."""
        return gain(self.errors[self.k]["alone"], self.errors[self.k]["federated"])

    @property
    def verdict(self) -> str:
        """``gained``, ``better alone``, or ``undecided`` if the interval includes zero."""
        return "gained" if self.low > 0 else "better alone" if self.high < 0 else "undecided"

    def scalars(self) -> dict[str, int | float]:
        """Return what travels to the server: numbers, by name."""
        errors = {f"{name}_{k}": value for k, row in self.errors.items() for name, value in row.items()}
        return {"held_out": self.n, "held_out_k": self.k, "gain_low": self.low, "gain_high": self.high, **errors}

    def facts(self) -> dict[str, Any]:
        """Return what the summary tells of the client."""
        return {
            "n_samples": self.n,
            "atoms": self.k,
            "gain": self.gain,
            "gain_low": self.low,
            "gain_high": self.high,
            "verdict": self.verdict,
            "errors": {str(k): dict(row) for k, row in self.errors.items()},
        }

    def in_words(self) -> str:
        """Return what federating did to the client's error."""
        alone, federated = (self.errors[self.k][name] for name in ("alone", "federated"))
        what = {
            "gained": "federating helped",
            "better alone": "it is better alone",
            "undecided": "it neither gained nor lost",
        }[self.verdict]
        return (
            f"on {self.n} held-out samples, with {self.k} atom{'s' * (self.k != 1)} a sample, its error is "
            f"{federated:.3g}, alone it would be {alone:.3g}: {what} (gain {percent(self.gain)}, 95 % interval "
            f"{percent(self.low)} to {percent(self.high)})"
        )


def gain(alone: float, federated: float) -> float:
    """Return by which share federating lowered an error; negative if it raised it.

    Parameters
    ----------
    alone, federated : float
        The errors. Below `EXACT` they count as equal.
    """
    return 1 - max(federated, EXACT) / max(alone, EXACT)


def counts_of_atoms(n_nonzero: int, n_atoms: int, n_features: int) -> tuple[int, list[int]]:
    """Return with how many atoms a sample the gain is measured, and all numbers with which errors are.

    Parameters
    ----------
    n_nonzero : int
        The number that is asked for.
    n_atoms : int
        Atoms of the client. No more can be used.
    n_features : int
        Features of a sample. With as many atoms every dictionary is exact, so that the gain takes half as many at most.

    Returns
    -------
    k : int
    all : list of int, ascending
    """
    k = max(1, min(n_nonzero, n_atoms, n_features // 2))
    most = min(n_atoms, max(1, n_features - 1))
    return k, sorted({k, *(one for one in (*_COUNTS, n_nonzero) if one <= most)})


def percent(share: float) -> str:
    """Return a share as a percentage, with one digit after the point below ten.

    Parameters
    ----------
    share : float
        The share; 1 is all.
    """
    value = 100 * share
    text = f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    return f"{'0' if float(text) == 0 else text.removesuffix('.0')} %"


def evaluation_of(scalars: Mapping[str, Any]) -> Evaluation | None:
    """Return what a client told by `Evaluation.scalars`, None if it held out nothing.

    Parameters
    ----------
    scalars : mapping
        Scalars of its last answer.

    Raises
    ------
    ValueError
        If a number is missing, of another type, or impossible.
    """
    if "held_out" not in scalars:
        return None
    n, k = (_number(scalars, name, int) for name in ("held_out", "held_out_k"))
    low, high = (_number(scalars, name, float) for name in ("gain_low", "gain_high"))
    if n < 1 or k < 1:
        raise ValueError(f"held_out = {n} and held_out_k = {k} must be positive")
    if not low <= high <= 1:
        raise ValueError(f"the interval of its gain is {low:.3g} to {high:.3g}")
    told = {name.removeprefix("alone_") for name in scalars if name.startswith("alone_")}
    errors: dict[int, dict[str, float]] = {}
    for count in sorted(int(text) for text in told if text.isascii() and text.isdecimal() and len(text) < 8):
        errors[count] = {name: float(_number(scalars, f"{name}_{count}", float)) for name in DICTIONARIES}
        # What is left of a sample after least squares is no longer than the sample.
        if wrong := [name for name, value in errors[count].items() if not 0 <= value <= 1.001]:
            raise ValueError(f"{wrong[0]}_{count} = {errors[count][wrong[0]]:.3g} is no relative error")
    if k not in errors or len(errors) > 2 + len(_COUNTS):
        raise ValueError(f"it tells errors with {sorted(errors)} atoms, and its gain with {k}")
    return Evaluation(int(n), int(k), errors, float(low), float(high))


def _number(scalars: Mapping[str, Any], name: str, kind: type) -> Any:
    value = scalars.get(name)
    allowed = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed) or not abs(value) < float("inf"):
        raise ValueError(f"the message's {name} is {value!r}, expected {kind.__name__}")
    return value
