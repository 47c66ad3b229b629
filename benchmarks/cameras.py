"""Does the fixed-camera layout hold on cameras that its rule was not chosen on?

    python benchmarks/cameras.py             # all cameras, about 15 minutes of CPU time
    python benchmarks/cameras.py highway     # some

One camera is real, with masks drawn by hand (highway of CDnet). The others are composites whose masks are exact: what
moves in a real video (cars of highway, walkers of vtest), or textured discs, over a real empty scene (the temporal
medians of these videos, or scikit-learn's two photographs), with sensor noise, JPEG, and one trouble each. Masks of
walkers come from a difference, but as they are pasted, what is pasted is the truth.

*Before* codes by least squares, takes the median of the codes of frames that use the shared atom, and zeroes own parts
of at most twice the noise. *After* is `perdl.experiments.fixed_camera`: codes of least absolute deviation, of all
frames, and two constants. For each camera they are chosen on all others: of the pairs that are not below the temporal
median on any of them, the pair with the largest mean of F1; if there is none, the pair with the largest least
difference from the median's F1. *Averaged* has no matching, and the same constants as *after*. Cameras called fresh
were made when the rule was there, and no constant is chosen on them.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from common.settings import load_settings
from common.threads import one_blas_thread
from perdl.cli.command import find_config
from perdl.experiments import fixed_camera
from perdl.experiments.federation import Client, averaged, perma
from perdl.experiments.fixed_camera import CERTAIN, GATE, brightened, sample_start, windows_of
from perdl.experiments.frame_clients import most_used_first
from perdl.experiments.real_data import data_folder
from perdl.experiments.video_measures import f1, foreground, psnr
from perdl_client.data.video_layouts import from_places, places

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Row = dict[str, Any]

H, W, N = 120, 160, 62
EDGE = 170
"""CDnet's label of pixels that are not scored."""
RULES = [(times, certain) for times in (1.5, 2.0, 3.0, 4.0) for certain in (35.0, 40.0, 45.0, 50.0, 60.0, np.inf)]
PATCH = 8


@dataclass(frozen=True)
class Moving:
    """What moves: pictures (n, h, w, 3), and labels (n, h, w) that say where they are pasted."""

    pictures: Floats
    labels: Bytes


@dataclass(frozen=True)
class Camera:
    """Frames (n, h, w, 3), true labels, and the empty scene."""

    frames: Bytes
    labels: Bytes
    scene: Floats


# Real material.


def _folder(name: str) -> Path:
    folder = data_folder() / name
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; set PERDL_DATA")
    return folder


def _pictures(folder: Path, mode: str = "RGB") -> Bytes:
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))
    return np.stack([np.asarray(Image.open(path).convert(mode) if mode else Image.open(path)) for path in paths])


