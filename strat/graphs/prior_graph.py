"""The prior graph: any graph a user gives, read into labels, edges and weights."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from scipy import sparse

from strat.errors import GraphError, OptionError
from strat.records.labels import all_plain, is_missing
from strat.records.strata import some_of


@dataclass(frozen=True)
class PriorGraph:
    """An undirected weighted graph W0 over the strata.

    An edge may be given several times (parallel edges, possibly of different factors): each time is a
    term, and the weight of an edge is the sum of its terms, each times the scale of its factor.

    Attributes
    ----------
    labels : list
        The K nodes in order.
    i, j : ndarray of int, shape (E,)
        The edges, i < j, sorted by i and then j; edges of weight 0 included.
    term_edge : ndarray of int, shape (T,)
        The edge of each term.
    term_weight : ndarray, shape (T,)
        The nonnegative weight of each term.
    term_factor : ndarray of int, shape (T,)
        The position in `factors` of each term's factor, -1 for none.
    factors : tuple of str
        The names of the factors, in the order in which they occur.
    name : str
        The name of the graph, empty for none.
    """

    labels: list
    i: np.ndarray
    j: np.ndarray
    term_edge: np.ndarray
    term_weight: np.ndarray
    term_factor: np.ndarray
    factors: tuple = ()
    name: str = ""

    @classmethod
    def from_terms(cls, labels, i, j, weight, factor=None, name=""):
        """Build the graph from edges in any order and orientation, without loops.

        Parameters
        ----------
        labels : list
            The nodes.
        i, j : array_like of int, shape (T,)
            The ends of each term.
        weight : array_like, shape (T,)
            The weights, already checked.
        factor : list of str or None, optional
            The factor of each term.
        name : str, optional
            The name of the graph.

        Returns
        -------
        PriorGraph
            The graph.
        """
        low, high, term_edge = unique_edges(i, j, len(labels))
        names = {} if factor is None else {f: None for f in factor if f is not None}
        names = {f: k for k, f in enumerate(names)}
        codes = (
            np.full(len(term_edge), -1)
            if factor is None
            else np.array([names.get(f, -1) for f in factor], dtype=int)
        )
        return cls(labels, low, high, term_edge, np.asarray(weight, dtype=float), codes, tuple(names), name)

    @classmethod
    def without_edges(cls, labels):
        """Return the graph W0 = 0 on the given nodes."""
        none = np.empty(0, dtype=np.intp)
        return cls.from_terms(list(labels), none, none, np.empty(0))

    @property
    def K(self):
        """The number of nodes."""
        return len(self.labels)

    @cached_property
    def position(self):
        """The position of each label among the nodes."""
        return {label: k for k, label in enumerate(self.labels)}

    @property
    def w0(self):
        """The weights, shape (E,), with every scale 1."""
        return self.weights()

    def weights(self, scale=1.0):
        """Return the scaled weights of the edges.

        Parameters
        ----------
        scale : float or dict
            One multiplier, or one by the name of a factor; factors left out and edges without one keep 1.

        Returns
        -------
        ndarray, shape (E,)
            The weights.
        """
        weight = self.term_weight * self._multipliers(scale)[self.term_factor]
        return np.bincount(self.term_edge, weights=weight, minlength=len(self.i))

    def weights_on(self, i, j, scale=1.0):
        """Return the scaled weights on other edges (i < j), shape (len(i),), 0 where the graph has none."""
        at, found = self._places(i, j)
        weights = np.zeros(len(at))
        weights[found] = self.weights(scale)[at[found]]
        return weights

    def factor_on(self, i, j):
        """Return the factor's position in `factors` on other edges (i < j), -1 for none, and which have several.

        A term of weight 0 without a factor, such as a candidate's, does not count.
        """
        least, most = (np.full(len(self.i) + 1, fill) for fill in (len(self.factors), -1))
        counts = (self.term_factor >= 0) | (self.term_weight > 0)
        np.minimum.at(least, self.term_edge[counts], self.term_factor[counts])
        np.maximum.at(most, self.term_edge[counts], self.term_factor[counts])
        several = least[:-1] < most[:-1]
        at, found = self._places(i, j)
        return np.where(found, most[at], -1), np.append(several, False)[at] & found

    def matrix(self, scale=1.0):
        """Return W0 as a symmetric ``scipy.sparse.csr_array``, shape (K, K)."""
        w = self.weights(scale)
        rows, columns = np.concatenate([self.i, self.j]), np.concatenate([self.j, self.i])
        return sparse.csr_array((np.concatenate([w, w]), (rows, columns)), shape=(self.K, self.K))

    def to_networkx(self, scale=1.0):
        """Return a ``networkx.Graph`` with weights, and factors where an edge has exactly one."""
        graph = nx.Graph(name=self.name) if self.name else nx.Graph()
        graph.add_nodes_from(self.labels)
        factors = [set() for _ in self.i]
        for edge, code in zip(self.term_edge.tolist(), self.term_factor.tolist(), strict=True):
            factors[edge].add(code)
        ends = zip(self.i.tolist(), self.j.tolist(), self.weights(scale).tolist(), factors, strict=True)
        for i, j, weight, codes in ends:
            graph.add_edge(self.labels[i], self.labels[j], weight=weight)
            if len(codes) == 1 and -1 not in codes:
                graph.edges[self.labels[i], self.labels[j]]["factor"] = self.factors[codes.pop()]
        return graph

    def components(self):
        """Return the number of connected components (by positive weights) and each node's, shape (K,)."""
        return sparse.csgraph.connected_components(self._positive(), directed=False)

    def _places(self, i, j):
        """Positions of other edges (i < j) among the graph's, and which are."""
        keys, wanted = self.i * self.K + self.j, np.asarray(i) * self.K + np.asarray(j)
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return at, keys[at] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)

    def _positive(self):
        matrix = self.matrix()
        matrix.eliminate_zeros()
        return matrix

    def _multipliers(self, scale):
        """One multiplier a factor, and 1 (or the common one) at the end, where code -1 points."""
        if not isinstance(scale, dict):
            return np.full(len(self.factors) + 1, _multiplier("scale", scale))
        unknown = [name for name in scale if name not in self.factors]
        if unknown:
            known = f"has the factors {some_of(self.factors)}" if self.factors else "has no factors"
            raise OptionError(
                f"scale: {unknown[0]!r} is not a factor of the graph, which {known}. "
                "Factors are the edge attribute 'factor'; strat.graphs sets it from name=."
            )
        named = [_multiplier(f"scale[{name!r}]", scale.get(name, 1.0)) for name in self.factors]
        return np.array([*named, 1.0])


