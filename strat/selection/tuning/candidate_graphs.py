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
from strat.model.fit import fit_within
from strat.records.strata import some_of

#: Kernels of ``graphs.from_parameters``.
KERNELS = ("knn", "exponential", "entropy")


def named_candidates(candidates):
    """Candidates by name, checked: "knn", "exponential", "entropy", "joint", models that learn W, and graphs."""
    if isinstance(candidates, str | nx.Graph | StratifiedModel):
        candidates = [candidates]
    if not isinstance(candidates, Mapping):
        numbered = enumerate(candidates, start=1)
        candidates = {c if isinstance(c, str) else f"candidate {k}": c for k, c in numbered}
    for name, candidate in candidates.items():
        if name in ("start", "model"):
            raise OptionError(f"candidates: the name {name!r} is taken; give another one.")
        if isinstance(candidate, str):
            if candidate not in (*KERNELS, "joint"):
                raise OptionError(
                    f'candidates has {candidate!r}, but a candidate is "knn", "exponential", "entropy", "joint", a model '
                    f"that learns W, or a graph."
                )
        elif not isinstance(candidate, StratifiedModel):
            read_graph(candidate)
        elif candidate.shared or not candidate.graph_regularizer.learned:
            raise OptionError(f"candidates: the model {name!r} learns no graph; pass its graph instead.")
    return dict(candidates)


def learned_graph(candidate, model, prior, part):
    """A candidate's graph over the model's strata, without factors, with the total weight of the model's graph `prior`.

    It is the graph of a kernel on the parameters of the model fitted to the records, the W of a model fitted to them, or
    the graph that the user gave.
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
    unknown = [label for label in graph.labels if label not in prior.position]
    if unknown:
        raise GraphError(
            f"candidates: {unknown[0]!r} is no stratum of the model's graph, whose strata are {some_of(prior.labels)}."
        )
    position = np.array([prior.position[label] for label in graph.labels], dtype=np.intp)
    positive = graph.weights() > 0
    if not positive.any():
        raise GraphError("candidates: the graph has no edges of positive weight.")
    w = graph.weights()[positive]
    total = float(prior.weights(model.scale).sum()) or float(len(w))
    ends = position[graph.i[positive]], position[graph.j[positive]]
    return PriorGraph.from_terms(prior.labels, *ends, w * (total / w.sum()))


def _joint(model):
    """A joint model with the constants of an LRSM."""
    learner = joint(model.base, model.graph, scale=model.scale, strata=model.strata)
    learner._values = dict(model.values)
    return learner
