"""The methods of a fitted estimator: codes, shared and own parts, scores, save and load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from perdl.estimator.arrays import InputError, checked_rows
from perdl.estimator.frames import as_table, check_kind, collected, wanted_kind
from perdl.estimator.parameters import Parameters, not_fitted

if TYPE_CHECKING:
    from perdl.estimator.fitted import Fitted
    from perdl_client.model import ClientModel

Floats = NDArray[np.floating]


class Outcome(Parameters):
    """The methods of an estimator that need a fitted model.

    In all of them, a client is given by its name or by its index in ``client_names_``.
    """

    _fitted: Fitted
    n_features_in_: int

    def transform(self, X: Any, client: str | int) -> Any:
        """Return the codes of samples in a client's dictionary.

        Parameters
        ----------
        X : (n, d) array-like
            Samples.
        client : str or int
            Whose dictionary and preprocessing are used, by name or index.

        Returns
        -------
        (n, r_i) array or data frame
            Codes of the r^g global atoms first; zero for those that the client does not share. `set_output` chooses
            the kind of table.
        """
        X = collected(X)
        model, Y = self._model(X, client)
        codes = model.encode(Y).T
        kind = wanted_kind(getattr(self, "_sklearn_output_config", {}))
        return as_table(codes, kind, list(self.get_feature_names_out(client=client)), X)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` returns, as in scikit-learn.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            "default" is an array. The columns of a data frame are named by `get_feature_names_out`. None changes
            nothing.
        """
        if transform is not None:
            self._sklearn_output_config = {"transform": check_kind(transform)}
        return self

    def get_feature_names_out(self, input_features: Any = None, *, client: str | int | None = None) -> NDArray[Any]:
        """Return the names of the codes: ``global0``, ``global1``, ..., ``local0``, ``local1``, ...

        Parameters
        ----------
        input_features : object, optional
            Ignored.
        client : str or int, optional
            Whose codes are named; may be left out if all clients have the same number of atoms.
        """
        fitted = self._known()
        n_local = {name: D.shape[1] for name, D in fitted.local_dictionaries.items()}
        if client is None and len(set(n_local.values())) > 1:
            counts = ", ".join(f"{name} {n}" for name, n in n_local.items())
            raise InputError(f"clients have different numbers of local atoms ({counts}): give client=NAME")
        n = n_local[self._name(0 if client is None else client)]
        names = [f"global{j}" for j in range(fitted.global_dictionary.shape[1])] + [f"local{j}" for j in range(n)]
        return np.array(names, dtype=object)

    def inverse_transform(self, codes: Any, client: str | int) -> Floats:
        """Return the samples (n, d) that codes stand for.

        Parameters
        ----------
        codes : (n, r_i) array-like
            Codes in the client's dictionary.
        client : str or int
            Whose dictionary and preprocessing are used, by name or index.
        """
        name = self._name(client)
        model = self._known().model(name)
        D = model.dictionary
        rows = checked_rows(collected(codes), f"codes of {name}", D.shape[1])
        return model.decode(rows.T.astype(D.dtype, copy=False)).T

    def split(self, X: Any, client: str | int) -> tuple[Floats, Floats]:
        """Return the shared part and the own part of samples, each (n, d).

        Their sum is ``inverse_transform(transform(X))``. With ``center`` the client's mean belongs to its own part.

        Parameters
        ----------
        X : (n, d) array-like
            Samples.
        client : str or int
            Whose dictionary and preprocessing are used, by name or index.
        """
        model, Y = self._model(X, client)
        shared, own = model.split(Y)
        return shared.T, own.T

    def reconstruct(self, X: Any, client: str | int, k: int) -> Floats:
        """Return samples (n, d) reconstructed with few atoms, by orthogonal matching pursuit.

        Parameters
        ----------
        X : (n, d) array-like
            Samples.
        client : str or int
            Whose dictionary and preprocessing are used, by name or index.
        k : int
            Largest number of atoms per sample.
        """
        if not isinstance(k, (int, np.integer)) or k < 0:
            raise InputError(f"k = {k!r}: must be a whole number, 0 or more")
        model, Y = self._model(X, client)
        return model.reconstruct(Y, k).T

    def anomaly_score(self, X: Any, client: str | int) -> Floats:
        """Return the energy (n,) of each preprocessed sample without its shared part.

        Parameters
        ----------
        X : (n, d) array-like
            Samples.
        client : str or int
            Whose dictionary and preprocessing are used, by name or index.
        """
        model, Y = self._model(X, client)
        return model.unshared_energy(Y)

    def score(self, X: Any, client: str | int | None = None) -> float:
        """Return the share of the samples' energy that their codes explain: 1 - ||Y - DX||^2 / ||Y||^2.

        Parameters
        ----------
        X : (n, d) array-like, or dict or list of them
            One client's samples. Without ``client``, data sets by client: a dict, or a list in the order of
            ``client_names_``.
        client : str or int, optional
            Whose model is scored; left out if ``X`` holds several data sets.

        Returns
        -------
        float
            For several data sets, the mean over their clients. Each client counts the same.
        """
        if client is not None:
            model, Y = self._model(X, client)
            return model.explained(Y)
        names = list(self._known().local_dictionaries)
        if isinstance(X, Mapping) and X:
            return math.fsum(self.score(one, name) for name, one in X.items()) / len(X)
        if not isinstance(X, Sequence) or isinstance(X, str) or len(X) != len(names):
            what = f"{len(X)} data sets" if isinstance(X, (list, tuple, Mapping)) else f"a {type(X).__name__}"
            raise InputError(
                f"score was given {what} and no client: give score(X, client), or a data set for each of "
                f"{', '.join(names)}"
            )
        return math.fsum(self.score(one, i) for i, one in enumerate(X)) / len(X)

    def save(self, path: str | Path) -> None:
        """Write parameters and the fitted model to one ``.npz`` file, without pickling.

        The file holds every client's local atoms, but no samples and no codes.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        from common.files import plain
        from perdl.estimator.fitted import save_fitted

        fitted, features = self._known(), self._features()
        params = {name: str(v) if isinstance(v, Path) else v for name, v in self.get_params().items()}
        names = None if features is None else list(features)
        save_fitted(Path(path), {"params": plain(params), "features": names}, fitted)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote.

        Parameters
        ----------
        path : str or Path
            File to read.
        """
        from perdl.estimator.fitted import load_fitted

        head, fitted = load_fitted(Path(path))
        names = head["features"]
        return cls(**head["params"])._keep(fitted, None if names is None else np.array(names, dtype=object))

    def _keep(self, fitted: Fitted, features: NDArray[np.object_] | None) -> Self:
        self._fitted = fitted
        self.global_components_ = fitted.global_dictionary.T
        self.local_components_ = {name: D.T for name, D in fitted.local_dictionaries.items()}
        self.client_names_ = list(fitted.local_dictionaries)
        self.path_lengths_ = np.array(fitted.summary["path_lengths"])
        self.consensus_ = fitted.consensus
        self.usage_ = fitted.usage
        self.held_out_ = fitted.held_out
        every = np.ones(fitted.global_dictionary.shape[1], dtype=bool)
        self.membership_ = np.array([fitted.members.get(name, every) for name in self.client_names_])
        self.n_rounds_ = int(fitted.summary["rounds"])
        self.stop_reason_ = str(fitted.summary["stop_reason"])
        self.history_ = fitted.history
        self.summary_ = fitted.summary
        self.n_features_in_ = len(fitted.global_dictionary)
        if features is not None:
            self.feature_names_in_ = features
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def _known(self) -> Fitted:
        if not hasattr(self, "_fitted"):
            raise not_fitted("this PerDL is not fitted yet: call fit with your data sets first")
        return self._fitted

    def _features(self) -> NDArray[np.object_] | None:
        return getattr(self, "feature_names_in_", None)

    def _name(self, client: str | int) -> str:
        names = list(self._known().local_dictionaries)
        if isinstance(client, str) and client in names:
            return client
        if isinstance(client, (int, np.integer)) and 0 <= client < len(names):
            return names[client]
        raise InputError(f"there is no client {client!r}; give one of {', '.join(names)}, or 0 to {len(names) - 1}")

    def _model(self, X: Any, client: str | int) -> tuple[ClientModel, Floats]:
        """Return a client's model, and samples in columns."""
        name = self._name(client)
        model = self._known().model(name)
        masks = self._known().settings.data.missing == "mask"
        rows = checked_rows(collected(X), f"samples for {name}", self.n_features_in_, self._features(), masks)
        return model, rows.T.astype(model.global_dictionary.dtype, copy=False)
