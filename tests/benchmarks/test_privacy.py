"""The attacks of benchmarks/privacy.py, small: they succeed without protection, and with it as little as docs say."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from common.coders import CODERS
from common.learners import LEARNERS
from common.settings import settings_from_values
from perdl_client.learning.client import ClientLearner

ROOT = Path(__file__).resolve().parent.parent.parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where they find each other
    spec.loader.exec_module(module)
    return module


hostile_server, attacks, privacy = (load(name) for name in ("hostile_server", "sample_attacks", "privacy"))
Refused = hostile_server.Refused
MODES = ("none", "guarded", "aggregated", "masked", "private")


@pytest.fixture(scope="module")
def images():
    return privacy.made_up()


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def shares(server, found, images, cosine=0.9):
    """Share of the clients' images that was found, and of as many others."""
    Y = np.hstack(server.samples)
    return attacks.recovered(found, Y, cosine), attacks.recovered(found, images.public(Y.shape[1]), cosine)


def test_random_atoms_draw_images_out_without_protection_and_none_at_99_in_other_modes(images):
    for mode in MODES:
        case = privacy.Case(images, mode)
        with case.clients(200, *attacks.ONE_CODE) as server:
            found = attacks.random_rounds(server, 100, 3)
        own, others = shares(server, found, images, 0.99)
        assert others == 0
        assert own > 0.05 if mode == "none" else own == 0, mode
        if mode in ("masked", "private"):
            assert shares(server, found, images) == (0, 0)


@pytest.mark.parametrize(("learner", "coder"), list(itertools.product(sorted(LEARNERS), sorted(CODERS))))
def test_one_round_draws_no_image_out_of_a_guarded_client_whatever_learner_and_coder(images, learner, coder):
    told = (f"learner={learner}", f"coder={coder}", "n_nonzero=1", "threshold_unit=rms", "threshold=1.5")
    for aggregation in ("mean", "energy", "procrustes") if learner == "orthogonal" else ("mean", "energy"):
        for mode in ("none", "guarded"):
            with privacy.Case(images, mode).clients(60, *told, f"aggregation={aggregation}") as server:
                found = attacks.random_rounds(server, 20, 1)
            own, others = shares(server, found, images)
            if mode == "guarded":
                assert own <= others + 5 / 60  # procrustes sends means, which images are near to, and its own nearer
                assert shares(server, found, images, 0.95) == (0, 0)
            elif learner != "orthogonal" and coder in ("top-k", "omp"):
                assert own >= others + 3 / 60, "the attack is one"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", attacks.CRAFTED)
def test_what_no_honest_server_sends_is_refused_or_tells_nothing(images, mode, kind):
    with privacy.Case(images, mode).clients(100, *attacks.ONE_CODE) as server:
        guarded = mode in ("guarded", "aggregated", "masked") and kind in ("zero", "scaled copies")
        if guarded or kind == "huge":
            with pytest.raises(Refused, match=r"an honest server sends none such|out of all proportion"):
                attacks.crafted(server, kind, 50)
            return
        found = attacks.crafted(server, kind, 50)
        own = shares(server, found, images, 0.99)[0]
        assert own > 0 if mode == "none" and kind == "one-hot" else own == 0


def test_the_run_that_is_one_too_many_is_refused_whatever_its_seed(images):
    case = privacy.Case(images, "guarded")
    with case.clients(60, *attacks.ONE_CODE) as server:
        _, served, why = attacks.random_runs(server, 10, 60)
    assert served == 50
    assert "does not take part in another run: its data served 50, and its terms allow 50 in all" in why


def test_a_private_client_serves_as_many_runs_as_its_epsilon_pays_for(images):
    with privacy.Case(images, "private").clients(60, *attacks.ONE_CODE) as server:
        _, served, why = attacks.random_runs(server, 10, 5)
    assert served == 2
    assert "does not take part with epsilon = 10: its data spent 20" in why


def test_differences_find_samples_to_the_last_digit_in_every_mode_that_the_threat_model_names(images):
    """Nothing but noise, or coordinates that are not the server's, bounds what many rounds tell together."""
    for mode in MODES:
        with privacy.Case(images, mode).clients(20) as server:
            n = sum(Y.shape[1] for Y in server.samples)
            found = attacks.walked_threshold(server, 60, n)
        exact = attacks.exact(found, np.hstack(server.samples))
        assert exact > 0.1 if mode in ("none", "guarded", "aggregated") else exact == 0, mode
        if mode == "masked":  # lengths stay
            lengths, known = np.linalg.norm(found, axis=0), np.linalg.norm(server.samples[0], axis=0)
            assert (np.abs(lengths[:, None] / known - 1).min(axis=0) < 1e-6).mean() > 0.2


