"""Claims of global matching, each against something that cannot share its mistakes."""

import itertools

import numpy as np
import pytest

from common.dictionaries import atom_distances, dictionary_distance
from common.synthetic import generate
from perdl_server.algorithm.matching import MatchingError, align, global_matching, suggest_n_global


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def unit_dictionaries(rng, d, sizes):
    return [unit(rng.standard_normal((d, r))) for r in sizes]


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def d2(a, b):
    return min(np.linalg.norm(a - b), np.linalg.norm(a + b))


# Paths


def shortest_path_by_enumeration(dictionaries, alive):
    def length(path):
        pairs = zip(itertools.pairwise(dictionaries), itertools.pairwise(path), strict=True)
        return sum(d2(A[:, p], B[:, q]) for (A, B), (p, q) in pairs)

    return min((length(path), path) for path in itertools.product(*map(sorted, alive)))


@pytest.mark.parametrize("seed", range(20))
def test_paths_equal_enumeration_with_vertices_removed(seed):
    rng = np.random.default_rng(seed)
    dictionaries = unit_dictionaries(rng, 5, rng.integers(2, 5, size=4))
    n_global = min(D.shape[1] for D in dictionaries)
    found = global_matching(dictionaries, n_global)

    alive = [set(range(D.shape[1])) for D in dictionaries]
    for j in range(n_global):
        length, path = shortest_path_by_enumeration(dictionaries, alive)
        assert found.path_lengths[j] == pytest.approx(length, abs=1e-12)
        assert tuple(found.indices[:, j]) == path
        for layer, node in zip(alive, path, strict=True):
            layer.remove(node)


def paths_by_full_passes(dictionaries, n_paths):
    """Every path from a fresh pass over all edges; the first of equal predecessors is taken."""
    weights = [atom_distances(b, a) for a, b in itertools.pairwise(dictionaries)]
    gone = [set() for _ in dictionaries]
    for _ in range(n_paths):
        cost = [[np.inf if v in gone[0] else 0.0 for v in range(dictionaries[0].shape[1])]]
        pred = []
        for layer, w in enumerate(weights, 1):
            best = [int(np.argmin(row + np.array(cost[-1]))) for row in w]
            pred.append(best)
            cost.append([np.inf if v in gone[layer] else w[v, u] + cost[-1][u] for v, u in enumerate(best)])
        path = [int(np.argmin(cost[-1]))]
        for best in reversed(pred):
            path.append(best[path[-1]])
        path = path[::-1]
        for removed, node in zip(gone, path, strict=True):
            removed.add(node)
        yield path, min(cost[-1])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("least", "most", "n_clients"), [(20, 40, 9), (30, 31, 9), (60, 80, 6), (200, 201, 4)])
def test_paths_equal_full_passes_in_layers_of_any_size(seed, ties, least, most, n_clients):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(least, most, size=n_clients)
    dictionaries = unit_dictionaries(rng, 4, sizes)
    if ties:  # atoms along few directions: many edges of equal length, many of length zero
        grid = unit(np.array(list(itertools.product([-1.0, 0, 1], repeat=3)))[14:].T)
        dictionaries = [grid[:, rng.integers(0, grid.shape[1], r)] for r in sizes]
    n_paths = min(min(sizes), 30)
    found = global_matching(dictionaries, int(n_paths))
    paths, lengths = zip(*paths_by_full_passes(dictionaries, n_paths), strict=True)
    np.testing.assert_array_equal(found.indices, np.array(paths).T)
    np.testing.assert_array_equal(found.path_lengths, lengths)


@pytest.mark.parametrize("seed", range(5))
def test_paths_share_no_atom_and_never_get_shorter(seed):
    rng = np.random.default_rng(seed)
    dictionaries = unit_dictionaries(rng, 6, rng.integers(12, 20, size=7))
    found = global_matching(dictionaries, 12)
    for chosen in found.indices:
        assert len(set(chosen)) == 12
    assert (np.diff(found.path_lengths) >= 0).all()
    edges = [
        [d2(A[:, p], B[:, q]) for p, q in zip(a, b, strict=True)]
        for (A, B), (a, b) in zip(itertools.pairwise(dictionaries), itertools.pairwise(found.indices), strict=True)
    ]
    np.testing.assert_allclose(found.path_lengths, np.sum(edges, axis=0), atol=1e-12)


