"""Check the data of a simulation before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from common.errors import DataError, SettingsError
from common.settings import Settings
from common.words import listed
from perdl_client.data.memory import Memory
from perdl_client.data.mnist import load_mnist
from perdl_client.data.quality import data_warnings, sample_statistics
from perdl_client.data.sources import NO_ARRAYS, client_names, files_of_clients, frame_samples, read_file, video_frames
from perdl_client.data.windows_patches import cut_of
from perdl_client.formats.features import Features
from perdl_client.formats.file_checks import file_error
from perdl_client.learning.initialization import check_fit


def check_data(settings: Settings, memories: Sequence[Memory] = ()) -> list[str]:
    """Check all data of a simulation before it begins.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    memories : sequence of Memory
        One per client, to hold the samples that are read; empty if files are to be read again.

    Returns
    -------
    list of str
        Warnings of problems that may spoil the result.

    Raises
    ------
    DataError
        If a file cannot be used, or its features differ from the first file's in number or name.
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
    features, samples_in, statistics = Features(), settings.data.samples_in, {}
    notes: dict[str, list[str]] = {}  # clients by note
    for i, (name, path) in enumerate(zip(client_names(settings), files_of_clients(settings), strict=True)):
        samples = read_file(path, settings)
        for note in samples.notes:
            notes.setdefault(note, []).append(name)
        if wrong := features.compare(samples, str(path), samples_in):
            raise file_error(path, wrong)
        cut = cut_of(settings.data, samples.shape)
        check_dimensions(settings, name, math.prod(cut.piece))
        statistics[name] = sample_statistics(samples.data, samples.shape, samples.names)
        if memories and cut.stride <= cut.size:  # with gaps between windows, most of the samples would not be used
            memories[i].hold(replace(samples, data=samples.data.astype(settings.dtype, copy=False)))
    told = [f"{listed(names)}: {note}" for note, names in notes.items()]
    turn = f'set data.samples_in = "{"columns" if samples_in == "rows" else "rows"}"'
    return told + data_warnings(statistics, turn, settings.data)


def check_dimensions(settings: Settings, name: str, n_features: int) -> None:
    """Check that the numbers of atoms fit the number of features of one client's data.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    name : str
        The client's name.
    n_features : int
        Number of features of the client's data.

    Raises
    ------
    SettingsError
        If they do not fit.
    """
    check_fit(settings.for_client(name), n_features, name)
    if isinstance(settings.n_global, int) and settings.n_global > n_features:
        raise SettingsError(f"n_global = {settings.n_global}: must be at most the {n_features} features")
