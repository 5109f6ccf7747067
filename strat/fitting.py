"""From a declaration and records to a solved problem: what ``fit`` does, step by step."""

import copy
import hashlib
import warnings

import numpy as np
import scipy.sparse as sp

from strat import intake
from strat.base_model import BaseModel
from strat.candidates import candidate_edges
from strat.compiler.fallback import FallbackProx
from strat.edges import AllPairs, EdgeList
from strat.errors import CollapseWarning, DataError, DataWarning, OptionError
from strat.first_point import FirstPoint
from strat.graph_input import read_graph
from strat.graph_regularizers import FixedGraph
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.sum import SumOracle, Weighted
from strat.prior import PriorGraph
from strat.problem import JointProblem
from strat.solvers import MAPG
from strat.starts import solve
from strat.strata import Strata, some_of

#: W_ is an array up to this many strata, whatever edges are learned.
DENSE_STRATA = 2000
#: All parameters closer than this to their mean: the model has collapsed to the common one.
COLLAPSED = 0.01


def fit_model(model, data, strata, sample_weight, init, validation):
    """Fit a StratifiedModel in place."""
    _check_options(model)
    h = model.graph_regularizer
    h.validate(joint=True)
    prior = None if model.graph is None else read_graph(model.graph)
    records = _read(model, data, strata, sample_weight, None if prior is None else prior.labels)
    if prior is None:
        prior = PriorGraph.without_edges(records.strata.labels)
    edges, w0 = _edges(model, prior)
    outside = float(np.sum(prior.weights(model.scale) ** 2) - edges.dot(w0, w0)) if h.learned else 0.0
    problem = _problem(model, records, edges, w0, h, outside=max(outside, 0.0))
    _warn_of_data(model, records.strata, edges, w0)
    result = _solve(model, problem, records, init, validation, edges)
    model.strata_ = list(prior.labels)
    model.W_ = _matrix(model, edges, result.w)
    _finish(model, problem, records, result, result.theta)
    if h.learned:
        _warn_of_collapse(result)


