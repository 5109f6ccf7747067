"""What a search compares: the user's models, and beside them the simple models of the same declaration."""

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from strat import graphs
from strat.compiler import coupling
from strat.graphs.reading import read_graph
from strat.model.baselines import common, lrsm, separate

#: A complete graph has an edge for each pair: with more strata the pooled model would cost more than all others.
MOST_POOLED = 500


@dataclass
class Axis:
    """One number of a pattern search: log10 of a factor that multiplies some constants.

    Attributes
    ----------
    kind : {"scale", "regularizer", "graph_regularizer"}
        What it changes; a first scan moves all axes of one kind together.
    start : dict
        The constants by full name, where the factor is 1.
    """

    kind: str
    start: dict


@dataclass
class Contender:
    """One row of a search: a model and the constants to choose.

    Attributes
    ----------
    name : str
        Its name.
    model : StratifiedModel
        The model.
    axes : list of Axis
        What a pattern search varies.
    scan : bool
        Whether a coarse scan comes first; otherwise the search starts at the best of the contenders that it refines.
    points : list of dict, optional
        The constants to try, in place of a pattern search.
    each : bool
        Whether every one of the points is a row of the table, not just the best.
    refines : list of str
        Names of contenders whose constants are special cases of this one's.
    """

    name: str
    model: object
    axes: list
    scan: bool = True
    points: list | None = None
    each: bool = False
    refines: list = field(default_factory=list)

    def constants(self, x):
        """The constants at a point of the pattern search."""
        pairs = (
            (name, value, e)
            for axis, e in zip(self.axes, x, strict=True)
            for name, value in axis.start.items()
        )
        return {name: value * 10.0**e for name, value, e in pairs}

    def place(self, constants):
        """The point where the axes come nearest to given constants."""
        return tuple(
            float(
                np.mean([np.log10(constants.get(name, value) / value) for name, value in axis.start.items()])
            )
            for axis in self.axes
        )


def contenders(name, model):
    """A model with the constants that are searched by default, after its special cases of fewer constants."""
    penalties = penalty_axes(model)
    if model.shared or model.graph is None:
        return [Contender(name, model, penalties + graph_regularizer_axes(model))]
    prior = read_graph(model.graph)
    scales, rest = _scales(model), penalties + graph_regularizer_axes(model)
    if not prior.weights(model.scale).any():
        return [Contender(name, model, rest)]
    if not scales:
        return [Contender(name, model, [Axis("scale", {"scale": model.scale}), *rest])]
    whole = Contender(name, model, [Axis("scale", {key: value}) for key, value in scales.items()] + rest)
    if len(scales) < 2:
        return [whole]
    tied = [Contender(f"{name}, one scale", model, [Axis("scale", scales), *rest])]
    # Divided by the mean weight of its edges, every factor weighs the same.
    means = {f"scale__{f}": weight for f, weight in _mean_weights(prior).items()}
    equal = {key: 1.0 / means[key] for key in scales if means[key] > 0}
    ratios = [equal[key] / scales[key] for key in equal]
    if len(equal) == len(scales) and not np.allclose(ratios, ratios[0]):
        tied.append(
            Contender(
                f"{name}, equal weights", model, [Axis("scale", equal), *rest], False, refines=[tied[0].name]
            )
        )
    whole.scan, whole.refines = False, [c.name for c in tied]
    return [*tied, whole]


def simple_models(models, nodes):
    """Common, separate and pooled models of the declarations, where the user gave none.

    Parameters
    ----------
    models : dict
        The user's models.
    nodes : list
        The strata that have records; those of a model without a graph.

    Returns
    -------
    list of (str, str, StratifiedModel)
        Kind, name and model; the name begins with that of the declaration's first model where there are several.
    """
    found, bases = [], {}
    for name, model in models.items():
        bases.setdefault(id(model.base), []).append((name, model))
    for group in bases.values():
        first = group[0][0]
        # The strata are those of the first graph that has a node for every label, as a model's graph should.
        known = [(m, nodes if m.graph is None else read_graph(m.graph).labels) for _, m in group]
        model, labels = next((pair for pair in known if set(nodes) <= set(pair[1])), known[0])
        empty = (list(labels), sp.csr_array((len(labels), len(labels))))
        options = {"strata": model.strata, "random_state": model.random_state}
        if not model.graph_regularizer.learned:
            options["solver"] = model.solver
        made = {
            "common": common(model.base, empty, **options),
            "separate": separate(model.base, empty, **options),
        }
        if 2 <= len(labels) <= MOST_POOLED and not coupling.by_factor(model.base.couple):
            weight = _mean_degree(model) / (len(labels) - 1)
            made["pooled"] = lrsm(model.base, graphs.complete(labels, weight=weight), **options)
        if any(m.shared for _, m in group):
            del made["common"]
        if any(is_separate(m) for _, m in group):
            del made["separate"]
        for kind, simple in made.items():
            simple._values = dict(model.values)
            label = kind if len(bases) == 1 else f"{first}: {kind}"
            found.append((kind, label if label not in models else f"{label} (added)", simple))
    return found


def penalty_axes(model):
    """One axis for each scalar hyperparameter Parameter that only the regularizer has."""
    base = model.base
    elsewhere = {p.id for p in base.loss_program.hyperparameters}
    elsewhere |= (
        {p.id for p in base.predict_program.hyperparameters} if base.predict_program is not None else set()
    )
    elsewhere |= {p.id for p in coupling.parameters(base.couple)}
    elsewhere |= {p.id for c in base.constraints for p in c.parameters()}
    axes = []
    for p in base.regularizer_program.hyperparameters:
        value = model.values.get(p.name(), p.value)
        if p.id not in elsewhere and p.shape == ():
            start = float(value) if value is not None and float(value) > 0 else 1.0
            axes.append(Axis("regularizer", {f"base__{p.name()}": start}))
    return axes


def graph_regularizer_axes(model):
    """One axis for each of lambda1, lambda2 and sigma that is above 0, where the graph is learned."""
    h = model.graph_regularizer
    if model.shared or not h.learned:
        return []
    own = {name: value for name, value in h.get_params().items() if name in ("lambda1", "lambda2", "sigma")}
    return [
        Axis("graph_regularizer", {f"graph_regularizer__{name}": float(value)})
        for name, value in own.items()
        if value > 0
    ]


def _scales(model):
    """The model's scales by full name; one that is 0 stays so, as separate models or W0 = 0 ask for."""
    return {f"scale__{f}": float(s) for f, s in model._scales().items() if s > 0}


def _mean_weights(prior):
    """Mean weight of each factor's edges."""
    weights = {f: prior.term_weight[prior.term_factor == k] for k, f in enumerate(prior.factors)}
    return {f: float(w.mean()) if len(w) else 0.0 for f, w in weights.items()}


def _mean_degree(model):
    """Mean degree of a model's graph, 1 where it has no edges."""
    if model.graph is None:
        return 1.0
    prior = read_graph(model.graph)
    return float(2 * prior.weights().sum() / prior.K) or 1.0


def is_separate(model):
    if model.shared or model.graph_regularizer.learned:
        return False
    return model.graph is None or not read_graph(model.graph).weights(model.scale).any()
