"""Describe a wrong setting in one line: its name, its value, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def first_error(model: type[BaseModel], errors: Sequence[Any], whole: type[BaseModel]) -> str:
    """Return the first of pydantic's errors in one line, and the number of other wrong settings.

    Parameters
    ----------
    model : type of BaseModel
        The table that was validated.
    errors : sequence of dict
        Pydantic's errors.
    whole : type of BaseModel
        The schema of the whole run, in which other names are looked up.
    """
    first = errors[0]
    path, field, known = _locate(model, first["loc"])
    name = ".".join(path)
    wrong = len({_locate(model, e["loc"])[0] for e in errors})
    more = f" (and {wrong - 1} more)" if wrong > 1 else ""
    if first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
        return (f"{name}: {text}" if name else text) + more
    if first["type"] == "extra_forbidden":
        if len(path) == 1 and model is not whole and name in whole.model_fields:
            mine = ", ".join(known)
            return f"{name} = {first['input']!r}: is a setting of the whole run; those of one client are {mine}"
        near = [".".join([*path[:-1], one]) for one in difflib.get_close_matches(path[-1], known, n=1)]
        elsewhere = [one for one in all_names(whole) if one.rpartition(".")[2] == path[-1]]
        likely = [*elsewhere, *near] if model is whole else near
        hint = f"did you mean {likely[0]}?" if likely else f"known are {', '.join(known)}"
        return f"{name} = {first['input']!r}: unknown setting; {hint}{more}"
    return f"{name} = {first['input']!r}: must be {_allowed(field, first['msg'])}{_slip(first['input'])}{more}"


def all_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted names of all settings of a schema.

    Parameters
    ----------
    model : type of BaseModel
        A schema or a table of it.
    prefix : str
        Put before every name.
    """
    names = []
    for name, field in model.model_fields.items():
        table = field.annotation
        inside = isinstance(table, type) and issubclass(table, BaseModel)
        names += all_names(table, f"{prefix}{name}.") if inside else [prefix + name]  # type: ignore[arg-type]
    return names


def toml_error(text: str, message: str) -> str:
    """Return the TOML parser's message, and the likely fix.

    Parameters
    ----------
    text : str
        The TOML file's content.
    message : str
        What the TOML parser says.
    """
    number = re.search(r"at line (\d+)", message)
    lines = text.splitlines()
    line = lines[int(number[1]) - 1] if number and int(number[1]) <= len(lines) else ""
    if text.lstrip().startswith("{"):
        return f"{message}; it looks like JSON: write key = value, a line each"
    if re.match(r"\s*[\w.-]+\s*=\s*[A-Za-z./~]", line):
        return f'{message}; text needs quotes: key = "value"'
    if re.match(r"\s*[\w.-]+\s*:", line):
        return f"{message}; write key = value, not key: value"
    return f"{message}; write key = value, a line each, text in quotes"


def _slip(value: object) -> str:
    """Guess what was meant by a text where another type is needed."""
    if not isinstance(value, str):
        return ""
    if re.fullmatch(r"[+-]?\d+,\d+", value):
        return f"; did you mean {value.replace(',', '.')}?"
    return "; give each setting by itself" if "=" in value else ""


def _locate(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[tuple[str, ...], FieldInfo | None, list[str]]:
    """Follow an error's location through the tables. Parts beyond a field, as a union's branch, are dropped."""
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
    if message.startswith("Input should be '"):
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
