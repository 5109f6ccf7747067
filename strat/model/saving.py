"""Model files: arrays in npz, the rest in JSON inside it; nothing is pickled. Entries are checked when written and read."""

import json
import math
import sys
from dataclasses import fields

import numpy as np
import scipy.sparse as sp

import strat
from strat.compiler.binder import dense
from strat.errors import OptionError, StratError
from strat.graphs.prior_graph import node_labels, read_graph
from strat.records.archive import as_path, decoded, encoded, write_archive
from strat.solvers import Result, Solver

FORMAT = 1


def _number(value, least=0, types=(int, float)):
    return type(value) in types and least <= value <= sys.float_info.max


#: The kinds of single values, in words, and how they are checked.
WHOLE, FINITE, SIZE = "a whole number of at least 0", "a finite number", "a finite number of at least 0"
KINDS = {
    "text": lambda v: type(v) is str,
    "true or false": lambda v: type(v) is bool,
    "a list": lambda v: type(v) is list,
    "anything": lambda v: True,
    WHOLE: lambda v: _number(v, 0, (int,)),
    "a number": lambda v: type(v) is float or _number(v, -sys.float_info.max),
    FINITE: lambda v: _number(v, -sys.float_info.max),
    SIZE: _number,
    "a scale or a dict of scales": lambda v: all(map(_number, v.values() if type(v) is dict else [v])),
    "columns": lambda v: all(type(c) in (str, int) for c in (v if type(v) is list else [v])),
}
COMPONENT = {"class": "text", "params": {"*": "anything"}}
#: All entries except the arrays. A list holds items of one kind; a dict has these names ("?": optional), or any ("*").
META = {
    "format": WHOLE,
    "class": "one of StratifiedModel, CommonModel",
    "declaration": "text",
    "variables": {"*": [WHOLE]},
    "strata": "a list",
    "graph?": "a list",
    "factors?": ["text"],
    "graph_regularizer": COMPONENT,
    "solver?": COMPONENT,
    "options": {
        "scale": "a scale or a dict of scales",
        "n_starts": WHOLE,
        "warm_start": "true or false",
        "random_state": WHOLE,
    },
    "edges?": "one of all, prior, two-hop, knn",
    "strata_columns?": "columns",
    "regularizer_weight?": SIZE,
    "columns": {"*": ["text"]},
    "result": {
        "status": "one of converged, early_stopped, max_iter, time_limit, interrupted",
        "iterations": WHOLE,
        "objective": FINITE,
        "parts": {"*": FINITE},
        "residual": {"*": "a number"},
        "history": ["a number"],
        "seconds": SIZE,
        "factorizations": WHOLE,
        "init?": "text",
        "starts?": [{"init": "text", "objective": "a number", "status": "text"}],
        "notes?": ["text"],
        "smoothed_objective?": "a number",
        "history_seconds?": ["a number"],
    },
}


def save(model, path):
    """Write a fitted model to one file, which ``strat.load`` reads."""
    path = as_path(path, "path")
    arrays = {f"theta/{name}": value for name, value in model.theta_.items()}
    for k, name in enumerate(model.base.hyperparameters):  # CVXPY names some anew in every session
        if np.isfinite(value := np.asarray(model.values.get(name, np.nan))).all():
            arrays[f"fit/{k}"] = value
    own = {f"value/{name}": value for name, value in model._values.items() if value is not None}
    arrays |= {name: np.asarray(dense(value), dtype=float) for name, value in own.items()}
    if sp.issparse(model.W_):
        csr = sp.csr_array(model.W_)
        arrays |= {"W/data": csr.data, "W/indices": csr.indices, "W/indptr": csr.indptr}
    else:
        arrays["W"] = model.W_
    if getattr(model, "_undetermined", None) is not None:
        arrays["undetermined"] = model._undetermined
    prior = None if model.graph is None else read_graph(model.graph)
    if prior is not None:
        arrays |= {"graph/i": prior.i, "graph/j": prior.j, "graph/edge": prior.term_edge}
        arrays |= {"graph/weight": prior.term_weight, "graph/factor": prior.term_factor}
    result = {f.name: getattr(model.result_, f.name) for f in fields(Result) if f.name not in ("theta", "w")}
    meta = {
        "format": FORMAT,
        "class": "CommonModel" if model.shared else "StratifiedModel",
        "declaration": str(model.base),
        "variables": model.base.layout.shapes,
        "strata": list(map(encoded, model.strata_)),
        "graph": prior and list(map(encoded, prior.labels)),
        "factors": prior and prior.factors,
        "graph_regularizer": _component(model.graph_regularizer),
        "solver": _component(model.solver),
        "options": {name: getattr(model, name) for name in META["options"]},
        "edges": model.edges if isinstance(model.edges, str) else None,
        "strata_columns": model.strata,
        "regularizer_weight": getattr(model, "regularizer_weight", None),
        "columns": {name: list(map(str, columns)) for name, columns in model._columns.items()},
        "result": result,
    }
    meta["options"]["warm_start"] = bool(model.warm_start)
    # NumPy's numbers and arrays become JSON's, anything else text.
    text = json.dumps(meta, default=lambda v: getattr(v, "tolist", v.__str__)())
    try:
        check_file(arrays, json.loads(text))
        write_archive(path, {"meta": np.array(text), **arrays}, compressed=True)
    except ValueError as error:
        raise OptionError(f"the model cannot be stored: {error}. Set it right, and save again.") from error
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written ({error.strerror or error}); what was there before is unchanged. Make room, or give "
            f"a path in a folder where you may write."
        ) from error


