"""Reports of thousands of clients: as small as those of forty, and they show the clients that need a look."""

import json

import numpy as np
import pytest

from perdl.plots import describe, draw
from perdl.report.figure import MOST_CLIENTS
from perdl.report.page import render_report
from perdl.results.run_result import RunResult

WORST = "client-2001"


def crowd(n):
    names = [f"client-{i + 1}" for i in range(n)]
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 0.3, n)
    clients = {
        name: {"n_samples": 50, "n_atoms": 6, "nonzeros": 2.0, "final_error": e, "final_shared": 0.6, "final_own": 0.3}
        for name, e in zip(names, errors.tolist(), strict=True)
    }
    if WORST in clients:
        clients[WORST] |= {"final_error": 0.9, "final_shared": 0.1, "final_own": 0.1}
    D = np.linalg.qr(rng.standard_normal((6, 6))).Q
    summary = {"clients": clients, "rounds": 2, "stop_reason": "rounds", "settings": {}, "final": {}, "bytes": {}}
    return RunResult(
        folder=None,
        summary=json.loads(json.dumps(summary)),
        global_dictionary=D[:, :3],
        consensus=np.ones(3),
        local_dictionaries=dict.fromkeys(names, D[:, 3:]),
        usage={name: np.full(6, 1 / 6) for name in names},
        metrics=[{"round": t, "client": name} for t in (1, 2) for name in names if (t, name) != (2, WORST)],
        history=[{"round": t, "clients": n} for t in (1, 2)],
        shape=(6,),
    )


def test_the_page_of_ten_thousand_clients_is_hardly_larger_than_that_of_forty():
    few, many = (len(render_report(crowd(n))) for n in (MOST_CLIENTS, 10_000))
    assert many < 1.2 * few


@pytest.mark.parametrize("figure", ["variance", "usage", "participation"])
def test_the_client_that_needs_a_look_is_shown_and_the_choice_is_told(figure):
    result = crowd(3000)
    axes = draw(figure, result).axes[0]
    labels = [text.get_text() for text in (*axes.get_yticklabels(), *axes.get_xticklabels())]
    assert any(WORST in label for label in labels) or figure == "usage"  # it names every second client
    assert f"Of 3000 clients the {MOST_CLIENTS} with" in describe(figure, result)


def test_of_forty_clients_all_are_shown():
    assert " are shown" not in describe("variance", crowd(MOST_CLIENTS))
