"""Claims of the MNIST reader and of the paper's imbalanced partition."""

import gzip
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import DataError, SettingsError
from perdl_client.data.mnist import label_partition, load_mnist
from perdl_client.formats.read import load_samples

DATA = Path(os.environ.get("PERDL_DATA", Path(__file__).parents[4] / "shared" / "data"))
REAL = DATA / "mnist"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no MNIST in {REAL}; set PERDL_DATA")

COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)
DIGITS = np.arange(12, dtype=np.uint8) % 10


def load_floats(root, split):
    pixels, labels = load_mnist(root, split)
    return pixels / 255.0, labels.astype(np.intp)


def write_idx(folder, name, array, zipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    raw = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype("u1").tobytes()
    (folder / f"{name}{'.gz' if zipped else ''}").write_bytes(gzip.compress(raw) if zipped else raw)


def write_mnist(folder, zipped=False, pixels=PIXELS, digits=DIGITS):
    for prefix in ("train", "t10k"):
        write_idx(folder, f"{prefix}-images-idx3-ubyte", pixels, zipped)
        write_idx(folder, f"{prefix}-labels-idx1-ubyte", digits, zipped)


@pytest.fixture
def no_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)


def fake_torchvision(monkeypatch, download):
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.datasets", SimpleNamespace(MNIST=download))


# Reading


@pytest.mark.parametrize("place", [".", "MNIST/raw"])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("split", ["train", "test"])
def test_idx_files_are_found_without_torchvision(tmp_path, no_torchvision, place, zipped, split):
    write_mnist(tmp_path / place, zipped)
    images, labels = load_floats(str(tmp_path), split)
    assert images.dtype == np.float64
    assert images.flags.writeable
    np.testing.assert_array_equal(images, PIXELS.reshape(12, 784) / 255)
    np.testing.assert_array_equal(labels, DIGITS)


def test_what_a_caller_does_to_its_images_does_not_reach_the_next(tmp_path):
    write_mnist(tmp_path)
    images, labels = load_floats(tmp_path, "train")
    images[:] = labels[:] = 0
    images, labels = load_floats(tmp_path, "train")
    np.testing.assert_array_equal(images, PIXELS.reshape(12, 784) / 255)
    np.testing.assert_array_equal(labels, DIGITS)


def test_bytes_are_shared_and_read_only(tmp_path):
    write_mnist(tmp_path)
    first, again = load_mnist(tmp_path, "test"), load_mnist(str(tmp_path), "test")
    np.testing.assert_array_equal(first[0] / 255, load_floats(tmp_path, "test")[0])
    np.testing.assert_array_equal(first[1], DIGITS)
    for a, b in zip(first, again, strict=True):
        assert np.shares_memory(a, b)
        assert not a.flags.writeable


def test_files_are_read_once(tmp_path):
    write_mnist(tmp_path)
    first, _ = load_floats(tmp_path, "test")
    for path in tmp_path.iterdir():
        path.write_bytes(b"gone")
    np.testing.assert_array_equal(load_floats(tmp_path, "test")[0], first)


def test_missing_files_are_downloaded_by_torchvision(tmp_path, monkeypatch):
    calls = []

    def download(root, train, download):
        calls.append((root, train, download))
        write_mnist(Path(root) / "MNIST" / "raw")

    fake_torchvision(monkeypatch, download)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    np.testing.assert_array_equal(load_floats(None, "test")[1], DIGITS)
    load_floats(None, "train")
    assert calls == [(str(tmp_path / ".cache" / "perdl"), False, True)]


def test_no_torchvision_says_what_to_install(tmp_path, no_torchvision):
    with pytest.raises(DataError, match="holds no MNIST train files; pip install torchvision to download"):
        load_floats(tmp_path, "train")


def test_failed_download_is_one_line_with_the_cure(tmp_path, monkeypatch):
    def download(root, train, download):
        raise RuntimeError("Error downloading\ntrain-images")

    fake_torchvision(monkeypatch, download)
    expected = r"MNIST cannot be downloaded \(Error downloading train-images\); check the network, or put the four"
    with pytest.raises(DataError, match=expected):
        load_floats(tmp_path, "train")


def test_download_without_files_is_an_error(tmp_path, monkeypatch):
    fake_torchvision(monkeypatch, lambda root, train, download: None)
    with pytest.raises(DataError, match="torchvision left no MNIST train files"):
        load_floats(tmp_path, "train")


