"""The prior graph: labels, edges and weights of any graph that a user gives."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from scipy import sparse

from strat.errors import GraphError, OptionError
from strat.records.labels import all_plain, is_missing, plain
from strat.records.strata import some_of


@dataclass(frozen=True)
class PriorGraph:
    """An undirected weighted graph W0 over the strata.

    Parallel edges, possibly of different factors, are kept apart as T terms: the weight of an edge is the sum of its
    terms, each multiplied by the scale of its factor.
    """

    labels: list  # the K nodes in order
    i: np.ndarray  # (E,), the edges, i < j, sorted by i and then j; those of weight 0 included
    j: np.ndarray
    term_edge: np.ndarray  # (T,), the edge of each term
    term_weight: np.ndarray  # (T,), nonnegative
    term_factor: np.ndarray  # (T,), the position of each term's factor in `factors`, -1 for none
    factors: tuple = ()  # their names, in the order in which they occur
    name: str = ""

    @classmethod
    def from_terms(cls, labels, i, j, weight, factor=None, name=""):
        """Build the graph from checked terms in any order and orientation, without self loops.

        The ends `i` and `j` and the weights have shape (T,); `factor` lists the name or None of each term.
        """
        low, high, edge = unique_edges(i, j, len(labels))
        factors = dict.fromkeys(name for name in factor or () if name is not None)
        code = {None: -1} | {name: k for k, name in enumerate(factors)}
        codes = np.array([code[name] for name in factor]) if factors else np.full(len(edge), -1)
        return cls(labels, low, high, edge, np.asarray(weight, dtype=float), codes, tuple(factors), name)

    @classmethod
    def without_edges(cls, labels):
        """Return the graph W0 = 0 on the given nodes."""
        none = np.empty(0, dtype=np.intp)
        return cls.from_terms(list(labels), none, none, none)

    @property
    def K(self):
        """The number of nodes."""
        return len(self.labels)

    @cached_property
    def position(self):
        """The position of each label among the nodes."""
        return {label: k for k, label in enumerate(self.labels)}

    def check_factors(self, what, names):
        """Raise an OptionError where a name is no factor of the graph; `what` names the option."""
        for name in names:
            if name not in self.factors:
                known = f"has the factors {some_of(self.factors)}" if self.factors else "has no factors"
                raise OptionError(
                    f"{what}: {name!r} is not a factor of the graph, which {known}. "
                    "Factors are the edge attribute 'factor'; strat.graphs sets it from name=."
                )

    def scaled_terms(self, scale=1.0):
        """Return the weights of the terms, shape (T,), multiplied by the scale of their factor.

        The scale is one multiplier, or a dict of multipliers by factor; factors left out and terms without one keep 1.
        """
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
        """Return the factor's position in `factors` on other edges (i < j), -1 for none, and which have several.

        A term of weight 0 without a factor, such as that of a candidate edge, does not count.
        """
        least, most = (np.full(len(self.i) + 1, fill) for fill in (len(self.factors), -1))
        counts = (self.term_factor >= 0) | (self.term_weight > 0)
        np.minimum.at(least, self.term_edge[counts], self.term_factor[counts])
        np.maximum.at(most, self.term_edge[counts], self.term_factor[counts])
        edge = self._edge_of(i, j)
        return most[edge], (least < most)[edge]

    def matrix(self, scale=1.0):
        """Return W0 as a symmetric ``scipy.sparse.csr_array``, shape (K, K)."""
        upper = sparse.coo_array((self.weights(scale), (self.i, self.j)), shape=(self.K, self.K))
        return sparse.csr_array(upper + upper.T)

    def to_networkx(self, scale=1.0):
        """Return a ``networkx.Graph`` with weights, and factors where an edge has exactly one."""
        graph = nx.Graph(name=self.name) if self.name else nx.Graph()
        graph.add_nodes_from(self.labels)
        codes, several = self.factor_on(self.i, self.j)
        codes = np.where(several, -1, codes)
        for i, j, weight, code in zip(self.i, self.j, self.weights(scale).tolist(), codes, strict=True):
            named = {"factor": self.factors[code]} if code >= 0 else {}
            graph.add_edge(self.labels[i], self.labels[j], weight=weight, **named)
        return graph

    def _edge_of(self, i, j):
        """The positions of other edges (i < j) among the graph's, E where it has none."""
        keys, wanted = self.i * self.K + self.j, np.asarray(i) * self.K + np.asarray(j)
        if np.array_equal(keys, wanted):
            return np.arange(len(keys))
        edge = np.searchsorted(keys, wanted)
        return np.where(np.append(keys, -1)[edge] == wanted, edge, len(keys))


def unique_edges(i, j, K):
    """Return distinct edges (i < j, sorted) and the position among them of each edge given."""
    low, high = np.minimum(i, j).astype(np.intp), np.maximum(i, j).astype(np.intp)
    keys = low * K + high
    if (keys[1:] > keys[:-1]).all():  # as those of a checked graph are
        return low, high, np.arange(len(keys))
    keys, position = np.unique(keys, return_inverse=True)
    return keys // K, keys % K, position


def node_labels(labels):
    """Return labels as plain Python objects, or raise a GraphError unless they are present, hashable and distinct."""
    labels = list(labels)
    if not labels:
        raise GraphError("the graph has no nodes. Give it one node a stratum.")
    if all_plain(labels) and len(set(labels)) == len(labels):
        return labels
    labels, seen = [plain(label) for label in labels], set()
    for label in labels:
        if not isinstance(label, Hashable):
            raise GraphError(f"the label {label!r} is not hashable. Use text, numbers or tuples.")
        if is_missing(label):
            raise GraphError(f"the label {label!r} of a node is no label: it stands for a missing value.")
        if label in seen:
            raise GraphError(f"the label {label!r} occurs more than once. Each node has its own label.")
        seen.add(label)
    return labels


def _multiplier(what, value):
    try:
        number = np.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 <= number < np.inf:
        raise OptionError(f"{what} is {value!r}, but a scale is a finite number of at least 0.")
    return number
