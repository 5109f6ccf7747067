"""The schema of a model file: its entries, with their types, shapes and ranges. Every error is a ValueError that names one."""

import math
import sys

import numpy as np
import scipy.sparse as sp

from strat.errors import StratError
from strat.graphs.prior_graph import node_labels
from strat.records.stored_labels import decoded

FORMAT = 1


def _number(least=-np.inf, end=np.inf, types=(int, float)):
    return lambda v: type(v) in types and abs(v) <= sys.float_info.max and least <= v < end


def _type(*types):
    return lambda v: type(v) in types


#: What a single value may be, in words.
KINDS = {
    "null": lambda v: v is None,
    "text": _type(str),
    "true or false": _type(bool),
    "a list": _type(list),
    "anything": lambda v: True,
    "a whole number of at least 0": _number(0, 2**63, (int,)),
    "a whole number above 0": _number(1, 2**63, (int,)),
    "a number": lambda v: type(v) is float or _number()(v),
    "a finite number": _number(),
    "a finite number of at least 0": _number(0),
    "a finite number above 0": _number(5e-324),
}
WHOLE, FINITE, SCALE = "a whole number of at least 0", "a finite number", "a finite number of at least 0"
COMPONENT = {"class": "text", "params": {"*": "anything"}}
#: All entries but the arrays. A list holds items of one kind; a dict has these names, those with "?" or all ("*"); a tuple
#: lists several kinds, of which the value has one.
META = {
    "format": WHOLE,
    "class": "one of StratifiedModel, CommonModel",
    "declaration": "text",
    "variables": {"*": [WHOLE]},
    "strata": "a list",
    "graph": ("null", "a list"),
    "factors": ("null", ["text"]),
    "graph_regularizer": COMPONENT,
    "solver": ("null", COMPONENT),
    "options": {
        "scale": (SCALE, {"*": SCALE}),
        "n_starts": "a whole number above 0",
        "warm_start": "true or false",
        "random_state": WHOLE,
    },
    "edges": ("null", "one of all, prior, two-hop, knn"),
    "strata_columns": ("null", "text", ["text"]),
    "regularizer_weight": ("null", "a finite number above 0"),
    "columns": {"*": ["text"]},
    "result": {
        "status": "one of converged, early_stopped, max_iter, time_limit, interrupted",
        "iterations": WHOLE,
        "objective": FINITE,
        "parts": {"*": FINITE},
        "residual": {"*": "a number"},
        "history": ["a number"],
        "seconds": SCALE,
        "factorizations": WHOLE,
        "init?": "text",
        "starts?": [{"init": "text", "objective": "a number", "status": "text"}],
        "notes?": ["text"],
        "smoothed_objective?": ("null", "a number"),
        "history_seconds?": ["a number"],
    },
}


def check_file(arrays, meta):
    """Raise a ValueError unless these are the arrays and the other entries of a model file."""
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        raise ValueError(f"it has format {found!r}, and this version reads format {FORMAT}")
    check_entry(META, meta, "meta")
    K, shapes = len(read_labels(meta["strata"], "strata")), meta["variables"]
    size = {name: array.size for name, array in arrays.items()}.get
    table = {f"theta/{name}": ("f", (K, *shape)) for name, shape in shapes.items()}
    table |= {name: ("f", array.shape) for name, array in arrays.items() if name.startswith("value/")}
    if "undetermined" in arrays:
        table["undetermined"] = (
            "b",
            (1 if meta["class"] == "CommonModel" else K, sum(map(math.prod, shapes.values()))),
        )
    if "W" in arrays:
        table["W"] = "f", (K, K)
    else:
        E = size("W/data")
        table |= {"W/data": ("f", (E,)), "W/indices": ("iu", (E,), 0, K), "W/indptr": ("iu", (K + 1,))}
    if meta["graph"] is not None:
        nodes, edges, T = len(read_labels(meta["graph"], "graph")), size("graph/i"), size("graph/edge")
        table |= {"graph/i": ("iu", (edges,), 0, nodes), "graph/j": ("iu", (edges,), 0, nodes)}
        table |= {"graph/edge": ("iu", (T,), 0, edges), "graph/weight": ("f", (T,), 0)}
        table["graph/factor"] = "iu", (T,), -1, len(meta["factors"] or ())
    _same_names(arrays, table.keys(), "the file")
    for name, kind in table.items():
        _check_array(arrays[name], name, *kind)
    if meta["graph"] is not None and not np.all(arrays["graph/i"] < arrays["graph/j"]):
        raise ValueError("graph/i holds numbers out of range")
    if "W" not in arrays:  # SciPy's own check lets rows pass with which it reads outside of its memory
        ends = arrays["W/indptr"].astype(float)
        if ends[0] != 0 or ends[-1] != E or (np.diff(ends) < 0).any():
            raise ValueError("W/indptr does not rise from 0 to the number of weights")
    W = read_weights(arrays, K)
    if (W.data if sp.issparse(W) else W).min(initial=0.0) < 0 or abs(W - W.T).max() > 0 or W.diagonal().any():
        raise ValueError("W holds weights that are negative, not symmetric, or on the diagonal")


def read_labels(entries, where):
    """The labels of a list in the file, which are present and distinct."""
    try:
        return node_labels([decoded(entry) for entry in entries])
    except (StratError, ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_weights(arrays, K):
    """The weights, (K, K), dense or sparse as the file has them."""
    if "W" in arrays:
        return arrays["W"]
    return sp.csr_array((arrays["W/data"], arrays["W/indices"], arrays["W/indptr"]), shape=(K, K))


def check_entry(kind, value, where):
    """Raise a ValueError that names the entry where a value is not of its kind."""
    if isinstance(kind, tuple):  # the kind of a list or dict, null, or the first other
        of_type = [k for k in kind if type(k) is type(value) and type(k) is not str]
        kind = (of_type or [k for k in kind if (k == "null") == (value is None)] or kind)[0]
    if isinstance(kind, str):
        test = KINDS.get(kind, lambda v: type(v) is str and v in kind.removeprefix("one of ").split(", "))
        if not test(value):
            raise ValueError(f"{where} is {value!r:.60}, but must be {kind}")
    elif type(value) is not type(kind):
        raise ValueError(f"{where} is {value!r:.60}, but must be a {type(kind).__name__}")
    elif isinstance(kind, list):
        for k, item in enumerate(value):
            check_entry(kind[0], item, f"{where}[{k}]")
    else:
        kinds = (
            dict.fromkeys(value, kind["*"])
            if "*" in kind
            else {name.removesuffix("?"): k for name, k in kind.items()}
        )
        _same_names(
            value,
            kinds.keys() - {name[:-1] for name in kind if name[-1] == "?" and name[:-1] not in value},
            where,
        )
        for name, item in value.items():
            check_entry(kinds[name], item, f"{where}[{name!r}]")


def _check_array(array, name, kinds, shape, least=-np.inf, end=np.inf):
    if array.dtype.kind not in kinds or array.shape != shape or (kinds == "f" and array.dtype != float):
        words = {"f": "floats of 64 bits", "b": "booleans", "iu": "whole numbers"}[kinds]
        raise ValueError(
            f"{name} has type {array.dtype} and shape {array.shape}, but must hold {words} of shape {shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")
    if not np.all((array >= least) & (array < end)):
        raise ValueError(f"{name} holds numbers out of range")


def _same_names(entries, names, where):
    for name in sorted(entries.keys() ^ names):
        known = "has no entry {}" if name in names else "has the entry {}, which this version does not know"
        raise ValueError(f"{where} {known.format(repr(name))}")
