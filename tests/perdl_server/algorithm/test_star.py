"""Matching around one client: against brute force, and where a chain goes wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from common.dictionaries import atom_distances, dictionary_distance
from common.synthetic import generate
from perdl_server.algorithm import star
from perdl_server.algorithm.matching import global_matching
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.star import misfits, star_paths


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r))).Q


def shuffled_truths(seed, n_clients, d, r_g, r, noise=0.0):
    rng = np.random.default_rng(seed)
    for i in range(n_clients):
        t = generate(seed, f"client-{i}", n_features=d, n_global=r_g, n_local=r - r_g, n_samples=1)
        D = np.hstack([t.global_dictionary, t.local_dictionary]) + noise * rng.standard_normal((d, r))
        yield D[:, rng.permutation(r)] * rng.choice([-1, 1], r)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n_clients", "d", "r_g", "r"), [(10, 6, 3, 6), (4, 20, 5, 12), (3, 8, 8, 8), (2, 5, 1, 3)])
def test_finds_what_the_chain_finds_where_starts_are_good(seed, n_clients, d, r_g, r):
    Ds = list(shuffled_truths(seed, n_clients, d, r_g, r, noise=0.005))
    chain, star = (global_matching(Ds, r_g, method=method) for method in ("chain", "star"))
    assert dictionary_distance(chain.global_dictionary, star.global_dictionary) < 1e-12


def brute_force(dictionaries, n_paths):
    """Every client's atoms of least median distance, in the best of all pairings: the least offer, and who makes it."""
    best = None
    for centre, C in enumerate(dictionaries):
        W = [atom_distances(C, D) for D in dictionaries]
        nearest = np.median([w.min(axis=1) for i, w in enumerate(W) if i != centre], axis=0)
        chosen = np.argsort(nearest, kind="stable")[:n_paths]
        pairs = [
            min(itertools.permutations(range(w.shape[1]), n_paths), key=lambda p, w=w: (w[chosen, p] ** 2).sum())
            if i != centre
            else tuple(chosen)
            for i, w in enumerate(W)
        ]
        edges = [w[chosen, pair] for i, (w, pair) in enumerate(zip(W, pairs, strict=True)) if i != centre]
        value = np.median(edges, axis=0).sum()
        if best is None or value < best[0] - 1e-12:
            best = value, {tuple(int(pair[j]) for pair in pairs) for j in range(n_paths)}, centre
    return best[1:]


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_on_small_unequal_dictionaries(seed):
    rng = np.random.default_rng(seed)
    Ds = [rng.standard_normal((3, r)) for r in (3, 4, 2, 3)]
    Ds = [D / np.linalg.norm(D, axis=0) for D in Ds]
    indices, lengths, centre = star_paths(Ds, 2)
    assert ({tuple(map(int, column)) for column in indices.T}, centre) == brute_force(Ds, 2)
    assert (np.diff(lengths) >= 0).all()


def test_a_client_whose_atoms_are_mixed_up_swaps_paths_on_a_chain_and_not_on_a_star():
    rng = np.random.default_rng(0)
    wrong_on_chain = 0
    for seed in range(20):
        Ds = list(shuffled_truths(seed, 9, 8, 3, 6))
        t = generate(seed, "client-0", n_features=8, n_global=3, n_local=3, n_samples=1)
        a, b, c = t.global_dictionary.T
        mixed = np.column_stack([a + b, a - b]) / np.sqrt(2)
        for i in (3, 5):  # two clients with global atoms turned by 45 degrees in their plane
            Ds[i] = np.column_stack([mixed, c, t.local_dictionary])[:, rng.permutation(6)]
        chain, star = (global_matching(Ds, 3, method=method).global_dictionary for method in ("chain", "star"))
        near = atom_distances(t.global_dictionary, star / np.linalg.norm(star, axis=0)).min(axis=1)
        assert near.max() < 0.3, seed
        chain = chain / np.linalg.norm(chain, axis=0)
        wrong_on_chain += atom_distances(t.global_dictionary, chain).min(axis=1).max() > 0.3
    assert wrong_on_chain >= 5


