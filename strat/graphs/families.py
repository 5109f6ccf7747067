"""Weighted families of graphs: path, cycle, star, complete."""

import numbers
from collections.abc import Iterable
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from strat.errors import DataError, GraphError, type_name
from strat.graphs.prior_graph import node_labels
from strat.records.labels import label_list


def path(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a path: each node is joined to the next.

    Parameters
    ----------
    nodes : iterable or int
        The strata in order, such as years or bins; a number K means 0, …, K - 1.
    weight : float or array_like of shape (K - 1,), optional
        The weight of every edge, or of each in order.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph.

    Examples
    --------
    >>> from strat import graphs
    >>> years = graphs.path(range(2000, 2003), weight=4, name="year")
    >>> list(years.edges(data="weight"))
    [(2000, 2001, 4.0), (2001, 2002, 4.0)]
    """
    nodes = node_list(nodes)
    return weighted(nodes, pairwise(nodes), weight, name)


def cycle(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a cycle: a path whose last node is joined to the first.

    Parameters
    ----------
    nodes : iterable or int
        The strata in order, such as hours or months; a number K means 0, …, K - 1.
    weight : float or array_like of shape (K,), optional
        The weight of every edge, or of each in order, the closing edge last.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph; two nodes have one edge.

    Examples
    --------
    >>> from strat import graphs
    >>> list(graphs.cycle(3).edges)
    [(0, 1), (0, 2), (1, 2)]
    """
    nodes = node_list(nodes)
    closing = [(nodes[-1], nodes[0])] if len(nodes) > 2 else []
    return weighted(nodes, [*pairwise(nodes), *closing], weight, name)


def star(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a star: the first node is joined to every other.

    Parameters
    ----------
    nodes : iterable or int
        The strata, the centre first; a number K means 0, …, K - 1 (K nodes in all, where
        ``networkx.star_graph`` has one more).
    weight : float or array_like of shape (K - 1,), optional
        The weight of every edge, or of each in order.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph.

    Examples
    --------
    >>> from strat import graphs
    >>> list(graphs.star(["all", "women", "men"]).edges)
    [('all', 'women'), ('all', 'men')]
    """
    nodes = node_list(nodes)
    return weighted(nodes, [(nodes[0], leaf) for leaf in nodes[1:]], weight, name)


def complete(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a complete graph: every node is joined to every other.

    Parameters
    ----------
    nodes : iterable or int
        The strata; a number K means 0, …, K - 1.
    weight : float or array_like of shape (K (K - 1) / 2,), optional
        The weight of every edge, or of each in the order (0, 1), (0, 2), …, (1, 2), ….
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph.

    Examples
    --------
    >>> from strat import graphs
    >>> list(graphs.complete(["F", "M"], weight=10).edges(data="weight"))
    [('F', 'M', 10.0)]
    """
    nodes = node_list(nodes)
    return weighted(nodes, combinations(nodes, 2), weight, name)


def node_list(nodes):
    """Return the nodes as distinct plain labels; a number K means 0, …, K - 1."""
    if isinstance(nodes, numbers.Integral) and not isinstance(nodes, bool):
        nodes = range(nodes)
    if isinstance(nodes, str):
        raise GraphError(f"nodes is the text {nodes!r}. Pass a list of labels, or how many nodes there are.")
    try:
        return node_labels(label_list(nodes))
    except DataError:
        raise GraphError(f"nodes is {type_name(nodes)}. Pass labels, or how many nodes there are.") from None


def row_labels(values, K):
    """Return the index of a DataFrame or Series as nodes, or 0, …, K - 1 for anything else."""
    index = getattr(values, "index", None)
    return node_list(K if index is None or callable(index) else index)


def weighted(nodes, pairs, weight, name=None):
    """Return a graph with one weight for all edges or one for each, and the name as their factor."""
    graph = nx.Graph() if name is None else nx.Graph(name=str(name))
    factor = {} if name is None else {"factor": str(name)}
    graph.add_nodes_from(nodes)
    pairs, weights = list(pairs), np.asarray(weight)
    if weights.dtype.kind not in "biuf" or not np.isfinite(weights).all() or (weights < 0).any():
        raise GraphError(f"weight is {weight!r}, but weights are finite numbers of at least 0.")
    if weights.shape not in ((), (len(pairs),)):
        raise GraphError(
            f"weight has shape {weights.shape} for {len(pairs):,} edges. Pass one number, or one for each."
        )
    weights = np.broadcast_to(weights.astype(float), len(pairs)).tolist()
    graph.add_edges_from((u, v, {"weight": w, **factor}) for (u, v), w in zip(pairs, weights, strict=True))
    return graph
