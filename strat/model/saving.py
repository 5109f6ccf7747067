"""Model files: arrays in npz, the rest in JSON inside it; nothing is pickled, and changed entries are noticed."""

import json
from dataclasses import fields

import numpy as np
import scipy.sparse as sp

import strat
from strat.compiler.binder import dense
from strat.errors import OptionError, StratError
from strat.graphs.prior_graph import read_graph
from strat.records.archive import as_path, encoded, write_archive
from strat.solvers import Result, Solver

FORMAT = 1
#: Arguments of a model that are stored as they are.
OPTIONS = "scale", "n_starts", "warm_start", "random_state"
#: Entries that every model file has.
ENTRIES = {"format", "class", "declaration", "variables", "strata"}
ENTRIES |= {"graph_regularizer", "options", "columns", "result"}


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
        "options": {name: getattr(model, name) for name in OPTIONS},
        "edges": model.edges if isinstance(model.edges, str) else None,
        "strata_columns": model.strata,
        "regularizer_weight": getattr(model, "regularizer_weight", None),
        "columns": {name: list(map(str, columns)) for name, columns in model._columns.items()},
        "result": result,
    }
    meta["options"]["warm_start"] = bool(model.warm_start)
    try:  # NumPy's numbers and arrays become JSON's, anything else text
        text = json.dumps(meta, default=lambda v: getattr(v, "tolist", v.__str__)())
        write_archive(path, {"meta": np.array(text), **arrays}, compressed=True)
    except (TypeError, ValueError) as error:
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


def read_weights(arrays, K):
    """The weights, (K, K), dense or sparse as in the file."""
    if "W" in arrays:
        return arrays["W"].reshape(K, K)
    W = sp.csr_array((arrays["W/data"], arrays["W/indices"], arrays["W/indptr"]), shape=(K, K))
    W.check_format(full_check=True)  # with other row pointers, products read out of bounds
    return W
