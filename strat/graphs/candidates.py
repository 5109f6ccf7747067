"""Candidate edges: the pairs of strata whose weights a model may learn."""

import networkx as nx
import numpy as np
import scipy.sparse as sp

from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import PriorGraph, unique_edges
from strat.graphs.reading import read_graph
from strat.records.labels import plain
from strat.records.strata import some_of


def candidate_edges(edges, prior):
    """Return the candidate edges as index arrays.

    Parameters
    ----------
    edges : {"all", "prior", "two-hop"}, list of label pairs, or graph
        All pairs; the graph's own edges, those of weight 0 included; these and the pairs that have a
        common neighbour; the pairs given; the edges of another graph over (some of) the same labels.
    prior : PriorGraph
        The graph whose nodes are the strata.

    Returns
    -------
    i, j : ndarray of int, shape (E,)
        Distinct edges, i < j, sorted by i and then j.
    """
    if isinstance(edges, str):
        return _named(edges, prior)
    if isinstance(edges, nx.Graph | PriorGraph) or _is_labels_and_matrix(edges):
        graph = read_graph(edges)
        to_prior = np.array([_position(label, prior) for label in graph.labels], dtype=np.intp)
        i, j, _ = unique_edges(to_prior[graph.i], to_prior[graph.j], prior.K)
    else:
        i, j = _from_pairs(edges, prior)
    if i.size == 0:
        raise GraphError(
            'edges: there are no candidate edges, so no weight can be learned. Pass edges="all".'
        )
    return i, j


def _named(edges, prior):
    if edges == "all":
        return np.triu_indices(prior.K, 1)
    if edges not in ("prior", "two-hop"):
        raise OptionError(
            f'edges={edges!r} is not known. Use "all", "prior", "two-hop", a list of pairs of labels, or a graph.'
        )
    if prior.i.size == 0:
        raise GraphError(
            f'edges="{edges}": the graph has no edges, so no weight can be learned. Use edges="all".'
        )
    return (prior.i, prior.j) if edges == "prior" else _two_hop(prior)


def _two_hop(prior):
    """The graph's edges, and pairs with a common neighbour."""
    ends = np.r_[prior.i, prior.j], np.r_[prior.j, prior.i]
    A = sp.csr_array((np.ones(2 * len(prior.i)), ends), shape=(prior.K, prior.K))
    i, j = sp.triu(A + A @ A, 1).tocoo().coords
    i, j, _ = unique_edges(i, j, prior.K)
    return i, j


def _is_labels_and_matrix(edges):
    # A list of two pairs of tuple labels looks like (labels, nested list): only a real matrix is taken for W.
    return isinstance(edges, tuple) and len(edges) == 2 and getattr(edges[1], "ndim", None) == 2


def _from_pairs(edges, prior):
    edges = edges.tolist() if isinstance(edges, np.ndarray) else edges
    try:
        pairs = [tuple(pair) for pair in edges]
    except TypeError:
        raise GraphError(f"edges: {edges!r} is no list of pairs of labels.") from None
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise GraphError(f"edges: {wrong!r} is no pair of labels.")
    ends = np.array([[_position(label, prior) for label in pair] for pair in pairs], dtype=np.intp).reshape(
        -1, 2
    )
    loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if loops.size:
        raise GraphError(f"edges: {pairs[loops[0]]!r} joins a stratum to itself. An edge joins two strata.")
    i, j, _ = unique_edges(ends[:, 0], ends[:, 1], prior.K)
    return i, j


def _position(label, prior):
    try:
        return prior.position[plain(label)]
    except (KeyError, TypeError):
        raise GraphError(
            f"edges: {label!r} is not a node of the graph, which has {prior.K:,} nodes, such as "
            f"{some_of(prior.labels)}."
        ) from None
