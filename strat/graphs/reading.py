"""Graph input: networkx graphs and (labels, W), checked and read."""

import numbers
import warnings
from itertools import chain, compress

import networkx as nx
import numpy as np
from scipy import sparse

from strat.errors import DataError, DataWarning, GraphError, type_name
from strat.graphs.prior_graph import PriorGraph, check_labels, unique_edges
from strat.records.labels import all_plain, label_list, plain

#: A weight this much below 0, relative to the largest, is rounding and is clipped.
NEGATIVE = 1e-12
#: An asymmetry up to this much of the largest weight is rounding and is averaged away.
ASYMMETRY = 1e-9


def read_graph(graph):
    """Read a graph, which is left as it is.

    Parameters
    ----------
    graph : networkx.Graph, networkx.MultiGraph, tuple (labels, W) or PriorGraph
        Nodes are strata. A missing ``weight`` is 1; W is a symmetric array or SciPy sparse matrix.

    Returns
    -------
    PriorGraph
        Its labels, edges, weights and factors.
    """
    if isinstance(graph, PriorGraph):
        return graph
    if isinstance(graph, nx.Graph):
        return _from_networkx(graph)
    if isinstance(graph, tuple | list) and len(graph) == 2 and not isinstance(graph[1], nx.Graph):
        return _from_matrix(*graph)
    raise GraphError(
        f"{type_name(graph)} is no graph. Pass a networkx.Graph whose nodes are the strata, or (labels, W)."
    )


def read_weights(source):
    """Read the graph of whatever has one, for those who look at it.

    Parameters
    ----------
    source : fitted model, LearnedGraph, networkx.Graph, tuple (labels, W), ndarray or sparse array
        A matrix alone has the strata 0, …, K - 1.

    Returns
    -------
    PriorGraph
        Its labels, edges and weights.
    """
    if hasattr(source, "theta_"):
        return read_graph((source.strata_, source.W_))
    if hasattr(source, "fit"):
        raise DataError("the model is not fitted. Call fit first.")
    if hasattr(source, "W") and hasattr(source, "labels"):
        return read_graph((source.labels, source.W))
    if sparse.issparse(source) or isinstance(source, np.ndarray):
        return read_graph((list(range(source.shape[0])), source))
    return read_graph(source)


def _from_networkx(graph):
    if graph.is_directed():
        raise GraphError(
            "the graph is directed, but an edge of a stratified model has no direction. Pass "
            "graph.to_undirected()."
        )
    labels = list(graph)
    labels = labels if all_plain(labels) else [plain(node) for node in labels]
    check_labels(labels)
    i, j, attributes = _edges(graph)
    weights = [a.get("weight", 1.0) for a in attributes]
    if not set(map(type, weights)) <= {float, int}:
        for a, b, weight in zip(i.tolist(), j.tolist(), weights, strict=True):
            if not isinstance(weight, numbers.Real | np.bool_):
                raise GraphError(
                    f"edge ({labels[a]!r}, {labels[b]!r}) has the weight {weight!r}, which is no number. "
                    f"Give it a finite weight."
                )
    weights, factors = np.array(weights, dtype=float), [a.get("factor") for a in attributes]
    loops = i == j
    if loops.any():
        _warn_of_loops([labels[k] for k in i[loops].tolist()])
        i, j, weights, factors = i[~loops], j[~loops], weights[~loops], list(compress(factors, ~loops))
    weights = _checked(weights, labels, i, j)
    known = any(factor is not None for factor in factors)
    factors = [None if factor is None else str(factor) for factor in factors] if known else None
    return PriorGraph.from_terms(labels, i, j, weights, factors, str(graph.name or ""))


def _edges(graph):
    """Positions of the ends of a graph's edges among its nodes, and the edges' attributes."""
    position = {node: k for k, node in enumerate(graph)}
    if graph.is_multigraph():
        edges = list(graph.edges(data=True))
        ends = np.array([(position[u], position[v]) for u, v, _ in edges], dtype=np.intp).reshape(-1, 2)
        return *ends.T, [attributes for _, _, attributes in edges]
    neighbours = [found for _, found in graph.adjacency()]  # every edge twice, but for loops
    j = np.array(list(map(position.__getitem__, chain.from_iterable(neighbours))), dtype=np.intp)
    i = np.repeat(np.arange(len(neighbours)), list(map(len, neighbours)))
    once = i <= j
    attributes = chain.from_iterable(found.values() for found in neighbours)
    return i[once], j[once], list(compress(attributes, once.tolist()))


