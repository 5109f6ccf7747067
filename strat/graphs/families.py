"""Weighted families of graphs: path, cycle, star, complete."""

import numbers

import networkx as nx
import numpy as np

from strat.errors import DataError, GraphError, type_name
from strat.graphs.prior_graph import check_labels
from strat.records.labels import label_list, plain


def path(nodes, weight=1.0, name=None):
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
    return weighted(nodes, zip(nodes[:-1], nodes[1:], strict=True), weight, name)


def cycle(nodes, weight=1.0, name=None):
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
    return weighted(nodes, [*zip(nodes[:-1], nodes[1:], strict=True), *closing], weight, name)


def star(nodes, weight=1.0, name=None):
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


def complete(nodes, weight=1.0, name=None):
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
    pairs = [(node, other) for position, node in enumerate(nodes) for other in nodes[position + 1 :]]
    return weighted(nodes, pairs, weight, name)


def node_list(nodes):
    """Return the nodes as distinct plain labels; a number K means 0, …, K - 1."""
    if isinstance(nodes, numbers.Integral) and not isinstance(nodes, bool):
        nodes = range(nodes)
    if isinstance(nodes, str):
        raise GraphError(f"nodes is the text {nodes!r}. Pass a list of labels, or how many nodes there are.")
    try:
        labels = [plain(label) for label in label_list(nodes)]
    except DataError:
        raise GraphError(f"nodes is {type_name(nodes)}. Pass labels, or how many nodes there are.") from None
    check_labels(labels)
    return labels


def weighted(nodes, pairs, weight, name=None):
    """Return a graph with one weight for all edges or one for each, and the name as their factor."""
    pairs = list(pairs)
    graph = nx.Graph() if name is None else nx.Graph(name=str(name))
    attributes = {} if name is None else {"factor": str(name)}
    graph.add_nodes_from(nodes)
    weights = edge_weights(weight, len(pairs)).tolist()
    graph.add_edges_from(
        (u, v, {"weight": w, **attributes}) for (u, v), w in zip(pairs, weights, strict=True)
    )
    return graph


def edge_weights(weight, n_edges):
    """Return finite nonnegative weights of shape (n_edges,) from one number or one for each edge."""
    weights = np.asarray(weight)
    if weights.dtype.kind not in "biuf" or not np.isfinite(weights).all() or (weights < 0).any():
        raise GraphError(f"weight is {weight!r}, but weights are finite numbers of at least 0.")
    if weights.shape not in ((), (n_edges,)):
        raise GraphError(
            f"weight has shape {weights.shape} for {n_edges:,} edges. Pass one number, or one for each."
        )
    return np.broadcast_to(weights, n_edges).astype(float)
