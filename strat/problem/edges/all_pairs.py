"""All pairs of strata as edges."""

from functools import cached_property

import numpy as np
from scipy.linalg.blas import dtpmv
from scipy.spatial.distance import cdist, pdist, squareform

from strat.oracles.memory import check_memory
from strat.problem.edges.dense_factor import DenseFactor
from strat.problem.edges.edge_list import EdgeList

ARRAYS = 20  # edge arrays that a fit holds
FEW = 150  # strata up to which the distances of all ordered pairs are there sooner, as pdist takes a while to begin


class AllPairs(EdgeList):
    """All pairs of K strata: an `EdgeList` by dense matrices, with edges in the order of ``scipy.spatial.distance``."""

    all_pairs = True
    exact_solver, width = True, 0.0  # as no system has a sparse factor

    def __init__(self, K):
        self.K, self.count = int(K), int(K) * (int(K) - 1) // 2
        way = 'give candidate edges, such as edges="prior" or "knn"'
        check_memory(f"learning the weights of all {self.count:,} pairs", ARRAYS * 8.0 * self.count, way)

    @cached_property
    def ends(self):
        """Arrays (i, j) of the edges' ends, i < j."""
        return np.triu_indices(self.K, 1)

    def adjacency(self, w):
        """The symmetric matrix A(w), a (K, K) array."""
        return squareform(w, checks=False)

    matrix = adjacency

    def adjacency_operator(self, w):
        """Function theta -> A(w) theta, for many products with one w."""
        return self.adjacency(w).__matmul__

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        out, ones = np.zeros(self.K), np.ones(self.K - 1)
        if ones.size:
            # w is a packed triangle of the order K - 1: the products with it and with its transpose.
            out[:-1] = dtpmv(ones.size, w, ones, lower=1, trans=1)
            out[1:] += dtpmv(ones.size, w, ones, lower=1)
        return out

    def add_ends(self, a, g):
        """In place: g_e += a_i + a_j."""
        g += squareform(np.add.outer(a, a), checks=False)
        return g

    def distances(self, theta):
        """||theta_i - theta_j||^2 from explicit differences, shape (count,)."""
        if self.K <= FEW:
            return squareform(cdist(theta, theta, "sqeuclidean"), checks=False)
        return pdist(theta, "sqeuclidean")

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by a dense Cholesky factor."""
        return DenseFactor(self, (self.degrees(w) if degrees is None else degrees) + shift, w).solve
