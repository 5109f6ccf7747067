"""Cartesian products of graphs, whose edges remember their factor."""

from itertools import chain
from itertools import product as tuples

import networkx as nx

from strat.errors import GraphError
from strat.graphs.families import path
from strat.graphs.reading import read_graph


def product(*graphs):
    """Build the Cartesian product: two strata are joined when one coordinate changes along an edge.

    Parameters
    ----------
    *graphs : networkx.Graph or tuple (labels, W)
        Two or more graphs, one a coordinate of the strata. A graph's name (``name=``) becomes the edge
        attribute ``factor`` of its edges; a graph without one keeps the factors its edges have, or its
        edges are called ``"factor1"``, ``"factor2"``, … by its position.

    Returns
    -------
    networkx.Graph
        The product. Its nodes are tuples, one label a graph, also for more than two graphs, the last
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
    factors = [_edges(graph, position) for position, graph in enumerate(graphs)]
    _check_names(factors)
    result = nx.Graph()
    result.add_nodes_from(tuples(*(labels for labels, _, _ in factors)))
    for axis, (_, edges, _) in enumerate(factors):
        before = list(tuples(*(labels for labels, _, _ in factors[:axis])))
        after = list(tuples(*(labels for labels, _, _ in factors[axis + 1 :])))
        result.add_edges_from(
            ((*head, u, *tail), (*head, v, *tail), attributes)
            for head in before
            for u, v, attributes in edges
            for tail in after
        )
    return result


def grid(*axes, weight=1.0, name=None):
    """Build a grid: the product of paths.

    Parameters
    ----------
    *axes : iterable or int
        Two or more lists of labels, such as bins of two variables; a number K means 0, …, K - 1.
    weight : float or sequence of float, optional
        The weight of every edge, or one weight an axis.
    name : sequence of str, optional
        One name an axis, kept as the edge attribute ``factor``; ``"factor1"``, ``"factor2"``, … by default.

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
    weights = (
        list(weight) if hasattr(weight, "__len__") and not isinstance(weight, str) else [weight] * len(axes)
    )
    names = [None] * len(axes) if name is None else [name] if isinstance(name, str) else list(name)
    if len(weights) != len(axes) or len(names) != len(axes):
        raise GraphError(
            f"grid has {len(axes)} axes, but {len(weights)} weights and {len(names)} names. Give one an axis."
        )
    return product(*(path(*options) for options in zip(axes, weights, names, strict=True)))


def _edges(graph, position):
    """The labels, edges with attributes, and factor names of one graph of a product."""
    prior = read_graph(graph)
    default = f"factor{position + 1}"
    edges = {name: [] for name in ([prior.name] if prior.name else [*prior.factors, default])}
    for u, v, attributes in prior.to_networkx().edges(data=True):
        # A single edge of the user's graph may carry more, for instance what tuning ties weights by.
        own = graph.get_edge_data(u, v) if isinstance(graph, nx.Graph) and not graph.is_multigraph() else {}
        factor = prior.name or attributes.get("factor", default)
        edges[factor].append((u, v, {**own, "weight": attributes["weight"], "factor": factor}))
    return prior.labels, list(chain(*edges.values())), [name for name, some in edges.items() if some]


def _check_names(factors):
    seen = {}
    for position, (_, _, names) in enumerate(factors, start=1):
        for name in names:
            if name in seen:
                raise GraphError(
                    f"graphs {seen[name]} and {position} of the product are both named {name!r}. Give "
                    "each its own name=."
                )
        seen.update(dict.fromkeys(names, position))
