"""Claims of the data readers: what numpy wrote comes back, and every bad file is one clear line."""

import gzip
import re
import struct
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from PIL import Image

from common.errors import DataError, SettingsError
from perdl_client.formats.idx import read_idx
from perdl_client.formats.read import load_samples

TABLE = np.random.default_rng(0).standard_normal((7, 4))  # 7 samples, 4 features
PIXELS = np.random.default_rng(1).integers(0, 256, (6, 3, 5), dtype=np.uint8)
IDX_TYPES = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def idx_bytes(array, dtype="u1"):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, IDX_TYPES[dtype], array.ndim, *array.shape)
    return header + array.astype(dtype).tobytes()


def write_csv(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def message(path, **settings):
    with pytest.raises(DataError) as caught:
        load_samples(path, **settings)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert path.name in text or path.parent.name in text
    return text


# Round trips


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", ">f8", "i1", "u1", "i8", "u4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_comes_back_with_samples_in_columns(tmp_path, dtype, order):
    truth = np.asarray(10 * TABLE, dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", truth)
    samples = load_samples(tmp_path / "a.npy").data
    assert type(samples) is np.ndarray
    assert samples.dtype == (np.float32 if dtype.endswith("f4") else np.float64)
    assert samples.dtype.isnative
    assert samples.flags.c_contiguous or samples.flags.f_contiguous
    np.testing.assert_array_equal(samples, truth.T.astype(samples.dtype))
    np.testing.assert_array_equal(load_samples(tmp_path / "a.npy", samples_in="columns").data, samples.T)


def test_float_npy_is_memory_mapped_and_read_only(tmp_path):
    np.save(tmp_path / "a.npy", TABLE)
    samples = load_samples(str(tmp_path / "a.npy")).data
    bases = [samples]
    while getattr(bases[-1], "base", None) is not None:
        bases.append(bases[-1].base)
    assert any(isinstance(base, np.memmap) for base in bases)
    assert not samples.flags.writeable


def test_npy_without_write_permission_can_be_read(tmp_path):
    np.save(tmp_path / "a.npy", TABLE)
    (tmp_path / "a.npy").chmod(0o444)
    np.testing.assert_array_equal(load_samples(tmp_path / "a.npy").data, TABLE.T)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_takes_the_only_matrix_or_the_named_one(tmp_path, save):
    save(tmp_path / "a.npz", Y=TABLE, labels=np.arange(7), name="text")
    np.testing.assert_array_equal(load_samples(tmp_path / "a.npz").data, TABLE.T)
    save(tmp_path / "b.npz", Y=TABLE, Z=TABLE.astype("f4"))
    samples = load_samples(tmp_path / "b.npz", variable="Z", samples_in="columns").data
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples, TABLE.astype("f4"))


def test_mat_takes_the_only_matrix_or_the_named_one(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"Y": TABLE, "name": "text", "settings": {"k": 1}})
    np.testing.assert_array_equal(load_samples(tmp_path / "a.mat").data, TABLE.T)
    scipy.io.savemat(tmp_path / "b.mat", {"Y": TABLE, "Z": TABLE > 0, "S": TABLE.astype("f4")}, do_compression=True)
    np.testing.assert_array_equal(load_samples(tmp_path / "b.mat", variable="Z").data, TABLE.T > 0)
    assert load_samples(tmp_path / "b.mat", variable="S").data.dtype == np.float32


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [[], ["a", "größe", "c d", '"e,f;g"']])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_with_any_delimiter_header_and_line_end(tmp_path, delimiter, header, end, encoding):
    rows = ([header] if header else []) + [[repr(float(x)) for x in row] for row in TABLE]
    text = end.join(delimiter.join(row) for row in rows)
    for name in ("a.csv", "a.tsv", "A.CSV"):
        path = write_csv(tmp_path / name, text + end, encoding)
        np.testing.assert_array_equal(load_samples(path).data, TABLE.T)


def test_csv_spaces_quotes_blank_lines_and_missing_last_line_end(tmp_path):
    path = write_csv(tmp_path / "a.csv", '\nx,y\n\n1, 2\n   \n"-3.5",+4e1\n')
    np.testing.assert_array_equal(load_samples(path).data, [[1, -3.5], [2, 40]])
    np.testing.assert_array_equal(load_samples(write_csv(tmp_path / "b.csv", "1,2,3")).data, [[1], [2], [3]])
    np.testing.assert_array_equal(load_samples(write_csv(tmp_path / "c.csv", "x\n1\n2")).data, [[1, 2]])


