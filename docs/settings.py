"""Print docs/settings.md from the schema: ``python docs/settings.py > docs/settings.md``."""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from common.settings import DataSettings, EvaluationSettings, LearningSettings, Settings, SyntheticSettings

HEAD = """# Settings

One name everywhere: in TOML, after `-c`, in Flower's run configuration and in Python. Generated from the schema by
`python docs/settings.py`.

A client may differ from its neighbours in how it learns: in a table `[clients.NAME]` of the run's settings, or with
`-c` at the client, which wins.
"""


def render() -> str:
    """Return the page."""
    own = [name for name in Settings.model_fields if name not in LearningSettings.model_fields]
    plain = [name for name in own if not hasattr(Settings.model_fields[name].annotation, "model_fields")]
    parts = [HEAD, _table("A run", Settings, plain, "")]
    parts.append(_table("How a client learns", LearningSettings, list(LearningSettings.model_fields), ""))
    for title, model, prefix in (
        ("Where samples come from", DataSettings, "data."),
        ("Synthetic data", SyntheticSettings, "synthetic."),
        ("Evaluation of a simulation on MNIST", EvaluationSettings, "evaluation."),
    ):
        parts.append(_table(title, model, list(model.model_fields), prefix))
    return "\n".join(parts)


def _table(title: str, model: type[BaseModel], names: list[str], prefix: str) -> str:
    rows = [f"\n## {title}\n", "| setting | default | allowed | what |", "|---|---|---|---|"]
    for name in names:
        field = model.model_fields[name]
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, {}) else f"`{json.dumps(default)}`"
        rows.append(f"| `{prefix}{name}` | {shown} | {_allowed(field)} | {field.description or ''} |")
    return "\n".join(rows) + "\n"


def _allowed(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [f"{sign} {getattr(m, key)}" for m in field.metadata for key, sign in signs.items() if hasattr(m, key)]
    options: list[Any] = [o for o in get_args(field.annotation) if isinstance(o, str)]
    return ", ".join([*(f"`{o}`" for o in options), *bounds])


if __name__ == "__main__":
    print(render(), end="")
