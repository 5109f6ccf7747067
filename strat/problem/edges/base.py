"""What both edge sets share."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import ddot

from strat.errors import GraphError
from strat.problem.edges.inverse import PackedInverse, SparseInverse
from strat.problem.edges.packed import Packed

DENSE = 2000
CHUNK = 32768  # numbers: a few arrays of this length fit a core's own cache


class EdgeSet:
    """Base class of the edge sets: K strata and `count` edges between them."""

    are_packed = False  # whether an edge array is a packed matrix
    sparse = False  # whether `precision` has a sparse factor

    @cached_property
    def chunks(self):
        """Slices that cover a flat edge array."""
        size = self.mask.size
        return [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]

    def norm(self, a):
        """Euclidean norm over the edges of an edge array that is zero off the edges."""
        return np.sqrt(self.dot(a, a))

    def dot(self, a, b):
        """Sum over the edges of a * b; one of the two must be zero off the edges."""
        return ddot(a, b) if a.size else 0.0

    def from_vector(self, v):
        """Edge array of the numbers v, shape (count,)."""
        return self.assign(v, self.zeros())

    def energy(self, w, degrees, coupling):
        """1/2 sum_e w_e ||theta_i - theta_j||^2 from the `coupling` of theta."""
        of_strata, of_edges = coupling
        return float(degrees @ of_strata) + self.dot(w, of_edges)

    def laplacian_operator(self, w, degrees):
        """Function theta -> G(w) theta, for many products with one w."""
        times = self.adjacency_operator(w)
        return lambda theta: degrees[:, None] * theta - times(theta)

    def matrix(self, w):
        """Symmetric weights as users see them: an array up to DENSE strata, and where all pairs are edges."""
        return self.to_matrix(w) if self.are_packed or self.K <= DENSE else self.to_sparse(w)

    def dense_laplacian(self, w):
        """G(w) as a (K, K) array."""
        return np.diag(self.degrees(w)) - self.to_matrix(w)

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by one dense Cholesky factorisation.

        Without `degrees` they are those of w, and the matrix is G(w) + diag(shift).
        """
        matrix = self.precision(w, shift, degrees)
        if not self.packed.factor(matrix):
            raise np.linalg.LinAlgError("G(w) + diag(shift) is not positive definite")
        return self.packed.solver(matrix)

    def log_det(self, w, shift, degrees, out):
        """log det of `precision`, whose Cholesky factor is written to out; None where it is not positive definite."""
        if not self.packed.factor(self.precision(w, shift, degrees, out)):
            return None
        return 2 * float(np.log(out[self.packed.diagonal]).sum())

    def inverse(self):
        """Memory for log det and inverse of `precision` at one point."""
        return SparseInverse(self.analysis) if self.sparse else PackedInverse(self)

    @cached_property
    def packed(self):
        """The format of dense matrices over the strata."""
        return Packed(self.K)


def dense(W, K):
    """Return W as a (K, K) array, or raise a GraphError."""
    W = W.toarray() if sp.issparse(W) else np.asarray(W, dtype=float)
    if W.shape != (K, K):
        raise GraphError(
            f"the weights have shape {W.shape}, but the graph has {K} strata: give a {K} x {K} matrix."
        )
    return W
