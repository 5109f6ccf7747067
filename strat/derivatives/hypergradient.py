"""Derivative of a held-out loss through the fit: in edge weights, the factors' scales and hyperparameters."""

from collections.abc import Iterable

import numpy as np

from strat.derivatives.differentiated_problem import through_cvxpy
from strat.derivatives.fitted_model import FittedModel
from strat.errors import OptionError, StratError
from strat.rules import atoms

STEP = 1e-5  # relative step of the differences of oracles in a hyperparameter
BLOCK = 128  # strata whose columns of a matrix fit the cache
METHODS = ("implicit", "cvxpy")


def hypergradient(model, validation, wrt=("W0",), method="implicit"):
    """Derivative of the mean validation loss through the fit of a model.

    The fit is polished by Newton steps; one linear system with the Hessian of the fit then gives the derivative in all
    edge weights and hyperparameters at once, restricted to the directions in which the fitted parameters can move
    (l1 norms, bounds and group norms pin some). On a model with a learned graph, W is held at its value.

    Parameters
    ----------
    model : StratifiedModel
        Fitted, with a loss that has second derivatives.
    validation : tuple
        ``(*data, strata)``: records that took no part in the fit.
    wrt : sequence of {"W0", "scale"} or cvxpy.Parameter
        What to differentiate in: edge weights, the scales of the graph's factors, hyperparameters (or their names)
        of the loss, the regularizer, the constraints or ``couple``.
    method : {"implicit", "cvxpy"}
        "cvxpy" solves and differentiates the problem with CVXPY and diffcp (an extra), as a check: much slower, less
        accurate, and in W0 on the graph's own edges only (nan elsewhere).

    Returns
    -------
    loss : float
        Mean validation loss; the smoothed one where the loss was declared with ``smoothing``.
    gradient : dict
        Just the keys asked for. "W0": (K, K), the derivative in the weight of the edge between i and j at [i, j] and
        [j, i]; pairs without an edge are included, as edges without a factor. "scale": a dict by factor, or
        ``{"all": …}`` for a graph without factors. Hyperparameters: arrays of their shape, by name.

    Raises
    ------
    NoOracleError
        If the loss is not smooth.
    OptionError
        If `wrt` names something unknown, or the model keeps no records.

    Warns
    -----
    ConvergenceWarning
        Where the fit is not at its optimum, the Hessian is singular, or the linear system was not solved accurately.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> model = strat.lrsm(base, strat.graphs.path(3)).fit([1.0, 2.0, 6.0], strata=[0, 1, 2])
    >>> loss, gradient = strat.hypergradient(model, ([1.5, 1.5, 6.0], [0, 1, 2]))
    >>> gradient["W0"].round(3)
    array([[ 0.   , -0.096,  0.864],
           [-0.096,  0.   ,  0.792],
           [ 0.864,  0.792,  0.   ]])
    """
    if method not in METHODS:
        raise OptionError(f'method is {method!r}; it is "implicit" or "cvxpy".')
    fitted = FittedModel(model, "hypergradient")
    names = wanted(model, wrt)
    held = fitted.held_out(validation)
    if method == "cvxpy":
        return by_cvxpy(fitted, held, names)
    held.mean_loss_and_gradient(fitted.theta)  # says what is missing before anything is solved
    return through_the_fit(fitted, held, fitted.linearized(), names)


def through_the_fit(fitted, held, found, names):
    """Loss and gradient from a linearised fit."""
    loss, b = held.mean_loss_and_gradient(found.theta)
    v = found.solve(b)
    prior, gradient = fitted.bound_model.prior, {}
    couple = fitted.couple(prior.i, prior.j)
    for name in names:
        if name == "W0":
            loose = fitted.model.base.couple_weights(fitted.model.values)
            gradient[name] = pairs = over_pairs(loose, found.theta, v)
            if couple.ndim == 2:
                edges = over_edges(couple, found.theta, v, prior.i, prior.j)
                pairs[prior.i, prior.j] = pairs[prior.j, prior.i] = edges
        elif name == "scale":
            gradient[name] = by_factor(prior, over_edges(couple, found.theta, v, prior.i, prior.j))
        else:
            gradient[name] = over_parameter(fitted, held, found, name, b, v)
    return loss, gradient


