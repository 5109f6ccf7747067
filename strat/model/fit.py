"""From a declaration and records to a solved problem: the steps of ``fit``."""

import copy
import time
from functools import partial

import networkx as nx
import numpy as np

from strat.compiler import coupling
from strat.compiler.base_model import BaseModel
from strat.compiler.expressions import contents
from strat.compiler.label_codes import label_codes, warn_of_label_codes
from strat.compiler.value_checks import check_tables, warn_of_lost_digits
from strat.errors import GraphError, OptionError, check_whole, type_name
from strat.graphs.prior_graph import read_graph
from strat.graphs.report import has_collapsed
from strat.model import fit_warnings
from strat.model.bound_model import BoundModel
from strat.oracles.base import is_elsewhere
from strat.oracles.clock import within
from strat.oracles.dask_engine import engine_of
from strat.oracles.device import device_of
from strat.problem.edges import EdgeList
from strat.records.archive import fingerprint
from strat.records.chunks import ChunkedRecords, chunks_of
from strat.solvers.starts import default_solver, solve


def fit_model(model, data, strata, sample_weight, init, validation, chunks=None, engine=None, device=None):
    """Fit a StratifiedModel in place, or a model with shared parameters."""
    started, base = time.perf_counter(), model.base
    check_options(model)
    if model.graph_regularizer.learned and not model.shared:
        model.graph_regularizer.validate(joint=True)
    chunks = chunks_of(data, strata, sample_weight, chunks)
    if device is not None or any(map(is_elsewhere, data)):
        engine = device = device_of(device, data, engine)
        chunks = [(*data, strata, sample_weight)] if chunks is None else chunks
    read = partial(ChunkedRecords, base.data, chunks, model.strata, engine=engine_of(engine))
    bound_model = BoundModel(model, data, strata, sample_weight, records=None if chunks is None else read)
    records, edges, values = bound_model.records, bound_model.edges, bound_model.values
    labels = bound_model.prior.labels
    if device is not None:
        edges.device = device
    check_tables(base.loss, base.data, records.strata.N)
    warn_of_lost_digits(base, records)
    fit_warnings.warn_of_order(bound_model, strata, data)
    problem = bound_model.problem()
    codes = {} if problem.loss.quadratic else label_codes(base.loss_program, values, records.arrays)
    warn_of_label_codes(codes, base.data, records.arrays, records.weight)
    solver = solver_for(model, problem)
    if solver.callback is not None:
        solver.callback = partial(_call_back, solver.callback, base.layout, edges)
    start = _start(model, problem, init, labels)
    held_out = None if validation is None else bound_model.validation(validation)
    options = {"n_starts": model.n_starts, "random_state": model.random_state, "started": started}
    options["score"] = held_out and held_out.mean_loss
    if solver.checkpoint is not None:
        options["fingerprint"] = _fingerprint(bound_model, problem, start, held_out)
    result = solve(problem, solver, start, **options)
    solved = time.perf_counter()
    unknown, notes = fit_warnings.warn_of_undetermined(bound_model, problem, result.w)
    result.notes += notes
    with within(solver.time_limit, started):
        running = fit_warnings.warn_of_no_minimum(bound_model, problem, result, solver.tol)
    if base.smoothing is not None:
        # Report the objective without smoothing as well as the smoothed one that was minimised.
        result.smoothed_objective = result.objective
        true_loss = bound_model.bind_loss(values, smooth=False)
        result.parts["loss"] = float(true_loss.value(result.theta).sum())
        result.objective = float(sum(result.parts.values()))
        result.notes.append(
            f"smoothing: the smoothed objective is nowhere above the true one, so at this graph the true objective is "
            f"at most {result.smoothing_bound:.3g} above its minimum, as far as the solver converged"
        )
    theta, w = result.theta, result.w
    if model.shared:
        theta, edges, w = np.repeat(theta, len(labels), axis=0), EdgeList(len(labels), [], []), np.zeros(0)
    edges.device = None  # the model keeps edges, and a device cannot be pickled
    model.theta_, model._weights = base.layout.unpack(theta), partial(edges.matrix, w)
    for name in ("W_", "_common"):
        vars(model).pop(name, None)  # forget what was derived from the last fit
    model.strata_, model.result_ = list(labels), result
    model._columns, model._training = records.columns, None if bound_model.chunked else records
    # Counts are kept when chunks are not, except for shared parameters, where they are of all strata together.
    model._counts = None if bound_model.chunked and model.shared else records.counts
    graph = None if model.graph is None else bound_model.prior
    model._of_fit = {"graph": graph, "scale": copy.copy(model.scale)}
    data = records.head[: len(base.data)] if bound_model.chunked else data
    model._set_features(data[0] if data else None)
    model._undetermined, model._running, model._fit_values = unknown, running, values
    if problem.learned and len(labels) > 1 and has_collapsed(result.theta, problem.loss):
        fit_warnings.warn_of_collapse(result)
    result.seconds += time.perf_counter() - solved


