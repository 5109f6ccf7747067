"""Parameters in scikit-learn's way, with those inside the declaration and the graph."""

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from strat.compiler.base_model import BaseModel
from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import read_graph


class NestedParameters(BaseEstimator):
    """An estimator with ``base`` and ``graph``, whose hyperparameters and factors' scales are parameters, too."""

    _values = {}  # of hyperparameters, by name, as they were given to this model

    def get_params(self, deep: bool = True) -> dict:
        """Parameters of the model, for its next fit; what follows a fit, such as ``score``, goes by ``values``.

        Parameters
        ----------
        deep : bool
            Include those of the graph regularizer and solver, ``base__NAME`` for each hyperparameter (its
            value by ``set_params``, or else the Parameter's present one) and
            ``scale__NAME`` for each factor of the graph.

        Returns
        -------
        dict
            Values by name.
        """
        params = super().get_params(deep=deep)
        if deep and isinstance(self.base, BaseModel):
            hyperparameters = self.base.hyperparameters.items()
            params |= {f"base__{name}": self._values.get(name, p.value) for name, p in hyperparameters}
        return params | ({f"scale__{f}": s for f, s in self._scales().items()} if deep else {})

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``base__NAME`` gives this model its own value and leaves the Parameter alone.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        StratifiedModel
            Itself.

        Raises
        ------
        OptionError
            For a hyperparameter or factor that does not exist.
        """
        nested = {key: value for key, value in params.items() if key.startswith(("base__", "scale__"))}
        super().set_params(**{key: value for key, value in params.items() if key not in nested})
        for key, value in nested.items():
            prefix, _, name = key.partition("__")
            known = self._scales() if prefix == "scale" else self.base.hyperparameters
            if name not in known:
                raise OptionError(f"{key}: there is no {name!r}; known are {', '.join(known) or 'none'}.")
            if prefix == "scale":
                self.scale = {**known, name: value}
            else:
                _check_value(key, value, known[name].shape)
                self._values = {**self._values, name: value}
        return self

    def _set_features(self, X):
        """Note the columns of the first data argument, those of strata too, as scikit-learn's estimators do."""
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) == 2:
            self.n_features_in_ = shape[1]
            if hasattr(X, "columns") and all(isinstance(column, str) for column in X.columns):
                self.feature_names_in_ = np.array(X.columns, dtype=object)

    def _scales(self):
        """Multiplier of each factor of the graph."""
        try:
            factors = [] if self.graph is None else [f for f in read_graph(self.graph).factors if f]
        except GraphError:  # which fit will raise
            return {}
        scale = self.scale
        return {f: scale.get(f, 1.0) if isinstance(scale, dict) else scale for f in factors}

    def __sklearn_clone__(self):
        cloned = super().__sklearn_clone__()
        if self._values:
            cloned._values = copy.deepcopy(self._values)
        return cloned


def _check_value(key, value, shape):
    """Raise an OptionError unless a hyperparameter can have this value."""
    try:
        array = np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=float)
    except (TypeError, ValueError):
        raise OptionError(f"{key} must be a number or an array of numbers, not {value!r}.") from None
    if value is not None and (array.shape != shape or not np.isfinite(array).all()):
        raise OptionError(
            f"{key} must be finite and of shape {shape}, but is {value!r} of shape {array.shape}."
        )
