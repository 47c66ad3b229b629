r"""The benefit of federation: error on unseen images, compared with one client alone and with pooled data.

.. math:: \lVert Y - D X\rVert_F / \lVert Y\rVert_F, \qquad X = \mathrm{OMP}(Y, D, k)

All three dictionaries come from the same learner, coder, number of atoms and number of steps. "Alone" continues from
client 1's start in the federation. "Pooled" learns from all clients' samples, which nobody may have in practice.
``perdl experiment mnist`` compares more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.coders import omp
from common.settings import Settings
from common.threads import one_blas_thread
from perdl.experiments.federation import Client, first_dictionaries, independent, pooled
from perdl.experiments.images import deal_mnist
from perdl.results.run_result import read_run
from perdl_client.learning.measures import relative_error

Floats = NDArray[np.floating]


def add_comparison(summary: dict[str, Any], settings: Settings) -> None:
    """Add ``evaluation`` to the summary of a run on MNIST. Summaries of other runs stay as they are.

    Parameters
    ----------
    summary : dict
        Content of ``summary.json``.
    settings : Settings
        Settings of the run.
    """
    if settings.data.source != "mnist":
        return
    if settings.data.prepares:
        summary["warnings"].append("no comparison on test images: the samples were preprocessed, these are not")
        return
    D = read_run(settings.output).global_dictionary
    summary["evaluation"] = dict(compare_on_test_images(D, settings, summary["rounds"]))


def compare_on_test_images(global_dictionary: Floats, settings: Settings, n_steps: int) -> Mapping[str, float]:
    """Return the error of PerMA's D^g, of client 1 alone and of pooled data.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        PerMA's D^g.
    settings : Settings
        Settings of the run, with ``data.source = "mnist"``.
    n_steps : int
        Rounds that PerMA took; the others take as many steps.

    Returns
    -------
    dict
        ``client-1 alone``, ``PerMA``, ``pooled data``: relative error with ``evaluation.n_nonzero`` atoms on the last
        ``evaluation.n_test`` test images.
    """
    with one_blas_thread():
        images = deal_mnist(settings)
        names = [f"client-{i + 1}" for i in range(len(images.clients))]
        clients = [Client(name, Y, settings.for_client(name)) for name, Y in zip(names, images.clients, strict=True)]
        alone = clients[:1]
        dictionaries = {
            "client-1 alone": independent(alone, first_dictionaries(alone, settings.seed), n_steps)[0],
            "PerMA": global_dictionary,
            "pooled data": pooled(clients, settings.model_copy(update={"rounds": n_steps})),
        }
        Y, k = images.test, settings.evaluation.n_nonzero
        return {name: relative_error(Y, D, omp(Y, D, k)) for name, D in dictionaries.items()}
