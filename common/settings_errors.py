"""What is wrong with a setting, in one line: its name, its value, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def one_line(model: type[BaseModel], errors: Sequence[Any]) -> str:
    """Say the first of pydantic's errors in one line, and how many other settings are wrong."""
    first = errors[0]
    path, field, known = _locate(model, first["loc"])
    name = ".".join(path)
    wrong = len({_locate(model, e["loc"])[0] for e in errors})
    more = f" (and {wrong - 1} more)" if wrong > 1 else ""
    if first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
        return (f"{name}: {text}" if name else text) + more
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {'.'.join([*path[:-1], near[0]])}?" if near else f"known are {', '.join(known)}"
        return f"{name} = {first['input']!r}: unknown setting; {hint}{more}"
    return f"{name} = {first['input']!r}: must be {_allowed(field, first['msg'])}{more}"


def _locate(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[tuple[str, ...], FieldInfo | None, list[str]]:
    """Follow an error's place through the tables; what lies beyond a field (the branch of a union) is dropped."""
    path: list[str] = []
    for i, part in enumerate(loc, start=1):
        path.append(str(part))
        field = model.model_fields.get(str(part))
        table = field.annotation if field else None
        if get_origin(table) is dict:
            path += map(str, loc[i:])
        if not (isinstance(table, type) and issubclass(table, BaseModel)):
            return tuple(path), field, list(model.model_fields)
        model = table
    return tuple(path), None, list(model.model_fields)


def _allowed(field: FieldInfo | None, message: str) -> str:
    kinds = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    options = get_args(field.annotation) if field else ()
    if not field or get_origin(field.annotation) is dict:
        return "a table"
    if options and all(isinstance(o, str) for o in options):
        return message.removeprefix("Input should be ")
    names = [o for o in (options or (field.annotation,)) if o is not type(None)]
    one_of = [
        " or ".join(f'"{c}"' for c in get_args(o)) if get_origin(o) is Literal else kinds.get(o.__name__, o.__name__)
        for o in names
    ]
    signs = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))
    bounds = [f"{word} {getattr(m, sign)}" for m in field.metadata for sign, word in signs if hasattr(m, sign)]
    filled = "non-empty " if any(getattr(m, "min_length", 0) for m in field.metadata) else ""
    return ", ".join([filled + " or ".join(one_of), *bounds])
