"""What a search tried goes from beside its settings into the folders of the runs that take them."""

from __future__ import annotations

import json

import numpy as np

import perdl
from perdl.results.search import SEARCH, keep_search, read_search, rungs, search_file, write_search
from perdl_server.algorithm.search import Trial

TRIALS = [
    Trial("atoms", {"n_atoms": 6}, 2, np.array([0.5, 0.4]), 1.0),
    Trial("shared atoms", {"n_atoms": 6, "n_global": 5}, 0, np.empty(0), 0.1, "a has too few"),
    Trial("shared atoms", {"n_atoms": 6, "n_global": 0}, 0, np.array([0.6, 0.5]), 1.0),
]


def test_it_is_read_as_it_was_written_and_ordered_by_number(tmp_path):
    config = tmp_path / "mine.toml"
    write_search(config, ["a", "b"], TRIALS, TRIALS[2], data=["*.csv"], seed=np.int64(3))
    assert search_file(config) == tmp_path / "mine.search.json"
    (tmp_path / "run").mkdir()
    keep_search(config, tmp_path / "run")
    search = read_search(tmp_path / "run")
    assert (search["data"], search["seed"], search["chosen"]) == (["*.csv"], 3, 2)
    assert search["trials"][0]["errors"] == {"a": 0.5, "b": 0.4}
    assert [(one["values"].get("n_global"), one["failed"]) for one in rungs(search)] == [
        (0, ""),
        (None, ""),
        (5, "a has too few"),
    ]
    keep_search(tmp_path / "other.toml", tmp_path / "run")  # which nothing was searched for
    assert not (tmp_path / "run" / SEARCH).exists()


def test_a_damaged_file_is_none(tmp_path):
    for text in ("{", "[]", '{"trials": 1}'):
        (tmp_path / SEARCH).write_text(text)
        assert read_search(tmp_path) == {}
    assert read_search(tmp_path / "nowhere") == {}


def test_a_run_of_searched_settings_keeps_the_search_and_another_run_in_its_folder_does_not(tmp_path):
    config, folder = tmp_path / "tuned.toml", tmp_path / "run"
    config.write_text("n_clients = 2\nrounds = 2\nn_restarts = 1\n[data]\nsource = 'synthetic'\n")
    write_search(config, ["a", "b"], TRIALS, TRIALS[0])
    run = perdl.simulate(config, output=folder)
    assert run.search == json.loads(search_file(config).read_text())
    assert not perdl.simulate("synthetic", {"rounds": 1, "n_clients": 2}, output=folder, overwrite=True).search
