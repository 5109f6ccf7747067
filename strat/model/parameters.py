"""Parameters in scikit-learn's way, with those inside the declaration and the graph."""

import copy

import numpy as np
from sklearn.base import BaseEstimator, clone

from strat.compiler.base_model import BaseModel
from strat.errors import GraphError, OptionError
from strat.graphs.reading import read_graph


def _checked(key, value, parameter):
    """A value that a hyperparameter can have, as it came."""
    try:
        array = np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=float)
    except (TypeError, ValueError):
        raise OptionError(f"{key} must be a number or an array of numbers, not {value!r}.") from None
    if value is not None and (array.shape != parameter.shape or not np.isfinite(array).all()):
        raise OptionError(
            f"{key} must be finite and of the Parameter's shape {parameter.shape}, but it is {value!r} "
            f"of shape {array.shape}."
        )
    return value


class NestedParameters(BaseEstimator):
    """An estimator with ``base`` and ``graph``, whose hyperparameters and factors' scales are parameters, too."""

    def get_params(self, deep=True):
        """Parameters of the model.

        Parameters
        ----------
        deep : bool
            Include those of the graph regularizer and solver, ``base__NAME`` for each hyperparameter and
            ``scale__NAME`` for each factor of the graph.

        Returns
        -------
        dict
            Values by name.
        """
        params = super().get_params(deep=deep)
        if deep:
            if isinstance(self.base, BaseModel):
                for name, p in self.base.hyperparameters.items():
                    params[f"base__{name}"] = self.values.get(name, p.value)
            params.update({f"scale__{f}": s for f, s in self._scales().items()})
        return params

    def set_params(self, **params):
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
        rest = {k: v for k, v in params.items() if not k.startswith(("base__", "scale__"))}
        super().set_params(**rest)
        for key, value in params.items():
            prefix, _, name = key.partition("__")
            if key in rest:
                continue
            known = self._scales() if prefix == "scale" else self.base.hyperparameters
            if name not in known:
                raise OptionError(f"{key}: there is no {name!r}; known are {', '.join(known) or 'none'}.")
            if prefix == "scale":
                self.scale = {**known, name: value}
            else:
                self._values = {**self.values, name: _checked(key, value, known[name])}
        return self

    def _scales(self):
        """Multiplier of each factor of the graph."""
        try:
            factors = [] if self.graph is None else [f for f in read_graph(self.graph).factors if f]
        except GraphError:  # it is fit that complains
            return {}
        if isinstance(self.scale, dict):
            return {f: self.scale.get(f, 1.0) for f in factors}
        return dict.fromkeys(factors, self.scale)

    def __sklearn_clone__(self):
        params = {name: clone(value, safe=False) for name, value in self.get_params(deep=False).items()}
        twin = type(self)(**params)
        if self.values:
            twin._values = dict(self.values)
        if hasattr(self, "_metadata_request"):
            twin._metadata_request = copy.deepcopy(self._metadata_request)
        return twin
