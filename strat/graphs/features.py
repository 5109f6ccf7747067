"""Graphs from features of the strata: nearest neighbours and an exponential kernel."""

import numbers

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import NearestNeighbors

from strat.errors import DataError, OptionError
from strat.graphs.families import complete, node_list, weighted


def knn(features, k, metric="euclidean", name=None):
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
        raise DataError("features holds a single stratum, which has no neighbours. Give one row a stratum.")
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or not 1 <= k < len(nodes):
        raise OptionError(
            f"k is {k!r}, but {len(nodes):,} strata have from 1 to {len(nodes) - 1:,} neighbours."
        )
    with _metric(metric):
        neighbors = (
            NearestNeighbors(n_neighbors=int(k), metric=metric)
            .fit(features)
            .kneighbors(return_distance=False)
        )
    i, j = np.repeat(np.arange(len(nodes)), k), neighbors.ravel()
    pairs = np.unique(np.sort(np.column_stack([i, j]), axis=1), axis=0)
    return weighted(nodes, [(nodes[i], nodes[j]) for i, j in pairs.tolist()], 1.0, name)


def exponential_kernel(features, tau=None, metric="euclidean", name=None):
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
    if tau is not None:
        check_tau(tau)
    with _metric(metric):
        distances = squareform(features) if _precomputed(metric) else pdist(features, metric)
    tau = np.log(2) / typical(distances) if tau is None else tau
    return complete(nodes, np.exp(-tau * distances), name)


def check_tau(tau):
    """Return tau, or raise an OptionError if it is no rate."""
    if isinstance(tau, bool) or not isinstance(tau, numbers.Real) or not 0 <= tau < np.inf:
        raise OptionError(f"tau is {tau!r}, but it is a finite number of at least 0.")
    return tau


def typical(distances):
    """Return the median of the distances above 0, or 1 where there are none."""
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0


class _metric:
    """Turn what SciPy and scikit-learn say about a metric into an OptionError."""

    def __init__(self, metric):
        self.metric = metric

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, ValueError | TypeError):
            raise OptionError(f"metric={self.metric!r} cannot be used on these features: {error}") from error


def _precomputed(metric):
    return isinstance(metric, str) and metric == "precomputed"


def _read(features, metric):
    """The nodes, and one row of features a node, or the distances of all nodes."""
    has_index = hasattr(features, "index") and not callable(features.index)
    try:
        values = np.asarray(features, dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            "features holds something other than numbers. Pass one row of numbers a stratum."
        ) from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[0] < 1:
        raise DataError(f"features has shape {values.shape}, but it is one row of numbers a stratum.")
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        row, column = bad[0].tolist()
        raise DataError(
            f"features holds {values[row, column]} in row {row}, column {column}. Distances need finite "
            "numbers."
        )
    if _precomputed(metric):
        values = _distances(values)
    return node_list(features.index if has_index else len(values)), values


def _distances(values):
    """A (K, K) matrix checked to hold distances, rounding averaged away."""
    ways = "Pass one row and one column a stratum, symmetric, with a zero diagonal."
    if values.shape[0] != values.shape[1]:
        raise DataError(f"the precomputed distances have shape {values.shape}. {ways}")
    largest = np.abs(values).max()
    wrong = np.abs(values - values.T) > 1e-9 * largest
    wrong |= (values < 0) | (np.eye(len(values), dtype=bool) & (values > 1e-9 * largest))
    if wrong.any():
        i, j = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"the precomputed distances are {values[i, j]:g} at row {i}, column {j}, and {values[j, i]:g} at row {j}, "
            f"column {i}. {ways}"
        )
    values = (values + values.T) / 2
    np.fill_diagonal(values, 0.0)
    return values
