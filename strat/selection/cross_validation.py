"""Cross-validated losses of one model for many constants, each fold's fits warm-started."""

import warnings
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from strat.model.refit import Refits
from strat.selection.constants import for_refit

#: Fits of so many constants are kept to start from.
KEPT = 24


@dataclass
class Trial:
    """One choice of constants.

    Attributes
    ----------
    constants : dict
        Values by full name.
    loss : float
        Mean loss over all held-out records.
    thetas : list of ndarray
        The fitted parameters of every fold.
    weights : list of ndarray
        The edge arrays of every fold.
    """

    constants: dict
    loss: float
    thetas: list
    weights: list


class CrossValidation:
    """A model on all folds; every record that a fold holds out counts once.

    Parameters
    ----------
    model : StratifiedModel
        The model.
    sample : Sample
        The records.
    pairs : list of pairs
        Positions (training, held out).
    nodes : list
        The strata of a model without a graph.
    tol : float
        Tolerance of the fits.
    weight : (N,) ndarray, optional
        Weights of the records, in the fits and in the mean; 1 by default.

    Attributes
    ----------
    weight : ndarray
        Weights of the held-out records, fold after fold.
    """

    def __init__(self, model, sample, pairs, nodes, tol, weight=None):
        self.model = model
        weight = np.ones(len(sample)) if weight is None else weight
        self.refits, self.held = [], []
        for train, test in pairs:
            inside, outside = sample.part(train), sample.part(test)
            refits = Refits(model, inside.data, inside.strata, weight[train], nodes=nodes, tol=tol)
            self.refits.append(refits)
            held = refits.bound_model.held_out(outside.data, outside.strata, weight[test], where="train")
            self.held.append(held)
        self.weight = np.concatenate([weight[test] for _, test in pairs])
        totals = np.array([weight[test].sum() for _, test in pairs])
        self.share = totals / totals.sum()
        self.kept, self.states, self.count = deque(maxlen=KEPT), Counter(), 0

    def trial(self, constants):
        """Fit every fold for some constants, from the fits for the constants nearest by.

        Parameters
        ----------
        constants : dict
            Values by full name.

        Returns
        -------
        Trial
            The mean loss and the fits.
        """
        self.count += 1
        given = for_refit(self.model, constants)
        near = min(self.kept, key=lambda trial: _distance(trial.constants, constants), default=None)
        fits, losses = [], []
        for k, (refits, held) in enumerate(zip(self.refits, self.held, strict=True)):
            start = (None, None) if near is None else (near.thetas[k], near.weights[k])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = refits.fit(*start, **given)
            self.states[fit.result.status] += 1
            fits.append(fit)
            losses.append(held.mean_loss(fit.theta, given.get("values")))
        loss = float(np.dot(self.share, losses))
        trial = Trial(constants, loss, [fit.theta for fit in fits], [fit.w for fit in fits])
        if np.isfinite(loss):
            self.kept.append(trial)
        return trial

    def losses(self, trial):
        """Loss of every held-out record, fold after fold."""
        values = for_refit(self.model, trial.constants).get("values")
        return np.concatenate([h.losses(t, values) for h, t in zip(self.held, trial.thetas, strict=True)])


def _distance(a, b):
    """How far two choices of constants are apart: the sum of the differences of their logarithms."""
    total = 0.0 if a.keys() == b.keys() else float("inf")
    for name in a.keys() & b.keys():
        x, y = np.asarray(a[name], dtype=float), np.asarray(b[name], dtype=float)
        total += float(np.abs(np.log(np.maximum(x, 1e-9)) - np.log(np.maximum(y, 1e-9))).max())
    return total
