"""The prior graph: labels, edges and weights of any graph that a user gives, read and checked."""

import numbers
import sys
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress

import networkx as nx
import numpy as np
from scipy import sparse

from strat.errors import DataError, DataWarning, GraphError, OptionError, is_nonnegative, type_name
from strat.records.labels import all_plain, is_missing, label_list, plain
from strat.records.strata import some_of

NEGATIVE = 1e-12  # a weight at most this share of the largest below 0 is rounding error and is clipped
ASYMMETRY = 1e-9  # an asymmetry up to this share of the largest weight is rounding error and is averaged away


@dataclass(frozen=True)
class PriorGraph:
    """An undirected weighted graph W0 over the strata.

    Parallel edges are kept apart as T terms: an edge's weight is the sum of its terms, each times the scale of its factor.
    """

    labels: list  # the K nodes in order
    i: np.ndarray  # (E,), the edges, i < j, sorted by i and then j; including those of weight 0
    j: np.ndarray
    term_edge: np.ndarray  # (T,), the edge of each term
    term_weight: np.ndarray  # (T,), nonnegative
    term_factor: np.ndarray  # (T,), the position of each term's factor in `factors`, -1 for none
    factors: tuple = ()  # their names, in the order in which they occur
    name: str = ""

    @classmethod
    def from_terms(cls, labels, i, j, weight, factor=None, name=""):
        """Build the graph from checked terms (T,) without self loops, in any order; `factor` lists names or None."""
        low, high, edge = unique_edges(i, j, len(labels))
        factors = dict.fromkeys(name for name in (() if factor is None else factor) if name is not None)
        code = {None: -1} | {name: k for k, name in enumerate(factors)}
        codes = np.array([code[name] for name in factor]) if factors else np.broadcast_to(-1, len(edge))
        return cls(labels, low, high, edge, np.asarray(weight, dtype=float), codes, tuple(factors), name)

    @classmethod
    def without_edges(cls, labels):
        """Return the graph W0 = 0 on the given nodes."""
        none = np.empty(0, dtype=np.intp)
        return cls.from_terms(list(labels), none, none, none)

    K = property(lambda self: len(self.labels))
    position = cached_property(lambda self: {label: k for k, label in enumerate(self.labels)})

    def check_factors(self, what, names):
        """Raise an OptionError where a name is not a factor of the graph; `what` names the option."""
        for name in names:
            if name not in self.factors:
                known = f"has the factors {some_of(self.factors)}" if self.factors else "has no factors"
                raise OptionError(
                    f"{what}: {name!r} is not a factor of the graph, which {known}. "
                    "Factors are the edge attribute 'factor'; strat.graphs sets it from name=."
                )

    def scaled_terms(self, scale=1.0):
        """Return the weights of the terms, shape (T,), times the scale, a number or a dict by factor, by default 1."""
        if not isinstance(scale, dict):
            return self.term_weight * _multiplier("scale", scale)
        self.check_factors("scale", scale)
        multipliers = [_multiplier(f"scale[{name!r}]", scale.get(name, 1.0)) for name in self.factors]
        return self.term_weight * np.array([*multipliers, 1.0])[self.term_factor]  # code -1 is the last

    def weights(self, scale=1.0):
        """Return the scaled weights of the edges, shape (E,)."""
        return np.bincount(self.term_edge, weights=self.scaled_terms(scale), minlength=len(self.i))

    def weights_on(self, i, j, scale=1.0):
        """Return the scaled weights on other edges (i < j), shape (len(i),), 0 where the graph has none."""
        return np.append(self.weights(scale), 0.0)[self._edge_of(i, j)]

    def factor_on(self, i, j):
        """Return the factor's position in `factors` on other edges (i < j), -1 for none, and which have several."""
        least, most = (np.full(len(self.i) + 1, fill) for fill in (len(self.factors), -1))
        counts = (self.term_factor >= 0) | (self.term_weight > 0)  # not candidates' terms of weight 0
        np.minimum.at(least, self.term_edge[counts], self.term_factor[counts])
        np.maximum.at(most, self.term_edge[counts], self.term_factor[counts])
        edge = self._edge_of(i, j)
        return most[edge], (least < most)[edge]

    def matrix(self, scale=1.0):
        """Return W0 as a symmetric ``scipy.sparse.csr_array``, shape (K, K)."""
        upper = sparse.coo_array((self.weights(scale), (self.i, self.j)), shape=(self.K, self.K))
        return sparse.csr_array(upper + upper.T)

    def to_networkx(self):
        """Return a `Graph` with weights, and factors where an edge has exactly one."""
        graph = Graph(name=self.name) if self.name else Graph()
        graph.add_nodes_from(self.labels)
        graph.prior = self
        return graph

    def edges(self):
        """Yield the edges as networkx takes them, in the order of their first terms."""
        order = np.argsort(np.unique(self.term_edge, return_index=True)[1])
        codes, several = self.factor_on(self.i, self.j)
        codes = np.where(several, -1, codes)
        columns = (each[order].tolist() for each in (self.i, self.j, self.weights(), codes))
        for i, j, weight, code in zip(*columns, strict=True):
            named = {"factor": self.factors[code]} if code >= 0 else {}
            yield self.labels[i], self.labels[j], {"weight": weight, **named}

    def _edge_of(self, i, j):
        """The positions of other edges (i < j) among the graph's edges, E where the graph has no such edge."""
        if np.array_equal(i, self.i) and np.array_equal(j, self.j):
            return np.arange(len(i))
        keys, wanted = self.i * self.K + self.j, np.asarray(i) * self.K + np.asarray(j)
        edge = np.searchsorted(keys, wanted)
        return np.where(np.append(keys, -1)[edge] == wanted, edge, len(keys))


