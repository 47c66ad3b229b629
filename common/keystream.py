"""Pseudorandom bytes and numbers from a key, which nobody without the key can foresee."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray


def derived(key: bytes, purpose: str) -> bytes:
    """Return a key of 32 bytes for one purpose.

    Parameters
    ----------
    key : bytes
        The key that only its owners know.
    purpose : str
        Keys of different purposes tell nothing of each other.
    """
    return HKDF(hashes.SHA256(), 32, None, f"perdl {purpose}".encode()).derive(key)


def keystream(key: bytes, n: int) -> NDArray[np.uint8]:
    """Return the first ``n`` bytes of the key's ChaCha20 stream.

    Parameters
    ----------
    key : bytes
        Of 32 bytes, for one use only.
    n : int
        Number of bytes.
    """
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(n)), dtype=np.uint8)


def normal(key: bytes, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return standard normal numbers from a key.

    Parameters
    ----------
    key : bytes
        Of 32 bytes, for one use only.
    shape : tuple of int
        Shape of the result.
    """
    from scipy.special import ndtri  # aggregated runs alone need it

    bits = keystream(key, 8 * int(np.prod(shape))).view("<u8") >> np.uint64(11)
    out: NDArray[np.float64] = ndtri((bits + 0.5) * 2.0**-53).reshape(shape)
    return out
