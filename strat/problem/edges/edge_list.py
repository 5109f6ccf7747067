"""A sparse set of candidate edges."""

import copy
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from strat.errors import GraphError
from strat.oracles.sparse_cholesky import SparseCholesky
from strat.problem.edges.base import EdgeSet, dense

WIDTH = 500  # mean entries in a column of a sparse factor up to which systems are solved by it
FULL = 0.25  # a graph with this share of all pairs is as good as dense
SMALL = 200  # strata for which dense matrices are always as fast
CHUNK = 32768  # edges of which differences are taken at a time
DENSE = 1e-11  # seconds that a dense factorisation takes, over K^3


class EdgeList(EdgeSet):
    """A sparse set of candidate edges with the ends i and j; every pair once, i != j."""

    couple = None  # weights of the numbers of theta in the distances; see `coupled`

    def __init__(self, K, i, j):
        self.K = int(K)
        i, j = np.asarray(i, dtype=np.intp).ravel(), np.asarray(j, dtype=np.intp).ravel()
        low, high = (i, j) if (i < j).all() else (np.minimum(i, j), np.maximum(i, j))
        if i.size and (low.min() < 0 or high.max() >= self.K or (low == high).any()):
            raise GraphError(f"candidate edges must join two different strata among the graph's {self.K}.")
        key = low * self.K + high
        if not (key[1:] > key[:-1]).all():
            key.sort()
            if (key[1:] == key[:-1]).any():
                raise GraphError("a candidate edge is listed twice; list every pair of strata once.")
            low, high = np.divmod(key, self.K)
        self.i, self.j = low, high
        self.count = self.i.size
        self.mask = np.broadcast_to(1.0, self.count)

    @cached_property
    def _pattern(self):
        """The adjacency matrix, with the values w[edge_of_entry], and edge_of_entry."""
        short = np.int32 if 2 * self.count < 2**31 else np.intp
        row, column = (np.concatenate(ends, dtype=short) for ends in (self.ends, self.ends[::-1]))
        order = np.lexsort((column, row))
        starts = np.searchsorted(row[order], np.arange(self.K + 1)).astype(short)
        pattern = sp.csr_array((np.ones(len(row), np.int8), column[order], starts), (self.K, self.K))
        return pattern, (order % max(self.count, 1)).astype(short)

    @property
    def ends(self):
        """Arrays (i, j) of the edges' ends, i < j."""
        return self.i, self.j

    def vector(self, w):
        """One number per edge, shape (count,), in the order of `ends`."""
        return w

    def assign(self, v, out):
        """Write the numbers v, shape (count,), to an edge array."""
        out[...] = v
        return out

    def to_matrix(self, w):
        """Symmetric (K, K) array of the weights w."""
        return self._adjacency(w).toarray()

    def to_sparse(self, w):
        """Symmetric csr_array of the weights w."""
        W = self._adjacency(w).copy()
        W.eliminate_zeros()
        return W

    def from_matrix(self, W):
        """Edge array of a symmetric (K, K) array or sparse array; pairs that are not candidate edges are left out."""
        W = sp.csr_array(W) if sp.issparse(W) else dense(W, self.K)
        return np.asarray(W[self.i, self.j], dtype=float).ravel() if self.count else self.zeros()

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        return np.bincount(self.i, w, self.K) + np.bincount(self.j, w, self.K)

    def adjacency_operator(self, w):
        """Function theta -> A(w) theta, for many products with one w."""
        if self.count == self.K * (self.K - 1) // 2 > 0 and np.ptp(w) == 0:  # all pairs have one weight
            return partial(_sum_of_others, w[0])
        return self._adjacency(w).__matmul__

    def add_half_distances(self, theta, g, a=0.0):
        """In place: g_e += ||theta_i - theta_j||^2 / 2 + a_i + a_j."""
        g += self.distances(theta) / 2
        return self.add_ends(np.broadcast_to(a, self.K), g)

    def add_ends(self, a, g):
        """In place: g_e += a_i + a_j."""
        g += a[self.i]
        g += a[self.j]
        return g

    @cached_property
    def incidence(self):
        """csr_array (K, count): 1 where an edge starts, -1 where it ends."""
        edges, ones = np.arange(self.count), np.ones(self.count)
        ends = np.concatenate([self.i, self.j]), np.concatenate([edges, edges])
        return sp.csr_array((np.concatenate([ones, -ones]), ends), shape=(self.K, self.count))

    @cached_property
    def _places(self):
        """Positions of the edges in a packed matrix."""
        return self.packed.positions(self.j, self.i)

    def entries(self, S):
        """Edge array of the entries S_ij of a packed matrix."""
        return S[self._places]

    def coupled(self, couple):
        """The same edges, whose distances weigh the numbers of theta by `couple`, shape (count, n)."""
        edges = copy.copy(self)
        edges.couple = couple
        return edges

    def distances(self, theta):
        """||theta_i - theta_j||^2, weighted by `couple` where edges have it, from explicit differences, shape (count,)."""
        out = np.empty(self.count)
        for start in range(0, self.count, CHUNK):
            chunk = slice(start, start + CHUNK)
            difference = theta[self.i[chunk]] - theta[self.j[chunk]]
            weighted = difference if self.couple is None else self.couple[chunk] * difference
            np.einsum("en,en->e", weighted, difference, out=out[chunk])
        return out

    @property
    def exact_solver(self):
        """Whether `solver` solves, or only divides by the diagonal."""
        return self.width <= WIDTH

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by a sparse factor or, if that fills, the diagonal."""
        diagonal = (self.degrees(w) if degrees is None else degrees) + shift
        if not self.exact_solver:
            return lambda b: b / diagonal[:, None]
        matrix = sp.csc_array(sp.diags_array(diagonal, format="csr") - self._adjacency(w))
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve

    @cached_property
    def analysis(self):
        """The analysis for sparse Cholesky factors; None where the graph is as good as dense."""
        full = self.count > FULL * self.K * (self.K - 1) / 2
        return None if full and self.K > 1 else SparseCholesky(self.K, self.i, self.j)

    @cached_property
    def sparse(self):
        """Whether sparse Cholesky factors take less time than dense ones."""
        if self.K <= SMALL or self.analysis is None:
            return False
        return self.analysis.seconds < DENSE * float(self.K) ** 3

    @cached_property
    def width(self):
        """Mean entries in a column of a Cholesky factor in a fill-reducing order."""
        return self.K / 2 if self.analysis is None else float(self.analysis.count.mean())

    @cached_property
    def _place(self):
        """Every stratum's place in a band order (reverse Cuthill-McKee)."""
        place = np.empty(self.K, dtype=np.intp)
        place[reverse_cuthill_mckee(sp.csr_matrix(self._pattern[0]), symmetric_mode=True)] = np.arange(self.K)
        return place

    @cached_property
    def band(self):
        """Every stratum's place (K,) in an order that keeps neighbours near, and how far apart they are at most."""
        return self._place, int(np.abs(self._place[self.i] - self._place[self.j]).max(initial=0))

    def precision(self, w, shift, degrees=None, out=None):
        """Packed matrix G(w) + diag(shift), shift a scalar or one number per stratum."""
        out = np.empty(self.packed.size) if out is None else out
        out.fill(0.0)
        out[self._places] = -w
        out[self.packed.diagonal] = (self.degrees(w) if degrees is None else degrees) + shift
        return out

    def _adjacency(self, w):
        pattern, edge_of_entry = self._pattern
        matrix = copy.copy(pattern)  # a new csr_array would cost as much as a small product
        matrix.data = w[edge_of_entry]
        return matrix


def _sum_of_others(weight, theta):
    """The weight times the sum over the other strata, for each."""
    return weight * (theta.sum(axis=0) - theta)
