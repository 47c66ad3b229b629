"""Mistakes in settings and on the command line."""

from __future__ import annotations

from pathlib import Path

from wrong import Mistake, Said, command


def simulate(*words: str) -> Said:
    return command("simulate", "--output", "run", *words)


def configured(text: str) -> Said:
    Path("mine.toml").write_text(text)
    return command("simulate", "mine.toml", "--output", "run")


def twice() -> Said:
    simulate("-c", "rounds=1", "-c", "n_clients=2", "-c", "n_restarts=1")
    return simulate()


def three_tables() -> list[str]:
    Path("samples").mkdir()
    paths = [f"samples/{i}.csv" for i in (1, 2, 3)]
    for path in paths:
        Path(path).write_text("1,2\n")
    return paths


def not_writable() -> Said:
    return command("simulate", "--output", "/proc/nowhere")


def into_a_file() -> Said:
    Path("run").touch()
    return simulate()


MISTAKES = [
    Mistake("A setting misspelt", lambda: simulate("-c", "n_globl=3"), 2, ("n_globl", "n_global"), "correct the name"),
    Mistake(
        "A setting in the wrong table",
        lambda: simulate("-c", "samples_in=columns"),
        2,
        ("samples_in", "data.samples_in"),
        "put it into its table",
    ),
    Mistake(
        "A setting in the wrong table of a file",
        lambda: configured("[data]\nthreshold = 0.1\n"),
        2,
        ("mine.toml", "data.threshold", "threshold"),
        "put it where it belongs",
    ),
    Mistake(
        "A setting that is nowhere",
        lambda: simulate("-c", "colour=red"),
        2,
        ("colour", "known are"),
        "`perdl settings` lists all",
    ),
    Mistake("Another type", lambda: simulate("-c", "rounds=many"), 2, ("rounds", "whole number"), "a whole number"),
    Mistake(
        "A seed that is a float", lambda: simulate("-c", "seed=1.5"), 2, ("seed", "whole number"), "a whole number"
    ),
    Mistake("A seed that is text", lambda: simulate("--seed", "x"), 2, ("seed", "integer"), "a whole number"),
    Mistake("Negative rounds", lambda: simulate("-c", "rounds=-1"), 2, ("rounds", "at least 0"), "0 or more"),
    Mistake(
        "Negative n_global", lambda: simulate("-c", "n_global=-1"), 2, ("n_global", "0 or more"), "0 or more, or auto"
    ),
    Mistake(
        '"auto" misspelt', lambda: simulate("-c", "n_global=atuo"), 2, ("n_global", '"auto"'), "auto, in small letters"
    ),
    Mistake(
        "A learner misspelt",
        lambda: simulate("-c", "learner=ortho"),
        2,
        ("learner", "'orthogonal'"),
        "one of those listed",
    ),
    Mistake(
        "A decimal comma", lambda: simulate("-c", "threshold=0,15"), 2, ("threshold", "0,15", "0.15"), "a decimal point"
    ),
    Mistake(
        "Two settings in one",
        lambda: simulate("-c", "n_global=3,rounds=5"),
        2,
        ("n_global", "by itself"),
        "one -c for each",
    ),
    Mistake(
        "A constant of zero to divide by",
        lambda: simulate("-c", "data.divide_by=0"),
        2,
        ("data.divide_by", "positive numbers"),
        "positive numbers with commas between",
    ),
    Mistake("-c without =", lambda: simulate("-c", "rounds"), 2, ("rounds", "key=value"), "key=value"),
    Mistake(
        "-c with a space for =",
        lambda: simulate("-c", "n_global", "3"),
        2,
        ("n_global", "key=value"),
        "no space: -c n_global=3",
    ),
    Mistake(
        "A space around =",
        lambda: simulate("-c", "n_global", "=", "3"),
        2,
        ("-c key=value", "without spaces"),
        "no spaces: -c n_global=3",
    ),
    Mistake("A setting as an option", lambda: simulate("--n-global", "3"), 2, ("-c n_global=",), "-c key=value"),
    Mistake("An option misspelt", lambda: simulate("--overwite"), 2, ("--overwrite",), "correct the option"),
    Mistake("A command misspelt", lambda: command("simulat"), 2, ("simulate",), "correct the command"),
    Mistake(
        "A preset misspelt",
        lambda: command("simulate", "sythetic"),
        2,
        ("sythetic", "did you mean synthetic"),
        "correct the name",
    ),
    Mistake(
        "A file in place of a folder for made-up samples",
        lambda: (Path("a.csv").touch(), command("samples", "a.csv"))[1],
        2,
        ("a.csv is a file", "name a folder"),
        "name a folder",
    ),
    Mistake(
        "A configuration that is not there",
        lambda: command("simulate", "mine.toml"),
        2,
        ("mine.toml",),
        "correct the path, or name a preset",
    ),
    Mistake(
        "Data in place of a configuration",
        lambda: (Path("a.csv").write_text("1,2\n"), command("simulate", "a.csv"))[1],
        2,
        ("a.csv is data", "perdl simulate files -c data.path=a.csv"),
        "name the preset files, and the data by data.path",
    ),
    Mistake(
        "A folder of data in place of a configuration",
        lambda: (Path("samples").mkdir(), command("simulate", "samples"))[1],
        2,
        ("samples is a folder", "perdl simulate files -c data.path=samples"),
        "name the preset files, and the data by data.path",
    ),
    Mistake(
        "A glob in place of a configuration",
        lambda: (Path("a.csv").write_text("1,2\n"), command("simulate", "*.csv"))[1],
        2,
        ("*.csv names files", "perdl simulate files -c 'data.path=*.csv'"),
        "name the preset files, and the data by data.path",
    ),
    Mistake(
        "A glob without quotes, which the shell expands",
        lambda: command("simulate", *three_tables()),
        2,
        ("samples/3.csv are data", "in quotes", "-c 'data.path=samples/*.csv'"),
        "put the glob in quotes, and name it by data.path",
    ),
    Mistake(
        "The same after the preset files",
        lambda: command("simulate", "files", *three_tables()),
        2,
        ("samples/3.csv are data", "in quotes", "-c 'data.path=samples/*.csv'"),
        "put the glob in quotes, and name it by data.path",
    ),
    Mistake(
        "Several files for one client's model",
        lambda: command("reconstruct", "model", *three_tables(), "--output", "out.csv"),
        2,
        ("samples/3.csv are data", "reconstruct takes one file"),
        "one file, or a folder of files that are joined",
    ),
    Mistake("TOML that is none", lambda: configured("n_global = = 3\n"), 2, ("mine.toml", "line 1"), "key = value"),
    Mistake(
        "Text without quotes in TOML",
        lambda: configured("learner = orthogonal\n"),
        2,
        ("mine.toml", "quotes"),
        "put text in quotes",
    ),
    Mistake("JSON as configuration", lambda: configured('{"n_global": 3}'), 2, ("mine.toml", "TOML"), "write TOML"),
    Mistake(
        "n_global over n_atoms",
        lambda: simulate("-c", "n_global=7"),
        2,
        ("n_global = 7", "n_atoms = 6"),
        "lower n_global or raise n_atoms",
    ),
    Mistake(
        "quorum over n_clients", lambda: simulate("-c", "quorum=11"), 2, ("quorum", "n_clients = 10"), "lower quorum"
    ),
    Mistake(
        "top-k with more codes than atoms",
        lambda: simulate("-c", "coder=top-k", "-c", "n_nonzero=7"),
        2,
        ("n_nonzero = 7", "n_atoms = 6"),
        "lower n_nonzero",
    ),
    Mistake(
        "procrustes with another learner",
        lambda: simulate("-c", "aggregation=procrustes", "-c", "learner=gradient"),
        2,
        ("learner", "orthogonal"),
        "the orthogonal learner, or another aggregation",
    ),
    Mistake("trim of a half", lambda: simulate("-c", "trim=0.5"), 2, ("trim", "less than 0.5"), "less than 0.5"),
    Mistake(
        "data.path without data.source",
        lambda: simulate("-c", "data.path=x/*.csv"),
        2,
        ("data.path", "data.source"),
        "set data.source too",
    ),
    Mistake(
        "Settings for a client that is not there",
        lambda: simulate("-c", "clients.ada.n_atoms=4"),
        2,
        ("clients.ada", "client-1"),
        "name clients as a simulation does",
    ),
    Mistake(
        "A setting of the run for one client",
        lambda: simulate("-c", "clients.client-1.rounds=4"),
        2,
        ("clients.client-1", "rounds"),
        "set it for all",
    ),
    Mistake(
        "A sink misspelt",
        lambda: simulate("--sink", "tensorbord"),
        2,
        ("tensorbord", "tensorboard"),
        "correct the name",
    ),
    Mistake(
        "An engine that is not there",
        lambda: simulate("--engine", "spark"),
        2,
        ("spark", "in-process"),
        "in-process, processes, ray",
    ),
    Mistake("The folder of a former run", twice, 2, ("run holds", "--overwrite"), "another --output, or --overwrite"),
    Mistake("A folder that cannot be written", not_writable, 1, ("/proc/nowhere", "output"), "another --output"),
    Mistake("A file as the folder", into_a_file, 1, ("run", "choose another output"), "another --output"),
    Mistake(
        "A report of a folder that is not there",
        lambda: command("report", "nowhere"),
        1,
        ("nowhere does not exist", "folder of a run"),
        "correct the path",
    ),
    Mistake(
        "An experiment that is not there",
        lambda: command("experiment", "mnst"),
        2,
        ("mnst", "mnist"),
        "name one of those listed",
    ),
    Mistake(
        "MNIST without its folder",
        lambda: command("simulate", "mnist", "-c", "data.path=nowhere", "--output", "run"),
        3,
        ("nowhere", "IDX files"),
        "put the four files there",
    ),
]
