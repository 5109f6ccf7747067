"""The candidates of a search: the user's models, and simple models of the same declaration."""

from collections import namedtuple
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from strat import graphs
from strat.compiler import coupling
from strat.compiler.expressions import contents
from strat.errors import OptionError
from strat.graphs.prior_graph import read_graph
from strat.model.baselines import common, lrsm, separate
from strat.model.estimator import StratifiedModel
from strat.model.fit import Refits
from strat.oracles.base import hessian_blocks
from strat.records.archive import fingerprint

MOST_COMPLETE = 500  # strata; with more, a complete graph would cost more than all other candidates
#: Factors of the complete graph's weight, where a grid is given for the other models.
COMPLETE_SCALES = tuple(10.0**e for e in np.arange(-3.0, 2.5, 0.5))


#: One coordinate of a search, log10 of a common factor of some constants: `kind` is "scale", "regularizer" or
#: "graph_regularizer", and `start` has the constants by full name at factor 1.
Axis = namedtuple("Axis", "kind start")


@dataclass
class Candidate:
    """A model and those of its constants that are to be chosen: a row of the search's table."""

    name: str
    model: object
    axes: list = field(default_factory=list)  # what a search varies
    refines: object = None  # the candidate that is a special case of this one, which shares its scan
    points: list | None = None  # the constants to try, in place of a search
    each: bool = False  # whether every point is a row of the table, not only the best

    def constants(self, x):
        """The constants at a point of the search, or the given ones with that number."""
        if self.points is not None:
            return self.points[int(x[0])]
        moved = zip(self.axes, x, strict=True)
        return {name: value * 10.0**e for axis, e in moved for name, value in axis.start.items()}


def candidates_of(models, grids, part, weight, nodes):
    """The given models and simple ones of their declarations, each with its constants to search or its points of a grid."""
    units = {id(m.base): m for m in models.values() if isinstance(m, StratifiedModel)}
    units = {key: curvature(model, part, weight, nodes) for key, model in units.items()}
    simple = simple_models(models, nodes)
    if grids is None:
        named = [*((name, model) for _, name, model in simple), *models.items()]
        return [c for name, model in named for c in default_candidates(name, model, units[id(model.base)])]
    candidates = [Candidate(name, m, points=grid_points(m, grids), each=True) for name, m in models.items()]
    for kind, name, model in simple:
        points = grid_points(model, grids, prefix="base__")
        if kind == "complete graph":
            points = [{**p, "scale": s * units[id(model.base)]} for p in points for s in COMPLETE_SCALES]
        candidates.append(Candidate(name, model, points=points))
    return candidates


def default_candidates(name, model, unit):
    """A candidate with the constants to search without a grid, preceded by its special case of a single scale, if any."""
    axes = _axes(model, unit) if isinstance(model, StratifiedModel) else []
    whole, others = Candidate(name, model, axes), [axis for axis in axes if axis.kind != "scale"]
    if len(axes) - len(others) < 2:
        return [whole]
    scales = {key: value for axis in axes if axis.kind == "scale" for key, value in axis.start.items()}
    whole.refines = Candidate(f"{name}, one scale", model, [Axis("scale", scales), *others])
    return [whole.refines, whole]


def _axes(model, unit):
    """Axes: scales of the graph's factors, scalar hyperparameters that only the regularizer has, and constants of a learned W.

    For a given graph, the scale at factor 1 makes the mean degree `unit`, whatever the user's weights are.
    """
    base, learned, axes = model.base, not model.shared and model.graph_regularizer.learned, []
    if not model.shared and _has_weights(model):
        prior = read_graph(model.graph)
        # A scale of 0 stays 0, as in separate models or with W0 = 0.
        for factor, scale in (model._scales() or {None: model.scale}).items():
            moved = slice(None) if factor is None else prior.term_factor == prior.factors.index(factor)
            weight = prior.term_weight[moved].sum()
            if scale > 0 and (learned or weight > 0):
                start = scale if learned else unit * prior.K / (2 * weight)
                axes.append(Axis("scale", {"scale" if factor is None else f"scale__{factor}": float(start)}))
    others = [e for e in (base.loss, *base.constraints, base.predict) if e is not None]
    elsewhere = {p.id for e in others for p in e.parameters()}
    elsewhere |= {p.id for p in coupling.parameters(base.couple)}
    for p in base.regularizer_program.hyperparameters:
        if p.id not in elsewhere and p.shape == ():
            value = float(model._values.get(p.name(), p.value) or 0.0)
            axes.append(Axis("regularizer", {f"base__{p.name()}": value if value > 0 else 1.0}))
    for name, value in model.graph_regularizer.get_params().items() if learned else ():
        if name in ("lambda1", "lambda2", "sigma") and value > 0:
            axes.append(Axis("graph_regularizer", {f"graph_regularizer__{name}": float(value)}))
    return axes


