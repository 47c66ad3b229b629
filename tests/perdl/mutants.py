"""Messages gone wrong: every way in which a peer that lies, or a fault, can change a message of the protocol."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from pydantic import BaseModel

from common.protocol import ANSWERS, QUESTIONS

ARRAY = "array."
INTEGERS = [0, 1, -1, 2, 3, 7, 100, 10**5, 10**9, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -1.0, 1.5, 1e-320, 1e9, 1e300, -1e300, float("nan"), float("inf"), -float("inf")]
TEXTS = ["", " ", "x", "x" * 100_000, "a\nb\x00\x1b[31m", "../../etc", "client-2", "a1b2/3", "ÄÖ\u202e", "[]", "null"]
DTYPES = ["f4", "f8", ">f8", "f2", "i8", "i4", "u1", "u8", "?", "c16", "U4", "M8[s]"]


def settings_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a table and its tables."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings_names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def with_setting(text: str, name: str, value: Any) -> str:
    """Return the JSON of settings with one of them changed."""
    values = json.loads(text)
    *tables, last = name.split(".")
    table = values
    for one in tables:
        table = table.setdefault(one, {})
    table[last] = value
    return json.dumps(values)


class HangError(BaseException):
    """A message took far too long. Handlers that catch ``Exception`` do not stop it."""


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer; so far from what is usual that a busy machine does not matter."""

    def stop(*_: object) -> None:
        raise HangError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def npy(array: Any, *, pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=pickle)
    return file.getvalue()


