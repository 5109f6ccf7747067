"""Cross-validated losses of one model for many choices of constants, with warm-started fits."""

import copy
import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel

from strat.errors import OptionError, first_line
from strat.graphs.prior_graph import read_graph
from strat.model.estimator import StratifiedModel
from strat.model.fit import Refits, fit_within
from strat.oracles.clock import OutOfTime
from strat.selection.candidates import with_strata


def processes(n_jobs):
    """A function that runs delayed calls in `n_jobs` processes and yields their results in order."""
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise OptionError(f"n_jobs must be a number of processes, or -1 for all processors, not {n_jobs!r}.")
    return Parallel(n_jobs=n_jobs, return_as="generator", batch_size=1)


@dataclass
class Trial:
    """One choice of constants, tried on every fold."""

    constants: dict  # by full name
    fits: list = field(default_factory=list)  # of every fold
    losses: list = field(default_factory=list)  # of the held-out records, an array for each fold
    loss: float = np.inf  # their mean
    error: str | None = None
    failure: Exception | None = None


@dataclass
class CrossValidation:
    """A model fitted to every fold of a Sample, which the first trial binds; held-out records count once, with their weight."""

    model: object
    sample: object
    pairs: list  # of positions (training, held out)
    nodes: list  # the strata of a model without a graph
    tol: float  # of the fits
    weight: np.ndarray  # of the records, in the fits and in the mean
    folds: dict = field(default_factory=dict)

    def __post_init__(self):
        if getattr(self.model, "graph", None) is not None:
            self.model = copy.copy(self.model)
            self.model.graph = read_graph(self.model.graph)  # once for all fits

    def __getstate__(self):
        return {**self.__dict__, "folds": {}}

    def trial(self, constants, near, clock, states):
        """Fit every fold for some constants, starting from the fits of a nearby trial `near`; `states` counts fit statuses.

        A failure becomes the trial's error, with an infinite loss; when time is up, `clock` raises OutOfTime.
        """
        trial, keywords = Trial(constants), {}
        try:
            if constants:
                moved = {"graph_regularizer": clone(self.model.graph_regularizer), **constants}
                m = copy.copy(self.model).set_params(**moved)
                keywords = {"values": m._values, "scale": m.scale, "graph_regularizer": m.graph_regularizer}
            for k, (inside, outside) in enumerate(self.pairs):
                clock.check()
                with warnings.catch_warnings(action="ignore"):
                    if k not in self.folds:
                        self.folds[k] = self._fold(inside, outside)
                    state, fit, losses = self.folds[k](keywords, near and near.fits[k], clock.left)
                if state == "time_limit":
                    clock.check()
                trial.fits.append(fit)
                trial.losses.append(losses)
                states[state] += 1
        except OutOfTime:
            raise
        except Exception as error:  # a failed candidate still gets a row of the table
            trial.error = f"{first_line(error)} (fold {len(trial.fits) + 1} of {len(self.pairs)})"
            trial.failure = error
            return trial
        weights = np.concatenate([self.weight[test] for _, test in self.pairs])
        trial.loss = float(np.average(np.concatenate(trial.losses), weights=weights))
        return trial

    def _fold(self, inside, outside):
        """For one fold, a function of constants, a nearby fit and seconds that gives status, fit and held-out losses."""
        train, test, weight = self.sample.part(inside), self.sample.part(outside), self.weight
        if isinstance(self.model, StratifiedModel):
            refits = Refits(self.model, train.data, train.strata, weight[inside], self.nodes, self.tol)
            held = refits.bound_model.held_out(test, weight[outside])

            def fit(keywords, near, seconds):
                _, result = refits.fit(*(near or ()), time_limit=seconds, **keywords)
                theta, w = result.theta, result.w
                return result.status, (theta, w), held.losses(theta)
        else:  # a model of another kind has no constants
            model = with_strata(self.model, self.nodes)
            given = None if (weight == 1).all() else weight[inside]

            def fit(keywords, near, seconds):
                fitted = fit_within(clone(model), train.data, train.strata, given)
                return "converged", None, fitted.losses(*test.data, strata=test.strata)

        return fit
