"""Candidate edges: the pairs of strata whose weights a model may learn."""

import networkx as nx
import numpy as np
import scipy.sparse as sp

from strat.errors import GraphError, OptionError
from strat.graphs.features import neighbors
from strat.graphs.prior_graph import PriorGraph, unique_edges
from strat.graphs.reading import read_graph
from strat.records.labels import plain
from strat.records.strata import did_you_mean, some_of

#: What `edges` may be by name, and how many neighbours "knn" takes.
NAMES, NEAREST = ("all", "prior", "two-hop", "knn"), 5


def candidate_edges(edges, prior, parameters=None):
    """Return the candidate edges i < j as index arrays (E,), distinct and sorted by i and then j.

    Parameters
    ----------
    edges : {"all", "prior", "two-hop", "knn"}, list of label pairs, or graph
        All pairs; the graph's own edges, those of weight 0 included; these and the pairs that have a
        common neighbour, or those of which one is among the 5 whose parameters are nearest to the other's;
        the pairs given; the edges of another graph over (some of) the same labels.
    prior : PriorGraph
        The graph whose nodes are the strata.
    parameters : callable
        Gives the parameters (K, n) for "knn".
    """
    if isinstance(edges, str):
        return _named(edges, prior, parameters)
    # A list of two pairs of tuple labels looks like (labels, nested list): only a real matrix is taken for W.
    labels_and_W = isinstance(edges, tuple) and len(edges) == 2 and getattr(edges[1], "ndim", None) == 2
    if labels_and_W or isinstance(edges, nx.Graph | PriorGraph):
        graph = read_graph(edges)
        position = np.array([_position(label, prior) for label in graph.labels], dtype=np.intp)
        ends = position[graph.i], position[graph.j]
    else:
        ends = ends_of_pairs(edges, prior)
    i, j, _ = unique_edges(*ends, prior.K)
    if i.size == 0:
        raise GraphError(
            'edges: there are no candidate edges, so no weight can be learned. Pass edges="all".'
        )
    return i, j


def _named(edges, prior, parameters):
    if edges == "all":
        return np.triu_indices(prior.K, 1)
    if edges not in NAMES:
        raise OptionError(
            f'edges={edges!r} is not known. Use "all", "prior", "two-hop", "knn", a list of pairs of labels, or a graph.'
        )
    if edges == "knn" and prior.K > 1:
        near = neighbors(parameters(), min(NEAREST, prior.K - 1))
        return unique_edges(*map(np.append, (prior.i, prior.j), near), prior.K)[:2]
    if prior.i.size == 0:
        raise GraphError(
            f'edges="{edges}": the graph has no edges, so no weight can be learned. Use edges="all".'
        )
    if edges == "prior":
        return prior.i, prior.j
    upper = sp.csr_array((np.ones(len(prior.i)), (prior.i, prior.j)), shape=(prior.K, prior.K))
    A = upper + upper.T
    return unique_edges(*sp.triu(A + A @ A, 1).tocoo().coords, prior.K)[:2]


def ends_of_pairs(edges, prior):
    edges = edges.tolist() if isinstance(edges, np.ndarray) else edges
    try:
        pairs = [tuple(pair) for pair in edges]
    except TypeError:
        raise GraphError(f"edges: {edges!r} is no list of pairs of labels.") from None
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise GraphError(f"edges: {wrong!r} is no pair of labels.")
    i, j = np.array([[_position(label, prior) for label in pair] for pair in pairs], int).reshape(-1, 2).T
    loops = np.flatnonzero(i == j)
    if loops.size:
        raise GraphError(f"edges: {pairs[loops[0]]!r} joins a stratum to itself. An edge joins two strata.")
    return i, j


def _position(label, prior):
    try:
        return prior.position[plain(label)]
    except (KeyError, TypeError):
        raise GraphError(
            f"edges: {label!r} is not a node of the graph, which has {prior.K:,} nodes, such as "
            f"{some_of(prior.labels)}. {did_you_mean(plain(label), prior.labels)}".rstrip()
        ) from None
