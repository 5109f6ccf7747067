"""Alternating minimization: the best parameters for the graph, the best graph for the parameters, and so on."""

import warnings
from contextlib import suppress

import numpy as np

from strat.errors import ConvergenceWarning
from strat.oracles.clock import OutOfTime, seconds_left
from strat.solvers.algorithm import Algorithm, for_given_graph, needs_cones
from strat.solvers.base import Solver
from strat.solvers.cone import ConeNewton, lowers
from strat.solvers.joint_steps import JointSteps, graph_step
from strat.solvers.proximal_newton import ProximalNewton

SHARE = 0.01  # tolerance of a step, relative to the residual before it
FINEST = 1e-10  # least tolerance of a step
EXACT = 1e-13  # tolerance at which a step that does not lower F is given up
INNER = 500  # most iterations of one step
DEPTH = 5  # number of past iterations from which weights are extrapolated
ALIKE = 1e-6  # singular values in the extrapolation, relative to the largest, below which they count as 0
IDLE = 10  # iterations without a visible decrease of F in which the residual must halve


class AlternatingMinimization(Solver):
    """Exact minimization over theta and over W in turn.

    One iteration fits the Laplacian regularised stratified model for the current graph, from the current parameters
    (proximal Newton steps; MAPG for a loss without second derivatives; cone programs where the loss has kinks or the
    regularizer no prox in closed form), and then takes the graph that is best for these parameters: exactly for
    ``LogDiagonal``, ``TraceConstraint`` and ``Entropy``, to the same tolerance for ``LogDet``. Weights extrapolated from
    the last iterations (Anderson acceleration) are tried first, and kept if they lower the objective. It never rises, and
    the fit stops on the same residual as ``MAPG``; with cone programs, the residual in theta is that of ``Cone``.

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
    H. F. Walker and P. Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical Analysis, 2011.

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

    follows_edges = True
    needs = {"loss": ("value_and_gradient", "cones"), "regularizer": "prox"}
    ways = {"loss": "Write the loss with other atoms, or smooth it (smoothing=1e-3 on the BaseModel)"}

    def _algorithm(self, problem, theta, w, way=None):
        return BlockDescent(problem, theta, w, self.tol, way)


class BlockDescent(Algorithm):
    """Steps in theta for fixed W and in W for fixed theta, each solved to a tolerance that follows the residual.

    A step that does not lower F is not taken, so that F never rises, and the next one is solved more accurately. The dual
    solution of a cone program gives the residual; `cones` ("model" or "records", see `ConeNewton`) forces such programs.
    """

    saved = ("left", "mark", "idle", "subgradient", "bests", "moves", "ahead")

    def __init__(self, problem, theta, w, tol, cones=None):
        super().__init__(problem, theta, w)
        self.smooth = problem.loss.has("value_and_gradient")
        self.finest = max(0.3 * tol, FINEST)
        self.left = self.mark = 1.0  # the larger residual of x: now, and when F was last seen to fall
        self.idle = 0
        self.cones, self.by_cones = cones, bool(cones) or needs_cones(problem)
        self.program = None  # the cone program of the last step
        # A subgradient of losses, regularizer and constraints at x, where a cone program gives it.
        self.subgradient = np.full_like(theta, np.inf)
        # The best weights of the last iterations, their differences from the weights before, and the extrapolated weights.
        self.bests, self.moves = np.full((2, DEPTH, *w.shape), np.nan)
        self.ahead = np.full(w.shape, np.nan)
        self.z = self.new_point()

    def step(self):
        x, z = self.x, self.z
        tol = max(self.finest, SHARE * min(self.left, 1.0))
        ahead = self.ahead.sum() < np.inf and z.move(x.theta, self.ahead).evaluate().objective < np.inf
        for start in (z, x) if ahead else (x,):
            before, w = start.objective, start.w.copy()
            theta, objective = self._theta_step(start, tol)
            for best in (self._w_step(theta, w, tol), w) if self.problem.learned else (w,):
                noise = min(x.noise, z.move(theta, best).evaluate().noise)
                if z.objective <= objective + noise:
                    break
            lower = z.objective <= x.objective + max(objective - before, 0.0) + noise
            if lower:
                break
            self.moves[:] = np.nan
        self.idle = 0 if x.objective - z.objective > noise else self.idle + 1
        if self.problem.learned:
            self._look_ahead(w, best)
        if lower:
            z.objective = min(z.objective, x.objective)
            self.x, self.z, self.differentiated = z, x, False

    def residual(self, tol):
        residual = self._certificate(self.x)
        self.left = max(residual.values())
        if self.idle == 0 or (self.idle >= IDLE and self.left < 0.5 * self.mark):
            self.mark, self.idle = self.left, 0
        self.stalled = self.idle >= IDLE
        return residual

    def certificate(self, theta, w):
        return self._certificate(self.problem.point(theta, w))

    def _certificate(self, point):
        """The residual of F; with cone programs ||subgradient + G(W) theta|| over 1 + max(||subgradient||, ||G(W) theta||)."""
        if not self.by_cones:
            return point.differentiate().residual()
        error = self.subgradient + point.product
        left, size = np.linalg.norm(error), 1 + max(map(np.linalg.norm, (self.subgradient, point.product)))
        share = float(left / size) if left < np.inf else np.inf
        if left < np.inf and (self.cones == "records" or not self.smooth):
            share = min(share, lowers(error, point))
        return {"theta": share, "W": point.differentiate_w().w_residual()}

    def _theta_step(self, x, tol):
        """Parameters that lower F for the graph of a point x, or equal it up to a cone program's gap, and F there."""
        fixed = for_given_graph(self.problem, x.w)
        if self.by_cones:
            inner = ConeNewton(fixed, x, x.w, self.cones, program=self.program, left=self.left)
            self.program = inner.program
        elif fixed.loss.has("hessian_operator"):
            inner = ProximalNewton(fixed, x, x.w, tol)
        else:
            inner = JointSteps(fixed, x, x.w)
        start, self.slow, self.endless = inner.x.objective, True, False
        for _ in range(INNER):
            residual = inner.residual(tol)
            if inner.stalled or seconds_left() <= 0:
                break
            if residual is not None and residual["theta"] <= tol:
                if inner.x.objective <= start or tol <= EXACT:
                    self.slow = False
                    break
                tol *= 0.1  # solved too roughly to lower F
            if self.by_cones and inner.exact:  # the next program would be the same
                self.slow = False
                break
            with suppress(OutOfTime):  # the point reached so far is kept, and the loop ends
                inner.step()
        else:
            self.endless = True
        self.extra_factorizations += inner.factorizations
        if self.by_cones and inner.subgradient is not None:
            self.subgradient = inner.subgradient
        fall = start - inner.x.objective
        if fall >= 0 or inner.exact:
            return inner.x.theta, x.objective - fall
        return x.theta, x.objective

    def _look_ahead(self, w, best):
        """Extrapolate the best weights for the next iteration (Anderson acceleration), after one that led from w to best.

        ahead = best - sum_i c_i (best - best_i), over the last iterations i, with the c that minimise
        ||move - sum_i c_i (move - move_i)||, move = best - w.
        """
        move, known = best - w, np.isfinite(self.moves).all(axis=1)
        turns, changes = move - self.moves[known], best - self.bests[known]
        c = np.linalg.lstsq(turns.T, move, rcond=ALIKE)[0]
        self.ahead = np.maximum(best - c @ changes, 0.0) if known.any() else np.full(w.shape, np.nan)
        self.bests, self.moves = np.vstack([best, self.bests[:-1]]), np.vstack([move, self.moves[:-1]])

    def _w_step(self, theta, start, tol):
        """The best weights for theta."""
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            result = graph_step(self.problem, theta, start, tol=tol, max_iter=INNER)
        self.extra_factorizations += result.factorizations
        return result.w
