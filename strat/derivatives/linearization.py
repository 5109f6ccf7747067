"""The optimality conditions of a fit, linearised: how the fitted parameters answer small changes.

At the optimum theta of an LRSM, theta = prox(theta - t g(theta), t) with g the gradient of losses and Laplacian term.
A change q of the right-hand side moves theta by d with (I - J + t J H) d = q, where J is the prox's Jacobian and H the
Hessian of losses and Laplacian term. In the eigenvectors of J, the directions with slope 0 take d = q, and the free
ones solve the symmetric positive definite system (H + curvature of the regularizer) d = (q / (t s)) - H d_pinned.
"""

import warnings

import numpy as np

from strat.derivatives.free_system import FreeSystem
from strat.errors import ConvergenceWarning, NoOracleError
from strat.solvers.prox_slope import ProxSlope

TIGHT = 1e-13  # the polished fit's residual, relative to the terms that balance
LOOSE = 1e-8  # a larger residual is worth a warning
ROUNDS = 30


class Linearization:
    """The linearised optimality conditions of an LRSM at its optimum.

    Parameters
    ----------
    problem : JointProblem
        With a fixed graph.
    theta : (K, n) ndarray
        A fit, polished by Newton steps to rounding; the problem's weights are those of W.
    w : edge array
    polish : bool
        Whether to polish; without, the conditions are linearised at theta as it is.

    Attributes
    ----------
    theta : (K, n) ndarray
        The polished fit.
    residual : float
        Its distance from stationarity, relative to the terms that balance.
    slope : ProxSlope
        What is free, and the regularizer's curvature.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives.
    """

    def __init__(self, problem, theta, w, polish=True):
        if not problem.loss.has("hessian_operator"):
            raise NoOracleError(
                f"derivatives of a fit need a loss with second derivatives, but "
                f"{problem.loss.missing('hessian_operator')}. Smooth it: smoothing= on the BaseModel."
            )
        self.problem, self.w = problem, w
        self.degrees = problem.edges.degrees(w)
        self.theta = np.array(theta, dtype=float)
        self._system = None
        self._measure()
        q = self._linearise()
        if polish:
            self._polish(q)

    @property
    def gradient(self):
        """Gradient of losses and Laplacian term at theta, (K, n)."""
        return self._loss_gradient + self._pull

    def solve(self, b):
        """Solve (H + curvature) v = b over the free directions; v is 0 in the others.

        Parameters
        ----------
        b : (K, n) or (m, K, n) ndarray

        Returns
        -------
        ndarray
            Of the shape of b. A ConvergenceWarning says where the matrix is singular or the residual large.
        """
        return self._system.solve(b)

    def moved(self, q):
        """The change of theta that a change q of the prox's result, at a fixed argument, causes in the end.

        Parameters
        ----------
        q : (K, n) ndarray

        Returns
        -------
        (K, n) ndarray
            The change.
        """
        pinned, b = self._split(q)
        return pinned + self._system.solve(b)

    def moved_dot(self, v, b, q):
        """⟨b, moved(q)⟩ from the adjoint solution v = solve(b), without another solve."""
        pinned, rhs = self._split(q)
        return float(np.vdot(b, pinned) + np.vdot(v, rhs))

    def check_fit(self):
        """Warn where the fit could not be polished, or lies on a kink."""
        if not self.residual <= LOOSE:
            warnings.warn(
                f"the fit is not at its optimum: Newton steps left a residual of {self.residual:.1e}, so that its "
                f"derivatives are inaccurate. Fit it to a smaller tol, or give the solver more iterations.",
                ConvergenceWarning,
                stacklevel=4,
            )
        kinks = int(self.slope.kinks.sum())
        if kinks:
            warnings.warn(
                f"the fit lies on a kink of the regularizer in {kinks} strata: the derivatives there are those of one "
                f"side, or between both sides.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _split(self, q):
        """The part of q that pinned directions take, and the right-hand side of the free ones."""
        slope = self.slope
        a = slope.into(q)
        pinned = slope.back(np.where(slope.free, 0.0, a))
        rhs = np.where(slope.free, a / np.where(slope.free, slope.slope, 1.0) / self.t[:, None], 0.0)
        return pinned, slope.back(rhs) - self._system.hessian(pinned)

    def _measure(self):
        """Gradients at theta, and whether they are finite."""
        problem = self.problem
        value, self._loss_gradient = problem.loss.value_and_gradient(self.theta)
        self._pull = problem.laplacian(self.w, self.theta, self.degrees)
        return bool(np.isfinite(value).all() and np.isfinite(self._loss_gradient).all())

    def _step(self):
        """The prox-gradient step q from theta, its argument v, and its size relative to the terms that balance."""
        v = self.theta - self.t[:, None] * self.gradient
        q = self.problem.prox(v, self.t) - self.theta
        size = 1 + max(np.linalg.norm(self._loss_gradient), np.linalg.norm(self._pull))
        return q, v, float(np.linalg.norm(q / self.t[:, None]) / size)

    def _linearise(self):
        blocks = hessian_blocks(self.problem.loss, self.theta)
        mean = np.maximum(np.einsum("kaa->k", blocks) / blocks.shape[1], 0.0) + self.degrees
        self.t = 1 / np.maximum(mean, 1e-3 * mean.mean() + 1e-12)
        # A prox that moves little is curved: its slope is exact for a step of that curvature's size.
        for _ in range(3):
            q, v, self.residual = self._step()
            slope = ProxSlope(self.problem.regularizer.prox, v, self.t)
            least = np.where(slope.free, slope.slope, 1.0).min(axis=1)
            if np.all(least > 0.05):
                break
            self.t = self.t * np.where(least > 0.05, 1.0, 2 * least)
        last = self._system
        if last is None or not (self.problem.loss.quadratic and slope.equals(last.slope)):
            self._system = FreeSystem(self.problem, self.w, self.degrees, blocks, slope, last)
        self.slope = self._system.slope
        return q

    def _polish(self, q):
        """Newton steps, each kept where the residual falls; q is the prox-gradient step at theta."""
        for _ in range(ROUNDS):
            if self.residual <= TIGHT:
                break
            theta, residual = self.theta, self.residual
            pinned, b = self._split(q)
            step = pinned + self._system.solve(
                b, tolerance=max(1e-10, min(1e-2, 1e-14 / residual)), warn=False
            )
            for length in (1.0, 0.5, 0.25, 0.1, 0.02):
                self.theta = theta + length * step
                if self._measure():
                    q, _, self.residual = self._step()
                    if self.residual < residual:
                        break
            else:
                self.theta, self.residual = theta, residual
                self._measure()
                break
            tiny = np.linalg.norm(length * step) <= 1e-10 * (1e-10 + np.linalg.norm(self.theta))
            if tiny and self.residual > 0.1 * residual:
                break
            if not tiny:
                q = self._linearise()


def hessian_blocks(loss, theta):
    """Blocks (K, n, n) of the loss's Hessian at theta."""
    if loss.has("hessian"):
        return np.array(loss.hessian(theta))
    operator = loss.hessian_operator(theta)
    blocks = np.stack([operator(np.broadcast_to(e, theta.shape)) for e in np.eye(theta.shape[1])], axis=2)
    return 0.5 * (blocks + blocks.swapaxes(1, 2))
