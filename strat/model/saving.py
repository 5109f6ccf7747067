"""Saving fitted models: arrays in npz, the rest in JSON inside it; nothing is pickled."""

import json
from dataclasses import fields

import numpy as np
import scipy.sparse as sp

from strat.errors import OptionError
from strat.graphs.reading import read_graph
from strat.model.file_schema import FORMAT, check_file
from strat.records.archive import as_path, write_archive
from strat.records.stored_labels import encoded
from strat.solvers import Result


def save(model, path):
    """Write a fitted model to one file, which ``strat.load`` reads."""
    path = as_path(path, "path")
    arrays = {f"theta/{name}": value for name, value in model.theta_.items()}
    values = {name: value for name, value in model.values.items() if value is not None}
    values = {name: value.toarray() if sp.issparse(value) else value for name, value in values.items()}
    arrays |= {f"value/{name}": np.asarray(value, dtype=float) for name, value in values.items()}
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
        "class": "CommonModel" if model.shared else "StratifiedModel",
        "declaration": str(model.base),
        "variables": model.base.layout.shapes,
        "strata": [encoded(label) for label in model.strata_],
        "graph": None if prior is None else [encoded(label) for label in prior.labels],
        "factors": None if prior is None else prior.factors,
        "graph_regularizer": _component(model.graph_regularizer),
        "solver": _component(model.solver),
        "options": {k: getattr(model, k) for k in ("scale", "n_starts", "random_state")}
        | {"warm_start": bool(model.warm_start)},
        "edges": model.edges if isinstance(model.edges, str) else None,
        "strata_columns": model.strata,
        "regularizer_weight": getattr(model, "regularizer_weight", None),
        "columns": {name: list(map(str, columns)) for name, columns in model._columns.items()},
        "result": {
            f.name: getattr(model.result_, f.name) for f in fields(Result) if f.name not in ("theta", "w")
        },
    }
    text = json.dumps(meta, default=_as_json)
    try:
        check_file(arrays, json.loads(text))
    except ValueError as error:
        raise OptionError(f"the model cannot be stored: {error}. Set it right, and save again.") from error
    try:
        write_archive(path, {"meta": np.array(text), **arrays}, compressed=True)
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written ({error.strerror or error}); what was there before is unchanged. Make room, or give "
            f"a path in a folder where you may write."
        ) from error


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