def _component(component):
    """Class and parameters of a graph regularizer or solver; callback and checkpoint belong to one session."""
    if component is None:
        return None
    params = component.get_params(deep=False).items()
    params = {name: value for name, value in params if name not in ("callback", "checkpoint")}
    return {"class": type(component).__name__, "params": params}


def read_component(entry, kind, path):
    """The graph regularizer or solver that a file names: a public class of strat."""
    name = entry["class"]
    params = {key: tuple(v) if isinstance(v, list) else v for key, v in entry["params"].items()}  # a step
    public = getattr(strat, name) if name in strat.__all__ else None
    if not (isinstance(public, type) and issubclass(public, kind)):
        what = f"the {'solver' if kind is Solver else 'graph regularizer'} {name}"
        raise OptionError(
            f"{path} was saved with {what}, which is none of strat's own, so that it cannot be made again. strat.load(path) "
            f"without base= reads what was fitted (theta_, W_, strata_, result_); to predict, fit a model with {name} again."
        )
    try:
        component = public(**params)
        component.validate()
    except (TypeError, StratError) as error:
        raise OptionError(
            f"{path} has params of {name} that this version of strat does not take: {error}. Without base= it can be read."
        ) from error
    return component


def check_file(arrays, meta):
    """Raise a ValueError that names the fault, unless `arrays` and `meta` are those of a model file."""
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        raise ValueError(f"it has format {found!r}, and this version reads format {FORMAT}")
    _check_entry(META, meta, "meta")
    K, shapes, common = len(read_labels(meta, "strata")), meta["variables"], meta["class"] == "CommonModel"
    size = {name: array.size for name, array in arrays.items()}.get
    table = {f"theta/{name}": ("f", (K, *shape)) for name, shape in shapes.items()}
    table |= {n: ("f", a.shape) for n, a in arrays.items() if n.startswith(("value/", "fit/"))}
    if "undetermined" in arrays:
        table["undetermined"] = "b", (1 if common else K, sum(map(math.prod, shapes.values())))
    if "W" in arrays:
        table["W"] = "f", (K, K)
    else:
        E = size("W/data")
        table |= {"W/data": ("f", (E,)), "W/indices": ("iu", (E,), 0, K), "W/indptr": ("iu", (K + 1,))}
    if meta.get("graph") is not None:
        nodes, edges, T = len(read_labels(meta, "graph")), size("graph/i"), size("graph/edge")
        table |= {"graph/i": ("iu", (edges,), 0, nodes), "graph/j": ("iu", (edges,), 0, nodes)}
        table |= {"graph/edge": ("iu", (T,), 0, edges), "graph/weight": ("f", (T,), 0)}
        table["graph/factor"] = "iu", (T,), -1, len(meta.get("factors") or ())
    _same_names(arrays, table.keys(), "the file")
    for name, kind in table.items():
        _check_array(arrays[name], name, *kind)
    if "graph/i" in arrays and not np.all(arrays["graph/i"] < arrays["graph/j"]):
        raise ValueError("graph/i holds numbers out of range")
    if "W" not in arrays:  # SciPy's own check accepts row pointers with which it reads out of bounds
        ends = arrays["W/indptr"].astype(float)
        if ends[0] != 0 or ends[-1] != E or (np.diff(ends) < 0).any():
            raise ValueError("W/indptr does not rise from 0 to the number of weights")
    W = read_weights(arrays, K)
    if (W.data if sp.issparse(W) else W).min(initial=0.0) < 0 or abs(W - W.T).max() > 0 or W.diagonal().any():
        raise ValueError("W holds weights that are negative, not symmetric, or on the diagonal")


def read_labels(meta, where):
    """The labels of a list in the file, which are present and distinct."""
    try:
        return node_labels([decoded(entry) for entry in meta[where]])
    except (StratError, ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_weights(arrays, K):
    """The weights, (K, K), dense or sparse as in the file."""
    if "W" in arrays:
        return arrays["W"]
    return sp.csr_array((arrays["W/data"], arrays["W/indices"], arrays["W/indptr"]), shape=(K, K))


def _check_entry(kind, value, where):
    if isinstance(kind, dict) and isinstance(value, dict):
        kinds = {name.rstrip("?"): k for name, k in kind.items()}
        kinds = dict.fromkeys(value, kind["*"]) if "*" in kind else kinds
        _same_names(value, {name for name in kinds if name in value or f"{name}?" not in kind}, where)
        for name, item in value.items():
            if item is not None or f"{name}?" not in kind:
                _check_entry(kinds[name], item, f"{where}[{name!r}]")
    elif isinstance(kind, list) and isinstance(value, list):
        for k, item in enumerate(value):
            _check_entry(kind[0], item, f"{where}[{k}]")
    elif not isinstance(kind, str):
        raise ValueError(f"{where} is {value!r:.60}, but must be a {type(kind).__name__}")
    elif not KINDS.get(kind, lambda v: v in kind.removeprefix("one of ").split(", "))(value):
        raise ValueError(f"{where} is {value!r:.60}, but must be {kind}")


def _check_array(array, name, kinds, shape, least=-np.inf, end=np.inf):
    if array.dtype.kind not in kinds or array.shape != shape or (kinds == "f" and array.dtype != float):
        words = {"f": "floats of 64 bits", "b": "booleans", "iu": "whole numbers"}[kinds]
        raise ValueError(f"{name} holds {array.dtype} of shape {array.shape}, not {words} of shape {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")
    if not np.all((array >= least) & (array < end)):
        raise ValueError(f"{name} holds numbers out of range")


def _same_names(entries, names, where):
    for name in sorted(entries.keys() ^ names):
        known = "has no entry {}" if name in names else "has the entry {}, which this version does not know"
        raise ValueError(f"{where} {known.format(repr(name))}")
