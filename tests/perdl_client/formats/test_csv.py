"""Claims of the reader of CSV: what stands around a table is told from it, and no sample is lost."""

import numpy as np
import pytest

from common.data_settings import DataSettings
from common.errors import DataError
from common.settings import load_settings
from common.simulation import SIMULATION
from perdl_client.data.check import check_data
from perdl_client.data.load import load_data
from perdl_client.data.samples import Samples
from perdl_client.formats.features import Features
from perdl_client.formats.read import load_samples
from perdl_client.identity import Identity
from perdl_client.node.runner import node_config

TABLE = np.round(np.random.default_rng(0).standard_normal((8, 4)), 4)
LINES = [",".join(f"{x:.4f}" for x in row) for row in TABLE]
TEXT = "\n".join(LINES) + "\n"
NAMES = tuple("abcd")
FIRST = [-0.014957, -0.011538, 0.024573, 0.036908, -0.010595, -0.041561]  # of the cases


def read(path, text, **settings):
    path.write_text(text, newline="")
    return load_samples(path, **settings)


def refused(path, text, **settings):
    with pytest.raises(DataError) as caught:
        read(path, text, **settings)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "names", "notes"),
    [
        ("a,b,c,d,\n" + TEXT.replace("\n", ",\n"), NAMES, []),
        (TEXT.replace("\n", ",,\n"), (), []),
        ("a,b,c,d\n" + TEXT.replace("\n", ",\n"), NAMES, []),
        ("sep=;\n" + ("a,b,c,d\n" + TEXT).replace(",", ";"), NAMES, []),
        ("sep=|\n" + TEXT.replace(",", "|"), (), []),
        (TEXT.replace("\n", "\r\n") + "\x1a", (), []),
        (TEXT[:-1] + "\x1a", (), []),
        ('"a\n(mV)",b,c,d\n' + TEXT, ("a (mV)", "b", "c", "d"), []),
        ("a,b,,d\n" + TEXT, ("a", "b", "column 3", "d"), []),
        ("a,b,c,2024\n" + TEXT, ("a", "b", "c", "2024"), []),
        ("# by x\n# 2024\na,b,c,d\n" + TEXT, NAMES, ["lines 1 and 2 at the top"]),
        ("# by x\n# a,b,c,d\n" + TEXT, NAMES, ["line 1 at the top"]),
        ("a,b,c,d\nmV,mV,,s\n" + TEXT, NAMES, ["line 2 below the names"]),
        ("Device,X\nRate,100\n\na,b,c,d\n" + TEXT, NAMES, ["lines 1 and 2 above the names"]),
        ("Device,X,,\na,b,c,d\nmV,mV,mV,mV\n" + TEXT, NAMES, ["line 1 above", "line 3 below"]),
        ('"a","b","c","d"\n' + "".join(f'"{i}",{line}\n' for i, line in enumerate(LINES)), NAMES, ["row's name"]),
        ("a\tb\tc\td\n" + "".join(f"{i + 1}\t{x}\n" for i, x in enumerate(LINES)).replace(",", "\t"), NAMES, ["row's"]),
        ("0,1,2,3\n" + TEXT, tuple("0123"), ["line 1 (0,1,2,3) is taken for names"]),
        ("403,402,401,400\n" + TEXT, ("403", "402", "401", "400"), ["is taken for names"]),
        ("900.5,1000.5,2000.5,4000.5\n" + TEXT, ("900.5", "1000.5", "2000.5", "4000.5"), ["is taken for names"]),
    ],
)
def test_what_stands_around_a_table_is_told_from_it(tmp_path, text, names, notes):
    samples = read(tmp_path / "a.csv", text)
    np.testing.assert_array_equal(samples.data, TABLE.T)
    assert samples.names == names
    assert len(samples.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, samples.notes, strict=True))


def test_names_that_come_again_are_left_out(tmp_path):
    samples = read(tmp_path / "a.csv", ("a,b,c,d\n" + TEXT) * 3)
    np.testing.assert_array_equal(samples.data, np.vstack([TABLE] * 3).T)
    assert samples.notes == ("line 10 and 1 more repeats the names: left out (were files joined?)",)


