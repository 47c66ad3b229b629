"""Sources of samples: a client's own file, a simulation's files, video frames, MNIST, or synthetic data."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.blocks import Stream
from common.data_settings import DataSettings
from common.errors import DataError, SettingsError
from common.protocol import ProtocolError, check_name, natural_key
from common.settings import Dtype, Settings
from common.simulation import is_simulation
from common.synthetic import ClientTruth, generate
from perdl_client.data.mnist import label_partition, load_mnist
from perdl_client.data.room import fits, is_small
from perdl_client.data.samples import Samples
from perdl_client.data.video_layouts import LAYOUTS, crop
from perdl_client.data.windows_patches import cut_of
from perdl_client.formats.columns import Absent, leaving_out
from perdl_client.formats.features import Orientation
from perdl_client.formats.file_checks import is_data, nearest
from perdl_client.formats.read import Missing, load_samples, streams
from perdl_client.formats.video import frame_folder, read_frames
from perdl_client.identity import Identity

Floats = NDArray[np.floating]

NO_ARRAYS = 'data.source = "memory" is for arrays that perdl.PerDL is given; for files set data.source = "files"'
SAMPLES = "samples"
"""Key of a node's configuration: its samples (d, n), if the engine runs in the process that holds them."""


def truth(identity: Identity, settings: Settings) -> ClientTruth | None:
    """Return what generated the data, None if they are not synthetic.

    Parameters
    ----------
    identity : Identity
        Who the client is.
    settings : Settings
        The run's settings.
    """
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
        absence=s.absence,
    )


def read_client_file(
    path: str | Path,
    data: DataSettings,
    dtype: Dtype,
    clients: int = 1,
    *,
    samples_in: Orientation = "rows",
    variable: str | None = None,
    drop: str | None = None,
    missing: Missing = "refuse",
) -> Samples:
    """Read a client's samples, or open them to be read block by block, as ``data.in_memory`` says.

    Parameters
    ----------
    path : str or Path
        File or folder.
    data : DataSettings
        The table ``data`` of the settings: whether samples are to be in memory, and how they will be cut.
    dtype : {"float64", "float32"}
        Float type of the run.
    clients : int
        Clients that share this machine's memory.
    samples_in, variable, drop, missing : optional
        As for :func:`~perdl_client.formats.read.load_samples`.
    """
    read = partial(load_samples, path, samples_in=samples_in, variable=variable, drop=drop, dtype=dtype)
    stream = not data.in_memory
    if data.in_memory == "auto" and not is_small(Path(path), clients) and streams(path):
        samples = read(missing="count", stream=True)
        n, itemsize = samples.data.shape[1], np.dtype(dtype).itemsize
        cut = cut_of(data, samples.shape)
        prepared = math.prod(cut.piece) * cut.count(n) * itemsize
        stream = not fits(samples.data.size * samples.data.dtype.itemsize, prepared, clients)
        if stream and missing == "count":
            return samples
    return read(missing=missing, stream=stream)


