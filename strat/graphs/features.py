"""Graphs from features of the strata: nearest neighbours and an exponential kernel."""

import numbers

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.neighbors import NearestNeighbors

from strat.errors import DataError, OptionError
from strat.graphs.families import node_list, weighted


def knn(features, k, metric="euclidean", name=None):
    """Join strata when either is among the other's k nearest, with weight 1.

    Parameters
    ----------
    features : array_like or DataFrame, shape (K, m)
        The features of each stratum. The nodes are the index of a DataFrame, or 0, …, K - 1.
    k : int
        The number of neighbours, 1 to K - 1.
    metric : str or callable, optional
        A metric of ``sklearn.neighbors.NearestNeighbors``.
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
    nodes, features = _read(features)
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


def exponential_kernel(features, tau, metric="euclidean", name=None):
    """Join all strata with weights exp(-tau d), d the distance of their features (not its square).

    Parameters
    ----------
    features : array_like or DataFrame, shape (K, m)
        The features of each stratum. The nodes are the index of a DataFrame, or 0, …, K - 1.
    tau : float
        The rate, at least 0: weights fall by half every log(2) / tau.
    metric : str or callable, optional
        A metric of ``scipy.spatial.distance.pdist``.
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
    nodes, features = _read(features)
    if not isinstance(tau, numbers.Real) or not 0 <= tau < np.inf:
        raise OptionError(f"tau is {tau!r}, but it is a finite number of at least 0.")
    with _metric(metric):
        distances = pdist(features, metric)
    i, j = np.triu_indices(len(nodes), 1)
    pairs = [(nodes[i], nodes[j]) for i, j in zip(i.tolist(), j.tolist(), strict=True)]
    return weighted(nodes, pairs, np.exp(-tau * distances), name)


class _metric:
    """Turn what SciPy and scikit-learn say about a metric into an OptionError."""

    def __init__(self, metric):
        self.metric = metric

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, ValueError | TypeError):
            raise OptionError(f"metric={self.metric!r} cannot be used on these features: {error}") from error


def _read(features):
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
    return node_list(features.index if has_index else len(values)), values
