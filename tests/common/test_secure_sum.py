"""Fixed point, masks, shares, and what a server can open that tells clients different stories."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations, product

import numpy as np
import pytest

from common import fixed_point, shamir
from common import secure_sum as sums
from common.fixed_point import TooLargeError
from common.secure_sum import SecureSumError, threshold
from common.shamir import PRIME, SharesError, join_shares


def seed(text="a"):
    return sums.digest(text)


def split_secret(secret, n, t, noise_seed):
    return shamir.split_secret(secret, n, t, sums.keystream(noise_seed, shamir.NOISE * (t - 1)))


@pytest.mark.parametrize("n", [1, 3, 10, 50, 300])
def test_a_sum_in_fixed_point_is_off_by_half_a_step_a_client(n):
    rng = np.random.default_rng(n)
    exponents = rng.integers(-20, 40, n).tolist()
    bits = fixed_point.fraction_bits(exponents)
    x = np.array([rng.uniform(-1, 1, 200) * 2.0**e for e in exponents])
    total = sum(
        (fixed_point.encode(row, bits, e) for row, e in zip(x, exponents, strict=True)), np.zeros(200, np.uint64)
    )
    exact = [float(sum(map(Fraction, column.tolist()))) for column in x.T]
    step = 2.0**-bits
    np.testing.assert_allclose(fixed_point.decode(total, bits), exact, rtol=2**-52, atol=n * step / 2)
    assert n * step / 2 <= n * 2.0 ** (max(exponents) + np.ceil(np.log2(n)) - 58)  # what docs/privacy.md states


def test_the_largest_numbers_of_all_clients_fit():
    exponents = [3] * 5 + [10, -7]
    bits = fixed_point.fraction_bits(exponents)
    for sign in (1, -1):
        words = [fixed_point.encode(np.array([sign * 2.0**e]), bits, e) for e in exponents]
        assert fixed_point.decode(np.sum(words, axis=0, dtype=np.uint64), bits) == sign * sum(2.0**e for e in exponents)


@pytest.mark.parametrize("value", [1.5, -1.5, np.nan, np.inf])
def test_a_number_above_the_bound_is_refused(value):
    with pytest.raises(TooLargeError, match="does not fit"):
        fixed_point.encode(np.array([0.5, value]), 30, 0)
    with pytest.raises(TooLargeError, match="does not fit"):
        fixed_point.encode(np.array([0.5]), 60, 0)  # digits that a server chose too many


@pytest.mark.parametrize("n", [2, 3, 7])
def test_masks_of_pairs_cancel(n):
    seeds = {frozenset(pair): seed(f"{pair}") for pair in combinations(range(n), 2)}
    masks = [sums.pair_masks({j: seeds[frozenset((i, j))] for j in range(n) if j != i}, i, 50) for i in range(n)]
    np.testing.assert_array_equal(np.sum(masks, axis=0, dtype=np.uint64), np.zeros(50, np.uint64))
    assert all(one.any() for one in masks)


def test_masks_are_uniform():
    words = sums.mask(seed(), 40_000)
    assert len(np.unique(words)) == len(words)
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(64 * len(words))
    assert not np.array_equal(words, sums.mask(seed("b"), 40_000))


def test_prime_is_the_least_above_all_seeds():
    def is_prime(n):  # Miller and Rabin
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        return all(
            pow(a, odd, n) in (1, n - 1) or any(pow(a, odd * 2**k, n) == n - 1 for k in range(1, twos))
            for a in range(2, 60)
        )

    assert [n for n in range(2**256 + 1, PRIME + 1, 2) if is_prime(n)] == [PRIME]


def solve_mod(rows, right):
    """Solve a square linear system modulo PRIME by elimination."""
    n = len(rows)
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if table[i][k] % PRIME)
        table[k], table[pivot] = table[pivot], table[k]
        inverse = pow(table[k][k], -1, PRIME)
        table[k] = [value * inverse % PRIME for value in table[k]]
        for i in range(n):
            if i != k:
                factor = table[i][k]
                table[i] = [(a - factor * b) % PRIME for a, b in zip(table[i], table[k], strict=True)]
    return [row[-1] for row in table]


@pytest.mark.parametrize(("n", "t"), [(3, 3), (5, 4), (6, 2), (7, 1)])
def test_any_t_shares_tell_the_secret_as_a_linear_solver_says(n, t):
    secret = seed("secret")
    shares = split_secret(secret, n, t, seed("terms"))
    for places in combinations(range(n), t):
        assert join_shares({i: shares[i] for i in places}) == secret
        rows = [[pow(i + 1, k, PRIME) for k in range(t)] for i in places]
        terms = solve_mod(rows, [int.from_bytes(shares[i], "big") for i in places])
        assert terms[0].to_bytes(32, "big") == secret
    assert split_secret(secret, n, t, seed("terms")) == shares


@pytest.mark.parametrize("t", [2, 3])
def test_fewer_shares_leave_every_secret_as_likely_as_before(monkeypatch, t):
    p, n = 7, 4
    monkeypatch.setattr(shamir, "PRIME", p)
    polynomials = list(product(range(p), repeat=t))
    for places in combinations(range(1, n + 1), t - 1):
        seen = [(terms[0], *(shamir._value(terms, x) for x in places)) for terms in polynomials]
        assert len(set(seen)) == len(seen) == p**t  # each secret goes with each view once


def test_shares_that_do_not_belong_together_tell_no_secret():
    one, other = (split_secret(seed(text), 4, 3, seed("terms " + text)) for text in "ab")
    try:
        assert join_shares({0: one[0], 1: one[1], 2: other[2]}) not in (seed("a"), seed("b"))
    except SharesError as error:  # when the number is none of 32 bytes
        assert "do not belong together" in str(error)  # noqa: PT017
    with pytest.raises(SharesError, match="belong together"):
        join_shares({0: (PRIME - 1).to_bytes(33, "big")})


def test_keys_differ_by_purpose_and_by_where_its_parts_end():
    purposes = [("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c"), ("abc", "")]
    assert len({sums.derive(seed(), *purpose) for purpose in purposes}) == len(purposes)
    assert len({sums.digest(*purpose) for purpose in purposes}) == len(purposes)
    assert sums.derive(seed(), "a") != sums.derive(seed("b"), "a")


def test_two_clients_agree_on_a_secret_and_a_third_on_another():
    a, b, c = map(seed, "abc")
    assert sums.agreed_secret(a, sums.public_key(b)) == sums.agreed_secret(b, sums.public_key(a))
    assert sums.agreed_secret(a, sums.public_key(c)) != sums.agreed_secret(a, sums.public_key(b))
    for bad in (bytes(32), bytes(31)):  # of a small group, and too short
        with pytest.raises(SecureSumError, match="none of X25519"):
            sums.agreed_secret(a, bad)


def test_a_sealed_share_opens_unchanged_for_its_receiver_and_round_alone():
    share = split_secret(seed(), 3, 3, seed("b"))[1]
    sealed = sums.seal(seed("key"), share, b"round 1")
    assert sums.unseal(seed("key"), sealed, b"round 1") == share
    assert len(share) == shamir.SHARE
    assert len(sealed) == sums.SEALED
    wrong = [
        (seed("other"), sealed, b"round 1"),
        (seed("key"), sealed, b"round 2"),
        (seed("key"), sealed[:-1], b"round 1"),
    ]
    for i in range(len(sealed)):
        changed = bytearray(sealed)
        changed[i] ^= 1
        wrong.append((seed("key"), bytes(changed), b"round 1"))
    for key, content, context in wrong:
        with pytest.raises(SecureSumError, match="changed on its way"):
            sums.unseal(key, content, context)


def test_threshold_leaves_sums_of_three_and_a_third_of_colluders():
    for n in range(3, 400):
        t = threshold(n)
        assert t <= n
        assert 2 * t - n >= 3
        assert all(2 * t > n + c for c in range(n) if 3 * c < n)


def openable(views, n, t):
    """The sets of clients whose sum the server can open by what clients tell, each by its own view of who answered."""
    shared = [a for a in range(n) if sum(a in view for view in views) >= t]
    subsets = chain.from_iterable(combinations(shared, k) for k in range(1, len(shared) + 1))
    found = []
    for A in subsets:
        rest = set(range(n)) - set(A)
        if all(b not in views[a] or a not in views[b] for a in A for b in rest):
            found.append(A)
    return found


def stories(n, t):
    """All views that n clients may be given; each has itself and t in all."""
    each = [[set(view) for k in range(t, n + 1) for view in combinations(range(n), k) if x in view] for x in range(n)]
    return product(*each)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_clients_that_are_told_different_stories_open_one_sum_at_most_and_none_of_fewer_than_three(n):
    t, sizes = threshold(n), set()
    for views in stories(n, t):
        found = openable(views, n, t)
        assert len(found) <= 1
        sizes |= {len(A) for A in found}
    assert min(sizes) >= max(3, 2 * t - n)
    assert max(sizes) == n


def test_half_of_the_clients_as_threshold_would_let_single_clients_be_opened():
    assert any(len(A) == 1 for views in stories(4, 2) for A in openable(views, 4, 2))
