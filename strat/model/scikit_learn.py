"""What scikit-learn asks of an estimator: tags, classes, and parameters, including those of the declaration and the graph."""

import copy
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if

from strat.compiler.base_model import BaseModel
from strat.compiler.binder import dense
from strat.compiler.label_codes import label_codes
from strat.errors import GraphError, OptionError, StratError
from strat.graphs.prior_graph import read_graph
from strat.oracles.dask_engine import by_partition
from strat.records.sample import length
from strat.records.strata import Strata


class ScikitLearnModel(BaseEstimator):
    """The part of a StratifiedModel that scikit-learn sees, where hyperparameters and factors' scales are parameters, too.

    It is a classifier where the last data argument of its loss is a label, and otherwise a regressor.
    """

    _values = {}  # of hyperparameters, by name, as they were given to this model

    def get_params(self, deep: bool = True) -> dict:
        """Parameters of the model for its next fit; methods that use the last fit, such as ``score``, take ``values``.

        Parameters
        ----------
        deep : bool
            Include those of the graph regularizer and solver, ``base__NAME`` for each hyperparameter (its
            value from ``set_params``, or else the Parameter's current one) and
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
        if self.solver is None and any(key.startswith("solver__") for key in params):
            raise OptionError("solver is None; set it whole: set_params(solver=strat.NewtonCG(tol=1e-8)).")
        super().set_params(**{key: value for key, value in params.items() if key not in nested})
        for key, value in nested.items():
            prefix, _, name = key.partition("__")
            known = self._scales() if prefix == "scale" else self.base.hyperparameters
            if name not in known:
                raise OptionError(f"{key}: there is no {name!r}; known are {', '.join(known) or 'none'}.")
            if prefix == "scale":
                self.scale = {**known, name: value}
                continue
            try:
                array, shape = np.asarray(dense(value), dtype=float), known[name].shape
            except (TypeError, ValueError):
                raise OptionError(f"{key} must be a number or an array of numbers, not {value!r}.") from None
            if value is not None and (array.shape != shape or not np.isfinite(array).all()):
                what = f"{key} must be finite and of shape {shape}"
                raise OptionError(f"{what}, not {value!r} of shape {array.shape}.")
            self._values = {**self._values, name: value}
        return self

    def _set_features(self, X):
        """Record the columns of the first data argument, including those of strata, as scikit-learn's estimators do."""
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
        cloned._values = copy.deepcopy(self._values)
        return cloned

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.input_tags.sparse = True
        tags.input_tags.categorical = tags.input_tags.string = self.strata is not None
        if hasattr(self, "classes_"):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    @property
    def classes_(self) -> np.ndarray:
        """The labels (C,) of a two-class loss, or the positions in one-hot rows; an AttributeError for other losses."""
        base, kind = self.base, None
        if isinstance(base, BaseModel) and base.data:
            shapes = [np.zeros((1, *p.shape)) for p in base.data]
            with suppress(StratError):  # hyperparameters without values, which fit will name
                kind = label_codes(base.loss_program, self.values, shapes).get(len(base.data) - 1)
        if kind not in ("signs", (0, 1), "one-hot"):
            raise AttributeError("the model has no classes_: its loss is not one for labels of classes.")
        signs = np.array([-1, 1])
        return signs if kind == "signs" else np.arange(2 if kind == (0, 1) else base.data[-1].size)

    def _losses_by_label(self, loss, count):
        """loss(labels) of `count` records with each of the labels, (C, count)."""
        labels = np.eye(len(self.classes_)) if self.base.data[-1].shape else self.classes_
        return np.array([loss(np.full((count, *np.shape(y)), y, dtype=float)) for y in labels])

    def _by_label(self, *data, strata):
        lazy = by_partition(self, "_by_label", self.base.data[:-1], self.classes_.shape, data, strata)
        if lazy is not None:
            return lazy
        given = length(data[0] if data else strata)
        return self._losses_by_label(lambda y: self.losses(*data, y, strata=strata), given).T

    def _has_probabilities(self):
        """Whether the losses are −log p(y): the p of all labels add up to 1, at random records and parameters."""
        base, rng, own = self.base, np.random.default_rng(0), Strata(range(8), np.arange(8))
        data = [rng.uniform(0.2, 0.8, (8, *p.shape)) for p in base.data[:-1]]
        theta, evaluation = rng.normal(size=(8, base.layout.n)), base.loss_program.evaluation
        losses = self._losses_by_label(lambda y: evaluation([*data, y], own, self.values)(theta), 8)
        inside = np.isfinite(losses).all(axis=0)
        return inside.any() and np.allclose(np.exp(-losses[:, inside]).sum(axis=0), 1)

    @available_if(_has_probabilities)
    def predict_proba(self, *data: Any, strata: Any = None) -> np.ndarray:
        """Probabilities p(y) of the classes, where the loss is −log p(y), as the logistic one is.

        Parameters
        ----------
        *data : array-like
            As in ``fit``, without the label.
        strata : (N,) sequence
            Stratum of each record.

        Returns
        -------
        (N, C) ndarray
            Probabilities in the order of ``classes_``; a dask.array for Dask collections.
        """
        p = np.exp(-self._by_label(*data, strata=strata).T)
        return (p / p.sum(axis=0)).T

    @available_if(lambda self: len(self.classes_) == 2)
    def decision_function(self, *data: Any, strata: Any = None) -> np.ndarray:
        """Loss with the first of two labels, minus that with the second: above 0 where the second fits better.

        Parameters
        ----------
        *data, strata : array-like, sequence
            As in ``predict_proba``.

        Returns
        -------
        (N,) ndarray
            The differences; these are log odds where the model has ``predict_proba``.
        """
        return np.subtract(*self._by_label(*data, strata=strata).T)