class Graph(nx.Graph):
    """A networkx graph that lists the edges of `prior` only when something first asks for edges."""

    prior = None

    def __repr__(self):
        return f"<networkx.Graph with {len(self):,} nodes>"

    @property
    def _adj(self):
        """The adjacency that networkx keeps, filled on first use."""
        if self.prior is not None:
            edges, self.prior = self.prior.edges(), None
            self.add_edges_from(edges)
        return vars(self)["_adj"]

    @_adj.setter
    def _adj(self, adjacency):
        vars(self)["_adj"] = adjacency
        vars(self).pop("adj", None)  # a view that networkx caches


def unique_edges(i, j, K):
    """Return distinct edges (i < j, sorted) and the position among these of each given edge."""
    low, high = np.minimum(i, j).astype(np.intp), np.maximum(i, j).astype(np.intp)
    keys = low * K + high
    if (keys[1:] > keys[:-1]).all():
        return low, high, np.arange(len(keys))
    keys, position = np.unique(keys, return_inverse=True)
    return keys // K, keys % K, position


def node_labels(labels):
    """Return labels as plain Python objects, or raise a GraphError unless they are present, hashable and distinct."""
    labels = list(labels)
    if not labels:
        raise GraphError("the graph has no nodes. Give it one node per stratum.")
    if all_plain(labels) and len(set(labels)) == len(labels):
        return labels
    labels, seen = [plain(label) for label in labels], set()
    for label in labels:
        if not isinstance(label, Hashable):
            raise GraphError(f"the label {label!r} is not hashable. Use text, numbers or tuples.")
        if is_missing(label):
            raise GraphError(f"the node {label!r} stands for a missing value, which is not a label.")
        if label in seen:
            raise GraphError(f"the label {label!r} occurs more than once. Each node has its own label.")
        seen.add(label)
    return labels


def _multiplier(what, value):
    if not is_nonnegative(value):
        raise OptionError(f"{what} is {value!r}, but a scale is a finite number of at least 0.")
    return float(value)


def read_graph(graph):
    """Read a graph into a PriorGraph, without changing it.

    It may be a networkx graph whose nodes are the strata, where a missing ``weight`` is 1; (labels, W) with a symmetric array
    or SciPy sparse matrix; (labels, i, j, w) with the positions of the edges' ends among the labels, where each edge is listed
    once, or all are listed both ways; a LearnedGraph; a W or Graph of libpysal; or a PriorGraph.
    """
    if isinstance(graph, PriorGraph):
        return graph
    if isinstance(graph, Graph) and graph.prior is not None:
        return replace(graph.prior, name=str(graph.name or ""))
    if isinstance(graph, nx.Graph):
        return _from_networkx(graph)
    if isinstance(graph, tuple | list) and len(graph) == 2 and not isinstance(graph[1], nx.Graph):
        return _from_matrix(*graph)
    if isinstance(graph, tuple | list) and len(graph) == 4:
        return _from_edge_list(*graph)
    if hasattr(graph, "W") and hasattr(graph, "labels"):  # a LearnedGraph
        return _from_matrix(graph.labels, graph.W)
    for ids in ("unique_ids", "id_order"):  # libpysal's Graph, its older W
        if sparse.issparse(getattr(graph, "sparse", None)) and hasattr(graph, ids):
            return _from_matrix(getattr(graph, ids), graph.sparse)
    raise GraphError(
        f"{type_name(graph)} is not a graph. Pass a networkx.Graph whose nodes are the strata, (labels, W), "
        f"(labels, i, j, w), or a W or Graph of libpysal."
    )


