"""No atom that few samples use, or that one sample makes up, leaves a client; others move as without the guard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from common import online
from common.aggregations import AGGREGATIONS
from common.coders import CODERS, HardThreshold, TopK
from common.errors import SettingsError
from common.learners import LEARNERS, product
from common.polar import polar_factor
from common.protocol import ProtocolError
from common.settings import settings_from_values
from common.synthetic import generate
from perdl_client.data.mnist import load_mnist
from perdl_client.learning import guard
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.guard import SHARE, passed, rounded
from perdl_client.learning.guarded_step import Coded, guarded_step
from perdl_client.learning.local_update import local_update
from perdl_client.learning.received import check_received

D, R_G, R_L, N = 8, 4, 3, 40


def samples(seed=0):
    """Sparse samples with heavy tails, one of them huge, and one that is nearly alone."""
    rng = np.random.default_rng(seed)
    atoms = np.linalg.qr(rng.standard_normal((D, D))).Q
    X = rng.standard_t(3, (D, N)) * (rng.random((D, N)) < 0.3)
    Y = atoms @ X + 0.01 * rng.standard_normal((D, N))
    Y[:, 0] *= 30
    return Y, atoms[:, :R_L]


def crafted(Y, own):
    """What a server may send to find samples out, by name."""
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((D, R_G))
    direction = noise[:, :1] / np.linalg.norm(noise[:, 0])
    longest = Y[:, np.argsort(-np.linalg.norm(Y, axis=0))[:R_G]]
    return {
        "zero": np.zeros((D, R_G)),
        "huge": 1e6 * noise,
        "one-hot": np.eye(D, R_G),
        "own atoms": np.hstack([own, noise[:, :1]]),
        "random": noise / np.linalg.norm(noise, axis=0),
        "scaled copies": direction * 10.0 ** np.arange(R_G),
        "samples": longest / np.linalg.norm(longest, axis=0),
        "faint samples": 1e-3 * longest / np.linalg.norm(longest, axis=0),
    }


CODER_NUMBERS = {"hard-threshold": 0.5, "top-k": 2, "omp": 2, "ols": 2, "omp-threshold": 0.5}


class Spy:
    """Records the sums over samples that a guarded step takes."""

    def __init__(self, monkeypatch):
        self.seen = []
        monkeypatch.setattr(guard, "product", self)

    def __call__(self, A, X):
        self.seen.append((A, X))
        return product(A, X)


def sizes(A, x, Y, D_all, codes):
    """Squared norms of the terms of one atom, with plain loops: of what it is made of, and of what moves it."""
    made, moved = [], []
    for s in range(Y.shape[1]):
        left = A[:, s].copy()
        for j in range(D_all.shape[1]):
            left -= D_all[:, j] * codes[j, s]
        made.append(sum((value * x[s]) ** 2 for value in A[:, s]))
        moved.append(sum((value * x[s]) ** 2 for value in left))
    return made, moved


def holds(terms):
    return max(terms) <= SHARE * sum(terms) * (1 + 1e-9)


@pytest.mark.parametrize("what", crafted(*samples()))
@pytest.mark.parametrize(("learner", "coder"), itertools.product(sorted(LEARNERS), sorted(CODERS)))
@pytest.mark.parametrize("least", [2, 5])
def test_every_atom_that_moved_is_of_enough_samples_and_no_others_did(monkeypatch, learner, coder, what, least):
    Y, own = samples()
    D_g = crafted(Y, own)[what]
    spy = Spy(monkeypatch)
    make = CODERS[coder].make(CODER_NUMBERS[coder])
    update = local_update(Y, D_g, own, LEARNERS[learner], make, 0.5, min_samples=least)
    moved = (update.global_dictionary != D_g).any(axis=0)
    D_all = np.hstack([D_g, own])
    if learner == "projected":
        allowed = projected_allowed(spy, Y, D_all, make, least)
    else:
        (A, W), codes = spy.seen[0], passed(Y, D_all, make(Y, D_all), least).codes
        allowed = []
        for j in range(R_G + R_L):
            used = np.count_nonzero(W[j])
            if used == 0:
                allowed.append(False)
                continue
            made, moving = sizes(A, W[j], Y, D_all, codes)
            at_rest = sum(moving) <= 1e-26 * sum(made)
            assert used >= least
            assert holds(made)
            assert at_rest or holds(moving)
            allowed.append(True)
    assert not moved[~np.array(allowed)[:R_G]].any()
    unmoved = ~moved
    np.testing.assert_array_equal(update.global_dictionary[:, unmoved], D_g[:, unmoved])
    assert not update.energies[~np.array(allowed)[:R_G]].any()
    for aggregation, needs in AGGREGATIONS.items():
        if needs.contribution == "procrustes" and LEARNERS[learner].orthonormal:
            assert not update.contribution(aggregation)[:, ~np.array(allowed)[:R_G]].any()
        elif needs.contribution == "atoms":
            assert update.contribution(aggregation) is update.global_dictionary


def projected_allowed(spy, Y, D_all, coder, least):
    """Check each atom's sums, which have their own codes; return which atoms have any."""
    allowed = np.zeros(R_G + R_L, dtype=bool)
    sums = iter([X for A, X in spy.seen if A is Y])
    for i, atom in enumerate(D_all.T):
        if atom @ atom == 0:
            continue
        B = D_all - np.outer(atom, atom @ D_all / (atom @ atom))
        B[:, i] = atom
        codes = coder(Y, B)
        if not codes[i].any():
            continue
        signs = next(sums)[0]
        if np.count_nonzero(signs) == 0:
            continue
        made, moving = sizes(Y, signs, Y, B, codes)
        assert np.count_nonzero(signs) >= least
        assert holds(made)
        assert sum(moving) <= 1e-26 * sum(made) or holds(moving)
        allowed[i] = True
    return allowed


