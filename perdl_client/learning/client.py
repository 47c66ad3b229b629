"""The client's half of algorithm 1, without messages: start, split, T updates, finish."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, whole
from common.coders import Coder
from common.learners import LEARNERS, product
from common.learning_settings import LearningSettings
from common.rng import stream
from common.statistics import rms
from perdl_client.learning.alignment import align, retract
from perdl_client.learning.device import CPU, Device, why_on_host
from perdl_client.learning.evidence import evidence
from perdl_client.learning.guard import passed
from perdl_client.learning.guard_blocks import movable
from perdl_client.learning.initialization import first_dictionary
from perdl_client.learning.local_update import LocalUpdate, local_update, refine_local_dictionary
from perdl_client.learning.measures import Measures, measured
from perdl_client.learning.missing import complete, gaps, observed_features
from perdl_client.learning.outliers import mark
from perdl_client.learning.private import PrivateProduct, clipped, private_learning
from perdl_client.learning.restart import NOTHING_SEEN, Watch, restart_local_dictionary
from perdl_client.learning.subset import few

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Start:
    """What a client offers for matching.

    Parameters
    ----------
    used : (m,) int array
        Which atoms of D_i^(0) its samples use.
    atoms : (d, m) array
        The used atoms.
    usage : (m,) array
        Energy of each used atom.
    measures : Measures
        What all atoms do for the samples.
    guarded : bool
        Whether atoms were held to the guard.
    """

    used: Ints
    atoms: Floats
    usage: Floats
    measures: Measures
    guarded: bool

    @property
    def takes_part(self) -> bool:
        """Whether the client uses an atom, even if its guard lets none of them pass. One sample is too few."""
        return len(self.used) > 0 or (self.guarded and self.measures.n_samples > 1 and bool(self.measures.users.any()))


class ClientLearner:
    r"""One client of the federation, without messages.

    Together with the other clients it minimises

    .. math:: \sum_i \lVert Y_i - [D^g\ D^l_i] X_i\rVert_F^2, \qquad X_i \text{ sparse.}

    Parameters
    ----------
    Y : (d, n) array or Stream
        The client's samples, in columns. NaN marks what was not measured.
    learning : LearningSettings
        How the client learns.
    seed : int
        The run's seed.
    name : str
        Stable client id. With ``seed`` it selects the client's random streams.
    min_samples : int, optional
        Samples that must use an atom before it is offered; default ``learning.min_samples``.
    dictionary : (d, r) array, optional
        Dictionary to continue from: D_i^(0) before the split, D^l_i after it. Default: `start` learns D_i^(0).
    watch : Watch, optional
        State of the stall detection to continue from.
    members : (r_g,) bool array, optional
        The global atoms that the client shares, to continue from. Default: all.
    guarded : bool
        Whether only atoms that pass the guard move, so that what is sent shows no single sample, see
        :mod:`perdl_client.learning.guard`. The own atoms of later rounds are not held to it.
    private : PrivateProduct, optional
        Makes all that is learnt differentially private. Thresholds in units of the data's root mean square are then in
        units of the clip's, and all atoms are offered, as equals: which are in use is known of the samples alone.
    size : float, optional
        Root mean square of the samples, if it is known.
    device : Device
        Where it computes what costs time.

    Attributes
    ----------
    dictionary : (d, r) array
        D_i^(0) until `split`, D^l_i from then on.
    watch : Watch
        State of the stall detection.
    members : (r_g,) bool array, optional
        The global atoms that the client shares; None if all clients share all.
    not_on_device : str
        What keeps it from computing on the device; it computes with numpy then. Empty if nothing does.

    Notes
    -----
    Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
    algorithm 1, the lines of client i; algorithms 3 and 6.
    """

    def __init__(
        self,
        Y: Columns,
        learning: LearningSettings,
        seed: int,
        name: str,
        *,
        min_samples: int | None = None,
        dictionary: Floats | None = None,
        watch: Watch = NOTHING_SEEN,
        members: Bools | None = None,
        guarded: bool = False,
        private: PrivateProduct | None = None,
        size: float | None = None,
        device: Device = CPU,
    ) -> None:
        self.learning = learning if private is None else private_learning(learning)
        self.Y = Y if private is None or isinstance(Y, Stream) else clipped(Y, private.clip)
        self.seed, self.name = seed, name
        self.min_samples = learning.min_samples if min_samples is None else min_samples
        self.guard = self.min_samples if guarded else None
        if private is not None:
            size = private.clip / len(Y) ** 0.5
        self.size = rms(Y) if size is None else size
        self.product = product if private is None else private
        self.learner, self.coder = LEARNERS[self.learning.learner], learning.make_coder(self.size)
        self._dictionary, self.watch, self.members = dictionary, watch, members
        self.not_on_device = "" if device.is_host else why_on_host(self.learning, private is not None)
        if not device.is_host and not self.not_on_device and gaps(device.samples(Y)) is not None:
            self.not_on_device = "missing values"
        self.device = CPU if self.not_on_device else device

    @property
    def dictionary(self) -> Floats:
        """D_i^(0) until `split`, D^l_i from then on."""
        if self._dictionary is None:
            D = first_dictionary(
                self._few(),
                self.learning,
                self.seed,
                self.name,
                size=self.size,
                product=self.product,
                min_samples=self.guard,
                device=self.device,
            )
            # A feature that the client never measured is zero in its atoms: its sign and size there are arbitrary, and
            # would keep them from being matched.
            self._dictionary = np.where(observed_features(self.Y)[:, None], D, D.dtype.type(0))
        return self._dictionary

    def start(self) -> Start:
        """Learn D_i^(0), unless it is given, and find which of its atoms are used.

        Returns
        -------
        Start
        """
        D, found = self.dictionary, self._measured()
        if isinstance(self.product, PrivateProduct):
            r = D.shape[1]
            return Start(np.arange(r), D, np.ones(r, self.Y.dtype), found, guarded=False)
        used = found.used(self.learning.min_usage, self.min_samples if self.guard is None else 1)
        if self.guard is not None:
            used = used[_movable(self.trusted(D), D, self.coder, self.guard)[used]]
        return Start(used, D[:, used], found.energies[used], found, guarded=self.guard is not None)

    def _measured(self) -> Measures:
        return measured(self.trusted(self.dictionary), self.dictionary, self.coder)

    def _few(self) -> Floats:
        """Return the samples that random starts are learnt from. Of noisy sums all are taken."""
        if isinstance(self.product, PrivateProduct) and not isinstance(self.Y, Stream):
            return self.Y
        return few(self.Y, self.learning.n_atoms or len(self.Y), self._drawing())

    def _drawing(self) -> np.random.Generator:
        return stream(self.seed, self.name, "samples of starts")

    def split(self, indices: Ints, sharing: str = "all") -> None:
        """Remove the atoms that are global. The rest is D^l_i.

        Parameters
        ----------
        indices : (r_g,) int array
            Columns of ``dictionary``; negative where the client has no such atom.
        sharing : {"all", "some"}
            Whether the client takes part in all global atoms, or in those that it has. With ``all`` it gives up the
            atoms that it uses least for those that it lacks.
        """
        has = indices >= 0
        gone = indices[has]
        if sharing == "some":
            self.members = has
        elif not has.all():
            energies = self._measured().energies
            energies[gone] = np.inf
            gone = np.concatenate([gone, np.argsort(energies, kind="stable")[: np.count_nonzero(~has)]])
        self._dictionary = np.delete(self.dictionary, gone, axis=1)

    def share(self, members: Bools, global_dictionary: Floats) -> None:
        """Change which global atoms the client shares, as the server says.

        An atom that it leaves becomes an own atom. An atom that it joins takes the place of the nearest own atom.

        Parameters
        ----------
        members : (r_g,) bool array
            The atoms that it shares from now on.
        global_dictionary : (d, r_g) array
            D^g as received.
        """
        before = members if self.members is None else self.members
        joined, left, D_l = members & ~before, before & ~members, self.dictionary
        if joined.any():
            found = align(global_dictionary[:, joined], D_l)[0]
            D_l = np.delete(D_l, found, axis=1)
        if left.any():
            D_l = np.hstack([D_l, global_dictionary[:, left]])
        self._dictionary, self.members = D_l, members
        if not np.array_equal(before, members):
            self.watch = NOTHING_SEEN

    def keep(self, atoms: Ints) -> None:
        """Forget all but some of the global atoms; the client must share none of the others.

        Parameters
        ----------
        atoms : (k,) int array
            The atoms of D^g that are left.
        """
        if self.members is not None:
            self.members = self.members[atoms]

    def evidence(self, new: LocalUpdate, global_dictionary: Floats) -> tuple[Floats, Floats]:
        """Return what the client tells of its membership after an update, see :func:`.evidence.evidence`.

        Parameters
        ----------
        new : LocalUpdate
            Result of the update.
        global_dictionary : (d, r_g) array
            D^g as received.

        Returns
        -------
        spread, nearest : (r_g,) array
        """
        members = np.ones(global_dictionary.shape[1], dtype=bool) if self.members is None else self.members
        return evidence(new, members, global_dictionary)

    def shared(self, global_dictionary: Floats) -> Floats:
        """Return the global atoms that the client shares, (d, m): all of them if all clients share all.

        Parameters
        ----------
        global_dictionary : (d, r_g) array
            D^g as received.
        """
        return global_dictionary if self.members is None else global_dictionary[:, self.members]

    def update(self, global_dictionary: Floats, t: int) -> LocalUpdate:
        """Do the client's part of round ``t``: refine, restart the local block if it is stuck, ``local_steps`` updates.

        Parameters
        ----------
        global_dictionary : (d, r_g) array
            D^g as received.
        t : int
            Round, from 1.

        Returns
        -------
        LocalUpdate
            Only its contribution (`LocalUpdate.contribution`) and, for ``energy``, its energies are sent.
        """
        D_g, D_l, learning = self.shared(global_dictionary), self.finish(global_dictionary), self.learning
        Y = self.trusted(np.hstack([D_g, D_l]))
        with_step, device = (learning.step_size, self.product), self.device
        D_l = refine_local_dictionary(Y, D_g, D_l, self.learner, self.coder, learning.refine_steps, *with_step, device)
        if learning.local_restarts and self.watch.stalled(t):
            some = few(Y, D_l.shape[1], self._drawing())
            rng = stream(self.seed, self.name, f"restart {t}")
            other = restart_local_dictionary(some, D_g, D_l, learning, rng, device)
            if other is None:
                self.watch = replace(self.watch, next_try=t + self.watch.wait, wait=2 * self.watch.wait)
            else:
                D_l, self.watch = other, NOTHING_SEEN
        new = local_update(Y, D_g, D_l, self.learner, self.coder, *with_step, self.guard, device)
        for _ in range(learning.local_steps - 1):
            D_g, D_l = new.global_dictionary, new.local_dictionary
            D_l = device.run(retract, D_g, D_l) if self.learner.orthonormal else D_l
            new = local_update(Y, D_g, D_l, self.learner, self.coder, *with_step, self.guard, device)
        self._dictionary = new.local_dictionary
        self.watch = replace(self.watch, objective=new.objective, previous=self.watch.objective)
        return new

    def trusted(self, dictionary: Floats) -> Columns:
        """Return the samples, with NaN in entries that are wild by a dictionary, if the client masks outliers.

        Parameters
        ----------
        dictionary : (d, r) array
            All atoms of the client.

        Returns
        -------
        (d, n) array or Stream
        """
        Y = self.Y
        return mark(Y, dictionary, self.coder) if self.learning.outliers == "mask" and not isinstance(Y, Stream) else Y

    def take_rounds(self, global_dictionary: Floats, rounds: int, tolerance: float) -> LocalUpdate | None:
        """Take rounds alone, with a D^g that does not change, until the own atoms are at rest.

        Parameters
        ----------
        global_dictionary : (d, r_g) array
            D^g.
        rounds : int
            Most rounds.
        tolerance : float
            Stop when no own atom moves more than this.

        Returns
        -------
        LocalUpdate, or None
            The last update; None without rounds.
        """
        update = None
        for t in range(1, rounds + 1):
            before = self.finish(global_dictionary)
            update = self.update(global_dictionary, t)
            if np.linalg.norm(self.dictionary - before, axis=0).max(initial=0.0) <= tolerance:
                break
        return update

    def finish(self, global_dictionary: Floats) -> Floats:
        """Return the local block for a D^g. If the learner is orthonormal, it is moved off D^g.

        Parameters
        ----------
        global_dictionary : (d, r_g) array
            D^g as received.

        Returns
        -------
        (d, r_l) array
        """
        D_g = self.shared(global_dictionary)
        return self.device.run(retract, D_g, self.dictionary) if self.learner.orthonormal else self.dictionary


def _movable(Y: Columns, D: Floats, coder: Coder, min_samples: int) -> Bools:
    """Return the atoms that pass the guard."""
    if not isinstance(Y, Stream) and gaps(Y) is not None:
        Y = complete(Y, D, coder)
        return passed(Y, D, coder(Y, D), min_samples).moves
    if (B := whole(Y, D.shape[1])) is not None:
        return passed(B, D, coder(B, D), min_samples).moves
    return movable(Y, D, coder, min_samples).moves
