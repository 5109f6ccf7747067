"""Cross-validated losses of one model for many choices of constants, every fit warm-started."""

import warnings
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from strat.model.refit import Refits
from strat.selection.constants import for_refit

#: The fits of so many choices of constants are remembered to start others from.
REMEMBERED = 24


@dataclass
class Trial:
    """One choice of constants, tried on every fold."""

    constants: dict  # by full name
    loss: float  # mean over all held-out records
    thetas: list  # the fitted parameters of every fold
    edges: list  # the edge arrays of every fold


class CrossValidation:
    """A model fitted to every fold of a Sample; every record that a fold holds out counts once, with its weight.

    `pairs` has positions (training, held out), `nodes` the strata of a model without a graph, `tol` is the fits' tolerance,
    and `weight` has the records' weights, in the fits and in the mean.
    """

    def __init__(self, model, sample, pairs, nodes, tol, weight):
        self.model, self.refits, self.held_out = model, [], []
        for train, test in pairs:
            inside, outside = sample.part(train), sample.part(test)
            refits = Refits(model, inside.data, inside.strata, weight[train], nodes=nodes, tol=tol)
            self.refits.append(refits)
            held = refits.bound_model.held_out(outside.data, outside.strata, weight[test], where="train")
            self.held_out.append(held)
        self.weight = np.concatenate(
            [weight[test] for _, test in pairs]
        )  # of held-out records, fold after fold
        totals = np.array([weight[test].sum() for _, test in pairs])
        self.share = totals / totals.sum()
        self.remembered, self.states, self.trials = deque(maxlen=REMEMBERED), Counter(), 0

    def trial(self, constants):
        """Fit every fold for some constants, from the fits for the constants nearest by."""
        keywords = for_refit(self.model, constants)
        near = min(self.remembered, key=lambda trial: _distance(trial.constants, constants), default=None)
        fits, losses = [], []
        for k, (refits, held) in enumerate(zip(self.refits, self.held_out, strict=True)):
            start = (None, None) if near is None else (near.thetas[k], near.edges[k])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = refits.fit(*start, **keywords)
            self.states[fit.result.status] += 1
            fits.append(fit)
            losses.append(held.mean_loss(fit.theta, keywords.get("values")))
        loss = float(np.dot(self.share, losses))
        trial = Trial(constants, loss, [fit.theta for fit in fits], [fit.w for fit in fits])
        if np.isfinite(loss):
            self.remembered.append(trial)
        self.trials += 1
        return trial

    def losses(self, trial):
        """Loss of every held-out record, fold after fold."""
        values = for_refit(self.model, trial.constants).get("values")
        folds = zip(self.held_out, trial.thetas, strict=True)
        return np.concatenate([held.losses(theta, values) for held, theta in folds])


def _distance(a, b):
    """How far two choices of constants are apart: the sum of the differences of their logarithms."""
    total = 0.0 if a.keys() == b.keys() else float("inf")
    for name in a.keys() & b.keys():
        x, y = (np.log(np.maximum(np.asarray(c[name], dtype=float), 1e-9)) for c in (a, b))
        total += float(np.abs(x - y).max())
    return total
