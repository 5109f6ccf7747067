"""The iteration of AlternatingMinimization: a whole fit in theta, then a whole fit in W."""

import warnings

from strat.errors import ConvergenceWarning
from strat.graph_regularizers import FixedGraph
from strat.problem import JointProblem
from strat.solvers.algorithm import Algorithm
from strat.solvers.automatic import Automatic
from strat.solvers.graph_step import exact_weights, graph_step
from strat.solvers.proximal_newton import ProximalNewton

SHARE = 0.01  # of the residual before a step is what it may leave
FINEST = 1e-10  # least tolerance of a step
INNER = 500  # most iterations of one step
IDLE = 10  # iterations whose decrease rounding hides, in which the residual must halve


class BlockDescent(Algorithm):
    """Steps in theta for fixed W and in W for fixed theta, each solved to a tolerance that follows the residual.

    A step that does not lower F is not taken, so that F never rises, and the next one is solved more accurately.
    """

    saved = ("left", "mark", "accuracy", "idle")

    def __init__(self, problem, theta, w, tol):
        super().__init__(problem, theta, w)
        self.finest = max(0.3 * tol, FINEST)
        self.left = self.mark = 1.0  # the larger residual of x: now, and when F was last seen to fall
        self.accuracy, self.idle = SHARE, 0
        self.z = self.new_point()

    def step(self):
        """One iteration."""
        x, z = self.x, self.z
        tol = max(self.finest, self.accuracy * self.left)
        z.theta[...], objective = self._theta_step(tol)
        z.w[...] = self._w_step(z.theta, tol) if self.problem.learned else x.w
        z.evaluate()
        if not z.objective <= objective + z.noise:  # rounding, or a W that is no better
            z.w[...] = x.w
            z.evaluate()
        fall = x.objective - z.objective
        self.idle = 0 if fall > z.noise else self.idle + 1
        if fall >= -z.noise:
            z.objective = min(z.objective, x.objective)
            self.x, self.z, self.differentiated = z, x, False
        else:
            self.accuracy *= 0.1

    def residual(self, tol):
        """Residual of x."""
        residual = self.differentiate_x().residual()
        self.left = max(residual.values())
        if self.idle == 0 or (self.idle >= IDLE and self.left <= 0.5 * self.mark):
            self.mark, self.idle = self.left, 0
        self.stalled = self.idle >= IDLE
        return residual

    def _theta_step(self, tol):
        """Parameters that are better for the graph of x, and F there."""
        x, problem = self.x, self.problem
        fixed = JointProblem(
            problem.loss, problem.regularizer, FixedGraph(), problem.edges, x.w, problem.couple
        )
        if problem.loss.has("hessian_operator"):
            inner = ProximalNewton(fixed, x.theta, x.w, tol)
        else:
            inner = Automatic(fixed, x.theta, x.w)
        start = inner.x.objective
        for _ in range(INNER):
            residual = inner.residual(tol)
            if inner.stalled or (residual is not None and residual["theta"] <= tol):
                break
            inner.step()
        self.extra_factorizations += inner.factorizations
        fall = start - inner.x.objective
        return (inner.x.theta, x.objective - fall) if fall >= 0 else (x.theta, x.objective)

    def _w_step(self, theta, tol):
        """The best weights for theta."""
        problem = self.problem
        if hasattr(self.x.graph_slot, "minimize"):
            w, iterations = exact_weights(problem, theta)
            self.extra_factorizations += iterations
            return w
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = graph_step(problem, theta, self.x.w, tol=tol, max_iter=INNER)
        self.extra_factorizations += result.factorizations
        return result.w
