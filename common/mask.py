r"""A secret change of coordinates, in which the server matches and averages atoms that it cannot read.

All that the server does with atoms commutes with an orthogonal matrix Q (d, d): distances, signs, means, medians and
polar factors of Q D are those of D, with Q before what is an atom. So clients that share a secret send Q D, and take
Q' of what returns. The results are the same up to rounding.

.. math:: Q = \prod_{k=1}^{3} C P_k S_k

C is the orthonormal discrete cosine transform, :math:`P_k` a permutation, :math:`S_k` a diagonal of signs. Q costs
O(d log d) an atom and is never formed. Permutations and signs come from the secret and the run's id, so that two runs
have different ones.

What the server still sees: norms of atoms and angles between them. With one feature Q is a sign, with few features
there are few directions to hide in.

Source of such products as fast random rotations: Ailon and Chazelle 2009, "The fast Johnson-Lindenstrauss transform".
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.keystream import derived, keystream

Floats = NDArray[np.floating]

LENGTH = 32
"""Bytes of a secret."""

_PASSES = 3
"""Factors of Q. After one, an atom on a single feature is a cosine; after three it looks like noise."""


class Mask:
    """The change of coordinates of one run.

    Parameters
    ----------
    secret : bytes
        Known to all clients, not to the server.
    run : str
        The run's id.
    d : int
        Number of features.
    """

    def __init__(self, secret: bytes, run: str, d: int) -> None:
        stream = keystream(derived(secret, f"mask {run} coordinates"), _PASSES * 9 * d)
        self._passes = []
        for part in stream.reshape(_PASSES, 9 * d):
            order = np.argsort(part[: 8 * d].view("<u8"), kind="stable")
            self._passes.append((np.where(part[8 * d :] & 1, -1, 1).astype(np.int8)[:, None], order))

    def hide(self, atoms: Floats) -> Floats:
        """Return Q D, what is sent.

        Parameters
        ----------
        atoms : (d, r) array
            Atoms as the client knows them.
        """
        from scipy.fft import dct  # masked runs alone need it

        for signs, order in self._passes if atoms.size else ():
            atoms = dct((atoms * signs)[order], axis=0, norm="ortho")
        return atoms

    def show(self, atoms: Floats) -> Floats:
        """Return Q' D, what was received in the client's own coordinates.

        Parameters
        ----------
        atoms : (d, r) array
            Atoms as the server knows them.
        """
        from scipy.fft import idct

        for signs, order in reversed(self._passes if atoms.size else ()):
            back = np.empty_like(atoms)
            back[order] = idct(atoms, axis=0, norm="ortho")
            atoms = back * signs
        return atoms


def simulated_mask(seed: int, d: int) -> Mask:
    """Return the mask of a simulation, whose server and clients belong to one user. It is the same in each run.

    Parameters
    ----------
    seed : int
        The run's seed.
    d : int
        Number of features.
    """
    return Mask(simulated_secret(seed), "", d)


def fingerprint(secret: bytes, run: str) -> str:
    """Return a text by which clients with another secret are found. It tells nothing of the secret.

    Parameters
    ----------
    secret : bytes
        The secret.
    run : str
        The run's id; in another run the text is another one.
    """
    return derived(secret, f"mask {run} fingerprint")[:8].hex()


def simulated_secret(seed: int) -> bytes:
    """Return the secret of a simulation, whose server and clients belong to one user.

    Parameters
    ----------
    seed : int
        The run's seed.
    """
    return hashlib.sha256(f"perdl simulation {seed}".encode()).digest()


def read_secret(path: str | Path) -> bytes:
    """Read a secret.

    Parameters
    ----------
    path : path
        File that ``perdl certs --secret`` made.

    Raises
    ------
    SettingsError
        If it cannot be read, or holds no secret.
    """
    try:
        text = Path(path).read_bytes()[:1000].strip()
        secret = bytes.fromhex(text.decode("ascii"))
    except OSError as error:
        raise SettingsError(f"cannot read the secret {path}: {error.strerror}") from None
    except ValueError:
        secret = b""
    if len(secret) != LENGTH:
        raise SettingsError(f"{path} holds no secret: give --secret the file that `perdl certs --secret FILE` made")
    return secret