@pytest.mark.parametrize("dtype", IDX_TYPES)
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images.idx3-ubyte", "x.idx", "x.ubyte"])
def test_idx_images_are_flattened_and_only_bytes_scaled(tmp_path, dtype, name):
    images = PIXELS // 2
    truth = images.reshape(6, 15).T / (255 if dtype == "u1" else 1)
    (tmp_path / name).write_bytes(idx_bytes(images, dtype))
    (tmp_path / f"idx-{name}.gz").write_bytes(gzip.compress(idx_bytes(images, dtype)))
    for path in (tmp_path / name, tmp_path / f"idx-{name}.gz"):
        samples = load_samples(path, samples_in="columns").data
        assert samples.dtype == (np.float32 if dtype == ">f4" else np.float64)
        np.testing.assert_array_equal(samples, truth)
        np.testing.assert_array_equal(read_idx(path), images)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "tiff", "PNG"])
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
def test_folder_of_images_in_natural_order(tmp_path, suffix, shape):
    images = np.random.default_rng(2).integers(0, 256, (11, *shape), dtype=np.uint8)
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"frame{i}.{suffix}")
    (tmp_path / "Thumbs.db").write_text("left by Windows")
    (tmp_path / "._frame0.png").write_bytes(b"left by a Mac")
    np.testing.assert_array_equal(load_samples(tmp_path).data, images.reshape(11, -1).T / 255)


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "gif", "webp"])
def test_lossy_and_palette_images_are_read_as_intensities(tmp_path, suffix):
    Image.fromarray(np.full((4, 5, 3), 128, dtype=np.uint8)).save(tmp_path / f"a.{suffix}")
    np.testing.assert_allclose(load_samples(tmp_path).data, np.full((60, 1), 128 / 255), atol=3 / 255)


@pytest.mark.parametrize(("suffix", "order"), [("png", "<"), ("tif", "<"), ("tif", ">")])
def test_images_of_16_bits_have_the_range_of_those_of_8_bits(tmp_path, suffix, order):
    image = np.array([[0, 257, 40_000], [65_535, 1, 2]], f"{order}u2")
    Image.fromarray(image).save(tmp_path / f"a.{suffix}")
    samples = load_samples(tmp_path).data
    assert samples.dtype == np.float64
    np.testing.assert_array_equal(samples, image.reshape(1, -1).T / 65_535)
    assert samples[1] == 1 / 255


def test_a_client_of_16_bit_images_is_on_the_scale_of_the_others(cases):
    rms = [
        np.sqrt(np.mean(load_samples(cases / "images_16bit_one_client" / client).data ** 2))
        for client in ("s0", "s1", "s2")
    ]
    assert max(rms) < 1.2 * min(rms)