def test_identical_atoms_give_paths_of_length_zero_and_each_is_taken_once():
    D = np.repeat(np.eye(4)[:, :2], 2, axis=1)
    found = global_matching([D, -D, D], 4)
    assert found.path_lengths.tolist() == [0, 0, 0, 0]
    assert all(sorted(chosen) == [0, 1, 2, 3] for chosen in found.indices)
    assert dictionary_distance(found.global_dictionary, D) == 0


# What is made of the paths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_clients", [4, 150])
def test_global_atoms_are_the_mean_of_atoms_signed_as_the_first_clients(seed, n_clients):
    rng = np.random.default_rng(seed)
    dictionaries = unit_dictionaries(rng, 5, [5, 7, 6, 5] + [5] * (n_clients - 4))
    found = global_matching(dictionaries, 3)
    for j in range(3):
        first = dictionaries[0][:, found.indices[0, j]]
        atoms = [D[:, i[j]] for D, i in zip(dictionaries, found.indices, strict=True)]
        signs = [1 if a @ first >= 0 else -1 for a in atoms]
        assert found.signs[:, j].tolist() == signs
        mean = sum(s * a for s, a in zip(signs, atoms, strict=True)) / n_clients
        np.testing.assert_allclose(found.global_dictionary[:, j], mean, atol=1e-14)


def test_an_atom_orthogonal_to_the_first_clients_counts_as_aligned():
    found = global_matching([np.eye(3)[:, :1], np.eye(3)[:, 1:2]], 1)
    assert found.signs.tolist() == [[1], [1]]
    np.testing.assert_allclose(found.global_dictionary[:, 0], [0.5, 0.5, 0])


def test_error_stays_under_the_bound_of_theorem_1():
    rng = np.random.default_rng(0)
    basis = orthonormal(rng, 12, 12)
    shared, rest = basis[:, :4], basis[:, 4:]
    truth = [np.hstack([shared, rest @ orthonormal(rng, 8, 8)]) for _ in range(5)]
    start = [(D + 1e-2 * unit(rng.standard_normal((12, 12))))[:, rng.permutation(12)] for D in truth]
    found = global_matching(start, 4)
    assert dictionary_distance(found.global_dictionary, shared) <= 1e-2
    for D, chosen, true in zip(start, found.indices, truth, strict=True):
        assert dictionary_distance(np.delete(D, chosen, axis=1), true[:, 4:]) <= 1e-2 + 1e-12


def test_result_turns_with_the_feature_space():
    rng = np.random.default_rng(1)
    dictionaries = unit_dictionaries(rng, 6, [5, 4, 6])
    turn = orthonormal(rng, 6, 6)
    plain, turned = (global_matching(Ds, 4) for Ds in (dictionaries, [turn @ D for D in dictionaries]))
    np.testing.assert_array_equal(turned.indices, plain.indices)
    np.testing.assert_array_equal(turned.signs, plain.signs)
    np.testing.assert_allclose(turned.path_lengths, plain.path_lengths, atol=1e-12)
    np.testing.assert_allclose(turned.global_dictionary, turn @ plain.global_dictionary, atol=1e-12)


def test_result_does_not_depend_on_order_and_sign_of_a_clients_atoms():
    rng = np.random.default_rng(2)
    dictionaries = unit_dictionaries(rng, 6, [5, 4, 6])
    shuffled = [(D * rng.choice([-1, 1], D.shape[1]))[:, rng.permutation(D.shape[1])] for D in dictionaries]
    plain, other = global_matching(dictionaries, 4), global_matching(shuffled, 4)
    np.testing.assert_allclose(other.path_lengths, plain.path_lengths, atol=1e-12)
    for a, b in zip(plain.global_dictionary.T, other.global_dictionary.T, strict=True):
        assert d2(a, b) < 1e-12


def test_inputs_are_left_alone_and_may_be_read_only():
    rng = np.random.default_rng(3)
    dictionaries = [np.asfortranarray(D) for D in unit_dictionaries(rng, 5, [4, 4, 4])]
    for D in dictionaries:
        D.flags.writeable = False
    found = global_matching(dictionaries, 3)
    assert found.global_dictionary.dtype == np.float64
    narrow = global_matching([D.astype("f4") for D in dictionaries], 3)
    assert narrow.global_dictionary.dtype == np.float32
    np.testing.assert_array_equal(narrow.indices, found.indices)


# Edges


