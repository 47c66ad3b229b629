"""Images dealt to clients, each with mostly one digit, and images that no client has."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from common.blocks import in_memory
from common.errors import SettingsError
from common.settings import Settings
from perdl.engines.in_process import simulation
from perdl_client.data.load import load_data
from perdl_client.data.mnist import label_partition, load_mnist
from perdl_client.identity import Identity

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Images:
    """Images dealt to clients, and images that no client has.

    Parameters
    ----------
    name : str
        Name of the data set.
    clients : list of (d, n_i) arrays
        Images of each client, in columns.
    held_out : (d, m) array
        Images on which presets were chosen.
    test : (d, n) array
        Images on which nothing was chosen.
    labels : (n,) array
        Digits of ``test``.
    """

    name: str
    clients: list[Floats]
    held_out: Floats
    test: Floats
    labels: NDArray[np.integer]


def deal_mnist(settings: Settings) -> Images:
    """Return the clients' images as a simulation deals them, and the last test images.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    with simulation():
        identities = [Identity.of({"partition-id": i}) for i in range(settings.n_clients)]
        clients = [in_memory(load_data(one, settings).Y) for one in identities]
    pixels, labels = load_mnist(settings.data.path, "test")
    n = settings.evaluation.n_test
    Y = (pixels.T / 255.0).astype(settings.dtype)
    return Images("MNIST", clients, Y[:, -2 * n : -n], Y[:, -n:], labels[-n:])


def deal_digits(settings: Settings) -> Images:
    """Deal scikit-learn's 1,797 images of 8 x 8 pixels, as MNIST is dealt. The rest is for ``held_out`` and ``test``.

    Parameters
    ----------
    settings : Settings
        Settings of the run.

    Raises
    ------
    SettingsError
        If scikit-learn is not installed.
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
