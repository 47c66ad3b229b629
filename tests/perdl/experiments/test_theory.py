"""Claims of the identifiability bounds, and theorem 1 itself as a test of global matching."""

import itertools

import numpy as np
import pytest

from common.dictionaries import dictionary_distance
from perdl.experiments.theory import identifiability, matching_condition
from perdl_server.algorithm.matching import global_matching


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def radius(v, dictionaries):
    """The definition: max over clients of the distance to the nearest atom, up to sign."""
    return max(min(min(np.linalg.norm(a - v), np.linalg.norm(a + v)) for a in D.T) for D in dictionaries)


def beta_by_enumeration(dictionaries):
    """Every choice of one signed atom a client; of each, every active set of the smallest cap that holds them."""
    best = np.inf
    for atoms in itertools.product(*(D.T for D in dictionaries)):
        for signs in itertools.product((1, -1), repeat=len(atoms) - 1):
            A = np.column_stack(atoms) * np.array([1, *signs])
            for n in range(1, len(atoms) + 1):
                for active in itertools.combinations(range(len(atoms)), n):
                    v = np.linalg.pinv(A[:, active]).T @ np.ones(n)
                    if np.linalg.norm(v) > 1e-9:
                        v /= np.linalg.norm(v)
                        best = min(best, np.linalg.norm(A - v[:, None], axis=0).max())
    return best


def beta_on_a_circle(dictionaries, n=200_001):
    angles = np.linspace(0, np.pi, n)
    V = np.array([np.cos(angles), np.sin(angles)])
    return np.sqrt(2 - 2 * min(1.0, np.min([np.abs(D.T @ V).max(axis=0) for D in dictionaries], axis=0).max()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n_clients", "d", "r"), [(3, 3, 2), (4, 3, 3), (3, 5, 3), (5, 4, 2)])
def test_the_bounds_hold_the_enumerated_value(n_clients, d, r, seed):
    rng = np.random.default_rng([seed, n_clients, d])
    Ds = [unit(rng.standard_normal((d, r))) for _ in range(n_clients)]
    lower, upper = identifiability(Ds)
    truth = beta_by_enumeration(Ds)
    assert lower <= truth + 1e-9
    assert truth <= upper + 1e-9
    for v in unit(rng.standard_normal((d, 200))).T:
        assert lower <= radius(v, Ds)
    assert lower > 0


@pytest.mark.parametrize("seed", range(10))
def test_the_bounds_hold_a_fine_grid_on_the_circle(seed):
    rng = np.random.default_rng(seed)
    Ds = [unit(rng.standard_normal((2, r))) for r in (1, 2, 2, 3)[: 2 + seed % 3]]
    lower, upper = identifiability(Ds)
    truth = beta_on_a_circle(Ds)
    assert lower <= truth + 1e-4
    assert truth <= upper + 1e-4


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("d", [2, 4, 9])
def test_the_bounds_meet_for_two_clients(d, seed):
    rng = np.random.default_rng(seed)
    A, B = unit(rng.standard_normal((d, 4))), unit(rng.standard_normal((d, 3)))
    lower, upper = identifiability([A, B])
    angle = np.arccos(np.abs(A.T @ B)).min()
    assert lower == pytest.approx(2 * np.sin(angle / 4), rel=1e-7)
    assert upper == pytest.approx(lower, rel=1e-7)
    assert lower == pytest.approx(beta_by_enumeration([A, B]), rel=1e-7)


def test_the_upper_bound_is_mostly_the_value_itself():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(12):
        Ds = [unit(rng.standard_normal((4, 3))) for _ in range(3)]
        hits += identifiability(Ds)[1] <= beta_by_enumeration(Ds) + 1e-9
    assert hits >= 8


def test_a_direction_common_to_all_makes_beta_zero():
    rng = np.random.default_rng(1)
    shared = unit(rng.standard_normal((5, 1)))
    Ds = [np.hstack([unit(rng.standard_normal((5, 2))), sign * shared]) for sign in (1, -1, 1)]
    lower, upper = identifiability(Ds)
    assert lower == pytest.approx(0, abs=1e-7)
    assert upper == pytest.approx(0, abs=1e-7)


def test_one_client_is_never_identifiable_and_one_without_local_atoms_always():
    D = np.eye(4)[:, :2]
    assert identifiability([D]) == pytest.approx((0, 0), abs=1e-7)
    assert identifiability([D, np.zeros((4, 0))]) == (np.inf, np.inf)


def test_bounds_do_not_depend_on_signs_or_on_the_order_of_clients_and_atoms():
    rng = np.random.default_rng(2)
    Ds = [unit(rng.standard_normal((5, 3))) for _ in range(4)]
    other = [(D * rng.choice([-1, 1], 3))[:, rng.permutation(3)] for D in Ds[::-1]]
    assert identifiability(other) == pytest.approx(identifiability(Ds), rel=1e-9)


# Theorem 1


def coherent_truth(rng, d, r_g, sizes, tilt):
    """Shared atoms first; not orthonormal, so that coherence takes part in the condition."""
    shared = unit(np.eye(d)[:, :r_g] + tilt * rng.standard_normal((d, r_g)) / np.sqrt(d))
    rest = [np.vstack([np.zeros((r_g, r)), rng.standard_normal((d - r_g, r))]) for r in sizes]
    return [
        np.hstack([shared, unit(np.linalg.qr(G)[0] + tilt * rng.standard_normal(G.shape) / np.sqrt(d))]) for G in rest
    ]


def perturbed(rng, D, size, others):
    """A start at distance up to ``size``: half at random, half each atom towards some atom of another client."""
    towards = others[:, rng.integers(0, others.shape[1], D.shape[1])]
    towards = towards * np.where((towards * D).sum(axis=0) < 0, -1, 1) - D
    push = np.where(rng.random(D.shape[1]) < 0.5, rng.standard_normal(D.shape), towards)
    norms = np.linalg.norm(push, axis=0)
    start = D + size * push / np.where(norms > 0, norms, 1)
    return (start * rng.choice([-1, 1], D.shape[1]))[:, rng.permutation(D.shape[1])]


def theorem_1(rng, share):
    """One random instance whose summed error is ``share`` of what the condition allows; (holds, right, tightness)."""
    n_clients, d, r_g = int(rng.integers(2, 6)), int(rng.integers(6, 10)), int(rng.integers(0, 4))
    sizes = rng.integers(1, d - r_g, n_clients)
    truth = coherent_truth(rng, d, r_g, sizes, rng.uniform(0, 0.3))
    allowed = matching_condition(truth, r_g, [0.0] * n_clients).right / 4
    shares = rng.dirichlet(np.full(n_clients, 0.5))
    starts = [
        perturbed(rng, D, share * allowed * s, np.hstack([E for E in truth if E is not D]))
        for D, s in zip(truth, shares, strict=True)
    ]
    errors = [dictionary_distance(S, D) for S, D in zip(starts, truth, strict=True)]
    holds = matching_condition(truth, r_g, errors).holds
    found = global_matching(starts, r_g)
    right = dictionary_distance(found.global_dictionary, truth[0][:, :r_g]) <= np.mean(errors) + 1e-9
    for S, chosen, D, error in zip(starts, found.indices, truth, errors, strict=True):
        right &= dictionary_distance(np.delete(S, chosen, axis=1), D[:, r_g:]) <= error + 1e-9
    return holds, right


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.99])
def test_theorem_1_bounds_every_dictionary_where_its_condition_holds(share):
    rng = np.random.default_rng(int(1000 * share))
    for _ in range(60):
        holds, right = theorem_1(rng, share)
        assert holds
        assert right


