"""The schema of a model file: its entries, with their types, shapes and ranges. Every error is a ValueError that names one."""

import math
import sys

import numpy as np
import scipy.sparse as sp

from strat.errors import StratError
from strat.graphs.prior_graph import node_labels
from strat.records.stored_labels import decoded

FORMAT = 1


def check_file(arrays, meta):
    """Raise a ValueError unless these are the arrays and the other entries of a model file."""
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        found = meta.get("format") if isinstance(meta, dict) else None
        raise ValueError(f"it has format {found!r}, and this version reads format {FORMAT}")
    META(meta, "meta")
    K = len(read_labels(meta["strata"], "strata"))
    shapes = {f"theta/{name}": (K, *shape) for name, shape in meta["variables"].items()}
    shapes |= {name: array.shape for name, array in arrays.items() if name.startswith("value/")}
    if "undetermined" in arrays:
        n = sum(math.prod(shape) for shape in meta["variables"].values())
        shapes["undetermined"] = (1 if meta["class"] == "CommonModel" else K, n)
    sizes = {name: array.size for name, array in arrays.items()}
    if "W" in arrays:
        shapes["W"] = (K, K)
    else:
        E = sizes.get("W/data")  # None where there is none
        shapes |= {"W/data": (E,), "W/indices": (E,), "W/indptr": (K + 1,)}
    if meta["graph"] is not None:
        edges, T = sizes.get("graph/i"), sizes.get("graph/edge")
        shapes |= {f"graph/{name}": (edges,) for name in ("i", "j")}
        shapes |= {f"graph/{name}": (T,) for name in ("edge", "weight", "factor")}
    _same_names(arrays, shapes.keys(), "the file")
    for name, shape in shapes.items():
        _check_array(arrays[name], name, shape)
    if "W" not in arrays:  # SciPy's own check lets rows pass with which it reads outside of its memory
        _check_range(arrays, "W/indices", 0, K)
        ends = arrays["W/indptr"].astype(float)
        if ends[0] != 0 or ends[-1] != E or (np.diff(ends) < 0).any():
            raise ValueError("W/indptr does not rise from 0 to the number of weights")
    W = read_weights(arrays, K)
    if (W.data if sp.issparse(W) else W).min(initial=0.0) < 0 or abs(W - W.T).max() > 0 or W.diagonal().any():
        raise ValueError("W holds weights that are negative, not symmetric, or on the diagonal")
    if meta["graph"] is not None:
        K = len(read_labels(meta["graph"], "graph"))
        _check_range(arrays, "graph/i", 0, arrays["graph/j"])
        _check_range(arrays, "graph/j", 0, K)
        _check_range(arrays, "graph/edge", 0, edges)
        _check_range(arrays, "graph/factor", -1, len(meta["factors"] or ()))
        _check_range(arrays, "graph/weight", 0, np.inf)


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


# ------------------------------------------------------------ arrays

_WHOLE = ("W/indices", "W/indptr", "graph/i", "graph/j", "graph/edge", "graph/factor")
#: Kinds of NumPy's types, and in words, of the arrays that hold no floats.
TYPES = {"undetermined": ("b", "booleans"), **dict.fromkeys(_WHOLE, ("iu", "whole numbers"))}


def _check_array(array, name, shape):
    kinds, words = TYPES.get(name, ("f", "floats of 64 bits"))
    if array.dtype.kind not in kinds or array.shape != shape or (kinds == "f" and array.dtype != float):
        raise ValueError(
            f"{name} has type {array.dtype} and shape {array.shape}, but must hold {words} of shape {shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")


def _check_range(arrays, name, least, end):
    if not np.all((arrays[name] >= least) & (arrays[name] < end)):
        raise ValueError(f"{name} holds numbers out of range")


def _same_names(entries, names, where):
    for name in sorted(entries.keys() - names):
        raise ValueError(f"{where} has the entry {name!r}, which this version does not know")
    for name in sorted(names - entries.keys()):
        raise ValueError(f"{where} has no entry {name!r}")


