"""Whether an objective seems to have no minimum: what a fit that has run away looks like."""

import numpy as np

#: A minimum is flat to first order, so that doubling parameters cannot lower the objective by this share of it.
SHARE = 1e-3
SHORT = 1e-9  # prox step that only projects


def running_away(problem, theta, w):
    """Strata whose parameters, when doubled, lower the objective clearly, so that theta is no minimum for w.

    Clearly is by a share of the whole, or, in the second array, to less than half of what is left of the stratum's own:
    losses that fall towards 0 for ever, as that of separable data does, leave little.

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
    two ndarrays of int
        All strata where it takes all of them at once; both empty at a minimum.
    """
    prox = problem.regularizer.prox
    if getattr(prox, "costly", False):
        return (np.zeros(0, dtype=np.intp),) * 2
    with np.errstate(over="ignore", invalid="ignore"):
        # A short prox step is a projection: doubled parameters may be outside the constraints.
        further = prox(2 * theta, np.full(len(theta), SHORT))
        move = further - theta
        here, there = (problem.loss.value(t) + problem.regularizer.value(t) for t in (theta, further))
        product, laplacians = problem.laplacian(w, theta), problem.laplacians(w)
        across = np.vecdot(product, move)
        alone = there - here + across + 0.5 * np.vecdot(laplacians.degrees * move, move)
        together = np.sum(there - here) + across.sum() + laplacians.energy(move)
        enough = -SHARE * (1 + abs(here.sum()) + abs(np.vdot(product, theta)))
        endless = (alone < -0.5 * here) & (there > 0)
        left = here.sum() + 0.5 * np.vdot(product, theta)
        all_endless = together < -0.5 * left and there.sum() > 0
    everything = np.arange(len(theta))
    found, endless = np.flatnonzero(alone < enough), np.flatnonzero(endless)
    return (
        everything if not found.size and together < enough else found,
        everything if not endless.size and all_endless else endless,
    )
