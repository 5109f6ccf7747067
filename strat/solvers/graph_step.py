"""The graph step: the best W for given parameters."""

import numpy as np

from strat.problem import JointProblem


def graph_step(problem, theta, w=None, tol=1e-6, max_iter=1000):
    """Minimise 1/2 sum_e w_e d_e(theta) + h(w) over the weights, a convex problem.

    Parameters
    ----------
    problem : JointProblem
        Its loss and regularizer are left out.
    theta : ndarray, shape (K, n)
        The given parameters.
    w : edge array, optional
        Start; W0 by default.
    tol : float
        Tolerance of the W residual.
    max_iter : int
        Most iterations.

    Returns
    -------
    Result
        With the weights `w`; its objective is Laplacian term plus h.
    """
    from strat.solvers.mapg import MAPG

    fixed = JointProblem(
        _NoLoss(theta.shape),
        _Given(theta),
        problem.graph_regularizer,
        problem.edges,
        problem.w0,
        problem.couple,
    )
    solver = MAPG(tol=tol, max_iter=max_iter)
    return solver.run(fixed, theta, problem.w0 if w is None else w, init="W0" if w is None else "given")


class _NoLoss:
    """Loss that is zero."""

    def __init__(self, shape):
        self.n, self._zeros, self._zero = shape[1], np.zeros(shape), np.zeros(shape[0])

    def has(self, name):
        """Whether the oracle exists."""
        return name in ("value", "value_and_gradient")

    def value(self, theta):
        """Zero for every stratum."""
        return self._zero

    def value_and_gradient(self, theta):
        """Zeros."""
        return self._zero, self._zeros


class _Given:
    """Constraint that theta is the given one."""

    def __init__(self, theta):
        self.theta = theta

    def has(self, name):
        """Whether the oracle exists."""
        return name in ("value", "prox")

    def value(self, theta):
        """Zero for every stratum."""
        return np.zeros(len(self.theta))

    def prox(self, v, t):
        """The given parameters."""
        return self.theta.copy()
