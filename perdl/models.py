"""What one client's dictionary says of samples, and how somebody new comes to one. Samples are in rows here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder, omp
from common.settings import LearningSettings
from perdl_client.learners import LEARNERS
from perdl_client.local_update import retract
from perdl_client.round import NOTHING_SEEN, client_round
from perdl_client.start import first_dictionary
from perdl_server.matching import align

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class ClientModel:
    """A client's dictionary and how it codes.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
    local_dictionary : (d, r_l) array
    mean : (d,) array
        What is taken off each sample first: zero, or the mean of the client's data with ``center``.
    coder : Coder
        With its threshold in the units of the client's data.
    """

    global_dictionary: Floats
    local_dictionary: Floats
    mean: Floats
    coder: Coder

    @property
    def dictionary(self) -> Floats:
        """All atoms, (d, r), the global ones first."""
        return np.hstack([self.global_dictionary, self.local_dictionary])

    def encode(self, X: Floats) -> Floats:
        """Return codes (n, r) of samples (n, d), global atoms first."""
        return self.coder((X - self.mean).T, self.dictionary).T

    def decode(self, codes: Floats) -> Floats:
        """Return the samples (n, d) that codes (n, r) stand for."""
        return codes @ self.dictionary.T + self.mean

    def split(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the shared and the own part of samples, each (n, d); their sum is ``decode(encode(X))``."""
        codes, r_g = self.encode(X), self.global_dictionary.shape[1]
        return codes[:, :r_g] @ self.global_dictionary.T, codes[:, r_g:] @ self.local_dictionary.T + self.mean

    def reconstruct(self, X: Floats, k: int) -> Floats:
        """Return samples (n, d) written with at most ``k`` atoms each, by orthogonal matching pursuit."""
        D = self.dictionary
        return (D @ omp((X - self.mean).T, D, k)).T + self.mean

    def unshared_energy(self, X: Floats) -> Floats:
        """Return the squared length (n,) of what is left of each centred sample without its shared part."""
        left = X - self.mean - self.split(X)[0]
        energy: Floats = (left * left).sum(axis=1)
        return energy

    def explained(self, X: Floats) -> float:
        """Return 1 - ||Y - DX||^2 / ||Y||^2 of centred samples; 1 if they are all zero."""
        size = float(np.linalg.norm(X - self.mean)) ** 2
        return 1.0 - float(np.linalg.norm(X - self.decode(self.encode(X)))) ** 2 / size if size > 0 else 1.0


def newcomer(
    Y: Floats,
    global_dictionary: Floats,
    learning: LearningSettings,
    seed: int,
    name: str,
    *,
    rounds: int,
    tolerance: float,
) -> Floats:
    """Learn the local dictionary of a client that was not in the federation, which keeps its D^g.

    It begins as every client does, gives up the atoms that are nearest to D^g, and takes rounds of its own until its
    local atoms rest. Nothing is sent.

    Parameters
    ----------
    Y : (d, n) array
    global_dictionary : (d, r_g) array
    learning : LearningSettings
        With ``n_atoms`` (default d) at least r^g.
    seed : int
    name : str
    rounds : int
        At most.
    tolerance : float
        Largest move of an atom that counts as rest.

    Returns
    -------
    (d, r_l) array
    """
    D = first_dictionary(Y, learning, seed, name)
    shared, _ = align(global_dictionary, D)
    D_l, watch = np.delete(D, shared, axis=1), NOTHING_SEEN
    orthonormal = LEARNERS[learning.learner].orthonormal
    for t in range(1, rounds + 1):
        D_l = retract(global_dictionary, D_l) if orthonormal else D_l
        new, watch = client_round(Y, global_dictionary, D_l, learning, watch, t, seed, name)
        change = np.linalg.norm(new.local_dictionary - D_l, axis=0).max(initial=0.0)
        D_l = new.local_dictionary
        if change <= tolerance:
            break
    return retract(global_dictionary, D_l) if orthonormal else D_l
