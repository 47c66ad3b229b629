"""Mistakes in files."""

from __future__ import annotations

import gzip
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from wrong import Mistake, Said, command, draw, good_files, over_files


def table_text(name: str) -> str:
    return "\n".join(",".join(map(str, row)) for row in np.round(draw(name), 3).tolist()) + "\n"


TABLE = np.round(draw("bob"), 3)
TEXT = table_text("bob")
LINES = TEXT.splitlines()
NAMES_LINE = "a,b,c,d,e\n"


def table(text: str | bytes, name: str = "bob.csv", *words: str) -> Callable[[], Said]:
    """The second client's file holds this text."""

    def do() -> Said:
        content = text if isinstance(text, bytes) else text.encode()
        (good_files() / name).write_bytes(content)
        return over_files(*words)

    return do


def array(value: object, *words: str, **arrays: object) -> Callable[[], Said]:
    """The second client's file is this array in .npy form; ``arrays`` make a .npz file."""

    def do() -> Said:
        folder = good_files(".npy")
        if arrays:
            np.savez(folder / "bob.npz", **arrays)
        else:
            np.save(folder / "bob.npy", value, allow_pickle=True)
        return over_files(*words)

    return do


def all_arrays(make: Callable[[np.ndarray], np.ndarray], *words: str) -> Callable[[], Said]:
    """All files are changed alike."""

    def do() -> Said:
        folder = Path("data")
        folder.mkdir()
        for name in ("ada", "bob", "cy"):
            np.save(folder / f"{name}.npy", make(draw(name)))
        return over_files(*words)

    return do


def all_with_ids() -> Said:
    """All tables have a column of IDs, which the constants leave out."""
    folder = Path("data")
    folder.mkdir()
    for name in ("ada", "bob", "cy"):
        X = np.c_[7000 + np.arange(60), draw(name)]
        np.savetxt(folder / f"{name}.csv", X, delimiter=",", header="id,a,b,c,d,e", comments="")
    return over_files("-c", "data.divide_by=1,1,0.02,1,4")


def images(*sizes: tuple[int, ...]) -> Callable[[], Said]:
    """Each client's folder holds images of these shapes."""

    def do() -> Said:
        for name in ("ada", "bob"):
            folder = Path("data") / name
            folder.mkdir(parents=True)
            for i, size in enumerate(sizes):
                Image.fromarray(np.full(size, 10 * i, np.uint8)).save(folder / f"{i}.png")
        return over_files()

    return do


def pickled() -> bytes:
    return pickle.dumps({"X": TABLE.tolist()})


def zipped() -> bytes:
    path = Path("any.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bob.csv", TEXT)
    return path.read_bytes()


def torn() -> Said:
    path = good_files(".npy") / "bob.npy"
    np.save(path, TABLE)
    path.write_bytes(path.read_bytes()[:-100])
    return over_files()


def mixed() -> Said:
    folder = good_files(wrong="") / "bob"
    Path("data/bob.csv").unlink()
    folder.mkdir()
    (folder / "1.csv").write_text(TEXT)
    np.save(folder / "2.npy", TABLE)
    return over_files()


def single_image() -> Said:
    Path("data").mkdir()
    for name in ("ada", "bob"):
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(f"data/{name}.png")
    return over_files()


def one_client_turned() -> Said:
    np.savetxt(good_files() / "bob.csv", TABLE.T, delimiter=",")
    return over_files()


def numbered(header: str, first: int) -> str:
    return header + "".join(f"{i},{line}\n" for i, line in enumerate(LINES, start=first))


def rows_named() -> str:
    return "".join(f'"{i}",{line}\n' for i, line in enumerate(LINES, start=1))


def reordered() -> Said:
    folder = Path("data")
    folder.mkdir()
    for name, header in (("ada", "a,b,c,d,e"), ("bob", "a,b,c,d,e"), ("cy", "b,a,c,d,e")):
        (folder / f"{name}.csv").write_text(f"{header}\n{TEXT}")
    return over_files()


def extra_column(*words: str) -> Said:
    """Bob's file alone has row numbers."""
    folder = Path("data")
    folder.mkdir()
    for name in ("ada", "bob", "cy"):
        text = numbered("id,a,b,c,d,e\n", 1) if name == "bob" else NAMES_LINE + table_text(name)
        (folder / f"{name}.csv").write_text(text)
    return over_files(*words)


