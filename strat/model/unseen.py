"""Parameters for strata that the model has not: the common model's, or the mean of their neighbours'."""

import copy
import itertools

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, laplacian
from scipy.sparse.linalg import spsolve

from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import PriorGraph, read_graph
from strat.model.bound_model import BoundModel
from strat.model.fitted import training_records
from strat.problem.graph_regularizers import FixedGraph
from strat.records.labels import RecordLabels, are_numbers, changed_axis
from strat.records.strata import Strata, some_of
from strat.solvers.starts import default_solver, solve


def with_unseen(model, records, unseen):
    """The records with the strata that are not nodes added after the model's, and the parameters (K, n) of all."""
    named = isinstance(unseen, str)
    if named and unseen not in ("graph", "common"):
        raise OptionError(f'unseen={unseen!r} is not known. Use "error", "graph", "common", or a graph.')
    known, theta = set(model.strata_), model._flat()
    seen = RecordLabels(records.strata.labels, records.strata.index)
    new = [label for label in seen.values if label not in known]
    records.strata = Strata.read(seen, nodes=[*model.strata_, *new])
    if not new:
        return records, theta
    if named and unseen == "common":
        return records, np.concatenate([theta, np.repeat(_common(model), len(new), axis=0)])
    return records, np.concatenate([theta, _harmonic(model, theta, new, model.graph if named else unseen)])


def _common(model):
    """Parameters (1, n) of the common model of the fit's records; computed once for each fit."""
    if "_common" not in vars(model):
        shared = copy.copy(model)
        shared.shared, shared.solver, shared.graph_regularizer = True, None, FixedGraph()
        problem = BoundModel(shared, records=training_records(model, 'unseen="common"')).problem()
        solver = default_solver(problem.loss, False, problem.regularizer)
        model._common = solve(problem, solver).theta
    return model._common


def _harmonic(model, theta, new, graph):
    """Parameters of new strata u: each is the mean of its neighbours, by weight; new ones may be neighbours, too.

    With the Laplacian G of the graph on known strata k and new ones u:   theta_u = G_uu^-1 W_uk theta_k
    """
    labels, K = [*model.strata_, *new], len(model.strata_)
    prior = PriorGraph.without_edges(labels) if graph is None else read_graph(graph)
    scale = model.scale if graph is model.graph else 1.0
    place = {label: k for k, label in enumerate(labels)}
    at = np.array([place.get(label, -1) for label in prior.labels])
    i, j, w = at[prior.i], at[prior.j], prior.weights(scale)
    kept = (np.minimum(i, j) >= 0) & (np.maximum(i, j) >= K)
    derived = _derived(prior, new, place, scale)
    i, j, w = (np.append(a[kept], b) for a, b in zip((i, j, w), derived, strict=True))
    upper = sparse.coo_array((w, (i, j)), shape=(len(labels),) * 2)
    W = sparse.csr_array(upper + upper.T)
    component = connected_components(W, directed=False)[1]
    alone = [new[k] for k in np.flatnonzero(~np.isin(component[K:], component[:K]))]
    if alone:
        raise GraphError(
            f"unseen: no edge leads from {some_of(alone)} to a stratum of the model. Give a graph that has such edges, "
            f'unseen=graph, or take the common model, unseen="common".'
        )
    G = sparse.csc_array(laplacian(W))[K:, K:]
    return np.reshape(spsolve(G, W[K:, :K] @ theta), (len(new), -1))


def _derived(prior, new, place, scale):
    """Edges (i, j, w) of new strata that the graph lacks, by its edges along each coordinate of the labels."""
    found, missing = [], [label for label in new if label not in prior.position]
    axes = _along_axes(prior, scale) if missing else {}
    for label in missing:
        whole = type(label) is tuple
        for axis, near in axes.items():
            value = label[axis] if whole and axis < len(label) else label
            for neighbor, w in (near.get(value) or _nearest_numbers(value, near)).items():
                other = (*label[:axis], neighbor, *label[axis + 1 :]) if whole else neighbor
                if place.get(other, len(place)) < place[label]:  # an edge between new ones counts once
                    found.append((place[label], place[other], w))
    i, j, w = np.reshape(found, (-1, 3)).T
    return i.astype(np.intp), j.astype(np.intp), w


def _along_axes(prior, scale):
    """For each coordinate ``{value: {neighbour: weight}}``, from the edges that change this coordinate alone."""
    axes = {}
    for i, j, w in zip(prior.i.tolist(), prior.j.tolist(), prior.weights(scale).tolist(), strict=True):
        u, v = prior.labels[i], prior.labels[j]
        axis = changed_axis(u, v)
        if axis is not None:
            a, b = (u[axis], v[axis]) if type(u) is tuple else (u, v)
            for one, other in ((a, b), (b, a)):
                axes.setdefault(axis, {}).setdefault(one, {})[other] = w
    return axes


def _nearest_numbers(value, near):
    """``{neighbour: weight}`` of a number between or beyond those of a coordinate whose numbers are joined in order."""
    order = sorted(near) if are_numbers([value, *near]) else []
    joined = all(b in near[a] for a, b in itertools.pairwise(order))
    if not joined or max(map(len, near.values())) > 2:
        return {}
    sides = [v for v in order if v < value][-1:] + [v for v in order if v > value][:1]
    return {v: min(near[v].values()) for v in sides}
