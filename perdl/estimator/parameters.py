"""Scikit-learn's protocol for parameters, without importing scikit-learn: `get_params`, `set_params`, the repr."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self


class NotFittedError(ValueError, AttributeError):
    """Raised before `fit`, unless scikit-learn is imported: then its own error is raised."""


def not_fitted(text: str) -> Exception:
    """Return scikit-learn's NotFittedError if it is imported, else our own.

    Code that catches scikit-learn's error must have imported it.

    Parameters
    ----------
    text : str
        Message of the error.
    """
    theirs = sys.modules.get("sklearn.exceptions")
    kind: type[Exception] = theirs.NotFittedError if theirs else NotFittedError
    return kind(text)


class Parameters:
    """An estimator that keeps the arguments of its constructor as attributes of the same names."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: p.default for name, p in inspect.signature(cls).parameters.items()}

    def _usual(self) -> dict[str, Any]:
        """Values of the parameters that the repr leaves out: their defaults."""
        return self._defaults()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Ignored: no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters for the next `fit`.

        Parameters
        ----------
        **params
            New values by name.
        """
        known = self._defaults()
        if unknown := [name for name in params if name not in known]:
            raise ValueError(f"{type(self).__name__} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._usual()
        told = {name: v for name, v in self.get_params().items() if v is not defaults[name] and v != defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags  # only scikit-learn asks

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))
