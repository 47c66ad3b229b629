"""The search of settings: which choice is kept, what is tried, and whose errors count."""

from __future__ import annotations

import numpy as np
import pytest

from common.errors import DataError, PerdlError, SettingsError
from common.settings import load_settings
from perdl_server.algorithm.search import Outcome, Sizes, Trial, first_within_one_error, search

SETTINGS = load_settings(None, ["data.source=memory", "n_global=auto", "n_atoms=16", "evaluation.held_out=0.2"])


def trial(errors, n_global):
    return Trial("shared atoms", {}, n_global, np.array(errors), 0.0)


def test_the_first_choice_within_one_standard_error_is_kept():
    best = trial([0.50, 0.40, 0.30, 0.20], 6)
    alike = trial([0.50, 0.42, 0.295, 0.199], 3)  # on average no worse than the differences spread
    worse = trial([0.55, 0.45, 0.34, 0.22], 1)
    failed = trial([], 0)
    assert first_within_one_error([failed, worse, alike, best]) is alike
    assert first_within_one_error([worse, best]) is best
    assert first_within_one_error([trial([0.2], 5), trial([0.1], 6)]).n_global == 6  # one client has no spread


def scored(score):
    """Errors of two clients by a function of the settings."""
    return lambda s: Outcome(4 if s.n_global == "auto" else s.n_global, {"a": score(s), "b": score(s)})


def sizes(d=16, n=100):
    return lambda: Sizes(d, n)


def test_each_group_starts_from_the_best_of_the_groups_before():
    def score(s):
        better = 2 * [s.coder == "omp"] + [s.n_atoms == 32, s.n_global == 8, s.aggregation == "mean"]
        return 0.8 - 0.1 * sum(better)

    trials, best = search(scored(score), sizes(), SETTINGS)
    assert best.values == {
        "learner": "coordinate",
        "coder": "omp",
        "aggregation": "mean",
        "n_nonzero": 2,  # of two choices alike the first
        "n_atoms": 32,
        "n_global": 8,
    }
    assert trials[0].values == {}
    assert [one.values["n_global"] for one in trials if one.group == "shared atoms"] == [0, 4, 8, 16, 24]


def test_choices_that_fail_are_left_out_and_if_all_do_the_first_says_why():
    def only_top_k(s):
        if s.coder != "top-k":
            return Outcome(failed=f"{s.coder} does not fit")
        return Outcome(0, {"a": 0.5})

    _, best = search(only_top_k, sizes(), SETTINGS)
    assert best.values["coder"] == "top-k"
    with pytest.raises(PerdlError, match="no hard-threshold"):
        search(lambda s: Outcome(failed=f"no {s.coder}"), sizes(), SETTINGS)


def test_the_clients_of_the_first_errors_are_judged_in_all_trials():
    def measure(s):
        told = {"a": 0.5, "b": 0.4}
        if s.coder == "omp":
            told = {"a": 0.1}
        if s.coder == "top-k":
            told |= {"c": 0.1}
        return Outcome(0, told)

    trials, _ = search(measure, sizes(), SETTINGS)
    by_coder = {one.values.get("coder"): one for one in trials}
    assert by_coder["omp"].failed == "b told no error of held-out samples, and did before"
    assert by_coder["top-k"].errors.tolist() == [0.5, 0.4]


def test_what_cannot_be_searched_is_refused():
    for key, text in (("sharing=some", "finds n_global itself"), ("evaluation.held_out=0", "set it, as to 0.2")):
        wrong = load_settings(None, ["data.source=memory", "n_global=auto", "evaluation.held_out=0.2", key])
        with pytest.raises(SettingsError, match=text):
            search(scored(lambda s: 0.5), sizes(), wrong)
    with pytest.raises(DataError, match="no client has enough samples to hold some out"):
        search(lambda s: Outcome(0, {}), sizes(), SETTINGS)


def test_sizes_are_asked_for_after_the_first_trial_only():
    known = []

    def measure(s):
        known.append(Sizes(6, 50))
        return Outcome(0, {"a": 0.5})

    trials, _ = search(
        measure, lambda: known[0], load_settings(None, ["data.source=memory", "evaluation.held_out=0.2"])
    )
    assert {one.values["n_atoms"] for one in trials if one.group == "atoms of a client"} == {6, 3}