def test_a_step_is_the_learners_of_the_weighted_samples():
    """Against both learners written out with loops over samples."""
    Y, own = samples()
    D_g = crafted(Y, own)["random"]
    D_all, coder = np.hstack([D_g, own]), HardThreshold(0.5)
    seen = passed(Y, D_all, coder(Y, D_all), 5)
    assert (seen.weights < 1).any()
    assert seen.weights[0] < 0.2, "the huge sample counts less"
    M, S = np.zeros_like(D_all), np.zeros((R_G + R_L, R_G + R_L))
    for s in range(N):
        M += seen.weights[s] * np.outer(seen.rest[:, s], seen.codes[:, s])
        S += seen.weights[s] * np.outer(seen.codes[:, s], seen.codes[:, s])
    sent = seen.moves[:R_G]
    polar = local_update(Y, D_g, own, LEARNERS["orthogonal"], coder, min_samples=5)
    np.testing.assert_allclose(
        np.abs(polar.global_dictionary[:, sent]), np.abs(polar_factor(M, prior=D_all)[:, :R_G][:, sent]), atol=1e-12
    )
    slope = local_update(Y, D_g, own, LEARNERS["gradient"], coder, 0.7, min_samples=5)
    wanted = D_all - 0.7 / np.linalg.norm(S, 2) * (D_all @ S - M)
    np.testing.assert_allclose(slope.global_dictionary[:, sent], wanted[:, :R_G][:, sent], atol=1e-12)


@pytest.mark.parametrize("coder", sorted(CODERS))
@pytest.mark.parametrize("least", [2, 5])
def test_each_block_of_a_learner_that_sums_in_blocks_passes_alone(monkeypatch, coder, least):
    """So a sum of blocks passes too: no block gives an atom more of one sample than the guard allows."""
    monkeypatch.setattr(online, "BLOCK", 10)
    monkeypatch.setattr(online, "_SAMPLES", 0)
    Y, own = samples()
    D_g = crafted(Y, own)["random"]
    D_all, spy = np.hstack([D_g, own]), Spy(monkeypatch)
    coded = []
    make = CODERS[coder].make(CODER_NUMBERS[coder])

    def code(B, D):
        coded.append((B, D, make(B, D)))
        return coded[-1][2]

    step, seen, _ = guarded_step(LEARNERS["online"], Y, D_all, Coded(code), 0.5, least)
    assert step.codes is None
    assert len(coded) >= 4
    total, allowed = {}, np.zeros(D_all.shape[1], dtype=bool)
    for (A, W), (B, D, X) in zip(spy.seen[::2], coded, strict=True):
        held = passed(B, D, X, least).codes
        for j in np.flatnonzero(W.any(axis=1)):
            made, moving = sizes(A, W[j], B, D, held)
            assert np.count_nonzero(W[j]) >= least
            assert holds(made)
            assert sum(moving) <= 1e-26 * sum(made) or holds(moving)
            allowed[j] = True
            total.setdefault(j, []).extend(made)
    assert allowed.any() or least == 5
    assert all(holds(terms) for terms in total.values())
    np.testing.assert_array_equal(seen.moves, allowed)
    np.testing.assert_array_equal(step.dictionary[:, ~allowed], D_all[:, ~allowed])


