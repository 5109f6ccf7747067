"""The function that tuning minimises: the mean loss of held-out records after fits, with its derivative."""

import warnings

import numpy as np
from sklearn.base import clone

from strat.derivatives.hypergradient import derivatives, over_edges
from strat.derivatives.linearization import Linearization
from strat.errors import ConvergenceWarning, NoOracleError
from strat.model.fit import Refits
from strat.selection.tuning.path import FAILURES
from strat.solvers import NewtonCG


class InnerFits:
    """Polished fits of a model to one part of a Sample at any x of a Space, each started at the last."""

    def __init__(self, model, space, part):
        model = clone(model).set_params(graph=space.prior, scale=1.0, solver=NewtonCG())
        self.refits = Refits(model, part.data, part.strata)
        self.space, self.key, self.last = space, None, None
        w, values = space.at(space.start)
        loss = self.refits.bound_model.problem(w0=w, values=values).loss
        if not loss.has("hessian_operator"):
            raise NoOracleError(
                f"tune needs derivatives of the fit, but {loss.missing('hessian_operator')}. Smooth it: smoothing= on "
                f"the BaseModel; strat.search chooses constants without derivatives."
            )

    def at(self, x):
        """The linearised optimality conditions at the fit; an accepted step was evaluated just before."""
        if self.key != x.tobytes():
            w, values = self.space.at(x)
            fit = self.refits.fit(theta=self.last and self.last.theta, w0=w, values=values)
            fit = Linearization(fit.problem, fit.theta, w)
            if not np.isfinite(fit.theta).all() or not np.isfinite(fit.residual):
                raise np.linalg.LinAlgError("the fit is not finite")
            self.key, self.last = x.tobytes(), fit
        return self.last

    def value_and_gradient(self, x, held):
        """Mean loss of records held out, and its gradient in x."""
        fit = self.at(x)
        loss, b = held.mean_loss_and_gradient(fit.theta)
        v = fit.solve(b)
        edges, slopes = over_edges(fit.problem.couple, fit.theta, v, *fit.problem.edges.ends), {}
        w, values = self.space.at(x)
        for p in self.space.parameters:

            def change(moved, name=p.name):
                return fit.change(self.refits.bound_model.problem(w0=w, values={**values, name: moved}), v, b)

            value = np.asarray(values[p.name], dtype=float)
            slopes[p.name] = derivatives(change, held.base.hyperparameters[p.name], value)
        return loss, self.space.back(x, edges, slopes)


class Objective:
    """The mean loss of all held-out records of several folds, with the model's own hyperparameters, and its gradient.

    The loss is smoothed where the declaration says so; `notes` counts texts of warnings.
    """

    def __init__(self, folds, where, notes):
        self.folds = []
        for fits, part in folds:
            held = fits.refits.bound_model.held_out(part.data, part.strata, where=where, smooth=True)
            self.folds.append((fits, held))
        self.counts = np.array([len(part) for _, part in folds])
        self.space, self.notes = folds[0][0].space, notes

    def __call__(self, x):
        """Mean loss and gradient at x."""
        each = self._of_each(lambda fits, held: fits.value_and_gradient(x, held))
        losses, gradients = zip(*each, strict=True)
        return np.average(losses, weights=self.counts), np.average(gradients, axis=0, weights=self.counts)

    def mean_losses(self, x):
        """Mean loss at x of each fold."""
        return self._of_each(lambda fits, held: held.mean_loss_and_gradient(fits.at(x).theta)[0])

    def mean_loss(self, x):
        """Mean loss at x."""
        return float(np.average(self.mean_losses(x), weights=self.counts))

    def losses(self, x):
        """Loss of each record, +inf where the fit of its fold fails."""

        def losses(fits, held):
            try:
                return held.losses(fits.at(x).theta)
            except FAILURES:
                return np.full(len(held.records.arrays[-1]), np.inf)

        return np.concatenate(self._of_each(losses))

    def _of_each(self, evaluate):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = [evaluate(*fold) for fold in self.folds]
        self.notes.update({str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)})
        return values
