"""What travels between server and clients.

Every message holds one Flower ``ConfigRecord``: named scalars, and arrays in NumPy's ``.npy`` format (never pickled).
There is only one record because every record and every array of a Flower message is a separate object, and each object
costs requests to the SuperLink.

=============  ======================================================  ===========================================
message        server to client                                        client to server
=============  ======================================================  ===========================================
scale          settings (JSON); only if                                ``counts`` (c,), ``squares`` (c,): how many
               ``data.site_scale = "agree"``                           numbers each feature has, and the sum of their
                                                                       squared distances from their mean
initialise     settings (JSON, seed included)                          ``dictionary`` (d, m_i): used atoms of
                                                                       D_i^(0); ``usage`` (m_i,); scalars. After its
                                                                       first round: only its ``step``
update         ``global_dictionary`` (d, r^g), ``round``; before its   ``contribution`` (d, r^g); for ``energy`` also
               first answer: the client's own ``indices``, -1 where    ``energies`` (r^g,); scalars
               it has no such atom
measure        ``global_dictionary`` (d, r^g); ``indices`` as above;   ``held_out`` and ``held_out_error``: the number
               ends a trial of a search of settings                    of held-out samples and their error; nothing
                                                                       if there are none
finish         ``global_dictionary`` (d, r^g); ``indices`` as above;   scalars, with ``evaluation.held_out`` also
               if the run ends early, ``reason``; after a search       those of :mod:`common.evaluation`
               of settings only ``trials``, their number
=============  ======================================================  ===========================================

With ``sharing = "some"`` update and finish also carry to the client its own ``members`` (r^g,), the atoms that it
shares, and finish ``shared`` (r^g,), the atoms that are still shared. ``contribution`` and ``energies`` then have one
column for each atom that the client shares, and with them it sends ``spread`` and ``nearest`` (r^g,): standard errors
of its atoms, and how near its own atoms are to those that it does not share.

Where the guard is on (:mod:`perdl_client.learning.guard`), columns of ``contribution`` that may not move are D^g's own
as it came, or zero for ``procrustes``, with energy zero; scalars other than counts have three significant digits.

With ``privacy = "masked"`` all atoms travel in coordinates that only the clients know, and the first answer to
initialise carries ``secret``, a hash of the clients' secret and the run's id.

With ``privacy = "private"`` no measures of the samples travel: of the scalars only names, sizes and steps.

With ``privacy = "aggregated"`` rounds are secure sums (:mod:`common.secure_sum`): no array of a round shows anything of
one client's atoms. The round has n clients.

=============  ======================================================  ===========================================
message        server to client                                        client to server
=============  ======================================================  ===========================================
initialise     as above                                                as above, and ``card``: its public key of
                                                                       this run, signed; ``exponent``: log2 of a
                                                                       bound of its numbers
update         as above, and ``roster``: digest of the n clients'      ``masked`` (r^g (d + 1) + 3,): all that it
               names and cards; ``clients``: these themselves, until   adds to the sum, masked, modulo 2^64;
               it has answered; ``bits``: of fixed point               ``shares`` (n, 49): of its mask's seed, one
                                                                       for each client, encrypted;
                                                                       ``commitment`` (32,): the seed's digest
open           ``round``, ``roster``; ``present`` (n,): who is in the  ``told`` (n, 33): for each client in the sum
               sum; ``shares`` (n, 49): those of the clients in it     its share of that one's seed, for each other
               for this client                                         the seed of their pair in this round
=============  ======================================================  ===========================================

Every message from the server carries ``run``, the run's id, which stays the same when the run is resumed. Every answer
carries ``client``, the client's name.

A search of settings is many short runs, its trials: ``a1b2/3`` is the id of the third trial of the search ``a1b2``.
Each begins with initialise and ends with measure.

Both sides refuse what these tables do not list: another name, another record, an array with bytes to spare.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from common.errors import PerdlError
from common.npy import from_npy, to_npy

PROTOCOL = 6
SCALE, INITIALISE, UPDATE = "train.scale", "train.initialise", "train.update"
OPEN, MEASURE, FINISH = "train.open", "train.measure", "train.finish"

Scalar = bool | int | float | str

LAST_ROUND = 10**8 - 1
"""No round has a larger number."""

_RECORD = "perdl"
_ARRAY = "array."


def _keys(scalars: str, arrays: str = "") -> frozenset[str]:
    """Return the keys of a record that holds these scalars and arrays."""
    return frozenset([*scalars.split(), *(_ARRAY + name for name in arrays.split())])


QUESTIONS: Mapping[str, frozenset[str]] = {
    SCALE: _keys("run settings"),
    INITIALISE: _keys("run settings"),
    UPDATE: _keys("run round roster bits", "global_dictionary indices members clients"),
    OPEN: _keys("run round roster", "present shares"),
    MEASURE: _keys("run", "global_dictionary indices members"),
    FINISH: _keys("run reason trials", "global_dictionary indices members shared"),
}
"""All that a server's message may hold, by its kind, whatever the mode of the run."""