def unique_edges(i, j, K):
    """Return distinct edges (i < j, sorted) and the position among them of each edge given."""
    low, high = np.minimum(i, j).astype(np.intp), np.maximum(i, j).astype(np.intp)
    keys = low * K + high
    if (keys[1:] > keys[:-1]).all():
        return low, high, np.arange(len(keys))
    keys, position = np.unique(keys, return_inverse=True)
    return keys // K, keys % K, position


def check_labels(labels):
    """Raise a GraphError unless labels are present, hashable and distinct."""
    if not labels:
        raise GraphError("the graph has no nodes. Give it one node a stratum.")
    if all_plain(labels) and len(set(labels)) == len(labels):
        return
    seen = set()
    for label in labels:
        if not isinstance(label, Hashable):
            raise GraphError(f"the label {label!r} is not hashable. Use text, numbers or tuples.")
        if is_missing(label):
            raise GraphError(f"the label {label!r} of a node is no label: it stands for a missing value.")
        if label in seen:
            raise GraphError(
                f"the label {label!r} occurs more than once. Each node of a graph has its own label."
            )
        seen.add(label)


def _multiplier(what, value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if isinstance(value, str) or not 0 <= number < np.inf:
        raise OptionError(f"{what} is {value!r}, but a scale is a finite number of at least 0.")
    return number
