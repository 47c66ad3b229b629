"""Claims of the learners, against exact minimisation, finite differences and a literal loop."""

import numpy as np
import pytest
import scipy.linalg

import perdl_client.learning.learners
from common.coders import OMP, HardThreshold, TopK, top_k
from common.dictionaries import dictionary_distance, match_atoms
from common.learners import LEARNERS, coordinate_step, gradient_step, online_step, orthogonal_step, projected_step
from common.synthetic import generate
from perdl_client.learning.warm_up import objective

STEPS = {
    "orthogonal": orthogonal_step,
    "gradient": gradient_step,
    "projected": projected_step,
    "coordinate": coordinate_step,
    "online": online_step,
}
CODERS = [HardThreshold(0.5), TopK(2), OMP(2)]


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def error(Y, D, X):
    return np.sum((Y - D @ X) ** 2)


def problem(seed, d=6, r=4, n=30):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((d, n)), orthonormal(rng, d, r)


def test_the_registry_names_every_learner():
    assert {name: learner.step for name, learner in LEARNERS.items()} == STEPS
    assert [name for name, learner in LEARNERS.items() if learner.orthonormal] == ["orthogonal"]
    assert perdl_client.learning.learners.LEARNERS is LEARNERS


@pytest.mark.parametrize("name", ["orthogonal", "gradient", "coordinate", "online"])
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_codes_are_those_of_the_old_dictionary(name, coder):
    _, Y, D = problem(0)
    np.testing.assert_array_equal(STEPS[name](Y, D, coder).codes, coder(Y, D))


# orthogonal_step


@pytest.mark.parametrize("shape", [(6, 6), (6, 3), (20, 5), (1, 1)])
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_no_orthonormal_dictionary_fits_the_codes_better(shape, coder):
    rng, Y, D = problem(1, *shape)
    step = orthogonal_step(Y, D, coder)
    np.testing.assert_allclose(step.dictionary.T @ step.dictionary, np.eye(shape[1]), atol=1e-12)
    least = error(Y, step.dictionary, step.codes)
    # The minimum in closed form: the nuclear norm of Y X'.
    nuclear = np.linalg.svd(Y @ step.codes.T, compute_uv=False).sum()
    assert least == pytest.approx(np.sum(Y**2) + np.sum(step.codes**2) - 2 * nuclear, rel=1e-10)
    for size in (1.0, 0.1, 1e-3):
        for _ in range(30):
            Q, R = np.linalg.qr(step.dictionary + size * rng.standard_normal(shape))
            assert error(Y, Q * np.sign(np.diag(R)), step.codes) >= least - 1e-9


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("coder", [HardThreshold(0.5), TopK(2)], ids=repr)
def test_the_orthogonal_objective_never_rises(seed, coder):
    _, Y, D = problem(seed)
    values = [objective(Y, D, coder)]
    for _ in range(30):
        D = orthogonal_step(Y, D, coder).dictionary
        values.append(objective(Y, D, coder))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < values[0] - 0.1


def test_the_truth_is_a_fixed_point():
    truth = generate(0, "a", n_features=6, n_global=3, n_local=3, n_samples=200)
    D = np.hstack([truth.global_dictionary, truth.local_dictionary])
    for name in STEPS:
        np.testing.assert_allclose(STEPS[name](truth.data, D, HardThreshold(0.15)).dictionary, D, atol=1e-13)