@pytest.mark.parametrize(("learner", "coder"), itertools.product(sorted(LEARNERS), sorted(CODERS)))
def test_where_it_need_not_act_no_bit_changes(monkeypatch, learner, coder):
    monkeypatch.setattr(
        online, "BLOCK", 4000
    )  # in small blocks that fit well, one sample may have most of what is left
    known = generate(0, "client-1", n_features=8, n_global=4, n_local=3, n_samples=4000, sparsity=0.3, noise=0.05)
    rng = np.random.default_rng(0)
    near = np.linalg.qr(np.hstack([known.global_dictionary, known.local_dictionary]) + 0.1 * rng.random((8, 7))).Q
    arguments = known.data, near[:, :4], near[:, 4:], LEARNERS[learner], CODERS[coder].make(CODER_NUMBERS[coder]), 0.5
    plain, held = local_update(*arguments), local_update(*arguments, min_samples=5)
    for name, value in vars(plain).items():
        np.testing.assert_array_equal(getattr(held, name), value, err_msg=name)


@pytest.mark.parametrize("learner", ["orthogonal", "coordinate", "online"])
def test_without_noise_the_truth_stays_where_it_is_though_samples_count_less(learner):
    known = generate(0, "client-1", n_features=6, n_global=3, n_local=3, n_samples=40)
    D_g, D_l, coder = known.global_dictionary, known.local_dictionary, HardThreshold(0.15)
    truth = np.hstack([D_g, D_l])
    seen = passed(known.data, truth, coder(known.data, truth), 5)
    assert (seen.weights < 1).any()
    assert not seen.untouched
    update = local_update(known.data, D_g, D_l, LEARNERS[learner], coder, min_samples=5)
    np.testing.assert_allclose(update.global_dictionary, D_g, atol=1e-12)


def test_an_own_atom_never_goes_on_as_a_global_one():
    """A server sends what is near to an own atom, which only one sample made."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((20, 200))
    secret = Y[:, :1] / np.linalg.norm(Y[:, 0])
    D_g = secret + 0.3 * rng.standard_normal((20, 1)) / np.sqrt(20)
    D_g -= secret * 0.9 * (secret.T @ D_g)
    for learner in LEARNERS.values():
        update = local_update(Y, D_g / np.linalg.norm(D_g), secret, learner, HardThreshold(0.1), min_samples=5)
        assert abs(update.global_dictionary[:, 0] @ secret[:, 0]) / np.linalg.norm(update.global_dictionary) < 0.9


def test_an_own_atom_learns_from_few_samples():
    """What stays at the client is not held to the guard."""
    rng = np.random.default_rng(0)
    rare = np.eye(6)[:, 5]
    Y = np.outer(np.eye(6)[:, 0], rng.standard_normal(50)) + 0.01 * rng.standard_normal((6, 50))
    Y[:, :2] = np.outer(rare, [3.0, 4.0])
    start = (rare + 0.5 * np.eye(6)[:, 4])[:, None] / np.sqrt(1.25)
    update = local_update(Y, np.eye(6)[:, :1], start, LEARNERS["orthogonal"], HardThreshold(0.5), min_samples=5)
    assert abs(update.local_dictionary[:, 0] @ rare) > 0.999


@pytest.mark.parametrize("centred", [False, True])
def test_random_atoms_of_one_code_draw_no_image_out(mnist, centred):
    """The attack of one round: what moved is compared with images that the client has, and with as many others."""
    images = load_mnist(mnist, "train")[0]
    chosen = np.random.default_rng(5).permutation(len(images))
    Y, others = (images[chosen[part]].T / 255 for part in (slice(0, 500), slice(500, 1000)))
    if centred:
        Y, others = Y - Y.mean(axis=1, keepdims=True), others - Y.mean(axis=1, keepdims=True)
    D_g = np.random.default_rng(0).standard_normal((784, 784))
    D_g /= np.linalg.norm(D_g, axis=0)

    def drawn(least, of):
        none = np.zeros((784, 0))
        update = local_update(Y, D_g, none, LEARNERS["gradient"], TopK(1), 0.5, min_samples=least)
        move = update.global_dictionary - D_g
        move = move[:, np.linalg.norm(move, axis=0) > 1e-12]
        cosines = (move / np.linalg.norm(move, axis=0)).T @ (of / np.linalg.norm(of, axis=0))
        return np.abs(cosines).max(axis=0)

    assert (drawn(None, Y) > 0.99).sum() > 60
    found, control = drawn(5, Y), drawn(5, others)
    assert (found > 0.95).sum() == 0
    assert (found > 0.9).sum() <= (control > 0.9).sum() + 6


def test_what_the_first_dictionary_sends_is_of_enough_samples():
    """One step from a known start tells no sample, whatever threshold the server chose."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((30, 60))
    Y[:, 0] *= 20
    for threshold in (1.0, 5.0, 8.0):
        told = {"start": "identity", "warmup_steps": 1, "threshold": threshold, "n_global": 0}
        for learner in ("gradient", "orthogonal", "coordinate", "online"):
            settings = settings_from_values({**told, "learner": learner})
            client = ClientLearner(Y, settings.for_client("a"), 0, "a", guarded=True)
            move = client.start().atoms - np.eye(30)[:, client.start().used]
            move = move[:, np.linalg.norm(move, axis=0) > 1e-9]
            cosines = (move / np.linalg.norm(move, axis=0)).T @ (Y / np.linalg.norm(Y, axis=0))
            assert np.abs(cosines).max(initial=0) < 0.9


