"""Parameters for strata that the model does not have: the common model's, or the mean of their neighbours'."""

import itertools

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, laplacian
from scipy.sparse.linalg import spsolve

from strat.compiler.coupling import on_edges
from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import PriorGraph, read_graph
from strat.model.bound_model import BoundModel
from strat.model.fitted import as_fitted, training_records
from strat.problem.graph_regularizers import FixedGraph
from strat.records.labels import RecordLabels, are_numbers, changed_axis
from strat.records.strata import Strata, some_of
from strat.solvers.starts import default_solver, solve

UNCOUPLED = 1e-9  # share of its weight with which an edge averages even parameters that it does not couple


def with_unseen(model, records, unseen):
    """The records, with strata that the model lacks added after its own, and the parameters (K, n) of all strata."""
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
        return records, np.concatenate([theta, np.repeat(common_of(model), len(new), axis=0)])
    graph, scale = (model.graph, model.scale) if named or unseen is model.graph else (unseen, 1.0)
    return records, np.concatenate([theta, _harmonic(model, theta, new, graph, scale)])


def common_of(model):
    """Parameters (1, n) of the common model of the fit's records."""
    if not hasattr(model, "_common"):
        shared = as_fitted(model)
        shared.shared, shared.solver, shared.graph_regularizer = True, None, FixedGraph()
        problem = BoundModel(shared, records=training_records(model, 'unseen="common"')).problem()
        model._common = solve(problem, default_solver(problem.loss, False, problem.regularizer)).theta
    return model._common


def _harmonic(model, theta, new, graph, scale):
    """Parameters of new strata u: each is the weighted mean of its neighbours, which may be new strata, too.

    With the Laplacian G of the graph on known strata k and new ones u:   theta_u = G_uu^-1 W_uk theta_k
    for each group of parameters that the model couples alike.
    """
    labels, K = [*model.strata_, *new], len(model.strata_)
    prior = PriorGraph.without_edges(labels) if graph is None else read_graph(graph)
    place = {label: k for k, label in enumerate(labels)}
    at = np.array([place.get(label, -1) for label in prior.labels])
    i, j, weight = at[prior.i], at[prior.j], prior.weights(scale)
    kept = np.flatnonzero((np.minimum(i, j) >= 0) & (np.maximum(i, j) >= K))
    derived = _derived(prior, new, place, weight)
    i, j, edge = (np.append(a[kept], b) for a, b in zip((i, j, np.arange(len(i))), derived, strict=True))

    def matrix(w):
        upper = sparse.coo_array((w[edge], (i, j)), shape=(len(labels),) * 2)
        return sparse.csr_array(upper + upper.T)

    component = connected_components(matrix(weight), directed=False)[1]
    if alone := [new[k] for k in np.flatnonzero(~np.isin(component[K:], component[:K]))]:
        raise GraphError(
            f"unseen: no edge leads from {some_of(alone)} to a stratum of the model. Give a graph that has such edges, "
            f'unseen=graph, or take the common model, unseen="common".'
        )
    couple = on_edges(model.base, model.values, prior, prior.i, prior.j)
    if couple.ndim == 1:  # one factor for all edges changes no mean
        couple = np.ones((1, len(couple)))
    out = np.empty((len(new), theta.shape[1]))
    for of_edges in np.unique(couple, axis=1).T:
        alike = (couple == of_edges[:, None]).all(axis=0)
        G = sparse.csc_array(laplacian(matrix(weight * np.maximum(of_edges, UNCOUPLED))))[K:]
        out[:, alike] = np.reshape(spsolve(G[:, K:], -G[:, :K] @ theta[:, alike]), (len(new), -1))
    return out


def _derived(prior, new, place, weight):
    """Edges (i, j) of new strata that the graph lacks, and for each the number of the graph's edge that it copies."""
    found, missing, axes = [], [label for label in new if label not in prior.position], {}
    # For each coordinate {value: {neighbour: edge}}, from the edges that change only this coordinate.
    for edge, (i, j) in enumerate(zip(prior.i.tolist(), prior.j.tolist(), strict=True)) if missing else ():
        u, v = prior.labels[i], prior.labels[j]
        axis = changed_axis(u, v)
        if axis is not None:
            a, b = (u[axis], v[axis]) if type(u) is tuple else (u, v)
            for one, other in ((a, b), (b, a)):
                axes.setdefault(axis, {}).setdefault(one, {})[other] = edge
    for label in missing:
        whole = type(label) is tuple
        for axis, near in axes.items():
            value = label[axis] if whole and axis < len(label) else label
            for neighbor, edge in (near.get(value) or _nearest_numbers(value, near, weight)).items():
                other = (*label[:axis], neighbor, *label[axis + 1 :]) if whole else neighbor
                if place.get(other, len(place)) < place[label]:  # an edge between new strata counts once
                    found.append((place[label], place[other], edge))
    return np.reshape(found, (-1, 3)).T.astype(np.intp)


def _nearest_numbers(value, near, weight):
    """``{neighbour: edge}`` for a number between or beyond the values of a coordinate that are joined in order."""
    order = sorted(near) if are_numbers([value, *near]) else []
    joined = all(b in near[a] for a, b in itertools.pairwise(order))
    if not joined or max(map(len, near.values())) > 2:
        return {}
    sides = [v for v in order if v < value][-1:] + [v for v in order if v > value][:1]
    return {v: min(near[v].values(), key=weight.__getitem__) for v in sides}
