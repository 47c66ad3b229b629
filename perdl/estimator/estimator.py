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
        r^g, the number of shared atoms.
    n_atoms : int, optional
        r_i, atoms in all; default as many as features.
    center, drop_constant, divide_by, scale, whiten
        What is done to each client's samples first; settings of the table ``data``. All methods undo it.
    clients : dict, optional
        By client's name: settings of learning that differ.
    output : path, optional
        Folder of the run's results, as of `perdl simulate`; what is there is replaced. Default a temporary one.
    preset : str or path, optional
        A preset such as "files" or "mnist-best", or a TOML file as `perdl check` suggests. What it sets is the value of
        all parameters that are not given. It is no preset for videos.
    random_state : int, optional
        Another name of ``seed``; give one of them.
    verbose : bool or int
        1 shows the first dictionaries and the rounds on standard output: a bar in a terminal, elsewhere a line every
        ten seconds; 2 shows every round.
    others
        As in docs/settings.md, with the same defaults.

    Attributes
    ----------
    global_components_ : (r^g, d) array
    local_components_ : dict of str to (r^l, d) array
        By client.
    client_names_ : list of str
        As they were given; data sets of a list are ``client-1``, ``client-2``, ...
    path_lengths_ : array
        How far the matched atoms lay apart before the first round; a jump tells where shared atoms end.
    consensus_ : (r^g,) array
        1 where all clients' versions of an atom agree.
    usage_ : dict of str to (r,) array
        Share of the energy of a client's data that each of its atoms carries, the global ones first.
    n_rounds_ : int
    stop_reason_ : str
    history_ : list of dict
        One row a round.
    summary_ : dict
        The run's ``summary.json``.
    n_features_in_ : int
    feature_names_in_ : array of str
        Where data frames were given.

    Notes
    -----
    Samples are in rows. ``client`` in the methods is a client's name, or its place among ``client_names_``.

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
        rounds: int = 50,
        tolerance: float = 1e-12,
        learner: str = "orthogonal",
        step_size: float = 0.5,
        coder: str = "hard-threshold",
        threshold: float = 0.15,
        threshold_unit: str = "data",
        n_nonzero: int = 5,
        start: str = "warm-up",
        warmup_steps: int = 20,
        warmup_threshold: float = 0.8,
        n_restarts: int = 10,
        local_restarts: int = 10,
        min_usage: float = 1e-4,
        min_samples: int = 2,
        refine_steps: int = 0,
        trim: float = 0.3,
        center: bool = False,
        drop_constant: bool = False,
        divide_by: str | None = None,
        scale: str = "none",
        whiten: bool = False,
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
        self.rounds = rounds
        self.tolerance = tolerance
        self.learner = learner
        self.step_size = step_size
        self.coder = coder
        self.threshold = threshold
        self.threshold_unit = threshold_unit
        self.n_nonzero = n_nonzero
        self.start = start
        self.warmup_steps = warmup_steps
        self.warmup_threshold = warmup_threshold
        self.n_restarts = n_restarts
        self.local_restarts = local_restarts
        self.min_usage = min_usage
        self.min_samples = min_samples
        self.refine_steps = refine_steps
        self.trim = trim
        self.center = center
        self.drop_constant = drop_constant
        self.divide_by = divide_by
        self.scale = scale
        self.whiten = whiten
        self.clients = clients
        self.dtype = dtype
        self.seed = seed
        self.output = output
        self.preset = preset
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters; they count from the next `fit`. What a ``preset`` sets comes first, then the others."""
        return super().set_params(**{**preset_values(params.get("preset"), list(self.get_params())), **params})

    def _usual(self) -> dict[str, Any]:
        """The defaults, and over them what the preset sets; nothing where its file has gone."""
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
            random stream and sorts it, so a list gives the numbers of `perdl simulate` over the same files.
        y
            Not used.
        callbacks : sequence of Callback
            Hear of the run while it goes on.
        **unknown
            Nothing: samples have no weights (``sample_weight``).

        Returns
        -------
        self

        Raises
        ------
        TypeError
            For ``sample_weight``.
        PerdlError
            One line that says what is wrong and the cure; a ValueError too where the arrays are.

        Warns
        -----
        UserWarning
            For each thing that makes the result doubtful.
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
        """Take more rounds from the present state; the first call is a `fit`.

        Parameters
        ----------
        datasets : list or dict
            Of the same clients; their data may be new. Clients that were not there before are aligned to the present
            D^g and take part from here on.
        y
            Not used.
        rounds : int, optional
            How many at most; default the parameter ``rounds``.
        callbacks : sequence of Callback
            Hear of these rounds.
        **unknown
            As in `fit`.

        Returns
        -------
        self
        """
        _refuse(unknown)
        return self._learn(datasets, getattr(self, "_fitted", None), rounds, callbacks)

    def add_client(self, X: Any, name: str | None = None) -> Self:
        """Learn the local atoms of one more client, with the shared atoms as they are.

        Parameters
        ----------
        X : (n, d) array-like
        name : str, optional
            Default ``client-N``, N being its place.

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

        rows = checked_rows(collected(X), name, self.n_features_in_, self._features())
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
                samples[name] = checked_rows(X, name, d, features)
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
        """The callbacks, and what ``verbose`` shows."""
        if not self.verbose:
            return callbacks
        from perdl.monitoring.callbacks import check_callbacks
        from perdl.monitoring.progress import narrator

        check_callbacks(callbacks)
        return [narrator(every_round=int(self.verbose) > 1), *callbacks]


def _refuse(unknown: dict[str, Any]) -> None:
    """Say what fit does not take."""
    if "sample_weight" in unknown:
        raise TypeError("PerDL has no sample_weight: all samples of a client count the same; leave it out")
    if unknown:
        raise TypeError(f"fit has no parameter {next(iter(unknown))!r}; what is learnt is set in PerDL(...)")
