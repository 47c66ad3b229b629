"""Which samples are this client's, and what is known of their truth."""

from __future__ import annotations

import glob
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.protocol import ProtocolError, check_name, natural_key
from common.settings import LearningSettings, Settings
from common.synthetic import ClientTruth, generate
from common.words import listed
from perdl_client.data.mnist import label_partition, load_mnist
from perdl_client.data.preprocessing import Preprocessing, constants, cut_of, fit_preprocessing
from perdl_client.data.quality import different_units, doubts, facts
from perdl_client.data.samples import Samples
from perdl_client.data.units import MOST, untouched
from perdl_client.data.video_layouts import LAYOUTS, crop
from perdl_client.data.windows_patches import Cut
from perdl_client.formats.columns import Absent, drop_option, leaving_out, require_some_have
from perdl_client.formats.file_checks import file_error, is_data, nearest
from perdl_client.formats.read import Features, load_samples
from perdl_client.formats.video import frame_folder, read_frames
from perdl_client.learning.initialization import check_fit, largest_feature_share, mean_share

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.client")

SIMULATION = "PERDL_SIMULATION"
"""Environment variable that a simulation sets: server and clients are one user on one machine, so paths that the
settings name may be read and written by clients. A deployed client takes no path from the server."""

NAMES = "PERDL_NAMES"
"""Environment variable with the names of simulated clients as JSON, for engines that start clients by number."""

NO_ARRAYS = 'data.source = "memory" is for arrays that perdl.PerDL is given; for files set data.source = "files"'
SAMPLES = "samples"
"""Of a node's configuration: its samples (d, n), where the engine runs in the process that holds them."""


@dataclass(frozen=True)
class Identity:
    """Who this client is.

    Attributes
    ----------
    name : str
        Stable id; sorts the clients, seeds their random streams.
    partition : int
        Its number in a simulation or an experiment's partition, from 0.
    node_config : mapping
        What this node was told at its own start.
    """

    name: str
    partition: int
    node_config: Mapping[str, Any]

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Identity:
        """Read the identity from Flower's node configuration; without a name, ``client-1`` is partition 0."""
        partition = int(node_config.get("partition-id", 0))
        names = json.loads(os.environ.get(NAMES) or "[]")
        name = names[partition] if partition < len(names) else f"client-{partition + 1}"
        return cls(check_name(str(node_config.get("name", name))), partition, node_config)

    def min_samples(self, learning: LearningSettings) -> int:
        """Samples that must use an atom before it is sent; no server can go below this client's own word."""
        own = 1 if is_simulation() else int(self.node_config.get("min-samples", 2))
        return max(own, learning.min_samples)

    def learning(self, settings: Settings) -> LearningSettings:
        """How this client learns: the run's settings, then its table in them, then its own."""
        own = {key: value for key, value in self.node_config.items() if key in LearningSettings.model_fields}
        return settings.for_client(self.name, own)

    def folder(self, settings: Settings) -> Path:
        """Where this client's own model goes."""
        return self.state_folder() or Path(settings.output) / "clients" / self.name

    def state_folder(self) -> Path | None:
        """Where a client keeps what it needs after a restart; none in a simulation, whose clients end with the run."""
        if is_simulation():
            return None
        return Path(str(self.node_config.get("folder", Path("perdl-clients") / self.name)))


@dataclass(frozen=True)
class ClientData:
    """A client's samples as it learns from them, and how they became so.

    Attributes
    ----------
    Y : (d, n) array
        Columns are samples.
    cut : Cut
    preprocessing : Preprocessing
    names : tuple of str
        Of a file's features, where it told them.
    """

    Y: Floats
    cut: Cut
    preprocessing: Preprocessing
    names: tuple[str, ...] = ()


