"""Graphs from features of the strata (nearest neighbours, exponential kernel) and from the shapes of places."""

import numbers
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist, squareform

from strat.errors import DataError, DataWarning, OptionError, is_nonnegative, type_name
from strat.graphs.families import complete, row_labels, weighted
from strat.graphs.prior_graph import unique_edges


def knn(
    features: ArrayLike, k: int, metric: str | Callable | None = "euclidean", name: str | None = None
) -> nx.Graph:
    """Join strata when either is among the other's k nearest, with weight 1.

    Parameters
    ----------
    features : array_like or DataFrame, shape (K, m)
        The features of each stratum, or with ``metric="precomputed"`` the (K, K) distances between strata.
        The nodes are the index of a DataFrame, or 0, …, K - 1.
    k : int
        The number of neighbours, 1 to K - 1.
    metric : str or callable, optional
        A metric of ``sklearn.neighbors.NearestNeighbors``, or ``"precomputed"``.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The graph.

    Examples
    --------
    >>> from strat import graphs
    >>> list(graphs.knn([[0.0], [1.0], [5.0]], k=1).edges)
    [(0, 1), (1, 2)]
    """
    nodes, features = _read(features, metric)
    if len(nodes) < 2:
        raise DataError("features holds a single stratum, which has no neighbours. Give one row per stratum.")
    return nearest(nodes, features, k, metric, name)


def exponential_kernel(
    features: ArrayLike,
    tau: float | None = None,
    metric: str | Callable | None = "euclidean",
    name: str | None = None,
) -> nx.Graph:
    """Join all strata with weights exp(-tau d), d the distance of their features (not its square).

    Parameters
    ----------
    features : array_like or DataFrame, shape (K, m)
        The features of each stratum, or with ``metric="precomputed"`` the (K, K) distances between strata.
        The nodes are the index of a DataFrame, or 0, …, K - 1.
    tau : float, optional
        The rate, at least 0: weights fall by half every log(2) / tau. By default the median distance of two
        strata (among those that are not 0) gives weight 1/2.
    metric : str or callable, optional
        A metric of ``scipy.spatial.distance.pdist``, or ``"precomputed"``.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        The complete graph.

    Examples
    --------
    >>> import math
    >>> from strat import graphs
    >>> list(graphs.exponential_kernel([[0.0], [2.0]], tau=math.log(2)).edges(data="weight"))
    [(0, 1, 0.25)]
    """
    nodes, features = _read(features, metric)
    with _errors_of(metric):
        distances = squareform(features) if metric == "precomputed" else pdist(features, metric)
    return exponential(nodes, distances, tau, name)


def from_geometry(
    frame: Any, rule: str = "queen", k: int = 4, weight: float = 1.0, name: str | None = None
) -> nx.Graph:
    """Join the places of a GeoDataFrame or GeoSeries that are neighbours.

    The nodes are its index and carry their shape as the node attribute ``geometry``, so that ``strat.plot.parameters``
    draws a map and ``strat.plot.graph`` puts them in their places. Places without neighbours, such as islands, have no edge.

    Parameters
    ----------
    frame : geopandas.GeoDataFrame or GeoSeries, length K
        One shape per stratum.
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
    >>> list(graphs.from_geometry(places).edges)  # doctest: +SKIP
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    >>> list(graphs.from_geometry(places, "rook").edges)  # doctest: +SKIP
    [('a', 'b'), ('b', 'c')]
    """
    shapes = getattr(frame, "geometry", None)
    if shapes is None or not hasattr(shapes, "sindex"):
        raise DataError(f"from_geometry needs a GeoDataFrame or GeoSeries, not {type_name(frame)}.")
    for label in shapes.index[shapes.isna() | shapes.is_empty]:
        raise DataError(f"{label!r} has no shape. Drop it, or give it one.")
    nodes, values = row_labels(shapes, len(shapes)), np.asarray(shapes.values)
    if rule == "nearest":
        metric, points = "euclidean", centres(values)
        if shapes.crs is not None and shapes.crs.is_geographic:
            metric, points = "haversine", np.radians(points[:, ::-1])
        graph = nearest(nodes, points, k, metric, name, weight)
    elif rule in ("queen", "rook"):
        i, j = shapes.sindex.query(shapes.values, predicate="intersects")
        i, j = i[i < j], j[i < j]
        if rule == "rook":
            borders = shapes.values[i].intersection(shapes.values[j])
            i, j = i[borders.length > 0], j[borders.length > 0]
        if len(nodes) > 1 and (not len(i) or shapes.geom_type.str.endswith("Point").all()):
            DataWarning.warn(
                f"rule={rule!r} joins places that touch, which gives {len(i):,} edges here: points have no borders, and "
                f'between polygons there may be gaps. Use rule="nearest", or shapes that share their borders.'
            )
        graph = weighted(nodes, *unique_edges(i, j, len(nodes))[:2], weight, name)
    else:
        raise OptionError(f'rule is {rule!r}, but it is one of "queen", "rook", "nearest".')
    nx.set_node_attributes(graph, dict(zip(nodes, values, strict=True)), "geometry")
    return graph


