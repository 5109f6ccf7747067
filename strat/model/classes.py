"""What scikit-learn asks of a classifier, from the losses of a record with each label."""

from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if

from strat.compiler.base_model import BaseModel
from strat.compiler.label_codes import label_codes
from strat.errors import StratError
from strat.records.sample import length
from strat.records.strata import Strata


class OfClasses:
    """The part of a StratifiedModel that is a classifier, where the last data argument of its loss is a label."""

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
        """The labels (C,) of a loss of two classes; the positions in rows with a single 1; an AttributeError for other losses."""
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

    def _losses_of_records(self, data, strata):
        given = length(data[0] if data else strata)
        return self._losses_by_label(lambda y: self.losses(*data, y, strata=strata), given)

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
            In the order of ``classes_``.
        """
        p = np.exp(-self._losses_of_records(data, strata))
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
            The log odds, where the model has ``predict_proba``.
        """
        return np.subtract(*self._losses_of_records(data, strata))