def fit_common(model, data, strata, sample_weight, init, validation):
    """Fit a CommonModel in place: all records in one stratum, the regularizer counted K times."""
    _check_options(model)
    prior = None if model.graph is None else read_graph(model.graph)
    records = _read(model, data, strata, sample_weight, None if prior is None else prior.labels)
    labels = records.strata.labels
    weight = len(labels) if model.regularizer_weight is None else model.regularizer_weight
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < np.inf:
        raise OptionError(f"regularizer_weight must be a positive number, not {weight!r}.")
    one = intake.Records(
        records.arrays, Strata([None], records.strata.index * 0), records.weight, records.columns
    )
    edges = EdgeList(1, np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
    problem = _problem(model, one, edges, edges.zeros(), FixedGraph(), float(weight))
    result = _solve(model, problem, one, init, validation, edges)
    model.strata_ = list(labels)
    K = len(labels)
    model.W_ = np.zeros((K, K)) if K <= DENSE_STRATA else sp.csr_array((K, K))
    _finish(model, problem, records, result, np.repeat(result.theta, K, axis=0))


def _check_options(model):
    if not isinstance(model.base, BaseModel):
        raise OptionError(
            f"base must be a strat.BaseModel, not a {type(model.base).__name__}; "
            f"declare one with BaseModel(loss, regularizer, data=(…))."
        )
    if isinstance(model.n_starts, bool) or not isinstance(model.n_starts, int) or model.n_starts < 1:
        raise OptionError(f"n_starts must be a whole number of at least 1, not {model.n_starts!r}.")
    for name in ("graph_regularizer", "solver"):
        value = getattr(model, name)
        if value is not None and not hasattr(value, "validate"):
            kinds = "LogDet(…) or FixedGraph()" if name == "graph_regularizer" else "MAPG(…)"
            raise OptionError(f"{name} must be an object such as strat.{kinds}, not {value!r}.")


def _read(model, data, strata, sample_weight, nodes):
    return intake.read(
        model.base.data, data, strata, "fit", declared=model.strata, nodes=nodes, sample_weight=sample_weight
    )


def _edges(model, prior):
    """The edge set of W and W0 on it."""
    if not model.graph_regularizer.learned:
        i, j = prior.i, prior.j
    elif isinstance(model.edges, str) and model.edges == "all":
        edges = AllPairs(prior.K)
        return edges, edges.from_matrix(prior.matrix(model.scale))
    else:
        i, j = candidate_edges(model.edges, prior)
    edges = EdgeList(prior.K, i, j)
    return edges, edges.from_vector(prior.weights_on(i, j, model.scale))


def is_iterative(prox):
    """Whether a prox has no closed form."""
    return isinstance(prox, (NewtonProx, FallbackProx)) or getattr(prox, "iterative", False)


def _problem(model, records, edges, w0, h, regularizer_weight=1.0, outside=0.0):
    """The problem that solvers see."""
    base, values = model.base, model.values
    loss = base.loss_program.bind_records(records.arrays, records.strata, records.weight, values)
    regularizer = base.regularizer_program.bind_regularizer(values)
    if is_iterative(regularizer.prox) and regularizer.has("value_and_gradient"):
        # A smooth regularizer without a prox in closed form joins the loss; what is left of it are the constraints.
        constraints = base.regularizer_program.bind_constraints(values)
        if not isinstance(constraints.prox, FallbackProx):
            weighted = Weighted(regularizer, regularizer_weight)
            curved = loss.has("hessian_operator") and regularizer.has("hessian_operator")
            loss = SumOracle([loss, weighted], loss.n, loss.has("value_and_gradient"), curved, None, loss.why)
            regularizer = constraints
    if regularizer_weight != 1.0:
        regularizer = Weighted(regularizer, regularizer_weight)
    couple = base.couple_weights(values)
    problem = JointProblem(loss, regularizer, h, edges, w0, None if np.all(couple == 1) else couple, outside)
    problem.start_point = FirstPoint(base, records, values)
    return problem


def _solve(model, problem, records, init, validation, edges):
    solver = copy.copy(MAPG() if model.solver is None else model.solver)
    solver.validate()
    if solver.callback is not None:
        solver.callback = _Callback(solver.callback, model.base.layout, edges)
    start = _start(model, problem, init, edges)
    score = None if validation is None else _score(model, validation, records)
    fingerprint = _fingerprint(model, records) if solver.checkpoint is not None else ""
    return solve(
        problem,
        solver,
        start,
        n_starts=model.n_starts,
        random_state=model.random_state,
        score=score,
        fingerprint=fingerprint,
    )


def _start(model, problem, init, edges):
    """What ``starts.solve`` takes as a start: a name, or a dict of flat arrays."""
    if init is None and model.warm_start and hasattr(model, "theta_"):
        theta = model._flat()
        K = problem.K
        if K == 1 and len(theta) > 1:
            theta = theta[:1]
        if theta.shape == (K, problem.n) and model.W_.shape == (K, K):
            return {"theta": theta, "w": edges.from_matrix(model.W_)}
        return {"theta": theta} if theta.shape == (K, problem.n) else None
    if init is None or isinstance(init, str):
        return init
    if not isinstance(init, dict):
        raise OptionError(
            f'init must be "zero", "separate", "lrsm" or a dict with "theta" and "W", not {init!r}.'
        )
    unknown = [name for name in init if name not in ("theta", "W")]
    if unknown:
        raise OptionError(f'init has the key {unknown[0]!r}; its keys are "theta" and "W".')
    start = {}
    if "theta" in init:
        given = init["theta"]
        layout = model.base.layout
        if isinstance(given, dict):
            layout.check_names(given)
            full = layout.unpack(np.full((problem.K, problem.n), np.nan))
            start["theta"] = layout.pack({**full, **given})
        else:
            start["theta"] = layout.pack(given)
        if problem.K == 1 and len(start["theta"]) > 1:  # a common model takes what other models take
            start["theta"] = start["theta"].mean(axis=0, keepdims=True)
        if len(start["theta"]) != problem.K:
            raise OptionError(
                f'init["theta"] has {len(start["theta"])} strata, but the model has {problem.K}.'
            )
    if "W" in init:
        W = init["W"] if sp.issparse(init["W"]) else np.asarray(init["W"], dtype=float)
        if W.shape != (problem.K, problem.K):
            raise OptionError(f'init["W"] has shape {W.shape}, but the model has {problem.K} strata.')
        start["w"] = edges.from_matrix(W)
    return start


def _score(model, validation, records):
    """Mean validation loss as a function of theta (K, n)."""
    validation = tuple(validation)
    if len(validation) != len(model.base.data) + 1:
        raise DataError(
            f"validation must hold the {len(model.base.data)} data arguments and the strata, "
            f"but it has {len(validation)} entries."
        )
    *data, strata = validation
    held = intake.read(
        model.base.data,
        tuple(data),
        strata,
        "validation",
        declared=model.strata,
        nodes=None if len(records.strata.labels) == 1 else records.strata.labels,
        columns=records.columns,
    )
    if len(records.strata.labels) == 1:
        held.strata = Strata(records.strata.labels, held.strata.index * 0)
    program = model.base.loss_program
    oracle = program.bind_records(held.arrays, held.strata, held.weight, model.values, smooth=False)
    return lambda theta: float(oracle.value(theta).sum()) / held.strata.N


class _Callback:
    """Shows a user's callback the parameters by name and the graph as a matrix."""

    def __init__(self, function, layout, edges):
        self.function, self.layout, self.edges = function, layout, edges

    def __call__(self, state):
        view = copy.copy(state)
        view.theta, view.W = self.layout.unpack(state.theta), self.edges.to_matrix(state.w)
        return self.function(view)


def _fingerprint(model, records):
    """What tells this fit from another one in a checkpoint."""
    digest = hashlib.sha256()
    for text in (
        str(model.base),
        repr(model.graph_regularizer),
        str(sorted(model.values.items())),
        str(model.scale),
    ):
        digest.update(text.encode())
    for p in model.base.hyperparameters.values():
        digest.update(np.asarray(model.values.get(p.name(), p.value), dtype=float).tobytes())
    for array in (*records.arrays, records.strata.index, records.weight):
        digest.update((array.data if sp.issparse(array) else np.ascontiguousarray(array)).tobytes())
    digest.update(repr(records.strata.labels).encode())
    return digest.hexdigest()


def _matrix(model, edges, w):
    K = edges.K
    learned_everywhere = model.graph_regularizer.learned and isinstance(edges, AllPairs)
    return edges.to_matrix(w) if learned_everywhere or K <= DENSE_STRATA else edges.to_sparse(w)


def _finish(model, problem, records, result, theta):
    """Store a result on the model."""
    base = model.base
    if base.smoothing is not None:
        true = base.loss_program.bind_records(
            records.arrays, problem_strata(problem, records), records.weight, model.values, smooth=False
        )
        result.smoothed_objective = result.objective
        result.parts["loss"] = float(true.value(result.theta).sum())
        result.objective = float(sum(result.parts.values()))
        result.notes.append(
            f"smoothing: the smoothed objective is nowhere above the true one, so at this graph the true objective is "
            f"at most {result.smoothing_bound:.3g} above its minimum, as far as the solver converged"
        )
    model.theta_ = base.layout.unpack(theta)
    model.result_ = result
    model._columns = records.columns
    model._training = records


def problem_strata(problem, records):
    """The strata as the problem has them: one for a common model."""
    return records.strata if problem.K == records.strata.K else Strata([None], records.strata.index * 0)


def _warn_of_data(model, strata, edges, w0):
    empty = np.flatnonzero(strata.counts == 0)
    if not len(empty):
        return
    degrees = edges.degrees(w0)
    lonely = [strata.labels[k] for k in empty if degrees[k] == 0]
    if model.graph_regularizer.learned:
        if not np.any(degrees):
            warnings.warn(
                f"{len(empty)} of {strata.K} strata have no records and the prior graph has no edges (W0 = 0): nothing "
                f"says which strata they resemble, and the learned graph ties them to all others alike. "
                f"Give a graph with weights where one is known.",
                DataWarning,
                stacklevel=4,
            )
    elif lonely:
        names = some_of(lonely)
        warnings.warn(
            f"{len(lonely)} strata have neither records nor edges: {names}. Their parameters are the regularizer's "
            f"minimiser, or stay at the start where there is no regularizer. Connect them, or drop them.",
            DataWarning,
            stacklevel=4,
        )


def _warn_of_collapse(result):
    """Note and warn where a learned graph made all strata equal."""
    theta = result.theta
    if len(theta) < 2:
        return
    mean = theta.mean(axis=0)
    size = np.linalg.norm(mean)
    spread = np.median(np.linalg.norm(theta - mean, axis=1))
    if size == 0 or spread > COLLAPSED * size:
        return
    note = (
        f"the fit has collapsed to the common model: half of the strata are within {spread / size:.1e} (relative) of "
        f"the mean parameters. A larger lambda2, a prior graph or another init= may keep them apart; compare with "
        f"strat.common on held-out records."
    )
    result.notes.append(note)
    warnings.warn(note[0].upper() + note[1:], CollapseWarning, stacklevel=4)