def test_float_integer_and_binary_images_are_not_scaled(tmp_path):
    for name, image in {
        "whole": np.full((2, 3), 40_000, dtype=np.int32),
        "float": np.full((2, 3), 0.25, dtype=np.float32),
        "binary": np.eye(2, 3, dtype=bool),
    }.items():
        (tmp_path / name).mkdir()
        Image.fromarray(image).save(tmp_path / name / "a.tif")
        samples = load_samples(tmp_path / name).data
        assert samples.dtype == (np.float32 if name == "float" else np.float64)
        np.testing.assert_array_equal(samples, image.reshape(1, -1).T)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_images_are_turned_as_their_exif_tag_says(tmp_path, suffix, orientation):
    stored = Image.fromarray(np.kron(np.arange(6).reshape(2, 3) * 50, np.ones((8, 8))).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    seen = load_samples(tmp_path)
    image = np.asarray(stored)
    turned = (image, image[:, ::-1], image[::-1, ::-1], image[::-1])  # as cameras number them: tags 1 to 8
    expected = (*turned, *(turned[i].T for i in (0, 3, 2, 1)))[orientation - 1]
    assert seen.shape[:2] == expected.shape
    got = seen.data[:, 0].reshape(seen.shape)
    np.testing.assert_allclose(got if got.ndim == 2 else got[..., 0], expected / 255, atol=0.05)


def test_photographs_stored_turned_are_the_same_as_those_stored_upright(cases):
    for client in ("s0", "s1", "s2"):
        folder = cases / "exif_orientation"
        turned, upright = (load_samples(folder / name / client).data for name in ("exif2", "exif2_ok"))
        np.testing.assert_allclose(turned, upright, atol=8.5 / 255)  # s1 went through a lossy codec twice


def test_an_image_with_damaged_exif_tags_is_read_as_it_is(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (4, 5), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png", exif=b"Exif\0\0no tags at all")
    np.testing.assert_array_equal(load_samples(tmp_path).data, image.reshape(1, -1).T / 255)


# Errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a,b\n1,2\n3,x\n",
            r"line 3, column 2 \('b'\) is 'x', not a number; mend it, leave the column out \(data.drop=b; ",
        ),
        ("1,2\n\n3,oh my what a very long text\n", "line 3, column 2 is 'oh my what a very lo…', not a number"),
        ("1,abc\n2,3\n", "line 1, column 2 is 'abc', not a number"),
        ("1,2\n3,\n", "line 2, column 2 is empty"),
        (",a,b\n0,1,2\n", "line 1, column 1 is empty; .*index column"),
        (
            ",a,b\n0,1,2\n1,nan,\n2,NA,3\n",
            r"line 1, column 1 is empty; .*; cells that .*: 3 in all, the next in line 3, column 2 \('a'\)$",
        ),
        ("a,b,c\n1,,\n2,3,4\n5,nan,6\n", r"line 2, column 2 .* is empty; .*: 3 in all, the next in line 2, column 3"),
        ("a,b\nnan,2\n3,\n", r"line 3, column 2 \('b'\) is empty; .*; cells that .*: 2 in all$"),
        ("1,2\n3,4,5\n", "line 2 has 3 cells, line 1 has 2; make all lines equal"),
        ("a,b\n1,5,2,5\n3,5,4,5\n", "line 2 has 4 cells, line 1 has 2; .*decimal comma"),
        ("a;b\n1;2\n1,5;2,5\n", r"line 3, column 1 \('a'\) is '1,5', with a decimal comma; export decimal points"),
        ('1,"2,5"\n', "line 1, column 2 is '2,5', with a decimal comma"),
        ("1,5\t2\n", "line 1, column 1 is '1,5', with a decimal comma"),
        ("a,b\n", "0 samples: only one line, without numbers"),
        ("\n \n", "0 samples: all its lines are blank"),
        (
            "a,b\n1,2\n\n3,nan\ninf,4\n",
            r"2 NaN or infinite of 6 numbers, .* sample 2, feature 2 \('b'\), in line 4, column 2;",
        ),
        ("1,1e999\n", r"1 NaN or infinite of 2 .* sample 1, feature 2, in line 1, column 2;"),
        ("1,2\x00\n", "line 1, column 2 is .*not a number"),
        ('1,"2\n3,4\n', "line 1 has a quote that is not closed"),
        ("1,1_000\n", "line 1, column 2 is '1_000', not a number"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_bad_csv_names_line_column_and_cure(tmp_path, text, expected):
    path = write_csv(tmp_path / "bad.csv", text)
    with pytest.raises(DataError, match=expected):
        load_samples(path)
    message(path)


def test_csv_position_follows_the_layout(tmp_path):
    path = write_csv(tmp_path / "a.csv", "1,2,3\n4,5,nan\n")
    assert "sample 2, feature 3, in line 2, column 3;" in message(path)
    assert "sample 3, feature 2, in line 2, column 3;" in message(path, samples_in="columns")


def test_csv_in_another_encoding_says_so(tmp_path):
    for encoding in ("utf-16", "latin-1"):
        assert "is not UTF-8 text" in message(write_csv(tmp_path / "a.csv", "größe,b\n1,2\n", encoding))
    assert "is not UTF-8 text" in message(write_csv(tmp_path / "b.csv", "1,2\n" * 9000 + "3,é\n", "latin-1"))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.arange(5.0), r"1-D, of shape \(5,\).*reshape\(1, -1\) makes it one row, reshape\(-1, 1\) one column"),
        (np.float64(3.0), r"0-D, of shape \(\)"),
        (np.ones((2, 3, 1, 2, 4)), r"5-D, of shape \(2, 3, 1, 2, 4\).*save array\.reshape\(len\(array\), -1\)"),
        (np.ones((2, 0, 4)), r"holds 0 numbers: its shape is \(2, 0, 4\)"),
        (np.ones((2, 3), dtype=complex), r"is complex \(complex128\); save its real part"),
        (np.array([["a", 1]], dtype=object), r"dtype object, not numbers; save it after array\.astype\(float\)"),
        (np.array([["a", "b"]]), "dtype str32, not numbers"),
        (np.zeros((2, 2), dtype="M8[s]"), r"dtype datetime64\[s\], not numbers"),
        (np.zeros((2, 2), dtype=[("x", "f8")]), "dtype structured, not numbers"),
        (np.empty((0, 5)), r"holds 0 samples: its shape is \(0, 5\)"),
        (np.empty((5, 0)), r"holds 0 numbers: its shape is \(5, 0\)"),
        (
            np.array([[1, 2], [3, np.nan], [np.inf, 4]]),
            "2 NaN or infinite of 6 numbers, the first at sample 2, feature 2",
        ),
        (np.full((1, 1), 2.0, dtype=np.longdouble) ** 16000, "1 NaN or infinite of 1"),
    ],
)
def test_bad_array_names_what_is_wrong_and_cure(tmp_path, array, expected):
    np.save(tmp_path / "bad.npy", array)
    np.savez(tmp_path / "bad.npz", Y=array)
    for path in (tmp_path / "bad.npy", tmp_path / "bad.npz"):
        with pytest.raises(DataError, match=expected):
            load_samples(path)
        message(path)