def simple_models(models, nodes):
    """Common, separate and complete-graph models of the declarations, unless the user gave such: (kind, name, model) of each.

    Their strata are those of a graph, or else `nodes`, the strata that have records. Declarations that differ only in
    `couple` share the first two models, which have no edges. Where there are several declarations, a name begins with that
    of the declaration's first model.
    """
    simple, by_declaration, first_of = [], {}, {}
    for name, model in models.items():
        if isinstance(model, StratifiedModel):
            base = model.base  # those that differ only in `couple` and `predict` go together
            parts = (base.loss, base.regularizer, *base.constraints)
            leaves = [leaf.id for e in parts for leaf in (*e.variables(), *e.parameters())]
            by_declaration.setdefault(fingerprint(contents(base), leaves), {})[name] = model
            first_of.setdefault(base, name)
    for group in by_declaration.values():
        # Take the first graph that has a node for every label.
        labels_of = [(m, nodes if m.graph is None else read_graph(m.graph).labels) for m in group.values()]
        model, labels = next((pair for pair in labels_of if set(nodes) <= set(pair[1])), labels_of[0])
        without_edges = (list(labels), sp.csr_array((len(labels),) * 2))
        options = {"strata": model.strata, "random_state": model.random_state}
        if not model.graph_regularizer.learned:
            options["solver"] = model.solver
        first, made = next(iter(group)) if len(by_declaration) > 1 else None, []
        if not any(m.shared for m in group.values()):
            made.append(("common", first, common(model.base, without_edges, **options)))
        if all(m.shared or m.graph_regularizer.learned or _has_weights(m) for m in group.values()):
            made.append(("separate", first, separate(model.base, without_edges, **options)))
        for base in dict.fromkeys(m.base for m in group.values()):
            if 2 <= len(labels) <= MOST_COMPLETE and not coupling.by_factor(base.couple):
                model_of_all = lrsm(base, graphs.complete(labels, weight=1 / (len(labels) - 1)), **options)
                made.append(("complete graph", first_of[base] if len(first_of) > 1 else None, model_of_all))
        for kind, first, simple_model in made:
            simple_model._values = dict(model._values)
            name = kind if first is None else f"{first}: {kind}"
            simple.append((kind, name if name not in models else f"{name} (added)", simple_model))
    return simple


def curvature(model, part, weight, nodes):
    """A stratum's mean curvature (geometric over coefficients) of the loss at a common fit: the degree that balances it."""
    labels = nodes if model.graph is None else read_graph(model.graph).labels
    whole = common(model.base, (list(labels), sp.csr_array((len(labels),) * 2)), strata=model.strata)
    whole._values, typical = dict(model._values), float(weight.sum())
    with suppress(Exception):  # the candidates' own fits will report the error
        problem, result = Refits(whole, part.data, part.strata, weight, tol=1e-2).fit()
        if problem.loss.has("hessian_operator"):
            diagonal = np.einsum("kcc->c", hessian_blocks(problem.loss, result.theta))
            curved = diagonal[diagonal > 0]  # none where no record is near a smoothed kink
            typical = float(np.exp(np.log(curved).mean())) if curved.size else typical
    return (typical if 0 < typical < np.inf else float(weight.sum())) / len(labels)


def _has_weights(model):
    """Whether some edge of the model's graph has weight."""
    return model.graph is not None and read_graph(model.graph).weights(model.scale).any()


def with_strata(model, labels):
    """A clone, in which models without a graph get all labels as their strata."""
    model = clone(model)
    for one in getattr(model, "models", [model]):
        if isinstance(one, StratifiedModel) and one.graph is None:
            one.graph = (labels, sp.csr_array((len(labels), len(labels))))
    return model


def names_of(model):
    """The names of a model's constants in ``get_params``."""
    if not isinstance(model, StratifiedModel):
        return []
    used = ("base__",) if model.shared else ("base__", "graph_regularizer__", "scale")
    unused = ("scale",) if model.graph is None else ()
    return [name for name in model.get_params() if name.startswith(used) and not name.startswith(unused)]


def full_name(model, key):
    """The name in ``get_params`` of a constant such as ``lambda1`` or ``NAME``, None where the model has no such constant."""
    names = names_of(model)
    return next((name for name in (key, f"graph_regularizer__{key}", f"base__{key}") if name in names), None)


def read_grid(grid, models):
    """A grid as a list of dicts; an OptionError for a name that no model has, or for values that are not a list."""
    grids = [grid] if isinstance(grid, dict) else grid
    if not isinstance(grids, (list, tuple)) or not grids or not all(isinstance(g, dict) and g for g in grids):
        raise OptionError('grid must be a dict {"scale__FACTOR": [values to try], …} or a list of such.')
    for key, values in (item for g in grids for item in g.items()):
        if isinstance(values, (str, bytes)) or np.ndim(values) == 0 or not len(values):
            raise OptionError(f"grid[{key!r}] must be a list of values to try, not {values!r}.")
        if not any(full_name(model, key) for model in models):
            known = dict.fromkeys(name for model in models for name in names_of(model))
            known = ", ".join(known) or "none"
            raise OptionError(f"grid: no model has a constant {key!r}; known are {known}.")
    return list(grids)


def grid_points(model, grids, prefix=""):
    """The distinct grid points of a model: dicts of those constants that it has, by full names that begin with a prefix."""
    points = []
    for grid in grids:
        named = {full_name(model, key): values for key, values in grid.items()}
        named = {name: values for name, values in named.items() if name and name.startswith(prefix)}
        points += [dict(zip(named, values, strict=True)) for values in product(*named.values())]
    return [point for k, point in enumerate(points) if point not in points[:k]]
