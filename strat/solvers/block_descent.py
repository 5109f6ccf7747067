"""The iteration of AlternatingMinimization: a whole fit in theta, then a whole fit in W."""

import warnings

import numpy as np

from strat.errors import ConvergenceWarning
from strat.problem.joint_problem import Point
from strat.solvers.algorithm import Algorithm, for_given_graph
from strat.solvers.consensus import Consensus, subgradient_residual
from strat.solvers.graph_step import exact_weights, graph_step
from strat.solvers.joint_steps import JointSteps
from strat.solvers.proximal_newton import ProximalNewton

SHARE = 0.01  # tolerance of a step, relative to the residual before it
FINEST = 1e-10  # least tolerance of a step
EXACT = 1e-13  # tolerance at which a step that does not lower F is given up
INNER = 500  # most iterations of one step
INNER_ADMM = 5000  # most iterations of one step by ADMM
TINY = (
    1e-3  # the residual is relative to 1 or more, and says nothing where all gradients are smaller than this
)
FALL = 1e-4  # with such gradients, a step ends where its last iteration lowers F by less than this share
IDLE = 10  # iterations without a visible decrease of F in which the residual must halve


class BlockDescent(Algorithm):
    """Steps in theta for fixed W and in W for fixed theta, each solved to a tolerance that follows the residual.

    A step that does not lower F is not taken, so that F never rises, and the next one is solved more accurately. For a
    loss with kinks the step in theta is ADMM's, which goes on from the multipliers of the last one.
    """

    saved = ("left", "mark", "idle", "dual", "rho")

    def __init__(self, problem, theta, w, tol):
        super().__init__(problem, theta, w)
        self.smooth = problem.loss.has("value_and_gradient")
        self.finest = max(0.3 * tol, FINEST)
        self.left = self.mark = 1.0  # the larger residual of x: now, and when F was last seen to fall
        self.idle = 0
        # ADMM's multipliers (minus a subgradient of the loss) and penalty
        self.dual, self.rho = np.zeros_like(theta), 0.0
        self.z = self.new_point()

    def step(self):
        """One iteration."""
        x, z = self.x, self.z
        tol = max(self.finest, SHARE * min(self.left, 1.0))
        z.theta[...], objective = self._theta_step(tol)
        z.w[...] = self._w_step(z.theta, tol) if self.problem.learned else x.w
        noise = z.evaluate().noise
        if not z.objective <= objective + noise:  # rounding, or a W that is no better
            new, reached = z.w.copy(), z.objective
            z.w[...] = x.w
            # F is `objective` here but for rounding
            noise = max(noise, 2 * abs(z.evaluate().objective - objective))
            if reached <= objective + noise:
                z.w[...] = new
                z.evaluate()
        fall = x.objective - z.objective
        self.idle = 0 if fall > noise else self.idle + 1
        if fall >= -noise:
            z.objective = min(z.objective, x.objective)
            self.x, self.z, self.differentiated = z, x, False

    def residual(self, tol):
        """Residual of x."""
        residual = self._certificate(self.x)
        self.left = max(residual.values())
        if self.idle == 0 or (self.idle >= IDLE and self.left <= 0.5 * self.mark):
            self.mark, self.idle = self.left, 0
        self.stalled = self.idle >= IDLE
        return residual

    def certificate(self, theta, w):
        """Residual of a point that is to be returned."""
        point = Point(self.problem)
        point.theta[...], point.w[...] = theta, w
        return self._certificate(point.evaluate())

    def _certificate(self, point):
        if self.smooth:
            return point.differentiate().residual()
        problem = self.problem
        guess, t = (-self.dual, 1 / self.rho) if self.rho else (-0.5 * point.product, 1.0)
        residual = subgradient_residual(problem, point.theta, point.w, guess, t)
        return residual | {"W": point.differentiate_w().w_residual() if problem.learned else 0.0}

    def _theta_step(self, tol):
        """Parameters that are better for the graph of x, and F there."""
        x, problem = self.x, self.problem
        inner = self._inner(for_given_graph(problem, x.w), tol)
        start, before = inner.x.objective, np.inf
        for _ in range(INNER if self.smooth else INNER_ADMM):
            residual = inner.residual(tol)
            if inner.stalled:
                break
            if residual is not None and residual["theta"] <= tol and not self._moves(inner, start, before):
                if inner.x.objective <= start or tol <= EXACT:
                    break
                tol *= 0.1  # too rough to be any better
            before = inner.x.objective
            inner.step()
        self.extra_factorizations += inner.factorizations
        if not self.smooth:
            self.dual, self.rho = inner.y, inner.rho
        fall = start - inner.x.objective
        if fall >= 0:
            return inner.x.theta, x.objective - fall
        return x.theta, x.objective

    def _moves(self, inner, start, before):
        """Whether F still changes although all gradients are so small that the residual is small everywhere."""
        x = inner.x
        terms = (x.loss_gradient, x.product) if self.smooth else (inner.y, inner.z)
        if max(map(np.linalg.norm, terms)) > TINY:
            return False
        return not abs(before - x.objective) <= FALL * (abs(start - x.objective) + abs(x.objective))

    def _inner(self, fixed, tol):
        """The algorithm for theta, at the parameters of x."""
        theta, w = self.x.theta, self.x.w
        if not self.smooth:
            inner = Consensus(fixed, theta, w)
            if self.rho:
                inner.y, inner.rho = self.dual.copy(), self.rho
                inner.z = inner.x.product - inner.y
            return inner
        if fixed.loss.has("hessian_operator"):
            return ProximalNewton(fixed, theta, w, tol)
        return JointSteps(fixed, theta, w)

    def _w_step(self, theta, tol):
        """The best weights for theta."""
        problem = self.problem
        if hasattr(self.x.graph_oracle, "minimize"):
            w, iterations = exact_weights(problem, theta)
            self.extra_factorizations += iterations
            return w
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = graph_step(problem, theta, self.x.w, tol=tol, max_iter=INNER)
        self.extra_factorizations += result.factorizations
        return result.w
