"""Blends of a stratified model with models that borrow strength across strata in other ways."""

import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from strat.errors import OptionError, type_name
from strat.model.estimator import StratifiedModel
from strat.model.fit import fit_within
from strat.records.sample import Sample
from strat.records.strata import in_order
from strat.selection.candidates import with_strata
from strat.selection.other_model import ScoredByPrediction, as_model
from strat.selection.predictions import LossOfPrediction, check_predictable, prediction_of


def blend(
    model: Any,
    *others: Any,
    weights: str = "average",
    folds: Any = 5,
    guard: bool = True,
    random_state: int = 0,
) -> "Blend":
    """Blend a stratified model with other models: a weighted sum of their predictions on the scale of the loss.

    Margins and log rates are added, not probabilities and rates. At fit, every model is fitted to the training records of
    every fold and predicts the held-out ones. On these the weights of a stack are chosen; and where the blend's loss on them
    is not lower than the best single model's, only that model is kept. Then all models are fitted to all records.

    Parameters
    ----------
    model : StratifiedModel
        A model declared with ``predict``, the number that its loss is a function of.
    *others : estimators
        Regressors or classifiers of scikit-learn, as `strat.compare` takes them, or stratified models of the same data.
    weights : {"average", "stack"}
        Equal weights, or the nonnegative weights with the lowest loss on held-out records.
    folds : int, splitter or iterable of pairs
        As in `strat.search`.
    guard : bool
        Whether the best single model is kept where the blend does not gain.
    random_state : int
        Seed of the folds.

    Returns
    -------
    Blend
        The blend, not yet fitted: ``fit(*data, strata=z)``, then ``predict``, ``losses``, ``score``; `strat.compare` takes it.
        ``weights_`` has one weight per model, ``losses_`` the cross-validated losses by name, ``models_`` the fitted models.

    Raises
    ------
    OptionError
        If an argument is not valid, or the loss is not a function of one prediction.

    References
    ----------
    Breiman, "Stacked regressions", Machine Learning 24, 1996.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> theta, x, y = cp.Variable(name="theta"), cp.Parameter(name="x"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta * x), data=(x, y), predict=theta * x)
    >>> rng = np.random.default_rng(0)
    >>> z, X = rng.integers(0, 4, 200), rng.normal(size=200)
    >>> Y = z * X + np.abs(X) + rng.normal(size=200)
    >>> model = strat.lrsm(base, strat.graphs.path(4))
    >>> both = strat.blend(model, DecisionTreeRegressor(max_depth=4)).fit(X, Y, strata=z)
    >>> both.weights_
    array([0.5, 0.5])
    """
    if not isinstance(model, StratifiedModel):
        raise OptionError(f"blend needs a StratifiedModel first, not {type_name(model)}.")
    if not others:
        raise OptionError("blend needs another model to blend with, such as HistGradientBoostingRegressor().")
    if weights not in ("average", "stack"):
        raise OptionError(f'weights is {weights!r}; it is "average" or "stack".')
    check_predictable(model.base, "blend")
    return Blend((model, *(as_model(other, model) for other in others)), weights, folds, guard, random_state)


class Blend(ScoredByPrediction):
    """A weighted sum of predictions of models; made by ``strat.blend``, where its parameters are described."""

    def __init__(self, models, weights="average", folds=5, guard=True, random_state=0):
        self.models, self.weights, self.folds = models, weights, folds
        self.guard, self.random_state = guard, random_state

    #: These are those of the first model, whose loss measures all.
    base = property(lambda self: self.models[0].base)
    strata = property(lambda self: self.models[0].strata)
    _values = property(lambda self: self.models[0]._values)
    _fit_values = property(lambda self: self.models_[0].values)

    def fit(self, *data, strata=None, sample_weight=None):
        """Choose the weights by held-out records, and fit every model to all."""
        sample, held = Sample(list(self.models), (*data, strata), "fit", sample_weight), []
        records = self._read(sample.data, sample.strata, "fit", sample.weight)
        self.columns_ = records.columns
        models = [with_strata(model, in_order(list(sample.labels.values))) for model in self.models]

        def fitted(part):
            return [fit_within(clone(model), part.data, part.strata, part.weight) for model in models]

        with warnings.catch_warnings(action="ignore"):  # the fits to all records warn instead
            for inside, outside in sample.splits(self.folds, self.random_state):
                test, arrays = sample.part(outside), [a[outside] for a in records.arrays]
                predicted = np.stack([prediction_of(m, test) for m in fitted(sample.part(inside))], axis=1)
                losses = LossOfPrediction(self.base, self._values, arrays, "blend")
                held.append((losses, predicted, records.weight[outside]))
        units = np.eye(len(self.models))
        w = units.mean(axis=0)
        ways, alone = [w] * len(held), [_mean_loss(held, [unit] * len(held)) for unit in units]
        if self.weights == "stack":
            # Each fold is measured with weights chosen on the other folds, so that the guard's comparison is fair.
            ways = [_stacked(held[:k] + held[k + 1 :] or held) for k in range(len(held))]
            w = _stacked(held)
        both = _mean_loss(held, ways)
        self.weights_ = units[np.argmin(alone)] if self.guard and not both < min(alone) else w
        self.losses_ = {**dict(enumerate(alone)), "blend": both}
        self.models_ = fitted(sample.part())
        return self

    def prediction(self, *data, strata=None):
        """Predictions (N,) from all data arguments; the target among them is not used."""
        check_is_fitted(self, "weights_")
        part = Sample(list(self.models), (*data, strata), "predict").part()
        self._read(part.data, part.strata, "predict")
        return sum(w * prediction_of(m, part) for w, m in zip(self.weights_, self.models_, strict=True) if w)


def _mean_loss(held, ways):
    """The mean loss over folds (losses, predictions, weights of records), with the models' weights for each."""
    losses = [loss(predicted @ w) for (loss, predicted, _), w in zip(held, ways, strict=True)]
    return float(np.average(np.concatenate(losses), weights=np.concatenate([weight for *_, weight in held])))


def _stacked(held):
    """The nonnegative weights with the lowest mean loss over some folds."""
    start = np.eye(held[0][1].shape[1]).mean(axis=0)
    options = {"bounds": [(0, None)] * len(start), "options": {"xatol": 1e-4, "fatol": 1e-9}}
    return minimize(lambda w: _mean_loss(held, [w] * len(held)), start, method="Nelder-Mead", **options).x
