r"""Shares of a secret: any t of n tell it, fewer tell nothing.

The secret is the value at 0 of a polynomial of degree t - 1 modulo a prime, whose other coefficients are random. Share
i is its value at i + 1.

Source: Shamir, "How to share a secret", Communications of the ACM 22, 1979.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from common.errors import PerdlError

SECRET = 32
"""Bytes of a secret."""

NOISE = 48
"""Random bytes for each coefficient: so many that the remainder by the prime is uniform for all purposes."""

SHARE = 33
"""Bytes of a share: a number below ``PRIME``."""

PRIME = 2**256 + 297
"""The least prime above all seeds; shares are numbers modulo it."""


class SharesError(PerdlError):
    """Shares do not belong together."""


def split_secret(secret: bytes, n: int, t: int, noise: bytes) -> list[bytes]:
    """Return n shares of a secret, of which t tell it and fewer tell nothing.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    n, t : int
        Number of shares, and how many are needed.
    noise : bytes
        t - 1 times ``NOISE`` random bytes, for the polynomial's other coefficients.
    """
    terms = [int.from_bytes(secret, "big")]
    terms += [int.from_bytes(noise[NOISE * k : NOISE * (k + 1)], "big") % PRIME for k in range(t - 1)]
    return [_value(terms, x).to_bytes(SHARE, "big") for x in range(1, n + 1)]


def _value(terms: Sequence[int], x: int) -> int:
    """Return the polynomial's value at x (Horner)."""
    total = 0
    for term in reversed(terms):
        total = (total * x + term) % PRIME
    return total


def join_shares(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of some shares: the value at 0 of the polynomial through them (Lagrange).

    Parameters
    ----------
    shares : mapping of int to bytes
        Shares by place, from 0; as many as are needed.

    Raises
    ------
    SharesError
        If they are no shares of one secret.
    """
    weights = _weights(tuple(shares))
    total = sum(int.from_bytes(share, "big") * weight for share, weight in zip(shares.values(), weights, strict=True))
    try:
        return (total % PRIME).to_bytes(SECRET, "big")
    except OverflowError:
        raise SharesError("shares do not belong together") from None


@functools.lru_cache(8)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights for the value at 0; place i has x = i + 1."""
    weights = []
    for i in places:
        top, bottom = 1, 1
        for j in places:
            if j != i:
                top, bottom = top * (j + 1) % PRIME, bottom * (j - i) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return tuple(weights)