def test_several_or_no_matrices_are_listed(tmp_path):
    np.savez(tmp_path / "a.npz", Y=TABLE, Z=TABLE, labels=np.arange(7))
    scipy.io.savemat(tmp_path / "a.mat", {"Y": TABLE, "Z": TABLE, "name": "text"})
    np.savez(tmp_path / "b.npz", x=np.arange(7), y=np.ones((2, 2, 2, 1, 1)))
    np.savez(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", **{f"x{i}": TABLE for i in range(30)})
    for name in ("a.npz", "a.mat"):
        text = message(tmp_path / name)
        assert re.search(r"has 2 2-D (to 4-D )?numeric arrays", text)
        assert "'Y' (7, 4)" in text
        assert "'Z' (7, 4)" in text
        assert "set variable to the one to use" in text
        text = message(tmp_path / name, variable="y")
        assert "has no array 'y'" in text
        assert "'Y' (7, 4)" in text
    assert "has no 2-D to 4-D numeric array; it holds 'x' (7,) int64, 'y' (2, 2, 2, 1, 1) float64" in message(
        tmp_path / "b.npz"
    )
    assert "it holds no array" in message(tmp_path / "c.npz")
    assert "and 20 more" in message(tmp_path / "d.npz")


def test_variable_is_refused_where_files_have_no_names(tmp_path):
    np.save(tmp_path / "a.npy", TABLE)
    assert "variable = 'Y' is for .npz, .mat and HDF5 files" in message(tmp_path / "a.npy", variable="Y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (scipy.sparse.eye_array(3).tocsc(), "array 'Y' is of type sparse; save full(Y)"),
        (np.eye(2) * 1j, "complex"),
        (np.array([[1, "a"]], dtype=object), "array 'Y' is of type cell; save the samples"),
        ("text", "array 'Y' is of type char"),
        (np.ones((2, 2, 2)), "3-D"),
        (np.array([[np.nan, 1.0]]), "1 NaN or infinite of 2"),
    ],
)
def test_bad_mat_variable_is_named(tmp_path, value, expected):
    scipy.io.savemat(tmp_path / "a.mat", {"Y": value})
    assert expected in message(tmp_path / "a.mat")


def test_mat_with_a_type_code_that_crashes_scipy_is_refused(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"Y": TABLE})
    whole = (tmp_path / "a.mat").read_bytes()
    tag = struct.pack("<II", 9, 8 * TABLE.size)
    assert whole.count(tag) == 1
    for code in (0x8009, 11, 0x00040000 | 11):
        (tmp_path / "a.mat").write_bytes(whole.replace(tag, struct.pack("<II", code, 8 * TABLE.size)))
        assert "is not a MATLAB .mat file, or is damaged" in message(tmp_path / "a.mat")


# Files of MATLAB v7.3


def save_v73(path, arrays):
    """As MATLAB does: axes in reverse order, the class as an attribute, complex numbers as pairs."""
    with pytest.importorskip("h5py").File(path, "w", userblock_size=512) as file:
        for name, (array, kind) in arrays.items():
            file[name] = np.asarray(array).T
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(128))
    return path