@pytest.mark.parametrize(
    ("pixels", "digits", "expected"),
    [
        (PIXELS[:, :20], DIGITS, r"train-images-idx3-ubyte: .*shape \(12, 20, 28\), not uint8 images of 28 x 28"),
        (PIXELS, DIGITS[:11], r"train-labels-idx1-ubyte: .*shape \(11,\), not a digit for each of the 12 images"),
        (PIXELS, DIGITS + 1, "train-labels-idx1-ubyte: .*not a digit for each"),
    ],
)
def test_files_that_are_not_mnist_are_named(tmp_path, pixels, digits, expected):
    write_mnist(tmp_path, pixels=pixels, digits=digits)
    with pytest.raises(DataError, match=expected):
        load_floats(tmp_path, "train")


def test_unknown_split_is_a_settings_error(tmp_path):
    with pytest.raises(SettingsError, match='split is \'valid\'; it must be "train" or "test"'):
        load_floats(tmp_path, "valid")


# Partition


def check_partition(labels, parts, n_samples, n_major):
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything) == n_samples * len(parts)
    for client, part in enumerate(parts):
        assert np.count_nonzero(labels[part] == (client + 1) % 10) == n_major
        assert len(part) == n_samples


@pytest.mark.parametrize(
    ("n_clients", "n_samples", "majority"), [(10, 50, 0.9), (3, 30, 1.0), (25, 20, 0.5), (1, 7, 0.0)]
)
def test_partition_has_the_majority_and_shares_no_image(n_clients, n_samples, majority):
    labels = np.random.default_rng(3).integers(0, 10, 2000)
    parts = [
        label_partition(labels, i, n_clients, n_samples=n_samples, majority=majority, seed=5) for i in range(n_clients)
    ]
    check_partition(labels, parts, n_samples, round(majority * n_samples))


def test_partition_depends_on_the_seed_alone():
    labels = np.random.default_rng(3).integers(0, 10, 2000)
    settings = {"n_samples": 40}
    np.random.seed(0)  # noqa: NPY002
    first = label_partition(labels, 4, 10, seed=1, **settings)
    np.random.seed(1)  # noqa: NPY002
    np.testing.assert_array_equal(label_partition(labels.astype("u1"), 4, 10, seed=1, **settings), first)
    assert not np.array_equal(label_partition(labels, 4, 10, seed=2, **settings), first)


def test_minority_of_one_client_holds_all_other_digits():
    labels = np.random.default_rng(3).integers(0, 10, 8000)
    part = label_partition(labels, 9, 10, seed=0)
    assert set(labels[part]) == set(range(10))


def test_too_few_images_are_an_error_with_the_numbers():
    labels = np.repeat(np.arange(10), 100)
    with pytest.raises(DataError, match="digit 1 has 100 images, but 1 of the 10 clients need 450 of it each"):
        label_partition(labels, 0, 10, seed=0)
    with pytest.raises(DataError, match="digit 1 has 100 images, but 2 of the 12 clients need 54 of it each"):
        label_partition(labels, 5, 12, n_samples=60, seed=0)
    with pytest.raises(DataError, match=r"client 0 needs 900 images of digits other than 1, but .* leave 800;"):
        label_partition(labels, 1, 2, n_samples=1000, majority=0.1, seed=0)


@pytest.mark.parametrize(
    ("client", "settings"), [(10, {}), (-1, {}), (0, {"n_samples": 0}), (0, {"majority": 1.1}), (0, {"majority": -0.1})]
)
def test_impossible_partition_is_a_settings_error(client, settings):
    with pytest.raises(SettingsError):
        label_partition(np.arange(10), client, 10, seed=0, **settings)


# The real thing


@real
@pytest.mark.parametrize("split", ["train", "test"])
def test_real_mnist_has_its_known_counts_and_mean(split):
    images, labels = load_floats(REAL, split)
    assert images.shape == (sum(COUNTS[split]), 784)
    assert np.bincount(labels).tolist() == COUNTS[split]
    assert images.min() == 0
    assert images.max() == 1
    assert images.mean() == pytest.approx({"train": 0.1307, "test": 0.1325}[split], abs=5e-5)


@real
def test_real_mnist_equals_the_general_reader():
    samples = load_samples(REAL / "t10k-images-idx3-ubyte.gz", n_features=784).data
    np.testing.assert_array_equal(samples.T, load_floats(REAL, "test")[0])


@real
@pytest.mark.parametrize("split", ["train", "test"])
def test_real_partition_is_the_papers(split):
    labels = load_floats(REAL, split)[1]
    parts = [label_partition(labels, i, 10, seed=0) for i in range(10)]
    check_partition(labels, parts, 500, 450)
