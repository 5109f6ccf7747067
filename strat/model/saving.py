"""Saving fitted models: arrays in npz, the rest in JSON inside it; nothing is pickled."""

import datetime
import json
from dataclasses import fields

import numpy as np
import scipy.sparse as sp

from strat.errors import OptionError
from strat.graphs.reading import read_graph
from strat.solvers import Result

FORMAT = 1
_DROPPED = ("callback", "checkpoint")
_PLAIN = (str, int, float, bool, type(None))


def save(model, path):
    """Write a fitted model to one file.

    Parameters
    ----------
    model : StratifiedModel
    path : str or path
    """
    arrays = {f"theta/{name}": value for name, value in model.theta_.items()}
    if sp.issparse(model.W_):
        csr = sp.csr_array(model.W_)
        arrays |= {"W/data": csr.data, "W/indices": csr.indices, "W/indptr": csr.indptr}
    else:
        arrays["W"] = model.W_
    prior = None if model.graph is None else read_graph(model.graph)
    if prior is not None:
        arrays |= {"graph/i": prior.i, "graph/j": prior.j, "graph/edge": prior.term_edge}
        arrays |= {"graph/weight": prior.term_weight, "graph/factor": prior.term_factor}
    result = {f.name: getattr(model.result_, f.name) for f in fields(Result) if f.name not in ("theta", "w")}
    for name, value in model.values.items():
        arrays[f"value/{name}"] = np.asarray(value, dtype=float)
    meta = {
        "format": FORMAT,
        "class": type(model).__name__,
        "declaration": str(model.base),
        "variables": {name: list(shape) for name, shape in model.base.layout.shapes.items()},
        "strata": [_encoded(label) for label in model.strata_],
        "graph": None if prior is None else [_encoded(label) for label in prior.labels],
        "factors": None if prior is None else list(prior.factors),
        "graph_regularizer": _component(model.graph_regularizer),
        "solver": _component(model.solver),
        "options": {k: getattr(model, k) for k in ("scale", "n_starts", "warm_start", "random_state")},
        "edges": model.edges if isinstance(model.edges, str) else None,
        "strata_columns": model.strata,
        "regularizer_weight": getattr(model, "regularizer_weight", None),
        "columns": {k: [str(c) for c in v] for k, v in model._columns.items()},
        "result": _plain(result),
    }
    with open(path, "wb") as file:
        np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)


def _component(component):
    if component is None:
        return None
    params = {k: _plain(v) for k, v in component.get_params(deep=False).items() if k not in _DROPPED}
    return {"class": type(component).__name__, "params": params}


def _plain(value):
    """The value with JSON's types only."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, _PLAIN) else str(value)


def _encoded(label):
    if isinstance(label, tuple):
        return {"tuple": [_encoded(part) for part in label]}
    if isinstance(label, (datetime.datetime, datetime.date)):
        return {"datetime" if isinstance(label, datetime.datetime) else "date": label.isoformat()}
    if isinstance(label, frozenset):
        return {"frozenset": [_encoded(part) for part in label]}
    if isinstance(label, np.generic):
        label = label.item()
    if not isinstance(label, _PLAIN):
        raise OptionError(
            f"the stratum label {label!r} cannot be stored; use numbers, text, dates or tuples of them."
        )
    return label
