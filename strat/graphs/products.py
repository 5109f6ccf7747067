"""Cartesian products of graphs, whose edges remember their factor."""

from collections.abc import Sequence
from itertools import chain
from itertools import product as tuples
from typing import Any

import networkx as nx

from strat.errors import GraphError
from strat.graphs.families import path
from strat.graphs.reading import read_graph


def product(*graphs: Any) -> nx.Graph:
    """Build the Cartesian product: two strata are joined when one coordinate changes along an edge.

    Parameters
    ----------
    *graphs : networkx.Graph or tuple (labels, W)
        Two or more graphs, one per coordinate of the strata. A graph's name (``name=``) becomes the edge
        attribute ``factor`` of its edges; a graph without one keeps the factors its edges have, or its
        edges are called ``"factor1"``, ``"factor2"``, … by its position.

    Returns
    -------
    networkx.Graph
        The product. Its nodes are tuples, one label per graph, also for more than two graphs, the last
        coordinate changing fastest; edges carry ``weight`` and ``factor``.

    Examples
    --------
    >>> from strat import graphs
    >>> sex, age = graphs.complete(["F", "M"], name="sex"), graphs.path([20, 21], weight=50, name="age")
    >>> people = graphs.product(sex, age)
    >>> list(people)
    [('F', 20), ('F', 21), ('M', 20), ('M', 21)]
    >>> people.edges[("F", 20), ("F", 21)]
    {'weight': 50.0, 'factor': 'age'}
    """
    if len(graphs) < 2:
        raise GraphError(f"product was given {len(graphs)} graphs, but a product has at least two.")
    labels, edges = zip(*(_edges(graph, k) for k, graph in enumerate(graphs, start=1)), strict=True)
    first = {}  # the graph in which each factor occurs first
    for k, factors in enumerate(edges, start=1):
        for name in factors:
            if first.setdefault(name, k) != k:
                raise GraphError(
                    f"graphs {first[name]} and {k} of the product are both named {name!r}. Give each its own name=."
                )
    result = nx.Graph()
    result.add_nodes_from(tuples(*labels))
    for axis, factors in enumerate(edges):
        before, after = list(tuples(*labels[:axis])), list(tuples(*labels[axis + 1 :]))
        result.add_edges_from(
            ((*head, u, *tail), (*head, v, *tail), attributes)
            for head in before
            for u, v, attributes in chain(*factors.values())
            for tail in after
        )
    return result


def grid(*axes: Any, weight: float | Sequence | None = 1.0, name: Sequence | None = None) -> nx.Graph:
    """Build a grid: the product of paths.

    Parameters
    ----------
    *axes : iterable or int
        Two or more lists of labels, such as bins of two variables; a number K means 0, …, K - 1.
    weight : float or sequence of float, optional
        The weight of every edge, or one weight per axis.
    name : sequence of str, optional
        One name per axis, kept as the edge attribute ``factor``; ``"factor1"``, ``"factor2"``, … by default.

    Returns
    -------
    networkx.Graph
        The grid; its nodes are tuples.

    Examples
    --------
    >>> from strat import graphs
    >>> bins = graphs.grid(10, 10, weight=(20, 10), name=("density", "sulphates"))
    >>> len(bins), bins.edges[(0, 0), (1, 0)]
    (100, {'weight': 20.0, 'factor': 'density'})
    """
    if len(axes) < 2:
        raise GraphError(f"grid was given {len(axes)} axes, but a grid has at least two. Use path for one.")
    several = hasattr(weight, "__len__") and not isinstance(weight, str)
    weights = list(weight) if several else [weight] * len(axes)
    names = [None] * len(axes) if name is None else [name] if isinstance(name, str) else list(name)
    if len(weights) != len(axes) or len(names) != len(axes):
        raise GraphError(
            f"grid has {len(axes)} axes, but {len(weights)} weights and {len(names)} names. Give one per axis."
        )
    return product(*(path(*options) for options in zip(axes, weights, names, strict=True)))


def _edges(graph, position):
    """The labels of one graph of a product, and its edges with their attributes, by factor."""
    prior = read_graph(graph)
    simple = isinstance(graph, nx.Graph) and not graph.is_multigraph()
    edges = {}
    for u, v, attributes in prior.to_networkx().edges(data=True):
        # An edge of the user's graph may carry more attributes, for instance those by which tuning ties weights.
        more = graph.get_edge_data(u, v) if simple else {}
        factor = prior.name or attributes.get("factor", f"factor{position}")
        edges.setdefault(factor, []).append(
            (u, v, {**more, "weight": attributes["weight"], "factor": factor})
        )
    return prior.labels, {name: edges[name] for name in (*prior.factors, *edges) if name in edges}
