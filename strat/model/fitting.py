"""From a declaration and records to a solved problem: what ``fit`` does, step by step."""

import copy
import hashlib
import warnings
from functools import partial
from numbers import Integral

import networkx as nx
import numpy as np
import scipy.sparse as sp

from strat.compiler import coupling
from strat.compiler.base_model import BaseModel
from strat.errors import CollapseWarning, ConvergenceWarning, DataWarning, GraphError, OptionError, type_name
from strat.graphs.reading import read_graph
from strat.model.bound_model import BoundModel, read_held_out
from strat.model.label_codes import warn_of_zeros
from strat.model.unbounded_strata import running_away
from strat.problem.edges import AllPairs
from strat.records.strata import some_of
from strat.solvers.default import default_solver
from strat.solvers.starts import solve

#: W_ is an array up to this many strata, whatever edges are learned.
DENSE_STRATA = 2000
#: All parameters closer than this to their mean: the model has collapsed to the common one.
COLLAPSED = 0.01
#: Bytes of records up to which a fitted model keeps what they were bound to, for derivatives of the fit.
KEPT = 2**26


def fit_model(model, data, strata, sample_weight, init, validation):
    """Fit a StratifiedModel in place, one with shared parameters too."""
    check_options(model)
    h = model.graph_regularizer
    if not model.shared:
        h.validate(joint=True)
    bound_model = BoundModel(model, data, strata, sample_weight)
    warn_of_zeros(model.base, bound_model.records, model.values)
    problem = bound_model.problem()
    notes = []
    if not model.shared:
        notes = _warn_of_data(model, bound_model.records.strata, bound_model.edges, problem.w0)
    result = _solve(model, problem, bound_model, init, validation)
    result.notes += notes
    _warn_of_running_away(problem, result, bound_model)
    model.strata_ = list(bound_model.prior.labels)
    model.W_ = partial(_matrix, bound_model.prior.K, bound_model.shared, bound_model.edges, result.w)
    _finish(model, bound_model, result)
    if problem.learned:
        _warn_of_collapse(result)


def fit_within(model, data, strata):
    """Fit a model as a part of something longer, which Ctrl-C is to end as a whole.

    Parameters
    ----------
    model : StratifiedModel
        It is fitted.
    data : tuple
        The data arguments.
    strata : sequence
        Label of each record.

    Returns
    -------
    StratifiedModel
        The model.

    Raises
    ------
    KeyboardInterrupt
        Where Ctrl-C ended the fit, which by itself would return the best point so far.
    """
    model.fit(*data, strata=strata)
    if model.result_.status == "interrupted" and getattr(model.solver, "callback", None) is None:
        raise KeyboardInterrupt
    return model


def solver_for(model, problem):
    """The solver of a model, with its options checked: its own, or the default for the problem.

    Parameters
    ----------
    model : StratifiedModel
        Its ``solver`` may be None.
    problem : JointProblem
        The problem to solve.

    Returns
    -------
    Solver
        A copy, so that it may be changed.
    """
    solver = copy.copy(model.solver or default_solver(problem.loss, problem.learned, problem.regularizer))
    solver.validate()
    return solver


def check_options(model):
    """Check what a model was made of."""
    if not isinstance(model.base, BaseModel):
        raise OptionError(
            f"base must be a strat.BaseModel, not {type_name(model.base)}; "
            f"declare one with BaseModel(loss, regularizer, data=(…))."
        )
    if isinstance(model.n_starts, bool) or not isinstance(model.n_starts, Integral) or model.n_starts < 1:
        raise OptionError(f"n_starts must be a whole number of at least 1, not {model.n_starts!r}.")
    seed = model.random_state
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise OptionError(f"random_state must be a whole number of at least 0, not {seed!r}.")
    for name in ("graph_regularizer", "solver"):
        value = getattr(model, name)
        if value is not None and (isinstance(value, type) or not hasattr(value, "validate")):
            graphs = "LogDet(…), LogDiagonal(…), TraceConstraint(…), Entropy(…) or FixedGraph()"
            kinds = graphs if name == "graph_regularizer" else "MAPG(…)"
            raise OptionError(f"{name} must be an object such as strat.{kinds}, not {value!r}.")


def _solve(model, problem, bound_model, init, validation):
    solver = solver_for(model, problem)
    if solver.callback is not None:
        solver.callback = _Callback(solver.callback, model.base.layout, bound_model.edges)
    start = _start(model, problem, init, bound_model.edges, bound_model.prior.labels)
    score = None if validation is None else read_held_out(bound_model, validation).mean_loss
    fingerprint = _fingerprint(model, problem, bound_model.records) if solver.checkpoint is not None else ""
    return solve(
        problem,
        solver,
        start,
        n_starts=model.n_starts,
        random_state=model.random_state,
        score=score,
        fingerprint=fingerprint,
    )


