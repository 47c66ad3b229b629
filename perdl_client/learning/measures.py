r"""What a dictionary does for a client's samples: sums over samples of their codes, a block at a time.

Codes X of all samples are not kept: they may be larger than the samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, blocks, total_norm
from common.coders import Coder
from common.statistics import atom_energies, used_of
from perdl_client.learning.missing import codes_of, gaps, observed_residual, zero_filled

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Measures:
    r"""Sums over the samples of a client.

    Parameters
    ----------
    n_samples : int
        n.
    energies : (r,) array
        Squared norms of the rows of X.
    users : (r,) int array
        How many samples use each atom.
    largest : (r,) array
        Largest square of each row.
    size, rest : float
        Frobenius norms of Y and of Y - D X, over what was observed.
    shared, own : float
        Shares of the energy that global and local atoms explain,

        .. math:: \text{shared} = 1 - \frac{\lVert Y - D^g X^g\rVert^2}{\lVert Y\rVert^2}, \qquad
                  \text{own} = \frac{\lVert Y - D^g X^g\rVert^2 - \lVert Y - D X\rVert^2}{\lVert Y\rVert^2} .

        The rest up to 1 is not explained. Data that are all zero count as shared.
    """

    n_samples: int
    energies: Floats
    users: Ints
    largest: Floats
    size: float
    rest: float
    shared: float
    own: float

    @property
    def error(self) -> float:
        """``||Y - D X||_F / ||Y||_F``; 0 if all samples are zero."""
        return float(self.rest / self.size) if self.size > 0 else 0.0

    @property
    def nonzeros(self) -> float:
        """Mean number of nonzero codes of a sample."""
        return float(self.users.sum()) / self.n_samples

    @property
    def carried(self) -> Floats:
        """Share (r,) of the samples' energy that each atom's codes carry."""
        share: Floats = self.energies / max(float(self.size) ** 2, np.finfo(np.float64).tiny)
        return share

    def used(self, min_usage: float, min_samples: int) -> Ints:
        """Return the indices of atoms that are alive, see :func:`common.statistics.used_atoms`.

        Parameters
        ----------
        min_usage : float
            Share of the most used atom's energy that an atom must carry.
        min_samples : int
            Samples that must use an atom.
        """
        return used_of(self.energies, self.users, self.largest, min_usage, min_samples)


def measured(Y: Columns, D: Floats, coder: Coder, n_global: int | None = None) -> Measures:
    """Code samples block by block, and sum.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns; NaN marks what was not measured.
    D : (d, r) array
        Dictionary, its global atoms first.
    coder : Coder
        Computes the codes.
    n_global : int, optional
        Number of global atoms; without it the shares are not computed, and are zero.

    Returns
    -------
    Measures
    """
    r, dtype = D.shape[1], Y.dtype
    energies, users, largest = np.zeros(r), np.zeros(r, np.intp), np.zeros(r, dtype)
    sizes, rests, without, left = [], [], [], []
    for B in _parts(Y, r):
        X = codes_of(B, D, coder)
        energies += atom_energies(X)
        users += np.count_nonzero(X, axis=1)
        largest = np.maximum(largest, (X * X).max(axis=1, initial=0))
        sizes.append(np.linalg.norm(zero_filled(B)))
        rests.append(np.linalg.norm(observed_residual(B, D @ X)))
        if n_global is None:
            continue
        rest = B - D[:, :n_global] @ X[:n_global]
        without.append(np.linalg.norm(zero_filled(rest)))
        left.append(np.linalg.norm(zero_filled(rest - D[:, n_global:] @ X[n_global:])))
    size = float(total_norm(sizes)) ** 2
    shared, own = float(n_global is not None), 0.0
    if size > 0 and n_global is not None:
        unshared, unexplained = (float(total_norm(norms)) ** 2 / size for norms in (without, left))
        shared, own = 1 - unshared, unshared - unexplained
    return Measures(
        Y.shape[1], energies.astype(dtype), users, largest, total_norm(sizes), total_norm(rests), shared, own
    )


def _parts(Y: Columns, r: int) -> Iterable[Floats]:
    """Return the blocks of samples; all at once if some are incomplete, for they are filled in from all."""
    return [Y] if not isinstance(Y, Stream) and gaps(Y) is not None else blocks(Y, r)


def relative_error(Y: Floats, D: Floats, X: Floats) -> float:
    """Return ``||Y - D X||_F / ||Y||_F`` over the observed entries; 0 if all are zero.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary.
    X : (r, n) array
        Codes.
    """
    size = np.linalg.norm(zero_filled(Y))
    return float(np.linalg.norm(observed_residual(Y, D @ X)) / size) if size > 0 else 0.0