def load_data(identity: Identity, settings: Settings) -> ClientData:
    """Return this client's samples, finite, in the run's float type, cut and preprocessed as the settings declare.

    Parameters
    ----------
    identity : Identity
    settings : Settings

    Returns
    -------
    ClientData

    Raises
    ------
    DataError
        One line that names the file and the cure.
    """
    samples = _load(identity, settings)
    cut = cut_of(settings.data, samples.shape)
    if "data" in identity.node_config:  # only a deployed client itself sees both its samples and what is done to them
        _note_units(samples, identity, settings)
    try:
        Y = cut.apply(samples.data.T).T.astype(settings.dtype, copy=False)
    except DataError as error:
        raise DataError(f"{identity.name}: {error}") from None
    if Y.size == 0:
        raise DataError(f"{identity.name} has no data: {Y.shape[1]} samples of {Y.shape[0]} features")
    _require_moderate(Y, f"{identity.name} has values", "rescale them")
    preprocessing = fit_preprocessing(Y, settings.data, identity.name, cut.channels)
    is_own = Y.flags.writeable and SAMPLES not in identity.node_config  # a file mapped into memory is read-only
    with np.errstate(over="ignore", invalid="ignore"):
        Z = preprocessing.apply(Y, in_place=is_own)
    _require_moderate(Z, f"{identity.name} has, once preprocessed, values", "look at data.divide_by")
    return ClientData(Z, cut, preprocessing, samples.names)


def _note_units(samples: Samples, identity: Identity, settings: Settings) -> None:
    if samples.data.size and len(samples.data) <= MOST and untouched(settings.data):  # beyond, nothing is said
        doubt = different_units({identity.name: facts(samples.data, samples.shape, samples.names)})
        if doubt:
            _log.warning("%s", doubt)


def _require_moderate(Y: Floats, whose: str, cure: str) -> None:
    """Raise if numbers are so large or so small that their squares' sums leave the float type."""
    largest, limits = max(float(Y.max()), -float(Y.min())), np.finfo(Y.dtype)
    if not largest < limits.max**0.25:
        raise DataError(f"{whose} up to {largest:.3g}, too large for {Y.dtype}: {cure}")
    if 0 < largest < limits.tiny**0.5 * 1e3:
        raise DataError(f"{whose} of {largest:.3g} at most, too small for {Y.dtype}: {cure}")


def truth(identity: Identity, settings: Settings) -> ClientTruth | None:
    """Return what the data were made of, where they are synthetic."""
    if "data" in identity.node_config or settings.data.source != "synthetic":
        return None
    s = settings.synthetic
    weak = identity.partition < s.weak_clients
    return generate(
        settings.seed,
        identity.name,
        n_features=s.n_features,
        n_global=s.n_global,
        n_local=s.n_local,
        n_samples=s.weak_samples if weak else settings.data.n_samples or 200,
        sparsity=s.sparsity,
        amplitude=s.amplitude,
        noise=s.noise,
    )


def _load(identity: Identity, settings: Settings) -> Samples:
    data, own = settings.data, identity.node_config
    if SAMPLES in own:
        return _plain(own[SAMPLES])
    if "data" in own:
        if data.source == "synthetic":  # others would take part with made-up samples, and nobody would notice
            raise DataError(
                f"{identity.name} was started with --data, but the run is of synthetic samples: start the server with "
                "the preset files, or -c data.source=files"
            )
        return load_samples(
            str(own["data"]),
            samples_in=own.get("samples-in", "rows"),
            variable=own.get("variable") or None,
            drop=own.get("drop") or None,
            dtype=settings.dtype,
        )
    known = truth(identity, settings)
    if known is not None:
        return _plain(known.data)
    if not is_simulation():
        raise DataError(
            f"{identity.name} was given no data: start it with --data FILE "
            "(a client reads no path that the server names)"
        )
    if data.source == "memory":
        raise DataError(NO_ARRAYS)
    if data.source == "mnist":
        pixels, labels = load_mnist(data.path, "train")
        chosen = label_partition(
            labels,
            identity.partition,
            settings.n_clients,
            n_samples=data.n_samples or 500,
            majority=data.majority,
            seed=settings.seed,
        )
        return Samples(np.ascontiguousarray(pixels[chosen].T) / 255.0, (28, 28))
    if data.source == "video":
        return _plain(frame_samples(settings, identity.partition))
    return read_file(settings, _one_file_each(settings)[identity.partition], Absent())


