"""Check the data of a simulation before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from common.blocks import Stream, in_memory
from common.errors import DataError, SettingsError
from common.settings import Settings
from common.statistics import largest_feature_share, mean_share
from common.words import listed
from perdl_client.data.load import prepare, require_sums
from perdl_client.data.memory import Memory
from perdl_client.data.mnist import load_mnist
from perdl_client.data.preprocessing import agreed_constants
from perdl_client.data.quality import data_warnings, sample_statistics
from perdl_client.data.samples import Samples, looked_at
from perdl_client.data.sources import NO_ARRAYS, client_names, files_of_clients, frame_samples, read_file, video_frames
from perdl_client.data.windows_patches import cut_of
from perdl_client.formats.columns import Absent, drop_option, require_some_have
from perdl_client.formats.features import Features
from perdl_client.formats.file_checks import file_error
from perdl_client.learning.initialization import check_fit


def check_data(
    settings: Settings, memories: Sequence[Memory] = (), known: dict[str, dict[str, float]] | None = None
) -> list[str]:
    """Check all data of a simulation before it begins.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    memories : sequence of Memory
        One per client, to hold the samples that are read; empty if files are to be read again.
    known : dict, optional
        By client: filled with the facts of its samples that it will tell the server.

    Returns
    -------
    list of str
        Warnings of problems that may spoil the result.

    Raises
    ------
    DataError
        If a file cannot be used, its features differ from the first file's in number or name, or no file has a column
        that is to be left out.
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
    features, samples_in, statistics, absent = Features(), settings.data.samples_in, {}, Absent()
    notes: dict[str, list[str]] = {}  # clients by note
    differs: DataError | None = None
    for i, (name, path) in enumerate(zip(client_names(settings), files_of_clients(settings), strict=True)):
        samples = read_file(settings, path, absent)
        some = looked_at(samples, settings.data.window is not None)
        for note in some.notes:
            notes.setdefault(note, []).append(name)
        if wrong := features.compare(samples, str(path), samples_in):
            differs = differs or file_error(path, wrong)
            if not absent:  # else a misspelt name of a column to leave out may be why
                raise differs
        cut = cut_of(settings.data, samples.shape)
        if not wrong:
            check_dimensions(settings, name, math.prod(cut.piece), cut.channels)
        statistics[name] = sample_statistics(in_memory(some.data), samples.shape, samples.names)
        is_stream = isinstance(samples.data, Stream)
        if is_stream:
            require_sums(settings, settings.for_client(name), name)
        elif known is not None and differs is None and settings.data.site_scale == "none":
            with suppress(DataError):  # the client itself says what is wrong
                known[name] = _facts_told(samples, settings, name)
        # With gaps between windows, most of the samples would not be used.
        if memories and (is_stream or cut.stride <= cut.size):
            memories[i].hold(replace(samples, data=samples.data.astype(settings.dtype, copy=False)))
    require_some_have(absent, len(statistics))
    if differs is not None:
        raise differs
    told = [f"{listed(names)}: {note}" for note, names in notes.items()]
    turn = f'set data.samples_in = "{"columns" if samples_in == "rows" else "rows"}"'
    drop = partial(drop_option, "-c data.drop=", settings.data.drop)
    return told + data_warnings(statistics, turn, settings.data, drop)


def _facts_told(samples: Samples, settings: Settings, name: str) -> dict[str, float]:
    """Return what a client tells of its samples, as it learns from them, with its first dictionary."""
    data = prepare(samples, settings, settings.for_client(name), name)
    Z, cut = data.Y, data.cut
    return {
        "n_features": len(Z),
        "n_samples": Z.shape[1],
        "n_atoms": settings.for_client(name).n_atoms or len(Z),
        "mean_share": mean_share(Z),
        "largest_feature_share": largest_feature_share(Z, cut.channels if cut.kind == "window" else 0),
    }


def check_dimensions(settings: Settings, name: str, n_features: int, channels: int = 0) -> None:
    """Check that the settings fit the number of features of one client's data.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    name : str
        The client's name.
    n_features : int
        Number of features of the client's data.
    channels : int
        Of windows and images, whose features repeat them; 0 if there are none.

    Raises
    ------
    SettingsError
        If they do not fit.
    """
    check_fit(settings.for_client(name), n_features, name)
    if isinstance(settings.n_global, int) and settings.n_global > n_features:
        raise SettingsError(f"n_global = {settings.n_global}: must be at most the {n_features} features")
    if settings.data.divide_by is not None:
        agreed_constants(settings.data, n_features, channels or n_features, name)