def _from_networkx(graph):
    if graph.is_directed():
        raise GraphError(
            "the graph is directed, but an edge of a stratified model has no direction. With A = "
            "networkx.to_scipy_sparse_array(graph), pass (list(graph), (A + A.T) / 2), which takes the mean of both directions, "
            "or (list(graph), A + A.T) where each edge has one direction; graph.to_undirected() would keep one of two weights."
        )
    labels, position = node_labels(graph), {node: k for k, node in enumerate(graph)}
    neighbors = [near for _, near in graph.adjacency()]  # several times faster than `edges`
    j = np.array(list(map(position.__getitem__, chain.from_iterable(neighbors))), dtype=np.intp)
    i = np.repeat(np.arange(len(neighbors)), list(map(len, neighbors)))
    attributes = list(chain.from_iterable(near.values() for near in neighbors))
    if graph.is_multigraph():  # parallel edges have attributes by key
        i, j = (np.repeat(ends, list(map(len, attributes))) for ends in (i, j))
        attributes = list(chain.from_iterable(keys.values() for keys in attributes))
    once = i <= j  # every edge is listed from both ends, and a loop once
    i, j, attributes = i[once], j[once], list(compress(attributes, once.tolist()))
    weights = [edge.get("weight", 1.0) for edge in attributes]
    for a, b, weight in () if set(map(type, weights)) <= {float, int} else zip(i, j, weights, strict=True):
        if not isinstance(weight, numbers.Real | np.bool_):
            edge = f"edge ({labels[a]!r}, {labels[b]!r})"
            raise GraphError(f"{edge} has the weight {weight!r}, which is not a number. Give it a number.")
    try:
        weights = np.array(weights, dtype=float)
    except OverflowError:  # a whole number that is too large
        weights = np.array([float(w) if abs(w) <= sys.float_info.max else np.inf for w in weights])
    i, j, weights, joins = _checked(labels, i, j, weights)
    factors = (edge.get("factor") for edge in compress(attributes, joins))
    factors = [None if factor is None else str(factor) for factor in factors]
    return PriorGraph.from_terms(labels, i, j, weights, factors, str(graph.name or ""))


def _from_matrix(labels, W):
    try:
        labels = node_labels(label_list(labels))
    except DataError as error:
        raise GraphError(f"the labels of (labels, W) cannot be read. {error}") from None
    if hasattr(W, "iloc") and not type(W.index).__name__ == type(W.columns).__name__ == "RangeIndex":
        # A DataFrame whose rows and columns are named by the labels is put into the labels' order.
        places = [{plain(label): k for k, label in enumerate(axis)} for axis in (W.index, W.columns)]
        if len(W) == len(labels) and all(place.keys() == set(labels) for place in places):
            W = W.iloc[tuple([place[label] for label in labels] for place in places)]
    if not sparse.issparse(W):
        try:
            W = np.asarray(W)
        except ValueError:
            raise GraphError("W of (labels, W) is not a matrix: its rows have different lengths.") from None
        if W.dtype == object and all(isinstance(w, numbers.Real) for w in W.ravel()):
            W = W.astype(float)
    if W.ndim != 2 or W.dtype.kind not in "biuf":
        raise GraphError(f"W of (labels, W) is not a matrix of numbers: it is {W.shape} of dtype {W.dtype}.")
    W = sparse.csr_array(W.astype(float))  # a copy
    W.sum_duplicates()
    if W.shape != (len(labels), len(labels)):
        text = f"W has shape {W.shape}, but there are {len(labels):,} labels"
        raise GraphError(f"{text}. W must be square, with one row per label.")
    i, j, w, _ = _checked(labels, *W.tocoo(copy=False).coords, W.data)
    # Each edge is in W twice: its weight is the mean of both entries, which averages rounding error away.
    halves = np.where(i < j, w, 1j * w), (np.minimum(i, j), np.maximum(i, j))
    halves = sparse.coo_array(halves, shape=W.shape).tocsr().tocoo()
    (i, j), upper, lower = halves.coords, halves.data.real, halves.data.imag
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
    """The graph of edges (i, j, w) that are listed once, or all both ways; the weights of repeated edges are added."""
    K = len(labels := list(label_list(labels)))
    try:
        i, j = (np.asarray(ends) for ends in (i, j))
        whole = not i.size or i.dtype.kind in "iu" and j.dtype.kind in "iu"
        ends = np.stack([i, j])
        if i.ndim != 1 or not whole or not ((ends >= 0) & (ends < K)).all():
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


def _checked(labels, i, j, weights):
    """The edges (i, j) without self loops, their weights with rounding error below 0 clipped, and the mask of these edges."""
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
