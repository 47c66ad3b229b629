"""Claims of the readers of tables, sound, video and arrays of images, and of folders of files."""

import datetime
import decimal
import struct
import sys
import wave

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from common.errors import DataError
from common.settings import load_settings, override_settings
from perdl.check.files import find_clients
from perdl_client.data.check import check_data
from perdl_client.data.sources import client_files
from perdl_client.formats.read import load_samples

TABLE = np.random.default_rng(0).standard_normal((7, 4))
NAMES = ("a", "größe", "c d", "e,f")
IMAGES = np.random.default_rng(1).standard_normal((6, 3, 5, 2))


def message(path, **settings):
    with pytest.raises(DataError) as caught:
        load_samples(path, **settings)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert path.name in text or path.parent.name in text
    return text


def arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


def save_table(path, table):
    """As Parquet, as Arrow's file, or as Arrow's stream, by the file's name."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, path)
    else:
        with pyarrow.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, max_chunksize=3)
    return path


TABLE_FILES = ["a.parquet", "a.feather", "a.arrow"]


@pytest.mark.parametrize("name", TABLE_FILES)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_tables_of_columns_come_back_with_their_names(tmp_path, name, dtype):
    truth = TABLE.astype(dtype)
    path = save_table(tmp_path / name, arrow(dict(zip(NAMES, truth.T, strict=True))))
    samples = load_samples(path)
    assert samples.data.dtype == dtype
    np.testing.assert_array_equal(samples.data, truth.T)
    assert (samples.shape, samples.names) == ((4,), NAMES)
    turned = load_samples(path, samples_in="columns")
    np.testing.assert_array_equal(turned.data, truth)
    assert (turned.shape, turned.names) == ((7,), ())  # the columns are samples: their names are no features'


def test_all_kinds_of_numbers_are_taken(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    columns = {
        "whole": pyarrow.array([1, 2, 3], pyarrow.int8()),
        "large": pyarrow.array([2**60, 2**63, 0], pyarrow.uint64()),
        "half": pyarrow.array(np.array([0.5, 1, 2], np.float16)),
        "truth": [True, False, True],
        "money": [decimal.Decimal("1.25"), decimal.Decimal("-2.50"), decimal.Decimal(3)],
    }
    data = load_samples(save_table(tmp_path / "a.parquet", pyarrow.table(columns))).data
    np.testing.assert_array_equal(data, [[1, 2, 3], [2**60, 2**63, 0], [0.5, 1, 2], [1, 0, 1], [1.25, -2.5, 3]])


@pytest.mark.parametrize("name", TABLE_FILES)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            ["x", "y"],
            "column 'bad' is of type string, not numbers; leave the column out (data.drop=bad; ",
        ),
        ([datetime.datetime(2020, 1, 1), None], "column 'bad' holds times"),
        ([[1.0, 2.0], [3.0]], "column 'bad' is nested (list<"),
        ([{"x": 1}, {"x": 2}], "column 'bad' is nested (struct<"),
        ([None, None], "column 'bad' is empty in every row; leave the column out (data.drop=bad"),
        ([b"x", b"y"], "column 'bad' is of type binary"),
        ([1.0, None], "1 NaN or infinite of 4 numbers, the first at sample 2, feature 2"),
    ],
)
def test_columns_that_are_no_numbers_are_named(tmp_path, name, values, expected):
    assert expected in message(save_table(tmp_path / name, arrow({"a": [1, 2], "bad": values})))


def test_categories_and_empty_tables_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(["x", "y"]).dictionary_encode()
    text = message(save_table(tmp_path / "a.parquet", pyarrow.table({"bad": column})))
    assert "column 'bad' is categorical (string); leave the column out (data.drop=bad" in text
    table = pyarrow.table({"a": pyarrow.array([], pyarrow.float64())})
    assert "holds 0 samples: 0 rows of 1 columns" in message(save_table(tmp_path / "b.parquet", table))
    (tmp_path / "c.parquet").write_bytes(b"no Parquet at all")
    assert "is not a Parquet file, or is damaged" in message(tmp_path / "c.parquet")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_the_index_of_pandas_is_no_feature(tmp_path, name):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE, columns=list("abcd"))
    indices = [frame, frame.rename_axis("hour"), frame.set_index(np.arange(7) * 3), frame.iloc[::-1]]
    for kept in indices if name == "a.parquet" else indices[:1]:
        (kept.to_parquet if name == "a.parquet" else kept.to_feather)(tmp_path / name)
        samples = load_samples(tmp_path / name)
        assert samples.names == tuple("abcd")
        np.testing.assert_array_equal(samples.data, kept.to_numpy().T)


def test_a_folder_called_like_a_partition_adds_no_feature(tmp_path):
    (tmp_path / "site=3").mkdir()
    path = save_table(tmp_path / "site=3" / "a.parquet", arrow({"a": [1.0, 2.0]}))
    np.testing.assert_array_equal(load_samples(path).data, [[1, 2]])


def test_names_of_a_csv(tmp_path):
    (tmp_path / "a.csv").write_text('x, "y,z" ,w\n1,2,3\n'.replace(' "y,z" ', '"y,z"'))
    assert load_samples(tmp_path / "a.csv").names == ("x", "y,z", "w")
    assert load_samples(tmp_path / "a.csv", samples_in="columns").names == ()
    (tmp_path / "b.csv").write_text("1,2,3\n")
    assert load_samples(tmp_path / "b.csv").names == ()


# Arrays of images, HDF5


@pytest.mark.parametrize("kind", ["npy", "npz", "h5"])
@pytest.mark.parametrize("images", [IMAGES, IMAGES[..., 0], np.asfortranarray(IMAGES)], ids=["c", "grey", "fortran"])
def test_an_array_of_images_is_one_sample_each_in_row_major_order(tmp_path, kind, images):
    path = tmp_path / f"a.{kind}"
    save_array(path, images)
    for samples_in in ("rows", "columns"):
        samples = load_samples(path, samples_in=samples_in)
        assert samples.shape == images.shape[1:]
        np.testing.assert_array_equal(samples.data, images.reshape(6, -1).T)
        np.testing.assert_array_equal(samples.data[:, 2].reshape(samples.shape), images[2])


def save_array(path, array, name="x"):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, **{name: array})
    else:
        with pytest.importorskip("h5py").File(path, "a") as file:
            file[name] = array


def test_folders_of_images_keep_their_shape(tmp_path):
    for mode, image in {"L": np.zeros((3, 5), np.uint8), "RGB": np.zeros((3, 5, 3), np.uint8)}.items():
        (tmp_path / mode).mkdir()
        Image.fromarray(image).save(tmp_path / mode / "1.png")
        assert load_samples(tmp_path / mode).shape == image.shape


def test_hdf5_takes_the_only_array_or_the_named_one(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.hdf5"
    save_array(path, TABLE, "site/x")
    save_array(path, np.arange(7), "site/labels")
    with h5py.File(path, "a") as file:
        file["site"].attrs["by"] = "nobody"
        file["note"] = "text"
        file["nothing"] = h5py.Empty("f8")
    np.testing.assert_array_equal(load_samples(path).data, TABLE.T)
    save_array(path, TABLE.astype("f4") + 1, "site/y")
    assert "has 2 2-D to 4-D numeric arrays; it holds " in message(path)
    for variable in ("site/y", "/site/y"):
        samples = load_samples(path, variable=variable)
        assert samples.data.dtype == np.float32
        np.testing.assert_array_equal(samples.data, TABLE.T.astype("f4") + 1)
    assert "has no array 'site'; it holds 'note'" in message(path, variable="site")
    assert "array 'note' has dtype object, not numbers" in message(path, variable="note")
    assert "array 'site/labels' is 1-D" in message(path, variable="site/labels")
    (tmp_path / "b.h5").write_bytes(b"no HDF5")
    assert "is not an HDF5 file, or is damaged" in message(tmp_path / "b.h5")


# Sound and video


@pytest.mark.parametrize(("dtype", "scale"), [("i2", 2**15), ("i4", 2**31), ("u1", 2**7), ("f4", 1), ("f8", 1)])
def test_sound_is_a_row_a_moment_and_scaled_by_its_type(tmp_path, dtype, scale):
    kind = np.dtype(dtype)
    lowest, highest = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else (-1.0, 1.0)
    sound = np.array([[lowest, highest], [0, 1], [1, 0]], kind)
    wavfile.write(tmp_path / "a.wav", 8000, sound)
    wavfile.write(tmp_path / "mono.wav", 8000, sound[:, 0])
    samples = load_samples(tmp_path / "a.wav", samples_in="columns").data
    assert samples.dtype == (np.float32 if dtype == "f4" else np.float64)
    np.testing.assert_allclose(samples, (sound.T.astype(float) - (128 if dtype == "u1" else 0)) / scale, rtol=1e-15)
    assert samples.min() == -1
    assert samples.max() <= 1 if kind.kind == "f" else samples.max() < 1
    np.testing.assert_array_equal(load_samples(tmp_path / "mono.wav").data, samples[:1])


def test_bad_sound(tmp_path):
    wavfile.write(tmp_path / "a.wav", 8000, np.zeros(0, np.int16))
    assert "holds 0 samples" in message(tmp_path / "a.wav")
    (tmp_path / "b.wav").write_bytes(b"RIFF and no more")
    assert "is not a WAV file, or is damaged" in message(tmp_path / "b.wav")


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4"])
@pytest.mark.parametrize("channels", [1, 2])
def test_sound_that_is_cut_short_is_refused(tmp_path, dtype, channels):
    path = tmp_path / "a.wav"
    wavfile.write(path, 8000, np.ones((100, channels), dtype))
    whole, frame = path.read_bytes(), channels * np.dtype(dtype).itemsize
    path.write_bytes(whole[: -3 * frame])
    assert "is cut short: 97 of 100 samples; copy or export it again" in message(path)
    path.write_bytes(whole + b"LIST\x04\0\0\0INFO")  # what comes after the sound does no harm
    assert load_samples(path).data.shape == (channels, 100)


def test_the_case_of_sound_cut_short(cases):
    assert "cut.wav: is cut short: 1099 of 1600 samples" in message(cases / "wav_cut_short" / "cut.wav")
    assert load_samples(cases / "wav_cut_short" / "whole.wav").data.shape == (1, 1600)


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF])
def test_sound_from_a_pipe_whose_length_is_not_known_is_whole(tmp_path, length):
    wavfile.write(tmp_path / "a.wav", 8000, np.arange(100, dtype=np.int16))
    whole = bytearray((tmp_path / "a.wav").read_bytes())
    struct.pack_into("<I", whole, 4, length)
    struct.pack_into("<I", whole, 40, length)
    (tmp_path / "a.wav").write_bytes(whole)
    np.testing.assert_array_equal(load_samples(tmp_path / "a.wav").data, [np.arange(100) / 2**15])


@pytest.mark.parametrize(
    ("tag", "name"), [(6, "A-law"), (7, "mu-law"), (2, "ADPCM"), (17, "IMA ADPCM"), (85, "MP3"), (999, "encoding 999")]
)
@pytest.mark.parametrize("extensible", [False, True])
def test_sound_in_another_encoding_is_named_with_the_cure(tmp_path, tag, name, extensible):
    head = struct.pack("<HHIIHH", 0xFFFE if extensible else tag, 1, 8000, 8000, 1, 8)
    more = struct.pack("<HHIH14s", 22, 8, 4, tag, b"\0" * 14) if extensible else b"\0\0"
    fmt = b"fmt " + struct.pack("<I", len(head + more)) + head + more
    chunks = b"WAVE" + fmt + b"data" + struct.pack("<I", 100) + bytes(100)
    (tmp_path / "a.wav").write_bytes(b"RIFF" + struct.pack("<I", len(chunks)) + chunks)
    assert f"holds sound in {name}, not in PCM; export it as WAV with 16-bit PCM" in message(tmp_path / "a.wav")


def test_a_video_is_read_as_frames(tmp_path):
    imageio = pytest.importorskip("imageio.v3", reason="imageio is not installed (extra: video)")
    pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed (extra: video)")
    ramp = np.linspace(40, 200, 32).astype(np.uint8)
    frames = (
        np.broadcast_to(ramp[None, None, :, None], (5, 16, 32, 3)) + np.arange(5, dtype=np.uint8)[:, None, None, None]
    )
    imageio.imwrite(tmp_path / "a.mp4", frames, fps=5, codec="libx264", plugin="FFMPEG", macro_block_size=16)
    samples = load_samples(tmp_path / "a.mp4")
    assert samples.shape == (16, 32, 3)
    np.testing.assert_allclose(samples.data, frames.reshape(5, -1).T / 255, atol=0.06)  # it is a lossy codec


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow"), ("a.h5", "h5py"), ("a.mp4", "imageio")])
def test_a_missing_package_is_named_with_its_cure(tmp_path, monkeypatch, name, module):
    (tmp_path / name).write_bytes(b"x")
    for loaded in [one for one in sys.modules if one.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    text = message(tmp_path / name)
    assert f"pip install {module}" in text


# A client's folder


def test_files_of_a_folder_are_joined_in_natural_order(tmp_path):
    for i, part in enumerate((TABLE[:3], TABLE[3:5], TABLE[5:])):
        np.savetxt(tmp_path / f"part{9 + i}.csv", part, delimiter=",", header="a,b,c,d", comments="", fmt="%.17g")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".DS_Store").touch()
    samples = load_samples(tmp_path)
    np.testing.assert_array_equal(samples.data, TABLE.T)
    assert samples.names == tuple("abcd")


def test_images_in_parts_and_sound_are_joined(tmp_path):
    for kind in ("arrays", "sounds"):
        (tmp_path / kind).mkdir()
    np.save(tmp_path / "arrays" / "1.npy", IMAGES[:2])
    np.save(tmp_path / "arrays" / "2.npy", IMAGES[2:])
    samples = load_samples(tmp_path / "arrays")
    assert samples.shape == (3, 5, 2)
    np.testing.assert_array_equal(samples.data, IMAGES.reshape(6, -1).T)
    for i in (1, 2):
        wavfile.write(tmp_path / "sounds" / f"{i}.wav", 8000, np.full((3, 2), i * 2**13, np.int16))
    np.testing.assert_array_equal(load_samples(tmp_path / "sounds").data, [[0.25] * 3 + [0.5] * 3] * 2)


def test_files_that_do_not_fit_together_name_both(tmp_path):
    np.save(tmp_path / "1.npy", TABLE)
    np.save(tmp_path / "2.npy", TABLE.T[:, :6])
    assert "2.npy: has 6 features per sample, but 4 in '1.npy'; the transpose would fit: turn that file" in message(
        tmp_path
    )
    np.save(tmp_path / "2.npy", TABLE[:, :3])
    assert "2.npy: has 3 features per sample, but 4 in '1.npy'; give all files the same" in message(tmp_path)
    np.save(tmp_path / "2.npy", np.where(TABLE[2, 1] == TABLE, np.nan, TABLE))
    assert "2.npy: has 1 NaN or infinite of 28 numbers, the first at sample 3, feature 2" in message(tmp_path)
    np.save(tmp_path / "1.npy", np.ones((2, 2, 3)))
    np.save(tmp_path / "2.npy", np.ones((2, 3, 2)))
    assert "2.npy: has samples of shape (3, 2), but (2, 3) in '1.npy'; give all one size" in message(tmp_path)


def test_columns_of_other_names_or_in_another_order_are_refused(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    assert "2.csv: column 1 is called 'b', but 'a' in '1.csv'; bring its columns into the same order" in message(
        tmp_path
    )
    (tmp_path / "2.csv").write_text("3,4\n")  # without names: nothing is known against it
    (tmp_path / "3.csv").write_text("a,c\n1,2\n")
    assert "3.csv: column 2 is called 'c', but 'b' in '1.csv'; give all files the same columns" in message(tmp_path)


def test_a_simulation_holds_its_clients_to_the_same_columns(tmp_path):
    for i, names in enumerate(["ab", "ab", "ac"], start=1):
        (tmp_path / str(i)).mkdir()
        save_table(tmp_path / str(i) / "a.parquet", arrow({name: [1.0, 2.0] for name in names}))
    settings = ["data.source=files", f"data.path={tmp_path}", "n_global=1"]
    check_data(load_settings(None, [*settings[:1], f"data.path={tmp_path}/[12]", *settings[2:], "n_clients=2"]))
    with pytest.raises(
        DataError, match=r"/3: column 2 is called 'c', but 'b' in '.*/1'; give all files the same columns"
    ):
        check_data(load_settings(None, [*settings, "n_clients=3"]))


# Anything at all


@pytest.mark.filterwarnings("ignore")
def test_damaged_files_give_samples_or_one_clear_line(tmp_path):
    rng = np.random.default_rng(0)
    table = arrow(dict(zip(NAMES, TABLE.T, strict=True)))
    paths = [save_table(tmp_path / name, table) for name in TABLE_FILES]
    paths += [tmp_path / "a.h5", tmp_path / "a.wav"]
    save_array(paths[-2], TABLE)
    wavfile.write(paths[-1], 8000, (TABLE * 1000).astype(np.int16))
    for path in paths:
        whole = path.read_bytes()
        for _ in range(40):
            flipped = bytearray(whole)
            for _ in range(rng.integers(1, 8)):
                flipped[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            path.write_bytes(flipped if rng.random() < 0.5 else whole[: rng.integers(1, len(whole))])
            try:
                outcome = load_samples(path).data
            except DataError as error:
                outcome = str(error)
            assert len(outcome.splitlines()) == 1 if isinstance(outcome, str) else np.isfinite(outcome).all()


def test_the_same_numbers_lie_the_same_way_in_memory_whatever_the_file(tmp_path):
    rows = np.random.default_rng(0).standard_normal((30, 4))
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "b.npy", np.asfortranarray(rows))
    np.save(tmp_path / "c.npy", rows.T.copy())
    for name, way in {"a": "rows", "b": "rows", "c": "columns"}.items():
        data = load_samples(tmp_path / f"{name}.npy", samples_in=way).data
        assert np.array_equal(data, rows.T)
        assert data.T.flags.c_contiguous, name


def test_a_folder_of_images_holds_nothing_else(tmp_path):
    for i in range(2):
        Image.fromarray(np.full((3, 4), i, "u1")).save(tmp_path / f"{i}.png")
    for name in (".DS_Store", "Thumbs.db", "_draft.png"):
        (tmp_path / name).write_bytes(b"x")
    assert load_samples(tmp_path).data.shape == (12, 2)
    assert [
        path.name for path in client_files(load_settings(None, ["data.source=files", f"data.path={tmp_path}"]))
    ] == [
        "0.png",
        "1.png",
    ]
    np.save(tmp_path / "more.npy", TABLE)
    assert "holds '0.png' and 'more.npy'; keep files of one format alone" in message(tmp_path)


def test_sound_in_one_folder_has_one_rate(tmp_path):
    for name, rate in {"a": 8000, "b": 8000}.items():
        wavfile.write(tmp_path / f"{name}.wav", rate, np.ones((5, 2), np.float32))
    assert load_samples(tmp_path).data.shape == (2, 10)
    wavfile.write(tmp_path / "c.wav", 44_100, np.ones((5, 2), np.float32))
    assert "c.wav: has 44100 samples a second, but 8000 in 'a.wav'; bring them to the same rate" in message(tmp_path)


def test_clients_of_a_simulation_have_sound_of_one_rate(tmp_path):
    for i, rate in enumerate((8000, 44_100)):
        wavfile.write(tmp_path / f"{i}.wav", rate, np.ones((5, 2), np.float32))
    settings = load_settings(None, ["n_clients=2", "n_global=1", "data.source=files", f"data.path={tmp_path}"])
    with pytest.raises(DataError, match=r"1\.wav: has 44100 samples a second, but 8000 in '.*0\.wav'"):
        check_data(settings)


def test_sound_of_24_bits_is_joined_too(tmp_path):
    values = np.array([-(2**23), 0, 2**22], "<i4")
    for name in "ab":
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 3, 8000, 0, "NONE", ""))
            file.writeframes(b"".join(value.tobytes()[:3] for value in values))
    np.testing.assert_array_equal(load_samples(tmp_path).data, [[-1, 0, 0.5] * 2])


def test_a_link_that_leads_nowhere_is_called_so(tmp_path):
    (tmp_path / "a.npy").symlink_to(tmp_path / "a.npy")
    assert "is a link that leads nowhere" in message(tmp_path / "a.npy")


def test_names_are_the_same_whatever_their_capitals_spaces_or_mark_of_a_comment(tmp_path):
    (tmp_path / "data").mkdir()
    for i, head in enumerate(["Temp,Load", "# temp, load", "#temp,LOAD "]):
        (tmp_path / "data" / f"{i}.csv").write_text(f"{head}\n1,2\n3,5\n")
    assert load_samples(tmp_path / "data").names == ("Temp", "Load")
    (tmp_path / "data" / "3.csv").write_text("load,temp\n1,2\n")
    assert "column 1 is called 'load', but 'Temp' in '0.csv'; bring its columns" in message(tmp_path / "data")


LEFT_BEHIND = ("~$1.csv", ".~lock.1.csv#", "1.csv~", "#1.csv#", "._1.csv", "Thumbs.db", "desktop.ini", "Icon\r")


def test_what_other_programs_leave_behind_is_no_client_and_no_part_of_one(tmp_path):
    for name in (*LEFT_BEHIND, "1.csv", "2.csv"):
        (tmp_path / name).write_text("1,2\n3,4\n")
    (tmp_path / "__MACOSX").mkdir()
    assert load_samples(tmp_path).data.shape == (2, 4)
    settings = load_settings(None, ["data.source=files", f"data.path={tmp_path}"])
    for place in (tmp_path, tmp_path / "*", tmp_path / "*.csv*"):
        found = client_files(override_settings(settings, {"data.path": str(place)}))
        assert [path.name for path in found] == ["1.csv", "2.csv"]
    everything = sorted(map(str, tmp_path.iterdir()))  # as a shell that matches hidden files too
    assert [path.name for path in find_clients(everything, settings)] == ["1.csv", "2.csv"]
