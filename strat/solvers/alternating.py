"""Alternating minimization: the best parameters for the graph, the best graph for the parameters, and so on."""

from strat.solvers.base import Solver
from strat.solvers.block_descent import BlockDescent


class AlternatingMinimization(Solver):
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
    patience : int, optional
        Stop when the validation loss has not improved for so many iterations, and return the best iterate.
    time_limit : float, optional
        Stop after so many seconds.
    callback : callable, optional
        Called as ``callback(state)`` after every iteration; returning True stops.
    checkpoint : path, optional
        File from which an interrupted fit of the same problem goes on; it is removed when the fit is done.
    verbose : bool
        Report progress through ``logging.getLogger("strat")``, and as a bar on a terminal.

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

    needs = {"loss": ("value_and_gradient", "cones"), "regularizer": "prox"}
    ways = {
        "loss": "Write the loss as one function with a known prox, or smooth it (smoothing=1e-3 on the BaseModel)"
    }

    def __init__(
        self,
        *,
        tol=1e-6,
        max_iter=1000,
        patience=None,
        time_limit=None,
        callback=None,
        checkpoint=None,
        verbose=False,
    ):
        self.tol = tol
        self.max_iter = max_iter
        self.patience = patience
        self.time_limit = time_limit
        self.callback = callback
        self.checkpoint = checkpoint
        self.verbose = verbose

    def algorithm(self, problem, theta, w):
        """Make the iteration that `run` drives.

        Parameters
        ----------
        problem : JointProblem
            The problem.
        theta : ndarray, shape (K, n)
            Parameters to start from.
        w : edge array
            Weights to start from.

        Returns
        -------
        Algorithm
            The iteration, at its start.
        """
        return BlockDescent(problem, theta, w, self.tol)