@pytest.mark.parametrize(
    ("first", "doubt"),
    [
        ("0.0000,1.0000,2.0000,3.0000", False),  # written like the rows, and near them
        ("3,1,2,0", False),
        ("1,1,1,1", False),
        ("9999,-9999,9999,9999", False),
        ("0,1,2", True),  # too few
    ],
)
def test_a_first_sample_is_not_taken_for_names(tmp_path, first, doubt):
    width = first.count(",") + 1
    text = "\n".join([first, *(",".join(line.split(",")[:width]) for line in LINES)])
    samples = read(tmp_path / "a.csv", text)
    assert samples.data.shape == (width, 9)
    assert samples.names == ()
    assert ["is taken for a sample" in note for note in samples.notes] == [True] * doubt


@pytest.mark.parametrize("low", [0, 5])
def test_whole_numbers_lose_no_sample(tmp_path, low):
    rng = np.random.default_rng(low)
    for n in range(1, 60):
        d = int(rng.integers(1, 7))
        kinds = [rng.integers(low, 9, (n, d)), np.array([rng.permutation(d) for _ in range(n)])]
        for table in [*kinds, np.arange(n * d).reshape(n, d)]:
            np.savetxt(tmp_path / "a.csv", table, delimiter=",", fmt="%d")
            np.testing.assert_array_equal(load_samples(tmp_path / "a.csv").data, table.T)


def test_a_first_feature_that_rises_is_not_taken_for_names(tmp_path):
    samples = read(tmp_path / "a.csv", "0,1,2,3\n" + TEXT, samples_in="columns")
    assert samples.data.shape == (4, 9) or samples.data.shape == (9, 4)
    np.testing.assert_array_equal(samples.data[0], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,a\np0,1\np1,2\np2,3\n", "column 1 ('id') is not of numbers (line 2: 'p0'); leave the column out"),
        ("a,b\n1,2\n3,4\n5,\n", "line 4, column 2 ('b') is empty"),
        (LINES[0] + ",\n" + LINES[1] + ",\n" + TEXT, "cells"),
        (",a,b\n0,1,2\n", "or leave the column out (data.drop=1; a client: --drop 1)"),
        (TEXT + "# end\n" + TEXT, "take line 9, a comment, out"),
        ("Device,X\nRate,100\n" + TEXT, "take the lines above line 3 out"),
        ("a,b\n1,5,2,5\n3,5,4,5\n", "decimal commas?"),
        ("1,2\n3,4\nx,y\n", "line 3, column 1 is 'x', not a number; mend it"),
    ],
)
def test_a_fault_is_told_with_its_name_and_a_cure_that_works(tmp_path, text, expected):
    assert expected in refused(tmp_path / "a.csv", text)


def test_cases_are_read_as_meant(cases):
    for folder in sorted((cases / "csv_misleading").iterdir()):
        if folder.is_dir():
            drop = "sample_id" if folder.name == "id_wavelengths" else None
            samples = load_samples(folder / "1.csv", drop=drop)
            assert len(samples.data) == 6, folder
            np.testing.assert_array_equal(samples.data[:, 0], FIRST)
    for i in ("1.csv", "2.csv", "3.csv"):
        held = [load_samples(cases / "numeric_header" / one / i) for one in ("with_header", "without_header")]
        np.testing.assert_array_equal(held[0].data, held[1].data)
    assert load_samples(cases / "numeric_header" / "small.csv").names == tuple("012345")


# Columns that are left out


ROWS = "".join(f"p{i},{i},{line}\n" for i, line in enumerate(LINES))