def test_a_client_that_answers_few_rounds_tells_few_samples_by_differences(images):
    with privacy.Case(images, "guarded").clients(20) as server:
        assert attacks.exact(attacks.walked_threshold(server, 10, 20), server.samples[0]) <= 9 / 20


@pytest.mark.parametrize("what", ["move", "nonzeros"])
def test_a_sample_that_is_sent_as_an_atom_tells_membership_without_the_guard_alone(images, what):
    for mode in MODES:
        case = privacy.Case(images, mode, quick=True)
        gain = privacy.trials(case, lambda server, y: attacks.score_by_itself(server, y, what), 4)
        assert float(gain) == (1 if mode == "none" else 0), mode


def test_first_dictionaries_show_samples_without_protection_and_no_sample_with_it(images):
    for mode, long in itertools.product(("none", "guarded", "masked", "private"), (1, 10)):
        Y = images.part(0, 20) * np.where(np.arange(20) == 3, long, 1)
        with privacy.Case(images, mode).clients(20, own=Y) as server:
            found = attacks.first_dictionaries(server, 40)
        own = shares(server, found, images, 0.95)[0]
        assert own > 0 if mode == "none" else own == 0, (mode, long)


def test_the_digit_of_a_client_shows_in_its_first_dictionary_unless_that_is_masked(images):
    told = {mode: privacy.digit(privacy.Case(images, mode, quick=True), "first") for mode in ("guarded", "masked")}
    assert int(told["guarded"].rstrip(" %")) >= 80
    assert int(told["masked"].rstrip(" %")) <= 40


def test_own_atoms_are_found_by_distances_if_some_share():
    """With ``sharing = "some"`` a client tells how near its atoms are to any that the server names."""
    rng = np.random.default_rng(0)
    Y = np.linalg.qr(rng.standard_normal((8, 8))).Q @ (rng.standard_normal((8, 300)) * (rng.random((8, 300)) < 0.3))
    settings = settings_from_values(
        {"sharing": "some", "n_global": "auto", "n_atoms": 8, "synthetic": {"n_features": 8}}
    )
    client = ClientLearner(Y, settings.for_client("a"), 0, "a", guarded=True)
    near = client.start().atoms[:, 0]
    client.split(np.full(8, -1), "some")
    size = 0.1
    probes = near[:, None] + size * np.eye(8)
    D_g = probes / np.linalg.norm(probes, axis=0)
    client.share(np.zeros(8, dtype=bool), D_g)
    new = client.update(D_g, 1)
    _, distances = client.evidence(new, D_g)
    found = np.linalg.solve(D_g.T, 1 - distances**2 / 2)
    secret = new.local_dictionary[:, np.abs(new.local_dictionary.T @ near).argmax()]
    assert abs(found @ secret) / np.linalg.norm(found) > 1 - 1e-6


def test_advantage_is_that_of_the_rule_found_on_other_trials():
    assert attacks.advantage([2, 3, 2, 3], [0, 1, 0, 1]) == 1
    assert attacks.advantage([2, 3, 0, 1], [0, 1, 2, 3]) == -1
    assert attacks.advantage([1, 1, 1, 1], [1, 1, 1, 1]) == 0


def test_recovered_and_exact_against_loops():
    rng = np.random.default_rng(0)
    Y, F = rng.standard_normal((5, 7)), rng.standard_normal((5, 9))
    F[:, 2] = -Y[:, 4]
    cosines = [max(abs(f @ y) / np.linalg.norm(f) / np.linalg.norm(y) for f in F.T) for y in Y.T]
    assert attacks.recovered(F, Y, 0.8) == np.mean([c >= 0.8 for c in cosines])
    assert attacks.exact(F, Y) == pytest.approx(1 / 7)
    assert attacks.exact(F[:, :2], Y) == 0


def test_every_test_that_the_threat_model_names_is_there():
    text = (ROOT / "docs" / "threat-model.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 25
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


def test_every_claim_of_the_threat_model_has_a_test():
    """Each row of the tables of what bounds what ends in the name of one."""
    rows = [row for row in (ROOT / "docs" / "threat-model.md").read_text().splitlines() if row.startswith("| ")]
    claims = [row for row in rows if row.count("|") == 4 and not row.startswith(("| party", "| what", "| phase"))]
    assert len(claims) > 15
    for row in claims:
        assert "::test_" in row.rsplit("|", 2)[1], row
