"""NewtonCG: a proximal Newton method for a given graph."""

from strat.solvers.algorithm import needs_cones
from strat.solvers.base import Solver
from strat.solvers.cone import ConeNewton
from strat.solvers.proximal_newton import ProximalNewton


class NewtonCG(Solver, max_iter=500):
    """Proximal Newton method in theta for a given graph: the fast solver of the Laplacian regularised stratified model.

    Every iteration takes a proximal gradient step, which settles what the regularizer and the constraints hold fixed
    (zeros of an l1 norm, active bounds, groups), and then a Newton step in the free directions; with a ridge alone
    there is nothing to settle, and the Newton step is all of it. The Newton equations
    are solved by conjugate gradients, preconditioned by a sparse factor of the graph's Laplacian plus the strata's
    mean curvature, or by the strata's blocks where edges are weak; on a chain and other narrow graphs by one banded
    factor; strata that nothing couples are solved directly. The objective never rises. Least squares without a nonsmooth
    regularizer takes one or two steps; smoothed kinks (pinball, hinge) with a quadratic regularizer take an
    interior point method for its first. Where the regularizer has no prox in closed form, every step is a cone program, as
    those of ``Cone``.

    Parameters
    ----------
    tol : float
        Stop when the residual in theta is at most tol; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    References
    ----------
    J. D. Lee, Y. Sun and M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM
    Journal on Optimization, 2014. S. Mehrotra, "On the implementation of a primal-dual interior point method", the same
    journal, 1992.

    Examples
    --------
    >>> from strat.solvers import NewtonCG
    >>> NewtonCG(tol=1e-8)
    NewtonCG(tol=1e-08)
    """

    follows_edges = True
    needs = {"loss": "hessian_operator", "regularizer": "prox"}
    ways = {
        "loss": (
            "Use strat.Cone(), which takes losses with kinks as they are, or strat.MAPG(), which needs a gradient alone; "
            "or smooth the loss (smoothing= on the BaseModel)"
        )
    }

    only_given = (
        "solver: NewtonCG fits theta for a given graph (FixedGraph), but {h} learns W. "
        "Use strat.MAPG(), which fits both and takes Newton steps in theta, too."
    )

    def _algorithm(self, problem, theta, w, whole=False):
        if whole or needs_cones(problem):
            return ConeNewton(problem, theta, w, whole=whole)
        return ProximalNewton(problem, theta, w, self.tol)
