"""All pairs of strata as edges."""

from functools import cached_property

import numpy as np
from scipy.spatial.distance import pdist

from strat.oracles.memory import check_memory
from strat.problem.edges.base import EdgeSet, dense

ARRAYS = 20  # edge arrays that a fit holds


class AllPairs(EdgeSet):
    """All pairs of K strata."""

    are_packed = True
    exact_solver = True  # whether `solver` solves
    width = 0.0  # of a sparse Cholesky factor, which none needs

    def __init__(self, K):
        self.K = int(K)
        self.count = self.K * (self.K - 1) // 2
        way = 'give candidate edges, such as edges="prior" or "knn"'
        check_memory(f"learning the weights of all {self.count:,} pairs", ARRAYS * 8.0 * self.count, way)
        self.mask = np.ones(self.packed.size)
        self.mask[self.packed.diagonal] = 0.0

    @property
    def ends(self):
        """Arrays (i, j) of the edges' ends, i < j, in the order of `vector`."""
        return np.triu_indices(self.K, 1)

    @cached_property
    def _places(self):
        """Positions of the edges in an edge array, in the order of `vector`."""
        i, j = self.ends
        return self.packed.positions(j, i)

    def vector(self, w):
        """One number per edge, shape (count,), in the order of `ends`."""
        return w[self._places]

    def assign(self, v, out):
        """Write the numbers v, shape (count,), to an edge array."""
        out[self._places] = v
        return out

    def to_matrix(self, w):
        """Symmetric (K, K) array of the weights w."""
        lower = np.tril(self.packed.square(w), -1)
        return np.ascontiguousarray(lower + lower.T)

    def from_matrix(self, W):
        """Edge array of a symmetric (K, K) array or sparse array."""
        w = self.packed.pack(dense(W, self.K))
        w[self.packed.diagonal] = 0.0
        return w

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        return self.packed.operator(w)(np.ones(self.K))

    def adjacency_operator(self, w):
        """Function theta -> A(w) theta, for many products with one w."""
        return self.packed.operator(w)

    def add_half_distances(self, theta, g, a=0.0):
        """In place: g_e += ||theta_i - theta_j||^2 / 2 + a_i + a_j, exact to rounding of the largest such term."""
        theta = theta - np.add.reduce(theta) / self.K
        self.packed.add_products(-1.0, theta, 1.0, g)
        # With b = ends / c, ends_i + ends_j = c/2 ((b_i + 1)(b_j + 1) - (b_i - 1)(b_j - 1)).
        ends = 0.5 * np.vecdot(theta, theta) + a
        c = np.abs(ends).max() or 1.0
        for sign in (1.0, -1.0):
            self.packed.add_products(sign * c / 2, (ends / c + sign)[:, None], 1.0, g)
        return g

    def add_ends(self, a, g):
        """In place: g_e += a_i + a_j."""
        g += self.packed.pack(np.add.outer(a, a))
        return g

    def entries(self, S):
        """Edge array of the entries S_ij of a packed matrix."""
        return S

    def distances(self, theta):
        """||theta_i - theta_j||^2 from explicit differences, shape (count,)."""
        return pdist(theta, "sqeuclidean")

    def precision(self, w, shift, degrees=None, out=None):
        """Packed matrix diag(degrees + shift) - A(w), shift a scalar or one number per stratum."""
        out = np.negative(w, out=out)
        out[self.packed.diagonal] = (self.degrees(w) if degrees is None else degrees) + shift
        return out

    @property
    def band(self):
        """Every stratum's place (K,) in a band order, and how far apart neighbours are: all are neighbours."""
        return np.arange(self.K), self.K - 1
