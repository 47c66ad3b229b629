"""Claims of the surveillance experiment: its measures, its two set-ups, and that it runs on any small video."""

import json

import numpy as np
import pytest
from PIL import Image

from common.errors import DataError, SettingsError
from common.settings import load_settings, settings_from_values
from common.threads import one_blas_thread
from perdl.cli.command import find_config
from perdl.engines.run import count_clients, simulate
from perdl.experiments import fixed_camera, frame_clients
from perdl.experiments.surveillance import run, sentences
from perdl.experiments.video_measures import f1, foreground, majority, psnr
from perdl_client.data.check import check_data
from perdl_client.data.sources import frame_samples
from perdl_client.formats.video import read_frames, read_masks

N, SIDE = 12, 48


def moving_square():
    """Return frames of a square that crosses a fixed scene, labels, and the scene."""
    rng = np.random.default_rng(0)
    scene = rng.integers(60, 200, (SIDE, SIDE, 3))
    frames = scene + rng.normal(0, 2, (N, SIDE, SIDE, 3))
    labels = np.zeros((N, SIDE, SIDE), np.uint8)
    for i in range(N):
        place = np.s_[i, 10:18, 3 * i : 3 * i + 8]
        frames[place], labels[place] = 250, 255
    return np.clip(frames, 0, 255).astype(np.uint8), labels, scene


@pytest.fixture
def video(tmp_path):
    """Lay the moving square out as CDnet lays its videos out."""
    frames, labels, _ = moving_square()
    for name, pictures in (("input", frames), ("groundtruth", labels)):
        (tmp_path / "video" / name).mkdir(parents=True)
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(tmp_path / "video" / name / f"{i}.png")
    read_frames.cache_clear()
    return tmp_path / "video"


def settings_of(name, path, *changes):
    return load_settings(find_config(name), [f"data.path={path}", *changes])


def test_psnr_is_that_of_the_mean_square():
    reference = np.zeros((4, 5, 3))
    assert psnr(np.full((2, 4, 5, 3), 25.5), reference) == pytest.approx(20)
    assert psnr(reference[None], reference) == np.inf
    one_frame_off = np.stack([np.full_like(reference, 25.5), reference])
    assert psnr(one_frame_off, reference) == pytest.approx(20 + 10 * np.log10(2))


def test_f1_scores_neither_borders_nor_what_is_outside():
    labels = np.array([[[255, 255, 255, 170], [0, 50, 85, 0]]], np.uint8)
    mask = np.array([[[True, True, False, True], [False, True, True, False]]])
    assert f1(mask, labels) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))  # the shadow is background and said to move
    assert f1(labels == 255, labels) == 1
    assert f1(np.zeros((1, 2, 2), bool), np.zeros((1, 2, 2), np.uint8)) == 1


def test_a_pixel_moves_by_its_largest_channel():
    own = np.zeros((1, 1, 3, 3))
    own[0, 0, 0] = 30
    own[0, 0, 1, 2] = -31
    np.testing.assert_array_equal(foreground(own), [[[False, True, False]]])


def test_majority_drops_lone_pixels_and_keeps_straight_edges():
    mask = np.zeros((1, 8, 8), bool)
    mask[0, 1, 6] = True
    mask[0, :, :4] = True
    kept = majority(mask)
    assert not kept[0, 1, 6]
    np.testing.assert_array_equal(kept[0, :, :4], True)
    np.testing.assert_array_equal(kept[0, :, 4:], False)


def test_shared_and_own_part_make_up_the_frame_where_nothing_is_cut():
    frames, _, _ = moving_square()
    changes = ("learner=orthogonal", "aggregation=polar", "data.patch=8", "n_nonzero=108", "n_global=5")
    name, one = next(frame_clients.separations(frames, settings_of("surveillance", "x", *changes)))
    assert name == "PerMA, polar, chain"
    np.testing.assert_allclose(one.shared + one.own, frames, atol=0.01)


def test_every_strategy_of_the_papers_set_up_is_there():
    frames, _, _ = moving_square()
    settings = settings_of("surveillance", "x", "data.patch=8", "n_nonzero=10", "n_global=5")
    names = [name for name, _ in frame_clients.separations(frames[:4], settings)]
    assert len(set(names)) == len(names)
    for aggregation in ("mean", "geometric-median", "energy"):
        assert f"PerMA, {aggregation}, chain" in names
    others = {"independent clients", "pooled data", "averaged without matching", "personalized PCA"}
    assert others | {"PerMA, mean, star"} <= set(names)


