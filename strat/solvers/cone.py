"""Cone: any convex regularizer and constraints on a given graph, by one cone program for all strata."""

from strat.errors import OptionError
from strat.solvers.base import Solver
from strat.solvers.cone_newton import ConeNewton


class Cone(Solver):
    """Proximal Newton method on a given graph whose steps are cone programs of all strata, solved by Clarabel.

    It needs no prox: the regularizer and the constraints enter as the cone program that CVXPY writes for one stratum,
    repeated for all, the graph as its Laplacian. Quadratic losses enter as they are and take one program; other losses with
    second derivatives enter as their quadratic model, with steps that lower the objective; losses with kinks bring a cone
    program of each record and take one program, too. It is the default where a regularizer or constraint has no prox in
    closed form.

    Parameters
    ----------
    tol : float
        Stop when the residual in theta is at most tol; 0 never stops.
    max_iter : int
        Most iterations.
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

    Notes
    -----
    The dual solution of a program gives a subgradient u of the regularizer and constraints at theta. The residual is
    ||grad loss(theta) + G(W) theta + u|| over 1 + max(||grad loss||, ||G(W) theta||), a bound on that of other solvers; where
    the loss has no gradient, u holds one of its subgradients too, and the gap between the primal and the dual objective
    counts as well.

    References
    ----------
    P. J. Goulart and Y. Chen, "Clarabel: an interior-point solver for conic programs with quadratic objectives", 2024.
    J. D. Lee, Y. Sun and M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM
    Journal on Optimization, 2014.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> w, y = cp.Variable(3, name="w"), cp.Parameter(3, name="y")
    >>> base = strat.BaseModel(cp.sum_squares(y - w), cp.max(w) - cp.min(w), [cp.norm(w, 2) <= 1], data=(y,))
    >>> model = strat.lrsm(base, strat.graphs.path(2), solver=strat.Cone())
    >>> model.fit([[3.0, 0.0, 0.0], [0.0, 2.0, 2.0]], strata=[0, 1]).theta_["w"].round(3)
    """

    needs = {"loss": ("hessian_operator", "cones"), "regularizer": "cones"}

    def __init__(
        self,
        *,
        tol=1e-6,
        max_iter=100,
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

    def check(self, problem):
        """Check that the graph is given, and that the problem has the oracles that the solver needs.

        Parameters
        ----------
        problem : JointProblem
            The problem.

        Raises
        ------
        OptionError
            If the graph is to be learned.
        NoOracleError
            If an oracle is missing.
        """
        if problem.learned:
            raise OptionError(
                f"solver: Cone fits theta for a given graph (FixedGraph), but {problem.graph_regularizer!r} learns W. "
                f"Use strat.MAPG() or strat.AlternatingMinimization()."
            )
        super().check(problem)

    def algorithm(self, problem, theta, w):
        """Make the iteration that `run` drives.

        Parameters
        ----------
        problem : JointProblem
            The problem.
        theta : ndarray, shape (K, n)
            Parameters to start from.
        w : edge array
            Weights of the graph.

        Returns
        -------
        Algorithm
            The iteration, at its start.
        """
        return ConeNewton(problem, theta, w)