@pytest.mark.parametrize("name", ["a.mat", "a.h5"])
def test_matlab_v73_is_read_as_matlab_has_it(tmp_path, name):
    path = save_v73(tmp_path / name, {"X": (TABLE, "double"), "note": (np.zeros((1, 4), np.uint16), "char")})
    np.testing.assert_array_equal(load_samples(path).data, TABLE.T)
    np.testing.assert_array_equal(load_samples(path, samples_in="columns").data, TABLE)
    assert "array 'note' is of type char; save the samples as a matrix" in message(path, variable="note")
    assert "has no array 'Y'; it holds 'X' (7, 4) double, 'note' (1, 4) char" in message(path, variable="Y")


def test_all_axes_of_images_in_matlab_v73_are_turned(tmp_path):
    images = np.arange(120.0).reshape(4, 5, 6)
    samples = load_samples(save_v73(tmp_path / "a.h5", {"X": (images, "double")}))
    assert samples.shape == (5, 6)
    np.testing.assert_array_equal(samples.data, images.reshape(4, -1).T)
    path = save_v73(tmp_path / "a.mat", {"X": (images, "double")})
    assert "array 'X' is 3-D, of shape (4, 5, 6); a 2-D array is needed" in message(path)  # as up to v7


def test_what_matlab_v73_has_beside_matrices_is_named(tmp_path):
    path = save_v73(tmp_path / "a.mat", {"#refs#/a": (TABLE, "double"), "C": (np.zeros((1, 2), "u8"), "cell")})
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "a") as file:
        file["S/jc"], file["S/ir"], file["S/data"] = np.arange(5), np.arange(4), np.ones(4)
        file["S"].attrs["MATLAB_sparse"] = np.uint64(7)
        file["S"].attrs["MATLAB_class"] = np.bytes_("double")
        file["Z"] = np.zeros((4, 7), [("real", "f8"), ("imag", "f8")])
        file["Z"].attrs["MATLAB_class"] = np.bytes_("double")
        file["E"] = np.array([0, 4], "u8")
        file["E"].attrs["MATLAB_class"] = np.bytes_("double")
        file["E"].attrs["MATLAB_empty"] = np.uint8(1)
    assert "array 'C' is of type cell" in message(path, variable="C")
    assert "array 'S' is of type sparse; save full(S)" in message(path, variable="S")
    assert "array 'Z' is of type complex; save real(Z)" in message(path, variable="Z")
    assert "array 'E' holds 0 samples: its shape is (0, 4)" in message(path, variable="E")
    assert "has no array 'a'; it holds 'C' (1, 2) cell, 'E' (0, 4) double, 'S' (7, 4) sparse" in message(
        path, variable="a"
    )


def test_the_case_of_matlab_v73(cases):
    pytest.importorskip("h5py")
    for name in ("1.h5", "1.mat"):
        assert load_samples(cases / "matlab73_turned" / name).data.shape == (300, 200)


def test_matlab_v73_without_h5py_names_the_extra(tmp_path, monkeypatch):
    path = save_v73(tmp_path / "a.mat", {"X": (TABLE, "double")})
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "without the package h5py: pip install h5py" in message(path)


@pytest.mark.parametrize("start", [b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n"])
def test_damaged_matlab_v73(tmp_path, start):
    pytest.importorskip("h5py")
    (tmp_path / "a.mat").write_bytes(start + bytes(1000))
    assert "is not an HDF5 file, or is damaged or cut short" in message(tmp_path / "a.mat")


def test_missing_file_suggests_near_names(tmp_path):
    np.save(tmp_path / "patient_7.npy", TABLE)
    assert "does not exist; did you mean 'patient_7.npy'?" in message(tmp_path / "patient7.npy")
    assert "does not exist; correct the path" in message(tmp_path / "zzz.csv")
    assert "nor does its folder" in message(tmp_path / "no" / "zzz.csv")
    assert "does not exist" in message(tmp_path / ("x" * 300 + ".npy"))


def test_unknown_extension_lists_the_known(tmp_path):
    for name in ("a.xlsx", "a", "a.csv.gz"):
        (tmp_path / name).write_text("1,2")
        text = message(tmp_path / name)
        assert "unknown extension" in text
        assert ".npy, .npz, .csv, .tsv, .mat, .parquet" in text


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv", "a.tsv", "a.mat", "a-idx3-ubyte", "a-idx3-ubyte.gz"])
def test_empty_file_is_named_as_such(tmp_path, name):
    (tmp_path / name).touch()
    assert "is empty (0 bytes)" in message(tmp_path / name)


def test_npy_cut_short(tmp_path):
    np.save(tmp_path / "a.npy", TABLE)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-8])
    assert "is not a NumPy .npy file, or is damaged or cut short" in message(tmp_path / "a.npy")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp", "npy", "npz", "mat"])