def read_file(settings: Settings, path: Path, absent: Absent, *, allow_nan: bool = False) -> Samples:
    """Return the samples of one file of a simulation; names in ``data.drop`` that it lacks are added to ``absent``."""
    data = settings.data

    def read(drop: str | None) -> Samples:
        return load_samples(
            path,
            samples_in=data.samples_in,
            variable=data.variable,
            drop=drop,
            allow_nan=allow_nan,
            dtype=settings.dtype,
        )

    return leaving_out(data.drop, read, absent)


def _plain(data: Floats) -> Samples:
    return Samples(data, (len(data),))


def video_frames(settings: Settings) -> NDArray[np.uint8]:
    """Return the frames of ``data.source = "video"``, cropped so that patches fit, (n, h, w, c).

    Raises
    ------
    DataError
        If ``data.path`` is missing or holds no frames that can be used.
    """
    data = settings.data
    if not data.path:
        raise DataError('data.path is not set: with data.source = "video" it names a folder of frames or a video file')
    frames = read_frames(frame_folder(data.path), data.every, data.n_frames)
    return crop(frames, data.video_patch, f"{data.path}: frames")


def frame_samples(settings: Settings, i: int) -> Floats:
    """Return frame ``i`` in the layout that the settings name, intensities in [0, 1]."""
    if settings.data.layout == "fixed-camera":
        raise SettingsError(
            'data.layout = "fixed-camera" is a federation for every place of the frame: run perdl experiment '
            'surveillance, or set data.layout = "thumbnails" or "blocks"'
        )
    frame = video_frames(settings)[i].astype(settings.dtype) / 255
    return LAYOUTS[settings.data.layout].to_samples(frame, settings.data.video_patch)


def client_files(settings: Settings) -> list[Path]:
    """Return one file or folder for each client of ``data.source = "files"``, in natural order.

    Raises
    ------
    DataError
        If ``data.path`` is missing or holds no file.
    """
    path = settings.data.path
    if not path:
        raise DataError(
            'data.path is not set: with data.source = "files" it names a folder or a glob, a file a client: '
            'perdl simulate files -c "data.path=samples/*.csv"'
        )
    place = Path(path)
    inside = place.iterdir() if place.is_dir() else map(Path, glob.glob(path))
    found = sorted(filter(is_data, inside), key=lambda p: natural_key(str(p)))
    if not found:
        near = nearest(path)
        cure = f"did you mean {near!r}?" if near else "correct the path"
        raise DataError(f"data.path = {path!r}: no file matches in {Path.cwd()}; {cure}")
    return found


def names_of(files: Sequence[Path]) -> list[str]:
    """Return the names of simulated clients: their files' or folders' own, as ``ada`` of ``samples/ada.csv``.

    Parameters
    ----------
    files : sequence of Path

    Returns
    -------
    list of str
        A bare number is called ``client-7``. Where names are not all different, or cannot be clients' names: those of
        the folders that hold the files; else ``client-1``, ``client-2``, ...
    """
    own = [path.name if path.is_dir() else path.stem for path in files]
    for found in (own, [path.parent.name for path in files]):
        names = [f"client-{name}" if name.isdecimal() else name for name in found]
        if len({name.casefold() for name in names}) == len(names) and all(map(_can_be_a_name, names)):
            return names
    return [f"client-{i + 1}" for i in range(len(files))]


def client_names(settings: Settings) -> list[str]:
    """Return the names of a simulation's clients.

    Parameters
    ----------
    settings : Settings
    """
    if settings.data.source == "files":
        return names_of(_one_file_each(settings))
    return [f"client-{i + 1}" for i in range(settings.n_clients)]


def _can_be_a_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except ProtocolError:
        return False


