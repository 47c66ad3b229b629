"""Images dealt to clients who hold one digit above all, and images that none of them has."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings import Settings
from perdl.engines.in_process import simulation
from perdl_client.data.load import load_data
from perdl_client.data.mnist import label_partition, load_mnist
from perdl_client.identity import Identity

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Images:
    """Images dealt to clients, and images that none of them has.

    Attributes
    ----------
    name : str
    clients : list of (d, n_i) arrays
    held_out : (d, m) array
        On which presets were chosen.
    test : (d, n) array
        On which nothing was.
    labels : (n,) array
        Digits of ``test``.
    """

    name: str
    clients: list[Floats]
    held_out: Floats
    test: Floats
    labels: NDArray[np.integer]


def deal_mnist(settings: Settings) -> Images:
    """Return the clients' images as a simulation deals them, and the last test images."""
    with simulation():
        clients = [load_data(Identity.of({"partition-id": i}), settings).Y for i in range(settings.n_clients)]
    pixels, labels = load_mnist(settings.data.path, "test")
    n = settings.evaluation.n_test
    Y = (pixels.T / 255.0).astype(settings.dtype)
    return Images("MNIST", clients, Y[:, -2 * n : -n], Y[:, -n:], labels[-n:])


def deal_digits(settings: Settings) -> Images:
    """Deal the 1,797 images of 8 x 8 pixels that scikit-learn ships, as MNIST is dealt; the rest is held out.

    Raises
    ------
    SettingsError
        If scikit-learn is not there.
    """
    try:
        digits = import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise SettingsError("this experiment needs scikit-learn: pip install scikit-learn") from None
    Y, labels = (digits.data.T / 16.0).astype(settings.dtype), digits.target
    n = settings.n_clients
    share = [
        label_partition(labels, i, n, n_samples=100, majority=settings.data.majority, seed=settings.seed)
        for i in range(n)
    ]
    rest = np.setdiff1d(np.arange(len(labels)), np.concatenate(share))
    held_out, test = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    return Images("8x8 digits", [Y[:, mine] for mine in share], Y[:, held_out], Y[:, test], labels[test])
