"""The graph step: the best W for given parameters."""

import time

import numpy as np

from strat.problem import JointProblem
from strat.solvers.result import Result


def graph_step(problem, theta, w=None, tol=1e-6, max_iter=1000):
    """Minimise 1/2 sum_e w_e d_e(theta) + h(w) over the weights, a convex problem.

    Parameters
    ----------
    problem : JointProblem
        Its loss and regularizer are left out.
    theta : ndarray, shape (K, n)
        The given parameters.
    w : edge array, optional
        Start; W0 by default. Not used where h has an exact step.
    tol : float
        Tolerance of the W residual.
    max_iter : int
        Most iterations.

    Returns
    -------
    Result
        With the weights `w`; its objective is Laplacian term plus h.
    """
    h = problem.graph_regularizer
    fixed = JointProblem(
        _NoLoss(theta.shape),
        _Given(theta),
        h,
        problem.edges,
        problem.w0,
        problem.couple,
        problem.outside,
    )
    if hasattr(fixed.graph_slot(), "minimize"):
        return _exact(fixed, theta, tol)
    from strat.solvers.mapg import MAPG

    solver = MAPG(tol=tol, max_iter=max_iter)
    return solver.run(fixed, theta, problem.w0 if w is None else w, init="W0" if w is None else "given")


def exact_weights(problem, theta):
    """Weights of the exact graph step and its Newton iterations, for an h that has one."""
    edges = problem.edges
    return problem.graph_slot().minimize(edges.from_vector(edges.distances(problem.scaled(theta)) / 2))


def _exact(fixed, theta, tol):
    started = time.perf_counter()
    w, iterations = exact_weights(fixed, theta)
    seconds = time.perf_counter() - started
    parts, residual = fixed.parts(theta, w), fixed.residual(theta, w)
    objective = sum(parts.values())
    return Result(
        status="converged" if max(residual.values()) <= tol else "max_iter",
        iterations=iterations,
        objective=objective,
        parts=parts,
        residual=residual,
        history=[objective],
        seconds=seconds,
        factorizations=iterations,
        init="exact",
        theta=theta,
        w=w,
    )


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
