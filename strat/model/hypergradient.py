"""A fitted model as a convex problem, and the derivatives of a held-out loss through the fit.

With b the gradient of the held-out loss in theta and v = (H + C + G(w))⁻¹ b over the free directions, a change of the
optimality conditions' gradient by δ changes the held-out loss by −⟨v, δ⟩.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler import coupling
from strat.errors import ConvergenceWarning, OptionError, StratError, optional
from strat.graphs.prior_graph import unique_edges
from strat.model.bound_model import BoundModel
from strat.model.estimator import check_fitted
from strat.model.fitted import as_fitted, training_records, weighted_problem
from strat.model.linearization import LOOSE, Linearization
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.rules import atoms

STEP = 1e-5  # relative step of the differences of oracles in a hyperparameter
ACCURATE = 1e-9  # tolerances of the cone solver SCS; its defaults leave errors of 1e-5


def hypergradient(model: Any, validation: tuple, wrt: Sequence = ("W0",), method: str = "implicit") -> tuple:
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
        of the loss, the regularizer, the constraints or ``couple``. Those of the loss change the validation loss, too.
    method : {"implicit", "cvxpy"}
        "cvxpy" solves and differentiates the problem with CVXPY and diffcp (an extra), as a check: much slower, less
        accurate, and in W0 on the graph's own edges only (nan elsewhere).

    Returns
    -------
    loss : float
        Mean validation loss; the smoothed one where the loss was declared with ``smoothing``.
    gradient : dict
        Only the keys asked for. "W0": (K, K), the derivative in the weight of the edge between i and j at [i, j] and
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
    if method not in ("implicit", "cvxpy"):
        raise OptionError(f'method is {method!r}; it is "implicit" or "cvxpy".')
    fitted = FittedModel(model, "hypergradient")
    names = wrt_names(model, wrt)
    held = fitted.bound_model.validation(validation, smooth=True)
    if method == "cvxpy":
        return cvxpy_gradient(fitted, held, names)
    held.mean_loss_and_gradient(fitted.theta)  # refuses losses without a gradient before anything is solved
    return implicit_gradient(fitted, held, fitted.linearized(), names)


def implicit_gradient(fitted, held, linearization, names):
    """Held-out loss and its gradient, as `hypergradient` returns them, from a linearised fit."""
    theta, model, gradient = linearization.theta, fitted.model, {}
    loss, b = held.mean_loss_and_gradient(theta)
    v = linearization.solve(b)
    by_factor = coupling.by_factor(model.base.couple)
    if by_factor or "scale" in names:  # only these need the graph
        prior = fitted.bound_model.prior
        edges = over_edges(fitted.couple(prior.i, prior.j), theta, v, prior.i, prior.j)

    def loss_with(values):
        return held.mean_loss(theta, values) + linearization.change(fitted.problem(values), v, b)

    for name in names:
        if name == "W0":  # as `over_edges` of all pairs
            scaled = theta * model.base.couple_weights(fitted.values)
            pairs = scaled @ v.T - np.vecdot(scaled, v)[:, None]
            gradient[name] = pairs = pairs + pairs.T  # symmetric to the last digit
            np.fill_diagonal(pairs, 0.0)
            if by_factor:
                pairs[prior.i, prior.j] = pairs[prior.j, prior.i] = edges
        elif name == "scale":
            gradient[name] = over_factors(prior, edges)
        else:
            gradient[name] = derivatives(loss_with, model.base.hyperparameters[name], fitted.values[name])
    return loss, gradient


def cvxpy_gradient(fitted, held, names):
    """Held-out loss and its gradient by differentiating the model's CVXPY problem: slow, but independent of other code here."""
    optional("diffcp", 'method="cvxpy"', "diffcp")
    model, prior, base = fitted.model, fitted.bound_model.prior, fitted.model.base
    values = {name: fitted.values[name] for name in names if name not in ("W0", "scale")}
    multipliers = {p.name() for p in coupling.parameters(base.couple)} & set(values)
    if base.smoothing is not None or multipliers:
        why = "it takes the loss as declared, not its smoothing="
        if multipliers:
            why = f"the Parameter {min(multipliers)} multiplies edge weights (couple=), which is not DPP"
        raise OptionError(f'method="cvxpy" cannot differentiate this model: {why}. Use method="implicit".')
    parameters = {}
    for name, value in values.items():
        p = base.hyperparameters[name]
        signs = {"nonneg": p.is_nonneg(), "nonpos": p.is_nonpos()}
        parameters[name] = cp.Parameter(p.shape, name=name, value=value, **signs)
    # The model's own edges are those of W and those of the graph, including edges of weight 0.
    i, j, _ = unique_edges(*map(np.append, fitted.bound_model.edges.ends, (prior.i, prior.j)), prior.K)
    weights = EdgeList(prior.K, i, j).from_matrix(model.W_)
    w = [cp.Parameter(nonneg=True, value=weight) for weight in weights]
    problem, copies = weighted_problem(model, i, j, w, parameters)
    if not problem.is_dcp(dpp=True):
        raise OptionError(
            'method="cvxpy": the problem is not DPP in the Parameters of wrt, so that CVXPY cannot differentiate it. '
            'Use method="implicit".'
        )
    problem.solve(requires_grad=True, eps_abs=ACCURATE, eps_rel=ACCURATE)
    layout = base.layout
    theta = layout.pack({name: np.array([c[name].value for c in copies]) for name in copies[0]})
    loss, b = held.mean_loss_and_gradient(theta)
    for k, variables in enumerate(copies):
        for name, value in layout.unpack(b[[k]]).items():
            variables[name].gradient = value[0]
    problem.backward()
    pairs = np.where(np.eye(prior.K, dtype=bool), 0.0, np.nan)
    pairs[i, j] = pairs[j, i] = [weight.gradient for weight in w]
    gradient = {"W0": pairs, "scale": over_factors(prior, pairs[prior.i, prior.j])}
    for name, p in parameters.items():
        at_fixed_theta = derivatives(partial(held.mean_loss, theta), base.hyperparameters[name], p.value)
        gradient[name] = at_fixed_theta + np.reshape(p.gradient, p.shape)
    return loss, {name: gradient[name] for name in names}