@pytest.mark.parametrize("seed", range(10))
def test_clients_that_lack_an_atom_do_not_hide_it(seed):
    """Three of ten clients have no sample of one shared atom, while local atoms lie close together in a plane."""
    Ds = list(shuffled_truths(seed, 10, 6, 4, 6))
    shared = generate(seed, "client-0", n_features=6, n_global=4, n_local=2, n_samples=1).global_dictionary
    for i in range(3):
        Ds[i] = Ds[i][:, np.abs(shared[:, 0] @ Ds[i]) < 0.9]
    indices = global_matching(Ds, 4, method="star").indices
    having = [Ds[i][:, indices[i]] for i in range(3, 10)]
    for atom in shared.T:
        places = [int(np.abs(atom @ D).argmax()) for D in having]
        assert len(set(places)) == 1
        assert min(abs(atom @ D[:, place]) for D, place in zip(having, places, strict=True)) > 0.999


def hostile_layer(kind, rng, honest, d):
    D, r = honest[0], honest[0].shape[1]
    k = rng.integers(r)
    return {
        "random": lambda: orthonormal(rng, d, r),
        "large": lambda: 1e3 * orthonormal(rng, d, r),
        "tiny": lambda: 1e-3 * orthonormal(rng, d, r),
        "copy": lambda: D[:, rng.permutation(r)],
        "copy, scaled": lambda: D[:, rng.permutation(r)] * rng.choice([-1e-2, 1, 1e2], r),
        "one atom": lambda: D[:, [k] * r],
        "nearly one atom": lambda: D[:, [k] * r] + 1e-4 * rng.standard_normal((d, r)),
        "turned": lambda: D @ orthonormal(rng, r, r),
        "more atoms": lambda: rng.standard_normal((d, 3 * r)),
        "fewer atoms": lambda: orthonormal(rng, d, r - 1),
        "agreed": lambda: orthonormal(np.random.default_rng(5), d, r),
    }[kind]()


KINDS = ["random", "large", "tiny", "copy", "copy, scaled", "one atom", "nearly one atom", "turned", "more atoms"]
KINDS += ["fewer atoms", "agreed"]


@pytest.mark.parametrize("kind", [*KINDS, "any"])
@pytest.mark.parametrize(("n_honest", "n_hostile"), [(6, 4), (5, 3), (3, 1), (51, 49)])
def test_less_than_half_of_the_others_may_be_hostile_and_change_nothing(kind, n_honest, n_hostile):
    for seed in range(10 if n_honest < 50 else 1):
        rng = np.random.default_rng(seed)
        honest = list(shuffled_truths(seed, n_honest, 8, 3, 6, noise=1e-3))
        Ds, places = list(honest), rng.choice(n_honest + n_hostile, n_hostile, replace=False)
        for place in np.sort(places):
            one = rng.choice(KINDS) if kind == "any" else kind
            Ds.insert(place, hostile_layer(one, rng, honest, 8))
        kept = np.delete(np.arange(n_honest + n_hostile), places)
        alone, found = (global_matching(some, 3, method="star") for some in (honest, Ds))
        assert {tuple(path) for path in found.indices[kept].T} == {tuple(path) for path in alone.indices.T}
        for j in range(3):  # and whose sign is whose
            atoms = [Ds[i][:, found.indices[i, j]] * found.signs[i, j] for i in kept]
            assert min(atom @ atoms[0] for atom in atoms) > 0.9


def test_who_goes_first_cannot_set_the_others_signs_against_each_other():
    rng = np.random.default_rng(0)
    Ds = list(shuffled_truths(0, 5, 8, 3, 6, noise=1e-3))
    shared = generate(0, "client-0", n_features=8, n_global=3, n_local=3, n_samples=1).global_dictionary
    off = np.linalg.qr(np.hstack([shared, rng.standard_normal((8, 5))])).Q[:, 3:]  # all orthogonal to what is shared
    found = global_matching([off, *Ds], 3, method="star")
    for j in range(3):
        atoms = [D[:, k] * s for D, k, s in zip(Ds, found.indices[1:, j], found.signs[1:, j], strict=True)]
        assert min(atom @ atoms[0] for atom in atoms) > 0.9


# Who fits nobody


@pytest.mark.parametrize("method", ["chain", "star"])
@pytest.mark.parametrize("d", [8, 40])
def test_who_fits_nobody_is_named_and_nobody_else(method, d):
    rng = np.random.default_rng(0)
    for seed in range(5):
        honest = list(shuffled_truths(seed, 7, d, 3, 6, noise=0.1 / np.sqrt(d)))
        Ds = [*honest[:2], 1e-2 * orthonormal(rng, d, 6), *honest[2:5], orthonormal(rng, d, 5), *honest[5:]]
        unrelated = path_null(d, (6,) * 9, method).mean
        assert misfits(Ds, global_matching(Ds, 3, method=method).indices, unrelated) == [2, 6]
        assert misfits(honest, global_matching(honest, 3, method=method).indices, unrelated) == []


