"""Claims of the video reader: folders and files alike, order, labels of masks, and one line on what is wrong."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from common.errors import DataError
from perdl_client.formats.video import frame_folder, masks_beside, read_frames, read_masks


@pytest.fixture(autouse=True)
def _forget():
    read_frames.cache_clear()


def save(folder, arrays, name="{}.png"):
    folder.mkdir(parents=True, exist_ok=True)
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(folder / name.format(i))
    return folder


def some_frames(n, shape=(6, 8, 3)):
    return np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)


def test_frames_come_in_natural_order_as_they_were_stored(tmp_path):
    frames = some_frames(12)  # 2.png before 10.png
    np.testing.assert_array_equal(read_frames(save(tmp_path / "v", frames)), frames)


def test_every_and_n_frames_choose(tmp_path):
    frames = some_frames(12)
    np.testing.assert_array_equal(read_frames(save(tmp_path / "v", frames), 3, 2), frames[[0, 3]])


def test_grey_frames_have_one_channel(tmp_path):
    frames = some_frames(2, (6, 8))
    np.testing.assert_array_equal(read_frames(save(tmp_path / "v", frames)), frames[..., None])


def test_frames_and_masks_are_turned_as_their_exif_tag_says(tmp_path):
    frame = some_frames(1, (6, 8))[0]
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "v").mkdir()
    Image.fromarray(frame).save(tmp_path / "v" / "0.png", exif=exif)
    np.testing.assert_array_equal(read_frames(tmp_path / "v")[0, ..., 0], frame[::-1].T)
    np.testing.assert_array_equal(read_masks(tmp_path / "v", 1)[0], frame[::-1].T)


def test_a_video_file_gives_its_frames(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    import imageio.v3 as imageio

    steps = np.linspace(20, 230, 6).astype(np.uint8)
    frames = np.repeat(steps, 64 * 64 * 3).reshape(6, 64, 64, 3)
    imageio.imwrite(tmp_path / "v.mp4", frames, plugin="FFMPEG", fps=5)
    read = read_frames(tmp_path / "v.mp4", 2, 2)
    assert read.shape == (2, 64, 64, 3)
    np.testing.assert_allclose(read.mean(axis=(1, 2, 3)), steps[[0, 2]], atol=4)


@pytest.fixture(scope="module")
def encode(tmp_path_factory):
    """Write a video of 40 frames by ffmpeg, with further options."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed").get_ffmpeg_exe()

    def write(name, *options):
        path = tmp_path_factory.mktemp("video") / name
        source = ("-f", "lavfi", "-i", "testsrc=d=1.6:s=64x48:r=25")
        subprocess.run([ffmpeg, "-v", "error", *source, *options, path], check=True)
        return path

    return write


SOUND = ("-f", "lavfi", "-i", "sine=d=4")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", ()),
        ("a.mp4", ("-movflags", "+faststart")),
        ("a.mp4", (*SOUND, "-movflags", "+faststart")),
        ("a.mov", ("-movflags", "frag_keyframe+empty_moov")),
        ("a.mkv", ("-vf", "select='not(mod(n\\,3))'", "-fps_mode", "vfr")),
        ("a.webm", ("-c:v", "libvpx", "-deadline", "realtime")),
        ("a.avi", ()),
    ],
)
def test_a_whole_video_is_read_and_a_cut_one_refused(encode, name, options):
    path = encode(name, *options)
    assert len(read_frames(path)) in (40, 41)
    whole = path.read_bytes()
    for share in (0.4, 0.9, 0.98):
        path.write_bytes(whole[: int(share * len(whole))])
        read_frames.cache_clear()
        refused(r"is cut short: \d+ of (at least )?\d+ (frames|bytes); copy or export it again", read_frames, path)


