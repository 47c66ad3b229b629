"""docs/settings.md, generated from the schema of the settings."""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from common.data_settings import DataSettings, EvaluationSettings, SyntheticSettings
from common.learning_settings import LearningSettings
from common.privacy_settings import PrivacySettings
from common.registered import NameIn
from common.settings import Settings

Row = tuple[str, str, str, str]

_HEAD = """# Settings

One name everywhere: in TOML, after `-c`, in Flower's run configuration and in Python. `perdl settings` lists them too.
Generated from the schema by `python -m perdl.cli.settings_page > docs/settings.md`.

A client may differ from its neighbours in how it learns: in a table `[clients.NAME]` of the run's settings, or with
`-c` at the client, which wins.
"""


def sections() -> dict[str, list[Row]]:
    """Return the rows (name, default, allowed values, meaning) of each section, by title."""
    own = [name for name in Settings.model_fields if name not in LearningSettings.model_fields]
    plain = [name for name in own if not hasattr(Settings.model_fields[name].annotation, "model_fields")]
    return {
        "A run": [_row(Settings, name) for name in plain],
        "How a client learns": _rows(LearningSettings, ""),
        "Where samples come from": _rows(DataSettings, "data."),
        "Synthetic data": _rows(SyntheticSettings, "synthetic."),
        "Evaluation": _rows(EvaluationSettings, "evaluation."),
        "Privacy": _rows(PrivacySettings, "privacy."),
    }


def setting_rows() -> list[Row]:
    """Return one row per setting."""
    return [row for rows in sections().values() for row in rows]


def render_page() -> str:
    """Return docs/settings.md."""
    parts = [_HEAD]
    for title, rows in sections().items():
        parts += [f"\n## {title}\n", "| setting | default | allowed | what |", "|---|---|---|---|"]
        parts += [
            f"| `{name}` | {f'`{default}`' if default else ''} | {a} | {what} |" for name, default, a, what in rows
        ]
    return "\n".join(parts) + "\n"


def _rows(model: type[BaseModel], prefix: str) -> list[Row]:
    return [_row(model, name, prefix) for name in model.model_fields]


def _row(model: type[BaseModel], name: str, prefix: str = "") -> Row:
    field = model.model_fields[name]
    default = field.get_default(call_default_factory=True)
    shown = "" if default in (None, {}) else json.dumps(default)
    return prefix + name, shown, _allowed(field), field.description or ""


def _allowed(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [f"{sign} {getattr(m, key)}" for m in field.metadata for key, sign in signs.items() if hasattr(m, key)]
    registries = [mark.registry for mark in field.metadata if isinstance(mark, NameIn)]
    listed: list[Any] = [*(registries[0] if registries else get_args(field.annotation))]
    options = [option for option in listed if isinstance(option, str)]
    return ", ".join([*options, *bounds])


if __name__ == "__main__":
    print(render_page(), end="")
