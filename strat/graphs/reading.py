"""Graph input: networkx graphs, matrices, lists of edges and libpysal's weights, read and checked."""

import numbers
import sys
from itertools import chain, compress

import networkx as nx
import numpy as np
from scipy import sparse

from strat.errors import DataError, DataWarning, GraphError, type_name
from strat.graphs.prior_graph import PriorGraph, node_labels
from strat.records.labels import label_list

#: A weight this much below 0, relative to the largest, is rounding and is clipped.
NEGATIVE = 1e-12
#: An asymmetry up to this much of the largest weight is rounding and is averaged away.
ASYMMETRY = 1e-9


def read_graph(graph):
    """Read a graph, which is left as it is, into a PriorGraph.

    Parameters
    ----------
    graph : networkx.Graph or MultiGraph, tuple (labels, W) or (labels, i, j, w), libpysal W or Graph, or PriorGraph
        Nodes are strata. A missing ``weight`` is 1; W is a symmetric array or SciPy sparse matrix. ``i`` and ``j`` are the
        positions of the edges' ends among the labels, each edge listed once, or all of them both ways.
    """
    if isinstance(graph, PriorGraph):
        return graph
    if isinstance(graph, nx.Graph):
        return _from_networkx(graph)
    if isinstance(graph, tuple | list) and len(graph) == 2 and not isinstance(graph[1], nx.Graph):
        return _from_matrix(*graph)
    if isinstance(graph, tuple | list) and len(graph) == 4:
        return _from_edge_list(*graph)
    for ids in ("unique_ids", "id_order"):  # libpysal's Graph, its older W
        if sparse.issparse(getattr(graph, "sparse", None)) and hasattr(graph, ids):
            return _from_matrix(getattr(graph, ids), graph.sparse)
    raise GraphError(
        f"{type_name(graph)} is no graph. Pass a networkx.Graph whose nodes are the strata, (labels, W), "
        f"(labels, i, j, w), or a W or Graph of libpysal."
    )


def read_weights(source):
    """Read the graph of anything that has one, for reports and pictures.

    Parameters
    ----------
    source : fitted model, LearnedGraph, networkx.Graph, tuple (labels, W), ndarray or sparse array
        The strata of a matrix alone are 0, …, K - 1.
    """
    if hasattr(source, "theta_"):
        source = source.strata_, source.W_
    elif hasattr(source, "fit"):
        raise DataError("the model is not fitted. Call fit first.")
    elif hasattr(source, "W") and hasattr(source, "labels"):
        source = source.labels, source.W
    elif sparse.issparse(source) or isinstance(source, np.ndarray):
        source = list(range(source.shape[0])), source
    return read_graph(source)


def _from_networkx(graph):
    if graph.is_directed():
        raise GraphError(
            "the graph is directed, but an edge of a stratified model has no direction. With A = "
            "networkx.to_scipy_sparse_array(graph), pass (list(graph), (A + A.T) / 2), which takes the mean of both "
            "directions, or (list(graph), A + A.T) where each edge has one direction; graph.to_undirected() would keep one "
            "of two weights."
        )
    labels = node_labels(graph)
    i, j, attributes = _edges(graph)
    weights = [edge.get("weight", 1.0) for edge in attributes]
    if not set(map(type, weights)) <= {float, int}:
        for a, b, weight in zip(i, j, weights, strict=True):
            if not isinstance(weight, numbers.Real | np.bool_):
                raise GraphError(
                    f"edge ({labels[a]!r}, {labels[b]!r}) has the weight {weight!r}, which is no number. "
                    "Give it a finite weight."
                )
    try:
        weights = np.array(weights, dtype=float)
    except OverflowError:  # a whole number that is too large
        weights = np.array([float(w) if abs(w) <= sys.float_info.max else np.inf for w in weights])
    i, j, weights, joins = _checked(labels, i, j, weights)
    factors = [edge.get("factor") for edge in compress(attributes, joins)]
    factors = [None if factor is None else str(factor) for factor in factors]
    return PriorGraph.from_terms(labels, i, j, weights, factors, str(graph.name or ""))


def _edges(graph):
    """Positions of the ends of a graph's edges among its nodes, and the attributes of each edge."""
    position = {node: k for k, node in enumerate(graph)}
    if graph.is_multigraph():
        edges = list(graph.edges(data=True))
        ends = np.array([(position[u], position[v]) for u, v, _ in edges], dtype=np.intp).reshape(-1, 2)
        return *ends.T, [attributes for _, _, attributes in edges]
    neighbors = [near for _, near in graph.adjacency()]  # several times faster than `edges`
    j = np.array(list(map(position.__getitem__, chain.from_iterable(neighbors))), dtype=np.intp)
    i = np.repeat(np.arange(len(neighbors)), list(map(len, neighbors)))
    once = i <= j  # every edge is there from both ends, and a loop once
    attributes = chain.from_iterable(near.values() for near in neighbors)
    return i[once], j[once], list(compress(attributes, once.tolist()))


