"""Mistakes in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse

import perdl
from perdl import PerDL
from wrong import NAMES, Mistake, Said, draw, fit, fitted, python

BOB = draw("bob")
DATA = {name: draw(name) for name in NAMES}


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, rows: np.ndarray, columns: str | list[int]) -> None:
        self._rows, self.columns = rows, list(columns)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.asarray(self._rows, dtype)


def frames(columns: str | list[int], plain: str | list[int] = "abcde", second: np.ndarray = BOB) -> Said:
    data = {name: Frame(X, plain) for name, X in DATA.items()} | {"bob": Frame(second, columns)}
    return python(lambda: PerDL(n_global=2).fit(data))


def of_all(data: object, **params: object) -> Said:
    return python(lambda: PerDL(**{"n_global": 2, "n_atoms": 4, "rounds": 2, **params}).fit(data))


def after_fit(use: object) -> Said:
    model = fitted()
    return python(lambda: use(model))


def load_other() -> Said:
    np.savez("other.npz", X=BOB)
    return python(lambda: PerDL.load("other.npz"))


def load_dictionary() -> Said:
    PerDL(n_global=2, n_atoms=4, rounds=1, output="run").fit(DATA)
    return python(lambda: PerDL.load("run/clients/ada/dictionary.npz"))


def masked() -> np.ndarray:
    return np.ma.masked_less(BOB, -1.0)


def holes() -> np.ndarray:
    X = BOB.copy()
    X[3, 2] = np.nan
    return X


MISTAKES = [
    Mistake(
        "One array instead of one for each client",
        lambda: of_all(BOB),
        3,
        ("[X1, X2", "(60, 5)"),
        "a list or a dict, one array for each client",
    ),
    Mistake(
        "A path instead of arrays", lambda: of_all("data/*.csv"), 3, ("str", "list or dict"), "read the files first"
    ),
    Mistake(
        "Paths instead of arrays",
        lambda: of_all({"ada": "ada.csv", "bob": "bob.csv"}),
        3,
        ("ada", "read the file"),
        "read the files first",
    ),
    Mistake("Text that is numbers", lambda: fit(BOB.astype(str)), 0, (), "none needed: it is read as numbers"),
    Mistake("No data sets", lambda: of_all([]), 3, ("at least one",), "give at least one"),
    Mistake("A client's name that is a number", lambda: of_all({1: BOB}), 3, ("1", "text"), "a name is text"),
    Mistake("A client's name with a slash", lambda: of_all({"a/b": BOB}), 3, ("a/b",), "a name has no / and no \\"),
    Mistake("One client turned", lambda: fit(BOB.T), 3, ("bob", "X.T"), "give X.T"),
    Mistake(
        "All clients turned",
        lambda: of_all({name: X[:20].T for name, X in DATA.items()}),
        0,
        ("ada", "fewer samples than features", "give X.T"),
        "give X.T if it is so; few samples of many features are no mistake",
    ),
    Mistake(
        "One client with another number of features",
        lambda: fit(BOB[:, :4]),
        3,
        ("bob", "4", "5", "same features"),
        "give all the same features in the same order",
    ),
    Mistake(
        "Columns of a data frame in another order",
        lambda: frames("abced"),
        3,
        ("bob", "'e'", "same order"),
        "order the columns alike",
    ),
    Mistake(
        "Columns of a data frame that are called 0, 1, 2, ... in another order",
        lambda: frames([1, 0, 2, 3, 4], [0, 1, 2, 3, 4]),
        3,
        ("column 1 is '0'", "'1' is expected", "same order"),
        "order the columns alike",
    ),
    Mistake(
        "A data frame with another column",
        lambda: frames("abcdef"),
        3,
        ("bob", "6 columns", "5 are expected", "'f'"),
        "give all the same columns",
    ),
    Mistake(
        "A data frame without a column",
        lambda: frames("abde", second=BOB[:, :4]),
        3,
        ("bob", "4 columns", "5 are expected", "lacks the column 'c'"),
        "give all the same columns",
    ),
    Mistake(
        "A data frame with a column of text",
        lambda: frames("abcde", second=np.c_[BOB[:, :4].astype(object), np.full(len(BOB), "m", object)]),
        3,
        ("bob", "column 'e'", "encode"),
        "leave the column out, or encode it as numbers",
    ),
    Mistake(
        "A client without samples",
        lambda: fit(BOB[:0]),
        3,
        ("bob", "0 samples", "leave it out"),
        "leave the client out",
    ),
    Mistake("NaN", lambda: fit(holes()), 3, ("bob", "row 4, column 3", "drop or fill"), "drop or fill what is missing"),
    Mistake("A masked array", lambda: fit(masked()), 3, ("bob", "mask"), "fill or drop what is masked"),
    Mistake("Objects that are numbers", lambda: fit(BOB.astype(object)), 0, (), "none needed"),
    Mistake(
        "Objects that are not",
        lambda: fit(np.where(BOB > 1, "high", BOB.astype(object))),
        3,
        ("bob", "encode"),
        "encode text as numbers, or leave it out",
    ),
    Mistake("Half precision", lambda: fit(BOB.astype(np.float16)), 0, (), "none needed: it is computed in float64"),
    Mistake("Complex numbers", lambda: fit(BOB + 1j), 3, ("bob", "real"), "X.real, or both parts as features"),
    Mistake("Times", lambda: fit((100 * BOB).astype("m8[s]")), 3, ("bob", "encode"), "give times as numbers"),
    Mistake(
        "Images as integers up to 255, threshold for [0, 1]",
        lambda: of_all({name: np.clip(60 * X + 128, 0, 255).astype(np.uint8) for name, X in DATA.items()}),
        0,
        ("threshold",),
        'threshold_unit="rms", center=True; divide by 255 if you like',
    ),
    Mistake("One dimension", lambda: fit(BOB[0]), 3, ("bob", "reshape"), "reshape"),
    Mistake("Three dimensions", lambda: fit(np.ones((10, 4, 4))), 3, ("bob", "reshape"), "flatten each sample"),
    Mistake("A number", lambda: fit(3.0), 3, ("bob", "reshape"), "an array, samples in rows"),
    Mistake("None", lambda: fit(None), 3, ("bob", "samples in rows"), "an array, samples in rows"),
    Mistake(
        "Lines of unequal length",
        lambda: fit([[1, 2, 3, 4, 5], [1, 2]]),
        3,
        ("bob", "length"),
        "give each line as many values",
    ),
    Mistake("A sparse matrix", lambda: fit(scipy.sparse.csr_array(BOB)), 3, ("bob", "toarray"), "X.toarray()"),
    Mistake(
        "A column of row numbers",
        lambda: of_all({name: np.c_[np.arange(len(X)), X] for name, X in DATA.items()}),
        0,
        ("row numbers",),
        "take the column out",
    ),
    Mistake("One client in other units", lambda: fit(1000 * BOB), 0, ("bob", "units"), "bring all to the same units"),
    Mistake(
        "All zeros",
        lambda: fit(0 * BOB),
        4,
        ("bob", "zero", "leave it out"),
        "leave the client out, or look at its data",
    ),
    Mistake(
        "All samples equal, centred",
        lambda: fit(np.ones_like(BOB), center=True),
        4,
        ("bob", "equal"),
        "leave the client out, or look at its data",
    ),
    Mistake("One sample", lambda: fit(BOB[1:2]), 4, ("bob", "more samples"), "give more samples, or min_samples=1"),
    Mistake(
        "Numbers too small for the threshold",
        lambda: of_all({name: 1e-6 * X for name, X in DATA.items()}),
        4,
        ("threshold",),
        'threshold_unit="rms"',
    ),
    Mistake(
        "NumPy's integers for settings", lambda: fit(BOB, n_atoms=np.int64(4), rounds=np.int32(2)), 0, (), "none needed"
    ),
    Mistake("A whole number as a float", lambda: fit(BOB, n_global=2.0), 2, ("n_global", "whole"), "a whole number: 2"),
    Mistake("A seed that is a float", lambda: fit(BOB, seed=1.0), 2, ("seed", "whole"), "a whole number: 1"),
    Mistake(
        '"auto" misspelt', lambda: fit(BOB, n_global="Auto"), 2, ("n_global", '"auto"'), '"auto", in small letters'
    ),
    Mistake(
        "A learner misspelt",
        lambda: fit(BOB, learner="ortogonal"),
        2,
        ("learner", "'orthogonal'"),
        "one of those listed",
    ),
    Mistake("Negative rounds", lambda: fit(BOB, rounds=-1), 2, ("rounds", "at least 0"), "0 or more"),
    Mistake(
        "More atoms than features",
        lambda: fit(BOB, n_atoms=9),
        2,
        ("n_atoms", "5 features"),
        "fewer atoms, or another learner",
    ),
    Mistake(
        "More shared atoms than atoms",
        lambda: fit(BOB, n_global=5),
        2,
        ("n_global", "n_atoms"),
        "lower n_global or raise n_atoms",
    ),
    Mistake(
        "More shared atoms than are used",
        lambda: fit(BOB[:2], n_global=4),
        0,
        ("bob", "fewer atoms", "n_global"),
        "lower n_global, or give more samples",
    ),
    Mistake(
        "top-k with more codes than atoms",
        lambda: fit(BOB, coder="top-k", n_nonzero=5),
        2,
        ("n_nonzero", "n_atoms"),
        "lower n_nonzero",
    ),
    Mistake(
        "procrustes with another learner",
        lambda: fit(BOB, aggregation="procrustes", learner="gradient"),
        2,
        ("learner", "orthogonal"),
        "the orthogonal learner, or another aggregation",
    ),
    Mistake(
        "Settings for a client that is not there",
        lambda: fit(BOB, clients={"dan": {"n_atoms": 3}}),
        2,
        ("dan", "ada"),
        "use the names of your data sets",
    ),
    Mistake(
        "A setting of the run for one client",
        lambda: fit(BOB, clients={"ada": {"rounds": 3}}),
        2,
        ("clients.ada", "rounds"),
        "set it for all",
    ),
    Mistake(
        "A parameter misspelt",
        lambda: python(lambda: PerDL(n_globl=3)),
        1,
        ("n_globl", "did you mean n_global"),
        "correct the name",
    ),
    Mistake(
        "A parameter misspelt in set_params",
        lambda: python(lambda: PerDL().set_params(n_globl=3)),
        1,
        ("n_globl",),
        "correct the name",
    ),
    Mistake(
        "Used before fit", lambda: python(lambda: PerDL().transform(BOB, "bob")), 1, ("call fit",), "call fit first"
    ),
    Mistake(
        "A client that is not there",
        lambda: after_fit(lambda m: m.split(BOB, "dan")),
        3,
        ("dan", "ada"),
        "name a client of the fit",
    ),
    Mistake("No client", lambda: after_fit(lambda m: m.transform(BOB)), 1, ("client",), "name the client"),
    Mistake(
        "New samples with other features",
        lambda: after_fit(lambda m: m.transform(BOB[:, :3], "bob")),
        3,
        ("bob", "3", "5"),
        "the features of the fit",
    ),
    Mistake(
        "New samples turned", lambda: after_fit(lambda m: m.transform(BOB.T, "bob")), 3, ("bob", "X.T"), "give X.T"
    ),
    Mistake(
        "k negative",
        lambda: after_fit(lambda m: m.reconstruct(BOB, "bob", -1)),
        3,
        ("k = -1", "0 or more"),
        "0 or more",
    ),
    Mistake(
        "k that is no whole number",
        lambda: after_fit(lambda m: m.reconstruct(BOB, "bob", 1.5)),
        3,
        ("k = 1.5", "whole number"),
        "a whole number",
    ),
    Mistake(
        "partial_fit without one of the clients",
        lambda: after_fit(lambda m: m.partial_fit({"ada": DATA["ada"]})),
        3,
        ("bob",),
        "give the data of all clients",
    ),
    Mistake(
        "partial_fit with other settings",
        lambda: after_fit(lambda m: m.set_params(threshold=0.3).partial_fit(DATA)),
        2,
        ("threshold", "call fit"),
        "call fit for a new run",
    ),
    Mistake(
        "add_client with a name that is taken",
        lambda: after_fit(lambda m: m.add_client(BOB, "bob")),
        3,
        ("bob", "partial_fit"),
        "another name, or partial_fit",
    ),
    Mistake("PerDL.load of another file", load_other, 1, ("other.npz", "PerDL.save"), "load what PerDL.save wrote"),
    Mistake(
        "PerDL.load of a client's dictionary",
        load_dictionary,
        1,
        ("dictionary.npz", "PerDL.save"),
        "load what PerDL.save wrote; numpy.load reads a dictionary",
    ),
    Mistake(
        "PerDL.load of a file that is not there",
        lambda: python(lambda: PerDL.load("gone.npz")),
        1,
        ("gone.npz", "correct the path"),
        "correct the path",
    ),
    Mistake(
        "read_run of a folder that holds no run",
        lambda: python(lambda: perdl.read_run(Path())),
        1,
        ("summary.json",),
        "give the folder of a run",
    ),
    Mistake(
        "A setting misspelt in perdl.simulate",
        lambda: python(lambda: perdl.simulate(settings={"round": 3})),
        2,
        ("round", "rounds"),
        "correct the name",
    ),
    Mistake(
        "A callback that is not one",
        lambda: python(lambda: PerDL(n_global=2, n_atoms=4, rounds=1).fit(DATA, callbacks=[print])),
        2,
        ("print", "perdl.Callback"),
        "an object of a class that inherits from perdl.Callback",
    ),
    Mistake(
        "A callback's class instead of a callback",
        lambda: python(lambda: PerDL(n_global=2, n_atoms=4, rounds=1).fit(DATA, callbacks=[perdl.Callback])),
        2,
        ("Callback()",),
        "an object, not the class",
    ),
    Mistake(
        "A callback without a list around it",
        lambda: python(lambda: PerDL(n_global=2, n_atoms=4, rounds=1).fit(DATA, callbacks=perdl.Callback())),
        2,
        ("[callback]",),
        "a list: callbacks=[callback]",
    ),
]
