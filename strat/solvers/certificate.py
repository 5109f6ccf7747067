"""How far a point is from the optimum where the loss has no gradient."""

import numpy as np


def subgradient_residual(problem, theta, w, guess, t, prox=None):
    """The residual of `JointProblem.residual` for a given graph, with a subgradient in the gradient's place.

    The loss's prox at theta + t guess gives a point nearby and a subgradient there, exactly. The value at theta lies
    above the linear function with that slope by some gap, which is 0 where it is a subgradient at theta too. If the
    step of the prox-gradient step with that slope is small, theta is optimal up to that gap: F(theta) is at most
    gap + ||step in terms of gradients|| ||theta - theta*|| above the minimum.

    Parameters
    ----------
    problem : JointProblem
        With a fixed graph, and a loss that has a prox.
    theta : ndarray, shape (K, n)
        The point.
    w : edge array
        The graph.
    guess : ndarray, shape (K, n)
        What a subgradient at theta may be.
    t : float
        Step of the prox; any is right, one that suits the scale of the problem is accurate.
    prox : callable, optional
        A faster way to compute the prox of the loss, as ``prox(v, t)``.

    Returns
    -------
    dict
        "theta": the larger of ||theta - prox_r(theta - g - G(w) theta)|| / (1 + max(||g||, ||G(w) theta||)) and
        gap / (1 + |F|); "W": 0.
    """
    loss = problem.loss
    nearby = (prox or loss.prox)(theta + t * guess, t)
    g = guess + (theta - nearby) / t
    product = problem.laplacian(w, theta)
    step = theta - problem.prox(theta - g - product, 1.0)
    size = 1 + max(np.linalg.norm(g), np.linalg.norm(product))
    gap = float(np.sum(loss.value(theta)) - np.sum(loss.value(nearby)) - np.vdot(g, theta - nearby))
    share = gap / (1 + abs(problem.objective(theta, w)))
    return {"theta": float(max(np.linalg.norm(step) / size, share)), "W": 0.0}