def _smaller(frames: NDArray[np.generic], k: int) -> Floats:
    *n, h, w, c = frames.shape
    cut = frames[..., : h - h % k, : w - w % k, :].astype(float)
    return cut.reshape(*n, h // k, k, w // k, k, c).mean(axis=(-4, -2))


def highway() -> Camera:
    """Return the real video with its masks."""
    folder = _folder("video-highway")
    frames, labels = _pictures(folder / "input"), _pictures(folder / "groundtruth", "")
    return Camera(frames, labels, np.median(frames, axis=0))


@cache
def cars() -> Moving:
    """Return the cars of highway. Where a smaller pixel is a car in part, it is not scored."""
    real = highway()
    fine = real.labels.reshape(N, H, 2, W, 2)
    labels = real.labels[:, ::2, ::2]
    mixed = (fine.max(axis=(2, 4)) == 255) & (fine.min(axis=(2, 4)) != 255)
    return Moving(_smaller(real.frames, 2), np.where(mixed, EDGE, labels).astype(np.uint8))


@cache
def walkers() -> Moving:
    """Return the walkers of vtest: what differs from the empty path, as long as it is larger than a dozen pixels."""
    frames = _smaller(_pictures(_folder("video-vtest") / "frames"), 4)
    labels = np.zeros(frames.shape[:3], np.uint8)
    for label, differs in zip(labels, np.abs(frames - path()).max(axis=-1) > 25, strict=True):
        parts, n = ndimage.label(ndimage.binary_opening(ndimage.binary_closing(differs)))
        large = 1 + np.flatnonzero(ndimage.sum(parts > 0, parts, range(1, n + 1)) >= 12)
        mask = np.isin(parts, large)
        label[ndimage.binary_dilation(mask)] = EDGE
        label[mask] = 255
    return Moving(frames, labels)


def road() -> Floats:
    """Return the empty road of highway."""
    return np.asarray(np.median(cars().pictures, axis=0))


@cache
def path() -> Floats:
    """Return the empty path of vtest."""
    with Image.open(_folder("video-vtest") / "background_median.png") as picture:
        return _smaller(np.asarray(picture.convert("RGB")), 4)


@cache
def photo(i: int) -> Floats:
    """Return the middle of one of scikit-learn's photographs: 0 a temple, 1 a flower."""
    try:
        from sklearn.datasets import load_sample_images
    except ModuleNotFoundError as missing:
        raise FileNotFoundError("scikit-learn is not installed (extra: benchmark)") from missing
    return _smaller(load_sample_images().images[i], 3)[10 : 10 + H, 20 : 20 + W]


def discs(
    rng: np.random.Generator,
    texture: Floats,
    n: int,
    size: tuple[float, float],
    speed: tuple[float, float],
    stops: float = 0.0,
) -> Moving:
    """Return discs that cross the frame; a share of them stands still for 45 % of the frames."""
    pictures, labels = np.zeros((N, H, W, 3)), np.zeros((N, H, W), np.uint8)
    yy, xx = np.mgrid[:H, :W]
    for _ in range(n):
        tall, wide = rng.uniform(*size), rng.uniform(*size) * 0.6
        v = rng.uniform(*speed) * rng.choice([-1, 1])
        vy = rng.normal(0, 0.2) * abs(v)
        x, y = rng.uniform(0, W), rng.uniform(0.2 * H, 0.95 * H)
        colour = rng.uniform(20, 235) * rng.uniform(0.8, 1.2, 3)
        halt = rng.integers(0, N // 2) if rng.random() < stops else N
        for t in range(N):
            if not halt <= t < halt + 0.45 * N:
                x, y = x + v, y + vy
            at = x % (W + 40) - 20
            r = ((xx - at) / wide) ** 2 + ((yy - y) / tall) ** 2
            look = np.roll(texture, (int(y) - H // 2, int(at) - W // 2), axis=(0, 1))
            inside = r <= 1
            pictures[t][inside] = ((look - look.mean()) / 2 + colour)[inside]
            labels[t][inside] = 255
            labels[t][(r > 1) & (r <= 1 + 2.4 / min(tall, wide)) & (labels[t] != 255)] = EDGE
    return Moving(pictures, labels)


def filmed(
    scene: Floats,
    moving: Moving,
    rng: np.random.Generator,
    *,
    noise: float = 3.0,
    gain: Floats | None = None,
    sway: float = 0.0,
    shake: float = 0.0,
) -> Camera:
    """Return what a camera sees; ``sway`` moves the upper half of the scene, ``shake`` the camera, in pixels."""
    yy, xx = np.mgrid[:H, :W].astype(float)
    gain = np.ones(N) if gain is None else gain
    frames, labels = [], []
    for t in range(N):
        empty, label = scene, moving.labels[t]
        if sway:
            phase, much = rng.uniform(0, 2 * np.pi, 2), sway * rng.normal() / (1 + np.exp((yy - 0.45 * H) / 6))
            at = [yy + 0.5 * much * np.sin(yy / 5 + phase[1]), xx + much * np.sin(xx / 7 + phase[0])]
            empty = np.stack([ndimage.map_coordinates(one, at, order=1) for one in np.moveaxis(scene, -1, 0)], axis=-1)
        picture = np.where((label == 255)[..., None], moving.pictures[t], empty)
        picture = np.where((label == EDGE)[..., None], ndimage.uniform_filter(picture, (3, 3, 1)), picture)
        if shake:
            by = shake * rng.normal(size=2)
            picture = ndimage.shift(picture, (*by, 0), order=1, mode="nearest")
            label = ndimage.shift(label, by, order=0, mode="nearest")
        picture = np.clip(np.round(gain[t] * picture + rng.normal(0, noise, picture.shape)), 0, 255)
        file = io.BytesIO()
        Image.fromarray(picture.astype(np.uint8)).save(file, "JPEG", quality=85)
        frames.append(np.asarray(Image.open(file)))
        labels.append(label)
    return Camera(np.stack(frames), np.stack(labels), np.median(gain) * scene)


def trucks(rng: np.random.Generator) -> Camera:
    """Return a camera that turns darker the more of the frame is covered by what is large."""
    moving = discs(rng, photo(1), 4, (30, 45), (6, 12))
    return filmed(photo(0), moving, rng, gain=1 - 0.3 * (moving.labels == 255).mean(axis=(1, 2)))


CAMERAS: dict[str, Callable[[np.random.Generator], Camera]] = {
    "highway": lambda rng: highway(),
    "path, walkers": lambda rng: filmed(path(), walkers(), rng),
    "temple, cars, leaves sway": lambda rng: filmed(photo(0), cars(), rng, sway=1.5),
    "flower, walkers, dusk": lambda rng: filmed(photo(1), walkers(), rng, gain=np.linspace(1, 0.6, N)),
    "path, cars, mast shakes": lambda rng: filmed(path(), cars(), rng, shake=0.5),
    "temple, crowd of discs": lambda rng: filmed(photo(0), discs(rng, photo(1), 45, (5, 9), (0.5, 2)), rng, noise=4),
    "road, walkers, night": lambda rng: filmed(road(), walkers(), rng, gain=np.full(N, 0.3), noise=5),
    "flower, discs stop": lambda rng: filmed(photo(1), discs(rng, photo(0), 8, (8, 14), (2, 5), stops=0.6), rng),
    "temple, trucks, exposure": trucks,
    "path, discs, fountain": lambda rng: filmed(path(), discs(rng, photo(0), 10, (4, 8), (1, 3)), rng, sway=4),
}
FRESH: dict[str, Callable[[np.random.Generator], Camera]] = {
    "flower, discs, leaves sway": lambda rng: filmed(photo(1), discs(rng, photo(0), 25, (6, 12), (1, 4)), rng, sway=1),
    "path, cars, dawn": lambda rng: filmed(path(), cars(), rng, gain=np.linspace(0.6, 1, N), noise=4),
    "temple, walkers, much noise": lambda rng: filmed(photo(0), walkers(), rng, noise=6),
    "road, discs stop": lambda rng: filmed(road(), discs(rng, photo(0), 5, (8, 14), (2, 5), stops=0.5), rng),
    "flower, cars, flicker": lambda rng: filmed(photo(1), cars(), rng, gain=rng.uniform(0.9, 1.1, N), shake=0.3),
}


# Measuring.


@dataclass(frozen=True)
class Backgrounds:
    """Backgrounds (d, m) by method, and the frames as places (n, d, m)."""

    P: Floats
    before: Floats
    after: Floats
    averaged: Floats


def backgrounds(frames: Bytes) -> Backgrounds:
    """Run PerMA as the preset has it, and averaging without matching, at each place."""
    settings = load_settings(find_config("surveillance-fixed-camera"), ["data.path=none"])
    learning, dtype = settings.for_client(""), settings.dtype
    P = np.stack([places(frame.astype(dtype) / 255, PATCH) for frame in frames])
    windows = windows_of(len(P), settings.data.video_window)
    before, after, plain = (np.zeros(P.shape[1:], dtype) for _ in range(3))
    with one_blas_thread():
        for b in range(P.shape[2]):
            kept = [(i, Y[:, np.any(Y, axis=0)]) for i, Y in enumerate(P[w, :, b].T for w in windows)]
            clients = [Client(f"client-{i + 1}", Y, learning) for i, Y in kept if Y.shape[1]]
            if not clients:
                continue
            starts = [sample_start(client.data, learning) for client in clients]
            model = perma(clients, starts, settings)
            atom = model.global_dictionary[:, 0]
            after[:, b] = brightened(clients, atom)
            dictionaries = [np.hstack([model.global_dictionary, D_l]) for D_l in model.local_dictionaries]
            used = np.concatenate([c.coder(c.data, D)[0] for c, D in zip(clients, dictionaries, strict=True)])
            used = used[used != 0] if used.any() else np.concatenate([atom @ c.data for c in clients])
            before[:, b] = atom * np.median(used)
            D_mean = averaged(clients, [start[:, : min(s.shape[1] for s in starts)] for start in starts], 1)
            plain[:, b] = brightened(clients, most_used_first(D_mean, clients)[:, 0])
    return Backgrounds(P, before, after, plain)


def measure(name: str) -> Row | str:
    """Return the figures of one camera, or why there are none."""
    seeds = [*CAMERAS, *FRESH]
    try:
        camera = (CAMERAS | FRESH)[name](np.random.default_rng(1 + seeds.index(name)))
    except FileNotFoundError as missing:
        return str(missing)
    shape = camera.frames.shape[1:]
    found = backgrounds(camera.frames)
    P, windows = found.P, windows_of(len(found.P), 4)
    median = np.median(camera.frames, axis=0)

    def score(own: Floats) -> float:
        pictures = np.stack([255 * from_places(one, shape, PATCH) for one in own])
        return f1(foreground(pictures), camera.labels)

    def by_rules(background: Floats) -> dict[tuple[float, float], float]:
        own, scores = P - fixed_camera.expose(P, background[None], windows), {}
        for times, certain in RULES:
            gated = own.copy()
            fixed_camera.gate(gated, windows, 3, times=times, certain=certain)
            scores[times, certain] = score(gated)
        return scores

    def decibels(background: Floats) -> float:
        return psnr(255 * from_places(background, shape, PATCH)[None], camera.scene)

    least_squares = P - found.before * _exposures(P, found.before)
    fixed_camera.gate(least_squares, windows, 3, times=2.0, certain=np.inf)
    return {
        "median": f1(foreground(camera.frames - median), camera.labels),
        "before": score(least_squares),
        "after": by_rules(found.after),
        "averaged": by_rules(found.averaged),
        "dB": [psnr(median[None], camera.scene), *map(decibels, (found.averaged, found.before, found.after))],
    }


def _exposures(P: Floats, B: Floats) -> Floats:
    lit = np.any(B, axis=0)
    codes = (P[:, :, lit] * B[:, lit]).sum(axis=1) / (B[:, lit] ** 2).sum(axis=0)
    return np.median(codes, axis=1)[:, None, None]


def chosen(others: list[Row]) -> tuple[float, float]:
    """Return the constants that the other cameras choose."""
    gains = {rule: [one["after"][rule] - one["median"] for one in others] for rule in RULES}
    above = [rule for rule in RULES if min(gains[rule]) >= 0]
    return max(above, key=lambda rule: sum(gains[rule])) if above else max(RULES, key=lambda rule: min(gains[rule]))


def main() -> None:
    """Measure all cameras, choose for each on the others, and print."""
    names = sys.argv[1:] or [*CAMERAS, *FRESH]
    if unknown := set(names) - set(CAMERAS) - set(FRESH):
        raise SystemExit(f"there is no camera {', '.join(sorted(unknown))}; cameras are {', '.join(CAMERAS | FRESH)}")
    found: dict[str, Row] = {}
    with ProcessPoolExecutor() as pool:
        for name, one in zip(names, pool.map(measure, names), strict=True):
            print(f"{name}: {'left out, ' + one if isinstance(one, str) else 'done'}", file=sys.stderr, flush=True)
            if not isinstance(one, str):
                found[name] = one
    heads = (
        "camera",
        "temporal median",
        "averaged",
        "before",
        "after",
        "constants",
        "as shipped",
        "dB: median, averaged, before, after",
    )
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name, one in found.items():
        others = [other for key, other in found.items() if key in CAMERAS and key != name]
        rule = chosen(others) if others else (GATE, CERTAIN)
        cells = [f"{value:.3f}" for value in (one["median"], one["averaged"][rule], one["before"], one["after"][rule])]
        cells += [f"{rule[0]:g}, {rule[1]:g}", f"{one['after'][GATE, CERTAIN]:.3f}"]
        cells.append(", ".join(f"{value:.1f}" for value in one["dB"]))
        print(f"| {name}{', fresh' if name in FRESH else ''} | " + " | ".join(cells) + " |")
    if len(found) > 2:
        print("chosen on all:", chosen([one for key, one in found.items() if key in CAMERAS]))


if __name__ == "__main__":
    main()