def _one_file_each(settings: Settings) -> list[Path]:
    files, n = client_files(settings), settings.n_clients
    if len(files) != n:
        raise DataError(f"data.path = {settings.data.path!r} has {len(files)} files, n_clients is {n}: set them equal")
    return files


def check_data(settings: Settings, known: dict[str, dict[str, float]] | None = None) -> list[str]:
    """Look at all data that a simulation is going to read before it begins; return what is doubtful about them.

    Parameters
    ----------
    settings : Settings
    known : dict, optional
        By client: filled with the facts of its samples that it will tell the server.

    Raises
    ------
    DataError
        If a file cannot be used, or its samples have other features than the first file's, or features of other names,
        or no file has a column that is to be left out.
    """
    if settings.data.source == "memory":
        raise DataError(NO_ARRAYS)
    if settings.data.source == "mnist":
        for split in ("train", "test"):
            load_mnist(settings.data.path, split)
    if settings.data.source == "video":
        frames, n = len(video_frames(settings)), settings.n_clients
        if n > frames:
            raise DataError(
                f"data.path = {settings.data.path!r} has {frames} frames, n_clients is {n}: lower n_clients"
            )
        check_fit(settings, len(frame_samples(settings, 0)), "client-1")
    if settings.data.source != "files":
        return []
    features, samples_in, seen, absent = Features(), settings.data.samples_in, {}, Absent()
    notes: dict[str, list[str]] = {}  # who, by what is said
    differs: DataError | None = None
    for name, path in zip(client_names(settings), _one_file_each(settings), strict=True):
        samples = read_file(settings, path, absent)
        for note in samples.notes:
            notes.setdefault(note, []).append(name)
        if wrong := features.compare(samples, str(path), samples_in):
            differs = differs or file_error(path, wrong)
            if not absent:  # else a misspelt name of a column to leave out may be why
                raise differs
        else:
            cut = cut_of(settings.data, samples.shape)
            check_features(settings, name, math.prod(cut.piece), cut.channels)
        seen[name] = facts(samples.data, samples.shape, samples.names)
        if known is not None and differs is None:
            with suppress(DataError):  # the client itself says what is wrong
                known[name] = _facts_told(samples, settings, name)
    require_some_have(absent, len(seen))
    if differs is not None:
        raise differs
    told = [f"{listed(names)}: {note}" for note, names in notes.items()]
    turn = f'set data.samples_in = "{"columns" if samples_in == "rows" else "rows"}"'
    return told + doubts(seen, turn, settings.data, partial(drop_option, "-c data.drop=", settings.data.drop))


def _facts_told(samples: Samples, settings: Settings, name: str) -> dict[str, float]:
    """Return what a client tells of its samples, as it learns from them, with its first dictionary."""
    cut = cut_of(settings.data, samples.shape)
    Y = cut.apply(samples.data.T).T.astype(settings.dtype, copy=False)
    _require_moderate(Y, name, "")
    Z = fit_preprocessing(Y, settings.data, name, cut.channels).apply(Y)
    _require_moderate(Z, name, "")
    return {
        "n_features": len(Z),
        "n_samples": Z.shape[1],
        "n_atoms": settings.for_client(name).n_atoms or len(Z),
        "mean_share": mean_share(Z),
        "largest_feature_share": largest_feature_share(Z, cut.channels if cut.kind == "window" else 0),
    }


def check_features(settings: Settings, name: str, n_features: int, channels: int = 0) -> None:
    """Hold the settings to the number of features of one client's data, of windows and images with so many channels.

    Raises
    ------
    SettingsError
        If they do not fit.
    """
    check_fit(settings.for_client(name), n_features, name)
    if isinstance(settings.n_global, int) and settings.n_global > n_features:
        raise SettingsError(f"n_global = {settings.n_global}: must be at most the {n_features} features")
    if settings.data.divide_by is not None:
        constants(settings.data.divide_by, n_features, channels or n_features, name)


def is_simulation() -> bool:
    """Whether server and clients are one user on this machine."""
    return bool(os.environ.get(SIMULATION))
