"""The coordinates of labels that are tuples, as those of a product graph, and the factors along them."""

import re

import networkx as nx


def changed_axis(u, v):
    """The only coordinate in which two labels differ; None where there are several, or the labels are of other kinds."""
    if not type(u) is type(v) is tuple:
        return None if type(u) is tuple or type(v) is tuple else 0
    changed = [axis for axis, (a, b) in enumerate(zip(u, v, strict=False)) if a != b]
    return changed[0] if len(changed) == 1 and len(u) == len(v) else None


def axis_factors(*graphs):
    """The name of the factor of the edges along each coordinate, ``{axis: name}``, where it has a name of its own."""
    names = {}
    for graph in (graph for graph in graphs if isinstance(graph, nx.Graph)):
        for u, v, factor in graph.edges(data="factor"):
            axis = changed_axis(u, v)
            if factor and axis is not None and not re.fullmatch(r"factor\d+", str(factor)):
                names[axis] = str(factor)
    return names
