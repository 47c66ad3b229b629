"""Settings that are written as TOML are read back."""

from __future__ import annotations

import tomllib

import pytest

from common.settings import load_settings, settings_from_values
from perdl.check.toml import settings_toml


@pytest.mark.parametrize("name", ["ada", "st. mary's", 'a "b"', "north.east", "7"])
def test_all_kinds_of_settings_come_back(name):
    told = [
        "data.source=files",
        "n_atoms=8",
        "threshold=0.25",
        "n_global=auto",
        "data.center=true",
        "evaluation.held_out=0.2",
    ]
    settings = load_settings(None, [*told, f"clients.{name}.n_atoms=6"])
    text = settings_toml(settings.flat(given=True), {"data": ["# a comment"]})
    assert settings_from_values(tomllib.loads(text)) == settings
    assert "# a comment" in text
    assert "rounds" not in text  # nobody gave it
