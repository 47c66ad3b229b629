"""Who shares which atom: the summary's indices as arrays, and in words."""

from __future__ import annotations

import numpy as np
import pytest

from perdl.results.membership import all_and_some, members_of, who_shares


def shared(*rows):
    return {f"client-{i + 1}": np.array(row, dtype=bool) for i, row in enumerate(rows)}


def test_indices_become_rows_of_bools():
    members = members_of({"n_global": 3, "members": {"ada": [0, 2], "bob": []}})
    np.testing.assert_array_equal(members["ada"], [True, False, True])
    np.testing.assert_array_equal(members["bob"], [False] * 3)
    assert members_of({"n_global": 3}) == {}, "all share all"
    assert members_of({}) == {}, "the run failed before matching"


@pytest.mark.parametrize(
    ("members", "words", "short"),
    [
        (shared([1, 1], [1, 1]), "atoms 1, 2 are shared by all 2 clients", "2 by all, 0 by some"),
        (
            shared([1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1]),
            "atom 3 is shared by all 3 clients; atoms 1, 2, 4 by 2 each",
            "1 by all, 3 by some",
        ),
        (
            shared([1, 0, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]),
            "atom 3 is shared by 3 clients; atoms 1, 2 by 2 each",
            "0 by all, 3 by some",
        ),
        ({}, "", ""),
        (shared([], []), "", ""),
    ],
)
def test_words_count_the_clients_of_each_atom(members, words, short):
    assert who_shares(members) == words
    assert all_and_some(members) == short
