"""Graphs learned from training records, as candidates for W0."""

from collections.abc import Mapping

import networkx as nx
import numpy as np
from sklearn.base import clone

from strat import graphs
from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import PriorGraph
from strat.graphs.reading import read_graph
from strat.model.baselines import joint
from strat.model.estimator import StratifiedModel
from strat.model.fitting import fit_within
from strat.records.strata import some_of

KERNELS = ("knn", "exponential", "entropy")


def named_candidates(candidates):
    """Candidates by name, checked.

    Parameters
    ----------
    candidates : str, sequence or dict
        Of "knn", "exponential", "entropy", "joint", models that learn W, and graphs.

    Returns
    -------
    dict
        The candidates.
    """
    if isinstance(candidates, str | nx.Graph | StratifiedModel):
        candidates = [candidates]
    if not isinstance(candidates, Mapping):
        found = {}
        for k, one in enumerate(candidates, start=1):
            found[one if isinstance(one, str) else f"candidate {k}"] = one
        candidates = found
    for name, one in candidates.items():
        model = isinstance(one, StratifiedModel)
        if isinstance(one, str) and one not in (*KERNELS, "joint"):
            raise OptionError(
                f'candidates has {one!r}, but a candidate is "knn", "exponential", "entropy", "joint", a model that '
                f"learns W, or a graph."
            )
        if model and (one.shared or not one.graph_regularizer.learned):
            raise OptionError(f"candidates: the model {name!r} learns no graph; pass its graph instead.")
        if not isinstance(one, str) and not model:
            read_graph(one)
        if name in ("start", "model"):
            raise OptionError(f"candidates: the name {name!r} is taken; give another one.")
    return dict(candidates)


def learned_graph(candidate, model, start, part):
    """The candidate's graph over the model's strata, with the total weight of the start's.

    Parameters
    ----------
    candidate : str, StratifiedModel or graph
        A kernel on the parameters of the start fitted to the records; the W of a model fitted to them; a graph.
    model : StratifiedModel
        The start.
    start : PriorGraph
        Its graph.
    part : Part
        The training records.

    Returns
    -------
    PriorGraph
        Without factors.
    """
    if isinstance(candidate, str) and candidate in KERNELS:
        fitted = fit_within(clone(model), part.data, part.strata)
        graph = read_graph(graphs.from_parameters(fitted, candidate))
    elif isinstance(candidate, str | StratifiedModel):
        learner = candidate if isinstance(candidate, StratifiedModel) else _joint(model)
        fitted = fit_within(clone(learner), part.data, part.strata)
        graph = read_graph((fitted.strata_, fitted.W_))
    else:
        graph = read_graph(candidate)
    unknown = [label for label in graph.labels if label not in start.position]
    if unknown:
        raise GraphError(
            f"candidates: {unknown[0]!r} is no stratum of the model's graph, whose strata are {some_of(start.labels)}."
        )
    place = np.array([start.position[label] for label in graph.labels], dtype=np.intp)
    w, kept = graph.weights(), graph.weights() > 0
    if not kept.any():
        raise GraphError("candidates: the graph has no edges of positive weight.")
    total = float(start.weights(model.scale).sum()) or float(kept.sum())
    w = w[kept] * (total / w.sum())
    return PriorGraph.from_terms(start.labels, place[graph.i[kept]], place[graph.j[kept]], w)


def _joint(model):
    learner = joint(model.base, model.graph, scale=model.scale, strata=model.strata)
    learner._values = dict(model.values)
    return learner
