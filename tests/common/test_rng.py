"""Claims of random streams: independent, and the same everywhere."""

import itertools
import os
import subprocess
import sys

import numpy as np

from common.rng import stream


def test_first_numbers_stay_what_they_were():
    assert stream(7, "client-3", "codes").integers(0, 1 << 62, 2).tolist() == [3228723563959970768, 1855498896392076852]
    assert stream(0, "", "start").bytes(8) == stream(0, "", "start").bytes(8)


def test_another_process_draws_the_same_whatever_its_hash_seed():
    code = "from common.rng import stream; print(stream(5, 'clinic-é', 'start').integers(0, 1 << 62, 3).tolist())"
    here = stream(5, "clinic-é", "start").integers(0, 1 << 62, 3).tolist()
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p) or ".",
    }
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)


def test_seeds_clients_and_purposes_give_unrelated_numbers():
    keys = list(
        itertools.product([0, 1, 2**40], ["", "client-1", "client-10", "client-2"], ["start", "codes", "noise"])
    )
    draws = np.array([stream(*key).standard_normal(4000) for key in keys])
    correlation = np.abs(np.corrcoef(draws) - np.eye(len(keys)))
    assert correlation.max() < 5 / np.sqrt(4000)
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)


def test_text_is_not_run_together():
    keys = [(0, "ab", "c"), (0, "a", "bc"), (0, "c", "ab"), (0, "", "abc"), (0, "abc", "")]
    assert len({stream(*key).bytes(16) for key in keys}) == len(keys)


def test_drawing_from_one_leaves_the_others_alone():
    first = stream(0, "a", "start")
    first.standard_normal(100)
    assert stream(0, "a", "start").random() == stream(0, "a", "start").random()
    assert first.random() != stream(0, "a", "start").random()