# gradient_step


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("r", [4, 9])
@pytest.mark.parametrize("step_size", [0.3, 1.0, 1.7])
def test_the_gradient_is_that_of_the_squared_error_and_eta_is_relative_to_the_curvature(coder, r, step_size):
    rng = np.random.default_rng(2)
    Y, D = rng.standard_normal((6, 30)), unit(rng.standard_normal((6, r)))
    step = gradient_step(Y, D, coder, step_size)
    X, h = step.codes, 1e-5
    gradient = np.zeros_like(D)
    for place in np.ndindex(D.shape):
        E = np.zeros_like(D)
        E[place] = h
        gradient[place] = (error(Y, D + E, X) - error(Y, D - E, X)) / (2 * h)
    eta = step_size / np.linalg.norm(X @ X.T, 2) / 2
    # The gradient of the error is 2 (DX - Y) X', so D - eta * gradient is D - 2 eta (DX - Y) X'.
    np.testing.assert_allclose(step.dictionary, D - eta * gradient, atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("step_size", [1e-3, 0.5, 1.0])
def test_a_gradient_step_never_raises_the_error_of_its_codes(seed, step_size):
    rng = np.random.default_rng(seed)
    Y, D = rng.standard_normal((5, 20)), rng.standard_normal((5, 8))
    step = gradient_step(Y, D, HardThreshold(0.7), step_size)
    assert error(Y, step.dictionary, step.codes) <= error(Y, D, step.codes)


def test_a_gradient_step_below_two_never_raises_the_error_and_beyond_two_it_may():
    rng = np.random.default_rng(3)
    Y, D = (
        rng.standard_normal((5, 20)),
        rng.standard_normal((5, 1)),
    )  # one atom: the curvature is that of every direction
    before = error(Y, D, gradient_step(Y, D, TopK(1)).codes)
    after = [error(Y, (s := gradient_step(Y, D, TopK(1), size)).dictionary, s.codes) for size in (1.0, 1.99, 2.01)]
    assert after[0] < after[1] < before < after[2]
    D1 = gradient_step(Y, D, TopK(1), 1.0).dictionary
    X = TopK(1)(Y, D)
    np.testing.assert_allclose(D1, Y @ X.T / np.sum(X**2), atol=1e-12)  # size 1 lands on the least-squares fit


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", list(STEPS))
def test_units_of_the_data_do_not_matter(name, scale):
    _, Y, D = problem(4)
    plain, scaled = (STEPS[name](s * Y, D, HardThreshold(0.5 * s)).dictionary for s in (1.0, scale))
    np.testing.assert_allclose(scaled, plain, atol=1e-7)


# projected_step


def arora_2015_algorithm_5(Y, D, threshold, step_size):
    """Sample by sample, atom by atom; step size in this package's unit."""
    out, codes = D.copy(), np.zeros((D.shape[1], Y.shape[1]))
    for i in range(D.shape[1]):
        B = np.empty_like(D)
        for j in range(D.shape[1]):
            B[:, j] = D[:, j] if j == i else D[:, j] - (D[:, i] @ D[:, j]) / (D[:, i] @ D[:, i]) * D[:, i]
        update, size = np.zeros(D.shape[0]), 0.0
        for s, y in enumerate(Y.T):
            x = np.array([v if abs(v) >= threshold else 0.0 for v in B.T @ y])
            update += (y - B @ x) * np.sign(x[i])
            size += abs(x[i])
            codes[i, s] = x[i]
        if size > 0:
            out[:, i] = D[:, i] + step_size / size * update
    return out, codes


@pytest.mark.parametrize(("d", "r"), [(5, 3), (5, 5), (4, 7), (3, 1)])
@pytest.mark.parametrize("step_size", [0.4, 1.0, 1.5])
@pytest.mark.parametrize("norms", [False, True])
def test_a_projected_step_equals_the_literal_loop(d, r, step_size, norms):
    rng = np.random.default_rng([d, r])
    Y, D = rng.standard_normal((d, 25)), unit(rng.standard_normal((d, r)))
    D = D * rng.uniform(0.5, 2, r) if norms else D
    step = projected_step(Y, D, HardThreshold(0.6), step_size)
    dictionary, codes = arora_2015_algorithm_5(Y, D, 0.6, step_size)
    np.testing.assert_allclose(step.dictionary, dictionary, atol=1e-12)
    np.testing.assert_allclose(step.codes, codes, atol=1e-12)


def test_on_orthonormal_dictionaries_projection_changes_no_code():
    _, Y, D = problem(5)
    coder = HardThreshold(0.5)
    np.testing.assert_allclose(projected_step(Y, D, coder).codes, coder(Y, D), atol=1e-12)


# Convergence (definition 2 of the paper)


# coordinate_step


@pytest.mark.parametrize("shape", [(6, 4), (5, 9), (3, 1)])
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_a_coordinate_step_equals_the_literal_loop_over_residuals(shape, coder):
    rng = np.random.default_rng(3)
    Y, D = rng.standard_normal((shape[0], 30)), unit(rng.standard_normal(shape))
    coder = coder if coder.number <= shape[1] else TopK(1)
    step = coordinate_step(Y, D, coder)
    X, expected = coder(Y, D), D.copy()
    for j in range(shape[1]):
        if X[j].any():
            others = np.delete(expected, j, axis=1) @ np.delete(X, j, axis=0)
            expected[:, j] = unit((Y - others) @ X[j])
    np.testing.assert_allclose(step.dictionary, expected, atol=1e-11)


def test_no_unit_atom_fits_better_than_the_last_one_of_a_coordinate_step():
    rng, Y, D = problem(4)
    step = coordinate_step(Y, D, OMP(2))
    least = error(Y, step.dictionary, step.codes)
    assert least < error(Y, D, step.codes)
    for size in (1e-3, 0.1, 1.0):
        other = step.dictionary.copy()
        other[:, -1] = unit(other[:, -1] + size * rng.standard_normal(6))
        assert error(Y, other, step.codes) > least


def test_coordinate_steps_find_atoms_that_are_not_orthogonal_where_orthogonal_ones_cannot():
    rng = np.random.default_rng(5)
    true = unit(rng.standard_normal((12, 6)))
    X = top_k(rng.standard_normal((6, 600)), 2)
    found = {"orthogonal": scipy.linalg.polar(true)[0], "coordinate": start_near(true, 0.3, 0)}
    for name in found:
        for _ in range(60):
            found[name] = STEPS[name](true @ X, found[name], OMP(2)).dictionary
    assert dictionary_distance(found["coordinate"], true) < 0.05
    assert dictionary_distance(found["orthogonal"], true) > 0.1


def start_near(truth, size, seed):
    rng = np.random.default_rng(seed)
    return truth + size * unit(rng.standard_normal(truth.shape))


@pytest.mark.parametrize(
    ("name", "options", "rate"),
    [
        ("orthogonal", {}, 0.35),
        ("gradient", {"step_size": 0.7}, 0.75),
        ("projected", {"step_size": 0.7}, 0.65),
        ("gradient", {}, 0.8),
        ("projected", {}, 0.75),
        ("coordinate", {}, 0.8),
        ("online", {}, 0.8),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_learners_converge_linearly_to_the_truth_from_a_good_start(name, options, rate, seed):
    truth = generate(seed, "a", n_features=6, n_global=3, n_local=3, n_samples=500)
    true = np.hstack([truth.global_dictionary, truth.local_dictionary])
    D = start_near(true, 0.05, seed)
    if LEARNERS[name].orthonormal:
        D = scipy.linalg.polar(D)[0]
    errors = [dictionary_distance(D, true)]
    while errors[-1] > 1e-10 and len(errors) < 200:
        D = STEPS[name](truth.data, D, HardThreshold(0.15), **options).dictionary
        errors.append(dictionary_distance(D, true))
    assert errors[-1] <= 1e-10
    assert (errors[-1] / errors[0]) ** (1 / (len(errors) - 1)) < rate


@pytest.mark.parametrize("name", list(STEPS))
def test_every_atom_comes_nearer_in_one_step(name):
    truth = generate(3, "a", n_features=6, n_global=3, n_local=3, n_samples=2000)
    true = np.hstack([truth.global_dictionary, truth.local_dictionary])
    D = start_near(true, 0.05, 0)
    D = scipy.linalg.polar(D)[0] if LEARNERS[name].orthonormal else D
    step = STEPS[name](truth.data, D, HardThreshold(0.15), 0.7)
    assert (match_atoms(step.dictionary, true).errors < 0.8 * match_atoms(D, true).errors).all()


# Dead atoms, types and arrays


@pytest.mark.parametrize("name", list(STEPS))
def test_atoms_that_no_sample_uses_stay(name):
    _, Y, D = problem(6, d=8, r=6)
    Y -= D[:, 4:] @ (D[:, 4:].T @ Y)
    step = STEPS[name](Y, D, HardThreshold(0.5))
    assert not step.codes[4:].any()
    np.testing.assert_allclose(step.dictionary[:, 4:], D[:, 4:], atol=1e-6)
    assert np.abs(step.dictionary[:, :4] - D[:, :4]).max() > 0.01


@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize("n", [1, 3])
def test_data_of_zeros_and_too_few_samples_change_nothing_that_they_do_not_reach(name, n):
    _, _, D = problem(7)
    step = STEPS[name](np.zeros((6, n)), D, HardThreshold(0.5))
    np.testing.assert_allclose(step.dictionary, D, atol=1e-12)
    one = STEPS[name](3 * D[:, :1] @ np.ones((1, n)), D, HardThreshold(0.5))
    np.testing.assert_allclose(one.dictionary, D, atol=1e-6)


def test_a_zero_atom_stays_zero():
    _, Y, D = problem(8)
    D[:, 2] = 0
    for step in (gradient_step, projected_step):
        assert not step(Y, D, HardThreshold(0.5)).dictionary[:, 2].any()


@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_float32_stays_float32_and_near_float64(name, coder):
    _, Y, D = problem(9)
    narrow = STEPS[name](Y.astype("f4"), D.astype("f4"), coder, 0.7)
    assert narrow.dictionary.dtype == narrow.codes.dtype == np.float32
    wide = STEPS[name](Y.astype("f4").astype("f8"), D.astype("f4").astype("f8"), coder, 0.7)
    np.testing.assert_allclose(narrow.dictionary, wide.dictionary, atol=1e-3)


@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_read_only_and_strided_arrays_give_the_same(name, coder):
    _, Y, D = problem(10)
    wide = np.zeros((12, 60))
    wide[::2, ::2] = Y
    fortran = np.asfortranarray(D)
    wide.flags.writeable = fortran.flags.writeable = False
    np.testing.assert_allclose(
        STEPS[name](wide[::2, ::2], fortran, coder).dictionary, STEPS[name](Y, D, coder).dictionary, atol=1e-12
    )


@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize("coder", [HardThreshold(0.5), TopK(2)], ids=repr)
def test_steps_turn_with_the_feature_space_and_follow_order_and_sign_of_atoms(name, coder):
    rng, Y, D = problem(11)
    turn, order, signs = orthonormal(rng, 6, 6), rng.permutation(4), rng.choice([-1, 1], 4)
    plain = STEPS[name](Y, D, coder).dictionary
    np.testing.assert_allclose(STEPS[name](turn @ Y, turn @ D, coder).dictionary, turn @ plain, atol=1e-7)
    if name in ("coordinate", "online"):  # atoms change one after the other
        order = np.arange(4)
    np.testing.assert_allclose(
        STEPS[name](Y, D[:, order] * signs, coder).dictionary, plain[:, order] * signs, atol=1e-7
    )


@pytest.mark.parametrize("name", list(STEPS))
def test_a_dictionary_without_atoms_is_legal(name):
    step = STEPS[name](np.ones((4, 5)), np.zeros((4, 0)), HardThreshold(0.5))
    assert step.dictionary.shape == (4, 0)
    assert step.codes.shape == (0, 5)
