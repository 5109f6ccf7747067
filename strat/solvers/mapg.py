"""MAPG: monotone accelerated proximal gradient for the joint problem."""

from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from strat.problem.joint_problem import PROJECTION
from strat.solvers.algorithm import Algorithm, needs_cones
from strat.solvers.alternating import BlockDescent
from strat.solvers.base import Solver
from strat.solvers.cone import ConeNewton
from strat.solvers.joint_steps import DENSE, JointSteps


def _is_step(step):
    pair = isinstance(step, (tuple, list)) and len(step) == 2
    return step is None or (pair and all(isinstance(a, Real) and 0 < a < float("inf") for a in step))


@dataclass(kw_only=True, eq=False, repr=False)
class MAPG(Solver):
    """Monotone accelerated proximal gradient in parameters and edge weights together.

    Without `step` it finds its own steps, never raises the objective, and takes a Newton step in theta every few
    iterations where the loss has second derivatives. Where theta nevertheless stays far behind W, and where the
    regularizer has no prox in closed form and the graph is not dense, it fits theta and W in turn, as
    ``AlternatingMinimization`` does. With ``step=(alpha_x, alpha_y)`` it is Algorithm 1 of the paper, verbatim.

    Parameters
    ----------
    step : tuple of two floats, optional
        The paper's fixed steps: alpha_x of the step from x, alpha_y of the step from the extrapolated point.
    tol : float
        Stop when both residuals (theta, W) are at most tol; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    References
    ----------
    H. Li and Z. Lin, "Accelerated proximal gradient methods for nonconvex programming", NeurIPS 2015.

    Examples
    --------
    >>> from strat.solvers import MAPG
    >>> MAPG(step=(1e-3, 1e-4), max_iter=100)
    MAPG(max_iter=100, step=(0.001, 0.0001))
    """

    step: Any = field(default=None, kw_only=False)
    max_iter: int = 5000
    follows_edges = True
    _ranges = {**Solver._ranges, "step": ("two numbers (alpha_x, alpha_y) above 0, or None", _is_step)}
    needs = {"loss": "value_and_gradient", "regularizer": "prox"}

    def _algorithm(self, problem, theta, w, way=None):
        if self.step is not None and not way:
            return FixedSteps(problem, theta, w, self.step)
        if way == "turns":
            return BlockDescent(problem, theta, w, self.tol)
        dense = problem.loss.has("value_and_gradient") and problem.edges.count > DENSE * problem.K
        if not way and (not needs_cones(problem) or (problem.learned and dense)):
            return JointSteps(problem, theta, w, self.tol)
        if problem.learned:
            return BlockDescent(problem, theta, w, self.tol, way)
        return ConeNewton(problem, theta, w, way)


class FixedSteps(Algorithm):
    """Monotone accelerated proximal gradient with the steps (alpha_x, alpha_y).

    y = x + (t_/t)(z - x) + ((t_ - 1)/t)(x - x_), z = prox(y - alpha_y grad f(y)), v = prox(x - alpha_x grad f(x)),
    and the next x is whichever of z, v has the smaller objective. The paper's alpha moves an edge weight by alpha / 2,
    as it counts every edge twice. Where the extrapolated y is outside the domain (mu I + G(W) not positive definite, a
    loss that is not finite), it is projected onto W >= 0 and the constraints on theta; if that does not help, y is x.
    """

    monotone = False
    saved = ("theta_", "w_", "z_theta", "z_w", "t_", "t")

    def __init__(self, problem, theta, w, step):
        super().__init__(problem, theta, w)
        self.alpha_x, self.alpha_y = step
        self.y, self.z, self.v = (self.new_point() for _ in range(3))
        self.theta_, self.w_ = self.x.theta.copy(), self.x.w.copy()  # the iterate before x
        self.z_theta, self.z_w = self.x.theta.copy(), self.x.w.copy()
        self.t_, self.t = 0.0, 1.0

    def step(self):
        x, y, a, b = self.x, self.y, self.t_ / self.t, (self.t_ - 1) / self.t
        np.copyto(y.theta, x.theta + a * (self.z_theta - x.theta) + b * (x.theta - self.theta_))
        np.copyto(y.w, x.w + a * (self.z_w - x.w) + b * (x.w - self.w_))
        self.differentiate_x()
        base = y if self._evaluate(y) else x
        self._prox_step(base, self.alpha_y, self.z)
        self._prox_step(x, self.alpha_x, self.v)
        self.t_, self.t = self.t, (1 + np.sqrt(1 + 4 * self.t**2)) / 2
        self.theta_[...], self.w_[...] = x.theta, x.w
        self.z_theta[...], self.z_w[...] = self.z.theta, self.z.w
        if self.z.objective <= self.v.objective:
            self.x, self.z = self.z, x
        else:
            self.x, self.v = self.v, x
        self.differentiated = False
        self.diverged = not self.x.objective < np.inf

    def residual(self, tol):
        return None if self.diverged else super().residual(tol)

    def _evaluate(self, y):
        if y.evaluate_smooth(gradient=True) < np.inf:
            return True
        y.theta[...] = self.problem.project(y.theta)
        if self.problem.learned:
            y.graph_oracle.prox(y.w, PROJECTION, out=y.w)
        return y.evaluate_smooth(gradient=True) < np.inf

    def _prox_step(self, base, alpha, target):
        problem = self.problem
        target.theta[...] = problem.prox(base.theta - alpha * base.theta_gradient, alpha)
        if problem.learned:
            np.subtract(base.w, alpha / 2 * base.w_gradient, out=target.w)
            target.graph_oracle.prox(target.w, alpha / 2, out=target.w)
        target.evaluate()
