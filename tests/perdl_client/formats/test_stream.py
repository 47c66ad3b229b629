"""What is read block by block is what is read at once: formats, folders, cuts, preprocessing, and what is refused."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from common import blocks as module
from common.errors import DataError, SettingsError
from common.settings import load_settings
from perdl_client.data.load import prepare
from perdl_client.data.samples import looked_at
from perdl_client.data.windows_patches import Cut
from perdl_client.formats.read import load_samples

rng = np.random.default_rng(0)
TABLE = rng.standard_normal((500, 7))
IMAGES = rng.standard_normal((40, 6, 9, 2))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "NUMBERS", 7 * 37)


def save_parquet(path, A, **more):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"x{j}": one for j, one in enumerate(A.T)} | {"id": [str(i) for i in range(len(A))]}
    parquet.write_table(pyarrow.table(columns), path, **more)


def save_feather(path, A, **more):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather

    feather.write_feather(pyarrow.table({f"x{j}": one for j, one in enumerate(A.T)}), path, **more)


def save_hdf5(path, A, **more):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=A, **more)


def save_matlab(path, A):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=A.T).attrs["MATLAB_class"] = np.bytes_("double")


WRITERS = {
    "c.npy": lambda path: np.save(path, TABLE),
    "f.npy": lambda path: np.save(path, np.asfortranarray(TABLE)),
    "f4.npy": lambda path: np.save(path, TABLE.astype(">f4")),
    "i.npy": lambda path: np.save(path, (100 * TABLE).astype(int)),
    "images.npy": lambda path: np.save(path, IMAGES),
    "one.parquet": lambda path: save_parquet(path, TABLE),
    "groups.parquet": lambda path: save_parquet(path, TABLE.astype("f4"), row_group_size=90),
    "a.feather": lambda path: save_feather(path, TABLE),
    "chunks.feather": lambda path: save_feather(path, TABLE, chunksize=64, compression="zstd"),
    "a.h5": lambda path: save_hdf5(path, TABLE),
    "images.h5": lambda path: save_hdf5(path, IMAGES, chunks=(7, 6, 9, 2), compression="gzip"),
    "matlab.h5": lambda path: save_matlab(path, TABLE),
}


def both(path, **options):
    drop = "id" if str(path).endswith(".parquet") else None
    one, other = (load_samples(path, drop=drop, stream=stream, **options) for stream in (False, True))
    assert (one.shape, one.names, one.in_time, one.files) == (other.shape, other.names, other.in_time, other.files)
    assert one.data.dtype == other.data.dtype
    assert one.data.shape == other.data.shape
    return one, other


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_numbers(tmp_path, name):
    WRITERS[name](tmp_path / name)
    one, other = both(tmp_path / name)
    for _ in range(2):
        np.testing.assert_array_equal(np.hstack(list(module.blocks(other.data))), one.data)
    n = one.data.shape[1]
    for i, j in ((0, 5), (1, 2), (n // 3, n // 2), (n - 20, n)):
        np.testing.assert_array_equal(other.data.read(i, j), one.data[:, i:j])


@pytest.mark.parametrize("name", ["c.npy", "f.npy", "a.h5", "matlab.h5"])
def test_samples_in_columns(tmp_path, name):
    WRITERS[name](tmp_path / name)
    one, other = both(tmp_path / name, samples_in="columns")
    np.testing.assert_array_equal(other.data[:, 2:6], one.data[:, 2:6])


def test_a_folder_of_files_is_one_stream(tmp_path):
    for i, size in enumerate((3, 200, 1, 77)):
        np.save(tmp_path / f"{i}.npy", TABLE[:size].astype("f4" if i == 1 else "f8"))
    one, other = both(tmp_path)
    np.testing.assert_array_equal(other.data[:, :], one.data)


def test_a_folder_of_images(tmp_path):
    pixels = rng.integers(0, 256, (30, 6, 9, 3), np.uint8)
    for i, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{i}.png")
    one, other = both(tmp_path)
    np.testing.assert_array_equal(other.data[:, :], one.data)
    Image.fromarray(pixels[0, :5]).save(tmp_path / "7.png")
    with pytest.raises(DataError, match=r"7.png: is 9x5 RGB, but '0.png' is 9x6 RGB"):
        load_samples(tmp_path, stream=True)


def test_a_video(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    import imageio.v3 as imageio

    imageio.imwrite(tmp_path / "v.mp4", rng.integers(0, 256, (9, 32, 48, 3), np.uint8), plugin="FFMPEG", fps=5)
    one, other = both(tmp_path / "v.mp4")
    np.testing.assert_array_equal(other.data[:, :], one.data)
    np.testing.assert_array_equal(other.data.read(4, 6), one.data[:, 4:6])


CUTS = [
    (Cut("window", 5, 5, (7,)), (500,)),
    (Cut("window", 5, 2, (7,)), (500,)),
    (Cut("window", 3, 11, (7,)), (500,)),
    (Cut("window", 60, 1, (7,)), (500,)),
    (Cut("patch", 3, 3, (6, 9, 2)), (40,)),
    (Cut("patch", 4, 1, (6, 9, 2)), (40,)),
    (Cut("patch", 2, 1, (30, 27)), (2,)),
    (Cut("patch", 2, 5, (30, 27)), (2,)),
]


@pytest.mark.parametrize(("cut", "size"), CUTS, ids=lambda one: str(one))
def test_cuts_of_a_stream_are_those_of_the_array(cut, size):
    A = rng.standard_normal((*size, *cut.shape)).reshape(*size, -1).T
    S = module.Stream(A.shape, A.dtype, lambda i, j: A[:, i:j].copy())
    pieces = cut.apply(A)
    found = cut.apply(S)
    assert found.shape == pieces.shape == (pieces.shape[0], cut.count(A.shape[1]))
    np.testing.assert_array_equal(np.hstack(list(module.blocks(found))), pieces)
    for i, j in ((0, 1), (3, 17), (pieces.shape[1] - 4, pieces.shape[1])):
        np.testing.assert_array_equal(found.read(i, j), pieces[:, i:j])


FILES = ["data.source=files", "n_global=2", "n_atoms=3"]

PREPARED = [
    [],
    ["data.center=true"],
    ["data.scale=client", "data.divide_by=2"],
    ["data.center=true", "data.scale=features"],
    ["data.center=true", "data.whiten=true"],
    ["data.drop_constant=true", "dtype=float32"],
    ["data.window=4", "data.stride=3", "data.center=true"],
    ["evaluation.held_out=0.2", "data.center=true"],
    ["data.window=4", "evaluation.held_out=0.3"],
]


@pytest.mark.parametrize("overrides", PREPARED, ids=" ".join)
def test_prepared_samples_have_the_same_bits(tmp_path, overrides):
    constant = np.where(np.arange(7) == 3, 0.5, TABLE)
    np.save(tmp_path / "a.npy", constant)
    settings = load_settings(
        None, ["data.source=files", "n_global=2", "n_atoms=3", f"data.path={tmp_path}", *overrides]
    )
    one, other = (prepare(samples, settings, settings, "ada") for samples in both(tmp_path / "a.npy"))
    assert isinstance(other.Y, module.Stream)
    for name, numbers in one.preprocessing.numbers.items():
        np.testing.assert_array_equal(other.preprocessing.numbers[name], numbers)
    np.testing.assert_array_equal(other.Y[:, :], one.Y)
    assert (one.held_out is None) == (other.held_out is None)
    if one.held_out is not None:
        np.testing.assert_array_equal(other.held_out.Z[:, :], one.held_out.Z)
        np.testing.assert_array_equal(other.held_out.units, one.held_out.units)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_images_are_held_out_by_their_lowest_rows(tmp_path, share):
    np.save(tmp_path / "a.npy", rng.standard_normal((1, 30, 27)))
    overrides = ["data.patch=2", f"evaluation.held_out={share}"]
    settings = load_settings(None, [*FILES, f"data.path={tmp_path}", *overrides])
    one, other = (prepare(samples, settings, settings, "ada") for samples in both(tmp_path / "a.npy"))
    assert one.Y.shape[1] + one.held_out.Z.shape[1] >= 15 * 14  # every pixel is in a patch
    np.testing.assert_array_equal(other.Y[:, :], one.Y)
    np.testing.assert_array_equal(other.held_out.Z[:, :], one.held_out.Z)


@pytest.mark.parametrize(
    "overrides",
    [
        ["outliers=mask"],
        ["learner=projected"],
        ["privacy=private", "privacy.epsilon=1", "privacy.clip=1"],
        ["evaluation.pooled=true", "evaluation.held_out=0.1"],
    ],
    ids=lambda one: one[0],
)
def test_what_needs_all_samples_is_refused_with_the_cure(tmp_path, overrides):
    np.save(tmp_path / "a.npy", TABLE)
    settings = load_settings(None, ["data.source=files", f"data.path={tmp_path}", *overrides])
    with pytest.raises(SettingsError, match=r"ada are read block by block: change it, or set data.in_memory = true"):
        prepare(load_samples(tmp_path / "a.npy", stream=True), settings, settings, "ada")


def test_numbers_that_are_none_are_refused_with_their_place(tmp_path):
    bad = TABLE.copy()
    bad[301, 2], bad[400, 0] = np.nan, np.inf
    save_parquet(tmp_path / "a.parquet", bad)
    with pytest.raises(
        DataError, match=r"has 2 NaN or infinite of 3500 numbers, the first at sample 302, feature 3 \('x2'\)"
    ):
        load_samples(tmp_path / "a.parquet", drop="id", stream=True)
    bad[400, 0] = 1
    np.save(tmp_path / "a.npy", bad)
    with pytest.raises(SettingsError, match=r'data.missing = "mask": .* 1 NaN, .* sample 302, .*data.in_memory = true'):
        load_samples(tmp_path / "a.npy", missing="mask", stream=True)
    assert load_samples(tmp_path / "a.npy", missing="count", stream=True).data.shape == (7, 500)


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "a.arrow"])
def test_formats_that_do_not_stream_say_so(tmp_path, name):
    if name == "a.arrow":
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"x": [1.0, 2.0]})
        with pyarrow.ipc.new_stream(tmp_path / name, table.schema) as stream:
            stream.write_table(table)
    else:
        (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(SettingsError, match=rf"data.in_memory = false: .*{name}.*set data.in_memory = true"):
        load_samples(tmp_path / name, stream=True)


def test_a_file_that_changes_or_ends_early_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, TABLE)
    samples = load_samples(path, stream=True)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"a.npy: has changed since it was opened"):
        samples.data[:, :5]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a.npy: is not a NumPy .npy file, or is damaged or cut short"):
        load_samples(path, stream=True)


def test_a_sample_is_looked_at_and_said_to_be_one(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", TABLE)
    samples = load_samples(tmp_path / "a.npy", stream=True)
    assert looked_at(samples).notes == ()
    monkeypatch.setattr("perdl_client.data.samples._LOOKED_AT", 700)
    some = looked_at(samples)
    np.testing.assert_array_equal(some.data, TABLE[::5].T)
    assert some.notes == ("read block by block: of 500 samples every 5th, in all 100 were looked at",)
    np.testing.assert_array_equal(looked_at(samples, in_order=True).data, TABLE[:100].T)