def no_variable() -> Said:
    Path("data").mkdir()
    for name in ("ada", "bob"):
        np.savez(f"data/{name}.npz", X=TABLE)
    return over_files("-c", "data.variable=Q")


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1\nsize 12345\n"
HTML = "<!DOCTYPE html>\n<html><head><title>404</title></head><body>not found</body></html>\n"


MISTAKES = [
    Mistake(
        "Samples are in columns, fewer than features",
        all_arrays(lambda X: X[:20].T),
        0,
        ("samples_in",),
        'set data.samples_in = "columns" if it is so; few samples of many features are no mistake',
    ),
    Mistake(
        "Samples are in columns in one file",
        one_client_turned,
        3,
        ("bob.csv", "turn that file"),
        "turn that file",
    ),
    Mistake(
        "One client has another number of features",
        array(TABLE[:, :4]),
        3,
        ("bob.npy", "4", "5", "same features"),
        "give all the same features in the same order",
    ),
    Mistake(
        "Decimal commas, semicolons between cells",
        table(TEXT.replace(",", ";").replace(".", ",")),
        3,
        ("bob.csv", "decimal"),
        "export with decimal points",
    ),
    Mistake(
        "Decimal commas, commas between cells",
        table(TEXT.replace(".", ",")),
        3,
        ("bob.csv", "decimal"),
        "export with decimal points",
    ),
    Mistake(
        "Decimal commas, commas between cells, names",
        table(NAMES_LINE + TEXT.replace(".", ",")),
        3,
        ("bob.csv", "decimal"),
        "export with decimal points",
    ),
    Mistake(
        "Decimal commas in quotes",
        table("\n".join(",".join(f'"{c}"'.replace(".", ",") for c in line.split(",")) for line in LINES)),
        3,
        ("bob.csv", "decimal"),
        "export with decimal points",
    ),
    Mistake(
        "Semicolons between cells",
        table(TEXT.replace(",", ";")),
        0,
        (),
        "none needed: tabs and semicolons are read too",
    ),
    Mistake(
        "Spaces between cells",
        table(TEXT.replace(",", " ")),
        3,
        ("bob.csv", "spaces", "commas or tabs"),
        "export with commas, semicolons or tabs",
    ),
    Mistake(
        "Only a line of names",
        table(NAMES_LINE),
        3,
        ("bob.csv", "0 samples"),
        "export again: there is no line of numbers",
    ),
    Mistake("Lines of unequal length", table(TEXT + "1,2,3\n"), 3, ("bob.csv", "line 61", "equal"), "mend the line"),
    Mistake(
        "A column of text",
        table("\n".join(line + ",sick" for line in LINES)),
        3,
        ("bob.csv", "'sick'", "data.drop=6", "encode"),
        "leave the column out (data.drop, a client: --drop), or encode it as numbers",
    ),
    Mistake(
        "A column of dates",
        table("\n".join("2024-01-05," + line for line in LINES)),
        3,
        ("bob.csv", "column 1", "data.drop=1"),
        "leave the column out (data.drop, a client: --drop), or encode it as numbers",
    ),
    Mistake(
        "A column of text that has a name",
        table("id," + NAMES_LINE + "\n".join(f"p{i},{line}" for i, line in enumerate(LINES))),
        3,
        ("bob.csv", "column 1 ('id')", "data.drop=id"),
        "leave the column out (data.drop, a client: --drop), or encode it as numbers",
    ),
    Mistake(
        "A column to leave out that is not there",
        table(NAMES_LINE + TEXT, "bob.csv", "-c", "data.drop=5,id"),
        3,
        ("ada.csv", "'id'", "1 to 5"),
        "name columns that a file has, or give their numbers",
    ),
    Mistake(
        "Row numbers that have a name, in one file alone",
        extra_column,
        3,
        ("bob.csv", "'id' more", "-c data.drop=id", "--drop id"),
        "leave the column out where it is",
    ),
    Mistake(
        "Such a column left out, though the other files have none",
        lambda: extra_column("-c", "data.drop=id"),
        0,
        (),
        "none needed: it is left out where it is",
    ),
    Mistake(
        "Such a column left out by a name misspelt",
        lambda: extra_column("-c", "data.drop=idd"),
        3,
        ("bob.csv", "'idd'", "did you mean 'id'"),
        "correct the name",
    ),
    Mistake(
        "A delimiter at the end of every line",
        table(TEXT.replace("\n", ",\n")),
        0,
        (),
        "none needed: a last column that is empty in every line and has no name is none",
    ),
    Mistake(
        "Excel's line sep= on top",
        table("sep=;\n" + TEXT.replace(",", ";")),
        0,
        (),
        "none needed: it says what stands between cells",
    ),
    Mistake("A mark of the end of the file (Ctrl-Z)", table(TEXT + "\x1a"), 0, (), "none needed"),
    Mistake("A line break within a name, in quotes", table('"a\n(mV)",b,c,d,e\n' + TEXT), 0, (), "none needed"),
    Mistake(
        "A line of units below the names",
        table(NAMES_LINE + "mV,mV,mV,s,s\n" + TEXT),
        0,
        ("bob", "line 2", "left out"),
        "none needed; take the line out, and the note goes",
    ),
    Mistake(
        "Lines about the device above the names",
        table("Device,XR-5\nRate (Hz),100\n\n" + NAMES_LINE + TEXT),
        0,
        ("bob", "lines 1 and 2", "left out"),
        "none needed; take the lines out, and the note goes",
    ),
    Mistake(
        "Files joined, each with its names",
        table((NAMES_LINE + TEXT) * 2),
        0,
        ("bob", "line 62", "left out"),
        "none needed; take the line out, and the note goes",
    ),
    Mistake(
        "Names of rows without a name above them, as R writes them",
        table('"a","b","c","d","e"\n' + rows_named()),
        0,
        ("bob", "row's name", "left out"),
        "none needed; in R write the table with row.names = FALSE",
    ),
    Mistake(
        "Names of columns that are numbers",
        table("0,1,2,3,4\n" + TEXT),
        0,
        ("bob", "line 1", "taken for names"),
        "none needed; names that are words cannot be mistaken",
    ),
    Mistake(
        "A number among the names",
        table("a,b,c,d,2024\n" + TEXT),
        0,
        (),
        "none needed: it is a name too",
    ),
    Mistake(
        "Thousands separators",
        table(TEXT + '"1,234.5",1,2,3,4\n'),
        3,
        ("bob.csv", "thousands"),
        "export without marks between thousands",
    ),
    Mistake(
        "A comment line on top",
        table("# made by hand\n" + TEXT),
        0,
        ("bob", "comment", "left out"),
        "none needed; take the comment out, and the note goes",
    ),
    Mistake(
        "A comment line in between",
        table(TEXT + "# made by hand\n" + TEXT),
        3,
        ("bob.csv", "line 61", "comment"),
        "take the comment out",
    ),
    Mistake("A byte order mark", table("\ufeff" + TEXT), 0, (), "none needed"),
    Mistake(
        "UTF-16, as Excel's Unicode text",
        table(TEXT.encode("utf-16")),
        3,
        ("bob.csv", "UTF-8"),
        "export as CSV in UTF-8",
    ),
    Mistake(
        "NaN", table(TEXT + "1,2,nan,4,5\n"), 3, ("bob.csv", "line 61", "drop or fill"), "drop or fill what is missing"
    ),
    Mistake("Infinity", table(TEXT + "1,2,inf,4,5\n"), 3, ("bob.csv", "line 61", "drop or fill"), "drop or fill it"),
    Mistake(
        "An empty cell", table(TEXT + "1,2,,4,5\n"), 3, ("bob.csv", "line 61", "fill it"), "fill it, or drop the line"
    ),
    Mistake(
        "NA for what is missing",
        table(TEXT + "1,2,NA,4,5\n"),
        3,
        ("bob.csv", "line 61", "missing"),
        "fill it, or drop the line",
    ),
    Mistake(
        "-999 for what is missing",
        table(TEXT + "1,2,-999,4,5\n"),
        4,
        ("bob", "-999", "missing"),
        "drop or fill what is missing",
    ),
    Mistake(
        "-999 for what is missing, often",
        table("\n".join(line if i % 4 else line[: line.rindex(",")] + ",-999" for i, line in enumerate(LINES))),
        0,
        ("bob", "-999", "missing value"),
        "drop or fill what is missing",
    ),
    Mistake(
        "A column of row numbers without a name",
        table(numbered("," + NAMES_LINE, 0)),
        3,
        ("bob.csv", "index"),
        "export without the index",
    ),
    Mistake(
        "A column of row numbers in all files",
        all_arrays(lambda X: np.c_[np.arange(len(X)), X]),
        0,
        ("ada", "row numbers", "take it out"),
        "take the column out",
    ),
    Mistake(
        "A column of row numbers in series that are cut into windows",
        all_arrays(lambda X: np.c_[np.arange(len(X)), X], "-c", "data.window=4", "-c", "n_atoms=4"),
        0,
        ("ada", "row numbers", "take it out"),
        "take the column out",
    ),
    Mistake(
        "Features in different units",
        all_arrays(lambda X: X * [1, 1, 0.02, 1, 4]),
        0,
        ("feature 3", "feature 5", "different units", "data.divide_by"),
        "data.divide_by, as perdl check proposes",
    ),
    Mistake(
        "Constants for another number of features",
        lambda: (good_files(wrong=""), over_files("-c", "data.divide_by=1,2,3"))[1],
        2,
        ("data.divide_by has 3 numbers", "ada has 5 features"),
        "one for each feature, or one for all",
    ),
    Mistake(
        "Constants for the measurements alone, and a column of IDs",
        all_with_ids,
        2,
        ("data.divide_by has 5 numbers", "has 6 features", "data.drop", "--drop"),
        "take the IDs out: data.drop, of a client --drop",
    ),
    Mistake(
        "Names of columns in another order",
        reordered,
        3,
        ("cy.csv", "'b'", "same order"),
        "bring the columns into the same order",
    ),
    Mistake("One client in other units", array(1000 * TABLE), 0, ("bob", "units"), "bring all to the same units"),
    Mistake(
        "The same samples for two clients",
        array(np.asarray(draw("ada"))),
        0,
        ("bob", "samples of ada"),
        "give each client its own",
    ),
    Mistake(
        "Data far from zero, not centred",
        all_arrays(lambda X: X + 50, "-c", "data.center=false"),
        0,
        ("center",),
        "set data.center = true, as the preset files does",
    ),
    Mistake("One sample", array(TABLE[:1]), 4, ("bob", "1 samples"), "give more samples"),
    Mistake("No sample", array(TABLE[:0]), 3, ("bob.npy", "0 samples"), "export again"),
    Mistake(
        "Nothing but zeros",
        array(0 * TABLE),
        4,
        ("bob", "leave it out"),
        "look at that client's data, or leave the client out",
    ),
    Mistake(
        "All samples equal",
        array(np.ones_like(TABLE)),
        4,
        ("bob", "equal"),
        "look at that client's data, or leave the client out",
    ),
    Mistake(
        "A constant feature",
        all_arrays(lambda X: np.c_[X, np.full(len(X), 3.0)]),
        0,
        (),
        "none needed: it is zero once the mean is off",
    ),
    Mistake("An empty file", table(b""), 3, ("bob.csv", "empty", "export it again"), "copy or export the file again"),
    Mistake(
        "Complex numbers", array(TABLE + 1j), 3, ("bob.npy", "complex"), "save the real part, or both parts as features"
    ),
    Mistake("One dimension", array(TABLE[0]), 3, ("bob.npy", "reshape"), "save a table, samples in rows"),
    Mistake("A single number", array(3.0), 3, ("bob.npy", "reshape"), "save a table, samples in rows"),
    Mistake("Five dimensions", array(np.ones((2, 2, 2, 2, 2))), 3, ("bob.npy", "reshape"), "flatten each sample"),
    Mistake(
        "A file of objects",
        array(TABLE.astype(object)),
        3,
        ("bob.npy", "astype(float)"),
        "save it after .astype(float)",
    ),
    Mistake("Half precision", array(TABLE.astype(np.float16)), 0, (), "none needed: it is computed in float64"),
    Mistake("Integers", array((10 * TABLE).astype(np.int64)), 0, (), "none needed: they are computed in float64"),
    Mistake(
        "Several arrays in a file",
        array(None, X=TABLE, Z=TABLE),
        3,
        ("bob.npz", "variable"),
        "name the array: data.variable (a client: --variable)",
    ),
    Mistake("A variable that is not there", no_variable, 3, ("ada.npz", "'Q'", "'X'"), "name one that the file holds"),
    Mistake("Numbers too large", array(1e200 * TABLE), 4, ("bob", "rescale"), "divide by a constant"),
    Mistake("A file cut short", torn, 3, ("bob.npy", "cut short"), "copy the file again"),
    Mistake(
        "A pointer of git-lfs instead of the data (.npy)",
        table(LFS, "bob.npy"),
        3,
        ("bob.npy", "git lfs pull"),
        "git lfs pull",
    ),
    Mistake(
        "A pointer of git-lfs instead of the data (.csv)", table(LFS), 3, ("bob.csv", "git lfs pull"), "git lfs pull"
    ),
    Mistake("A web page saved as .csv", table(HTML), 3, ("bob.csv", "web page"), "download it again"),
    Mistake("A web page saved as .npy", table(HTML, "bob.npy"), 3, ("bob.npy", "web page"), "download it again"),
    Mistake(
        "A zip of tables called .npz",
        lambda: table(zipped(), "bob.npz")(),
        3,
        ("bob.npz", "save the samples"),
        "save by numpy.savez",
    ),
    Mistake("A zip", lambda: table(zipped(), "bob.zip")(), 3, ("bob.zip", "unpack it"), "unpack it"),
    Mistake(
        "A compressed table",
        table(gzip.compress(TEXT.encode()), "bob.csv.gz"),
        3,
        ("bob.csv.gz", "unpack it"),
        "unpack it",
    ),
    Mistake(
        "An Excel file", table(b"PK\x03\x04", "bob.xlsx"), 3, ("bob.xlsx", "CSV"), "save the sheet as CSV in UTF-8"
    ),
    Mistake("A pickle", table(pickled(), "bob.pkl"), 3, ("bob.pkl", "numpy.save"), "save the array by numpy.save"),
    Mistake(
        "A PyTorch file", table(b"PK\x03\x04", "bob.pt"), 3, ("bob.pt", "numpy.save"), "save the array by numpy.save"
    ),
    Mistake(
        "A joblib file", table(pickled(), "bob.joblib"), 3, ("bob.joblib", "numpy.save"), "save the array by numpy.save"
    ),
    Mistake(
        "A pickle called .npy",
        table(pickled(), "bob.npy"),
        3,
        ("bob.npy", "numpy.save"),
        "save the array by numpy.save",
    ),
    Mistake(
        "An Excel file called .csv",
        table(b"PK\x03\x04\x14\x00\x06\x00" + bytes(range(256))),
        3,
        ("bob.csv", "Excel", "as CSV"),
        "save the sheet as CSV",
    ),
    Mistake("A Stata file", table(b"x", "bob.dta"), 3, ("bob.dta", "as CSV"), "export as CSV"),
    Mistake(
        "An R file", table(b"x", "bob.RData"), 3, ("bob.RData", "write.csv"), "write.csv(x, file, row.names = FALSE)"
    ),
    Mistake("A text file", table(TEXT, "bob.txt"), 3, ("bob.txt", "name it .csv"), "name it .csv or .tsv"),
    Mistake("A file without an extension", table(TEXT, "bob"), 3, ("bob", "name it"), "name it .csv, say"),
    Mistake("JSON", table("[[1, 2]]", "bob.json"), 3, ("bob.json", "as a table in CSV"), "write a table in CSV"),
    Mistake("A folder of mixed files", mixed, 3, ("bob", "one format"), "one format in a client's folder"),
    Mistake(
        "Images instead of folders of images",
        single_image,
        3,
        ("ada.png", "folder"),
        "a folder of images for each client",
    ),
    Mistake("Images of several sizes", images((4, 4), (4, 5)), 3, ("1.png", "one size"), "bring them to one size"),
    Mistake(
        "Images with and without transparency",
        images((4, 4, 3), (4, 4, 4)),
        3,
        ("1.png", "one size and mode"),
        "convert all to one mode, say RGB",
    ),
    Mistake(
        "A folder that is not there",
        lambda: over_files(path="nowhere"),
        3,
        ("nowhere", "correct the path"),
        "correct the path",
    ),
    Mistake(
        "A pattern that matches nothing",
        lambda: (good_files(), over_files(path="data/*.tsv"))[1],
        3,
        ("data/*.tsv", "did you mean 'data/*.csv'"),
        "correct the pattern",
    ),
    Mistake(
        "No path",
        lambda: command("simulate", "files", "--output", "run"),
        3,
        ("data.path", "folder or a glob"),
        "set data.path",
    ),
    Mistake(
        "Another number of clients than of files",
        lambda: (good_files(wrong=""), over_files("-c", "n_clients=5"))[1],
        3,
        ("data.path", "n_clients", "set them equal"),
        "leave n_clients out: files are counted",
    ),
]