def test_whatever_is_cut_short_is_refused(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    if suffix in ("npy", "npz"):
        (np.save if suffix == "npy" else np.savez)(path, TABLE)
    elif suffix == "mat":
        scipy.io.savemat(path, {"Y": TABLE})
    else:
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)).save(path)
    whole = path.read_bytes()
    place = path if suffix in ("npy", "npz", "mat") else tmp_path
    load_samples(place)
    for share in (0.25, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        assert "cut short" in message(place)


def test_file_that_may_not_be_read(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", TABLE)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert "cannot be read: Permission denied; check" in message(tmp_path / "a.npy")


def test_more_than_memory_holds(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", TABLE)

    def refuse(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("numpy.load", refuse)
    assert "does not fit into memory" in message(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x00\x00\x07\x03" + bytes(20), "not an IDX file: it starts '00 00 07 03'"),
        (b"PK\x03\x04 zip", "not an IDX file: it starts '50 4b 03 04'"),
        (b"\x00\x00\x08\x00", "not an IDX file"),
        (b"\x00", "not an IDX file: it starts '00'"),
        (idx_bytes(PIXELS)[:10], "is cut short: 10 bytes, its header alone has 16"),
        (idx_bytes(PIXELS)[:-1], "holds 105 bytes, but shape (6, 3, 5) needs 106"),
        (idx_bytes(PIXELS) + b"x", "holds 107 bytes, but shape (6, 3, 5) needs 106"),
        (gzip.compress(idx_bytes(PIXELS))[:-12], "is gzip data cut short"),
        (gzip.compress(idx_bytes(PIXELS))[:-1] + b"x", "damaged"),
        (idx_bytes(np.arange(5)), "labels rather than samples"),
        (idx_bytes(PIXELS[:0]), "holds 0 samples"),
        (idx_bytes(PIXELS[:, :0]), "holds 0 numbers"),
        (idx_bytes(np.full((2, 2), np.nan), ">f8"), "4 NaN or infinite of 4"),
    ],
)
def test_bad_idx_gives_bytes_and_cure(tmp_path, raw, expected):
    (tmp_path / "bad-idx3-ubyte").write_bytes(raw)
    assert expected in message(tmp_path / "bad-idx3-ubyte")


def test_number_of_features_and_the_transpose_that_fits(tmp_path):
    np.save(tmp_path / "a.npy", TABLE)
    assert load_samples(tmp_path / "a.npy", n_features=4).data.shape == (4, 7)
    text = message(tmp_path / "a.npy", n_features=7)
    assert 'has 4 features per sample, but 7 are expected; the transpose would fit: set samples_in = "columns"' in text
    assert 'set samples_in = "rows"' in message(tmp_path / "a.npy", n_features=4, samples_in="columns")
    text = message(tmp_path / "a.npy", n_features=9)
    assert "has 4 features per sample, but 9 are expected; give every client" in text
    assert "transpose" not in text
    (tmp_path / "idx").write_bytes(idx_bytes(PIXELS))
    assert "transpose" not in message(tmp_path / "idx", n_features=6)  # images are samples whatever samples_in says


def test_unknown_layout_is_a_settings_error(tmp_path):
    with pytest.raises(SettingsError, match='samples_in is \'Rows\'; it must be "rows" or "columns"'):
        load_samples(tmp_path / "a.npy", samples_in="Rows")


def test_images_that_differ_are_both_named(tmp_path):
    for folder, second in {"size": np.zeros((2, 4), np.uint8), "mode": np.zeros((2, 3, 3), np.uint8)}.items():
        (tmp_path / folder).mkdir()
        Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / folder / "1.png")
        Image.fromarray(second).save(tmp_path / folder / "2.png")
    assert "2.png: is 4x2 L, but '1.png' is 3x2 L" in message(tmp_path / "size")
    assert "2.png: is 3x2 RGB, but '1.png' is 3x2 L" in message(tmp_path / "mode")


def test_folder_or_image_that_is_no_data_set(tmp_path):
    assert "holds no images (.png, " in message(tmp_path)
    assert "it is empty" in message(tmp_path)
    np.save(tmp_path / "a.npy", TABLE)
    (tmp_path / "sub").mkdir()
    assert "holds 'a.npy' and 'sub'; keep files of one format alone" in message(tmp_path)
    (tmp_path / "a.npy").unlink()
    assert "holds folders ('sub', ...), not samples; give one of them" in message(tmp_path)
    (tmp_path / "a.txt").touch()
    assert "its 2 entries are of other kinds; give a file" in message(tmp_path)
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    assert "holds 'a.png' and 'a.txt'; keep files of one format alone" in message(tmp_path)
    (tmp_path / "a.txt").unlink()
    assert "holds 'a.png' and 'sub'; keep files of one format alone" in message(tmp_path)
    (tmp_path / "sub").rmdir()
    assert "is a single image; give the folder" in message(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    assert "a.png: is not an image, or is damaged" in message(tmp_path)


def test_animation_is_refused(tmp_path):
    frames = [Image.fromarray(image) for image in PIXELS]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert "a.gif: holds 6 frames; save each as an image of its own" in message(tmp_path)


def test_line_breaks_in_names_do_not_break_the_message(tmp_path):
    np.savez(tmp_path / "a\nb.npz", **{"x\ny": np.ones(3)})
    with pytest.raises(DataError) as caught:
        load_samples(tmp_path / "a\nb.npz")
    assert len(str(caught.value).splitlines()) == 1


# Anything at all


def valid_files(folder):
    np.save(folder / "a.npy", TABLE)
    np.savez(folder / "a.npz", Y=TABLE, labels=np.arange(7))
    np.savez_compressed(folder / "b.npz", Y=TABLE)
    scipy.io.savemat(folder / "a.mat", {"Y": TABLE, "name": "text"})
    scipy.io.savemat(folder / "b.mat", {"Y": TABLE}, do_compression=True)
    scipy.io.savemat(folder / "c.mat", {"Y": TABLE}, format="4")
    np.savetxt(folder / "a.csv", TABLE, delimiter=",", header="a,b,c,d", comments="")
    np.savetxt(folder / "a.tsv", TABLE, delimiter="\t")
    (folder / "a-idx3-ubyte").write_bytes(idx_bytes(PIXELS))
    (folder / "a-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(PIXELS)))
    for suffix in ("png", "jpg", "bmp", "tif", "gif", "webp"):
        (folder / suffix).mkdir()
        Image.fromarray(PIXELS[0]).save(folder / suffix / f"a.{suffix}")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damage(raw, rng):
    match rng.integers(4):
        case 0:
            return rng.bytes(int(rng.integers(1, 400)))
        case 1:
            return raw[: rng.integers(1, len(raw))]
        case 2:
            return raw[: rng.integers(1, min(len(raw), 140))] + rng.bytes(int(rng.integers(1, 200)))
        case _:
            flipped = bytearray(raw)
            for _ in range(rng.integers(1, 8)):
                flipped[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
            return bytes(flipped)


def samples_or_error(path):
    try:
        return load_samples(path).data
    except DataError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_give_samples_or_one_clear_line(tmp_path, seed):
    rng = np.random.default_rng(seed)
    for path in valid_files(tmp_path):
        whole = path.read_bytes()
        target = path.parent if path.parent != tmp_path else path
        for _ in range(30):
            path.write_bytes(damage(whole, rng))
            outcome = samples_or_error(target)
            if isinstance(outcome, str):
                assert len(outcome.splitlines()) == 1
                assert str(tmp_path) in outcome
            else:
                assert outcome.ndim == 2
                assert np.isfinite(outcome).all()


def test_with_missing_cells_allowed_a_wrong_cell_is_named_and_no_missing_one(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["a,b,c", *(f"{i},{i + 1},{2 * i}.5" for i in range(20))]
    rows[3], rows[7] = "1,,2", "1,abc,2"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"line 8, column 2.*abc") as told:
        load_samples(path, missing="mask")
    assert "line 4" not in str(told.value)
    rows[7] = "1,1_000,2"  # a number for Python, and for nobody else
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"line 8, column 2.*1_000"):
        load_samples(path, missing="mask")
    rows[7] = "1,NA,2"
    path.write_text("\n".join(rows) + "\n")
    assert np.isnan(load_samples(path, missing="mask").data).sum() == 2
