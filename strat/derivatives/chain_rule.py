"""Derivatives of a held-out loss in edge weights, scales and hyperparameters, from the solution v of the adjoint system.

With b the gradient of the held-out loss in theta and v = (H + C + G(w))⁻¹ b over the free directions, a change of the
optimality conditions' gradient by δ changes the held-out loss by −⟨v, δ⟩.
"""

from contextlib import suppress

import numpy as np

from strat.errors import StratError

STEP = 1e-5  # relative step of the differences of oracles in a hyperparameter


def over_pairs(couple, theta, v):
    """(K, K) derivatives −⟨theta_i − theta_j, v_i − v_j⟩ in the weights of all pairs, weighted by couple (n,)."""
    theta = theta * couple
    pairs = theta @ v.T
    pairs -= np.vecdot(theta, v)[:, None]
    pairs = pairs + pairs.T  # symmetric to the last digit
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


def derivatives(f, parameter, value):
    """Derivatives of a number f(value) in every entry of a Parameter's value, by differences of second order.

    They are exact where f is quadratic (as in a multiplier of a piece), and right to about 1e-9 elsewhere; one-sided where
    the domain ends: by the sign that the Parameter is declared with, or where f raises a StratError, as a value is refused.
    """
    sign, out = int(parameter.is_nonneg()) - int(parameter.is_nonpos()), np.zeros(value.shape)
    for index in np.ndindex(value.shape):

        def at(step, index=index):
            moved = np.array(value)
            moved[index] += step
            return f(moved)

        h = STEP * max(abs(float(value[index])), 1e-2)
        with suppress(StratError):  # such as a weight below 0
            if not (sign and abs(value[index]) < h):
                out[index] = (at(h) - at(-h)) / (2 * h)
                continue
        h = -h if sign < 0 else h
        out[index] = (-3 * at(0.0) + 4 * at(h) - at(2 * h)) / (2 * h)
    return out