def test_theorem_1_says_nothing_beyond_its_condition():
    rng = np.random.default_rng(3)
    outcomes = [theorem_1(rng, share) for share in np.geomspace(1.02, 30, 80)]
    assert not any(holds for holds, _ in outcomes)
    assert sum(not right for _, right in outcomes) >= 5


def test_the_condition_states_both_sides_of_theorem_1():
    rng = np.random.default_rng(4)
    truth = coherent_truth(rng, 8, 2, [3, 4, 2], 0.2)
    condition = matching_condition(truth, 2, [0.01, 0.02, 0.005])
    cosines = [np.abs(D.T @ D - np.eye(D.shape[1])).max() for D in truth]
    beta, _ = identifiability([D[:, 2:] for D in truth])
    assert condition.left == pytest.approx(4 * 0.035)
    assert condition.coherence == pytest.approx(max(cosines))
    assert condition.beta == beta
    assert condition.right == pytest.approx(min(np.sqrt(2 - 2 * max(cosines)), beta))
    assert matching_condition(truth, 2, [condition.right / 4, 0, 0]).holds
    assert not matching_condition(truth, 2, [condition.right / 4 + 1e-9, 0, 0]).holds


def test_without_local_atoms_only_coherence_limits_the_errors():
    condition = matching_condition([np.eye(4)] * 3, 4, [0.1] * 3)
    assert condition.right == pytest.approx(np.sqrt(2))
    assert condition.holds