def by_cvxpy(fitted, held, names):
    """Loss and gradient by CVXPY's own differentiation."""
    loss, (i, j, edges), parameters, theta = through_cvxpy(fitted, held, names)
    prior, K, gradient = fitted.bound_model.prior, fitted.bound_model.prior.K, {}
    for name in names:
        if name == "W0":
            gradient[name] = np.where(np.eye(K, dtype=bool), 0.0, np.nan)
            gradient[name][i, j] = gradient[name][j, i] = edges
        elif name == "scale":
            gradient[name] = by_factor(prior, edges[np.searchsorted(i * K + j, prior.i * K + prior.j)])
        else:
            value, sign = fitted.value_of(name), sign_of(held.base.hyperparameters[name])
            gradient[name] = np.asarray(parameters[name], dtype=float).reshape(value.shape)
            for index in np.ndindex(value.shape):

                def at(moved, name=name):
                    return [held.mean_loss(theta, {name: moved})]

                gradient[name][index] += difference(at, value, index, sign)[0]
    return loss, gradient


def wanted(model, wrt):
    """Names of what to differentiate in."""
    wrt = [wrt] if isinstance(wrt, (str, atoms.Parameter)) else wrt
    if not isinstance(wrt, Iterable):
        raise OptionError(
            f'wrt is {wrt!r}, but it is "W0", "scale", a hyperparameter, or a sequence of them.'
        )
    known = model.base.hyperparameters
    names = []
    for item in wrt:
        name = item.name() if isinstance(item, atoms.Parameter) else item
        if name not in ("W0", "scale", *known) or (
            isinstance(item, atoms.Parameter) and known.get(name) is not item
        ):
            what = f"the Parameter {name}" if isinstance(item, atoms.Parameter) else repr(item)
            raise OptionError(
                f'wrt has {what}, which is neither "W0", "scale" nor a hyperparameter of the model '
                f"({', '.join(known) or 'it has none'})."
            )
        if name not in names:
            names.append(name)
    if "scale" in names and (model.graph is None or model.graph_regularizer.learned):
        why = "has no graph" if model.graph is None else "learns W, which is held fixed here"
        raise OptionError(f'wrt has "scale", but the model {why}. Use strat.lrsm with a graph.')
    return names


def over_pairs(couple, theta, v):
    """(K, K) derivatives -⟨theta_i - theta_j, v_i - v_j⟩, weighted by couple (n,)."""
    theta = theta * couple
    pairs = np.hstack([theta, v]) @ np.hstack([v, theta]).T  # one product, as transposing it takes longer
    own = np.vecdot(theta, v)
    pairs -= own[:, None]
    pairs -= own
    for start in range(0, len(own), BLOCK):  # symmetric to the last digit, a block at a time
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


def by_factor(prior, edges):
    """Derivatives in the multipliers of the graph's factors from those in its edges, (E,)."""
    terms = prior.term_weight * edges[prior.term_edge]
    if not prior.factors:
        return {"all": float(terms.sum())}
    return {f: float(terms[prior.term_factor == code].sum()) for code, f in enumerate(prior.factors)}


def over_parameter(fitted, held, found, name, b, v):
    """Derivative in every entry of a hyperparameter, in its shape.

    The gradient of the losses and the prox are bound at values on both sides and compared at the fit: exact where
    they are linear in the parameter (a multiplier of a piece), and to about 1e-9 elsewhere.
    """
    value = fitted.value_of(name)
    argument = found.theta - found.t[:, None] * found.gradient
    in_loss = name in {p.name() for p in fitted.model.base.loss_program.hyperparameters}

    def at(moved):
        values = {name: moved}
        problem = fitted.problem(values)
        gradient = problem.loss.value_and_gradient(found.theta)[1]
        gradient = gradient + problem.laplacian(found.w, found.theta, found.degrees)
        loss = held.mean_loss(found.theta, values) if in_loss else 0.0
        return loss, gradient, problem.prox(argument, found.t)

    out, sign = np.zeros(value.shape), sign_of(held.base.hyperparameters[name])
    for index in np.ndindex(value.shape):
        loss, gradient, prox = difference(at, value, index, sign)
        out[index] = loss - float(np.vdot(v, gradient)) + found.moved_dot(v, b, prox)
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
    """The sign a Parameter was declared with: 1, -1, or 0 for any."""
    return int(parameter.is_nonneg()) - int(parameter.is_nonpos())
