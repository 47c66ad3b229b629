"""Groups of near atoms: against brute force over all partitions, and nothing where nothing is shared."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from common.dictionaries import ABSENT, atom_distances
from perdl_server.algorithm.clusters import chance_distance, count_pairs, shared_groups


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r))).Q


def groups_of(indices):
    """The groups as a set of sets of (client, atom)."""
    return {frozenset((int(i), int(column[i])) for i in np.flatnonzero(column >= 0)) for column in indices.T}


def partitions(items):
    """All partitions into blocks that hold at most one atom of each client."""
    if not items:
        yield []
        return
    first, *rest = items
    for blocks in partitions(rest):
        yield [[first], *blocks]
        for k, block in enumerate(blocks):
            if first[0] not in {client for client, _ in block}:
                yield [*blocks[:k], [first, *block], *blocks[k + 1 :]]


def cost(blocks, units, tau):
    """The stated objective: sum of d^2 - tau^2 over the pairs in one group."""
    return sum(
        atom_distances(units[p][:, [i]], units[q][:, [j]])[0, 0] ** 2 - tau**2
        for block in blocks
        for (p, i), (q, j) in itertools.combinations(sorted(block), 2)
    )


def brute_force(dictionaries, tau):
    atoms = [(i, j) for i, D in enumerate(dictionaries) for j in range(D.shape[1])]
    best = min(partitions(atoms), key=lambda blocks: cost(blocks, dictionaries, tau))
    return {frozenset(block) for block in best if len(block) > 1}


def limit(dictionaries):
    return chance_distance(len(dictionaries[0]), count_pairs([D.shape[1] for D in dictionaries]))


def planted(rng, d, pattern, noise, own=1):
    """Dictionaries in which client i has atom j of an orthonormal set where the pattern says so, and its own ones."""
    pattern = np.asarray(pattern, dtype=bool)
    shared = orthonormal(rng, d, pattern.shape[1])
    made = []
    for row in pattern:
        own_atoms = rng.standard_normal((d, own)) if own else np.empty((d, 0))
        D = np.linalg.qr(np.hstack([shared[:, row], own_atoms])).Q
        D[:, : row.sum()] = shared[:, row]
        D = unit(D + noise * rng.standard_normal(D.shape)) * rng.choice([-1.0, 1.0], D.shape[1])
        made.append(D[:, rng.permutation(D.shape[1])])
    return made


@pytest.mark.parametrize("seed", range(12))
def test_groups_that_are_apart_are_the_optimum_over_all_partitions(seed):
    rng = np.random.default_rng(seed)
    pattern = rng.random((3, 2)) < 0.75
    dictionaries = planted(rng, 12, pattern, 0.02)
    # The limit falls with what two clients share already; apart, neither it nor the full one cuts a group.
    assert groups_of(shared_groups(dictionaries)) == brute_force(dictionaries, limit(dictionaries))
    assert sorted((shared_groups(dictionaries) >= 0).sum(axis=0)) == sorted(m for m in pattern.sum(axis=0) if m > 1)


@pytest.mark.parametrize("seed", range(20))
def test_otherwise_they_are_valid_and_never_worse_than_no_groups(seed):
    rng = np.random.default_rng(seed)
    dictionaries = planted(rng, 6, np.ones((3, 2)), 0.25)
    tau, found = limit(dictionaries), groups_of(shared_groups(dictionaries))
    best = brute_force(dictionaries, tau)
    assert all(len({client for client, _ in group}) == len(group) > 1 for group in found)
    assert len({atom for group in found for atom in group}) == sum(map(len, found))
    assert cost(best, dictionaries, tau) - 1e-12 <= cost(found, dictionaries, tau) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_no_two_groups_could_be_joined_for_the_better(seed):
    """The greedy solution leaves no pair of mutually nearest atoms apart that fit into one group within the limit."""
    rng = np.random.default_rng(seed)
    dictionaries = planted(rng, 15, rng.random((4, 3)) < 0.7, 0.03)
    blocks = [*groups_of(shared_groups(dictionaries))]
    alone = {(i, j) for i, D in enumerate(dictionaries) for j in range(D.shape[1])} - set().union(*blocks, set())
    blocks += [frozenset([atom]) for atom in alone]
    tau = limit(dictionaries)
    for A, B in itertools.combinations(blocks, 2):
        if not {p for p, _ in A} & {q for q, _ in B}:
            before = cost([A], dictionaries, tau) + cost([B], dictionaries, tau)
            assert cost([A | B], dictionaries, tau) >= before


def test_the_order_of_the_clients_changes_no_group():
    rng = np.random.default_rng(1)
    dictionaries = planted(rng, 14, rng.random((6, 4)) < 0.6, 0.04, own=2)
    groups = groups_of(shared_groups(dictionaries))
    for _ in range(5):
        order = rng.permutation(6)
        turned = groups_of(shared_groups([dictionaries[i] for i in order]))
        assert {frozenset((int(order[i]), j) for i, j in group) for group in turned} == groups


def test_a_turn_of_the_feature_space_signs_and_sizes_change_no_group():
    rng = np.random.default_rng(2)
    dictionaries = planted(rng, 14, rng.random((5, 4)) < 0.6, 0.04, own=2)
    Q = orthonormal(rng, 14, 14)
    turned = [Q @ D * rng.uniform(0.1, 9, D.shape[1]) * rng.choice([-1, 1], D.shape[1]) for D in dictionaries]
    np.testing.assert_array_equal(shared_groups(turned), shared_groups(dictionaries))


def test_large_groups_come_first_and_absent_clients_are_marked():
    E = np.eye(9)
    found = shared_groups([E[:, [5, 0]], E[:, [0, 1, 7]], E[:, [1, 0, 5]]])
    assert found.tolist() == [[1, 0, ABSENT], [0, ABSENT, 1], [1, 2, 0]]


@pytest.mark.parametrize("shapes", [[(4, 0), (4, 0)], [(4, 3)], [(4, 2), (4, 0)], [(1, 1), (1, 1)]])
def test_without_pairs_or_dimensions_nothing_is_shared(shapes):
    rng = np.random.default_rng(0)
    assert shared_groups([unit(rng.standard_normal(shape)) for shape in shapes]).shape == (len(shapes), 0)


@pytest.mark.parametrize(("d", "n_pairs"), [(2, 1), (3, 4), (6, 20), (20, 50)])
def test_the_chance_distance_is_reached_by_chance_as_often_as_stated(d, n_pairs):
    rng, tau, n = np.random.default_rng(d), chance_distance(d, n_pairs, 0.2), 4000
    A, B = (rng.standard_normal((n * n_pairs, d)) for _ in range(2))
    cosines = np.abs((A * B).sum(axis=1)) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    nearest = np.sqrt(2 - 2 * cosines).reshape(n, n_pairs).min(axis=1)
    expected = 1 - (1 - 0.2 / n_pairs) ** n_pairs
    assert abs((nearest < tau).mean() - expected) < 4 * np.sqrt(expected / n)


@pytest.mark.parametrize(("d", "N", "r"), [(6, 10, 3), (20, 5, 8), (50, 3, 20)])
def test_independent_dictionaries_share_nothing_in_19_of_20_draws(d, N, r):
    n = 200
    rng = np.random.default_rng(d)
    any_found = sum(shared_groups([orthonormal(rng, d, r) for _ in range(N)]).shape[1] > 0 for _ in range(n))
    assert any_found <= 0.05 * n + 3 * np.sqrt(0.05 * 0.95 * n)


def test_who_share_all_but_three_dimensions_get_no_group_there_by_chance():
    """Of 6 dimensions 3 are shared. In the other 3 unrelated atoms are often nearer than chance in 6 would have it."""
    found, nearer = [], 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        dictionaries = planted(rng, 6, np.ones((4, 3)), 0.0, own=3)
        found.append(shared_groups(dictionaries).shape[1])
        own = [D[:, np.abs(dictionaries[0].T @ D).max(axis=0) < 1 - 1e-9] for D in dictionaries[1:]]
        nearer += any((atom_distances(A, B) < limit(dictionaries)).any() for A, B in itertools.combinations(own, 2))
    assert min(found) == 3
    assert sum(count > 3 for count in found) <= 0.05 * 200 + 3 * np.sqrt(0.05 * 0.95 * 200)
    assert nearer > 40  # so the rule is needed
