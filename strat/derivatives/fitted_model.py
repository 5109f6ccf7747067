"""A fitted model as a convex problem in theta: its graph held fixed, its hyperparameters at any values."""

import numpy as np
import scipy.sparse as sp

from strat.compiler import coupling
from strat.derivatives.linearization import Linearization
from strat.errors import OptionError
from strat.model.bound_model import BoundModel
from strat.model.estimator import check_fitted
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph


class FittedModel:
    """A fitted model's problem for fixed weights.

    Parameters
    ----------
    model : StratifiedModel
        Fitted in this session.
    what : str
        Who asks, for messages.
    edges : EdgeList, optional
        Where W may be nonzero; by default where the model's ``W_`` is.

    Attributes
    ----------
    bound_model : BoundModel
        Its records.
    theta : (K, n) ndarray
        The fitted parameters.
    w : edge array
        The weights of ``W_``.

    Raises
    ------
    OptionError
        If the model has no graph or no records.
    """

    def __init__(self, model, what, edges=None):
        if getattr(model, "shared", False):
            raise OptionError(
                f"{what} follows the graph, but the strata of a common model share their parameters; use strat.lrsm."
            )
        check_fitted(model, what)
        if getattr(model, "_training", None) is None:
            raise OptionError(
                f"{what} needs the records of the fit, which a saved model does not keep; fit it again."
            )
        if edges is None:
            edges = EdgeList(len(model.strata_), *_ends(model.W_))
        self.model, self.theta, self.w = model, model._flat(), edges.from_matrix(model.W_)
        bound = getattr(model, "_bound", None)
        if bound is None or bound.base is not model.base or bound.graph is not model.graph:
            bound = BoundModel(model, records=model._training)
        self.bound_model = bound.on_edges(model, edges)

    def problem(self, values=None, w=None):
        """The JointProblem in theta, with hyperparameters by name and weights in place of the model's own."""
        w = self.w if w is None else w
        return self.bound_model.problem(values=values, w0=w, graph_regularizer=FixedGraph())

    def couple(self, i, j):
        """Weights of the coordinates in the distance, on edges with ends i < j: (n,), or one row for each."""
        return coupling.on_edges(self.model.base, self.model.values, self.bound_model.prior, i, j)

    def held_out(self, validation):
        """Records that took no part in the fit, with the declared smoothing."""
        return self.bound_model.validation(validation, smooth=True)

    def linearized(self):
        """The linearised optimality conditions at the fit, polished; warns where they are not reliable."""
        found = Linearization(self.problem(), self.theta, self.w)
        found.check_fit()
        return found

    def value_of(self, name):
        """A hyperparameter's value in the fit, as an array."""
        parameter = self.model.base.hyperparameters[name]
        return np.asarray(self.model.values.get(name, parameter.value), dtype=float)


def _ends(W):
    """Ends i < j of the edges of a symmetric matrix."""
    if sp.issparse(W):
        return sp.triu(W, 1, format="coo").coords
    i, j = np.divmod(np.flatnonzero(W != 0), len(W))  # of a flat mask: several times faster than np.nonzero
    upper = i < j
    return i[upper], j[upper]