def nearest(nodes, features, k, metric="euclidean", name=None, weight=1.0):
    """Return the graph that joins two nodes when either is among the other's k nearest."""
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or not 1 <= k < len(nodes):
        raise OptionError(f"k is {k!r}, but {len(nodes):,} strata have 1 to {len(nodes) - 1:,} neighbours.")
    with _errors_of(metric):
        i, j, _ = unique_edges(*neighbors(features, int(k), metric), len(nodes))  # a pair may be found twice
        return weighted(nodes, i, j, weight, name)


def neighbors(features, k, metric="euclidean"):
    """Return the pairs (i, j) where j is among the k nearest of i, two arrays of shape (K k,)."""
    from sklearn.neighbors import NearestNeighbors  # takes a while to import

    search = NearestNeighbors(n_neighbors=k, metric=metric).fit(features)
    return np.repeat(np.arange(len(features)), k), search.kneighbors(return_distance=False).ravel()


def exponential(nodes, distances, rate, name=None, power=1):
    """Return the complete graph with weights exp(-rate d^power); without a rate, the median distance has weight 1/2."""
    if rate is not None and not is_nonnegative(rate):
        raise OptionError(f"tau is {rate!r}, but it is a finite number of at least 0.")
    if not np.isfinite(distances).all():
        raise DataError("some distances are not finite, as cosine distances of a row of zeros. Drop the row.")
    if rate is None:
        positive = distances[distances > 0]
        rate = np.log(2) / (np.median(positive) if positive.size else 1.0) ** power
    return complete(nodes, np.exp(-rate * distances**power), name)


def as_floats(name, values):
    """Return an array of finite numbers, one row per stratum, or raise a DataError."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise DataError(f"{name} holds something other than numbers. Pass a row per stratum.") from None
    for row, *rest in np.argwhere(~np.isfinite(array)).tolist() if array.ndim else ():
        where = f"row {row}" + "".join(f", column {k}" for k in rest)
        raise DataError(f"{name} holds {array[(row, *rest)]} in {where}. Distances need finite numbers.")
    return array


@contextmanager
def _errors_of(metric):
    """Turn errors of SciPy and scikit-learn about a metric into an OptionError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise OptionError(f"metric={metric!r} cannot be used on these features: {error}") from error


def _read(features, metric):
    """The nodes, and one row of features per node or the distances of all nodes."""
    values = as_floats("features", features)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[0] < 1:
        raise DataError(f"features has shape {values.shape}, but it is one row of numbers per stratum.")
    nodes = row_labels(features, len(values))
    if metric != "precomputed":
        return nodes, values
    # Rounding error in the distances is averaged away.
    advice = "Pass one row and one column per stratum, symmetric, with a zero diagonal."
    if values.shape[0] != values.shape[1]:
        raise DataError(f"the precomputed distances have shape {values.shape}. {advice}")
    wrong = (np.abs(values - values.T) > 1e-9 * np.abs(values).max()) | (values < 0)
    wrong |= np.diag(np.diag(values) > 1e-9 * np.abs(values).max())
    for i, j in np.argwhere(wrong).tolist():
        raise DataError(
            f"the precomputed distances are {values[i, j]:g} at row {i}, column {j}, and {values[j, i]:g} at row {j}, "
            f"column {i}. {advice}"
        )
    values = (values + values.T) / 2
    np.fill_diagonal(values, 0.0)
    return nodes, values


def shapes_of(graph, labels):
    """The nodes' shapes, one per label; None where the graph, or that of a model, does not carry them all."""
    graph = getattr(graph, "graph", graph) if hasattr(graph, "theta_") else graph
    shapes = dict(graph.nodes(data="geometry")) if isinstance(graph, nx.Graph) else {}
    shapes = [shapes.get(label) for label in labels]
    return shapes if shapes and all(hasattr(shape, "centroid") for shape in shapes) else None


def centres(shapes):
    """Centroids, (K, 2)."""
    return np.array([(shape.centroid.x, shape.centroid.y) for shape in shapes])
