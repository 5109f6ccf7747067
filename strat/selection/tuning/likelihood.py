"""A model read as a likelihood and a Gaussian prior, for its evidence; and refusals of models that cannot be read so."""

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from strat.compiler.walk import AtomNode
from strat.errors import GraphError, NoOracleError, OptionError
from strat.model.refit import Refits
from strat.oracles.base import hessian_blocks
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.records.strata import Strata
from strat.rules.text import text
from strat.selection.tuning.evidence import Evidence
from strat.solvers import NewtonCG

RECORDS = 20  # whose Hessians say how many residuals a record has


def evidence_of(model, prior, part):
    """The evidence of some records, and the model bound to them."""
    fits = clone(model).set_params(graph=prior, solver=NewtonCG(), n_starts=1, warm_start=False)
    bound_model = Refits(fits, part.data, part.strata).bound_model
    problem = bound_model.problem()
    if not problem.loss.has("hessian_operator"):
        raise NoOracleError(
            f'method="evidence" needs a loss with second derivatives, but {problem.loss.missing("hessian_operator")}.'
        )
    start = prior.weights(model.scale)
    positive = start > 0
    edges = EdgeList(prior.K, prior.i[positive], prior.j[positive])
    weight = prior.scaled_terms(model.scale)
    codes = [prior.factors.index(axis) if axis is not None else -1 for axis in axes(prior)]
    masks = [prior.term_factor == code for code in codes]
    terms = np.stack([np.bincount(prior.term_edge[m], weight[m], len(start))[positive] for m in masks])
    quadratic = getattr(problem.loss, "quadratic", False)
    residuals = residuals_of(model, bound_model.records) if quadratic else None
    on_positive = JointProblem(problem.loss, problem.regularizer, FixedGraph(), edges, terms.sum(axis=0))
    on_positive.start_point = problem.start_point
    return Evidence(on_positive, terms, table_of(model, prior), ridge_of(model), residuals), bound_model


def axes(prior):
    """The factors, and None where there are edges without one."""
    return (*prior.factors, None) if (prior.term_factor < 0).any() else prior.factors


def table_of(model, prior):
    """Weights of every coefficient in ``couple`` on the edges of every axis, (A, n)."""
    return np.stack([model.base.couple_weights(model.values, axis) for axis in axes(prior)])


def check(model, prior):
    """Raise where there is no evidence, or no weight to scale."""
    base = model.base
    if base.smoothing is not None:
        raise NoOracleError(
            'method="evidence" needs a loss with third derivatives, but the second derivatives of kinks that smoothing= '
            "rounds off jump. Tune by held-out loss."
        )
    jump = _jump(base.loss_program)
    if jump is not None:
        raise NoOracleError(
            f'method="evidence" needs a loss with third derivatives, but the second derivatives of {text(jump)} jump. Tune by '
            "held-out loss."
        )
    constrained = base.regularizer_program.constraints or any(
        value is not None and value is not False and not (sp.issparse(value) or np.size(value) == 0)
        for v in base.regularizer_program.variables
        for value in v.attributes.values()
    )
    if constrained:
        raise NoOracleError(
            'method="evidence" reads the regularizer as minus the logarithm of a Gaussian prior, which constraints and '
            "attributes of variables, such as bounds, cut. Leave them out, or tune by held-out loss."
        )
    ridge_of(model)
    weights = prior.weights(model.scale)
    factors = range(len(prior.factors)) if prior.factors else [-1]
    for code in factors:
        edges = prior.term_edge[prior.term_factor == code]
        if not weights[edges].any():
            name = f"the factor {prior.factors[code]!r}" if code >= 0 else "the graph"
            raise GraphError(
                f'method="evidence" multiplies weights, but all those of {name} are 0. Give it a positive scale.'
            )
    without_factor = prior.factors and (prior.term_factor < 0).any()
    if without_factor and not isinstance(model.scale, dict) and model.scale != 1:
        raise OptionError(
            'method="evidence" keeps the weights of edges without a factor, but scale= multiplies them too; give the scale of '
            "each factor as a dict."
        )
    if not table_of(model, prior).any():
        raise OptionError(
            'method="evidence": couple= uncouples every variable, so there is no weight to tune.'
        )


def _jump(program):
    """The first atom of a loss whose second derivatives jump, such as Huber's or the square of a positive part."""
    for node in program.symbols.nodes:
        if not isinstance(node, AtomNode):
            continue
        if node.rule.curvature == "jumps" or node.rule.kinks_of(node.forms) != "none":
            return node.expression
    return None


def ridge_of(model):
    """The regularizer's curvature (n,), where it is a sum of squares of single coefficients."""
    regularizer = model.base.regularizer_program.bind_regularizer(model.values)
    if not regularizer.has("hessian_operator"):
        reason = regularizer.missing("hessian_operator")
    elif not getattr(regularizer, "quadratic", False):
        reason = "its curvature is not the same everywhere"
    else:
        H = np.zeros((model.base.layout.n,) * 2)
        H += hessian_blocks(regularizer, np.zeros((1, len(H))))[0]
        ridge = np.diag(H)
        if np.abs(H - np.diag(ridge)).max(initial=0.0) <= 1e-12 * ridge.max(initial=0.0):
            return ridge.copy()
        reason = "it ties several coefficients together"
    raise NoOracleError(
        'method="evidence" takes regularizers that are sums of squares of single coefficients, such as '
        f"lam * cp.sum_squares(theta), or none; of this one, {reason}. Tune by held-out loss."
    )


def residuals_of(model, records):
    """The number of squared residuals: for each record the rank of its Hessian, from a few records."""
    N = len(records.weight)
    few = np.linspace(0, N - 1, min(N, RECORDS)).astype(int)
    one_record_each = Strata(list(range(len(few))), np.arange(len(few)))
    arrays = [array[few] for array in records.arrays]
    oracle = model.base.loss_program.bind_records(arrays, one_record_each, np.ones(len(few)), model.values)
    blocks = hessian_blocks(oracle, np.zeros((len(few), model.base.layout.n)))
    return N * float(np.mean(np.linalg.matrix_rank(blocks, hermitian=True)))
