"""Graphs of places from their shapes: neighbours that touch, share a border, or are nearest."""

from typing import Any

import networkx as nx
import numpy as np

from strat.errors import DataError, OptionError, type_name
from strat.graphs.families import row_labels
from strat.graphs.features import joined, nearest


def from_geometry(
    frame: Any, rule: str = "queen", k: int = 4, weight: float = 1.0, name: str | None = None
) -> nx.Graph:
    """Join the places of a GeoDataFrame or GeoSeries that are neighbours.

    The nodes are its index and carry their shape as the node attribute ``geometry``, so that ``strat.plot.parameters``
    draws a map and ``strat.plot.graph`` puts them in their places. Places without neighbours, such as islands, have no edge.

    Parameters
    ----------
    frame : geopandas.GeoDataFrame or GeoSeries, length K
        One shape a stratum.
    rule : {"queen", "rook", "nearest"}
        Which places are neighbours: those that touch in a point or more, those that share a border of some length, or
        those where either centroid is among the other's k nearest (on the globe where coordinates are degrees).
    k : int
        The number of neighbours, for "nearest".
    weight : float
        The weight of every edge.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph.

    Raises
    ------
    DataError
        If `frame` has no shapes, or one is missing.

    Examples
    --------
    >>> import geopandas  # doctest: +SKIP
    >>> from shapely import box  # doctest: +SKIP
    >>> from strat import graphs  # doctest: +SKIP
    >>> squares = [box(0, 0, 1, 1), box(1, 0, 2, 1), box(1, 1, 2, 2)]  # doctest: +SKIP
    >>> places = geopandas.GeoSeries(squares, index=["a", "b", "c"])  # doctest: +SKIP
    >>> (
    ...     list(graphs.from_geometry(places).edges),
    ...     list(graphs.from_geometry(places, "rook").edges),
    ... )  # doctest: +SKIP
    ([('a', 'b'), ('a', 'c'), ('b', 'c')], [('a', 'b'), ('b', 'c')])
    """
    shapes = getattr(frame, "geometry", None)
    if shapes is None or not hasattr(shapes, "sindex"):
        raise DataError(
            f"from_geometry needs a GeoDataFrame or GeoSeries of geopandas, not {type_name(frame)}."
        )
    if (shapes.isna() | shapes.is_empty).any():
        raise DataError(
            f"{shapes.index[shapes.isna() | shapes.is_empty][0]!r} has no shape. Drop it, or give it one."
        )
    nodes, values = row_labels(shapes, len(shapes)), np.asarray(shapes.values)
    if rule == "nearest":
        metric, points = "euclidean", centres(values)
        if shapes.crs is not None and shapes.crs.is_geographic:
            metric, points = "haversine", np.radians(points[:, ::-1])
        graph = nearest(nodes, points, k, metric, name)
        nx.set_edge_attributes(graph, float(weight), "weight")
    elif rule in ("queen", "rook"):
        i, j = shapes.sindex.query(shapes.values, predicate="intersects")
        i, j = i[i < j], j[i < j]
        if rule == "rook":
            borders = shapes.values[i].intersection(shapes.values[j])
            i, j = i[borders.length > 0], j[borders.length > 0]
        graph = joined(nodes, i, j, weight, name)
    else:
        raise OptionError(f'rule is {rule!r}, but it is one of "queen", "rook", "nearest".')
    nx.set_node_attributes(graph, dict(zip(nodes, values, strict=True)), "geometry")
    return graph


def shapes_of(graph, labels):
    """The nodes' shapes, one a label; None where the graph, or that of a model, does not carry them all."""
    graph = getattr(graph, "graph", graph) if hasattr(graph, "theta_") else graph
    shapes = dict(graph.nodes(data="geometry")) if isinstance(graph, nx.Graph) else {}
    shapes = [shapes.get(label) for label in labels]
    return shapes if shapes and all(hasattr(shape, "centroid") for shape in shapes) else None


def centres(shapes):
    """Centroids, (K, 2)."""
    return np.array([(shape.centroid.x, shape.centroid.y) for shape in shapes])
