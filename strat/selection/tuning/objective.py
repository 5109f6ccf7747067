"""The function that tuning minimises: the mean loss of held-out records after a fit, with its derivative."""

import warnings
from collections import deque

import numpy as np
from sklearn.base import clone

from strat.derivatives.hypergradient import derivatives, over_edges
from strat.derivatives.linearization import Linearization
from strat.errors import NoOracleError
from strat.model.refit import Refits
from strat.selection.tuning.descent import FAILURES
from strat.solvers import NewtonCG

#: Fits that are remembered: an accepted step was evaluated a moment before.
REMEMBERED = 3


class InnerFits:
    """Polished fits of a model to one set of training records (a Part) at any x of a Space, each started at the last.

    A fit without derivatives is a NoOracleError.
    """

    def __init__(self, model, space, part):
        options = {"scale": 1.0, "solver": NewtonCG(), "n_starts": 1, "warm_start": False}
        model = clone(model).set_params(graph=space.prior, **options)
        self.refits = Refits(model, part.data, part.strata)
        self.space, self.theta, self.remembered = space, None, deque(maxlen=REMEMBERED)
        loss = self.problem(*space.at(space.start)).loss
        if not loss.has("hessian_operator"):
            raise NoOracleError(
                f"tune needs derivatives of the fit, so a loss with second derivatives, but "
                f"{loss.missing('hessian_operator')}. Smooth it: smoothing= on the BaseModel; strat.search chooses "
                f"constants without derivatives."
            )

    def problem(self, w, values):
        """The problem at edge weights w and values of hyperparameters."""
        return self.refits.bound_model.problem(w0=w, values=values)

    def at(self, x):
        """The linearised optimality conditions at the fit."""
        for known, fit in self.remembered:
            if np.array_equal(known, x):
                return fit
        w, values = self.space.at(x)
        fit = self.refits.fit(theta=self.theta, w0=w, values=values)
        fit = Linearization(fit.problem, fit.theta, w)
        if not np.isfinite(fit.theta).all() or not np.isfinite(fit.residual):
            raise np.linalg.LinAlgError("the fit is not finite")
        self.theta = fit.theta
        self.remembered.append((np.array(x), fit))
        return fit


class HeldOutLoss:
    """The loss of held-out records (a Part) after InnerFits, as a function of x.

    The loss itself has the model's own hyperparameters at every x. `where` is the name of the records' argument.
    """

    def __init__(self, fits, part, where):
        self.fits, self.space, self.count = fits, fits.space, float(len(part))
        self.held = fits.refits.bound_model.held_out(part.data, part.strata, where=where, smooth=True)

    def losses(self, x):
        """Loss of each record, +inf where the fit fails."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.held.losses(self.fits.at(x).theta)
        except FAILURES:
            return np.full(int(self.count), np.inf)

    def mean_loss(self, x):
        """Mean loss, smoothed where the declaration says so."""
        return self.held.mean_loss_and_gradient(self.fits.at(x).theta)[0]

    def value_and_gradient(self, x):
        """Mean loss and its gradient in x."""
        fit = self.fits.at(x)
        loss, b = self.held.mean_loss_and_gradient(fit.theta)
        v = fit.solve(b)
        edges = over_edges(fit.problem.couple, fit.theta, v, *fit.problem.edges.ends)
        slopes = {p.name: self._slope(p.name, x, fit, b, v) for p in self.space.parameters}
        return loss, self.space.back(x, edges, slopes)

    def _slope(self, name, x, fit, b, v):
        """Derivative in each entry of a hyperparameter."""
        w, values = self.space.at(x)
        parameter, value = self.held.base.hyperparameters[name], np.asarray(values[name], dtype=float)

        def change(moved):
            return fit.change(self.fits.problem(w, {**values, name: moved}), v, b)

        return derivatives(change, parameter, value)


class Objective:
    """The mean over all held-out records of several HeldOutLoss, and its gradient; `notes` counts texts of warnings."""

    def __init__(self, terms, notes):
        counts = np.array([term.count for term in terms])
        self.terms, self.share, self.notes = terms, counts / counts.sum(), notes
        self.space = terms[0].space

    def __call__(self, x):
        """Mean loss and gradient at x."""
        loss, gradient = 0.0, np.zeros(len(x))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for share, term in zip(self.share, self.terms, strict=True):
                value, slope = term.value_and_gradient(x)
                loss += share * value
                gradient += share * slope
        self.notes.update({str(w.message) for w in caught})
        return loss, gradient

    def mean_loss(self, x):
        """Mean loss at x."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.dot(self.share, [term.mean_loss(x) for term in self.terms]))

    def losses(self, x):
        """Loss of each record."""
        return np.concatenate([term.losses(x) for term in self.terms])


class Branch:
    """One graph to tune, the model's own or a learned candidate, and the stages of its descent.

    ``space_of(part)`` returns the variables; a candidate's graph is learned from these training records. Fits to the same
    records are shared by all rounds.
    """

    def __init__(self, model, rounds, stages, space_of, notes):
        self.model, self.rounds, self.stages, self.notes = model, rounds, stages, notes
        self.space_of, self.known = space_of, {}

    def objective(self, pairs):
        """Mean held-out loss over pairs of positions (training records, held-out records)."""
        parts, where = self.rounds.parts(pairs), self.rounds.where
        return Objective([HeldOutLoss(self.fits(train), held, where) for train, held in parts], self.notes)

    def fits(self, part):
        """Fits to some training records."""
        key = part.index.tobytes()
        if key not in self.known:
            space = self.space_of(part)
            self.known[key] = InnerFits(self.model, space, part)
        return self.known[key]
