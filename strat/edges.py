"""The explicit edge set: where the weights of the graph live, and what the solvers compute on them.

`AllPairs` stores the weights of all K(K-1)/2 pairs as the strictly lower triangle of a K x K Fortran array: LAPACK and
BLAS read just that half, and dot products over the array are sums over edges. `EdgeList` stores one number per
candidate edge. Both offer the same methods, so that solvers never ask which one they hold. Every array of one number
per edge ("edge array" below) has the shape of `zeros()`; gradients may hold arbitrary numbers off the edges, weights
and `mask` are zero there.
Chains of elementwise operations run over `chunks` of the `flat` arrays, to stay in cache.
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import ddot, dsymm, dsymv, dsyr2, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu
from scipy.spatial.distance import pdist

from strat.errors import GraphError

WIDTH = 1000  # mean envelope width up to which a sparse factor is used
CHUNK = 32768  # numbers: a few arrays of this length fit a core's own cache


class EdgeSet:
    """What both edge sets share: K strata, `count` edges with ends `i` < `j`."""

    @cached_property
    def chunks(self):
        """Slices that cover a flat edge array."""
        size = self.mask.size
        return [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]

    @staticmethod
    def flat(a):
        """The memory of an edge array as one vector."""
        return a.ravel("K")

    def norm(self, a):
        """Euclidean norm over the edges of an edge array that is zero off the edges."""
        return np.sqrt(self.dot(a, a))

    def dot(self, a, b):
        """Sum over the edges of a * b; one of the two must be zero off the edges."""
        return ddot(a.ravel("K"), b.ravel("K")) if a.size else 0.0

    def half_energy(self, w, theta):
        """1/2 sum_e w_e ||theta_i - theta_j||^2 from explicit differences, exact to rounding."""
        return 0.5 * float(self.vector(w) @ self.distances(theta))

    def precision(self, w, shift, degrees=None, out=None):
        """Lower triangle (Fortran order) of G(w) + diag(shift), shift a scalar or one number per stratum."""
        out = np.zeros((self.K, self.K), order="F") if out is None else out
        self._fill_negative(w, out)
        out.ravel("K")[:: self.K + 1] = (self.degrees(w) if degrees is None else degrees) + shift
        return out


class AllPairs(EdgeSet):
    """All pairs of K strata.

    Parameters
    ----------
    K : int
        Number of strata.
    """

    def __init__(self, K):
        self.K = int(K)
        self.count = self.K * (self.K - 1) // 2
        self.mask = np.asfortranarray(np.tri(self.K, k=-1))
        self.exact_solver = True
        self._ones = np.ones(self.K)

    def __repr__(self):
        return f"AllPairs({self.K})"

    @property
    def ends(self):
        """Arrays (i, j) of the edges' ends, i < j, in the order of `vector`."""
        return np.triu_indices(self.K, 1)

    def zeros(self):
        """An edge array of zeros."""
        return np.zeros((self.K, self.K), order="F")

    @cached_property
    def _places(self):
        """Positions of the edges in a flat edge array."""
        return np.flatnonzero(self.flat(self.mask))

    def vector(self, w):
        """One number per edge, shape (count,), in the order of `ends`."""
        return self.flat(w)[self._places]

    def from_vector(self, v):
        """Edge array of the numbers v, shape (count,)."""
        return self.assign(v, self.zeros())

    def assign(self, v, out):
        """Write the numbers v, shape (count,), to an edge array."""
        self.flat(out)[self._places] = v
        return out

    def nearest(self, c):
        """Smallest c_e at every stratum, shape (K,); inf where it has no edge."""
        c = np.where(self.mask, c, np.inf)
        return np.minimum(c.min(axis=0, initial=np.inf), c.min(axis=1, initial=np.inf))

    def to_matrix(self, w):
        """Symmetric (K, K) array of the weights w."""
        return np.ascontiguousarray(w + w.T)

    def to_sparse(self, w):
        """Symmetric csr_array of the weights w."""
        return sp.csr_array(self.to_matrix(w))

    def from_matrix(self, W):
        """Edge array of a symmetric (K, K) array or sparse array."""
        return np.asfortranarray(np.tril(_dense(W, self.K), -1))

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        return dsymv(1.0, w, self._ones, lower=1)

    def laplacian(self, w, theta, degrees):
        """G(w) theta, shape (K, n)."""
        if theta.shape[1] == 1:  # dsymm is slow on one column
            return (degrees * theta[:, 0] - dsymv(1.0, w, theta[:, 0], lower=1))[:, None]
        product = degrees[:, None] * theta
        product -= dsymm(1.0, w, theta.T, side=1, lower=1).T
        return product

    def add_half_distances(self, theta, g, a=0.0):
        """In place: g_e += ||theta_i - theta_j||^2 / 2 + a_i + a_j."""
        theta = theta - self._ones @ theta / self.K  # for less cancellation
        dsyrk(-1.0, theta.T, beta=1.0, c=g, trans=1, lower=1, overwrite_c=1)
        return self.add_ends(a + np.einsum("kn,kn->k", theta, theta) / 2, g)

    def add_ends(self, a, g):
        """In place: g_e += a_i + a_j."""
        return dsyr2(1.0, a, self._ones, lower=1, a=g, overwrite_a=1)

    def entries(self, S):
        """Edge array of the entries S_ij of a symmetric matrix given by its lower triangle."""
        return S

    def distances(self, theta):
        """||theta_i - theta_j||^2 from explicit differences, shape (count,)."""
        return pdist(theta, "sqeuclidean")

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by one dense Cholesky factorisation.

        Without `degrees` they are those of w, and the matrix is G(w) + diag(shift).
        """
        return _dense_solver(self.precision(w, shift, degrees))

    def dense_laplacian(self, w):
        """G(w) as a (K, K) array."""
        return np.diag(self.degrees(w)) - self.to_matrix(w)

    def _fill_negative(self, w, out):
        np.negative(w, out=out)


class EdgeList(EdgeSet):
    """A sparse set of candidate edges.

    Parameters
    ----------
    K : int
        Number of strata.
    i, j : array_like of int, shape (count,)
        Ends of the edges; every pair once, i != j.
    """

    def __init__(self, K, i, j):
        self.K = int(K)
        i, j = np.asarray(i, dtype=np.intp).ravel(), np.asarray(j, dtype=np.intp).ravel()
        low, high = np.minimum(i, j), np.maximum(i, j)
        if i.size and (low.min() < 0 or high.max() >= self.K or (low == high).any()):
            raise GraphError(
                f"candidate edges must join two different strata among the {self.K} of the graph."
            )
        order = np.lexsort((high, low))
        self.i, self.j = low[order], high[order]
        if ((np.diff(self.i) == 0) & (np.diff(self.j) == 0)).any():
            raise GraphError("a candidate edge is listed twice; list every pair of strata once.")
        self.count = self.i.size
        self.mask = np.ones(self.count)
        # The adjacency's pattern is fixed: its values are w[edge_of_entry], so that a product needs no new structure.
        rows, columns = np.r_[self.i, self.j], np.r_[self.j, self.i]
        pattern = sp.csr_array(
            (np.tile(np.arange(1, self.count + 1), 2), (rows, columns)), shape=(self.K, self.K)
        )
        self._pattern, self._edge_of_entry = pattern, pattern.data - 1

    def __repr__(self):
        return f"EdgeList({self.K}, {self.count} edges)"

    @property
    def ends(self):
        """Arrays (i, j) of the edges' ends, i < j."""
        return self.i, self.j

    def zeros(self):
        """An edge array of zeros."""
        return np.zeros(self.count)

    def vector(self, w):
        """One number per edge, shape (count,), in the order of `ends`."""
        return w

    def from_vector(self, v):
        """Edge array of the numbers v, shape (count,)."""
        return np.array(v, dtype=float)

    def assign(self, v, out):
        """Write the numbers v, shape (count,), to an edge array."""
        out[...] = v
        return out

    def nearest(self, c):
        """Smallest c_e at every stratum, shape (K,); inf where it has no edge."""
        out = np.full(self.K, np.inf)
        np.minimum.at(out, self.i, c)
        np.minimum.at(out, self.j, c)
        return out

    def to_matrix(self, w):
        """Symmetric (K, K) array of the weights w."""
        return self._adjacency(w).toarray()

    def to_sparse(self, w):
        """Symmetric csr_array of the weights w."""
        return self._adjacency(w).copy()

    def from_matrix(self, W):
        """Edge array of a symmetric (K, K) array or sparse array; pairs that are no candidate edges are left out."""
        W = sp.csr_array(W) if sp.issparse(W) else _dense(W, self.K)
        return np.asarray(W[self.i, self.j], dtype=float).ravel() if self.count else self.zeros()

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        return np.bincount(self.i, w, self.K) + np.bincount(self.j, w, self.K)

    def laplacian(self, w, theta, degrees):
        """G(w) theta, shape (K, n)."""
        return degrees[:, None] * theta - self._adjacency(w) @ theta

    def add_half_distances(self, theta, g, a=None):
        """In place: g_e += ||theta_i - theta_j||^2 / 2 + a_i + a_j."""
        g += self.distances(theta) / 2
        return g if a is None else self.add_ends(a, g)

    def add_ends(self, a, g):
        """In place: g_e += a_i + a_j."""
        g += a[self.i]
        g += a[self.j]
        return g

    def entries(self, S):
        """Edge array of the entries S_ij of a symmetric matrix given by its lower triangle."""
        return S[self.j, self.i]

    def distances(self, theta):
        """||theta_i - theta_j||^2 from explicit differences, shape (count,)."""
        difference = theta[self.i] - theta[self.j]
        return np.einsum("en,en->e", difference, difference)

    @property
    def exact_solver(self):
        """Whether `solver` solves, or only divides by the diagonal."""
        return not self._fills

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by one sparse factorisation.

        Without `degrees` they are those of w, and the matrix is G(w) + diag(shift). Where the graph fills the factor
        (a random graph), the function divides by the diagonal instead.
        """
        diagonal = (self.degrees(w) if degrees is None else degrees) + shift
        if self._fills:
            return lambda b: b / diagonal[:, None]
        matrix = sp.csc_array(sp.diags_array(diagonal, format="csr") - self._adjacency(w))
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve

    @cached_property
    def _fills(self):
        """Whether a Cholesky factor would be too full: the mean width of its envelope is large in a band order."""
        if self.K <= WIDTH or not self.count:
            return False
        place = np.empty(self.K, dtype=np.intp)
        place[reverse_cuthill_mckee(sp.csr_matrix(self._pattern), symmetric_mode=True)] = np.arange(self.K)
        low, high = np.minimum(place[self.i], place[self.j]), np.maximum(place[self.i], place[self.j])
        first = np.arange(self.K)
        np.minimum.at(first, high, low)
        return float(np.mean(np.arange(self.K) - first)) > WIDTH

    def dense_laplacian(self, w):
        """G(w) as a (K, K) array."""
        return np.diag(self.degrees(w)) - self.to_matrix(w)

    def _adjacency(self, w):
        return sp.csr_array(
            (w[self._edge_of_entry], self._pattern.indices, self._pattern.indptr), (self.K, self.K)
        )

    def _fill_negative(self, w, out):
        out.fill(0.0)
        out[self.j, self.i] = -w


def _dense(W, K):
    W = W.toarray() if sp.issparse(W) else np.asarray(W, dtype=float)
    if W.shape != (K, K):
        raise GraphError(
            f"the weights have shape {W.shape}, but the graph has {K} strata: give a {K} x {K} matrix."
        )
    return W


def _dense_solver(matrix):
    factor, info = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError("G(w) + diag(shift) is not positive definite")

    def solve(b):  # b^T times the inverse: no copies to Fortran order and back
        half = dtrsm(1.0, factor, b.T, side=1, lower=1, trans_a=1)
        return dtrsm(1.0, factor, half, side=1, lower=1, overwrite_b=1).T

    return solve