def test_where_most_fit_nobody_and_of_two_nobody_is_named():
    rng = np.random.default_rng(0)
    Ds = [orthonormal(rng, 30, 4) for _ in range(5)]
    unrelated = path_null(30, (4,) * 5, "star").mean
    assert misfits(Ds, global_matching(Ds, 2, method="star").indices, unrelated) == []
    assert misfits(Ds[:2], global_matching(Ds[:2], 2).indices, unrelated) == []
    assert misfits(Ds, global_matching(Ds, 0).indices, unrelated) == []


@pytest.mark.parametrize("at_once", [1, 500, 2**20])
@pytest.mark.parametrize(("N", "d", "m"), [(3, 2, 2), (9, 3, 3), (20, 5, 4), (50, 30, 6)])
def test_naming_is_by_medians_of_the_cheapest_pairings(N, d, m, at_once, monkeypatch):
    """Atoms of any angle, so that nearest ones coincide; by a plain loop, for every bound between two clients."""
    monkeypatch.setattr(star, "_ENTRIES", at_once)
    rng = np.random.default_rng(N)
    Ds = [rng.standard_normal((d, m + 2)) for _ in range(N)]
    Ds = [D / np.linalg.norm(D, axis=0) for D in Ds]
    indices = np.array([rng.permutation(m + 2)[:m] for _ in range(N)])
    atoms = [D[:, chosen] for D, chosen in zip(Ds, indices, strict=True)]
    fits, coincide = np.empty(N), 0
    for i in range(N):
        edges = []
        for k in set(range(N)) - {i}:
            distances = atom_distances(atoms[i], atoms[k])
            edges.append(distances[linear_sum_assignment(distances**2)])
            coincide += len(set(distances.argmin(axis=1))) < m
        fits[i] = np.median(np.median(edges, axis=0))
    assert coincide
    order = np.argsort(fits)
    for n_far in range(N // 2 + 1):
        bound = (fits[order[-n_far - 1]] + fits[order[-n_far]]) / 2 if n_far else fits.max() + 0.01
        assert misfits(Ds, indices, np.full(m, bound / 0.8)) == sorted(order[N - n_far :])


def test_naming_sees_every_client_where_there_are_many():
    Ds = list(shuffled_truths(0, 120, 8, 3, 6, noise=0.01))
    Ds[77] = np.random.default_rng(0).standard_normal((8, 6)) * 5
    assert misfits(Ds, global_matching(Ds, 3).indices, path_null(8, (6,) * 120).mean) == [77]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_edges(dtype):
    rng = np.random.default_rng(1)
    D = orthonormal(rng, 6, 4).astype(dtype)
    for Ds, n in (([D], 4), ([D, D[:, :2]], 2), ([D, D], 0), ([D[:, :0], D], 0)):
        matching = global_matching(Ds, n, method="star")
        assert matching.indices.shape == (len(Ds), n)
        assert matching.global_dictionary.dtype == dtype
        np.testing.assert_allclose(matching.path_lengths, 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["random", "colluding"])
@pytest.mark.parametrize(("N", "d", "r", "k"), [(1000, 8, 6, 3), (200, 32, 24, 5)])
def test_of_many_clients_three_in_ten_may_be_hostile(N, d, r, k, kind):
    """More clients than each is compared with each: candidates and comparisons are drawn."""
    rng = np.random.default_rng(0)
    honest = list(shuffled_truths(0, N, d, k, r, noise=1e-3))
    fake = orthonormal(rng, d, r)
    hostile = rng.random(N) < 0.3
    Ds = [
        (fake if kind == "colluding" else orthonormal(rng, d, r)) if bad else D
        for D, bad in zip(honest, hostile, strict=True)
    ]
    kept = np.flatnonzero(~hostile)
    found = global_matching(Ds, k, method="star")
    truth = global_matching([honest[i] for i in kept[:10]], k, method="star").global_dictionary
    for i in kept:
        assert dictionary_distance(Ds[i][:, found.indices[i]], truth) < 0.05
    chance = path_null(d, tuple(D.shape[1] for D in Ds), "star").mean
    reported = misfits(Ds, found.indices, chance)
    assert set(reported) <= set(np.flatnonzero(hostile))
    assert len(reported) > 0.9 * hostile.sum()
