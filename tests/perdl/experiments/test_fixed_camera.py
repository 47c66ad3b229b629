"""Claims of the fixed-camera layout's numbers: codes that covered pixels do not change, and what is kept as moving."""

import numpy as np
import pytest
from scipy.optimize import linprog

from common.settings import settings_from_values
from perdl.experiments.federation import Client
from perdl.experiments.fixed_camera import absolute_codes, brightened, expose, gate


def code_by_linear_programming(y, d):
    """Minimise sum(e) so that -e <= y - x d <= e."""
    n = len(y)
    A = np.block([[d[:, None], -np.eye(n)], [-d[:, None], -np.eye(n)]])
    found = linprog([0.0, *np.ones(n)], A, np.concatenate([y, -y]), bounds=[(None, None), *[(0, None)] * n])
    return found.x[0], found.fun


@pytest.mark.parametrize("seed", range(5))
def test_absolute_codes_are_those_of_a_linear_program(seed):
    rng = np.random.default_rng(seed)
    Y, D = rng.standard_normal((13, 4)), rng.standard_normal((13, 4))
    codes = absolute_codes(Y, D)
    for y, d, code in zip(Y.T, D.T, codes, strict=True):
        x, least = code_by_linear_programming(y, d)
        assert np.abs(y - code * d).sum() == pytest.approx(least, rel=1e-9)
        assert code == pytest.approx(x, rel=1e-6)  # one solution, for no partial sum of weights is half
    np.testing.assert_array_equal(absolute_codes(Y, D[:, :1]), absolute_codes(Y, np.repeat(D[:, :1], 4, axis=1)))


def test_codes_keep_their_type_and_are_zero_on_no_atom():
    Y = np.ones((3, 2), np.float32)
    codes = absolute_codes(Y, np.zeros((3, 1), np.float32))
    assert codes.dtype == np.float32
    np.testing.assert_array_equal(codes, 0)


def test_what_covers_less_than_half_of_a_place_changes_neither_brightness_nor_exposure():
    rng = np.random.default_rng(0)
    atom = rng.uniform(0.2, 1, 64)
    light = rng.uniform(0.9, 1.1, 9)
    Y = atom[:, None] * light
    covered = Y.copy()
    for column in covered.T:  # always another third, so that no pixel is free in all frames
        column[rng.permutation(64)[:20]] = rng.uniform(0, 3)
    learning = settings_from_values({}).for_client("")
    clients = [Client(f"c{i}", covered[:, 3 * i : 3 * i + 3], learning) for i in range(3)]
    background = brightened(clients, 7 * atom)
    np.testing.assert_allclose(background, np.median(light) * atom, rtol=1e-12)
    shared = expose(covered.T[:, :, None], background[None, :, None], [slice(0, 9)])
    np.testing.assert_allclose(shared[:, :, 0], Y.T, rtol=1e-12)


def test_the_gate_drops_what_is_not_above_noise_and_keeps_pixels_that_are_certain():
    own = np.zeros((8, 6, 3))  # two pixels of three channels; three places
    own[:, :, 0] = 0.02  # always the same: noise
    own[0, :, 1] = 0.05  # one frame, in a place that is calm elsewhere
    own[:, :, 2] = 0.10
    own[3, 4, 2] = -45 / 255  # a channel of the second pixel, where no frame is calm
    kept = own.copy()
    gate(kept, [slice(0, 4), slice(4, 8)], 3, times=3, certain=40)
    expected = np.zeros_like(own)
    expected[0, :, 1] = 0.05
    expected[3, 3:, 2] = own[3, 3:, 2]
    np.testing.assert_array_equal(kept, expected)


def test_clients_that_have_a_background_of_their_own_have_a_noise_of_their_own():
    own = np.full((4, 3, 1), 0.01)
    own[0] = 0.05
    own[2:] = 0.05  # the second client is never calm
    # The lower quartile of 0.01 and 0.05 is 0.02.
    for common, expected in ((True, [0.05, 0, 0.05, 0.05]), (False, [0.05, 0, 0, 0])):
        kept = own.copy()
        gate(kept, [slice(0, 2), slice(2, 4)], 3, common=common, times=2)
        np.testing.assert_array_equal(kept[:, 0, 0], expected)
