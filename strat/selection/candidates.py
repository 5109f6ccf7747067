"""The candidates of a search: the user's models, and simple models of the same declaration."""

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from strat import graphs
from strat.compiler import coupling
from strat.graphs.reading import read_graph
from strat.model.baselines import common, lrsm, separate
from strat.model.estimator import StratifiedModel
from strat.model.refit import Refits
from strat.oracles.base import hessian_blocks

#: A complete graph has an edge for each pair: with more strata it would cost more than all others.
MOST_COMPLETE = 500


@dataclass
class Axis:
    """One number of a search: log10 of a factor that multiplies some constants.

    A first scan moves all axes of one kind together.
    """

    kind: str  # "scale", "regularizer" or "graph_regularizer"
    start: dict  # the constants by full name, where the factor is 1


@dataclass
class Candidate:
    """A model and the constants of it to choose: a row of the search's table."""

    name: str
    model: object
    axes: list = field(default_factory=list)  # what a search varies
    refines: object = None  # the candidate whose constants are special cases: its scan is this one's
    points: list | None = None  # the constants to try, in place of a search
    each: bool = False  # whether every one of the points is a row of the table, not just the best

    def constants(self, x):
        """The constants at a point of the search, or those of a given number."""
        if self.points is not None:
            return self.points[int(x[0])]
        moved = zip(self.axes, x, strict=True)
        return {name: value * 10.0**e for axis, e in moved for name, value in axis.start.items()}

    def place(self, constants):
        """The point where the axes come nearest to given constants."""
        starts = [axis.start.items() for axis in self.axes]
        logs = [[np.log10(constants.get(name, value) / value) for name, value in start] for start in starts]
        return tuple(float(np.mean(each)) for each in logs)


def default_candidates(name, model, unit):
    """A model with the constants that are searched without a grid, after its special case of a single scale.

    Where the graph is given, the factor 1 of a scale stands for a mean degree of `unit`, whatever the user's weights are.
    """
    if not isinstance(model, StratifiedModel):
        return [Candidate(name, model)]
    others = [*_regularizer_axes(model), *_graph_regularizer_axes(model)]
    if model.shared or not _has_weights(model):
        return [Candidate(name, model, others)]
    # A scale that is 0 stays so, as separate models or W0 = 0 ask for.
    scales = {f"scale__{factor}": scale for factor, scale in model._scales().items() if scale > 0}
    scales = scales or {"scale": model.scale}
    if not model.graph_regularizer.learned:
        scales = {key: unit / degree for key in scales if (degree := _mean_degree(model, key)) > 0}
    whole = Candidate(name, model, [Axis("scale", {key: float(s)}) for key, s in scales.items()] + others)
    if len(scales) < 2:
        return [whole]
    whole.refines = Candidate(f"{name}, one scale", model, [Axis("scale", scales), *others])
    return [whole.refines, whole]


def simple_models(models, nodes):
    """Common and separate models and a complete graph of the declarations, where the user gave none: (kind, name, model) of each.

    Their strata are those of a graph, or else `nodes`, the strata that have records. Where there are several
    declarations, a name begins with that of the declaration's first model.
    """
    simple, by_declaration = [], {}
    for name, model in models.items():
        if isinstance(model, StratifiedModel):
            by_declaration.setdefault(id(model.base), {})[name] = model
    for group in by_declaration.values():
        # The first graph that has a node for every label, as a model's graph should.
        graphs_of = [(m, nodes if m.graph is None else read_graph(m.graph).labels) for m in group.values()]
        model, labels = next((pair for pair in graphs_of if set(nodes) <= set(pair[1])), graphs_of[0])
        without_edges = (list(labels), sp.csr_array((len(labels), len(labels))))
        options = {"strata": model.strata, "random_state": model.random_state}
        if not model.graph_regularizer.learned:
            options["solver"] = model.solver
        made = {}
        if not any(m.shared for m in group.values()):
            made["common"] = common(model.base, without_edges, **options)
        if not any(map(_is_separate, group.values())):
            made["separate"] = separate(model.base, without_edges, **options)
        if 2 <= len(labels) <= MOST_COMPLETE and not coupling.by_factor(model.base.couple):
            made["complete graph"] = lrsm(
                model.base, graphs.complete(labels, weight=1 / (len(labels) - 1)), **options
            )
        for kind, simple_model in made.items():
            simple_model._values = dict(model.values)
            name = kind if len(by_declaration) == 1 else f"{next(iter(group))}: {kind}"
            simple.append((kind, name if name not in models else f"{name} (added)", simple_model))
    return simple


def curvature(model, part, weight, nodes):
    """The mean curvature of a stratum's loss, at the fit that is common to all strata: a degree that weighs as much.

    It is the geometric mean over the coefficients; the number of records of a stratum where the loss has no curvature.
    """
    labels = nodes if model.graph is None else read_graph(model.graph).labels
    whole = common(model.base, (list(labels), sp.csr_array((len(labels),) * 2)), strata=model.strata)
    whole._values, typical = dict(model.values), float(weight.sum())
    with suppress(Exception):  # the candidates' own fits will say what is wrong
        fit = Refits(whole, part.data, part.strata, weight, tol=1e-2).fit()
        if fit.problem.loss.has("hessian_operator"):
            diagonal = np.einsum("kcc->c", hessian_blocks(fit.problem.loss, fit.theta))
            typical = float(np.exp(np.log(diagonal[diagonal > 0]).mean()))
    return (typical if 0 < typical < np.inf else float(weight.sum())) / len(labels)


def _regularizer_axes(model):
    """One axis for each scalar hyperparameter Parameter that only the regularizer has."""
    base = model.base
    elsewhere = {p.id for p in base.loss_program.hyperparameters}
    elsewhere |= {p.id for p in coupling.parameters(base.couple)}
    elsewhere |= {p.id for c in base.constraints for p in c.parameters()}
    if base.predict_program is not None:
        elsewhere |= {p.id for p in base.predict_program.hyperparameters}
    axes = []
    for p in base.regularizer_program.hyperparameters:
        if p.id not in elsewhere and p.shape == ():
            value = float(model.values.get(p.name(), p.value) or 0.0)
            axes.append(Axis("regularizer", {f"base__{p.name()}": value if value > 0 else 1.0}))
    return axes


def _graph_regularizer_axes(model):
    """One axis for each of lambda1, lambda2 and sigma that is above 0, where the graph is learned."""
    if model.shared or not model.graph_regularizer.learned:
        return []
    return [
        Axis("graph_regularizer", {f"graph_regularizer__{name}": float(value)})
        for name, value in model.graph_regularizer.get_params().items()
        if name in ("lambda1", "lambda2", "sigma") and value > 0
    ]


def _mean_degree(model, scale):
    """Mean degree of a model's graph by the edges that one scale multiplies, without the scale."""
    prior, factor = read_graph(model.graph), scale.removeprefix("scale").removeprefix("__")
    moved = prior.term_factor == prior.factors.index(factor) if factor else slice(None)
    return float(2 * prior.term_weight[moved].sum() / prior.K)


def _has_weights(model):
    """Whether some edge of the model's graph has weight."""
    return model.graph is not None and read_graph(model.graph).weights(model.scale).any()


def _is_separate(model):
    """Whether the strata have nothing in common."""
    return not (model.shared or model.graph_regularizer.learned or _has_weights(model))