ANSWERS: Mapping[str, frozenset[str]] = {
    SCALE: _keys("client", "counts squares"),
    INITIALISE: _keys(
        "client step returning n_features n_samples n_atoms shape names start_error nonzeros mean_share "
        "largest_feature_share secret card exponent",
        "dictionary usage",
    ),
    UPDATE: _keys(
        "client round reassigned error_before_update nonzeros",
        "contribution energies spread nearest masked shares commitment",
    ),
    OPEN: _keys("client round", "told"),
    MEASURE: _keys("client held_out held_out_error"),
    FINISH: _keys("client error shared own local_distance held_out held_out_k gain_low gain_high"),
}
"""All that a client's answer may hold. The last one also tells errors of held-out samples by number of atoms."""

_ERRORS = re.compile(r"(alone|federated|shared)_[0-9]{1,7}")


class ProtocolError(PerdlError):
    """A message that violates the protocol.

    Parameters
    ----------
    text : str
        What is wrong. It may quote the other side, so it is cut to one short line.
    """

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def one_line(text: str, most: int = 500) -> str:
    """Make text from another machine safe to show: printable, on one line, not too long.

    Parameters
    ----------
    text : str
        Text from another machine.
    most : int
        Longest result, in characters.
    """
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else f"{line[:most]}..."


