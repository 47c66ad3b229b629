r"""Learners: one step of a dictionary-learning algorithm on one client's samples (A_i in the paper).

All aim to decrease

.. math:: \lVert Y - D X\rVert_F^2, \qquad Y\ (d, n),\ D\ (d, r),\ X\ (r, n) \text{ sparse.}

A step is a pure function ``(Y, D, coder, ...) -> Step``. To add a learner, write such a function and enter it in
:data:`LEARNERS`. Beside the codes, a step sees the samples only through products ``A X'``, sums with one term a sample,
which the caller may replace by noisy ones.

Sources: orthogonal step: Liang et al. 2022, algorithm 1 (algorithm 4 of the paper); gradient step: algorithm 5 of the
paper; projected step: Arora, Ge, Ma, Moitra 2015, "Simple, efficient, and neural algorithms for sparse coding",
algorithm 5; coordinate step: Mairal, Bach, Ponce, Sapiro 2010, "Online learning for matrix factorization and sparse
coding", algorithm 2; online step: the same, algorithm 1 (:mod:`common.online`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, like, namespace
from common.coders import Coder
from common.online import online_pass
from common.polar import polar_factor

Floats = NDArray[np.floating]
Product = Callable[[Floats, Floats], Floats]


def product(A: Floats, X: Floats) -> Floats:
    """Return ``A X'``, the sum over samples of one sample's column of A times its codes.

    Parameters
    ----------
    A : (..., d, n) array
        Samples, or codes.
    X : (..., r, n) array
        Codes.

    Returns
    -------
    (..., d, r) array
    """
    out: Floats = A @ X.mT
    return out


@dataclass(frozen=True)
class Step:
    """Result of one step.

    Parameters
    ----------
    dictionary : (d, r) array
        D^(t+1), its columns in the old dictionary's order.
    codes : (r, n) array, optional
        X^(t): codes in the *old* dictionary, from which the step was computed; None if it was not from such codes.
    moment : (d, r) array, optional
        Y X', if the step computed it.
    """

    dictionary: Floats
    codes: Floats | None
    moment: Floats | None = None


def orthogonal_step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5, product: Product = product) -> Step:
    r"""One step of alternating minimisation for orthonormal dictionaries.

    .. math:: X = \text{coder}(Y, D), \qquad D^+ = \mathrm{Polar}(Y X^\top)

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (..., d, r) array
        Dictionary with ``r <= d``. A stack of dictionaries takes one step each, if the coder accepts stacks.
    coder : Coder
        Computes the codes.
    step_size : float
        Not used: the step is an exact minimisation.
    product : callable
        Computes ``A X'``.

    Returns
    -------
    Step
        ``dictionary`` has orthonormal columns. If ``Y X'`` lacks full rank (dead atoms), it is completed nearest to
        ``D``.
    """
    X = coder(Y, D)
    moment = product(Y, X)
    return Step(_orthogonal(D, moment), X, moment)


def gradient_step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5, product: Product = product) -> Step:
    r"""One gradient step on the squared error.

    .. math:: X = \text{coder}(Y, D), \qquad D^+ = D - 2\eta (DX - Y) X^\top,
              \qquad 2\eta = \text{step\_size} / \lVert X X^\top\rVert_2

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (d, r) array
        Dictionary with any ``r``.
    coder : Coder
        Computes the codes.
    step_size : float
        In (0, 2), relative to the inverse of the curvature, so it does not depend on the data's unit. With codes
        ``D'Y`` an atom's norm moves twice as fast as its direction: 0.5 corrects the norm in one step, 1 makes it
        oscillate.
    product : callable
        Computes ``A X'``.

    Returns
    -------
    Step
        Atoms that no sample uses stay as they are.
    """
    X = coder(Y, D)
    moment, second_moment = product(Y, X), product(X, X)
    return Step(_gradient(D, moment, second_moment, step_size), X, moment)


def projected_step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5, product: Product = product) -> Step:
    r"""One step of Arora et al. 2015, algorithm 5: gradient with the current atom projected out of the others.

    For every atom ``i``, let :math:`B^{(i)}` be the dictionary in which atom ``i`` is :math:`D_i` and the others are
    projected off it. Then

    .. math:: X^{(i)} = \text{coder}(Y, B^{(i)}), \qquad
              D_i^+ = D_i + \eta_i (Y - B^{(i)} X^{(i)})\, \mathrm{sign}(X^{(i)}_i)^\top,
              \qquad \eta_i = \text{step\_size} / \lVert X^{(i)}_i\rVert_1

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (d, r) array
        Dictionary with any ``r``.
    coder : Coder
        Computes the codes.
    step_size : float
        In (0, 2), as for :func:`gradient_step`.
    product : callable
        Computes ``A X'``, here with the signs of one atom's codes, twice for every atom.

    Returns
    -------
    Step
        Row ``i`` of ``codes`` is row ``i`` of :math:`X^{(i)}`. Atoms that no sample uses stay as they are.

    Notes
    -----
    It computes ``r`` codings, each with a rank-one change of ``D``: about ``r`` times the cost of a gradient step.
    """
    out, codes = D.copy(), np.zeros((D.shape[1], Y.shape[1]), dtype=Y.dtype)
    for i, atom in enumerate(D.T):
        squared = atom @ atom
        if squared == 0:
            continue
        B = D - np.outer(atom, (atom @ D) / squared)
        B[:, i] = atom
        X = coder(Y, B)
        codes[i] = X[i]
        size = np.abs(X[i]).sum()
        if size > 0:
            signs = np.sign(X[i])
            move = product(Y, signs[None])[:, 0] - B @ product(X, signs[None])[:, 0]
            out[:, i] += D.dtype.type(step_size / size) * move
    return Step(out, codes)


def coordinate_step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5, product: Product = product) -> Step:
    r"""One pass over the atoms, each the best unit vector while codes and other atoms are fixed.

    .. math:: X = \text{coder}(Y, D), \qquad
              D_j \leftarrow \arg\min_{\lVert v\rVert = 1} \lVert Y - \textstyle\sum_{i \ne j} D_i X_i - v X_j\rVert_F,
              \quad j = 1, \dots, r

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (d, r) array
        Dictionary with any ``r``.
    coder : Coder
        Computes the codes.
    step_size : float
        Not used: each atom's step is an exact minimisation.
    product : callable
        Computes ``A X'``.

    Returns
    -------
    Step
        Atoms that no sample uses stay as they are; the others have norm 1.

    Notes
    -----
    The minimiser is the direction of :math:`(Y X^\top - D X X^\top)_j + D_j (X X^\top)_{jj}`. It costs two products
    with the samples and ``d r^2``, as a gradient step does, and needs no step size.
    """
    X = coder(Y, D)
    moment, second_moment = product(Y, X), product(X, X)
    return Step(_coordinate(D, moment, second_moment, step_size), X, moment)


def online_step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5, product: Product = product) -> Step:
    r"""One pass over blocks of samples, each coded with the dictionary that the blocks before it left.

    .. math:: X_t = \text{coder}(Y_t, D), \qquad
              D \leftarrow \text{one pass over the atoms that lowers }
              \sum_{s \le t} w_{st} \lVert Y_s - D X_s\rVert_F^2

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (d, r) array
        Dictionary with any ``r``.
    coder : Coder
        Computes the codes.
    step_size : float
        Not used: each atom's step is an exact minimisation.
    product : callable
        Computes ``A X'`` of a block.

    Returns
    -------
    Step
        ``codes`` is None if there was more than one block. Atoms that no sample uses stay as they are; the others have
        norm 1.

    Notes
    -----
    See :mod:`common.online`. With many samples a step is worth several coordinate steps, at their price.
    """
    return Step(*online_pass(Y, D, coder, product))


def _orthogonal(D: Floats, moment: Floats, second_moment: Floats | None = None, step_size: float = 0.5) -> Floats:
    return polar_factor(moment, prior=D)


def _gradient(D: Floats, moment: Floats, second_moment: Floats, step_size: float) -> Floats:
    curvature = _largest_eigenvalue(second_moment)
    if curvature == 0:
        same: Floats = namespace(D).asarray(D, copy=True)
        return same
    gradient = D @ second_moment - moment
    return D - step_size / curvature * gradient


def _coordinate(D: Floats, moment: Floats, second_moment: Floats, step_size: float) -> Floats:
    if namespace(D) is not np:  # atoms come one after another: small steps, which a device does slowly
        here: Floats = like(_coordinate(host(D), host(moment), host(second_moment), step_size), D)
        return here
    out = D.copy()
    for j in np.flatnonzero(np.diag(second_moment) > 0):
        atom = moment[:, j] - out @ second_moment[:, j] + out[:, j] * second_moment[j, j]
        norm = np.linalg.norm(atom)
        if norm > 0:
            out[:, j] = atom / norm
    return out


def _largest_eigenvalue(S: Floats) -> float:
    return float(np.linalg.eigvalsh(host(S).astype(np.float64))[-1]) if len(S) else 0.0


@dataclass(frozen=True)
class Learner:
    """A step, and the properties of it that the rest of the client needs.

    Parameters
    ----------
    step : callable ``(Y, D, coder, step_size) -> Step``
        One step of the algorithm; with ``products`` it takes ``product`` too.
    orthonormal : bool
        Whether its dictionaries have orthonormal columns. The local block is then kept orthogonal to the global
        one, and there are at most d atoms.
    products : int
        How many products a step takes from ``product``; 0 if it sees the samples themselves.
    atom_by_atom : bool
        Whether it codes anew, and takes so many products, for every atom.
    forgets : bool
        Whether a step's atoms follow from Y X' alone, so that of all steps before only the codes are left.
    blocks : bool
        Whether it codes and sums block by block, each with another dictionary.
    of_sums : callable ``(D, Y X', X X', step_size) -> D``, optional
        The step for sums that are known already. X X' is None if the step takes one product. Where a client computes
        on a device, this and ``step`` are given arrays of another library than numpy, see :mod:`common.arrays`.
    """

    step: Callable[..., Step]
    orthonormal: bool = False
    products: int = 0
    atom_by_atom: bool = False
    forgets: bool = False
    blocks: bool = False
    of_sums: Callable[..., Floats] | None = None

    @property
    def codes_once(self) -> bool:
        """Whether a step is of codes of all samples in the dictionary before it."""
        return not (self.atom_by_atom or self.blocks)

    def take(self, Y: Floats, D: Floats, coder: Coder, step_size: float, product: Product = product) -> Step:
        """Take one step.

        Parameters
        ----------
        Y : (d, n) array
            Samples, in columns.
        D : (d, r) array
            Dictionary.
        coder : Coder
            Computes the codes.
        step_size : float
            Step size of the learner.
        product : callable
            Computes ``A X'`` for the learners that see the samples through it.
        """
        return self.step(Y, D, coder, step_size, *((product,) if self.products else ()))


LEARNERS: dict[str, Learner] = {
    "orthogonal": Learner(orthogonal_step, orthonormal=True, products=1, forgets=True, of_sums=_orthogonal),
    "gradient": Learner(gradient_step, products=2, of_sums=_gradient),
    "projected": Learner(projected_step, products=2, atom_by_atom=True),
    "coordinate": Learner(coordinate_step, products=2, of_sums=_coordinate),
    "online": Learner(online_step, products=2, blocks=True),
}
"""Learners by name, as in the setting ``learner``."""
