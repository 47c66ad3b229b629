"""Arrays as bytes: NumPy itself writes and reads the same, however they lie in memory."""

import io

import numpy as np
import pytest

from common.npy import from_npy, to_npy

ARRAYS = {
    "C order": np.arange(12.0).reshape(3, 4),
    "Fortran order": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "every second column": np.arange(24.0).reshape(3, 8)[:, ::2],
    "backwards": np.arange(5)[::-1],
    "column": np.arange(6.0).reshape(6, 1),
    "scalar": np.array(3.5),
    "empty": np.empty((0, 7)),
    "booleans": np.array([True, False]),
    "other byte order": np.arange(4, dtype=">i4"),
    "bytes": np.arange(200, dtype=np.uint8),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_numpy_writes_and_reads_the_same(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    content = to_npy(array)
    assert content == file.getvalue()
    for _ in range(2):  # the second time from a header that is remembered
        found = from_npy(content)
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.flags.writeable
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_remembered_header_is_still_held_against_the_bytes_there_are(array):
    content = to_npy(array)
    from_npy(content)
    for other in (content + b"\0", *([content[:-1]] if array.size else [])):
        with pytest.raises(ValueError, match=" bytes for "):
            from_npy(other)


@pytest.mark.parametrize("length", range(0, 128, 7))
def test_a_header_cut_short_is_an_error_of_one_kind(length):
    with pytest.raises(ValueError, match=r"[A-Za-z]"):
        from_npy(to_npy(np.arange(3.0))[:length])


def test_arrays_found_share_no_memory():
    content = to_npy(np.zeros(3))
    first = from_npy(content)
    first[:] = 1
    np.testing.assert_array_equal(from_npy(content), 0)
