"""Derivatives of a held-out loss in edge weights, scales and hyperparameters, from the solution v of the adjoint system.

With b the gradient of the held-out loss in theta and v = (H + C + G(w))⁻¹ b over the free directions, a change of the
optimality conditions' gradient by δ changes the held-out loss by −⟨v, δ⟩.
"""

import numpy as np

from strat.errors import StratError

STEP = 1e-5  # relative step of the differences of oracles in a hyperparameter
BLOCK = 128  # strata whose columns of a matrix fit the cache


def over_pairs(couple, theta, v):
    """(K, K) derivatives −⟨theta_i − theta_j, v_i − v_j⟩ in the weights of all pairs, weighted by couple (n,)."""
    theta = theta * couple
    pairs = np.hstack([theta, v]) @ np.hstack([v, theta]).T  # one product, as transposing it takes longer
    diagonal = np.vecdot(theta, v)
    pairs -= diagonal[:, None]
    pairs -= diagonal
    for start in range(0, len(theta), BLOCK):  # symmetric to the last digit, a block at a time
        block = slice(start, start + BLOCK)
        pairs[block, :start] = pairs[:start, block].T
        pairs[block, block] = 0.5 * (pairs[block, block] + pairs[block, block].T)
    np.fill_diagonal(pairs, 0.0)
    return pairs


def over_edges(couple, theta, v, i, j):
    """The same on edges alone, (E,), weighted by couple (n,) or (E, n), or not where it is None."""
    gaps = theta[i] - theta[j]
    if couple is not None:
        gaps *= couple
    return -np.einsum("en,en->e", gaps, v[i] - v[j])


def over_factors(prior, edges):
    """Derivatives in the scales of the graph's factors from those in its edges, (E,)."""
    terms = prior.term_weight * edges[prior.term_edge]
    if not prior.factors:
        return {"all": float(terms.sum())}
    return {f: float(terms[prior.term_factor == code].sum()) for code, f in enumerate(prior.factors)}


def over_parameter(linearization, b, v, parameter, value, problem_at, loss_at=None):
    """Derivative in every entry of a hyperparameter, which has the array `value` in the fit.

    `problem_at` gives the JointProblem for another value, `loss_at` the held-out loss at the fit's theta, where that
    depends on the hyperparameter itself. The gradient of the losses and the prox are compared on both sides of the value:
    exact where they are linear in it (a multiplier of a piece), and to about 1e-9 elsewhere.
    """
    fit = linearization

    def terms(moved):
        problem = problem_at(moved)
        gradient = problem.loss.value_and_gradient(fit.theta)[1]
        gradient = gradient + problem.laplacian(fit.w, fit.theta, fit.degrees)
        return 0.0 if loss_at is None else loss_at(moved), gradient, problem.prox(fit.argument, fit.t)

    out = np.zeros(value.shape)
    for index in np.ndindex(value.shape):
        loss, gradient, prox = difference(terms, value, index, sign_of(parameter))
        out[index] = loss - float(np.vdot(v, gradient)) + fit.moved_dot(v, b, prox)
    return out


def difference(f, value, index, sign=0):
    """Derivative in one entry of an array of everything that f returns, by differences of second order.

    One-sided where the domain ends: `sign` is 1 for arrays that are at least 0, -1 for those at most 0, and f raises a
    StratError where a hyperparameter is refused.
    """
    h = STEP * max(abs(float(value[index])), 1e-2)

    def at(step):
        moved = np.array(value)
        moved[index] += step
        return f(moved)

    if not (sign and abs(value[index]) < h):
        try:
            return [(b - a) / (2 * h) for a, b in zip(at(-h), at(h), strict=True)]
        except StratError:  # such as a weight below 0
            pass
    h = -h if sign < 0 else h
    return [(-3 * a + 4 * b - c) / (2 * h) for a, b, c in zip(at(0.0), at(h), at(2 * h), strict=True)]


def sign_of(parameter):
    """The sign that a Parameter was declared with: 1, -1, or 0 for any."""
    return int(parameter.is_nonneg()) - int(parameter.is_nonpos())
