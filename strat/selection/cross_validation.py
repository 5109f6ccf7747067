"""Cross-validated losses of one model for many choices of constants, every fit warm-started."""

import warnings
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from sklearn.base import clone

from strat.errors import first_line
from strat.model.estimator import StratifiedModel
from strat.model.fit import fit_within
from strat.model.refit import Refits
from strat.selection.clock import OutOfTime
from strat.selection.constants import for_refit
from strat.selection.other_model import with_strata

#: The fits of so many choices of constants are remembered to start others from.
REMEMBERED = 24


@dataclass
class Trial:
    """One choice of constants, tried on every fold."""

    constants: dict  # by full name
    fits: list = field(default_factory=list)  # of every fold
    means: list = field(default_factory=list)  # the mean losses of the folds' held-out records
    loss: float = np.inf  # mean over all held-out records
    losses: np.ndarray | None = None  # of every held-out record, fold after fold, where they are asked for
    error: str | None = None
    failure: Exception | None = None


class CrossValidation:
    """A model fitted to every fold of a Sample; every record that a fold holds out counts once, with its weight.

    `key` is a pair that names a search and a model in all processes, `pairs` has positions (training, held out), `nodes` the
    strata of a model without a graph, `tol` is the fits' tolerance, and `weight` has the records' weights, in the fits
    and in the mean. Records are bound at the first trial; a copy in another process binds its own.
    """

    def __init__(self, key, model, sample, pairs, nodes, tol, weight):
        self.key, self.model, self.sample, self.pairs = key, model, sample, pairs
        self.nodes, self.tol, self.weight = nodes, tol, weight
        totals = np.array([weight[test].sum() for _, test in pairs])
        self.share = totals / totals.sum()
        self.held_weight = np.concatenate([weight[test] for _, test in pairs])  # fold after fold
        self.folds = None

    def __getstate__(self):
        return {**self.__dict__, "folds": None}

    def bound(self):
        """The folds: models of other kinds have nothing to bind."""
        if self.folds is None:
            kind = _StratifiedFold if isinstance(self.model, StratifiedModel) else _OtherFold
            self.folds = [partial(kind, self, *pair) for pair in self.pairs]
        for k, fold in enumerate(self.folds):
            if isinstance(fold, partial):
                self.folds[k] = fold()
            yield self.folds[k]

    def losses(self, trial):
        """Loss of every held-out record, fold after fold; None where a fit failed."""
        if trial.error is not None:
            return None
        keywords, folds = for_refit(self.model, trial.constants), zip(self.bound(), trial.fits, strict=True)
        return np.concatenate([fold.losses(fit, keywords) for fold, fit in folds])


@dataclass
class Trials:
    """Trials of one CrossValidation in a row, each started from the fits for the constants nearest by.

    `clock` says how long it may take; its end is an OutOfTime.
    """

    validation: CrossValidation
    clock: object
    remembered: deque = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    states: Counter = field(default_factory=Counter)

    def __call__(self, constants):
        """Fit every fold for some constants; a failure is the trial's error, and its loss infinite."""
        trial, validation = Trial(constants), self.validation
        keywords = for_refit(validation.model, constants)
        near = min(self.remembered, key=lambda other: _distance(other.constants, constants), default=None)
        try:
            for k, fold in enumerate(validation.bound()):
                self.clock.check()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fit, state = fold.fit(keywords, near and near.fits[k], self.clock.left)
                if state == "time_limit":
                    self.clock.check()
                trial.fits.append(fit)
                trial.means.append(fold.mean_loss(fit, keywords))
                self.states[state] += 1
        except OutOfTime:
            raise
        except Exception as error:  # one candidate's failure is a row of the table
            trial.error = f"{first_line(error)} (fold {len(trial.fits) + 1} of {len(validation.pairs)})"
            trial.failure = error
            return trial
        trial.loss = float(np.dot(validation.share, trial.means))
        if np.isfinite(trial.loss):
            self.remembered.append(trial)
        return trial


class _StratifiedFold:
    """One fold of a StratifiedModel: a fit is (parameters, edge array)."""

    def __init__(self, validation, inside, outside):
        model = self.model = validation.model
        train, test = validation.sample.part(inside), validation.sample.part(outside)
        weight, options = validation.weight, {"nodes": validation.nodes, "tol": validation.tol}
        self.refits = Refits(model, train.data, train.strata, weight[inside], **options)
        bound_model = self.refits.bound_model
        self.held = bound_model.held_out(test.data, test.strata, weight[outside], where="train")

    def fit(self, keywords, near, seconds):
        """Fit for some constants, as keywords of ``Refits.fit``, from those nearby; the fit and its status."""
        fit = self.refits.fit(*(near or ()), time_limit=seconds, **keywords)
        return (fit.theta, fit.w), fit.result.status

    def mean_loss(self, fit, keywords):
        """Mean loss of the records held out."""
        return self.held.mean_loss(fit[0], keywords.get("values"))

    def losses(self, fit, keywords):
        """The loss of each."""
        return self.held.losses(fit[0], keywords.get("values"))


class _OtherFold:
    """One fold of a model of another kind, which has no constants: a fit is the losses of the records held out."""

    def __init__(self, validation, inside, outside):
        self.model = with_strata(validation.model, validation.nodes)
        self.train, self.test = validation.sample.part(inside), validation.sample.part(outside)
        self.weight = None if (validation.weight == 1).all() else validation.weight[inside]
        self.held_weight = validation.weight[outside]

    def fit(self, keywords, near, seconds):
        """Fit and measure."""
        fitted = fit_within(clone(self.model), self.train.data, self.train.strata, self.weight)
        return fitted.losses(*self.test.data, strata=self.test.strata), "converged"

    def mean_loss(self, fit, keywords):
        """Mean loss of the records held out."""
        return float(np.average(fit, weights=self.held_weight))

    def losses(self, fit, keywords):
        """The loss of each."""
        return fit


def _distance(a, b):
    """How far two choices of constants are apart: the sum of the differences of their logarithms."""
    total = 0.0 if a.keys() == b.keys() else float("inf")
    for name in a.keys() & b.keys():
        x, y = (np.log(np.maximum(np.asarray(c[name], dtype=float), 1e-9)) for c in (a, b))
        total += float(np.abs(x - y).max())
    return total
