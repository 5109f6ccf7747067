"""Other models with the interface of a StratifiedModel: any scikit-learn regressor or classifier, with strata as columns."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.ensemble import BaseEnsemble, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import BaseDecisionTree
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from strat.errors import OptionError, type_name
from strat.model.estimator import StratifiedModel
from strat.records.labels import are_numbers
from strat.records.records import Records
from strat.records.sample import computed, length
from strat.selection.predictions import LossOfPrediction, check_predictable, on_loss_scale, used_by_predict

#: Estimators that split on columns: for them one ordered column is better than one for each value.
TREES = (BaseDecisionTree, BaseEnsemble, HistGradientBoostingClassifier, HistGradientBoostingRegressor)
TREE_PACKAGES = ("catboost", "lightgbm", "xgboost")


class ScoredByPrediction(BaseEstimator):
    """A model with ``base`` and ``prediction(*data, strata)``; its losses are the declared loss at its predictions."""

    def losses(self, *data, strata=None):
        """Loss of each record, (N,)."""
        *data, strata = computed(*data, strata)
        records, u = self._read(data, strata, "losses"), self.prediction(*data, strata=strata)
        return LossOfPrediction(self.base, self._fit_values, records.arrays, type_name(self))(u)

    def score(self, *data, strata=None, sample_weight=None):
        """Minus the mean loss, weighted where weights are given: higher is better."""
        *data, strata, sample_weight = computed(*data, strata, sample_weight)
        weight = self._read(data, strata, "score", sample_weight).weight
        return -float(np.average(self.losses(*data, strata=strata)[weight > 0], weights=weight[weight > 0]))

    def predict(self, *data, strata=None):
        """Predictions (N,) on the scale of the declaration's ``predict``, from the data arguments used in it."""
        used = used_by_predict(self.base)
        for name in (p.name() for place, p in enumerate(self.base.data[:-1]) if place not in used):
            what = f"predicts on the scale of the loss, which depends on {name}; use prediction(*data)."
            raise OptionError(f"{type_name(self)} {what}")
        *data, strata = computed(*data, strata)
        return self.prediction(*data, np.ones(length(data[0] if data else strata)), strata=strata)

    def _read(self, data, strata, where, sample_weight=None):
        options = {"weight": sample_weight, "columns": None if where == "fit" else vars(self).get("columns_")}
        return Records.read(self.base.data, data, strata, where, self.strata, **options)


class OtherModel(ScoredByPrediction):
    """A scikit-learn estimator, cloned, whose features are the data of ``predict`` and the parts of the strata.

    Trees, their ensembles and boosting get each part as one column: numbers as they are, other values numbered in order,
    with new values between their neighbours. All other estimators get one column for each value of each part. `base` is
    the declaration whose loss measures the predictions.
    """

    def __init__(self, base, estimator, strata=None, values=None):
        self.base, self.estimator, self.strata, self.values = base, estimator, strata, values

    def fit(self, *data, strata=None, sample_weight=None):
        """Fit the estimator to the records of positive weight."""
        name = type_name(self.estimator)
        check_predictable(self.base, name)
        records = self._read(data, strata, "fit", sample_weight)
        y, parts = records.arrays[-1], _parts(records.strata.labels)
        self._fit_values = self.base._values_with(self.values or {})
        self.columns_, self.labels_, self.records_ = records.columns, None, len(y)
        self.center_ = float(np.average(y, weights=records.weight))
        if is_classifier(self.estimator):
            self.labels_ = np.unique(y)
            if len(self.labels_) != 2:
                what = f"must have two values, but it has {len(self.labels_)}. Use a regressor."
                raise OptionError(f"{name} is a classifier, for which {self.base.data[-1].name()} {what}")
        self.encoder_ = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(parts.astype(str))
        inner = [self.estimator, *self.estimator.get_params().values()]  # an inner one may split columns
        splits = any(isinstance(e, TREES) or type(e).__module__.split(".")[0] in TREE_PACKAGES for e in inner)
        orders = (None if are_numbers(column) else np.unique(column.astype(str)) for column in parts.T)
        self.order_ = list(orders) if splits else None
        weights = {} if sample_weight is None else {"sample_weight": records.weight}
        if weights and not has_fit_parameter(self.estimator, "sample_weight"):
            raise OptionError(f"{name} takes no sample_weight; leave the weights out.")
        self.estimator_ = clone(self.estimator).fit(self._features(records), y, **weights)
        return self

    def prediction(self, *data, strata=None):
        """Predictions (N,) on the scale of the loss, from all data arguments; the target among them is not used."""
        check_is_fitted(self, "estimator_")
        records = self._read(data, strata, "predict")
        X = self._features(records)
        probable = self.labels_ is None or hasattr(self.estimator_, "predict_proba")
        if probable and self.labels_ is not None:
            low, high = self.labels_
            mean = low + (high - low) * self.estimator_.predict_proba(X)[:, 1]
        else:
            mean = np.asarray(self.estimator_.predict(X), dtype=float).ravel()
        # Shrink as if there were one more record, with the training mean; a classifier's decisions are left as they are.
        shrunk = (self.records_ * mean + self.center_) / (self.records_ + 1) if probable else mean
        given = self.base, self._fit_values, records.arrays, mean, self.labels_
        return on_loss_scale(*given, shrunk, type_name(self.estimator))

    def _features(self, records):
        used = (records.arrays[place] for place in used_by_predict(self.base))
        blocks = [a if sp.issparse(a) else a.reshape(len(a), -1) for a in used]
        parts = _parts(records.strata.labels)
        if self.order_ is None:
            columns = self.encoder_.transform(parts.astype(str))
        else:
            columns = np.column_stack([*map(_numbered, parts.T, self.order_)])
        blocks.append(columns[records.strata.index])
        return sp.hstack(blocks, format="csr") if any(map(sp.issparse, blocks)) else np.hstack(blocks)


def _numbered(values, known):
    """Numbers as they are if `known` is None; else positions in the order of known texts, with new texts between two."""
    if known is None:
        return values.astype(float)
    place, texts = np.searchsorted(known, values.astype(str)), values.astype(str)
    return np.where(np.append(known, "")[place] == texts, place, place - 0.5)


def _parts(labels):
    """The parts of labels, (K, parts): those of tuples of one length, or the labels themselves."""
    split = all(type(label) is tuple and len(label) == len(labels[0]) for label in labels)
    table = np.empty((len(labels), len(labels[0]) if split else 1), dtype=object)
    table[:] = labels if split else [[label] for label in labels]
    return table


def checked_models(models):
    """The models by name, with scikit-learn's wrapped as `OtherModel`; an OptionError for anything else."""
    if not isinstance(models, dict) or not models:
        raise OptionError('models must be a dict {"name": model} with at least one model.')
    like = next((model for model in models.values() if hasattr(model, "base")), None)
    return {str(name): as_model(model, like, f"the model {name!r}") for name, model in models.items()}


def as_model(model, like, what="the other model"):
    """The model itself, or an estimator of scikit-learn as an `OtherModel`, measured by the loss of `like`."""
    if isinstance(model, (StratifiedModel, ScoredByPrediction)):
        return model
    estimator = hasattr(model, "fit") and not isinstance(model, type)
    if not (estimator and (is_regressor(model) or is_classifier(model))):
        kinds = "not a StratifiedModel, nor a regressor or classifier of scikit-learn."
        raise OptionError(f"{what} is {model if isinstance(model, type) else type_name(model)}, {kinds}")
    if like is None:
        raise OptionError("models needs a StratifiedModel, whose loss measures all, as strat.common(base).")
    return OtherModel(like.base, model, like.strata, dict(like._values))
