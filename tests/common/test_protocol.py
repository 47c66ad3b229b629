"""Claims of the protocol: what is packed comes back, and nothing else is taken."""

import gc
import io
import struct
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from common.protocol import (
    FINISH,
    PROTOCOL,
    QUESTIONS,
    UPDATE,
    Payload,
    ProtocolError,
    answer_keys,
    check_run,
    natural_key,
    pack,
    payload_bytes,
    search_of,
    unpack,
)


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npy_with_header(header, data=b"\0" * 64):
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def content(**entries):
    return RecordDict({"perdl": ConfigRecord({"protocol": PROTOCOL, **entries})})


# Round trips


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("shape", [(3, 2), (5,), (0, 4), (4, 0), (), (2, 3, 4)])
def test_arrays_come_back_bit_for_bit(dtype, shape):
    array = (100 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    back = unpack(pack({"dictionary": array})).arrays["dictionary"]
    assert back.dtype == array.dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back, array)


def test_arrays_in_any_memory_order_and_read_only_come_back():
    A = np.random.default_rng(1).standard_normal((6, 8))
    strided, fortran = A[::2, ::3], np.asfortranarray(A)
    fortran.flags.writeable = False
    back = unpack(pack({"a": strided, "b": fortran, "c": A.T})).arrays
    for name, truth in (("a", strided), ("b", fortran), ("c", A.T)):
        np.testing.assert_array_equal(back[name], truth)


def test_scalars_come_back_with_their_type():
    scalars = {"round": 3, "error": 0.1 + 0.2, "client": "clinic-é", "done": True, "array": "not an array"}
    payload = unpack(pack({"array": np.ones(2)}, **scalars))
    assert {name: payload.scalars[name] for name in scalars} == scalars
    assert {name: type(payload.scalars[name]) for name in scalars} == {name: type(v) for name, v in scalars.items()}
    assert list(payload.arrays) == ["array"]


def test_objects_cannot_be_packed():
    with pytest.raises(ValueError, match="Python objects"):
        pack({"x": np.array([{}], dtype=object)})


# What is refused


def test_a_message_without_our_record_is_refused():
    for other in (RecordDict(), RecordDict({"other": ConfigRecord({"protocol": PROTOCOL})})):
        with pytest.raises(ProtocolError, match="holds no record named perdl"):
            unpack(other)


@pytest.mark.parametrize("version", [PROTOCOL + 1, 0, str(PROTOCOL), None])
def test_another_version_is_refused_with_the_cure(version):
    record = {} if version is None else {"protocol": version}
    with pytest.raises(
        ProtocolError, match=rf"speaks protocol {version!r}, this one {PROTOCOL}: install the same perdl"
    ):
        unpack(RecordDict({"perdl": ConfigRecord(record)}))


def test_pickled_objects_are_refused_and_never_loaded():
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was loaded",))

    with pytest.raises(ProtocolError, match=r"array\.x is not a readable array"):
        unpack(content(**{"array.x": npy(np.array([Bomb()], dtype=object), allow_pickle=True)}))


def test_arrays_cut_short_anywhere_are_refused():
    whole = npy(np.random.default_rng(2).standard_normal((3, 2)))
    for n in range(len(whole)):
        with pytest.raises(ProtocolError, match="not a readable array"):
            unpack(content(**{"array.x": whole[:n]}))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3 \n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1024), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': (), 'fortran_order': False, 'shape': (1,), }",
        "{1: 2, 'descr': 3}",
        "(" * 5000,
        "",
    ],
)
def test_damaged_headers_are_refused(header):
    with pytest.raises(ProtocolError, match="not a readable array"):
        unpack(content(**{"array.x": npy_with_header(header)}))