def test_a_fixed_camera_finds_the_scene_behind_what_moves():
    frames, labels, scene = moving_square()
    settings = settings_of("surveillance-fixed-camera", "x")
    found = dict(fixed_camera.separations(frames, settings))
    one = found["PerMA, geometric-median, chain"]
    assert psnr(one.background, scene) > 38
    assert f1(foreground(one.own), labels) > 0.98
    alone = found["independent clients"]
    assert psnr(alone.background, scene) < psnr(one.background, scene)
    assert f1(foreground(alone.own), labels) < f1(foreground(one.own), labels)


def test_exposure_follows_a_camera_that_grows_brighter():
    frames, labels, _ = moving_square()
    gain = np.linspace(0.85, 1.0, N)[:, None, None, None]
    brighter = np.where(labels[..., None] == 255, frames, gain * frames).astype(np.uint8)
    settings = settings_of("surveillance-fixed-camera", "x")
    _, one = next(fixed_camera.separations(brighter, settings))
    assert f1(foreground(one.own), labels) > 0.97
    still = labels != 255
    for i in (0, N - 1):
        assert np.abs(one.shared[i][still[i]] - brighter[i][still[i]]).mean() < 4


def test_black_places_and_black_frames_stay_black():
    frames, _, _ = moving_square()
    frames[:, :8] = 0
    frames[3] = 0
    settings = settings_of("surveillance-fixed-camera", "x")
    for _, one in fixed_camera.separations(frames, settings):
        assert np.isfinite(one.shared).all()
        assert np.isfinite(one.own).all()
        np.testing.assert_array_equal(one.background[:, :8], 0)
        assert np.abs(one.shared[3]).max() < 1e-3


def test_starts_of_a_place_are_the_samples_most_unlike_each_other():
    settings = settings_of("surveillance-fixed-camera", "x", "warmup_steps=0")
    Y = np.array([[1.0, 1.01, 0.99, 0.0], [0.0, 0.01, 0.01, 1.0]])
    D = fixed_camera.sample_start(Y, settings.for_client(""))
    np.testing.assert_allclose(np.abs(D[:, 1]), [0, 1])
    assert np.abs(D[:, 0] @ [1, 0]) > 0.99


@pytest.mark.parametrize("preset", ["surveillance", "surveillance-fixed-camera"])
def test_a_quick_run_measures_draws_and_says_three_sentences(preset, video, tmp_path):
    settings = settings_of(preset, video, "data.patch=8")
    results = run(settings, tmp_path / "a", quick=True)
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert results["experiment"] == "surveillance"
    assert len(results["sentences"]) == 3
    (rows,) = results["tables"].values()
    assert all(0 <= row["F1"] <= 1 for row in rows)
    main = next(row for row in rows if row["strategy"] == frame_clients.strategy_name(settings))
    assert f"a background {main['background PSNR, dB']:.1f} dB from" in results["sentences"][0]
    with Image.open(tmp_path / "a" / "figures" / "separation.png") as image:
        image.load()
    with Image.open(tmp_path / "a" / "figures" / "separation.gif") as image:
        assert image.n_frames == 8
    again = run(settings, tmp_path / "b", quick=True)
    drop = ("CPU seconds",)
    for one, other in zip(rows, *again["tables"].values(), strict=True):
        assert {k: v for k, v in one.items() if k not in drop} == {k: v for k, v in other.items() if k not in drop}


def test_without_masks_f1_is_left_out_with_a_word(video, tmp_path):
    told: list[str] = []
    settings = settings_of("surveillance", video / "input", "data.patch=8", "data.n_frames=3", "data.masks=none")
    with pytest.raises(DataError, match="no folder"):
        run(settings, tmp_path, quick=True)
    short = ("surveillance", video, "data.patch=8", "data.n_frames=3")
    (video / "groundtruth").rename(video / "elsewhere")
    results = run(settings_of(*short), tmp_path, quick=True, progress=told.append)
    assert any("no masks" in text for text in told)
    assert all("F1" not in row for rows in results["tables"].values() for row in rows)
    assert not any("F1" in sentence for sentence in results["sentences"])
    masks = settings_of(*short, f"data.masks={video / 'elsewhere'}")
    results = run(masks, tmp_path, quick=True)
    assert all("F1" in row for rows in results["tables"].values() for row in rows)


def test_masks_of_another_size_are_refused(video, tmp_path):
    for path in (video / "groundtruth").iterdir():
        Image.fromarray(np.zeros((SIDE, 2 * SIDE), np.uint8)).save(path)
    with pytest.raises(DataError, match=r"masks are 48 x 96 pixels, frames 48 x 48"):
        run(settings_of("surveillance", video, "data.patch=8"), tmp_path)


