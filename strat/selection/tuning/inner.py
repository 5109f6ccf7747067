"""The inner problem of tuning: the fit to one training part, and held-out losses as functions of the variables."""

import warnings

import numpy as np
from sklearn.base import clone

from strat.derivatives.hypergradient import difference, over_edges, sign_of
from strat.derivatives.linearization import Linearization
from strat.errors import NoOracleError
from strat.model.refit import Refits
from strat.solvers import NewtonCG

#: Fits that are kept, to be judged after they were accepted.
KEPT = 3


class Inner:
    """Polished fits of a model to one training part, for any weights and hyperparameters, each started at the last.

    Parameters
    ----------
    model : StratifiedModel
        The start; its graph's edges are those of the space.
    prior : PriorGraph
        Its graph, candidate edges included.
    part : Part
        The training records.
    """

    def __init__(self, model, prior, part):
        model = clone(model).set_params(
            graph=prior, scale=1.0, solver=NewtonCG(), n_starts=1, warm_start=False
        )
        self.refits = Refits(model, part.data, part.strata)
        self.bound_model, self.theta, self.kept = self.refits.bound_model, None, []

    def check(self, x0):
        """Raise a NoOracleError unless the fit has derivatives."""
        w, values = x0
        loss = self.bound_model.problem(w0=w, values=values).loss
        if not loss.has("hessian_operator"):
            raise NoOracleError(
                f"tune needs derivatives of the fit, so a loss with second derivatives, but "
                f"{loss.missing('hessian_operator')}. Smooth it: smoothing= on the BaseModel; strat.search chooses "
                f"constants without derivatives."
            )

    def fit(self, w, values):
        """The linearised optimality conditions at the fit for the weights w and hyperparameters."""
        for known_w, known, found in self.kept:
            if np.array_equal(known_w, w) and _same(known, values):
                return found
        fit = self.refits.fit(theta=self.theta, w0=w, values=values)
        found = Linearization(fit.problem, fit.theta, w)
        if not np.isfinite(found.theta).all() or not np.isfinite(found.residual):
            raise np.linalg.LinAlgError("the fit is not finite")
        self.theta = found.theta
        self.kept = [*self.kept[1 - KEPT :], (np.array(w), values, found)]
        return found


class Task:
    """Records held out of one training part.

    Parameters
    ----------
    inner : Inner
        The fits to the training part.
    space : Space
        The variables.
    part : Part
        The held-out records.
    where : str
        The name of the argument they came from, for messages.
    """

    def __init__(self, inner, space, part, where):
        self.inner, self.space = inner, space
        bound_model = inner.bound_model
        self.held = bound_model.held_out(part.data, part.strata, where=where, smooth=True)
        self.count = float(len(part))

    def losses(self, x):
        """Loss of each record at the model's own hyperparameters, +inf where the fit fails."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.held.losses(self.inner.fit(*self.space.at(x)).theta)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return np.full(int(self.count), np.inf)

    def mean_loss(self, x):
        """Mean loss, smoothed where the declaration says so."""
        return self.held.mean_loss_and_gradient(self.inner.fit(*self.space.at(x)).theta)[0]

    def value_and_gradient(self, x):
        """Mean loss and its gradient in x. The losses are those of the model's own hyperparameters throughout."""
        w, values = self.space.at(x)
        found = self.inner.fit(w, values)
        loss, b = self.held.mean_loss_and_gradient(found.theta)
        v = found.solve(b)
        edges = over_edges(found.problem.couple, found.theta, v, *found.problem.edges.ends)
        slopes = {p.name: self._over(p.name, w, values, found, b, v) for p in self.space.parameters}
        return loss, self.space.back(x, edges, slopes)

    def _over(self, name, w, values, found, b, v):
        """Derivative in each entry of a hyperparameter."""
        argument = found.theta - found.t[:, None] * found.gradient

        def sides(value):
            problem = self.inner.bound_model.problem(w0=w, values={**values, name: value})
            gradient = problem.loss.value_and_gradient(found.theta)[1]
            gradient = gradient + problem.laplacian(found.w, found.theta, found.degrees)
            return gradient, problem.prox(argument, found.t)

        value = np.asarray(values[name], dtype=float)
        out, sign = np.zeros(value.shape), sign_of(self.held.base.hyperparameters[name])
        for index in np.ndindex(value.shape):
            gradient, prox = difference(sides, value, index, sign)
            out[index] = found.moved_dot(v, b, prox) - float(np.vdot(v, gradient))
        return out


class Objective:
    """The mean loss over the records of several tasks, and its gradient.

    Parameters
    ----------
    tasks : list of Task
        Each counts by its number of records.
    notes : Counter
        Takes the texts of warnings.
    """

    def __init__(self, tasks, notes):
        counts = np.array([task.count for task in tasks])
        self.tasks, self.share, self.notes = tasks, counts / counts.sum(), notes

    def __call__(self, x):
        """Mean loss and gradient at x."""
        loss, gradient = 0.0, np.zeros(len(x))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for share, task in zip(self.share, self.tasks, strict=True):
                one, slope = task.value_and_gradient(x)
                loss += share * one
                gradient += share * slope
        self.notes.update({str(w.message) for w in caught})
        return loss, gradient

    def losses(self, x):
        """Loss of each record."""
        return np.concatenate([task.losses(x) for task in self.tasks])


def _same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)
