r"""Sums of which nobody learns a summand: keys, masks that cancel, and encrypted shares.

Client i adds masks to its numbers x_i, modulo 2^64:

.. math:: y_i = x_i + \mathrm{PRG}(b_i) + \sum_{j > i} \mathrm{PRG}(s_{ij}) - \sum_{j < i} \mathrm{PRG}(s_{ij})

where b_i is a seed of its own, and s_ij a seed that only clients i and j know. In the sum over clients the masks of
pairs cancel. The server takes off the others when clients tell it, for each client, one of two things: shares of b_i if
y_i is in the sum, the seeds s_ij if it is not. Both together would show x_i, and one client never tells both.

All seeds are made for one round (`derive` with that round's context). What is told in a round says nothing of others.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017. Differences: seeds of pairs are told themselves, and are of one round,
so that a private key is never shared out.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from common.errors import PerdlError
from common.shamir import SHARE

Words = NDArray[np.uint64]

FEWEST = 3
"""Fewest clients of a sum: a sum of two tells each of them the other's part."""

SEED = 32
"""Bytes of a seed, of a key and of a digest."""

SEALED = SHARE + 16
"""Bytes of an encrypted share."""

_ONCE = bytes(12)  # nonce: every key encrypts one share


class SecureSumError(PerdlError):
    """A key or a share cannot be read."""


def threshold(n: int) -> int:
    r"""Return how many of n clients must tell shares before a sum can be opened.

    .. math:: t = \max(\lfloor 2n/3\rfloor + 1,\ \lceil (n + 3)/2\rceil)

    No two sums of a round can both be opened by clients that tell shares once, since 2 t > n; with c clients that
    collude with the server, as long as 2 t > n + c. Clients to which the server tells different stories of who takes
    part can be led to open one sum, over at least 2 t - n - c honest clients.

    Parameters
    ----------
    n : int
        Number of clients.
    """
    return max(2 * n // 3 + 1, (n + 4) // 2)


def derive(secret: bytes, *purpose: str | bytes) -> bytes:
    """Return a key for one purpose (HKDF with SHA-256), from which neither the secret nor other keys can be found.

    Parameters
    ----------
    secret : bytes
        A secret with full entropy, or one that two clients agreed on.
    *purpose : str or bytes
        What the key is for.
    """
    parts = [part.encode() if isinstance(part, str) else part for part in purpose]
    info = b"perdl secure sum" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(SHA256(), SEED, salt=None, info=info).derive(secret)


def digest(*parts: str | bytes) -> bytes:
    """Return SHA-256 of some parts, whose limits count.

    Parameters
    ----------
    *parts : str or bytes
        What to hash.
    """
    blocks = [part.encode() if isinstance(part, str) else part for part in parts]
    return hashlib.sha256(b"".join(len(block).to_bytes(8, "big") + block for block in blocks)).digest()


def keystream(seed: bytes, n: int) -> bytes:
    """Return n pseudorandom bytes (ChaCha20). A seed must serve once.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    n : int
        Number of bytes.
    """
    return Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(n))


def mask(seed: bytes, n: int) -> Words:
    """Return n numbers, uniform modulo 2^64.

    Parameters
    ----------
    seed : bytes
        32 bytes.
    n : int
        How many.
    """
    return np.frombuffer(keystream(seed, 8 * n), dtype="<u8").astype(np.uint64)


def pair_masks(seeds: Mapping[int, bytes], own: int, n: int) -> Words:
    """Return the sum of a client's masks with others: plus with those after it, minus with those before it.

    Parameters
    ----------
    seeds : mapping of int to bytes
        Seed with each other client, by its place.
    own : int
        The client's place.
    n : int
        How many numbers.
    """
    total = np.zeros(n, dtype=np.uint64)
    for place, seed in seeds.items():
        if place > own:
            total += mask(seed, n)
        else:
            total -= mask(seed, n)
    return total


def public_key(private: bytes) -> bytes:
    """Return the public key (X25519) of a private one.

    Parameters
    ----------
    private : bytes
        32 bytes.
    """
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@functools.lru_cache(4096)  # it costs more than all else of a round
def agreed_secret(private: bytes, other: bytes) -> bytes:
    """Return the secret that two clients share (X25519); each computes it from the other's public key.

    Parameters
    ----------
    private : bytes
        A client's private key.
    other : bytes
        The other's public key.

    Raises
    ------
    SecureSumError
        If the other's key is none.
    """
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise SecureSumError("a public key is none of X25519") from None


def seal(key: bytes, share: bytes, context: bytes) -> bytes:
    """Return an encrypted share. The key must serve once.

    Parameters
    ----------
    key : bytes
        From `derive`, for this context, sender and receiver.
    share : bytes
        The share.
    context : bytes
        The round for which it is.
    """
    return ChaCha20Poly1305(key).encrypt(_ONCE, share, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the share that `seal` encrypted.

    Parameters
    ----------
    key, sealed, context : bytes
        As in `seal`.

    Raises
    ------
    SecureSumError
        If it was changed, or is for another client or round.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, sealed, context)
    except InvalidTag:
        raise SecureSumError("an encrypted share was changed on its way, or is of another round") from None


def roster_text(cards: Mapping[str, str]) -> str:
    """Return the list of a round's clients and their keys, as it is sent.

    Parameters
    ----------
    cards : mapping of str to str
        By name, in the order of names: what each client said of its key.
    """
    return json.dumps(list(cards.items()))
