"""Error of orthogonal matching pursuit against the number of atoms, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def error_path(Y: Floats, D: Floats, most: int) -> Floats:
    """Return the relative error of OMP with 0, 1, ..., ``most`` atoms per sample, in one pass.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary, atoms of any norm.
    most : int
        Largest number of atoms per sample.

    Returns
    -------
    (min(most, d, r) + 1,) array
        Errors, never increasing.

    Notes
    -----
    The computation uses coordinates in the span of the atoms. Each sample has an orthonormal basis of the atoms that it
    uses so far.
    """
    norms = np.linalg.norm(D, axis=0)
    Q, atoms = np.linalg.qr((D / np.where(norms > 0, norms, 1)).astype(np.float64))
    residual = Q.T @ Y
    energy, columns = float(np.linalg.norm(Y)) ** 2, np.arange(Y.shape[1])
    outside = max(energy - float(np.linalg.norm(residual)) ** 2, 0.0)
    basis = np.zeros((min(most, len(atoms)), *residual.shape))
    taken = np.zeros((D.shape[1], Y.shape[1]), dtype=bool)
    left = [energy]
    for j in range(len(basis)):
        best = np.where(taken, -1, np.abs(atoms.T @ residual)).argmax(axis=0)
        taken[best, columns] = True
        new = atoms[:, best]
        for _ in range(2):  # the second pass removes rounding errors of the first
            new = new - np.einsum("kmn,kn->mn", basis[:j], np.einsum("kmn,mn->kn", basis[:j], new))
        sizes = np.linalg.norm(new, axis=0)
        basis[j] = np.where(sizes > 1e-9, new / np.where(sizes > 0, sizes, 1), 0)
        residual = residual - basis[j] * (basis[j] * residual).sum(axis=0)
        left.append(outside + float(np.linalg.norm(residual)) ** 2)
    return np.sqrt(np.array(left) / energy)