def test_one_client_and_no_shared_atom_are_legal():
    rng = np.random.default_rng(2)
    assert global_matching(unit_dictionaries(rng, 4, [3]), 2).path_lengths.tolist() == [0.0, 0.0]
    found = global_matching(unit_dictionaries(rng, 4, [3, 2]), 0)
    assert found.global_dictionary.shape == (4, 0)
    assert found.indices.shape == (2, 0)


@pytest.mark.parametrize(
    ("shapes", "n_global", "names", "text"),
    [
        ([(4, 3), (4, 2)], 3, None, "client 1 has 2 usable atoms, fewer than n_global = 3: lower n_global"),
        ([(4, 3), (4, 2)], 3, ["north", "south"], "south has 2 usable atoms, fewer than n_global = 3"),
        ([(4, 3), (5, 3)], 1, ["north", "south"], "south has 5 features, north has 4: all clients' samples must have"),
        ([(4, 3)], -1, None, "n_global is -1; it must be 0 or more"),
        ([], 1, None, "matching needs at least one client's dictionary"),
    ],
)
def test_dictionaries_that_cannot_be_matched_are_named(shapes, n_global, names, text):
    with pytest.raises(MatchingError) as caught:
        global_matching([np.ones(shape) for shape in shapes], n_global, names)
    assert str(caught.value).startswith(text)
    assert len(str(caught.value).splitlines()) == 1


# suggest_n_global


def noisy_truths(seed, n_clients, d, r_g, r, noise):
    rng = np.random.default_rng(seed)
    for i in range(n_clients):
        truth = generate(seed, f"client-{i}", n_features=d, n_global=r_g, n_local=r - r_g, n_samples=1)
        D = np.hstack([truth.global_dictionary, truth.local_dictionary])
        yield (D + noise * unit(rng.standard_normal((d, r))))[:, rng.permutation(r)] * rng.choice([-1, 1], r)


@pytest.mark.parametrize("r_g", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.05])
def test_the_suggested_number_of_shared_atoms_is_the_true_one(r_g, noise):
    for seed in range(6):
        dictionaries = list(noisy_truths(seed, 10, 6, r_g, 6, noise))
        suggested, lengths = suggest_n_global(dictionaries)
        assert suggested == r_g
        np.testing.assert_array_equal(lengths, global_matching(dictionaries, 6).path_lengths)


@pytest.mark.parametrize(
    ("n_clients", "d", "r", "r_g"), [(2, 20, 12, 4), (30, 6, 6, 2), (5, 40, 30, 10), (4, 40, 10, 0)]
)
def test_the_suggestion_holds_for_other_sizes(n_clients, d, r, r_g):
    for seed in range(3):
        assert suggest_n_global(list(noisy_truths(seed, n_clients, d, r_g, r, 0.02)))[0] == r_g


def test_unequal_sizes_and_float32_are_no_trouble_for_the_suggestion():
    rng = np.random.default_rng(5)
    shared = orthonormal(rng, 12, 2)
    rest = np.eye(12) - shared @ shared.T
    Ds = [np.hstack([shared, unit(rest @ rng.standard_normal((12, r)))]).astype("f4") for r in (3, 8, 5, 1)]
    suggested, lengths = suggest_n_global(Ds)
    assert suggested == 2
    assert lengths.shape == (3,)


def test_a_single_client_shares_all_its_atoms_with_itself_and_no_atoms_suggest_none():
    rng = np.random.default_rng(6)
    assert suggest_n_global(unit_dictionaries(rng, 5, [4]))[0] == 4
    assert suggest_n_global([np.eye(4), np.zeros((4, 0))])[0] == 0


@pytest.mark.parametrize("method", ["chain", "star"])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_client_without_atoms_shares_none(method, empty):
    dictionaries = [np.eye(4)] * 3
    dictionaries[empty] = np.zeros((4, 0))
    assert suggest_n_global(dictionaries, method=method)[0] == 0
    assert global_matching(dictionaries, 0, method=method).indices.shape == (3, 0)


def test_a_client_that_has_fewer_atoms_is_paired_with_the_nearest_of_all():
    rng = np.random.default_rng(0)
    G = np.linalg.qr(rng.standard_normal((8, 4))).Q
    assert align(G, -G[:, [3, 1]]).tolist() == [-1, 1, -1, 0]
    assert align(G, G[:, :0]).tolist() == [-1] * 4
    assert align(G, G[:, [2, 0, 3, 1]]).tolist() == [1, 3, 0, 2]
    assert align(G[:, :0], G).shape == (0,)
