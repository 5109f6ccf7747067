"""Loading what ``StratifiedModel.save`` wrote."""

import json
import re
from dataclasses import dataclass
from os import PathLike

import networkx as nx

from strat.compiler.base_model import BaseModel
from strat.errors import DataWarning, OptionError, StratError, type_name
from strat.graphs.prior_graph import PriorGraph, node_labels
from strat.model.baselines import common
from strat.model.estimator import StratifiedModel
from strat.model.saving import ENTRIES, FORMAT, read_component, read_weights
from strat.problem.graph_regularizers import GraphRegularizer
from strat.records.archive import as_path, decoded, read_archive
from strat.records.tables import Shown
from strat.solvers import Result, Solver


@dataclass(repr=False)
class SavedFit(Shown):
    """A read-only stored fit, loaded without its declaration; ``declaration`` is the printed base model."""

    theta_: dict
    W_: object
    strata_: list
    result_: Result
    declaration: str

    def __getattr__(self, name):
        if hasattr(StratifiedModel, name) and not name.startswith("__"):
            why = f"a fit loaded without its declaration has no {name}"
            raise AttributeError(f"{why}; give it: strat.load(path, base=base).")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self):
        about = f"fit of {len(self.strata_)} strata without its declaration, which predicts with strat.load(path, base=base)"
        return f"{about}\n{self.result_}\n{self.declaration}"


def load(path: str | PathLike, base: BaseModel | None = None) -> "StratifiedModel | SavedFit":
    """Read a model that ``save`` wrote.

    Parameters
    ----------
    path : str or path
        The file.
    base : BaseModel, optional
        The declaration; with it the model predicts and can be fitted again.

    Returns
    -------
    StratifiedModel or SavedFit
        A model with ``base``, a read-only result without.

    Raises
    ------
    OptionError
        If the file is not a saved model, is damaged or has the format of a later version; if ``base`` has other variables; or
        if the graph regularizer or solver is not one of strat's own.

    Examples
    --------
    >>> import cvxpy as cp, strat, tempfile, os
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> model = strat.separate(base).fit([1.0, 4.0], strata=["a", "b"])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> model.save(path)
    >>> strat.load(path).strata_
    ['a', 'b']
    """
    path = as_path(path, "path")
    try:
        arrays = read_archive(path, legacy=True)
        meta = json.loads(str(arrays.pop("meta")))
        if lacking := ENTRIES - meta.keys():
            raise ValueError(f"it has no entry {min(lacking)!r}")
        if meta["format"] != FORMAT:
            raise ValueError(f"it has format {meta['format']!r}, and this version reads format {FORMAT}")
        strata = _labels(meta["strata"])
        shapes = {name: tuple(shape) for name, shape in meta["variables"].items()}
        theta = {name: arrays[f"theta/{name}"].reshape(len(strata), *shape) for name, shape in shapes.items()}
        fitted = theta, read_weights(arrays, len(strata)), strata, Result(**meta["result"])
        graph = meta.get("graph") and _graph(arrays, meta)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, StratError) as error:
        why = f"it has no entry {error}" if isinstance(error, KeyError) else error
        raise OptionError(
            f"{path} is not a model saved by this version of strat: {why}. If a later version wrote it, load it with that "
            f"one; otherwise take another copy of the file, or fit and save the model again."
        ) from error
    if base is None:
        return SavedFit(*fitted, meta["declaration"])
    if not isinstance(base, BaseModel):
        raise OptionError(f"base must be a BaseModel, not {type_name(base)}.")
    if shapes != base.layout.shapes:
        known = f"{path} was fitted with the variables {shapes}, but base has {base.layout.shapes}"
        raise OptionError(f"{known}; give the declaration that was fitted.")
    if _anonymous(base) != _anonymous(meta["declaration"]):
        DataWarning.warn(
            f"{path} was fitted with another declaration than base, so the model may predict what it never learned. "
            f"strat.load(path).declaration shows what was fitted."
        )
    options = dict(meta["options"], strata=meta.get("strata_columns"), edges=meta.get("edges") or "all")
    options["solver"] = meta.get("solver") and read_component(meta["solver"], Solver, path)
    if meta["class"] == "CommonModel":
        model = common(base, graph, meta["regularizer_weight"], **options)
    else:
        h = read_component(meta["graph_regularizer"], GraphRegularizer, path)
        model = StratifiedModel(base, graph, h, **options)
    model.theta_, model.W_, model.strata_, model.result_ = fitted
    model._columns, model._training, model._undetermined = meta["columns"], None, arrays.get("undetermined")
    own = {n.replace("value/", "base__", 1): a for n, a in arrays.items() if n.startswith("value/")}
    own = {name: a if a.ndim else a.item() for name, a in own.items()}
    names = enumerate(base.hyperparameters)
    fit = {f"base__{name}": arrays[f"fit/{k}"][()] for k, name in names if f"fit/{k}" in arrays}
    try:
        model._fit_values = model.set_params(**own | fit)._values  # earlier versions stored only `own`
        model._values = {}
        return model.set_params(**own)
    except OptionError as error:
        raise OptionError(f"{path} does not fit base: {error}") from error


def _labels(entries):
    return node_labels([decoded(entry) for entry in entries])


def _graph(arrays, meta):
    """The graph of the model, as a networkx.Graph."""
    i, j, e, weight, factor = (arrays[f"graph/{name}"] for name in ("i", "j", "edge", "weight", "factor"))
    names = [None if f < 0 else meta["factors"][f] for f in factor]
    return nx.Graph(PriorGraph.from_terms(_labels(meta["graph"]), i[e], j[e], weight, names).to_networkx())


def _anonymous(declaration):
    """The pieces of a printed declaration, without the rules that compute them and without CVXPY's numbers of Parameters."""
    lines = re.sub(r"\bparam\d+", "param", str(declaration)).splitlines()
    end = next((line.find(" rule") for line in lines if line.startswith("role ")), None)
    whole, prox = re.compile("BaseModel|predict|smoothing"), re.compile(r"\w+'s prox")
    return [line if whole.match(line) else line[:end].rstrip() for line in lines if not prox.match(line)]
