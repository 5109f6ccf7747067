"""ADMM: a given graph, and any loss with a prox."""

from strat.solvers.base import Solver
from strat.solvers.consensus import Consensus


class ADMM(Solver, max_iter=10000):
    """Alternating direction method of multipliers for a given graph, with exact proxes of loss and regularizer.

    It needs no gradient: pinball, absolute, hinge and epsilon-insensitive losses are fitted as they are. Loss,
    regularizer and graph each have a copy of the parameters; the copies are brought to agree. Penalty, relaxation and
    factorisations look after themselves. The returned point is the regularizer's copy, on which bounds, symmetry,
    cones and constraints hold exactly; the objective in the history belongs to it, and may rise on the way.

    The fit has converged when the relative primal and dual residuals and the reported one are at most `tol`. The
    reported residual is that of every solver where the loss has a gradient. Where it has none, a subgradient takes its
    place, and the residual bounds the gap to the optimum too: see Notes.

    Parameters
    ----------
    tol : float
        Relative and absolute tolerance of the residuals; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    Notes
    -----
    For a loss without a gradient, one prox gives a point theta' next to the returned theta and a subgradient g of the
    loss there. ``result_.residual["theta"]`` is the larger of ||theta - prox_r(theta - g - G(W) theta)|| /
    (1 + max(||g||, ||G(W) theta||)) and (loss(theta) - loss(theta') - <g, theta - theta'>) / (1 + abs(objective)).

    References
    ----------
    J. Tuck, S. Barratt and S. Boyd, "A distributed method for fitting Laplacian regularized stratified models",
    Journal of Machine Learning Research, 2021.

    S. Boyd, N. Parikh, E. Chu, B. Peleato and J. Eckstein, "Distributed optimization and statistical learning via the
    alternating direction method of multipliers", Foundations and Trends in Machine Learning, 2011.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> q, y = cp.Variable(name="q"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.maximum(0.9 * (y - q), 0.1 * (q - y)), data=(y,))  # the 0.9 quantile
    >>> model = strat.lrsm(base, strat.graphs.path(2, weight=0.1), solver=strat.ADMM(tol=1e-8))
    >>> model.fit([1.0, 2.0, 3.0, 5.0, 9.0], strata=[0, 0, 0, 1, 1]).theta_["q"].round(3)
    array([6., 9.])
    """

    needs = {"loss": "prox", "regularizer": "prox"}
    ways = {
        "loss": (
            "Write the loss as one function with a known prox, or give the default solver a gradient: smoothing=1e-3 on "
            "the BaseModel rounds the kinks of numbers and of cp.norm(u, 2); for a maximum of several numbers write "
            "d * cp.log_sum_exp(u / d) with a small d"
        )
    }

    only_given = (
        "ADMM fits a given graph, but {h} learns it. "
        "Use strat.AlternatingMinimization() or the default solver, strat.MAPG(); or give strat.FixedGraph()."
    )

    def _algorithm(self, problem, theta, w):
        return Consensus(problem, theta, w)
