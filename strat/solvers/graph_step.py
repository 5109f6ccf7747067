"""The graph step: the best W for given parameters."""

import time

import numpy as np

from strat.problem.joint_problem import JointProblem, w_residual
from strat.solvers.base import Solver
from strat.solvers.joint_steps import JointSteps
from strat.solvers.result import Result


def graph_step(problem, theta, w=None, tol=1e-6, max_iter=1000):
    """Minimise 1/2 sum_e w_e d_e(theta) + h(w) over the weights, a convex problem; return a Result.

    Loss and regularizer of the problem are left out. `w` is the start, W0 by default; it is not used where h has an exact
    step. `tol` is that of the W residual. The objective is the Laplacian term plus h.
    """
    if hasattr(problem.graph_oracle(), "minimize"):
        return _exact(problem, theta, tol)
    fixed = JointProblem(
        _NoLoss(theta.shape),
        _Given(theta),
        problem.graph_regularizer,
        problem.edges,
        problem.w0,
        problem.couple,
        problem.outside,
    )
    return GraphSteps(tol=tol, max_iter=max_iter).run(
        fixed, theta, problem.w0 if w is None else w, init="W0" if w is None else "given"
    )


class GraphSteps(Solver, max_iter=1000):
    """The steps of ``MAPG`` in W alone."""

    needs = {"regularizer": "prox"}

    def _algorithm(self, problem, theta, w):
        return JointSteps(problem, theta, w, self.tol)


def exact_weights(problem, theta):
    """Weights of the exact graph step and its Newton iterations, for an h that has one."""
    return problem.graph_oracle().minimize(problem.half_distances(theta))


def _exact(problem, theta, tol):
    started = time.perf_counter()
    edges, graph_oracle, half = problem.edges, problem.graph_oracle(), problem.half_distances(theta)
    w, iterations = graph_oracle.minimize(half)
    graph, laplacian = graph_oracle.set(w), edges.dot(half, w)
    graph += graph_oracle.rest()
    gradient = graph_oracle.gradient(edges.zeros())
    gradient += half
    residual = w_residual(edges, graph_oracle, w, gradient, graph_oracle.size(half))
    return Result(
        status="converged" if residual <= tol else "max_iter",
        iterations=iterations,
        objective=laplacian + graph,
        parts={"loss": 0.0, "regularizer": 0.0, "laplacian": laplacian, "graph": graph},
        residual={"theta": 0.0, "W": residual},
        history=[laplacian + graph],
        seconds=time.perf_counter() - started,
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