def _start(model, problem, init, edges, labels):
    """What ``starts.solve`` takes as a start: a name, or a dict of flat arrays."""
    if init is None and model.warm_start and hasattr(model, "theta_"):
        theta = model._flat()
        K = problem.K
        if K == 1 and len(theta) > 1:
            theta = theta[:1]
        if theta.shape == (K, problem.n) and model.W_.shape == (K, K):
            w = edges.from_matrix(model.W_)
            feasible = problem.graph_regularizer.feasible(edges, w)  # not where its constants have changed
            return {"theta": theta, "w": w} if feasible else {"theta": theta}
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
            full = layout.unpack(np.zeros((problem.K, problem.n)))
            start["theta"] = layout.pack({**full, **given})
            for name in full.keys() - given.keys():  # what is left out starts where it would without init
                start["theta"][:, layout.slices[name]] = np.nan
        else:
            start["theta"] = layout.pack(given)
        if problem.K == 1 and len(start["theta"]) > 1:  # a common model takes what other models take
            start["theta"] = start["theta"].mean(axis=0, keepdims=True)
        if len(start["theta"]) != problem.K:
            raise OptionError(
                f'init["theta"] has {len(start["theta"])} strata, but the model has {problem.K}.'
            )
    if "W" in init:
        start["w"] = edges.from_matrix(_start_weights(init["W"], labels, problem.K))
    return start


def _start_weights(W, labels, K):
    """Weights to start from, as given, or an error that says why they are none."""
    if isinstance(W, nx.Graph):
        raise OptionError(
            'init["W"] is a graph, but it must be a matrix with a row for each of model.strata_, such as model.W_. '
            "Pass networkx.to_numpy_array(graph, nodelist=model.strata_)."
        )
    if np.ndim(W) != 2 or W.shape != (K, K):
        raise OptionError(f'init["W"] has shape {np.shape(W)}, but the model has {K} strata.')
    try:
        return read_graph((labels[:K], W)).matrix()
    except GraphError as error:
        raise GraphError(f'init["W"]: {error}') from None


class _Callback:
    """Shows a user's callback the parameters by name and the graph as a matrix."""

    def __init__(self, function, layout, edges):
        self.function, self.layout, self.edges = function, layout, edges

    def __call__(self, state):
        view = copy.copy(state)
        view.theta, view.W = self.layout.unpack(state.theta), self.edges.to_matrix(state.w)
        return self.function(view)


def _fingerprint(model, problem, records):
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
    for factor in coupling.factors(model.base.couple):
        digest.update(repr(factor).encode())
        digest.update(model.base.couple_weights(model.values, factor).tobytes())
    for array in (*records.arrays, records.strata.index, records.weight):
        parts = (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,)
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
    ends = () if isinstance(problem.edges, AllPairs) else problem.edges.ends
    for array in (*ends, problem.w0):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(records.strata.labels).encode())
    return digest.hexdigest()


def _matrix(K, shared, edges, w):
    if shared:
        return np.zeros((K, K)) if K <= DENSE_STRATA else sp.csr_array((K, K))
    return edges.to_matrix(w) if isinstance(edges, AllPairs) or K <= DENSE_STRATA else edges.to_sparse(w)


def _finish(model, bound_model, result):
    """Store a result on the model."""
    base = model.base
    if base.smoothing is not None:
        result.smoothed_objective = result.objective
        result.parts["loss"] = float(bound_model.true_loss().value(result.theta).sum())
        result.objective = float(sum(result.parts.values()))
        result.notes.append(
            f"smoothing: the smoothed objective is nowhere above the true one, so at this graph the true objective is "
            f"at most {result.smoothing_bound:.3g} above its minimum, as far as the solver converged"
        )
    theta = np.repeat(result.theta, bound_model.prior.K, axis=0) if bound_model.shared else result.theta
    model.theta_ = base.layout.unpack(theta)
    model.result_ = result
    model._columns = bound_model.records.columns
    model._training = bound_model.records
    model._bound = bound_model.bound if sum(map(_bytes, bound_model.records.arrays)) <= KEPT else None


def _bytes(array):
    return array.data.nbytes


def _warn_of_data(model, strata, edges, w0):
    """Warn of strata that the data say nothing about; return notes for the result."""
    empty = np.flatnonzero(strata.counts == 0)
    if not len(empty):
        return []
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
        note = (
            f"{len(lonely)} strata have neither records nor edges: {some_of(lonely)}. Their parameters are the "
            f"regularizer's minimiser, or stay at the start where there is no regularizer."
        )
        warnings.warn(f"{note} Connect them, or drop them.", DataWarning, stacklevel=4)
        return [note]
    return []


def _warn_of_running_away(problem, result, bound_model):
    """Note and warn where the objective seems to have no minimum."""
    ridge = getattr(problem.regularizer.prox, "diagonal", None)
    if result.status == "converged" and ridge is not None and np.all(ridge > 0):
        return  # a convex loss falls at most linearly
    start = result.history[0]
    fell_far = result.objective < start - 1e3 * (1 + abs(start))
    if not np.isfinite(result.objective) or not (
        result.status == "converged" or (result.status == "max_iter" and fell_far)
    ):
        return
    found, endless = running_away(problem, result.theta, result.w)
    if not (len(found) or len(endless)):
        return

    def named(strata):
        return "" if bound_model.shared else f" of {some_of([bound_model.prior.labels[k] for k in strata])}"

    if len(found):
        note = (
            f"the objective seems unbounded below, or far from its minimum: it falls clearly where the parameters"
            f"{named(found)} are doubled. Check the signs in the loss, and give it a regularizer, constraints, or more "
            f"records a stratum."
        )
    else:
        note = (
            f"the loss seems to fall towards a limit that it never reaches, as with separable data: it is less than half "
            f"where the parameters{named(endless)} are doubled, however large they are (up to "
            f"{np.abs(result.theta[endless]).max():.2g} here), so that they mean a direction at most. Give the "
            f"regularizer a small ridge on all of them."
        )
    result.notes.append(note)
    warnings.warn(note[0].upper() + note[1:], ConvergenceWarning, stacklevel=4)


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
