"""A fitted model as a convex problem in theta: its graph held fixed, its hyperparameters at any values."""

import numpy as np
import scipy.sparse as sp

from strat.compiler import coupling
from strat.derivatives.linearization import LOOSE, Linearization
from strat.errors import ConvergenceWarning, OptionError
from strat.model.bound_model import BoundModel
from strat.model.estimator import check_fitted
from strat.model.fitted import training_records
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph


class FittedModel:
    """A fitted model's problem for fixed weights w on `edges`, by default those of its ``W_``.

    `what` names the caller in messages; only where `shared` is True may all strata share their parameters, and the
    problem then has a single stratum. `theta` are the fitted parameters (K, n), `bound_model` has the records of the fit.
    """

    def __init__(self, model, what, edges=None, shared=False):
        common = getattr(model, "shared", False)
        if common and not shared:
            why = "but the strata of a common model share their parameters; use strat.lrsm."
            raise OptionError(f"{what} follows the graph, {why}")
        check_fitted(model, what)
        records, theta, W = training_records(model, what), model._flat(), model.W_
        if common:
            theta, W = theta[:1], np.zeros((1, 1))
        if edges is None:
            edges = EdgeList(len(theta), *sp.triu(W, 1).coords)
        self.model, self.theta, self.w = model, theta, edges.from_matrix(W)
        self.bound_model = BoundModel(model, records=records, edges=edges)

    def problem(self, values=None):
        """The JointProblem in theta, with hyperparameters by name in place of the model's own."""
        return self.bound_model.problem(values=values, w0=self.w, graph_regularizer=FixedGraph())

    def couple(self, i, j):
        """Weights of the coordinates in the distance, on edges with ends i < j: (n,), or one row for each."""
        return coupling.on_edges(self.model.base, self.model.values, self.bound_model.prior, i, j)

    def linearized(self):
        """The linearised optimality conditions at the fit, polished; warns where they are not reliable."""
        fit = Linearization(self.problem(), self.theta, self.w)
        kinks = int(fit.hessian.free.kinks.sum())
        if not fit.residual <= LOOSE:
            ConvergenceWarning.warn(
                f"the fit is not at its optimum: Newton steps left a residual of {fit.residual:.1e}, so that its "
                f"derivatives are inaccurate. Fit it to a smaller tol, or give the solver more iterations."
            )
        if kinks:
            ConvergenceWarning.warn(
                f"the fit lies on a kink of the regularizer in {kinks} strata: the derivatives there are those of one "
                f"side, or between both sides."
            )
        return fit

    def value_of(self, name):
        """A hyperparameter's value in the fit, as an array."""
        parameter = self.model.base.hyperparameters[name]
        return np.asarray(self.model.values.get(name, parameter.value), dtype=float)
