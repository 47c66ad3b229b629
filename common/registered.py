"""Settings that name an entry of a registry, such as a coder. Entries that are added later are accepted too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, eq=False)
class NameIn:
    """Marks a setting that takes a name of a registry. Other names raise the error of a pydantic Literal.

    Parameters
    ----------
    registry : mapping of str to object
        The registry, by name.
    """

    registry: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return how pydantic validates the setting."""
        return core_schema.no_info_plain_validator_function(self._known)

    def _known(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.registry:
            return value
        *names, last = map(repr, self.registry)
        expected = f"{', '.join(names)} or {last}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
