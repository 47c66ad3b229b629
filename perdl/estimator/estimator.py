"""`perdl.PerDL`: a federation over arrays, with scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError
from perdl.estimator.array_settings import in_python, preset_values, settings_of, speaking_python, with_preset
from perdl.estimator.arrays import InputError, by_name, checked_rows, feature_names
from perdl.estimator.frames import collected
from perdl.estimator.outcome import Outcome
from perdl.estimator.parameters import NotFittedError as NotFittedError

if TYPE_CHECKING:
    from perdl.estimator.fitted import Fitted
    from perdl.monitoring.callbacks import Callback

Floats = NDArray[np.floating]


class PerDL(Outcome):
    """Learn what many data sets share, and what each has alone.

    Parameters
    ----------
    n_global : int or "auto"
        Number of shared atoms r^g; "auto" takes the paths that are nearer than chance, or with ``sharing="some"`` the
        atoms that any two clients have alike.
    n_atoms : int, optional
        Atoms of a client in all, r_i; default as many as features.
    aggregation, matching : str
        How the server combines the clients' atoms, and how it matches them first.
    sharing : {"all", "some"}
        Whether every shared atom is shared by all clients, or by two or more of them, its members. "some" needs
        ``n_global="auto"``.
    rounds : int
        Largest number of rounds T.
    tolerance : float
        Stop when no atom of D^g moves more than this.
    learner : {"orthogonal", "gradient", "projected", "coordinate", "online"}
        The step by which a client improves its dictionary.
    step_size : float
        Step of the other learners than "orthogonal", in units of 1 / ||X X'||_2.
    coder : {"hard-threshold", "top-k", "omp", "ols", "omp-threshold"}
        How samples are written with atoms.
    threshold : float
        "hard-threshold" keeps codes of at least this size.
    threshold_unit : {"data", "rms"}
        Unit of thresholds: that of the data, or the root mean square of a client's data.
    n_nonzero : int
        Atoms that a sample may use with "top-k", "omp" and "ols".
    outliers : {"keep", "mask"}
        "mask" finds wild entries and wild samples, which then count as missing.
    start : {"auto", "warm-up", "l4", "svd", "random", "identity"}
        A client's first dictionary.
    warmup_steps : int
        Steps of the warm-up, each with a smaller threshold.
    warmup_threshold : float
        Threshold of the first step of the warm-up.
    n_restarts, local_restarts : int
        Random starts of a first dictionary, and of the local atoms of a client whose fit stalls.
    min_usage : float
        Atoms with a smaller share of the most used atom's energy are not sent.
    min_samples : int
        Samples that must use an atom before it is sent.
    refine_steps : int
        Steps on the local atoms alone before each update.
    local_steps : int
        Updates that a client does in each round before it answers.
    device : str
        Where `fit` computes: "cpu", or with perdl[gpu] "cuda", "cuda:1", "mps", "xpu"; "torch" is torch on the CPU.
    trim : float
        Share of clients that the aggregation "trimmed" leaves out for each atom.
    missing : {"refuse", "mask"}
        "mask" takes NaN for what was not measured; a client learns from the rest.
    center, drop_constant : bool
        Whether to subtract a client's mean, and to set its constant features to zero.
    divide_by : str, optional
        Constants by which features are divided first.
    site_scale : {"none", "agree"}
        "agree" divides features by their standard deviation within all clients, instead of ``divide_by``.
    scale : {"none", "client", "features"}
        How samples are scaled then.
    whiten : bool
        Whether to whiten each client's samples.
    held_out : float
        Share of each client's samples that it does not learn from. On them it measures whether federating helped.
    clients : dict, optional
        For each client's name, settings of learning that differ.
    dtype : {"float64", "float32"}
        Type of data and dictionaries.
    seed : int
        Seed of every random stream.
    output : path, optional
        Folder of the run's results, as for `perdl simulate`. Existing results are replaced. By default temporary.
    preset : str or path, optional
        A preset such as "files", or a TOML file, but not for videos. It sets the parameters that are not given.
    random_state : int, optional
        Another name of ``seed``; give only one of them.
    verbose : bool or int
        1 shows a progress bar in a terminal, elsewhere a line every ten seconds. 2 shows every round.

    Attributes
    ----------
    global_components_ : (r^g, d) array
        The shared atoms.
    local_components_ : dict of str to (r^l, d) array
        Each client's own atoms.
    client_names_ : list of str
        Names in the order given; data sets of a list are ``client-1``, ``client-2``, ...
    path_lengths_ : array
        Distances of matched atoms before the first round; short where atoms are shared.
    consensus_ : (r^g,) array
        1 where all clients' versions of an atom agree.
    usage_ : dict of str to (r,) array
        Share of the energy of a client's data that each of its atoms carries, global atoms first.
    held_out_ : dict of str to dict
        What each client found on its held-out samples: ``n_samples``, ``atoms`` (a sample), ``gain`` with its 95 %
        interval ``gain_low`` to ``gain_high``, ``verdict``, and ``errors`` by number of atoms. Clients that held out
        nothing are left out.
    membership_ : (N, r^g) array of bool
        Whether a client shares an atom, clients in the order of ``client_names_``; all True with ``sharing="all"``.
    n_rounds_, n_features_in_ : int
        Numbers of rounds done and of features d.
    stop_reason_ : str
        Why the run ended.
    history_ : list of dict
        One row per round.
    summary_ : dict
        Content of ``summary.json``.
    feature_names_in_ : (d,) array of str
        Names of the features, if data frames with names were given.

    Notes
    -----
    Samples are in rows. In the methods, ``client`` is a client's name or its index in ``client_names_``. ``center`` to
    ``whiten`` are preprocessing; methods that return samples undo it. docs/settings.md has more on all parameters.

    Examples
    --------
    >>> model = PerDL(n_global=2).fit({"ada": X_ada, "bob": X_bob})  # doctest: +SKIP
    >>> shared, own = model.split(X_ada, "ada")  # doctest: +SKIP
    """

    @with_preset
    def __init__(
        self,
        n_global: int | str = 3,
        n_atoms: int | None = None,
        *,
        aggregation: str = "mean",
        matching: str = "auto",
        sharing: str = "all",
        rounds: int = 50,
        tolerance: float = 1e-12,
        learner: str = "orthogonal",
        step_size: float = 0.5,
        coder: str = "hard-threshold",
        threshold: float = 0.15,
        threshold_unit: str = "data",
        n_nonzero: int = 5,
        outliers: str = "keep",
        start: str = "auto",
        warmup_steps: int = 20,
        warmup_threshold: float = 0.8,
        n_restarts: int = 10,
        local_restarts: int = 10,
        min_usage: float = 1e-4,
        min_samples: int = 5,
        refine_steps: int = 0,
        local_steps: int = 1,
        device: str = "cpu",
        trim: float = 0.3,
        missing: str = "refuse",
        center: bool = False,
        drop_constant: bool = False,
        divide_by: str | None = None,
        site_scale: str = "none",
        scale: str = "none",
        whiten: bool = False,
        held_out: float = 0.0,
        clients: Mapping[str, Mapping[str, Any]] | None = None,
        dtype: str = "float64",
        seed: int = 0,
        output: str | Path | None = None,
        preset: str | Path | None = None,
        random_state: int | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_global = n_global
        self.n_atoms = n_atoms
        self.aggregation = aggregation
        self.matching = matching
        self.sharing = sharing
        self.rounds = rounds
        self.tolerance = tolerance
        self.learner = learner
        self.step_size = step_size
        self.coder = coder
        self.threshold = threshold
        self.threshold_unit = threshold_unit
        self.n_nonzero = n_nonzero
        self.outliers = outliers
        self.start = start
        self.warmup_steps = warmup_steps
        self.warmup_threshold = warmup_threshold
        self.n_restarts = n_restarts
        self.local_restarts = local_restarts
        self.min_usage = min_usage
        self.min_samples = min_samples
        self.refine_steps = refine_steps
        self.local_steps = local_steps
        self.device = device
        self.trim = trim
        self.missing = missing
        self.center = center
        self.drop_constant = drop_constant
        self.divide_by = divide_by
        self.site_scale = site_scale
        self.scale = scale
        self.whiten = whiten
        self.held_out = held_out
        self.clients = clients
        self.dtype = dtype
        self.seed = seed
        self.output = output
        self.preset = preset
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters for the next `fit`. A ``preset`` is applied first, then the others.

        Parameters
        ----------
        **params
            New values by name.
        """
        return super().set_params(**{**preset_values(params.get("preset"), list(self.get_params())), **params})

    def _usual(self) -> dict[str, Any]:
        """The defaults, with the preset applied. If the preset's file is gone, no value counts as usual."""
        try:
            values = preset_values(self.preset, list(self._defaults()))
        except PerdlError:
            return dict.fromkeys(self._defaults(), object())
        return {**self._defaults(), **values}

    def fit(self, datasets: Any, y: Any = None, *, callbacks: Sequence[Callback] = (), **unknown: Any) -> Self:
        """Learn from a list or dict of data sets, one for each client.

        Parameters
        ----------
        datasets : list, or dict of str to (n_i, d) array
            Arrays, data frames or memory maps with the same features in the same order. A client's name seeds its
            random stream and orders the clients. A list gives the results of `perdl simulate` on the same files.
        y : object, optional
            Ignored.
        callbacks : sequence of Callback
            Called during the run.
        **unknown
            Not allowed: ``sample_weight`` and others raise a TypeError with a clear message.

        Returns
        -------
        self

        Raises
        ------
        PerdlError
            If a parameter or the data are wrong; errors in arrays are also a ValueError.

        Warns
        -----
        UserWarning
            For each reason to doubt the result.
        """
        _refuse(unknown)
        return self._learn(datasets, None, callbacks=callbacks)

    def partial_fit(
        self,
        datasets: Any,
        y: Any = None,
        *,
        rounds: int | None = None,
        callbacks: Sequence[Callback] = (),
        **unknown: Any,
    ) -> Self:
        """Take more rounds from the present state. The first call is the same as `fit`.

        With ``sharing="some"`` there is only the first call: members may have changed in the last round, and an
        estimator does not keep the atoms that nobody shares any more.

        Parameters
        ----------
        datasets : list or dict
            Data of the same clients; their samples may be new. New clients are aligned to the present D^g and take part
            from now on.
        y : object, optional
            Ignored.
        rounds : int, optional
            Largest number of additional rounds; default the parameter ``rounds``.
        callbacks : sequence of Callback
            Called during these rounds.
        **unknown
            Not allowed, as in `fit`.

        Returns
        -------
        self
        """
        _refuse(unknown)
        return self._learn(datasets, getattr(self, "_fitted", None), rounds, callbacks)

    def add_client(self, X: Any, name: str | None = None) -> Self:
        """Learn the local atoms of one more client. The shared atoms do not change.

        With ``sharing="some"`` the client becomes a member of the shared atoms that its data carry: those to which an
        atom that it learnt alone lies as near as noise allows, see ``perdl.perma.adapt``. The last row of
        ``membership_`` says which.

        Parameters
        ----------
        X : (n, d) array-like
            Samples of the client.
        name : str, optional
            Name of the client; default ``client-N`` for the N-th.

        Returns
        -------
        self
        """
        fitted = self._known()
        name = f"client-{len(fitted.local_dictionaries) + 1}" if name is None else name
        by_name({name: X})
        if name in fitted.local_dictionaries:
            raise InputError(f"there is a client {name} already; use partial_fit to learn more from it")
        from perdl_client.data.check import check_dimensions

        rows = checked_rows(collected(X), name, self.n_features_in_, self._features(), self.missing == "mask")
        with speaking_python():
            check_dimensions(fitted.settings, name, self.n_features_in_)
            return self._keep(fitted.joined_by(name, rows), self._features())

    def _learn(
        self, datasets: Any, former: Fitted | None, rounds: int | None = None, callbacks: Sequence[Callback] = ()
    ) -> Self:
        from perdl.engines.simulate import warn_of_doubts
        from perdl.estimator.fitted import federate
        from perdl_client.data.check import check_dimensions
        from perdl_client.data.quality import data_warnings, sample_statistics

        named = {name: collected(X) for name, X in by_name(datasets).items()}
        told = self.get_params() if rounds is None else {**self.get_params(), "rounds": rounds}
        with speaking_python():
            settings = settings_of(told, list(named), former)
            frames = [names for X in named.values() if (names := feature_names(X)) is not None]
            features = self._features() if former is not None else frames[0] if frames else None
            d = len(former.global_dictionary) if former is not None else None
            samples: dict[str, Floats] = {}
            for name, X in named.items():
                samples[name] = checked_rows(X, name, d, features, settings.data.missing == "mask")
                d = samples[name].shape[1]
                check_dimensions(settings, name, d)
            columns = () if features is None else tuple(map(str, features))
            seen = {name: sample_statistics(X.T, names=columns) for name, X in samples.items()}
            notes: list[str] = []
            told_of_data = data_warnings(seen, "give X.T", settings.data)
            heard = self._heard_by(callbacks)
            self._keep(federate(samples, settings, former, heard, notes.append, told_of_data), features)
        warn_of_doubts([in_python(text) for text in (*notes, *self.summary_["warnings"])], 3)
        return self

    def _heard_by(self, callbacks: Sequence[Callback]) -> Sequence[Callback]:
        """Return the callbacks, with a narrator if ``verbose``."""
        if not self.verbose:
            return callbacks
        from perdl.monitoring.callbacks import check_callbacks
        from perdl.monitoring.progress import narrator

        check_callbacks(callbacks)
        return [narrator(every_round=int(self.verbose) > 1), *callbacks]


def _refuse(unknown: dict[str, Any]) -> None:
    """Raise for arguments that `fit` does not accept."""
    if "sample_weight" in unknown:
        raise TypeError("PerDL has no sample_weight: all samples of a client count the same; leave it out")
    if unknown:
        raise TypeError(f"fit has no parameter {next(iter(unknown))!r}; what is learnt is set in PerDL(...)")
