"""The sentence that says whether federating helped."""

import pytest

from common.evaluation import Evaluation
from common.settings import load_settings
from perdl_server.held_out import add_pooled_sentence, held_out_summary

SETTINGS = load_settings(None, ["evaluation.held_out=0.2"])


def client(percent=None, k=5, width=4):
    """Facts of a client that gained so many percent, with this half width of the interval; None held out nothing."""
    facts = {"final_error": 0.4}
    if percent is None:
        return facts
    errors = {k: {"alone": 0.5, "federated": 0.5 * (1 - percent / 100), "shared": 0.9}}
    one = Evaluation(40, k, errors, (percent - width) / 100, (percent + width) / 100)
    return {**facts, "held_out": one.facts()}


def block(*clients, n_global=3):
    return held_out_summary({f"client-{i + 1}": one for i, one in enumerate(clients)}, SETTINGS, n_global)


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        (
            [client(6), client(7), client(-9), client(5)],
            "Federating lowered the error on held-out samples of 3 of 4 clients (the median client's is 5.5 % lower, "
            "with 5 atoms a sample); client-3 is better alone.",
        ),
        (
            [client(6), client(2)],
            "Federating lowered the error on held-out samples of 1 of 2 clients (the median client's is 4 % lower, "
            "with 5 atoms a sample); client-2 neither gained nor lost beyond chance.",
        ),
        (
            [client(-8, 1), client(-9, 1), client(1, 1)],
            "Federating lowered the error on held-out samples of none of 3 clients (the median client's is 8 % higher, "
            "with 1 atom a sample); client-1, client-2 are better alone; client-3 neither gained nor lost beyond "
            "chance.",
        ),
        (
            [client(6, 3), client(6, 5), client()],
            "Federating lowered the error on held-out samples of 2 of 2 clients (the median client's is 6 % lower, "
            "with 3 to 5 atoms a sample). Not evaluated: client-3.",
        ),
        (
            [client(10)],
            "Federating lowered the error on held-out samples of 1 of 1 client (it is 10 % lower, with 5 atoms a "
            "sample).",
        ),
        (
            [client(), client()],
            "It is not known whether federating helped: no client has enough samples to hold some out.",
        ),
    ],
)
def test_in_one_sentence(clients, said):
    assert block(*clients)["sentence"] == said


def test_many_names_are_cut():
    text = block(*[client(-9)] * 9)["sentence"]
    assert "client-1, client-2, client-3 and 6 more are better alone" in text


def test_where_nothing_is_shared_nothing_is_claimed():
    said = block(client(0, width=0), client(0, width=0), client(), n_global=0)["sentence"]
    assert said == "Nothing is shared, so that each of 2 clients has what it would have alone. Not evaluated: client-3."


def test_the_block_counts_and_names():
    found = block(client(6), client(1), client(-9), client())
    assert {key: found[key] for key in ("n_clients", "evaluated", "gained", "undecided", "better_alone")} == {
        "n_clients": 4,
        "evaluated": 3,
        "gained": ["client-1"],
        "undecided": ["client-2"],
        "better_alone": ["client-3"],
    }
    assert found["not_evaluated"] == ["client-4"]
    assert found["median_gain"] == pytest.approx(0.01)


def test_a_run_that_did_not_end_or_was_not_asked_says_nothing():
    assert held_out_summary({"ada": {}}, SETTINGS, 3) == {}
    assert held_out_summary({"ada": client()}, load_settings(None), 3) == {}


def test_the_comparison_with_pooled_samples_is_a_second_sentence():
    clients = {"a": client(6), "b": client(7), "c": client()}
    for name in ("a", "b"):
        clients[name]["held_out"]["pooled_gain"] = 0.08
    summary = {"clients": clients, "held_out": held_out_summary(clients, SETTINGS, 3)}
    add_pooled_sentence(summary)
    end = " From all samples pooled, which nobody may have, it is 8 % lower than alone in the median."
    assert summary["held_out"]["sentence"].endswith(end)
    assert summary["held_out"]["median_pooled_gain"] == pytest.approx(0.08)