def test_no_memory_is_taken_on_the_word_of_a_header():
    huge = npy_with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (20000, 20000), }")
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="not a readable array"):
        unpack(content(**{"array.x": huge}))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_an_array_with_bytes_to_spare_is_refused():
    with pytest.raises(ProtocolError, match="not a readable array"):
        unpack(content(**{"array.x": npy(np.zeros(3)) + b"secret"}))


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_either_order_are_read(order):
    array = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    np.testing.assert_array_equal(unpack(content(**{"array.x": npy(array)})).arrays["x"], array)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_what_the_tables_do_not_list_is_refused(kind):
    for keys, name in ((QUESTIONS[kind], "client"), (answer_keys(kind), "run")):
        known = {key: npy(np.zeros(1)) if key.startswith("array.") else 1 for key in QUESTIONS[kind] & keys}
        assert unpack(content(**known), keys)
        for more in ({name: "x"}, {"array.Y": npy(np.zeros(2))}, {"array.run": 3}, {"x": [1, 2]}, {"x": b"bytes"}):
            with pytest.raises(ProtocolError, match=r"is not expected|has type"):
                unpack(content(**known, **more), keys)
    with pytest.raises(ProtocolError, match="holds 2 records, expected one"):
        unpack(RecordDict({**pack(), "other": ConfigRecord()}), QUESTIONS[kind])


def test_the_last_answer_may_tell_errors_by_number_of_atoms_and_no_other():
    told = {"alone_3": 0.5, "federated_12": 0.5, "shared_1": 0.5}
    assert unpack(pack({}, **told), answer_keys(FINISH)).scalars.keys() >= told.keys()
    for kind, key in ((FINISH, "alone_x"), (FINISH, "mine_3"), (FINISH, "alone_12345678"), (UPDATE, "alone_3")):
        with pytest.raises(ProtocolError, match="is not expected"):
            unpack(pack({}, **{key: 0.5}), answer_keys(kind))


@pytest.mark.parametrize("run", ["", "x" * 101, "a\nb", "\x00"])
def test_a_runs_id_can_be_shown_and_kept(run):
    with pytest.raises(ProtocolError, match="cannot be a run's id"):
        check_run(run)
    assert check_run("a1b2/3") == "a1b2/3"


def test_damaged_bytes_never_raise_anything_else():
    rng = np.random.default_rng(3)
    whole = npy(rng.standard_normal((3, 2)))
    escaped = set()
    for _ in range(1500):
        raw = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            raw[rng.integers(len(raw))] = rng.integers(256)
        try:
            unpack(content(**{"array.x": bytes(raw)})).array("x", (3, 2))
        except ProtocolError:
            pass
        except Exception as error:
            escaped.add(type(error).__name__)
    assert not escaped


def test_a_checked_array_has_the_shape_asked_for():
    payload = unpack(pack({"x": np.ones((4, 3))}))
    for shape in ((4, 3), (-1, 3), (4, -1), (-1, -1)):
        assert payload.array("x", shape) is payload.arrays["x"]
    for shape in ((3, 4), (4, 2), (4,), (4, 3, 1), (-1,), ()):
        with pytest.raises(ProtocolError, match=r"x has shape \(4, 3\), expected"):
            payload.array("x", shape)
    with pytest.raises(ProtocolError, match="the message holds no array y"):
        payload.array("y", (4, 3))


@pytest.mark.parametrize("dtype", ["f2", ">f8", "c16", "i8", "u8", "?", "S3", "U3", "M8[s]", "g"])
def test_floats_are_float32_or_float64_of_this_machine(dtype):
    with pytest.raises(ProtocolError, match="x has type"):
        unpack(content(**{"array.x": npy(np.zeros((2, 2), dtype=dtype))})).array("x", (2, 2))


