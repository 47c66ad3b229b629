r"""What federation is worth: error on images that no client has, against one client alone and against pooled data.

.. math:: \lVert Y - D X\rVert_F / \lVert Y\rVert_F, \qquad X = \mathrm{OMP}(Y, D, k)

All three dictionaries come from the same learner, coder, number of atoms and number of steps. "Alone" continues the
very start that client 1 sent; "pooled" sees all clients' samples, which nobody may.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from common.coders import omp
from common.settings import Settings
from common.threads import one_blas_thread
from perdl.in_process import simulation
from perdl_client.data import Identity, load_data
from perdl_client.learners import LEARNERS
from perdl_client.local_update import relative_error
from perdl_client.mnist import load_mnist
from perdl_client.start import first_dictionary, rms

Floats = NDArray[np.floating]


def compare_on_test_images(global_dictionary: Floats, settings: Settings, n_steps: int) -> Mapping[str, float]:
    """Return the error of PerMA's D^g, of client 1 alone and of pooled data.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
    settings : Settings
        With ``data.source = "mnist"``.
    n_steps : int
        Rounds that PerMA took; the others take as many steps after the same start.

    Returns
    -------
    dict
        ``client-1 alone``, ``PerMA``, ``pooled data``: relative error with ``evaluation.n_nonzero`` atoms on the last
        ``evaluation.n_test`` test images.
    """
    with simulation(), one_blas_thread():
        clients = [Identity.of({"partition-id": i}) for i in range(settings.n_clients)]
        samples = [load_data(client, settings) for client in clients]
        dictionaries = {
            "client-1 alone": learn_alone(samples[0], settings, clients[0].name, n_steps),
            "PerMA": global_dictionary,
            "pooled data": learn_alone(np.hstack(samples), settings, "pooled", n_steps),
        }
        pixels, _ = load_mnist(settings.data.path, "test")
        Y = (pixels[-settings.evaluation.n_test :].T / 255.0).astype(settings.dtype)
        k = settings.evaluation.n_nonzero
        return {name: relative_error(Y, D, omp(Y, D, k)) for name, D in dictionaries.items()}


def learn_alone(Y: Floats, settings: Settings, name: str, n_steps: int) -> Floats:
    """Learn a dictionary without a federation: a client's start, then ``n_steps`` of its learner.

    Parameters
    ----------
    Y : (d, n) array
    settings : Settings
    name : str
        The client whose start is taken.
    n_steps : int

    Returns
    -------
    (d, r) array
    """
    learning = settings.for_client(name)
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    D = first_dictionary(Y, learning, settings.seed, name)
    for _ in range(n_steps):
        D = learner.step(Y, D, coder, learning.step_size).dictionary
    return D