@pytest.mark.parametrize(("name", "form"), [("a.mkv", "matroska"), ("a.avi", "avi")])
def test_a_video_written_to_a_pipe_says_no_length_and_is_read(encode, name, form):
    path = encode(name)
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    piped = subprocess.run([ffmpeg, "-v", "error", "-i", path, "-f", form, "pipe:1"], check=True, capture_output=True)
    path.write_bytes(piped.stdout)
    assert len(read_frames(path)) == 40


def test_the_case_of_videos_cut_short(cases):
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    folder = cases / "video_cut_short"
    assert len(read_frames(folder / "whole.avi")) == 40
    for name, there in {"cut.avi": 20, "cut.mkv": 7, "cut_faststart.mp4": 2}.items():
        refused(f"{name}: is cut short: {there} of 40 frames; copy or export it again", read_frames, folder / name)


def test_labels_of_masks_are_palette_indices(tmp_path):
    labels = np.array([[0, 50, 85], [170, 255, 0]], dtype=np.uint8)
    image = Image.fromarray(labels).convert("P")
    image.putdata(labels.ravel().tolist())
    image.putpalette([255 - i // 3 for i in range(768)])  # colours other than the labels
    (tmp_path / "groundtruth").mkdir()
    image.save(tmp_path / "groundtruth" / "0.png")
    np.testing.assert_array_equal(read_masks(tmp_path / "groundtruth", 1), labels[None])


def test_masks_are_found_where_cdnet_puts_them(tmp_path):
    for name in ("input", "groundtruth"):
        (tmp_path / name).mkdir()
    assert frame_folder(tmp_path) == tmp_path / "input"
    assert masks_beside(tmp_path / "input") == masks_beside(tmp_path) == tmp_path / "groundtruth"
    assert masks_beside(tmp_path / "groundtruth") is None


def test_real_masks_hold_the_labels_of_cdnet(shared_data):
    folder = shared_data / "video-highway"
    if not folder.is_dir():
        pytest.skip("no video-highway")
    frames = read_frames(folder / "input", n_frames=3)
    masks = read_masks(folder / "groundtruth", len(frames))
    assert frames.shape == (3, 240, 320, 3)
    assert set(np.unique(masks)) <= {0, 50, 85, 170, 255}


def refused(text, call, *args, **kwargs):
    with pytest.raises(DataError, match=text) as error:
        call(*args, **kwargs)
    assert "\n" not in str(error.value)


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    refused("does not exist", read_frames, tmp_path / "nothing")
    refused("holds no images", read_frames, tmp_path)
    (tmp_path / "v.txt").write_text("x")
    refused("no video file", read_frames, tmp_path / "v.txt")
    mixed = save(tmp_path / "mixed", [some_frames(1)[0], some_frames(1, (4, 8, 3))[0]])
    refused(r"1.png: is of shape \(4, 8, 3\), the first of \(6, 8, 3\)", read_frames, mixed)
    damaged = save(tmp_path / "damaged", some_frames(1))
    (damaged / "0.png").write_bytes((damaged / "0.png").read_bytes()[:40])
    refused("damaged", read_frames, damaged)
    deep = tmp_path / "deep"
    deep.mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(deep / "0.png")
    refused("mode I;16, not 8 bits", read_frames, deep)


def test_a_damaged_video_file_is_refused(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    (tmp_path / "v.mp4").write_bytes(b"\0" * 1000)
    refused("not a video", read_frames, tmp_path / "v.mp4")


@pytest.mark.parametrize("missing", ["imageio.v3", "imageio_ffmpeg"])
def test_a_video_file_without_the_extra_names_it(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    (tmp_path / "v.mp4").write_bytes(b"\0" * 1000)
    refused("pip install imageio imageio-ffmpeg", read_frames, tmp_path / "v.mp4")


def test_masks_that_do_not_fit_are_refused(tmp_path):
    masks = save(tmp_path / "m", np.zeros((2, 6, 8), np.uint8))
    refused("holds 2 masks for 3 frames", read_masks, masks, 3)
    refused("holds 1 masks for 2 frames", read_masks, masks, 2, 2)
    refused("no folder", read_masks, tmp_path / "none", 2)
