"""Weighted families of graphs: path, cycle, star, complete, and products of graphs, whose edges remember their factor."""

import inspect
import math
import numbers
from collections.abc import Iterable, Sequence
from itertools import product as tuples
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from strat.errors import DataError, GraphError, type_name
from strat.graphs.prior_graph import PriorGraph, node_labels, read_graph
from strat.records.labels import label_list

PARAMETERS = """

Parameters
----------
nodes : iterable or int
    The strata{order}; a number K means 0, …, K - 1.
weight : float or array_like of shape ({count},), optional
    The weight of every edge, or of each in {turn}.
name : str, optional
    The name of the graph, kept as the edge attribute ``factor``.

Returns
-------
networkx.Graph
    The graph.

Examples
--------
>>> from strat import graphs
"""


def _family(order, count, turn="order"):
    """Insert the sections that all families share between the two parts of a docstring, summary and example."""

    def described(build):
        if build.__doc__:  # python -OO strips docstrings
            parameters = PARAMETERS.format(order=order, count=count, turn=turn)
            build.__doc__ = inspect.getdoc(build).replace("\n\n", parameters)
        return build

    return described


@_family(", in order, such as years or bins", "K - 1")
def path(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a path: each node is joined to the next.

    >>> years = graphs.path(range(2000, 2003), weight=4, name="year")
    >>> list(years.edges(data="weight"))
    [(2000, 2001, 4.0), (2001, 2002, 4.0)]
    """
    nodes = node_list(nodes)
    order = np.arange(len(nodes))
    return weighted(nodes, order[:-1], order[1:], weight, name)


@_family(", in order, such as hours or months", "K", "order, the closing edge last")
def cycle(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a cycle: a path whose last node is joined to the first; two nodes have one edge.

    >>> list(graphs.cycle(3).edges)
    [(0, 1), (0, 2), (1, 2)]
    """
    nodes = node_list(nodes)
    order = np.arange(len(nodes))
    ends = (order, np.roll(order, -1)) if len(nodes) > 2 else (order[:-1], order[1:])
    return weighted(nodes, *ends, weight, name)


@_family(", the centre first (K in all, where ``networkx.star_graph`` has one more)", "K - 1")
def star(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a star: the first node is joined to every other.

    >>> list(graphs.star(["all", "women", "men"]).edges)
    [('all', 'women'), ('all', 'men')]
    """
    nodes = node_list(nodes)
    leaves = np.arange(1, len(nodes))
    return weighted(nodes, np.zeros_like(leaves), leaves, weight, name)


@_family("", "K (K - 1) / 2", "the order (0, 1), (0, 2), …, (1, 2), …")
def complete(nodes: Iterable | int, weight: ArrayLike | None = 1.0, name: str | None = None) -> nx.Graph:
    """Build a complete graph: every node is joined to every other.

    >>> list(graphs.complete(["F", "M"], weight=10).edges(data="weight"))
    [('F', 'M', 10.0)]
    """
    nodes = node_list(nodes)
    return weighted(nodes, *np.triu_indices(len(nodes), 1), weight, name)


def product(*graphs: Any) -> nx.Graph:
    """Build the Cartesian product: two strata are joined when one coordinate changes along an edge.

    Parameters
    ----------
    *graphs : networkx.Graph or tuple (labels, W)
        Two or more graphs, one per coordinate of the strata. A graph's name (``name=``) becomes the edge
        attribute ``factor`` of its edges. Edges of a graph without a name keep the factors that they have;
        without one they are called ``"factor1"``, ``"factor2"``, … by the graph's position.

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
    priors, first, terms = [read_graph(graph) for graph in graphs], {}, []
    place = np.arange(math.prod(prior.K for prior in priors)).reshape([prior.K for prior in priors])
    for axis, prior in enumerate(priors):
        codes, several = prior.factor_on(prior.i, prior.j)
        codes = np.where(several | (codes < 0), len(prior.factors), codes)
        names = [prior.name or factor for factor in (*prior.factors, f"factor{axis + 1}")]
        for factor in (names[code] for code in np.unique(codes)):
            if first.setdefault(factor, axis) != axis:
                both = f"graphs {first[factor] + 1} and {axis + 1} of the product are both named {factor!r}"
                raise GraphError(f"{both}. Give each its own name=.")
        order = np.argsort(codes, kind="stable")  # so that the factors keep their order
        layers = np.moveaxis(place, axis, 0).reshape(prior.K, place.size // prior.K)
        i, j = (layers[end[order]] for end in (prior.i, prior.j))
        weight, codes = (np.repeat(each[order], i.shape[1]) for each in (prior.weights(), codes))
        terms.append((i.ravel(), j.ravel(), weight, np.array(names, dtype=object)[codes]))
    nodes = list(tuples(*(prior.labels for prior in priors)))
    result = PriorGraph.from_terms(nodes, *map(np.concatenate, zip(*terms, strict=True))).to_networkx()
    for axis, graph in enumerate(graphs):
        if not isinstance(graph, nx.Graph) or graph.is_multigraph() or getattr(graph, "prior", None):
            continue
        # An edge of the user's graph may carry more attributes, such as those by which tuning ties weights.
        others = priors[:axis], priors[axis + 1 :]
        before, after = (list(tuples(*(prior.labels for prior in part))) for part in others)
        for u, v, attributes in graph.edges(data=True):
            more = {key: value for key, value in attributes.items() if key not in ("weight", "factor")}
            for head, tail in tuples(before, after) if more and u != v else ():
                result.edges[(*head, u, *tail), (*head, v, *tail)].update(more)
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
        counts = f"{len(axes)} axes, but {len(weights)} weights and {len(names)} names"
        raise GraphError(f"grid has {counts}. Give one per axis.")
    return product(*(path(*options) for options in zip(axes, weights, names, strict=True)))


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


def weighted(nodes, i, j, weight, name=None):
    """Return a graph with edges between positions, one weight for all or one for each, and the name as their factor."""
    weights = np.asarray(weight)
    if weights.dtype.kind not in "biuf" or not np.isfinite(weights).all() or (weights < 0).any():
        raise GraphError(f"weight is {weight!r}, but weights are finite numbers of at least 0.")
    if weights.shape not in ((), (len(i),)):
        raise GraphError(f"weight has shape {weights.shape} for {len(i):,} edges. Pass one, or one each.")
    weights, name = np.broadcast_to(weights.astype(float), len(i)), "" if name is None else str(name)
    factors = [name] * len(i) if name else None
    return PriorGraph.from_terms(nodes, i, j, weights, factors, name).to_networkx()
