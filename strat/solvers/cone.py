"""Cone: any convex regularizer and constraints on a given graph, by one cone program for all strata."""

from strat.solvers import edge
from strat.solvers.base import Solver
from strat.solvers.cone_newton import ConeNewton


class Cone(Solver, max_iter=100):
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
    {options}

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
    array([[0.956, 0.208, 0.208],
           [0.349, 0.663, 0.663]])
    """

    edge = edge
    needs = {"loss": ("hessian_operator", "cones"), "regularizer": "cones"}
    only_given = (
        "solver: Cone fits theta for a given graph (FixedGraph), but {h} learns W. Use strat.MAPG() or "
        "strat.AlternatingMinimization()."
    )

    def _algorithm(self, problem, theta, w):
        return ConeNewton(problem, theta, w)