def _from_matrix(labels, W):
    W = _as_coo(W)
    try:
        labels = [plain(label) for label in label_list(labels)]
    except DataError as error:
        raise GraphError(f"the labels of (labels, W) cannot be read. {error}") from None
    check_labels(labels)
    if W.shape != (len(labels), len(labels)):
        raise GraphError(
            f"W has shape {W.shape}, but there are {len(labels):,} labels. W is square, one row a label."
        )
    rows, columns = W.coords
    if not np.isfinite(W.data).all():
        bad = int(np.flatnonzero(~np.isfinite(W.data))[0])
        pair = f"({labels[rows[bad]]!r}, {labels[columns[bad]]!r})"
        raise GraphError(f"W holds {W.data[bad]} at edge {pair}. Weights are finite numbers.")
    _check_symmetry(W, labels)
    diagonal = (rows == columns) & (W.data != 0)
    _warn_of_loops([labels[k] for k in rows[diagonal].tolist()])
    off = rows != columns
    weights = _checked(W.data[off], labels, rows[off], columns[off])
    # Each edge stands twice in W: the mean of both is its weight, rounding averaged away.
    i, j, edge = unique_edges(rows[off], columns[off], len(labels))
    return PriorGraph.from_terms(labels, i, j, np.bincount(edge, weights, len(i)) / 2)


def _as_coo(W):
    if sparse.issparse(W):
        W = sparse.coo_array(W, copy=True)
        W.sum_duplicates()
        if W.dtype.kind not in "biuf":
            raise GraphError(f"W holds {W.dtype} entries. Weights are finite real numbers.")
        return W.astype(float)
    try:
        W = np.asarray(W)
        if W.dtype == object:
            W = W.astype(float) if all(isinstance(w, numbers.Real) for w in W.ravel()) else W
    except ValueError:
        raise GraphError("the W of (labels, W) is no matrix: its rows have different lengths.") from None
    if W.ndim != 2 or W.dtype.kind not in "biuf":
        raise GraphError(
            f"the W of (labels, W) is no matrix of numbers: it has shape {W.shape} and dtype {W.dtype}."
        )
    return sparse.coo_array(W.astype(float))


def _check_symmetry(W, labels):
    gap = sparse.coo_array(abs(W - W.T))
    if gap.nnz == 0 or gap.data.max() <= ASYMMETRY * abs(W.data).max():
        return
    worst = int(gap.data.argmax())
    i, j = sorted(int(ends[worst]) for ends in gap.coords)
    W = W.tocsr()
    raise GraphError(
        f"W is not symmetric: the edge ({labels[i]!r}, {labels[j]!r}) has weight {W[i, j]:g} one way and "
        f"{W[j, i]:g} "
        "the other. Pass (W + W.T) / 2, or W + W.T where only one half is filled."
    )


def _checked(weights, labels, i, j):
    """Weights, finite and clipped at 0, or a GraphError that names the edge."""
    largest = np.abs(weights[np.isfinite(weights)]).max(initial=0.0)
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < -NEGATIVE * largest))
    if bad.size:
        e = bad[0]
        kind = "negative" if np.isfinite(weights[e]) else "not finite"
        more = f" ({bad.size - 1:,} other weights are no better)" if bad.size > 1 else ""
        raise GraphError(
            f"edge ({labels[i[e]]!r}, {labels[j[e]]!r}) has the weight {weights[e]:g}, which is "
            f"{kind}{more}. "
            "Weights pull strata together: give finite numbers of at least 0."
        )
    return np.maximum(weights, 0.0)


def _warn_of_loops(loops):
    if loops:
        warnings.warn(
            f"the graph has {len(loops):,} self loops, such as one at {loops[0]!r}; "
            "they pull on nothing and are dropped.",
            DataWarning,
            stacklevel=4,
        )
