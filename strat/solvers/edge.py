"""Where the edge of the loss's domain stops methods that follow gradients: cone programs know the way along it."""

import numpy as np

from strat.solvers.block_descent import BlockDescent
from strat.solvers.cone_newton import ConeNewton, has_cones

WRITTEN = 5_000_000  # numbers in the records up to which their cone program is written for that
NEAR = 1e-6  # a step of this length, relative to theta, leads out of the domain at its edge


def at_edge(problem, x):
    """Whether short steps downhill from a point leave the domain of a loss whose records' cones can be written."""
    loss = problem.loss
    few = loss.has("cones") and getattr(loss.cones, "size", 0) <= WRITTEN
    if not (few and loss.has("value_and_gradient") and has_cones(loss)):
        return False
    slope = x.differentiate().theta_gradient
    size = np.linalg.norm(x.theta, axis=1)
    size = np.where(size > 0, size, size.mean() or 1.0)
    lengths = NEAR * size / (np.linalg.norm(slope, axis=1) + 1e-300)
    ahead = problem.prox(x.theta - lengths[:, None] * slope, lengths)
    return bool(np.isinf(problem.loss.value(ahead)).any())


def along_edge(problem, theta, w, tol):
    """The algorithm that goes on from a point, with the records' cones in its programs."""
    if problem.learned:
        return BlockDescent(problem, theta, w, tol, whole=True)
    return ConeNewton(problem, theta, w, whole=True)