def array_of(content: bytes) -> Any:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def header(text: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode("latin1") + body


class Mutator:
    """Makes mutants of a message's content.

    Parameters
    ----------
    rng : numpy.random.Generator
        Which mutants.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def mutant(self, content: RecordDict) -> RecordDict:
        """Return a mutant; now and then with more than one change."""
        record = dict(content.config_records["perdl"])
        if self.rng.random() < 0.04:
            return self._records(record)
        for _ in range(1 + (self.rng.random() < 0.15)):
            record = self._changed(record)
        return RecordDict({"perdl": ConfigRecord(record)})

    def _records(self, record: dict[str, Any]) -> RecordDict:
        plain = ConfigRecord(record)
        return self.pick(
            [
                RecordDict(),
                RecordDict({"other": plain}),
                RecordDict({"perdl": plain, "other": plain}),
                RecordDict({"perdl": plain, "more": ArrayRecord({"a": Array(np.zeros(3))})}),
                RecordDict({"perdl": MetricRecord({"round": 1})}),
                RecordDict({"perdl": ConfigRecord()}),
            ]
        )

    def _changed(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with one change."""
        key = self.pick(sorted(record) or ["run"])
        chance = self.rng.random()
        if chance < 0.06:
            return {k: v for k, v in record.items() if k != key}
        if chance < 0.12:
            name = self.pick([key + "x", ARRAY + key, key.removeprefix(ARRAY), key.upper(), ""])
            return {name if k == key else k: v for k, v in record.items()}
        if chance < 0.24:
            known = sorted({name for table in (QUESTIONS, ANSWERS) for names in table.values() for name in names})
            return {**record, self.pick([*known, "data", "array.Y", "codes"]): self.value()}
        if chance < 0.28 and len(record) > 1:
            other = self.pick(sorted(record))
            return {**record, key: record[other], other: record[key]}
        value = record.get(key)
        if key == "settings" or (chance < 0.6 and "settings" in record):
            return {**record, "settings": self.settings(record.get("settings"))}
        if isinstance(value, bytes) and self.rng.random() < 0.9:
            return {**record, key: self.array(value)}
        if isinstance(value, int) and not isinstance(value, bool) and self.rng.random() < 0.5:
            return {**record, key: value + self.pick([-2, -1, 1, 2])}
        return {**record, key: self.value()}

    def value(self) -> Any:
        """Return a value of any kind."""
        lists: list[Any] = [[1, 2], ["a"], [0.5], []]
        arrays = [b"", b"garbage", npy(np.zeros(3)), npy(np.zeros((2, 2))), npy(np.array([True, False]))]
        return self.pick([self.pick(one) for one in (INTEGERS, FLOATS, TEXTS, [True, False], lists, arrays)])

    def array(self, content: bytes) -> bytes:
        """Return the bytes of an array, changed."""
        try:
            array = array_of(content)
        except Exception:
            return content[: int(self.rng.integers(len(content) + 1))]
        if self.rng.random() < 0.3:
            return self._bytes(content, array)
        if array.dtype.kind not in "bifu" or not array.ndim:  # changed before
            return content[: int(self.rng.integers(len(content)))]
        if self.rng.random() < 0.4:
            return self._form(array)
        return npy(self._numbers(array.copy()))

    def _bytes(self, content: bytes, array: Any) -> bytes:
        shape, flipped = array.shape, bytearray(content)
        flipped[int(self.rng.integers(len(content)))] ^= 1 << int(self.rng.integers(8))
        body, d = array.tobytes(), array.dtype.str
        return self.pick(
            [
                content[: int(self.rng.integers(len(content)))],
                content + b"\x00" * int(self.rng.integers(1, 20)),
                bytes(self.rng.integers(0, 256, 200, dtype=np.uint8)),
                bytes(flipped),
                b"",
                npy(np.array([{"a": 1}], dtype=object), pickle=True),
                header(f"{{'descr': '{d}', 'fortran_order': True, 'shape': {shape}}}", body),
                header(f"{{'descr': '{d}', 'fortran_order': False, 'shape': {shape}}}", body, b"\x03\x00"),
                header(f"{{'descr': '{d}', 'fortran_order': False, 'shape': (1000000000000,)}}", body),
                header(f"{{'descr': '{d}', 'fortran_order': False, 'shape': (100000, 100000)}}", body),
                header(f"{{'descr': '{d}', 'fortran_order': False, 'shape': (-1,)}}", body),
                header(f"{{'descr': '{d}', 'fortran_order': False, 'shape': (0, 1000000000)}}"),
                header("{'descr': [('a', '<f8', (1000000,))], 'fortran_order': False, 'shape': (1,)}", body),
                header(f"{{'descr': '|S{10**9}', 'fortran_order': False, 'shape': (1,)}}", body),
                header("(" * 100),
            ]
        )

    def _form(self, array: Any) -> bytes:
        """Return an array of another type or shape."""
        with np.errstate(all="ignore"):
            if self.rng.random() < 0.5:
                return npy(array.astype(self.pick(DTYPES)))
        flat = array.ravel()
        return npy(
            self.pick(
                [
                    array.T,
                    flat,
                    array[None],
                    array[..., None],
                    flat[:0],
                    flat[:1],
                    array[:-1],
                    array[..., :-1],
                    array[..., :0],
                    np.concatenate([array, array[:1]]),
                    np.concatenate([array, array], axis=-1),
                    np.broadcast_to(array[..., :1], (*array.shape[:-1], 20_000)) if flat.size else array,
                ]
            )
        )

    def _numbers(self, array: Any) -> Any:
        """Return an array of this form with other numbers."""
        if not array.size:
            return np.zeros((1,) * array.ndim, array.dtype)
        at = tuple(int(self.rng.integers(side)) for side in array.shape)
        kind = array.dtype.kind
        if kind == "b":
            array[at] = not array[at]
            return self.pick([array, np.ones_like(array), np.zeros_like(array)])
        if kind in "iu":
            other = array.copy()
            other[at] = self.pick(array.ravel())
            array[at] = self.pick([0, 1, 5, 100, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min])
            return self.pick([array, other, array[::-1], np.zeros_like(array)])
        with np.errstate(over="ignore", invalid="ignore"):
            array[at] = array.dtype.type(self.pick(FLOATS))
            scaled = array * array.dtype.type(self.pick([0, -1, 2, 50, 1e-9, 1e6, 1e30, 1e200]))
        copied, copied[..., -1] = np.array(array), array[..., 0] * self.pick([1, -1, 3])
        noise = array + self.rng.standard_normal(array.shape).astype(array.dtype) / 10
        return self.pick([array, array, scaled, copied, noise, array[..., ::-1]])

    def settings(self, text: Any) -> str:
        """Return the JSON of settings, changed."""
        try:
            values = json.loads(text)
            assert isinstance(values, dict)
        except Exception:
            return "{}"
        if self.rng.random() < 0.15:
            return self.pick(
                [
                    text[: int(self.rng.integers(len(text)))],
                    "[" * 100_000,
                    '{"data": ' * 5_000 + "1" + "}" * 5_000,
                    '{"rounds": ' + "9" * 5_000 + "}",
                    "[1, 2]",
                    "3",
                    text[:-1] + ', "rounds": 1000000000}',
                    text[:-1] + ', "threshold": NaN}',
                    text[:-1] + ', "threshold": 1e999}',
                    text[:-1] + ', "clients": {' + ",".join(f'"{i}": {{}}' for i in range(20_000)) + "}}",
                    text[:-1] + ', "clients": {"\\ud800": {"n_atoms": 3}}}',
                    text[:-1] + ', "output": "\\ud800"}',
                    text[:-1] + ', "data": {"path": "/etc/passwd", "source": "files"}}',
                ]
            )
        table = self.pick([values, *(one for one in values.values() if isinstance(one, dict))])
        key = self.pick([*(sorted(table) or ["rounds"]), *ALL_SETTINGS.get(id(table) == id(values), [])])
        if isinstance(table.get(key), dict) and self.rng.random() < 0.5:
            key = "rounds"
        numbers = [*INTEGERS, 10, 50, 1e-9, 1e-300, *FLOATS]
        now = table.get(key)
        if self.rng.random() < 0.1:
            table.pop(key, None)
        elif isinstance(now, str) and self.rng.random() < 0.7:
            table[key] = self.pick(WORDS)
        elif isinstance(now, bool):
            table[key] = not now
        elif self.rng.random() < 0.85:
            table[key] = self.pick(numbers)
        else:
            table[key] = self.pick([None, [], {}, [[[]]], "x" * 1000, True, {"a": {"b": 1}}])
        if isinstance(table.get("data"), dict) and self.rng.random() < 0.3:
            table["data"][self.pick(["window", "patch", "stride", "divide_by", "missing"])] = self.pick(
                [1, 2, 3, 10**9, "mask", "1, 2", "1" + ",1" * 5000]
            )
        return json.dumps(values)


ALL_SETTINGS = {
    True: ["n_atoms", "quorum", "trim", "min_samples", "n_global", "sharing", "matching", "clients", "n_clients"],
    False: ["epsilon", "clip", "delta", "window", "patch", "stride", "held_out", "n_nonzero", "n_samples", "divide_by"],
}
WORDS = ["none", "guarded", "aggregated", "masked", "private", "all", "some", "auto", "mean", "energy", "procrustes"]
WORDS += [
    "trimmed",
    "geometric-median",
    "polar",
    "gradient",
    "projected",
    "orthogonal",
    "top-k",
    "omp",
    "omp-threshold",
    "ols",
    "coordinate",
    "online",
]
WORDS += [
    "l4",
    "svd",
    "samples",
    "random",
    "identity",
    "rms",
    "data",
    "mask",
    "agree",
    "features",
    "client",
    "columns",
    "files",
    "mnist",
]
WORDS += ["video", "memory", "synthetic", "float32", "float64", "", "x" * 1000, "a\nb", "1", "nowhere/*.npy"]
