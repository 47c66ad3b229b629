"""Failures that a user can fix. The command line prints each as one line and exits with its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""


class PerdlError(Exception):
    """A failure with a message for people: what is wrong, where, the numbers, and the fix."""

    exit_code = 1


class SettingsError(PerdlError):
    """A setting, or a combination of settings, that cannot be run."""

    exit_code = 2


class DataError(PerdlError):
    """Data that cannot be read or used. The message names the file and, where known, the row or column."""

    exit_code = 3


class FederationError(PerdlError):
    """Too few clients joined or answered, or there was no server. Work done so far is saved."""

    exit_code = 4


class UnsavedError(PerdlError):
    """A run's results cannot be written.

    Parameters
    ----------
    message : str
        What cannot be written, and the fix.
    summary : mapping
        The content that ``summary.json`` would have.
    """

    def __init__(self, message: str, summary: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.summary = summary
