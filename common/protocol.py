"""What travels between server and clients.

Every message holds one Flower ``ConfigRecord``: named scalars, and arrays in NumPy's own ``.npy`` form (never
pickled). One record, because each record and each array of a Flower message is an object of its own that costs
requests to the SuperLink.

=============  ======================================================  ===========================================
message        server to client                                        client to server
=============  ======================================================  ===========================================
initialise     settings (JSON, seed included)                          ``dictionary`` (d, m_i): used atoms of
                                                                       D_i^(0); ``usage`` (m_i,); scalars. Once it
                                                                       has answered a round: its ``step`` only
update         ``global_dictionary`` (d, r^g), ``round``; until the    ``contribution`` (d, r^g); for ``energy``
               client has answered one: its own ``indices``       ``energies`` (r^g,); scalars
finish         ``global_dictionary`` (d, r^g); the same rule; if the   scalars
               run ends before its time, ``reason``
=============  ======================================================  ===========================================

Every message from the server carries ``run``, the run's id, which stays the same when a server resumes the run; every
answer carries ``client``, the client's name.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from common.errors import PerdlError
from common.threads import READING_NPY

PROTOCOL = 4
INITIALISE, UPDATE, FINISH = "train.initialise", "train.update", "train.finish"

Scalar = bool | int | float | str

_RECORD = "perdl"
_ARRAY = "array."


class ProtocolError(PerdlError):
    """A message that is not what the protocol says.

    Parameters
    ----------
    text : str
        May quote the other side, so of its text one short line is taken.
    """

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def one_line(text: str, most: int = 500) -> str:
    """Return what another machine said so that it can be shown: printable, in one line, not too long."""
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else f"{line[:most]}..."


@dataclass(frozen=True)
class Payload:
    """A message's content.

    Attributes
    ----------
    arrays : dict of str to array
    scalars : dict of str to bool, int, float or str
    """

    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, Scalar]

    def array(self, name: str, shape: tuple[int, ...], kind: str = "f") -> NDArray[Any]:
        """Return an array after checking it.

        Parameters
        ----------
        name : str
        shape : tuple of int
            -1 allows any length.
        kind : {"f", "i"}
            Floats or integers.

        Raises
        ------
        ProtocolError
            If it is missing, of another shape or kind, or not finite.
        """
        if name not in self.arrays:
            raise ProtocolError(f"the message holds no array {name}")
        array = self.arrays[name]
        if array.ndim != len(shape) or any(
            want not in (-1, have) for want, have in zip(shape, array.shape, strict=True)
        ):
            raise ProtocolError(f"{name} has shape {array.shape}, expected {shape}")
        if array.dtype.kind != kind or (kind == "f" and array.dtype not in (np.float32, np.float64)):
            raise ProtocolError(f"{name} has type {array.dtype}")
        if kind == "f" and not np.isfinite(array).all():
            raise ProtocolError(f"{name} holds NaN or infinity")
        return array

    def scalar(self, name: str, kind: type) -> Any:
        """Return a scalar after checking its type (``float`` takes an ``int`` too)."""
        value = self.scalars.get(name)
        good = isinstance(value, (int, float) if kind is float else kind) and (
            kind is bool or not isinstance(value, bool)
        )
        if not good or (isinstance(value, float) and not math.isfinite(value)):
            raise ProtocolError(f"the message's {name} is {value!r}, expected {kind.__name__}")
        return value


def pack(arrays: Mapping[str, NDArray[Any]] | None = None, **scalars: Scalar) -> RecordDict:
    """Put arrays and scalars into a message's content."""
    record: dict[str, Any] = {"protocol": PROTOCOL, **scalars}
    for name, array in (arrays or {}).items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
        record[_ARRAY + name] = buffer.getvalue()
    return RecordDict({_RECORD: ConfigRecord(record)})


def unpack(content: RecordDict) -> Payload:
    """Take a message's content apart.

    Raises
    ------
    ProtocolError
        If there is no such record, an array cannot be read, or the other side speaks another version.
    """
    record = content.config_records.get(_RECORD)
    if record is None:
        raise ProtocolError("the message is not perdl's: it holds no record named perdl")
    if record.get("protocol") != PROTOCOL:
        raise ProtocolError(
            f"the other side speaks protocol {record.get('protocol')!r}, this one {PROTOCOL}: "
            "install the same perdl on both"
        )
    arrays: dict[str, NDArray[Any]] = {}
    scalars: dict[str, Scalar] = {}
    for name, value in record.items():
        if name.startswith(_ARRAY) and isinstance(value, bytes):
            try:
                with READING_NPY:
                    array = np.lib.format.read_array(io.BytesIO(value), allow_pickle=False)
                arrays[name.removeprefix(_ARRAY)] = array
            except Exception as error:  # NumPy's header parser raises many kinds
                raise ProtocolError(f"{name} is not a readable array ({type(error).__name__})") from None
        elif isinstance(value, (bool, int, float, str)):
            scalars[name] = value
    return Payload(arrays, scalars)


def payload_bytes(content: RecordDict) -> int:
    """Return the size of a message's content: arrays as they are, 8 bytes a number, text in UTF-8."""
    total = 0
    for record in content.config_records.values():
        for name, value in record.items():
            total += len(name.encode())
            total += len(value) if isinstance(value, bytes) else len(value.encode()) if isinstance(value, str) else 8
    return total


def check_name(name: str) -> str:
    """Return a client's stable id after checking that it can be shown and can name a folder.

    Raises
    ------
    ProtocolError
        If it is empty, longer than 100 characters, not printable, or holds a path separator.
    """
    if not name.strip() or len(name) > 100 or not name.isprintable() or set(name) & {"/", "\\"} or set(name) == {"."}:
        raise ProtocolError(
            f"{name[:100]!r} cannot be a client's name: use 1 to 100 printable characters without / or \\"
        )
    return name


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of client ids: numbers inside names count as numbers, so that client-2 comes before client-10."""
    parts = re.split(r"(\d{1,18})", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part)
