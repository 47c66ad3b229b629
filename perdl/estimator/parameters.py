"""Scikit-learn's protocol of parameters, without scikit-learn: `clone`, `set_params`, the representation."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self


class NotFittedError(ValueError, AttributeError):
    """Raised before `fit`, where scikit-learn, whose own is raised then, is not imported."""


def not_fitted(text: str) -> Exception:
    """Return the error that whoever calls can know: who names scikit-learn's has imported it."""
    theirs = sys.modules.get("sklearn.exceptions")
    kind: type[Exception] = theirs.NotFittedError if theirs else NotFittedError
    return kind(text)


class Parameters:
    """An estimator whose constructor's arguments are its attributes of the same names."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: p.default for name, p in inspect.signature(cls).parameters.items()}

    def _usual(self) -> dict[str, Any]:
        """What need not be said of the parameters: their defaults."""
        return self._defaults()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; they count from the next `fit`."""
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
