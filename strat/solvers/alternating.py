"""Alternating minimization: the best parameters for the graph, the best graph for the parameters, and so on."""

from strat.solvers import edge
from strat.solvers.base import Solver
from strat.solvers.block_descent import BlockDescent


class AlternatingMinimization(Solver, max_iter=1000):
    """Exact minimization over theta and over W in turn.

    One iteration fits the Laplacian regularised stratified model for the current graph, from the current parameters
    (proximal Newton steps; MAPG for a loss without second derivatives; cone programs where the loss has kinks or the
    regularizer no prox in closed form),
    and then takes the graph that is best for these parameters: exactly for ``LogDiagonal``, ``TraceConstraint`` and
    ``Entropy``, to the same tolerance for ``LogDet``. The objective never rises, and the fit stops on the same residual
    as ``MAPG``; with cone programs, in theta, on that of ``Cone``.

    Parameters
    ----------
    tol : float
        Stop when both residuals (theta, W) are at most tol; 0 never stops.
    max_iter : int
        Most iterations, each one step in theta and one in W.
    {options}

    References
    ----------
    A. Beck, "On the convergence of alternating minimization for convex programming with applications to iteratively
    reweighted least squares and decomposition schemes", SIAM Journal on Optimization, 2015.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> model = strat.entropy(base, sigma=0.5, solver=strat.AlternatingMinimization())
    >>> model.fit([1.0, 1.1, 4.0], strata=["a", "b", "c"]).W_.round(2)
    array([[0.  , 0.99, 0.  ],
           [0.99, 0.  , 0.  ],
           [0.  , 0.  , 0.  ]])
    """

    edge = edge
    needs = {"loss": ("value_and_gradient", "cones"), "regularizer": "prox"}
    ways = {"loss": "Write the loss with other atoms, or smooth it (smoothing=1e-3 on the BaseModel)"}

    def _algorithm(self, problem, theta, w):
        return BlockDescent(problem, theta, w, self.tol)