@pytest.mark.parametrize("drop", ["id, t", "1,2", "ID,2", "t,id"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_are_left_out_by_name_or_number(tmp_path, drop, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"id": [f"p{i}" for i in range(8)], "t": range(8), **dict(zip(NAMES, TABLE.T, strict=True))}
        parquet.write_table(pyarrow.table(columns), path)
    else:
        path.write_text("id,t,a,b,c,d\n" + ROWS)
    samples = load_samples(path, drop=drop)
    np.testing.assert_array_equal(samples.data, TABLE.T)
    assert samples.names == NAMES


def test_a_column_to_leave_out_must_be_there(tmp_path):
    text = "id,t,a,b,c,d\n" + ROWS
    assert "has no column 'tt' to leave out (drop); did you mean 't'?" in refused(
        tmp_path / "a.csv", text, drop="id,tt"
    )
    assert "give their numbers, 1 to 6" in refused(tmp_path / "a.csv", ROWS, drop="id")
    assert "drop leaves all of them out" in refused(tmp_path / "a.csv", text, drop="1,2,3,4,5,6")
    np.save(tmp_path / "a.npy", TABLE)
    with pytest.raises(DataError, match="drop = '1' is for columns of CSV"):
        load_samples(tmp_path / "a.npy", drop="1")


def test_places_are_those_of_the_file_where_columns_are_left_out(tmp_path):
    text = ("id,t,a,b,c,d\n" + ROWS).replace(LINES[2], "1,nan,2,3")
    expected = "sample 3, feature 2 ('b'), in line 4, column 4; drop or fill"
    assert expected in refused(tmp_path / "a.csv", text, drop="id,t")


@pytest.mark.parametrize(("value", "expected"), [("id,t", "id,t"), (1, "1"), (["id", "x,y", 3], 'id, "x,y", 3')])
def test_the_setting_takes_a_text_a_number_or_a_list(value, expected):
    assert DataSettings(drop=value).drop == expected
    assert load_settings(None, ["data.drop=1"]).data.drop == "1"


def test_a_simulation_and_a_client_leave_columns_out_and_tell_what_else_was(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("1", "2"):
        (tmp_path / "data" / f"{name}.csv").write_text("# by x\nid,t,a,b,c,d\n" + ROWS)
    told = ["data.source=files", f"data.path={tmp_path / 'data'}", "n_clients=2", "data.drop=id,t", "n_global=2"]
    assert "client-1, client-2: line 1 at the top: left out as a comment" in check_data(load_settings(None, told))
    said = []
    data = tmp_path / "data" / "1.csv"
    config, _ = node_config("ada", data, "rows", None, tmp_path / "own", on_warning=said.append, drop="id,t")
    assert config["drop"] == "id,t"
    assert "line 1 at the top: left out as a comment" in said


def test_a_column_that_some_files_have_is_left_out_there(tmp_path, monkeypatch):
    """Of a simulation's files, and of those of one client; of one client's only file it must be there."""
    monkeypatch.setenv(SIMULATION, "1")
    (tmp_path / "data" / "2").mkdir(parents=True)
    plain = "a,b,c,d\n" + "".join(f"{line}\n" for line in LINES)
    (tmp_path / "data" / "1.csv").write_text(plain)
    (tmp_path / "data" / "2" / "x.csv").write_text(plain)
    (tmp_path / "data" / "2" / "y.csv").write_text("id,t,a,b,c,d\n" + ROWS)
    told = ["data.source=files", f"data.path={tmp_path / 'data'}", "n_clients=2", "n_global=2"]
    settings = load_settings(None, [*told, "data.drop=t,ID"])
    check_data(settings)
    samples = [load_data(Identity(f"client-{i + 1}", i, {}), settings).Y for i in range(2)]
    np.testing.assert_array_equal(samples[0], TABLE.T)
    np.testing.assert_array_equal(samples[1], np.hstack([TABLE.T, TABLE.T]))
    with pytest.raises(DataError, match=r"2/y\.csv: has no column 'tt' to leave out \(drop\); did you mean 't'"):
        check_data(load_settings(None, [*told, "data.drop=tt,id,t"]))
    with pytest.raises(DataError, match=r"1\.csv: has no column '9'"):
        check_data(load_settings(None, [*told, "data.drop=id,t,9"]))
    with pytest.raises(DataError, match=r"1\.csv: has no column 'id' to leave out"):
        node_config("ada", tmp_path / "data" / "1.csv", "rows", None, tmp_path / "own", drop="id")


def test_a_missing_column_is_told_by_its_name():
    features = Features()
    one, other = (Samples(np.ones((n, 3)), (n,), tuple("abcde"[:n])) for n in (5, 4))
    assert features.compare(one, "1.csv") == ""
    assert "it lacks the column 'e'" in features.compare(other, "2.csv")
