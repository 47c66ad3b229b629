"""``perdl server --tune``: federated trials equal simulated ones, what of them travels, and how a search ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from common.settings import load_settings
from common.synthetic import generate
from perdl.check.tune import read_clients, tune
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.tuning import app as tuning_app

QUICK = ["rounds=4", "n_restarts=2", "local_restarts=2", "n_atoms=8", "n_global=auto"]
QUICK += ["data.source=files", "evaluation.held_out=0.2", "evaluation.n_nonzero=2"]


def write_samples(folder, sizes, *, d=8, n_global=5, n_local=3):
    """A CSV of each client, which share some atoms."""
    kind = {"n_features": d, "n_global": n_global, "n_local": n_local, "sparsity": 0.3, "noise": 0.05}
    for i, n in enumerate(sizes, start=1):
        Y = generate(0, f"client-{i}", n_samples=n, **kind).data
        np.savetxt(folder / f"{i}.csv", Y.T, delimiter=",")


def settings_of(folder, n, *overrides):
    told = [f"n_clients={n}", f"data.path={folder}/*.csv", f"output={folder / 'out'}"]
    return load_settings(None, [*QUICK, *told, *overrides])


def federate(settings, **keywords):
    """Search over the federation in this process; return what it wrote."""
    run_in_process(tuning_app, client_app, settings, **keywords)
    return result_of(settings)


def result_of(settings):
    with open(f"{settings.output}/tuning.json") as file:
        return json.load(file)


def simulate(folder, settings):
    files = sorted(folder.glob("*.csv"))
    return tune(*read_clients(files, settings), settings)


@pytest.mark.parametrize(("sizes", "overrides"), [((60, 80, 70), []), ((60, 12, 70), ["dtype=float32", "seed=3"])])
def test_the_federation_measures_what_the_simulation_does_to_the_last_bit(tmp_path, sizes, overrides):
    write_samples(tmp_path, sizes)
    settings = settings_of(tmp_path, len(sizes), *overrides)
    trials, best = simulate(tmp_path, settings)
    result = federate(settings)
    assert result["stop_reason"] == "tuned"
    told = [(row["group"], row["values"], row["n_global"], list(row["errors"].values())) for row in result["trials"]]
    assert told == [(one.group, one.values, one.n_global, one.errors.tolist()) for one in trials]
    assert [bool(row["failed"]) for row in result["trials"]] == [bool(one.failed) for one in trials]
    assert trials[result["chosen"]] is best
    judged = [f"client-{i}" for i, n in enumerate(sizes, start=1) if n > 20]
    assert all(list(row["errors"]) == judged for row in result["trials"] if not row["failed"])
    assert result["not_judged"] == [f"client-{i}" for i, n in enumerate(sizes, start=1) if n <= 20]