def _from_matrix(labels, W):
    W = _as_csr(W)
    try:
        labels = node_labels(label_list(labels))
    except DataError as error:
        raise GraphError(f"the labels of (labels, W) cannot be read. {error}") from None
    if W.shape != (len(labels), len(labels)):
        raise GraphError(
            f"W has shape {W.shape}, but there are {len(labels):,} labels. W is square, a row per label."
        )
    _checked(labels, *W.tocoo(copy=False).coords, W.data)
    # Each edge stands twice in W: its weight is the mean of both, which averages rounding away.
    (edges, upper), (others, lower) = _above_diagonal(W), _above_diagonal(W.T.tocsr())
    if not np.array_equal(edges, others):
        both = np.union1d(edges, others)
        upper, lower = (
            np.bincount(np.searchsorted(both, some), weights, len(both))
            for some, weights in ((edges, upper), (others, lower))
        )
        edges = both
    i, j = np.divmod(edges, len(labels))
    gap = np.abs(upper - lower)
    if gap.size and gap.max() > ASYMMETRY * max(upper.max(), lower.max()):
        worst, sums = int(gap.argmax()), np.asarray(W.sum(axis=1)).ravel()
        if not upper.any() or not lower.any():
            way = "Only one half of W is filled: pass W + W.T."
        elif np.ptp(W.data[W.data != 0]) == 0:
            way = "It says which are nearest: pass W.maximum(W.T) (arrays: np.maximum(W, W.T)) to join where either is so."
        elif np.allclose(sums[sums != 0], 1.0):
            way = (
                "Its rows sum to 1, so that weights are shares of a row: pass the weights before they were divided (libpysal: "
                "transform = 'B'), or (W + W.T) / 2 for the mean of both shares."
            )
        else:
            way = "Pass (W + W.T) / 2 for the mean of both, or W + W.T for two parts of one weight."
        raise GraphError(
            f"W is not symmetric: the edge ({labels[i[worst]]!r}, {labels[j[worst]]!r}) has weight {upper[worst]:g} one "
            f"way and {lower[worst]:g} the other. {way}"
        )
    return PriorGraph.from_terms(labels, i, j, (upper + lower) / 2)


def _from_edge_list(labels, i, j, w):
    """The graph of edges (i, j, w) that are listed once, or all both ways; an edge that is listed again adds its weight."""
    labels = list(label_list(labels))
    K = len(labels)
    try:
        i, j = (np.asarray(ends) for ends in (i, j))
        whole = not i.size or i.dtype.kind in "iu" and j.dtype.kind in "iu"
        ends = np.concatenate([i, j])
        outside = ends.min(initial=0) < 0 or ends.max(initial=0) >= K
        if i.ndim != 1 or i.shape != j.shape or not whole or outside:
            raise ValueError
        i, j, w = i.astype(np.intp), j.astype(np.intp), np.broadcast_to(np.asarray(w, dtype=float), i.shape)
    except (TypeError, ValueError):
        raise GraphError(
            "the i, j, w of (labels, i, j, w) are arrays of one length: positions of the ends among the labels, from 0 to "
            f"{K - 1}, and weights."
        ) from None
    if (i < j).any() and (i > j).any() and np.isin(i * K + j, j * K + i)[i != j].any():
        return _from_matrix(labels, sparse.coo_array((w, (i, j)), shape=(K, K)))
    return PriorGraph.from_terms(labels, *_checked(labels, i, j, w)[:3])


def _as_csr(W):
    if not sparse.issparse(W):
        try:
            W = np.asarray(W)
        except ValueError:
            raise GraphError("the W of (labels, W) is no matrix: its rows have different lengths.") from None
        if W.dtype == object and all(isinstance(w, numbers.Real) for w in W.ravel()):
            W = W.astype(float)
    if W.ndim != 2 or W.dtype.kind not in "biuf":
        raise GraphError(f"the W of (labels, W) is no matrix of numbers: it is {W.shape} of dtype {W.dtype}.")
    W = sparse.csr_array(W.astype(float))  # a copy
    W.sum_duplicates()
    return W


def _above_diagonal(W):
    """Row K + column of a csr_array's entries above the diagonal, ascending, and their values without rounding below 0."""
    rows, columns = W.tocoo(copy=False).coords
    above = rows < columns
    edges = rows[above] * np.int64(len(W.indptr) - 1) + columns[above]
    return edges, np.maximum(W.data[above], 0.0)


def _checked(labels, i, j, weights):
    """Edges (i, j) that join two nodes, their weights with rounding below 0 clipped, and which these are.

    A warning names the loops that are dropped, and a GraphError an edge whose weight is negative or not finite.
    """
    joins = i != j
    loops = np.flatnonzero(~joins & (weights != 0))
    if loops.size:
        DataWarning.warn(
            f"the graph has {loops.size:,} self loops, such as one at {labels[i[loops[0]]]!r}; "
            "they pull on nothing and are dropped."
        )
    i, j, weights = i[joins], j[joins], weights[joins]
    largest = np.abs(weights[np.isfinite(weights)]).max(initial=0.0)
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < -NEGATIVE * largest))
    if bad.size:
        e = bad[0]
        kind = "negative" if np.isfinite(weights[e]) else "not finite"
        more = f" ({bad.size - 1:,} other weights are no better)" if bad.size > 1 else ""
        raise GraphError(
            f"edge ({labels[i[e]]!r}, {labels[j[e]]!r}) has the weight {weights[e]:g}, which is {kind}{more}. "
            "Weights pull strata together: give finite numbers of at least 0."
        )
    return i, j, np.maximum(weights, 0.0), joins