def test_settings_that_fit_no_video_are_refused(video, tmp_path):
    with pytest.raises(SettingsError, match='needs "video"'):
        run(settings_from_values({}), tmp_path)
    with pytest.raises(SettingsError, match="n_global = 2: must be 1"):
        run(settings_of("surveillance-fixed-camera", video, "n_global=2"), tmp_path)


def stills(folder, *pictures):
    for i, picture in enumerate(pictures):
        Image.fromarray(np.asarray(picture, np.uint8)).save(folder / f"{i}.png")
    return folder


def test_black_frames_are_refused(tmp_path):
    black = stills(tmp_path, *[np.zeros((16, 16))] * 3)
    for preset in ("surveillance", "surveillance-fixed-camera"):
        with pytest.raises(DataError, match="all frames are black"):
            run(settings_of(preset, black, "data.patch=8"), tmp_path / "out")


def test_frames_of_one_pixel_are_drawn(tmp_path):
    dots = stills(tmp_path, *([[100 + 10 * i]] for i in range(4)))
    results = run(settings_of("surveillance-fixed-camera", dots, "data.patch=1"), tmp_path / "out")
    assert len(results["sentences"]) == 3


def test_more_atoms_than_a_place_has_pixels_are_refused_where_they_must_be_orthogonal(tmp_path):
    dots = stills(tmp_path, *([[100 + 10 * i]] for i in range(4)))
    with pytest.raises(SettingsError, match="n_atoms = 2: must be at most the 1 features of a place"):
        run(settings_of("surveillance-fixed-camera", dots, "data.patch=1", "learner=orthogonal"), tmp_path / "out")


def test_a_background_without_any_difference_is_said_to_have_none():
    settings = settings_from_values({"data": {"source": "video"}})
    rows = [
        {"strategy": name, "background PSNR, dB": None}
        for name in (frame_clients.strategy_name(settings), "temporal median", "pooled data")
    ]
    said = sentences(rows, settings, (3, 80, 80, 1), 1.0)
    assert "without difference from the temporal median" in said[0]
    assert "pooled data without difference" in said[1]


def test_a_real_road_is_told_from_its_cars(shared_data):
    """On a stripe across the road, by day, with cars in most frames."""
    folder = shared_data / "video-highway"
    if not folder.is_dir():
        pytest.skip("no video-highway")
    read_frames.cache_clear()
    part = np.s_[::2, 128:144, 80:240]
    frames = read_frames(folder / "input")[part]
    labels = read_masks(folder / "groundtruth", 62)[part]
    _, one = next(fixed_camera.separations(frames, settings_of("surveillance-fixed-camera", folder)))
    assert psnr(one.background, np.median(frames, axis=0)) > 38
    assert f1(foreground(one.own), labels) > 0.85


def test_a_simulation_takes_a_frame_a_client(video, tmp_path):
    changes = (
        "data.patch=8",
        "data.n_frames=3",
        "rounds=1",
        "n_global=5",
        "privacy=none",
        f"output={tmp_path / 'run'}",
    )
    settings = count_clients(settings_of("surveillance", video, *changes))
    assert settings.n_clients == 3
    summary = simulate(settings)
    assert len(summary["clients"]) == 3
    assert all(facts["n_samples"] == 64 for facts in summary["clients"].values())
    starts, model = arrays_of(settings)
    with np.load(tmp_path / "run" / "global_dictionary.npz") as file:
        np.testing.assert_array_equal(file["dictionary"], model.global_dictionary)
    assert starts[0].shape == (108, 108)


def arrays_of(settings):
    """Return what the experiment computes from the same frames, without messages."""
    from perdl.experiments.federation import Client, first_dictionaries, perma

    samples = [frame_samples(settings, i) for i in range(settings.n_clients)]
    clients = [Client(f"client-{i + 1}", Y, settings.for_client(f"client-{i + 1}")) for i, Y in enumerate(samples)]
    with one_blas_thread():
        starts = first_dictionaries(clients, settings.seed)
        return starts, perma(clients, starts, settings)


def test_a_simulation_refuses_what_only_the_experiment_does(video):
    with pytest.raises(SettingsError, match="run perdl experiment surveillance"):
        check_data(settings_of("surveillance-fixed-camera", video))
    with pytest.raises(DataError, match="has 12 frames, n_clients is 13: lower n_clients"):
        check_data(settings_of("surveillance", video, "data.patch=8", "n_clients=13"))
    with pytest.raises(DataError, match=r"data.path is not set"):
        check_data(load_settings(find_config("surveillance"), []))
