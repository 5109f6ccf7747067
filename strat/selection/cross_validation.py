"""Cross-validated losses of one model for many choices of constants, every fit warm-started."""

import warnings
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import clone

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
    fits: list  # of every fold: a Fit, or a fitted model of another kind
    means: np.ndarray  # the mean losses of the folds' held-out records
    loss: float  # mean over all held-out records


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
            parts = (
                (self.sample.part(a), self.sample.part(b), self.weight[a], self.weight[b])
                for a, b in self.pairs
            )
            self.folds = []
            for number, part in enumerate(parts, start=1):
                with _naming(number, len(self.pairs)):
                    self.folds.append(kind(self, *part))
        return self.folds

    def losses(self, trial):
        """Loss of every held-out record, fold after fold."""
        folds = zip(self.bound(), trial.fits, strict=True)
        return np.concatenate([fold.losses(fit, trial.constants) for fold, fit in folds])


@dataclass
class Trials:
    """Trials of one CrossValidation in a row, each started from the fits for the constants nearest by.

    `clock` says how long it may take; its end is an OutOfTime.
    """

    validation: CrossValidation
    clock: object
    remembered: deque = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    states: Counter = field(default_factory=Counter)
    count: int = 0

    def __call__(self, constants):
        """Fit every fold for some constants."""
        folds, fits, means = self.validation.bound(), [], []
        near = min(self.remembered, key=lambda trial: _distance(trial.constants, constants), default=None)
        for k, fold in enumerate(folds):
            self.clock.check()
            with warnings.catch_warnings(), _naming(k + 1, len(folds)):
                warnings.simplefilter("ignore")
                fit, state = fold.fit(constants, near and near.fits[k], self.clock.left)
                means.append(fold.mean_loss(fit, constants))
            if state == "time_limit":
                self.clock.check()
            self.states[state] += 1
            fits.append(fit)
        trial = Trial(constants, fits, np.array(means), float(np.dot(self.validation.share, means)))
        if np.isfinite(trial.loss):
            self.remembered.append(trial)
        self.count += 1
        return trial


class _StratifiedFold:
    """One fold of a StratifiedModel: a fit is (parameters, edge array)."""

    def __init__(self, validation, train, test, weight, held_weight):
        model = self.model = validation.model
        options = {"nodes": validation.nodes, "tol": validation.tol}
        self.refits = Refits(model, train.data, train.strata, weight, **options)
        self.held = self.refits.bound_model.held_out(test.data, test.strata, held_weight, where="train")

    def fit(self, constants, near, seconds):
        """Fit for some constants from those nearby; the fit and its status."""
        fit = self.refits.fit(*(near or ()), time_limit=seconds, **for_refit(self.model, constants))
        return (fit.theta, fit.w), fit.result.status

    def mean_loss(self, fit, constants):
        """Mean loss of the records held out."""
        return self.held.mean_loss(fit[0], for_refit(self.model, constants).get("values"))

    def losses(self, fit, constants):
        """The loss of each."""
        return self.held.losses(fit[0], for_refit(self.model, constants).get("values"))


class _OtherFold:
    """One fold of a model of another kind, which has no constants: a fit is the losses of the records held out."""

    def __init__(self, validation, train, test, weight, held_weight):
        self.model = with_strata(validation.model, validation.nodes)
        self.train, self.test, self.held_weight = train, test, held_weight
        self.weight = None if (validation.weight == 1).all() else weight

    def fit(self, constants, near, seconds):
        """Fit and measure."""
        fitted = fit_within(clone(self.model), self.train.data, self.train.strata, self.weight)
        return fitted.losses(*self.test.data, strata=self.test.strata), "converged"

    def mean_loss(self, fit, constants):
        """Mean loss of the records held out."""
        return float(np.average(fit, weights=self.held_weight))

    def losses(self, fit, constants):
        """The loss of each."""
        return fit


@contextmanager
def _naming(number, count):
    """Context in which an exception notes the fold that it came from."""
    try:
        yield
    except OutOfTime:
        raise
    except Exception as error:
        error.add_note(f"fold {number} of {count}")
        raise


def _distance(a, b):
    """How far two choices of constants are apart: the sum of the differences of their logarithms."""
    total = 0.0 if a.keys() == b.keys() else float("inf")
    for name in a.keys() & b.keys():
        x, y = (np.log(np.maximum(np.asarray(c[name], dtype=float), 1e-9)) for c in (a, b))
        total += float(np.abs(x - y).max())
    return total
