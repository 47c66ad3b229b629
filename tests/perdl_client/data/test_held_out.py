"""Which samples are held out: nothing of them, and no near copy, is among those that are learnt from."""

import re
from dataclasses import replace

import numpy as np
import pytest

from common.rng import stream
from common.settings import load_settings
from perdl_client.data.held_out import BLOCKS, FEWEST, LEAST_LEFT, set_aside, units_of_pieces
from perdl_client.data.load import own_scale_sums, prepare
from perdl_client.data.samples import Samples
from perdl_client.data.site_scale import scale_sums
from perdl_client.data.sources import SAMPLES
from perdl_client.data.windows_patches import Cut
from perdl_client.formats.read import load_samples
from perdl_client.identity import Identity


def numbered(n, d=3, **more):
    """Samples that hold their own numbers."""
    return Samples(np.tile(np.arange(float(n)), (d, 1)), (d,), **more)


def rng(name="ada"):
    return stream(0, name, "held-out")


def whole(shape=(3,)):
    return Cut("", 0, 0, shape)


def numbers(samples):
    return samples.data[0].astype(int).tolist()


def settings_of(*more):
    return load_settings(None, ["data.source=memory", "evaluation.held_out=0.2", *more])


@pytest.mark.parametrize("n", [10, 53, 200])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_rows_are_drawn_at_random_and_each_is_on_one_side(n, share):
    parts = set_aside(numbered(n), whole(), share, rng())
    training, held = numbers(parts.training), numbers(parts.held_out)
    assert sorted(training + held) == list(range(n))
    assert len(held) == round(share * n)
    assert training == sorted(training)
    assert held == sorted(held)
    assert held != list(range(n - len(held), n))
    assert parts.units.tolist() == held


def test_the_same_seed_and_client_draw_the_same_and_others_differ():
    held = [numbers(set_aside(numbered(100), whole(), 0.2, rng(name)).held_out) for name in ("ada", "ada", "bob")]
    assert held[0] == held[1] != held[2]


def test_few_samples_change_sides_when_some_are_added():
    before = set(numbers(set_aside(numbered(500), whole(), 0.2, rng()).held_out))
    after = {i for i in numbers(set_aside(numbered(510), whole(), 0.2, rng()).held_out) if i < 500}
    assert len(before ^ after) <= 20


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_series_gives_its_end_and_no_window_reaches_over_the_border(stride):
    series, cut = numbered(203, d=2), Cut("window", 8, stride, (2,))
    parts = set_aside(series, cut, 0.2, rng())
    training, held = ({*cut.apply(part.data).ravel().tolist()} for part in (parts.training, parts.held_out))
    assert not training & held
    assert max(training) < min(held)
    assert len(held) == round(0.2 * 203)
    assert parts.units is None


@pytest.mark.parametrize("n", [40, 41])
def test_sounds_and_videos_that_are_not_cut_give_their_end_too(n):
    assert numbers(set_aside(numbered(n, in_time=True), whole(), 0.25, rng()).held_out) == list(range(n - 10, n))


def images(n, h=12, w=6):
    """Each pixel is the number of its image, and a tenth of its row."""
    data = np.arange(n)[:, None, None] + np.arange(h)[None, :, None] / 100 + np.zeros((1, 1, w))
    return Samples(data.reshape(n, -1).T, (h, w))


def test_images_are_held_out_whole_and_their_patches_are_one_unit():
    cut = Cut("patch", 3, 2, (12, 6))
    parts = set_aside(images(30), cut, 0.2, rng())
    pieces = [cut.apply(part.data) for part in (parts.training, parts.held_out)]
    owners = [np.unique(np.floor(one)).tolist() for one in pieces]
    assert sorted([*owners[0], *owners[1]]) == list(range(30))
    assert len(owners[1]) == 6
    units = units_of_pieces(parts.units, pieces[1].shape[1])
    np.testing.assert_array_equal(units, np.floor(pieces[1][0]))


def test_one_or_two_images_give_their_lowest_rows():
    parts = set_aside(images(2, h=20), Cut("patch", 3, 3, (20, 6)), 0.2, rng())
    assert (parts.training.shape, parts.held_out.shape) == ((16, 6), (4, 6))
    rows = [np.unique(np.round(part.data % 1, 2)) for part in (parts.training, parts.held_out)]
    assert rows[0].max() < rows[1].min()
    assert set_aside(images(1, h=20), Cut("patch", 5, 5, (20, 6)), 0.2, rng()) is None  # four rows hold no patch


