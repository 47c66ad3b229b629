"""Public functions, methods and classes document their parameters, as numpydoc checks it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest

from common.data_settings import SettingsTable

validation = pytest.importorskip("numpydoc.validate")

PACKAGES = ["common", "perdl_client", "perdl_server", "perdl"]
CODES = {"PR01", "PR02", "PR03", "PR04", "PR07", "PR10", "SS03"}
OPTIONAL = {"ray", "torchvision", "sklearn", "imageio", "imageio_ffmpeg", "pyarrow", "h5py", "tensorboardX", "mlflow"}


def _modules(package: str) -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if info.name.endswith(".__main__"):
            continue
        try:
            yield importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise


def _public(owner: ModuleType | type) -> Iterator[str]:
    """Names of functions, classes and methods that are defined here, lambdas as defaults of fields left out."""
    module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for name, thing in vars(owner).items():
        thing = getattr(thing, "__func__", thing)  # of class methods and static methods
        if name.startswith("_") or getattr(thing, "__module__", "") != module or _is_command(thing):
            continue
        if isinstance(thing, FunctionType) and thing.__name__ != "<lambda>":
            yield name
        elif inspect.isclass(thing) and isinstance(owner, ModuleType):
            if "__init__" in vars(thing):  # else its arguments are those of a class of another package
                yield name
            yield from (f"{name}.{method}" for method in _public(thing))


def _is_command(thing: object) -> bool:
    """Whether a docstring is help that the command line prints."""
    annotations = map(str, getattr(thing, "__annotations__", {}).values())
    return any(mark in text for text in annotations for mark in ("typer.", "Option", "Argument"))


@pytest.mark.parametrize("package", PACKAGES)
def test_parameters_are_documented(package):
    names = [f"{module.__name__}.{name}" for module in _modules(package) for name in _public(module)]
    found = [(name, *error) for name in names for error in validation.validate(name)["errors"] if error[0] in CODES]
    assert names
    assert not found, "\n".join(map(" ".join, found))


def test_settings_are_described_by_their_fields():
    """Tables of settings leave out the section of parameters (numpydoc ignore=PR01): it would repeat this."""
    tables = [importlib.import_module("common.settings").Settings, *SettingsTable.__subclasses__()]
    fields = [(f"{table.__name__}.{name}", field) for table in tables for name, field in table.model_fields.items()]
    assert [name for name, field in fields if not (field.description or isinstance(field.default, SettingsTable))] == []
