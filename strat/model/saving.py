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


def save(model, path):
    """Write a fitted model to one file, which ``strat.load`` reads."""
    arrays = {f"theta/{name}": value for name, value in model.theta_.items()}
    arrays |= {f"value/{name}": np.asarray(value, dtype=float) for name, value in model.values.items()}
    if sp.issparse(model.W_):
        csr = sp.csr_array(model.W_)
        arrays |= {"W/data": csr.data, "W/indices": csr.indices, "W/indptr": csr.indptr}
    else:
        arrays["W"] = model.W_
    prior = None if model.graph is None else read_graph(model.graph)
    if getattr(model, "_undetermined", None) is not None:
        arrays["undetermined"] = model._undetermined
    if prior is not None:
        arrays |= {"graph/i": prior.i, "graph/j": prior.j, "graph/edge": prior.term_edge}
        arrays |= {"graph/weight": prior.term_weight, "graph/factor": prior.term_factor}
    meta = {
        "format": FORMAT,
        "class": type(model).__name__,
        "declaration": str(model.base),
        "variables": model.base.layout.shapes,
        "strata": [_encoded(label) for label in model.strata_],
        "graph": None if prior is None else [_encoded(label) for label in prior.labels],
        "factors": None if prior is None else prior.factors,
        "graph_regularizer": _component(model.graph_regularizer),
        "solver": _component(model.solver),
        "options": {k: getattr(model, k) for k in ("scale", "n_starts", "warm_start", "random_state")},
        "edges": model.edges if isinstance(model.edges, str) else None,
        "strata_columns": model.strata,
        "regularizer_weight": getattr(model, "regularizer_weight", None),
        "columns": {name: list(map(str, columns)) for name, columns in model._columns.items()},
        "result": {
            f.name: getattr(model.result_, f.name) for f in fields(Result) if f.name not in ("theta", "w")
        },
    }
    with open(path, "wb") as file:
        np.savez_compressed(file, meta=np.array(json.dumps(meta, default=_as_json)), **arrays)


def _component(component):
    """Class and parameters of a graph regularizer or solver; callback and checkpoint belong to one session."""
    if component is None:
        return None
    params = component.get_params(deep=False)
    params = {name: value for name, value in params.items() if name not in ("callback", "checkpoint")}
    return {"class": type(component).__name__, "params": params}


def _as_json(value):
    """What JSON has no type for, as one that it has."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


def _encoded(label):
    if isinstance(label, (tuple, frozenset)):
        return {"tuple" if isinstance(label, tuple) else "frozenset": [_encoded(part) for part in label]}
    if isinstance(label, datetime.date):
        return {"datetime" if isinstance(label, datetime.datetime) else "date": label.isoformat()}
    if isinstance(label, np.generic):
        label = label.item()
    if label is not None and not isinstance(label, (str, int, float, bool)):
        raise OptionError(
            f"the stratum label {label!r} cannot be stored; use numbers, text, dates or tuples of them."
        )
    return label