def over_edges(couple, theta, v, i, j):
    """Derivatives −⟨theta_i − theta_j, v_i − v_j⟩ in the weights of edges, (E,), weighted by couple (n,) or (E, n) or None."""
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
    """Derivatives of a number f({name: value}) in every entry of a Parameter's value, by second-order differences.

    They are exact where f is quadratic (as in a multiplier of a piece), and accurate to about 1e-9 elsewhere. They are
    one-sided where the domain ends: by the declared sign of the Parameter, or where f refuses a value with a StratError.
    """
    value, sign = np.asarray(value, dtype=float), int(parameter.is_nonneg()) - int(parameter.is_nonpos())
    out = np.zeros(value.shape)
    for index in np.ndindex(value.shape):

        def at(step, index=index):
            moved = np.array(value)
            moved[index] += step
            return f({parameter.name(): moved})

        h = STEP * max(abs(float(value[index])), 1e-2)
        with suppress(StratError):  # such as a weight below 0
            if not (sign and abs(value[index]) < h):
                out[index] = (at(h) - at(-h)) / (2 * h)
                continue
        h = -h if sign < 0 else h
        out[index] = (-3 * at(0.0) + 4 * at(h) - at(2 * h)) / (2 * h)
    return out


def wrt_names(model, wrt):
    """The names in `wrt`, checked: "W0", "scale" and those of hyperparameters."""
    wrt = [wrt] if isinstance(wrt, (str, atoms.Parameter)) else wrt
    if not isinstance(wrt, Iterable):
        raise OptionError(f'wrt is {wrt!r}, but it is "W0", "scale", a hyperparameter, or several of them.')
    known, names = model.base.hyperparameters, []
    for item in wrt:
        is_parameter = isinstance(item, atoms.Parameter)
        # Other objects are not compared: CVXPY's == makes constraints.
        name = item.name() if is_parameter else item if isinstance(item, str) else None
        if known.get(name) is not item if is_parameter else name not in ("W0", "scale", *known):
            what = f"the Parameter {name}" if is_parameter else repr(item)
            raise OptionError(
                f'wrt has {what}, which is neither "W0", "scale" nor a hyperparameter of the model '
                f"({', '.join(known) or 'it has none'})."
            )
        names.append(name)
    if "scale" in names and (model.graph is None or model.graph_regularizer.learned):
        why = "has no graph" if model.graph is None else "learns W, which is held fixed here"
        raise OptionError(f'wrt has "scale", but the model {why}. Use strat.lrsm with a graph.')
    return list(dict.fromkeys(names))


class FittedModel:
    """A fitted model's problem for fixed weights w on the edges of its ``W_``.

    `what` names the caller in messages. A common model is allowed only if `shared` is True, and its problem has a single
    stratum. `values`, `theta` (K, n) and the records of `bound_model` are those of the fit.
    """

    def __init__(self, model, what, shared=False):
        common = getattr(model, "shared", False)
        if common and not shared:
            why = "but the strata of a common model share their parameters; use strat.lrsm."
            raise OptionError(f"{what} follows the graph, {why}")
        check_fitted(model, what)
        records, theta, W = training_records(model, what), model._flat(), model.W_
        if common:
            theta, W = theta[:1], np.zeros((1, 1))
        edges = EdgeList(len(theta), *sp.triu(W, 1).coords)
        self.model, self.values, self.theta, self.w = model, model.values, theta, edges.from_matrix(W)
        self.bound_model = BoundModel(as_fitted(model), records=records, edges=edges)

    def problem(self, values=None):
        """The JointProblem in theta, with hyperparameters by name in place of the fit's."""
        return self.bound_model.problem(values=values, w0=self.w, graph_regularizer=FixedGraph())

    def couple(self, i, j):
        """Weights of the coordinates in the distance, on edges with ends i < j: (n,), or one row for each edge."""
        return coupling.on_edges(self.model.base, self.values, self.bound_model.prior, i, j)

    def linearized(self):
        """The linearised optimality conditions at the polished fit; warns where they are not reliable."""
        fit = Linearization(self.problem(), self.theta, self.w)
        kinks = int(fit.hessian.free.kinks.sum())
        if not fit.residual <= LOOSE:
            ConvergenceWarning.warn(
                f"the fit is not at its optimum: Newton steps left a residual of {fit.residual:.1e}, so that its "
                f"derivatives are inaccurate. Fit it to a smaller tol, or give the solver more iterations."
            )
        if kinks:
            ConvergenceWarning.warn(
                f"the fit lies on a kink of the regularizer in {kinks} strata, or touches a constraint that exerts no force: "
                f"there it has no derivative, but one for each side, and those given are one of these or lie between "
                f"them. Change the weight of the regularizer, or the bound, a little to leave the kink."
            )
        return fit
