r"""The client's computations between receiving D^g and sending its version of the global atoms.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithms 3 (``local_update``) and 6 (``local_dictionary_refinement``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.arrays import host, namespace
from common.blocks import Columns, blocks, in_memory, whole
from common.coders import SELECTING, Coder
from common.learners import Learner, Product, product
from perdl_client.learning.alignment import new_shared, retract
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.guard import SHARE
from perdl_client.learning.guard_blocks import movable, weighted_sums
from perdl_client.learning.guarded_step import guarded_step, known
from perdl_client.learning.measures import relative_error
from perdl_client.learning.missing import complete, gaps, zero_filled
from perdl_client.learning.sweep import Swept, sweep

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
plain_product = product


@dataclass(frozen=True)
class LocalUpdate:
    """Result of one client's local update.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        D^{g,(t+1)}_i, with order and signs of the received D^{g,(t)}.
    local_dictionary : (d, r_l) array
        D^{l,(t+1)}_i.
    energies : (r_g,) array
        w_ij, the energy of each global atom's code row.
    local_energies : (r_l,) array
        The same of the local atoms.
    procrustes_contribution : (d, r_g) array
        D^g_i P^gg_i, where Y X' = D P is the polar decomposition over all atoms. ``procrustes`` sends it.
    error : float
        ||Y - D X||_F / ||Y||_F before the step. It is told, so with the guard D is without the global atoms that may
        not move: how one sample fits an atom of the server's choice would show in it.
    noise : float
        Variance of the noise on an entry: ||Y - D X||_F^2 over the observed entries less the codes, before the step;
        D as for the error.
    objective : float
        ||Y - D X||_F^2 + penalty ||X||_0 before the step; the first term is 0 if it is below rounding.
    nonzeros : float
        Mean number of nonzero codes per sample; D as for the error.
    reassigned : int
        Number of atoms for which assignment and arg min differ, because another atom took their nearest neighbour.
    """

    global_dictionary: Floats
    local_dictionary: Floats
    energies: Floats
    local_energies: Floats
    procrustes_contribution: Floats
    error: float
    noise: float
    objective: float
    nonzeros: float
    reassigned: int

    def contribution(self, aggregation: str) -> Floats:
        """Return what the client sends of its global atoms, (d, r_g).

        Parameters
        ----------
        aggregation : str
            Name of the aggregation.
        """
        return (
            self.procrustes_contribution
            if AGGREGATIONS[aggregation].contribution == "procrustes"
            else self.global_dictionary
        )


def local_update(
    Y: Columns,
    global_dictionary: Floats,
    local_dictionary: Floats,
    learner: Learner,
    coder: Coder,
    step_size: float = 0.5,
    product: Product = product,
    min_samples: int | None = None,
    device: Device = CPU,
) -> LocalUpdate:
    r"""Do one step of the client's learner, then find the global atoms again (algorithm 3).

    .. math:: D_i^{(t+1)} = \mathcal A_i(Y_i, [D^{g,(t)}\ D^{l,(t)}_i]), \qquad
              \min_{k: [r^g] \to [r_i] \text{ injective}} \sum_j d_2(D^{g,(t)}_{(j)}, (D_i^{(t+1)})_{(k_j)})^2

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    global_dictionary : (d, r_g) array
        D^g as received.
    local_dictionary : (d, r_l) array
        The client's own atoms; see :func:`.alignment.retract`.
    learner : Learner
        Whose step is done.
    coder : Coder
        Computes the codes.
    step_size : float
        Step size of the learner.
    product : callable
        Computes ``A X'``. If it is not the plain product, energies are taken from it too.
    min_samples : int, optional
        If given, only atoms that pass the guard move, see ``perdl_client.learning.guard``. The others are D^g's own
        columns in the result, and their energies and their columns of the Procrustes contribution are zero.
    device : Device
        Where sums and decompositions are computed; elsewhere than with numpy samples are complete, and the coder is one
        of :data:`common.coders.SELECTING`. Where samples must count less for the guard, it is numpy all the same.

    Returns
    -------
    LocalUpdate

    Notes
    -----
    The paper takes the nearest atom for each global atom, so two could take the same one. The assignment gives the
    same answer whenever the nearest atoms differ from each other, in particular inside the region of theorem 2.
    """
    r_g = global_dictionary.shape[1]
    D = np.hstack([global_dictionary, local_dictionary])
    missing, B = gaps(device.samples(Y)), whole(Y, D.shape[1])
    if learner.of_sums and product is plain_product and missing is None and (type(coder) in SELECTING or B is None):
        swept = sweep(Y, D, coder, second_moment=learner.products > 1, device=device)
        if min_samples is None or swept.passes(min_samples, SHARE):
            stepped = device.run(learner.of_sums, D, swept.moment, swept.second_moment, step_size)
            return _of_sums(global_dictionary, stepped, swept, coder, Y.shape[1], guarded=min_samples is not None)
        if B is None:
            return _guarded_by_blocks(Y, global_dictionary, D, swept, learner, coder, step_size, min_samples)
    Y = in_memory(Y)
    F = complete(Y, D, coder)
    if min_samples is None:
        step, seen = learner.take(F, D, coder, step_size, product), None
        X, moves = step.codes, None
    else:
        step, seen, X = guarded_step(learner, F, D, coder, step_size, min_samples)
        moves = seen.moves
    if X is None:
        X = coder(F, D)
    moment = step.moment
    if moment is None:
        moment = product(F, X) if seen is None else seen.product(seen.rest, seen.codes)
    new = new_shared(global_dictionary, step.dictionary, moment, moves)
    kept, rest, sent = new.kept, new.rest, new.sent
    own = step.dictionary[:, rest]
    if moves is not None and not moves[rest].all():  # own atoms stay here, and may learn from few samples
        own = learner.take(F, D, known(X) if learner.codes_once else coder, step_size).dictionary[:, rest]
    energies = (X * X).sum(axis=1)
    if product is not plain_product:  # the stretch of an atom is its energy, if codes are those of an orthonormal D
        energies = np.maximum((step.dictionary * moment).sum(axis=0), 0)
    error, nonzeros = relative_error(Y, D, X), np.count_nonzero(X)
    misfit = error**2 if error**2 > np.finfo(Y.dtype).eps else 0.0
    energy = np.linalg.norm(zero_filled(Y)) ** 2
    objective = float(misfit * energy + coder.penalty * nonzeros)
    if not sent.all():
        told = D[:, np.concatenate([sent, np.ones(D.shape[1] - r_g, dtype=bool)])]
        X = coder(F, told)
        error, nonzeros = relative_error(Y, told, X), np.count_nonzero(X)
    n_observed = Y.size - (0 if missing is None else np.count_nonzero(missing))
    return LocalUpdate(
        global_dictionary=new.atoms,
        local_dictionary=own,
        energies=np.where(sent, energies[kept], energies.dtype.type(0)),
        local_energies=energies[rest],
        procrustes_contribution=new.procrustes,
        error=error,
        noise=float(error**2 * energy / max(n_observed - nonzeros, Y.shape[1], 1)),
        objective=objective,
        nonzeros=float(nonzeros) / max(Y.shape[1], 1),
        reassigned=new.reassigned,
    )


def _of_sums(D_g: Floats, D: Floats, swept: Swept, coder: Coder, n: int, *, guarded: bool) -> LocalUpdate:
    """Return the update with dictionary ``D``, all of whose atoms may move."""
    new = new_shared(D_g, D, swept.moment, swept.users > 0 if guarded else None)  # an idle atom goes back as it came
    nonzeros = int(swept.users.sum())
    return LocalUpdate(
        global_dictionary=new.atoms,
        local_dictionary=D[:, new.rest],
        energies=swept.energies[new.kept],
        local_energies=swept.energies[new.rest],
        procrustes_contribution=new.procrustes,
        error=float(_relative(swept) ** 0.5),
        noise=float(swept.misfit / max(n * len(D) - nonzeros, n, 1)),
        objective=_objective(swept, coder),
        nonzeros=float(nonzeros) / max(n, 1),
        reassigned=new.reassigned,
    )


def _guarded_by_blocks(
    Y: Columns,
    D_g: Floats,
    D: Floats,
    swept: Swept,
    learner: Learner,
    coder: Coder,
    step_size: float,
    min_samples: int,
) -> LocalUpdate:
    """Return the update if some atoms may not move, or some samples count less, from sums over blocks."""
    assert learner.of_sums is not None
    seen = movable(Y, D, coder, min_samples)
    moment, second = swept.moment, swept.second_moment
    if not (seen.moves.all() and (seen.weights == 1).all()):
        moment, second = weighted_sums(Y, D, coder, seen)
    stepped = learner.of_sums(D, moment, second, step_size)
    new = new_shared(D_g, stepped, moment, seen.moves)
    own = stepped[:, new.rest]
    if not seen.moves[new.rest].all():  # own atoms stay here, and may learn from few samples
        own = learner.of_sums(D, swept.moment, swept.second_moment, step_size)[:, new.rest]
    told = swept
    if not new.sent.all():
        seen_of = np.concatenate([new.sent, np.ones(D.shape[1] - D_g.shape[1], dtype=bool)])
        told = sweep(Y, D[:, seen_of], coder)
    n, nonzeros, energies = Y.shape[1], int(told.users.sum()), swept.energies
    return LocalUpdate(
        global_dictionary=new.atoms,
        local_dictionary=own,
        energies=np.where(new.sent, energies[new.kept], energies.dtype.type(0)),
        local_energies=energies[new.rest],
        procrustes_contribution=new.procrustes,
        error=float(_relative(told) ** 0.5),
        noise=float(told.misfit / max(Y.size - nonzeros, n, 1)),
        objective=_objective(swept, coder),
        nonzeros=float(nonzeros) / max(n, 1),
        reassigned=new.reassigned,
    )


def _relative(swept: Swept) -> float:
    return swept.misfit / swept.energy if swept.energy > 0 else 0.0


def _objective(swept: Swept, coder: Coder) -> float:
    misfit = swept.misfit if _relative(swept) > np.finfo(swept.moment.dtype).eps else 0.0
    return float(misfit + coder.penalty * int(swept.users.sum()))


def refine_local_dictionary(
    Y: Columns,
    global_dictionary: Floats,
    local_dictionary: Floats,
    learner: Learner,
    coder: Coder,
    n_steps: int,
    step_size: float = 0.5,
    product: Product = product,
    device: Device = CPU,
) -> Floats:
    r"""Improve the local dictionary alone, on the residual of the global one (algorithm 6).

    .. math:: Y^l = Y - D^g X^g, \qquad D^l \leftarrow \mathcal A_i(Y^l, D^l) \text{ repeated}

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    global_dictionary : (d, r_g) array
        D^g, which is not changed.
    local_dictionary : (d, r_l) array
        The local block to improve.
    learner : Learner
        Whose step is repeated.
    coder : Coder
        Computes the codes.
    n_steps : int
        T^refine, the number of steps.
    step_size : float
        Step size of the learner.
    product : callable
        Computes ``A X'`` for the learner.
    device : Device
        As in :func:`local_update`.

    Returns
    -------
    (d, r_l) array
    """
    r_g = global_dictionary.shape[1]
    if n_steps == 0 or local_dictionary.shape[1] == 0:
        return local_dictionary
    D_l, D = local_dictionary, np.hstack([global_dictionary, local_dictionary])
    by_sums = not device.is_host or (gaps(Y) is None and whole(Y, D.shape[1]) is None)
    if learner.of_sums and product is plain_product and by_sums:
        for _ in range(n_steps):
            D_l = device.run(learner.of_sums, D_l, *residual_sums(Y, D, D_l, coder, device), step_size)
        return device.run(retract, global_dictionary, D_l) if learner.orthonormal else D_l
    F = complete(in_memory(Y), D, coder)
    residual = F - global_dictionary @ coder(F, D)[:r_g]
    D = D_l
    for _ in range(n_steps):
        D = learner.take(residual, D, coder, step_size, product).dictionary
    return retract(global_dictionary, D) if learner.orthonormal else D


def residual_sums(
    Y: Columns, D: Floats, local_dictionary: Floats, coder: Coder, device: Device = CPU
) -> tuple[Floats, Floats]:
    """Return R X' and X X' for the residual R of the global atoms and its codes X in a local dictionary.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    D : (d, r) array
        All atoms, the global ones first, by which R is found.
    local_dictionary : (d, r_l) array
        Dictionary of the residual.
    coder : Coder
        Computes the codes.
    device : Device
        As in :func:`local_update`.

    Returns
    -------
    (d, r_l) array, (r_l, r_l) array
    """
    (d, r_l), r_g = local_dictionary.shape, D.shape[1] - local_dictionary.shape[1]
    D, D_l = device.put(D), device.put(local_dictionary)
    xp = namespace(D)
    moment, second = (xp.zeros((rows, r_l), dtype=D.dtype, device=D.device) for rows in (d, r_l))
    for B in map(device.put, blocks(device.samples(Y), D.shape[1])):
        rest = B - D[:, :r_g] @ coder(B, D)[:r_g]
        X = coder(rest, D_l)
        moment += rest @ X.T
        second += X @ X.T
    return host(moment), host(second)
