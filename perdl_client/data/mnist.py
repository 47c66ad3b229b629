"""MNIST, and its division among clients, each with mostly one digit.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023, details of
the section on imbalanced data.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.rng import stream
from perdl_client.formats.idx import read_idx

_PREFIX = {"train": "train", "test": "t10k"}
_N_DIGITS = 10


def load_mnist(root: str | Path | None, split: Literal["train", "test"]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one half of MNIST, downloading it if needed.

    Parameters
    ----------
    root : str, Path or None
        Folder with the IDX files, gzipped or not, directly or under ``MNIST/raw``. If they are missing, torchvision
        downloads them there. None means ``~/.cache/perdl``.
    split : {"train", "test"}
        The half with 60,000 or with 10,000 images.

    Returns
    -------
    images : (n, 784) array, uint8, read-only
        One image a row, in bytes: an eighth of the memory of float64.
    labels : (n,) array, uint8, read-only
        Both are read once per process and shared.

    Raises
    ------
    DataError
        If a file is damaged, or is missing and cannot be downloaded.
    """
    if split not in _PREFIX:
        raise SettingsError(f'split is {split!r}; it must be "train" or "test"')
    folder = Path.home() / ".cache" / "perdl" if root is None else Path(root)
    files = _find(folder, split)
    if files is None:
        _download(folder, split)
        files = _find(folder, split)
    if files is None:
        raise DataError(f"{folder}: torchvision left no MNIST {split} files in MNIST/raw; put the IDX files there")
    return _read(*files)


def label_partition(
    labels: NDArray[np.integer],
    client: int,
    n_clients: int,
    *,
    n_samples: int = 500,
    majority: float = 0.9,
    seed: int,
) -> NDArray[np.intp]:
    """Choose the images of one client: mostly one digit, the rest from the others.

    Parameters
    ----------
    labels : (n,) array of int
        Digits 0 to 9 of all images.
    client : int
        Its number, from 0. Its main digit is ``(client + 1) % 10``.
    n_clients : int
        Number of clients. From 11 on, several share a digit, but never an image.
    n_samples : int
        Number of images of the client.
    majority : float
        Share of the client's main digit, 0 to 1.
    seed : int
        The run's seed.

    Returns
    -------
    (n_samples,) array of int
        Sorted indices into ``labels``.

    Raises
    ------
    DataError
        If there are too few images for all clients.

    Notes
    -----
    One shuffle of all images serves every client. First all main digits are dealt, then the other images, client by
    client. Each client repeats this alone, so all agree without a message and share no image.
    """
    if not 0 <= client < n_clients:
        raise SettingsError(f"client is {client}; with n_clients = {n_clients} it must be 0 to {n_clients - 1}")
    if n_samples < 1 or not 0.0 <= majority <= 1.0:
        raise SettingsError(f"n_samples = {n_samples} must be 1 or more, majority = {majority} from 0 to 1")
    n_major = round(n_samples * majority)
    order = stream(seed, "", "label_partition").permutation(len(labels))
    digits = np.asarray(labels)[order]
    own, rest = _deal_majorities(digits, n_clients, n_major)
    for turn in range(client + 1):
        others = rest[digits[rest] != _digit(turn)][: n_samples - n_major]
        rest = np.setdiff1d(rest, others, assume_unique=True)
        if len(others) < n_samples - n_major:
            raise DataError(
                f"client {turn} needs {n_samples - n_major} images of digits other than {_digit(turn)}, but of "
                f"{len(labels)} images the others leave {len(others)}; lower n_samples or n_clients = {n_clients}"
            )
    return np.sort(order[np.concatenate([own[client], others])])


def _digit(client: int) -> int:
    return (client + 1) % _N_DIGITS


def _deal_majorities(digits: NDArray[Any], n_clients: int, n_major: int) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    """Return positions in ``digits`` of every client's main digit, and, ascending, those that are left."""
    free = np.ones(len(digits), dtype=bool)
    own = []
    for client in range(n_clients):
        digit = _digit(client)
        mine = np.flatnonzero(free & (digits == digit))[:n_major]
        if len(mine) < n_major:
            n_sharing = len(range(client % _N_DIGITS, n_clients, _N_DIGITS))
            raise DataError(
                f"digit {digit} has {np.count_nonzero(digits == digit)} images, but {n_sharing} of the {n_clients} "
                f"clients need {n_major} of it each; lower n_samples, majority or n_clients"
            )
        free[mine] = False
        own.append(mine)
    return own, np.flatnonzero(free)


def _find(folder: Path, split: str) -> tuple[Path, Path] | None:
    """Return the paths of images and labels if both exist."""
    for place in (folder, folder / "MNIST" / "raw"):
        images = _first_file(place, f"{_PREFIX[split]}-images", "idx3-ubyte")
        labels = _first_file(place, f"{_PREFIX[split]}-labels", "idx1-ubyte")
        if images and labels:
            return images, labels
    return None


def _first_file(place: Path, stem: str, suffix: str) -> Path | None:
    paths = (place / f"{stem}{mark}{suffix}{end}" for mark in "-." for end in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


@lru_cache(maxsize=2)
def _read(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    pixels, digits = read_idx(images), read_idx(labels)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[1:] != (28, 28):
        raise DataError(f"{images}: is {pixels.dtype} of shape {pixels.shape}, not uint8 images of 28 x 28: not MNIST")
    if digits.dtype != np.uint8 or digits.shape != pixels.shape[:1] or (digits >= _N_DIGITS).any():
        raise DataError(
            f"{labels}: is {digits.dtype} of shape {digits.shape}, not a digit for each of the {len(pixels)} images of "
            f"{images.name}: use files of one download"
        )
    return pixels.reshape(len(pixels), 28 * 28), digits


def _download(folder: Path, split: str) -> None:
    files = "put the four IDX files of MNIST there"
    try:
        datasets = import_module("torchvision.datasets")
    except ImportError as error:
        cure = f"pip install torchvision to download them, or {files}"
        raise DataError(f"{folder}: holds no MNIST {split} files; {cure}") from error
    try:
        datasets.MNIST(str(folder), train=split == "train", download=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: MNIST cannot be downloaded ({reason}); check the network, or {files}") from error
