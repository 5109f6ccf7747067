"""The coordinates of labels that are tuples, as those of a product graph: their factors, and the edges along each."""

import numbers
import re

import networkx as nx

from strat.graphs.reading import read_graph


def changed_axis(u, v):
    """The only coordinate in which two labels differ; None where there are several, or the labels are of other kinds."""
    if not type(u) is type(v) is tuple:
        return None if type(u) is tuple or type(v) is tuple else 0
    changed = [axis for axis, (a, b) in enumerate(zip(u, v, strict=False)) if a != b]
    return changed[0] if len(changed) == 1 and len(u) == len(v) else None


def axis_factors(graph):
    """The name of the factor of the edges along each coordinate, ``{axis: name}``, where it has a name of its own."""
    names = {}
    if isinstance(graph, nx.Graph):
        for u, v, factor in graph.edges(data="factor"):
            axis = changed_axis(u, v)
            if factor and axis is not None and not re.fullmatch(r"factor\d+", str(factor)):
                names[axis] = str(factor)
    return names


def edges_along_axes(graph, scale=1.0):
    """For each coordinate ``{value: {neighbour: weight}}``, from the edges that change this coordinate alone."""
    prior = read_graph(graph)
    axes = {}
    for i, j, w in zip(prior.i.tolist(), prior.j.tolist(), prior.weights(scale).tolist(), strict=True):
        u, v = prior.labels[i], prior.labels[j]
        axis = changed_axis(u, v)
        if axis is not None:
            a, b = (u[axis], v[axis]) if type(u) is tuple else (u, v)
            for one, other in ((a, b), (b, a)):
                axes.setdefault(axis, {}).setdefault(one, {})[other] = w
    return axes


def nearest_numbers(value, near):
    """``{neighbour: weight}`` of a number between or beyond those of a coordinate whose numbers are joined in order."""
    if not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in (value, *near)):
        return {}
    order = sorted(near)
    if any(b not in near[a] for a, b in zip(order, order[1:], strict=False)) or any(
        len(n) > 2 for n in near.values()
    ):
        return {}
    sides = [v for v in order if v < value][-1:] + [v for v in order if v > value][:1]
    return {v: min(near[v].values()) for v in sides}