def fit_within(model, data, strata, sample_weight=None):
    """Fit a model as a part of a longer computation, which Ctrl-C stops as a KeyboardInterrupt; return the model."""
    model.fit(*data, strata=strata, sample_weight=sample_weight)
    status = model.result_.status if hasattr(model, "result_") else "fitted"
    if status == "interrupted" and getattr(model.solver, "callback", None) is None:
        raise KeyboardInterrupt
    return model


def solver_for(model, problem):
    """A copy of the model's solver, or the default one for the problem."""
    return copy.copy(model.solver or default_solver(problem.loss, problem.learned, problem.regularizer))


def check_options(model):
    """Check the types and ranges of a model's arguments."""
    if not isinstance(model.base, BaseModel):
        way = "declare one with BaseModel(loss, regularizer, data=(…))."
        raise OptionError(f"base must be a strat.BaseModel, not {type_name(model.base)}; {way}")
    check_whole("n_starts", model.n_starts, 1)
    check_whole("random_state", model.random_state, 0)
    learned = "LogDet(…), LogDiagonal(…), TraceConstraint(…), Entropy(…) or FixedGraph()"
    for name, example in {"graph_regularizer": learned, "solver": "MAPG(…)"}.items():
        value = getattr(model, name)
        if value is not None and (isinstance(value, type) or not hasattr(value, "validate")):
            raise OptionError(f"{name} must be an object such as strat.{example}, not {value!r}.")
    if model.solver is not None:
        model.solver.validate()


def _start(model, problem, init, labels):
    """The start for the solver: a name, or a dict of flat arrays."""
    K, edges, layout = problem.K, problem.edges, model.base.layout
    if init is None and model.warm_start and hasattr(model, "theta_"):
        last, row = model._flat(), {label: k for k, label in enumerate(model.strata_)}
        if last.shape[1] != problem.n:
            return None
        new = np.full(problem.n, np.nan)  # NaN: a stratum that is new starts as without an earlier fit
        theta = last[:1] if K == 1 else np.stack([last[row[z]] if z in row else new for z in labels])
        alike = problem.learned and list(row) == labels
        return _last_fit(problem, theta, edges.from_matrix(model.W_) if alike else None)
    if init is None or isinstance(init, str):
        return init
    if not isinstance(init, dict):
        raise OptionError(f'init must be "zero", "separate", "lrsm" or a dict: "theta", "W"; not {init!r}.')
    for name in init.keys() - {"theta", "W"}:
        raise OptionError(f'init has the key {name!r}; its keys are "theta" and "W".')
    start = {}
    if "theta" in init:
        theta, left_out = init["theta"], []
        if isinstance(theta, dict):
            left_out = layout.shapes.keys() - theta.keys()
            theta = {**layout.unpack(np.zeros((K, problem.n))), **theta}
        theta = layout.pack(theta)
        for name in left_out:  # NaN: this variable starts as without init
            theta[:, layout.slices[name]] = np.nan
        if K == 1:  # a common model starts from the mean of stratified parameters
            theta = theta.mean(axis=0, keepdims=True)
        if len(theta) != K:
            raise OptionError(f'init["theta"] has {len(theta)} strata, but the model has {K}.')
        start["theta"] = theta
    if "W" in init:
        W = init["W"]
        if isinstance(W, nx.Graph):
            raise OptionError(
                'init["W"] is a graph, but it must be a matrix with a row for each of model.strata_, such as model.W_. '
                "Pass networkx.to_numpy_array(graph, nodelist=model.strata_)."
            )
        if np.shape(W) != (K, K):
            raise OptionError(f'init["W"] has shape {np.shape(W)}, but the model has {K} strata.')
        try:
            start["w"] = edges.from_matrix(read_graph((labels[:K], W)).matrix())
        except GraphError as error:
            raise GraphError(f'init["W"]: {error}') from None
    return start


