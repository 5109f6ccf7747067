"""The optimality conditions of a fit, linearised: how the fitted parameters answer small changes.

At the optimum of an LRSM, theta = prox(theta − t g(theta), t), with g the gradient of losses and Laplacian term and prox
that of the regularizer and the constraints. With J the Jacobian of prox and H the Hessian of losses and Laplacian term, a
change q of the right-hand side moves theta by d, where

    (I − J + t J H) d = q.

Directions with eigenvalue 0 of J are held fixed: there d = q. In the free ones J = (I + t C)⁻¹, C being the regularizer's
curvature, and with d_fixed the fixed part of q the rest of d solves the symmetric positive definite system

    (H + C) d_free = (C + I/t) q_free − H d_fixed.

All of it is done in the units of a fit (see `Units`): theta = unit · s, and the objective in units of its worth.
"""

import numpy as np

from strat.derivatives.reduced_hessian import ReducedHessian
from strat.errors import NoOracleError
from strat.oracles.base import hessian_blocks
from strat.solvers.newton_system import NewtonSystem
from strat.solvers.prox_slope import ProxSlope
from strat.solvers.units import Units

TIGHT = 1e-13  # the polished fit's residual, relative to the terms that balance
ROUNDS = 30


class Linearization:
    """The linearised optimality conditions of an LRSM at its optimum.

    `theta` (K, n) is a fit of a JointProblem with a fixed graph for the weights w; with `polish`, Newton steps first improve
    it up to rounding. `residual` is its distance from stationarity, relative to the terms that balance, `slope` the
    Jacobian J, and `hessian` H + C on the free directions, in the units of `units`.
    """

    def __init__(self, problem, theta, w, polish=True):
        if not problem.loss.has("hessian_operator"):
            raise NoOracleError(
                f"derivatives and standard errors of a fit need second derivatives of the loss, but "
                f"{problem.loss.missing('hessian_operator')}. Smooth it: smoothing= on the BaseModel."
            )
        theta = np.array(theta, dtype=float)
        self.problem, self.w, self.degrees = problem, w, problem.edges.degrees(w)
        self.units = Units(problem, theta)
        self._problem, self._theta = self.units.problem, self.units.inside(theta)
        self._laplacians = self._problem.laplacians(w, self.degrees)
        self._newton = NewtonSystem(self._problem, w, self.degrees)
        self._evaluate()
        step = self._linearize()
        if polish:
            self._polish(step)

    @property
    def theta(self):
        """The polished fit, (K, n)."""
        return self.units.outside(self._theta)

    @property
    def _argument(self):
        """The prox's argument theta − t g(theta)."""
        return self._theta - self._t[:, None] * self._gradient

    def solve(self, b):
        """Solve (H + C) v = b, (K, n) or (m, K, n), over the free directions; v is 0 in the others.

        A ConvergenceWarning says where the matrix is singular or the residual large.
        """
        unit = self.units.unit
        return unit * self.hessian.solve(unit * b) / self.units.worth

    def change(self, problem, v, b):
        """⟨b, d⟩ for the change d of theta, to first order, from this problem to one near it, v being solve(b).

        It is −⟨v, g(theta)⟩ of that problem, plus what follows from its prox.
        """
        gradient = problem.loss.value_and_gradient(self.theta)[1]
        gradient = gradient + problem.laplacian(self.w, self.theta, self.degrees)
        prox = problem.prox(self.units.outside(self._argument), self.units.steps(self._t))
        fixed, right = self._split(self.units.inside(prox) - self._theta)
        unit, worth = self.units.unit, self.units.worth
        return float(np.vdot(unit * b, fixed) + worth * np.vdot(v / unit, right) - np.vdot(v, gradient))

    def _split(self, q):
        """d_fixed, and the right-hand side of the free system."""
        free = self.hessian.free
        q_free = free.project(q)
        fixed = q - q_free
        right = free.bend(q_free) + q_free / self._t[:, None] - self.hessian.times(fixed)
        return fixed, free.project(right)

    def _evaluate(self):
        """Take the gradient at theta; return whether it is finite."""
        value, of_loss = self._problem.loss.value_and_gradient(self._theta)
        of_laplacian = self._problem.laplacian(self.w, self._theta, self.degrees)
        self._gradient = of_loss + of_laplacian
        self._size = 1 + max(np.linalg.norm(of_loss), np.linalg.norm(of_laplacian))
        return bool(np.isfinite(value).all() and np.isfinite(of_loss).all())

    def _prox_step(self):
        """The prox-gradient step from theta; sets the residual."""
        step = self._problem.prox(self._argument, self._t) - self._theta
        self.residual = float(np.linalg.norm(step / self._t[:, None]) / self._size)
        return step

    def _linearize(self):
        """Take the Hessian and the prox's Jacobian at theta; return the prox-gradient step."""
        blocks = hessian_blocks(self._problem.loss, self._theta)
        mean = np.maximum(np.einsum("kaa->k", blocks) / blocks.shape[1], 0.0)
        mean = mean + self._laplacians.degrees.mean(axis=1)
        self._t = 1 / np.maximum(mean, 1e-3 * mean.mean() + 1e-12)
        step = self._prox_step()
        slope = ProxSlope(self._problem.regularizer.prox, self._argument, self._t)
        self.slope = slope
        self.hessian = ReducedHessian(self._newton, self._laplacians, blocks, slope)
        return step

    def _polish(self, step):
        """Newton steps, each taken where the residual falls; `step` is the prox-gradient step at theta."""
        for _ in range(ROUNDS):
            if self.residual <= TIGHT:
                return
            theta, residual = self._theta, self.residual
            fixed, b = self._split(step)
            tolerance = max(1e-10, min(1e-2, 1e-14 / residual))
            newton = fixed + self.hessian.solve(b, tolerance, warn=False)
            for length in (1.0, 0.5, 0.25, 0.1, 0.02):
                self._theta = theta + length * newton
                if self._evaluate():
                    step = self._prox_step()
                    if self.residual < residual:
                        break
            else:
                self._theta, self.residual = theta, residual
                self._evaluate()
                return
            near = np.linalg.norm(length * newton) <= 1e-10 * (1e-10 + np.linalg.norm(self._theta))
            if near or (self._problem.loss.quadratic and self.residual <= TIGHT):
                return  # the linearisation before the step serves
            step = self._linearize()