# ------------------------------------------------------------ the other entries: each kind checks a value


def _kind(words, good):
    def check(value, where):
        if not good(value):
            raise ValueError(f"{where} is {value!r:.60}, but must be {words}")

    return check


def _one_of(*values):
    return _kind(f"one of {', '.join(map(str, values))}", lambda value: value in values)


def _list(kind):
    def check(value, where):
        LIST(value, where)
        for k, item in enumerate(value):
            kind(item, f"{where}[{k}]")

    return check


def _dict(kind):
    def check(value, where):
        DICT(value, where)
        for name, item in value.items():
            kind(item, f"{where}[{name!r}]")

    return check


def _fields(kinds, optional=()):
    """A dict with these entries."""

    def check(value, where):
        DICT(value, where)
        _same_names(value, kinds.keys() - (set(optional) - value.keys()), where)
        for name, item in value.items():
            kinds[name](item, f"{where}[{name!r}]")

    return check


def _either(first, second):
    """The second kind for a list or a dict, otherwise the first."""
    return lambda value, where: (second if isinstance(value, list | dict) else first)(value, where)


def _optional(kind):
    return lambda value, where: None if value is None else kind(value, where)


def _is_number(value):
    """Whether a value is a float, or a whole number that a float can hold."""
    return type(value) is float or type(value) is int and abs(value) <= sys.float_info.max


LIST = _kind("a list", lambda value: isinstance(value, list))
DICT = _kind("a dict", lambda value: isinstance(value, dict))
ANY = _kind("anything", lambda value: True)
TEXT = _kind("text", lambda value: isinstance(value, str))
BOOL = _kind("true or false", lambda value: isinstance(value, bool))
WHOLE = _kind("a whole number of at least 0", lambda value: type(value) is int and 0 <= value < 2**63)
COUNT = _kind("a whole number above 0", lambda value: type(value) is int and 0 < value < 2**63)
NUMBER = _kind("a number", _is_number)
FINITE = _kind("a finite number", lambda value: _is_number(value) and abs(value) < np.inf)
SCALE = _kind("a finite number of at least 0", lambda value: _is_number(value) and 0 <= value < np.inf)
POSITIVE = _kind("a finite number above 0", lambda value: _is_number(value) and 0 < value < np.inf)

COMPONENT = _fields({"class": TEXT, "params": _dict(ANY)})
RESULT = {
    "status": _one_of("converged", "early_stopped", "max_iter", "time_limit", "interrupted"),
    "iterations": WHOLE,
    "objective": FINITE,
    "parts": _dict(FINITE),
    "residual": _dict(NUMBER),
    "history": _list(NUMBER),
    "seconds": SCALE,
    "factorizations": WHOLE,
    "init": TEXT,
    "starts": _list(_fields({"init": TEXT, "objective": NUMBER, "status": TEXT})),
    "notes": _list(TEXT),
    "smoothed_objective": _optional(NUMBER),
    "history_seconds": _list(NUMBER),
}
META = _fields(
    {
        "format": WHOLE,
        "class": _one_of("StratifiedModel", "CommonModel"),
        "declaration": TEXT,
        "variables": _dict(_list(WHOLE)),
        "strata": LIST,
        "graph": _optional(LIST),
        "factors": _optional(_list(TEXT)),
        "graph_regularizer": COMPONENT,
        "solver": _optional(COMPONENT),
        "options": _fields(
            {
                "scale": _either(SCALE, _dict(SCALE)),
                "n_starts": COUNT,
                "warm_start": BOOL,
                "random_state": WHOLE,
            }
        ),
        "edges": _optional(_one_of("all", "prior", "two-hop", "knn")),
        "strata_columns": _optional(_either(TEXT, _list(TEXT))),
        "regularizer_weight": _optional(POSITIVE),
        "columns": _dict(_list(TEXT)),
        "result": _fields(
            RESULT, optional=("init", "starts", "notes", "smoothed_objective", "history_seconds")
        ),
    }
)
