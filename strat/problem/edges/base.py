"""What both edge sets share."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import ddot

from strat.errors import GraphError
from strat.oracles.memory import check_memory
from strat.oracles.sparse_cholesky import Factor
from strat.problem.edges.packed import Packed

DENSE = 2000  # strata up to which users see weights as an array
POINTS = 3  # of which a fit holds the inverses


class EdgeSet:
    """Base class of the edge sets: K strata and `count` edges between them."""

    are_packed = False  # whether an edge array is a packed matrix
    sparse = False  # whether `precision` has a sparse factor

    def zeros(self):
        """An edge array of zeros."""
        return np.zeros(len(self.mask))

    def norm(self, a):
        """Euclidean norm over the edges of an edge array that is zero off the edges."""
        return np.sqrt(self.dot(a, a))

    def dot(self, a, b):
        """Sum over the edges of a * b; one of the two must be zero off the edges."""
        return ddot(a, b) if a.size else 0.0

    def from_vector(self, v):
        """Edge array of the numbers v, shape (count,)."""
        return self.assign(v, self.zeros())

    def nearest(self, c):
        """Smallest c_e at every stratum, shape (K,); inf where it has no edge."""
        out = np.full(self.K, np.inf)
        for end in self.ends:
            np.minimum.at(out, end, self.vector(c))
        return out

    def laplacian(self, w, theta, degrees):
        """G(w) theta, shape (K, n)."""
        out = degrees[:, None] * theta
        out -= self.adjacency_operator(w)(theta)
        return out

    def matrix(self, w):
        """Symmetric weights as users see them: an array up to DENSE strata, and where all pairs are edges."""
        return self.to_matrix(w) if self.are_packed or self.K <= DENSE else self.to_sparse(w)

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by one dense Cholesky factorisation."""
        matrix = self.precision(w, shift, degrees)
        if not self.packed.factor(matrix):
            raise np.linalg.LinAlgError("G(w) + diag(shift) is not positive definite")
        return self.packed.solver(matrix)

    @cached_property
    def packed(self):
        """The format of dense matrices over the strata."""
        return Packed(self.K)


class Inverse:
    """The matrix diag(degrees + shift) - A(w) at one point: its log det, and its inverse's `diagonal` (K,) and edge array
    `entries`.

    The memory holds first the Cholesky factor, then the inverse, dense and packed, or a sparse factor where edges are
    `sparse`.
    """

    def __init__(self, edges):
        self.edges = edges
        if edges.sparse:
            check_memory("the sparse factors of this graph", POINTS * edges.analysis.bytes)
        else:
            size = POINTS * 8.0 * edges.packed.size
            check_memory("a dense inverse over the strata", size, "give fewer edges")
            self._matrix = np.zeros(edges.packed.size)

    def log_det(self, w, shift, degrees):
        """Factorise, and return the log det; minus infinity where the matrix is not positive definite."""
        edges, packed = self.edges, self.edges.packed
        if not edges.sparse:
            definite = packed.factor(edges.precision(w, shift, degrees, self._matrix))
            return 2 * float(np.log(self._matrix[packed.diagonal]).sum()) if definite else -np.inf
        try:
            self._factor = Factor(edges.analysis, degrees + shift, -w)
        except np.linalg.LinAlgError:
            return -np.inf
        return self._factor.log_det

    def invert(self):
        """Take the inverse of the matrix that was factorised."""
        if self.edges.sparse:
            self.diagonal, self.entries = self._factor.inverse()
            self._factor = None
        else:
            packed = self.edges.packed
            packed.invert(self._matrix)
            self.diagonal = self._matrix[packed.diagonal]
            self.entries = self.edges.entries(self._matrix)


def dense(W, K):
    """Return W as a (K, K) array, or raise a GraphError."""
    W = W.toarray() if sp.issparse(W) else np.asarray(W, dtype=float)
    if W.shape != (K, K):
        raise GraphError(f"W has shape {W.shape}, but the graph has {K} strata: give a {K} x {K} matrix.")
    return W
