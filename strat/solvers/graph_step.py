"""The graph step: the best W for given parameters."""

import time

import numpy as np

from strat.problem.joint_problem import JointProblem
from strat.solvers.base import Solver
from strat.solvers.joint_steps import JointSteps
from strat.solvers.result import Result


def graph_step(problem, theta, w=None, tol=1e-6, max_iter=1000):
    """Minimise 1/2 sum_e w_e d_e(theta) + h(w) over the weights, a convex problem; return a Result.

    Loss and regularizer of the problem are left out. `w` is the start, W0 by default; it is not used where h has an exact
    step. `tol` is that of the W residual. The objective is the Laplacian term plus h.
    """
    given, h = _Given(theta), problem.graph_regularizer
    fixed = JointProblem(given, given, h, problem.edges, problem.w0, problem.couple, problem.outside)
    if not hasattr(problem.graph_oracle(), "minimize"):
        start, init = (problem.w0, "W0") if w is None else (w, "given")
        return GraphSteps(tol=tol, max_iter=max_iter)._run(fixed, theta, start, init=init)
    started = time.perf_counter()
    w, iterations = exact_weights(problem, theta)
    point = fixed.point(theta, w).differentiate()
    residual = {"theta": 0.0, "W": point.w_residual()}
    status, parts = "converged" if residual["W"] <= tol else "max_iter", fixed.parts(theta, w)
    found = {"residual": residual, "history": [point.objective], "init": "exact", "theta": theta, "w": w}
    work = {"seconds": time.perf_counter() - started, "factorizations": iterations}
    return Result(status, iterations, point.objective, parts, **found, **work)


class GraphSteps(Solver, max_iter=1000):
    """The steps of ``MAPG`` in W alone."""

    needs = {"regularizer": "prox"}

    def _algorithm(self, problem, theta, w):
        return JointSteps(problem, theta, w, self.tol)


def exact_weights(problem, theta):
    """Weights of the exact graph step and its Newton iterations, for an h that has one."""
    return problem.graph_oracle().minimize(problem.half_distances(theta))


class _Given:
    """Loss that is zero, and constraint that theta is the given one."""

    def __init__(self, theta):
        self.theta, self.n = theta, theta.shape[1]

    def has(self, name):
        """Whether the oracle exists."""
        return name in ("value", "value_and_gradient", "prox")

    def value(self, theta):
        """Zero for every stratum."""
        return np.zeros(len(theta))

    def value_and_gradient(self, theta):
        """Zeros."""
        return self.value(theta), np.zeros(theta.shape)

    def prox(self, v, t):
        """The given parameters."""
        return self.theta.copy()