@pytest.mark.parametrize("guarded", [False, True])
def test_singular_vectors_are_no_samples_though_no_step_follows(guarded):
    """A server may start clients from them with next to no steps: the longest sample would be the first of them."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((30, 60))
    Y[:, 0] *= 20
    told = {
        "start": "svd",
        "warmup_steps": 3,
        "step_size": 1e-9,
        "learner": "gradient",
        "threshold": 0.0,
        "n_global": 0,
    }
    settings = settings_from_values({**told, "n_atoms": 30, "data": {"source": "files"}})
    client = ClientLearner(Y, settings.for_client("a"), 0, "a", guarded=guarded)
    atoms = client.dictionary if not guarded else client.start().atoms
    cosines = atoms.T @ Y / np.linalg.norm(atoms, axis=0)[:, None] / np.linalg.norm(Y, axis=0)
    assert np.abs(cosines).max() < 0.85 if guarded else np.abs(cosines).max() > 0.99
    np.testing.assert_allclose(client.dictionary.T @ client.dictionary, np.eye(30), atol=1e-6)


def test_singular_vectors_of_samples_of_which_none_is_long_keep_their_bits():
    Y = np.random.default_rng(0).standard_normal((20, 300))
    settings = settings_from_values({"start": "svd", "warmup_steps": 0, "n_atoms": 20, "data": {"source": "files"}})
    plain, held = (ClientLearner(Y, settings.for_client("a"), 0, "a", guarded=g).dictionary for g in (False, True))
    np.testing.assert_array_equal(held, plain)


@pytest.mark.parametrize("coder", sorted(CODERS))
def test_error_and_nonzeros_are_told_as_if_atoms_that_may_not_move_were_not_there(coder):
    """Else a sample sent as an atom would show in them, whether the client has it or not."""
    Y, own = samples()
    D_g = crafted(Y, own)["samples"]
    make = CODERS[coder].make(CODER_NUMBERS[coder] if "threshold" not in coder else 20.0)
    update = local_update(Y, D_g, own, LEARNERS["gradient"], make, min_samples=12)
    moved = (update.global_dictionary != D_g).any(axis=0)
    assert not moved.all()
    rest = np.hstack([D_g[:, moved], own])
    X = make(Y, rest)
    assert update.error == pytest.approx(np.linalg.norm(Y - rest @ X) / np.linalg.norm(Y), rel=1e-12)
    assert update.nonzeros == np.count_nonzero(X) / N


def test_what_no_honest_server_sends_is_refused():
    good = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3))).Q
    check_received(good, "ada")
    check_received(np.zeros((6, 0)), "ada")
    for wrong, word in (
        (0 * good, "norm 0"),
        (1e6 * good, "norm 1e\\+06"),
        (good[:, [0, 1, 0]] * [1, 1, 3], "1 and 3 are scaled"),
    ):
        with pytest.raises(ProtocolError, match=word):
            check_received(wrong, "ada")
    with pytest.raises(ProtocolError, match="1 and 2 are scaled copies, of the norms 1 and 50"):
        check_received(np.stack([good[:, 0], -50 * good[:, 0]], axis=1), "ada")


@pytest.mark.parametrize(("value", "told"), [(0.123456, 0.123), (1.23456e-16, 1.23e-16), (123456.0, 123000.0), (0, 0)])
def test_figures_are_told_with_three_digits(value, told):
    assert rounded(value) == told


def test_a_client_with_the_guard_starts_from_no_samples():
    told = {"start": "samples", "learner": "online", "n_atoms": 12, "n_global": 0, "data": {"source": "files"}}
    settings = settings_from_values({**told, "privacy": "none"})
    Y = np.random.default_rng(0).standard_normal((30, 60))
    with pytest.raises(SettingsError, match='start = "samples": shows samples of ada'):
        ClientLearner(Y, settings.for_client("ada"), 0, "ada", guarded=True).start()
    for mode in ("guarded", "masked", "aggregated"):
        with pytest.raises(SettingsError, match=f'with privacy = "{mode}"'):
            settings_from_values({**told, "privacy": mode})