def read_samples(identity: Identity, settings: Settings, held: Samples | None = None) -> Samples:
    """Return a client's samples as they are stored, in columns.

    Parameters
    ----------
    identity : Identity
        Who the client is.
    settings : Settings
        The run's settings.
    held : Samples, optional
        Samples that were read from the client's file before.

    Raises
    ------
    DataError
        If the client has no data, or they cannot be read.
    """
    data, own = settings.data, identity.node_config
    if SAMPLES in own:
        return _plain(own[SAMPLES])
    if "data" in own:
        if data.source == "synthetic":  # the other clients would take part with synthetic samples unnoticed
            raise DataError(
                f"{identity.name} was started with --data, but the run is of synthetic samples: start the server with "
                "the preset files, or -c data.source=files"
            )
        return _as_wanted(held, data) or read_client_file(
            str(own["data"]),
            data,
            settings.dtype,
            samples_in=own.get("samples-in", "rows"),
            variable=own.get("variable") or None,
            drop=own.get("drop") or None,
            missing=own.get("missing", "refuse"),
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
        return replace(_plain(frame_samples(settings, identity.partition)), in_time=True)  # neighbours in one frame
    return _as_wanted(held, data) or read_file(settings, files_of_clients(settings)[identity.partition], Absent())


def _as_wanted(held: Samples | None, data: DataSettings) -> Samples | None:
    """Return samples that are held, unless they are in memory or not against the settings."""
    is_wanted = held is not None and data.in_memory in ("auto", not isinstance(held.data, Stream))
    return held if is_wanted else None


def read_file(settings: Settings, path: Path, absent: Absent, *, count_nan: bool = False) -> Samples:
    """Return the samples of one file of a simulation.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    path : Path
        A file or folder.
    absent : dict
        Filled with the names in ``data.drop`` that the file lacks.
    count_nan : bool
        Keep NaN and infinite numbers, to count them.
    """
    data = settings.data

    def read(drop: str | None) -> Samples:
        return read_client_file(
            path,
            data,
            settings.dtype,
            1 if count_nan else settings.n_clients,
            samples_in=data.samples_in,
            variable=data.variable,
            drop=drop,
            missing="count" if count_nan and data.missing == "refuse" else data.missing,
        )

    return leaving_out(data.drop, read, absent)


def _plain(data: Floats) -> Samples:
    return Samples(data, (len(data),))


def video_frames(settings: Settings) -> NDArray[np.uint8]:
    """Return the frames of ``data.source = "video"``, (n, h, w, c), cropped to a multiple of the patch.

    Parameters
    ----------
    settings : Settings
        The run's settings.

    Raises
    ------
    DataError
        If ``data.path`` is missing or holds no usable frames.
    """
    data = settings.data
    if not data.path:
        raise DataError('data.path is not set: with data.source = "video" it names a folder of frames or a video file')
    frames = read_frames(frame_folder(data.path), data.every, data.n_frames)
    return crop(frames, data.video_patch, f"{data.path}: frames")


def frame_samples(settings: Settings, i: int) -> Floats:
    """Return one frame in the layout of the settings, intensities in [0, 1].

    Parameters
    ----------
    settings : Settings
        The run's settings.
    i : int
        Number of the frame, from 0.

    Returns
    -------
    (d, n) array
    """
    if settings.data.layout == "fixed-camera":
        raise SettingsError(
            'data.layout = "fixed-camera" is a federation for every place of the frame: run perdl experiment '
            'surveillance, or set data.layout = "thumbnails" or "blocks"'
        )
    frame = video_frames(settings)[i].astype(settings.dtype) / 255
    return LAYOUTS[settings.data.layout].to_samples(frame, settings.data.video_patch)


def client_files(settings: Settings) -> list[Path]:
    """Return one file or folder for each client of ``data.source = "files"``, in natural order.

    Parameters
    ----------
    settings : Settings
        The run's settings.

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
    """Return the names of simulated clients: those of their files or folders, such as ``ada`` for ``samples/ada.csv``.

    Parameters
    ----------
    files : sequence of Path
        One for each client.

    Returns
    -------
    list of str
        A bare number becomes ``client-7``. If names repeat or are not valid, the names of the files' folders are
        used; if those fail too, ``client-1``, ``client-2``, ...
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
        The run's settings.
    """
    if settings.data.source == "files":
        return names_of(files_of_clients(settings))
    return [f"client-{i + 1}" for i in range(settings.n_clients)]


def _can_be_a_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except ProtocolError:
        return False


def files_of_clients(settings: Settings) -> list[Path]:
    """Return :func:`client_files` after checking that there is one for each client.

    Parameters
    ----------
    settings : Settings
        The run's settings.

    Raises
    ------
    DataError
        If there are more or fewer.
    """
    files, n = client_files(settings), settings.n_clients
    if len(files) != n:
        raise DataError(f"data.path = {settings.data.path!r} has {len(files)} files, n_clients is {n}: set them equal")
    return files