def test_files_of_a_folder_stay_whole_if_there_are_enough():
    many, few = (numbered(sum(sizes), files=sizes) for sizes in ((9, 11, 10, 12, 8, 10, 10, 9, 11, 10), (50, 50)))
    owner = np.repeat(np.arange(10), many.files)
    parts = set_aside(many, whole(), 0.2, rng())
    held = np.unique(owner[numbers(parts.held_out)])
    assert len(held) == 2
    assert not np.isin(owner[numbers(parts.training)], held).any()
    assert parts.units.tolist() == owner[numbers(parts.held_out)].tolist()
    assert len(np.unique(owner[numbers(set_aside(many, Cut("window", 4, 4, (3,)), 0.2, rng()).held_out)])) == 2
    assert numbers(set_aside(few, Cut("window", 4, 4, (3,)), 0.2, rng()).held_out) == list(range(80, 100))


def test_a_folder_tells_the_sizes_of_its_files(tmp_path):
    for i, n in enumerate((4, 6, 5)):
        np.save(tmp_path / f"{i}.npy", np.ones((n, 2)))
    assert load_samples(tmp_path).files == (4, 6, 5)
    assert load_samples(tmp_path / "0.npy").files == ()


@pytest.mark.parametrize(
    ("units", "n", "expected"),
    [
        (np.arange(7), 7, list(range(7))),
        (np.arange(5), 10, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
        (np.arange(4), 12, list(range(12))),  # too few to draw from
        (None, 3, [0, 1, 2]),
        (None, 4 * BLOCKS, np.repeat(np.arange(BLOCKS), 4).tolist()),
    ],
)
def test_pieces_belong_to_units_or_blocks(units, n, expected):
    assert units_of_pieces(units, n).tolist() == expected


def test_preprocessing_is_fitted_on_what_is_learnt_from():
    data = np.random.default_rng(0).standard_normal((4, 60))
    settings = settings_of("data.center=true", "data.scale=client")
    one = prepare(Samples(data, (4,)), settings, settings.for_client("ada"), "ada")
    held = set_aside(Samples(data, (4,)), whole((4,)), 0.2, rng())
    np.testing.assert_allclose(one.Y.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(np.mean(one.Y**2), 1)
    mean = held.training.data.mean(axis=1, keepdims=True)
    size = np.sqrt(np.mean((held.training.data - mean) ** 2))
    np.testing.assert_allclose(one.held_out.Z, (held.held_out.data - mean) / size, atol=1e-14)


@pytest.mark.parametrize(
    ("n", "atoms", "words"),
    [
        (20, 2, r"ada holds out no samples: of 20 samples 20% are too few to tell anything"),
        (60, 30, r"too few samples would be left to learn 30 atoms from \(48, and 2 an atom are needed\)"),
        (60, 24, ""),
        (25, 2, ""),
    ],
)
def test_with_too_few_samples_none_are_held_out_and_it_is_said(n, atoms, words):
    settings = settings_of(f"n_atoms={atoms}", "n_global=auto")
    samples = Samples(np.random.default_rng(0).standard_normal((4, n)), (4,))
    one = prepare(samples, settings, settings.for_client("ada"), "ada")
    if not words:
        assert one.held_out.Z.shape[1] == round(0.2 * n) >= FEWEST
        assert one.Y.shape[1] >= LEAST_LEFT * atoms
        assert one.none_held_out == ""
        return
    assert one.Y.shape == (4, n)
    assert one.held_out is None
    assert re.search(words, one.none_held_out)


def test_without_the_setting_nothing_is_held_out():
    data = np.random.default_rng(0).standard_normal((4, 60))
    settings = load_settings(None, ["data.source=memory"])
    one = prepare(Samples(data, (4,)), settings, settings.for_client("ada"), "ada")
    assert one.held_out is None
    assert one.none_held_out == ""
    assert one.Y is data


def test_a_mapped_file_is_not_written_and_parts_are_not_copies_of_series(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).standard_normal((100, 3)))
    samples = replace(load_samples(tmp_path / "a.npy"), in_time=True)
    before = samples.data.copy()
    settings = settings_of("data.center=true")
    one = prepare(samples, settings, settings.for_client("ada"), "ada", in_place=True)
    np.testing.assert_array_equal(samples.data, before)
    assert one.Y.shape[1] == 80
    parts = set_aside(samples, whole(), 0.2, rng())
    assert np.shares_memory(parts.training.data, samples.data)


def test_the_scale_that_clients_agree_on_does_not_see_them():
    data = np.random.default_rng(0).standard_normal((4, 60))
    settings = settings_of("data.site_scale=agree", "n_global=1")
    parts = set_aside(Samples(data, (4,)), whole((4,)), 0.2, rng("ada"))
    identity = Identity("ada", 0, {SAMPLES: data})
    for told, expected in zip(own_scale_sums(identity, settings), scale_sums(parts.training.data, 4), strict=True):
        np.testing.assert_array_equal(told, expected)