def _last_fit(problem, theta, w):
    """The start at an earlier fit, without w where w is infeasible for new constants: the solver then finds another."""
    return {"theta": theta} if w is None or not problem.feasible(w) else {"theta": theta, "w": w}


def _call_back(function, layout, edges, state):
    """Call a user's callback with parameters by name and the graph as a matrix."""
    view = copy.copy(state)
    view.theta, view.W = layout.unpack(state.theta), edges.matrix(state.w)
    return function(view)


def _fingerprint(bound_model, problem, start, held_out):
    """A hash of declaration, constants, start, graph and records, which ties a checkpoint to one fit."""
    model, base, edges = bound_model.model, bound_model.base, problem.edges
    values = [np.asarray(bound_model.values.get(name), dtype=float) for name in base.hyperparameters]
    couple = [(f, base.couple_weights(bound_model.values, f)) for f in coupling.factors(base.couple)]
    parts = [contents(base), values, couple, model.graph_regularizer, model.scale, model.random_state, start]
    parts += [model.shared, bound_model.regularizer_weight, bound_model.prior.labels, problem.w0]
    parts += [problem.outside, None if edges.all_pairs else edges.ends]
    for records in (bound_model.records, getattr(held_out, "records", None)):
        if records is not None:
            parts += [records.arrays, records.strata.index, records.weight]
    if bound_model.chunked:  # the records above are a sample; sums to six digits represent all records
        sums = problem.loss.value_and_gradient(np.zeros((problem.K, problem.n)))
        for each in (bound_model.records.counts, *map(np.nan_to_num, sums)):
            size = np.abs(each).max() or 1.0
            parts += [f"{size:.6g}", np.round(each / size, 6) + 0.0]
    return fingerprint(*parts)


class Refits:
    """Fits of one model to one set of records, read once, for many constants; a refit binds only what depends on changed ones.

    The model's constants hold where a refit gives no others. The solver's callback, checkpoint and patience are ignored, and
    `tol` overrides its tolerance. Other arguments are those of ``fit``, and ``nodes`` is that of `BoundModel`.
    """

    def __init__(self, model, data, strata, sample_weight=None, nodes=None, tol=None):
        check_options(model)
        self.model, self.tol = model, tol
        self.bound_model = BoundModel(model, tuple(data), strata, sample_weight, nodes)

    def fit(self, theta=None, w=None, time_limit=None, **constants):
        """The problem for `constants` of ``BoundModel.problem``, and its Result from theta and w, or from the default start."""
        problem = self.bound_model.problem(**constants)
        if problem.learned:
            problem.graph_regularizer.validate(joint=True)
        solver = solver_for(self.model, problem)
        solver.tol = solver.tol if self.tol is None else self.tol
        solver.callback, solver.checkpoint, solver.patience, solver.verbose = None, None, None, False
        if time_limit is not None and (solver.time_limit is None or time_limit < solver.time_limit):
            solver.time_limit = time_limit
        start = None if theta is None else _last_fit(problem, theta, w)
        result = solve(problem, solver, start, random_state=self.model.random_state)
        if result.status == "interrupted":  # by Ctrl-C, as there is no callback
            raise KeyboardInterrupt
        return problem, result
