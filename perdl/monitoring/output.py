"""Where lines go that people or other programs read; who has read enough, as ``head`` has, may leave."""

from __future__ import annotations

import os

from rich.console import Console


class Output(Console):
    """A console that goes on without its reader: what it prints from then on is lost."""

    def on_broken_pipe(self) -> None:
        """Let what comes go nowhere; rich would end the program."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)

    def write_line(self, text: str) -> None:
        """Write a line as it is: nothing in it is wrapped, coloured or turned into pictures.

        Parameters
        ----------
        text : str
            Without its line break.
        """
        try:
            self.file.write(f"{text}\n")
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()