@pytest.mark.parametrize("dtype", ["f8", "u8", "?", "S3", "m8[s]"])
def test_integers_are_integers(dtype):
    with pytest.raises(ProtocolError, match="x has type"):
        unpack(content(**{"array.x": npy(np.zeros(2, dtype=dtype))})).array("x", (2,), kind="i")
    assert unpack(pack({"x": np.arange(2)})).array("x", (2,), kind="i").tolist() == [0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_and_infinity_are_refused(bad, dtype):
    array = np.ones((3, 2), dtype=dtype)
    array[1, 1] = bad
    with pytest.raises(ProtocolError, match="x holds NaN or infinity"):
        unpack(pack({"x": array})).array("x", (3, 2))


@pytest.mark.parametrize(
    ("value", "kind", "good"),
    [
        (3, int, True),
        (3, float, True),
        (3.0, float, True),
        (True, bool, True),
        ("a", str, True),
        (3.0, int, False),
        (True, int, False),
        (True, float, False),
        (1, bool, False),
        ("3", int, False),
        (3, str, False),
        (None, str, False),
    ],
)
def test_scalars_are_checked(value, kind, good):
    payload = Payload({}, {} if value is None else {"x": value})
    if good:
        assert payload.scalar("x", kind) == value
    else:
        with pytest.raises(ProtocolError, match=f"the message's x is {value!r}, expected {kind.__name__}"):
            payload.scalar("x", kind)


# Size and order


def test_payload_bytes_count_names_arrays_numbers_and_text():
    message = pack({"dictionary": np.zeros((10, 3))}, round=1, error=0.5, client="é", done=True)
    array = len("array.dictionary") + len(npy(np.zeros((10, 3))))
    numbers = sum(len(name) + 8 for name in ("protocol", "round", "error", "done"))
    assert payload_bytes(message) == array + numbers + len("client") + 2
    assert payload_bytes(RecordDict()) == 0


def test_a_larger_array_costs_its_own_bytes_and_no_more():
    small, large = (payload_bytes(pack({"x": np.zeros((100, r))})) for r in (10, 20))
    assert large - small == 8 * 100 * 10


def test_numbers_inside_names_count_as_numbers():
    names = [
        "client-10",
        "client-2",
        "client-1",
        "b",
        "a10",
        "a9",
        "10",
        "9",
        "client-2b",
        "client-2a",
        "",
        "client-02",
    ]
    ordered = sorted(names, key=natural_key)
    assert ordered.index("client-2") < ordered.index("client-10")
    assert ordered == [
        "",
        "9",
        "10",
        "a9",
        "a10",
        "b",
        "client-1",
        "client-02",
        "client-2",
        "client-2a",
        "client-2b",
        "client-10",
    ]


def test_the_order_of_names_is_total_whatever_comes_first():
    rng = np.random.default_rng(4)
    names = ["".join(rng.choice(list("ab-019٣²"), rng.integers(0, 6))) for _ in range(300)]
    names = sorted(set(names))
    ordered = sorted(names, key=natural_key)
    assert len({natural_key(name) for name in names}) == len(names)
    for _ in range(5):
        assert sorted(rng.permutation(names).tolist(), key=natural_key) == ordered


def test_an_error_quotes_the_other_side_in_one_short_printable_line():
    with pytest.raises(ProtocolError) as caught:
        Payload({}, {"n": "x" * 100_000}).scalar("n", int)
    assert len(str(caught.value)) < 510
    assert str(ProtocolError("a\x1b[2J\r\nb\u202ec größe")) == "a [2J  b c größe"


def test_threads_unpack_at_once_whatever_the_collector_does():
    """Before Python 3.11.8 and 3.12.2 NumPy's reader of heads fails now and then."""

    class Ring:
        def __init__(self):
            self.me = self

        def __del__(self):  # Python code that runs when garbage is collected, in the middle of anything
            for _ in range(200):
                pass

    message, failures = pack({"a": np.ones((6, 3))}), []

    def work():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            [Ring() for _ in range(5)]
            try:
                unpack(message)
            except ProtocolError as error:
                failures.append(error)

    before, pause = gc.get_threshold(), sys.getswitchinterval()
    try:
        gc.set_threshold(50)
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(pause)
    assert failures == []


def test_trials_belong_to_a_search_and_other_runs_to_themselves():
    assert search_of("a1b2/3") == search_of("a1b2/12") == "a1b2"
    assert search_of("a1b2") == "a1b2"
