"""Candidate edges: the pairs of strata whose weights a model may learn."""

import networkx as nx
import numpy as np
import scipy.sparse as sp

from strat.errors import GraphError, OptionError
from strat.graphs.features import neighbors
from strat.graphs.prior_graph import PriorGraph, read_graph, unique_edges
from strat.records.labels import plain
from strat.records.strata import did_you_mean, some_of

NEAREST = 5  # neighbours that "knn" takes


def candidate_edges(edges, prior, parameters=None):
    """Return the candidate edges i < j as index arrays (E,), distinct and sorted by i and then j.

    `edges` is as in a model's ``edges=``; `prior` is the graph of the strata, whose edges of weight 0 count too; and
    ``parameters()`` gives the array (K, n) in which "knn" finds neighbours.
    """
    # A list of two pairs of tuple labels looks like (labels, nested list): only an actual matrix is taken for W.
    labels_and_W = isinstance(edges, tuple) and len(edges) == 2 and getattr(edges[1], "ndim", None) == 2
    ends = prior.i, prior.j
    if isinstance(edges, str):
        if edges == "all":
            return np.triu_indices(prior.K, 1)
        if edges not in ("prior", "two-hop", "knn"):
            raise OptionError(
                f'edges={edges!r} is not known. Use "all", "prior", "two-hop", "knn", a list of pairs of labels, or a graph.'
            )
        if edges == "knn" and prior.K > 1:
            ends = tuple(map(np.append, ends, neighbors(parameters(), min(NEAREST, prior.K - 1))))
        elif edges == "two-hop":
            A = sp.csr_array((np.ones(len(prior.i)), ends), shape=(prior.K, prior.K))
            A = A + A.T
            ends = sp.triu(A + A @ A, 1).tocoo().coords
    elif labels_and_W or isinstance(edges, nx.Graph | PriorGraph):
        graph = read_graph(edges)
        position = np.array([position_of(label, prior) for label in graph.labels], dtype=np.intp)
        ends = position[graph.i], position[graph.j]
    else:
        ends = ends_of_pairs(edges, prior)
    if not len(ends[0]):
        what = f'="{edges}": the graph has no' if isinstance(edges, str) else ": there are no candidate"
        raise GraphError(f'edges{what} edges, so no weight can be learned. Use edges="all".')
    return unique_edges(*ends, prior.K)[:2]


def ends_of_pairs(edges, prior):
    """Positions (E,) of both labels of every pair in a list."""
    edges = edges.tolist() if isinstance(edges, np.ndarray) else edges
    try:
        pairs = [(u, v) for u, v in edges]
    except (TypeError, ValueError):
        raise GraphError(f"edges: {edges!r:.90} is not a list of pairs of labels.") from None
    i, j = np.array([[position_of(label, prior) for label in pair] for pair in pairs], int).reshape(-1, 2).T
    for e in np.flatnonzero(i == j):
        raise GraphError(f"edges: {pairs[e]!r} joins a stratum to itself. An edge joins two strata.")
    return i, j


def position_of(label, prior, what="edges"):
    """The position of a label among the nodes; `what` names the option."""
    try:
        return prior.position[plain(label)]
    except (KeyError, TypeError):
        raise GraphError(
            f"{what}: {label!r} is not a node of the graph, which has {prior.K:,} nodes, such as "
            f"{some_of(prior.labels)}. {did_you_mean(plain(label), prior.labels)}".rstrip()
        ) from None
