"""Claims of the memory that reading, checking and learning take, in copies of a client's samples in the run's type."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from common.settings import load_settings
from perdl.check.files import check
from perdl_client.data.load import load_data
from perdl_client.data.moments import finite_sizes, variances
from perdl_client.formats.read import load_samples
from perdl_client.identity import Identity

SHAPE = (12_000, 128)
"""Large beside what does not grow with the samples."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, SHAPE, np.uint8)
    np.save(folder / "u1.npy", pixels)
    np.save(folder / "f4.npy", pixels.astype(np.float32))
    (folder / "parts").mkdir()
    for i in range(4):
        np.save(folder / "parts" / f"{i}.npy", pixels[i::4])
    (folder / "images").mkdir()
    for i in range(50):
        Image.fromarray(rng.integers(0, 256, (200, 200), np.uint8)).save(folder / "images" / f"{i}.bmp")
    return folder


def copies(work, size):
    """How many arrays of ``size`` numbers in float64 are held at once; one that is not yet filled counts in full."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / (8 * size)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "to_load", "to_check", "to_learn"),
    [("u1.npy", 1.3, 2.6, 1.6), ("f4.npy", 0.3, 1.6, 1.6), ("parts", 2.1, 2.6, 2.1), ("images", 1.3, 2.6, 1.6)],
)
def test_memory_holds_few_copies_of_the_samples(files, name, to_load, to_check, to_learn):
    path = files / name
    settings = load_settings(None, ["data.source=files", f"data.path={path}", "data.center=true"])
    size = load_samples(path).data.size
    identity = Identity("ada", 0, {"data": str(path)})
    assert copies(lambda: load_samples(path), size) < to_load
    assert copies(lambda: check([path], settings), size) < to_check
    assert copies(lambda: load_data(identity, settings), size) < to_learn
    narrow = load_settings(None, ["data.source=files", "data.center=true", "dtype=float32"])
    assert copies(lambda: load_data(identity, narrow), size) < 0.5 * to_learn + 0.1


@pytest.mark.parametrize("name", ["u1.npy", "f4.npy", "images"])
def test_the_numbers_are_those_of_the_long_way(files, name):
    path = files / name
    wide = load_samples(path).data.astype(np.float64)
    for dtype in ("float64", "float32"):
        settings = load_settings(None, ["data.source=files", "data.center=true", f"dtype={dtype}"])
        Y = wide.astype(dtype)
        constant = (Y[:, :1] == Y).all(axis=1)
        expected = Y - np.where(constant, Y[:, 0], Y.mean(axis=1))[:, None]
        got = load_data(Identity("ada", 0, {"data": str(path)}), settings).Y
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, expected)


def test_moments_are_those_of_numpy():
    Y = np.random.default_rng(0).standard_normal((300, 9000)) + 5
    np.testing.assert_allclose(variances(Y), Y.var(axis=1), rtol=1e-12)
    np.testing.assert_allclose(variances(Y, lambda block: 2 * block), 4 * Y.var(axis=1), rtol=1e-12)
    Y[3, 8000], Y[4, 5] = np.nan, -np.inf
    count, largest, rms = finite_sizes(Y)
    sizes = np.abs(Y[np.isfinite(Y)])
    assert (count, largest) == (sizes.size, sizes.max())
    np.testing.assert_allclose(rms, np.sqrt(np.mean(sizes**2)), rtol=1e-12)
