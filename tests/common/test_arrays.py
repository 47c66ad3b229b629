"""Kernels on torch's arrays give what they give on numpy's, within rounding. CPU tensors; no other device was tried."""

from __future__ import annotations

import numpy as np
import pytest

from common.arrays import host, like, namespace, wide
from common.coders import HardThreshold, TopK
from common.learners import LEARNERS
from common.polar import polar_factor

torch = pytest.importorskip("torch", reason="torch is not installed (extra: gpu)")
pytest.importorskip("array_api_compat", reason="array-api-compat is not installed (extra: gpu)")

TYPES = ["f8", "f4"]
BY_SUMS = [name for name, learner in LEARNERS.items() if learner.of_sums is not None]
TOLERANCE = {"f8": 1e-10, "f4": 1e-4}


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch):
    """Let no torch array become numpy's unasked: on a device that fails, on the CPU it would pass unseen."""

    def refuse(self, *args, **kwargs):
        raise TypeError("can't convert device type tensor to numpy")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)


def close(found, wanted, tolerance):
    assert isinstance(found, torch.Tensor)
    found = host(found)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(float(np.abs(wanted).max(initial=0)), 1e-30))


def tensor(A):
    return torch.from_numpy(np.array(A))


def test_numpy_arrays_stay_with_numpy():
    A = np.ones((2, 3), "f4")
    assert namespace(A) is np
    assert host(A) is A
    assert wide(A).dtype == "f8"
    assert like(np.ones(2), A).dtype == "f4"


def test_there_and_back():
    A = tensor(np.arange(6.0).reshape(2, 3))
    assert namespace(A) is not np
    np.testing.assert_array_equal(host(A), np.arange(6.0).reshape(2, 3))
    assert like(np.ones(2), tensor(np.ones(1, "f4"))).dtype == torch.float32
    assert like(A, np.ones(1, "f4")).dtype == np.float32


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "coder", [HardThreshold(0.7), HardThreshold(0.0), TopK(3), TopK(9), TopK(50), TopK(0)], ids=repr
)
@pytest.mark.parametrize("n", [40, 1, 0])
@pytest.mark.parametrize("stack", [(), (4,)])
def test_codes(coder, dtype, n, stack):
    rng = np.random.default_rng(0)
    Y, D = rng.standard_normal((12, n)).astype(dtype), rng.standard_normal((*stack, 12, 9)).astype(dtype)
    close(coder(tensor(Y), tensor(D)), coder(Y, D), 1e-14 if dtype == "f8" else 1e-5)


def test_of_equal_codes_as_many_are_kept():
    A = np.array([[2.0, 1, 0], [2, -1, 0], [-2, 1, 5]])
    found = host(TopK(2)(tensor(A), tensor(np.eye(3))))
    np.testing.assert_array_equal(np.count_nonzero(found, axis=0), [2, 2, 1])
    assert ((found == 0) | (found == A)).all()


def matrices(kind, d, r, dtype):
    rng = np.random.default_rng(d * r)
    U, V = (np.linalg.qr(rng.standard_normal((n, min(d, r)))).Q for n in (d, r))
    sizes = np.ones(min(d, r))
    if kind == "ill-conditioned":
        sizes = np.geomspace(1, 1e-8 if dtype == "f8" else 1e-3, len(sizes))
    elif kind == "rank-deficient":
        sizes[len(sizes) // 2 :] = 0
    elif kind == "zero":
        sizes[:] = 0
    elif kind == "huge":
        sizes *= 1e300 if dtype == "f8" else 1e37
    elif kind == "tiny":
        sizes *= 1e-300 if dtype == "f8" else 1e-37
    P = np.linalg.qr(rng.standard_normal((d, r))).Q
    return ((U * sizes) @ V.T).astype(dtype), P.astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(40, 7), (20, 20), (200, 40), (5, 1), (5, 0)], ids=str)
@pytest.mark.parametrize("kind", ["plain", "ill-conditioned", "rank-deficient", "zero", "huge", "tiny"])
def test_polar_factors(kind, shape, dtype):
    """The prior decides what the matrix leaves open, with the root of the machine epsilon as its weight: there rounding
    shows divided by this root."""
    M, P = matrices(kind, *shape, dtype)
    wanted, eps = polar_factor(M, P), np.finfo(dtype).eps
    found = polar_factor(tensor(M), tensor(P))
    loose = kind in ("ill-conditioned", "rank-deficient", "zero")
    close(found, wanted, 30 * eps**0.5 if loose else 1000 * eps)
    np.testing.assert_allclose(host(found).T @ host(found), np.eye(shape[1]), atol=100 * eps)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["plain", "rank-deficient"])
@pytest.mark.parametrize("shape", [(200, 40), (12, 5)], ids=str)
def test_polar_factors_of_stacks(shape, kind, dtype):
    """On torch a stack of tall matrices goes by eigenvectors, on numpy by singular vectors."""
    M, P = (np.stack([np.roll(A, i, axis=0) for i in range(3)]) for A in matrices(kind, *shape, dtype))
    eps = np.finfo(dtype).eps
    close(polar_factor(tensor(M), tensor(P)), polar_factor(M, P), 1000 * eps if kind == "plain" else 30 * eps**0.5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("learner", BY_SUMS)
@pytest.mark.parametrize("coder", [HardThreshold(0.7), TopK(3)], ids=repr)
@pytest.mark.parametrize("n", [300, 4, 0])
def test_steps(learner, coder, n, dtype):
    """With four samples Y X' lacks full rank, with none it is zero; an atom that nothing uses stays."""
    rng = np.random.default_rng(1)
    Y = rng.standard_normal((12, n)).astype(dtype)
    D = np.linalg.qr(rng.standard_normal((12, 9))).Q.astype(dtype)
    wanted = LEARNERS[learner].take(Y, D, coder, 0.5)
    found = LEARNERS[learner].take(tensor(Y), tensor(D), coder, 0.5)
    loose = learner == "orthogonal" and n < 9
    close(found.dictionary, wanted.dictionary, 30 * np.finfo(dtype).eps ** 0.5 if loose else TOLERANCE[dtype])
    close(found.codes, wanted.codes, TOLERANCE[dtype])
    close(found.moment, wanted.moment, TOLERANCE[dtype])


def test_nothing_is_written_into_what_is_given():
    rng = np.random.default_rng(2)
    Y, D = rng.standard_normal((12, 50)), np.linalg.qr(rng.standard_normal((12, 9))).Q
    kept = Y.copy(), D.copy()
    for name in BY_SUMS:
        LEARNERS[name].take(torch.from_numpy(Y), torch.from_numpy(D), TopK(3), 0.5)
    np.testing.assert_array_equal(Y, kept[0])
    np.testing.assert_array_equal(D, kept[1])