@dataclass(frozen=True)
class Payload:
    """Content of a message.

    Parameters
    ----------
    arrays : dict of str to array
        Arrays by name.
    scalars : dict of str to bool, int, float or str
        Scalars by name.
    """

    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, Scalar]

    def array(self, name: str, shape: tuple[int, ...], kind: str = "f") -> NDArray[Any]:
        """Return an array after checking it.

        Parameters
        ----------
        name : str
            Name of the array.
        shape : tuple of int
            Expected shape; -1 allows any length.
        kind : {"f", "i", "b", "u"}
            Expected type: floats, integers, booleans or numbers without sign.

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
        """Return a scalar after checking its type.

        Parameters
        ----------
        name : str
            Name of the scalar.
        kind : type
            Expected type; ``float`` also accepts an ``int``.
        """
        value = self.scalars.get(name)
        good = isinstance(value, (int, float) if kind is float else kind) and (
            kind is bool or not isinstance(value, bool)
        )
        if not good or (isinstance(value, float) and not math.isfinite(value)):
            raise ProtocolError(f"the message's {name} is {value!r}, expected {kind.__name__}")
        return value


def pack(arrays: Mapping[str, NDArray[Any]] | None = None, **scalars: Scalar) -> RecordDict:
    """Pack arrays and scalars into the content of a message.

    Parameters
    ----------
    arrays : mapping of str to array, optional
        Arrays by name.
    **scalars : bool, int, float or str
        Scalars by name.
    """
    record: dict[str, Any] = {"protocol": PROTOCOL, **scalars}
    for name, array in (arrays or {}).items():
        record[_ARRAY + name] = to_npy(np.asarray(array))
    return RecordDict({_RECORD: ConfigRecord(record)})


def unpack(content: RecordDict, keys: Container[str] | None = None) -> Payload:
    """Unpack the content of a message.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Content of a message.
    keys : container of str, optional
        All that it may hold. By default anything: it is not from another machine.

    Raises
    ------
    ProtocolError
        If there is no such record or another one, something that may not be there or cannot be read, or the other side
        speaks another version.
    """
    record = content.get(_RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError("the message is not perdl's: it holds no record named perdl")
    if record.get("protocol") != PROTOCOL:
        raise ProtocolError(
            f"the other side speaks protocol {record.get('protocol')!r}, this one {PROTOCOL}: "
            "install the same perdl on both"
        )
    if keys is not None and len(content) > 1:
        raise ProtocolError(f"the message holds {len(content)} records, expected one")
    arrays: dict[str, NDArray[Any]] = {}
    scalars: dict[str, Scalar] = {}
    for key, value in record.items():
        if keys is not None and key not in keys and key != "protocol":
            raise ProtocolError(f"the message holds {key!r}, which is not expected")
        if key.startswith(_ARRAY) and isinstance(value, bytes):
            name = key.removeprefix(_ARRAY)
            arrays[name] = _read_array(name, value)
        elif not key.startswith(_ARRAY) and isinstance(value, (bool, int, float, str)):
            scalars[key] = value
        else:
            raise ProtocolError(f"the message's {key!r} has type {type(value).__name__}")
    return Payload(arrays, scalars)


def answer_keys(kind: str) -> Container[str]:
    """Return all that a client's answer may hold.

    Parameters
    ----------
    kind : str
        Kind of the message that it answers.
    """
    return _WithErrors(ANSWERS[kind]) if kind == FINISH else ANSWERS[kind]


class _WithErrors(frozenset[str]):
    """Keys, and those of errors by number of atoms."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (isinstance(key, str) and _ERRORS.fullmatch(key) is not None)


def _read_array(name: str, content: bytes) -> NDArray[Any]:
    try:
        return from_npy(content)
    except ValueError as error:
        raise ProtocolError(f"{_ARRAY}{name} is not a readable array ({error})") from None
    except TypeError as error:
        raise ProtocolError(f"{name} has type {error}") from None


def payload_bytes(content: RecordDict) -> int:
    """Return the size of a message's content in bytes: arrays as they are, 8 bytes a number, text in UTF-8.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Content of a message.
    """
    total = 0
    for record in content.values():
        for name, value in record.items() if isinstance(record, ConfigRecord) else ():
            total += len(name.encode())
            total += len(value) if isinstance(value, bytes) else len(value.encode()) if isinstance(value, str) else 8
    return total


def search_of(run: str) -> str:
    """Return the search of settings that a run is a trial of: ``a1b2`` of ``a1b2/3``. Any other run is its own.

    Parameters
    ----------
    run : str
        The run's id.
    """
    return run.partition("/")[0]


def check_run(run: str) -> str:
    """Return a run's id after checking that it can be shown and kept.

    Parameters
    ----------
    run : str
        The run's id.

    Raises
    ------
    ProtocolError
        If it is empty, longer than 100 characters, or not printable.
    """
    if not run or len(run) > 100 or not run.isprintable():
        raise ProtocolError(f"{run[:100]!r} cannot be a run's id: it has 1 to 100 printable characters")
    return run


def check_name(name: str) -> str:
    """Return a client's name after checking that it can be shown and used as a folder's name.

    Parameters
    ----------
    name : str
        A client's stable id.

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


def client_uri(name: str) -> str:
    """Return how a certificate names a client: an identifier in ASCII, of any length.

    Parameters
    ----------
    name : str
        A client's stable id.
    """
    return f"perdl:client:{quote(name, safe='')}"


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key in which numbers inside names count as numbers: client-2 comes before client-10.

    Parameters
    ----------
    name : str
        A name with or without numbers.
    """
    parts = re.split(r"(\d{1,18})", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part)
