"""Failures that a user can cure. The command line prints them as one line and exits with their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""


class PerdlError(Exception):
    """A failure with a message for people: what is wrong, where, the numbers, and the cure."""

    exit_code = 1


class SettingsError(PerdlError):
    """A setting, or a combination of settings, that cannot be run."""

    exit_code = 2


class DataError(PerdlError):
    """Data that cannot be read or used; names the file and, where it can, the row or column."""

    exit_code = 3


class FederationError(PerdlError):
    """Too few clients came or answered, or there was no server; what was done until then is saved."""

    exit_code = 4


class UnsavedError(PerdlError):
    """A run's results cannot be written.

    Parameters
    ----------
    message : str
    summary : mapping
        What ``summary.json`` would hold.
    """

    def __init__(self, message: str, summary: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.summary = summary
