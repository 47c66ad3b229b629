"""Which samples are this client's, and what is known of their truth."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.protocol import check_name, natural_key
from common.settings import LearningSettings, Settings
from common.synthetic import ClientTruth, generate
from perdl_client.cuts import Cut
from perdl_client.doubts import doubts, facts
from perdl_client.file_checks import file_error, is_data
from perdl_client.layouts import LAYOUTS, crop
from perdl_client.mnist import label_partition, load_mnist
from perdl_client.preprocess import Preprocessing, cut_of, fit_preprocessing
from perdl_client.samples import Samples
from perdl_client.sources import Features, load_samples
from perdl_client.start import check_fit
from perdl_client.video_source import frame_folder, read_frames

Floats = NDArray[np.floating]

SIMULATION = "PERDL_SIMULATION"
"""Environment variable that a simulation sets: server and clients are one user on one machine, so paths that the
settings name may be read and written by clients. A deployed client takes no path from the server."""

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
        """Read the identity from Flower's node configuration; ``client-1`` is partition 0."""
        partition = int(node_config.get("partition-id", 0))
        return cls(check_name(str(node_config.get("name", f"client-{partition + 1}"))), partition, node_config)

    def min_samples(self, learning: LearningSettings) -> int:
        """Samples that must use an atom before it is sent; no server can go below this client's own word."""
        own = 1 if _is_simulation() else int(self.node_config.get("min-samples", 2))
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
        if _is_simulation():
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
            dtype=settings.dtype,
        )
    known = truth(identity, settings)
    if known is not None:
        return _plain(known.data)
    if not _is_simulation():
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
    return load_samples(
        _one_file_each(settings)[identity.partition],
        samples_in=data.samples_in,
        variable=data.variable,
        dtype=settings.dtype,
    )


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
        raise DataError('data.path is not set: with data.source = "files" it names a folder or a glob, a file a client')
    place = Path(path)
    inside = place.iterdir() if place.is_dir() else map(Path, glob.glob(path))
    found = sorted(filter(is_data, inside), key=lambda p: natural_key(str(p)))
    if not found:
        raise DataError(f"data.path = {path!r}: no file matches in {Path.cwd()}; correct the path")
    return found


def _one_file_each(settings: Settings) -> list[Path]:
    files, n = client_files(settings), settings.n_clients
    if len(files) != n:
        raise DataError(f"data.path = {settings.data.path!r} has {len(files)} files, n_clients is {n}: set them equal")
    return files


def check_data(settings: Settings) -> list[str]:
    """Look at all data that a simulation is going to read before it begins; return what is doubtful about them.

    Raises
    ------
    DataError
        If a file cannot be used, or its samples have other features than the first file's, or features of other names.
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
    features, samples_in, seen = Features(), settings.data.samples_in, {}
    for i, path in enumerate(_one_file_each(settings)):
        samples = load_samples(path, samples_in=samples_in, variable=settings.data.variable, dtype=settings.dtype)
        if wrong := features.compare(samples, str(path), samples_in):
            raise file_error(path, wrong)
        check_features(settings, f"client-{i + 1}", math.prod(cut_of(settings.data, samples.shape).piece))
        if len(samples.shape) == 1 and settings.data.window is None:
            seen[f"client-{i + 1}"] = facts(samples.data)
    return doubts(seen, f'set data.samples_in = "{"columns" if samples_in == "rows" else "rows"}"')


def check_features(settings: Settings, name: str, n_features: int) -> None:
    """Hold the settings to the number of features of one client's data.

    Raises
    ------
    SettingsError
        If they do not fit.
    """
    check_fit(settings.for_client(name), n_features, name)
    if isinstance(settings.n_global, int) and settings.n_global > n_features:
        raise SettingsError(f"n_global = {settings.n_global}: must be at most the {n_features} features")


def _is_simulation() -> bool:
    return bool(os.environ.get(SIMULATION))
