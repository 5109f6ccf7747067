"""Whether an objective seems unbounded below: what a fit that has run away looks like."""

import numpy as np

#: A minimum is flat to first order, so that doubling parameters cannot lower the objective by this share of it.
SHARE = 1e-3


def running_away(problem, theta, w):
    """Strata whose parameters, when doubled, lower the objective clearly, so that theta is no minimum for w.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    theta : ndarray, shape (K, n)
        Where a solver stopped.
    w : edge array
        The graph.

    Returns
    -------
    ndarray of int
        All strata where it takes all of them at once; empty at a minimum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        here, there = (problem.loss.value(t) + problem.regularizer.value(t) for t in (theta, 2 * theta))
        product, scaled = problem.laplacian(w, theta), problem.scaled(theta)
        across = np.vecdot(product, theta)
        alone = there - here + across + 0.5 * problem.edges.degrees(w) * np.vecdot(scaled, scaled)
        together = np.sum(there - here) + 1.5 * across.sum()
        enough = -SHARE * (1 + abs(here.sum()) + abs(across.sum()))
    found = np.flatnonzero(alone < enough)
    return np.arange(len(theta)) if not found.size and together < enough else found
