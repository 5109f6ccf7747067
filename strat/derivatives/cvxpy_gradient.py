"""The hypergradient by CVXPY itself (diffcp): slow, and independent of everything else here."""

import cvxpy as cp
import numpy as np

from strat.compiler import coupling
from strat.derivatives.chain_rule import derivatives, over_factors
from strat.errors import OptionError
from strat.model.export import weighted_problem
from strat.problem.edges import EdgeList

ACCURATE = 1e-9  # tolerances of the cone solver SCS; its defaults leave errors of 1e-5


def cvxpy_gradient(fitted, held, names):
    """Held-out loss and its gradient, as `hypergradient` returns them, by differentiating the model's CVXPY problem."""
    try:
        import diffcp  # noqa: F401
    except ImportError as error:
        raise OptionError('method="cvxpy" needs diffcp: pip install "strat[diffcp]".') from error
    model, prior, base = fitted.model, fitted.bound_model.prior, fitted.model.base
    values = {name: fitted.value_of(name) for name in names if name not in ("W0", "scale")}
    multipliers = {p.name() for p in coupling.parameters(base.couple)} & set(values)
    if base.smoothing is not None or multipliers:
        why = "it takes the loss as declared, not its smoothing="
        if multipliers:
            why = f"the Parameter {min(multipliers)} multiplies edge weights (couple=), which is not DPP"
        raise OptionError(f'method="cvxpy" cannot differentiate this model: {why}. Use method="implicit".')
    parameters = {name: base.hyperparameters[name] for name in values}
    parameters = {
        name: cp.Parameter(p.shape, name=name, value=values[name], nonneg=p.is_nonneg(), nonpos=p.is_nonpos())
        for name, p in parameters.items()
    }
    K = prior.K  # the model's own edges are those of W and those of the graph, of weight 0 included
    ends = [i * K + j for i, j in (fitted.bound_model.edges.ends, (prior.i, prior.j))]
    edges = EdgeList(K, *np.divmod(np.union1d(*ends), K))
    i, j = edges.ends
    w = [cp.Parameter(nonneg=True, value=weight) for weight in edges.from_matrix(model.W_)]
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
    in_edges = np.array([weight.gradient for weight in w], dtype=float)
    gradient = {}
    for name in names:
        if name == "W0":
            gradient[name] = np.where(np.eye(K, dtype=bool), 0.0, np.nan)
            gradient[name][i, j] = gradient[name][j, i] = in_edges
        elif name == "scale":
            place = np.searchsorted(i * K + j, prior.i * K + prior.j)
            gradient[name] = over_factors(prior, in_edges[place])
        else:
            through_theta = np.asarray(parameters[name].gradient, dtype=float).reshape(values[name].shape)
            at_fixed_theta = derivatives(
                lambda moved, name=name: held.mean_loss(theta, {name: moved}),
                base.hyperparameters[name],
                values[name],
            )
            gradient[name] = through_theta + at_fixed_theta
    return loss, gradient
