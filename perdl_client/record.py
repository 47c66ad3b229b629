"""A client's own record of what left it: one line for each answer, in its folder."""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Message

from common.protocol import unpack

FILE = "record.jsonl"
_log = logging.getLogger("perdl.client")


def record(folder: Path, answer: Message, kind: str, run: str) -> None:
    """Append an answer to the record. If it cannot be written, the answer must not be sent.

    Parameters
    ----------
    folder : Path
        The client's folder.
    answer : flwr.app.Message
        The answer that is about to be sent.
    kind : str
        Kind of message that it answers.
    run : str
        The run's id.

    Raises
    ------
    OSError
        If the record cannot be written.
    """
    row: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "run": run, "kind": kind}
    if answer.has_error():
        row["refused"] = answer.error.reason
    else:
        payload = unpack(answer.content)
        row["scalars"] = payload.scalars
        row["arrays"] = {
            name: {
                "shape": list(array.shape),
                "type": str(array.dtype),
                "bytes": array.nbytes,
                "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
            }
            for name, array in payload.arrays.items()
        }
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
