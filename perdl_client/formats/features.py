"""Compare the features of several clients' files."""

from __future__ import annotations

import math
from typing import Literal

from perdl_client.data.samples import Samples, plainly
from perdl_client.formats.columns import lacking, leave_out_odd

Orientation = Literal["rows", "columns"]


class Features:
    """The features of the first file, to which those of later files are compared."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.names: tuple[str, ...] = ()
        self._first = self._first_named = ""
        self._rated = (0, "")

    def compare(self, samples: Samples, file: str, samples_in: Orientation = "rows") -> str:
        """Say how a file's features differ from those of earlier files, and what to do; empty if they agree.

        Parameters
        ----------
        samples : Samples
            Content of the file.
        file : str
            Name of the file, for messages about later files.
        samples_in : {"rows", "columns"}
            Orientation in which the file was read.
        """
        self.shape = self.shape or samples.shape
        self._first = self._first or file
        d, expected = math.prod(samples.shape), math.prod(self.shape)
        if d != expected:
            if samples.names and self.names and (lacks := lacking(samples.names, self.names)):
                cure = f"give all the same columns{leave_out_odd(samples.names, self.names)}"
                return f"has {d} columns, {self._first_named!r} has {expected}: it {lacks}; {cure}"
            cure = "; give all files the same features in the same order"
            if other := transpose_that_fits(samples, expected, samples_in):
                cure = f"; the transpose would fit: turn that file, or let its client alone read samples in {other}"
            return f"has {d} features per sample, but {expected} in {self._first!r}{cure}"
        if samples.shape != self.shape and len(samples.shape) > 1 and len(self.shape) > 1:
            return f"has samples of shape {samples.shape}, but {self.shape} in {self._first!r}; give all one size"
        if samples.rate:
            self._rated = self._rated if self._rated[0] else (samples.rate, file)
            rate, rated = self._rated
            if samples.rate != rate:
                return f"has {samples.rate} samples a second, but {rate} in {rated!r}; bring them to the same rate"
        if samples.names and not self.names:
            self.names, self._first_named = samples.names, file
        names, expected_names = plainly(samples.names), plainly(self.names)
        if names and names != expected_names:
            i = next(i for i, name in enumerate(names) if name != expected_names[i])
            same = sorted(names) == sorted(expected_names)
            cure = (
                "bring its columns into the same order" if same else "give all files the same columns in the same order"
            )
            return (
                f"column {i + 1} is called {samples.names[i]!r}, but {self.names[i]!r} in {self._first_named!r}; {cure}"
            )
        return ""


def transpose_that_fits(samples: Samples, expected: int, samples_in: Orientation) -> str:
    """Return the other orientation if the transpose has the expected number of features, else an empty string.

    Parameters
    ----------
    samples : Samples
        Content of a file.
    expected : int
        Number of features of the other files.
    samples_in : {"rows", "columns"}
        Orientation in which the samples were read.
    """
    if len(samples.shape) > 1 or samples.data.shape[1] != expected:
        return ""
    return "columns" if samples_in == "rows" else "rows"
