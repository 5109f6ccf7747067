"""Edge sets: the pairs of strata that may have a weight, and the computations of the solvers on these weights.

Lower triangles of dense matrices over the strata are vectors without holes, in LAPACK's rectangular full packed format: they
take half the memory of squares, and inverses up to two thirds of the time (Gustavson, Wasniewski, Dongarra and Langou,
"Rectangular full packed format for Cholesky's algorithm", ACM TOMS 2010).
"""

import copy
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dtpmv, dtrsm
from scipy.linalg.lapack import dpftrf, dpftri, dtfttr, dtrttf
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import splu
from scipy.spatial.distance import pdist, squareform

from strat.errors import GraphError, check_memory
from strat.oracles import kernels
from strat.oracles.base import host
from strat.oracles.sparse_cholesky import Factor, SparseCholesky

STRATA = 2000  # number of strata up to which users get weights as a dense array
POINTS = 3  # number of points whose factors a fit holds
WIDTH = 500  # mean entries in a column of a sparse factor up to which systems are solved by it
FULL = 0.25  # a graph with this share of all pairs counts as dense
SMALL = 200  # strata for which dense matrices are always as fast
CHUNK = 32768  # edges of which differences are taken at a time
DENSE = 1e-11  # seconds that a dense factorisation takes, over K^3
ARRAYS = 20  # edge arrays that a fit of all pairs holds
FORMAT = {"transr": "N", "uplo": "L"}


class EdgeList:
    """A set of candidate edges with the ends i and j; every pair once, i != j.

    An "edge array" has one number per edge, shape (count,), in the order of the arrays (i, j) of `ends`, i < j.
    """

    all_pairs = False
    couple = None  # weights of the coordinates of theta in the distances, (count, n)
    device = None  # the one that computes with dense matrices over the strata
    exact_solver = property(lambda self: self.width <= WIDTH)  # else `solver` only divides by the diagonal

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
        self.ends, self.count = (low, high), low.size

    @cached_property
    def _pattern(self):
        """The adjacency matrix with the number of the edge in every entry."""
        short, edges = np.int32 if 2 * self.count < 2**31 else np.intp, np.arange(self.count)
        places = tuple(np.concatenate(ends, dtype=short) for ends in (self.ends, self.ends[::-1]))
        return sp.csr_array((np.concatenate([edges, edges], dtype=short), places), (self.K, self.K))

    def zeros(self):
        """An edge array of zeros."""
        return np.zeros(self.count)

    @cached_property
    def neighbors(self):
        """Number of edges at every stratum, shape (K,)."""
        return self.degrees(np.ones(self.count))

    def matrix(self, w):
        """Symmetric weights as users see them: an array up to STRATA strata, a csr_array of more."""
        W = self.adjacency(w)
        if self.K <= STRATA:
            return W.toarray()
        W = W.copy()
        W.eliminate_zeros()
        return W

    def from_matrix(self, W):
        """Edge array of a symmetric (K, K) array or sparse array; pairs that are not candidate edges are left out."""
        if W.shape != (self.K, self.K):
            raise GraphError(
                f"W has shape {W.shape}, but the graph has {self.K} strata: give a row for each."
            )
        W = sp.csr_array(W) if sp.issparse(W) else W
        return np.asarray(W[self.ends], dtype=float).ravel() if self.count else self.zeros()

    def degrees(self, w):
        """Sum of the weights at every stratum, shape (K,)."""
        i, j = self.ends
        return np.bincount(i, w, self.K) + np.bincount(j, w, self.K)

    def components(self, w):
        """The number of connected components by edges of positive weight, and the component of each stratum, (K,)."""
        used = w > 0
        links = sp.coo_array((w[used], tuple(end[used] for end in self.ends)), shape=(self.K, self.K))
        return connected_components(links, directed=False)

    def uniform(self, w):
        """Whether all pairs of strata have the same weight."""
        return self.count == self.K * (self.K - 1) // 2 > 0 and w[0] == w[-1] and np.ptp(w) == 0

    def adjacency_operator(self, w):
        """Function theta -> A(w) theta, for many products with one w."""
        if self.uniform(w):
            return lambda theta: w[0] * (theta.sum(axis=0) - theta)
        return self.adjacency(w).__matmul__

    def add_ends(self, a, g, theta=None):
        """In place: g_e += a_i + a_j, plus `distances` of theta where it is given."""
        if theta is not None:
            g += self.distances(theta)
        for end in self.ends:
            g += a[end]
        return g

    @cached_property
    def incidence(self):
        """csr_array (K, count): 1 where an edge starts, -1 where it ends."""
        edges, ones = np.arange(self.count), np.ones(self.count)
        ends = np.concatenate(self.ends), np.concatenate([edges, edges])
        return sp.csr_array((np.concatenate([ones, -ones]), ends), shape=(self.K, self.count))

    @cached_property
    def places(self):
        """Positions of the edges in a `DenseFactor`."""
        return positions(self.K, *self.ends[::-1])

    @cached_property
    def diagonal(self):
        """Positions of the diagonal in a `DenseFactor`."""
        return positions(self.K, np.arange(self.K), np.arange(self.K))

    def distances(self, theta):
        """||theta_i - theta_j||^2, weighted by `couple` where edges have it, from explicit differences, shape (count,)."""
        out, (i, j) = np.empty(self.count), self.ends
        for start in range(0, self.count, CHUNK):
            chunk = slice(start, start + CHUNK)
            difference = theta[i[chunk]] - theta[j[chunk]]
            weighted = difference if self.couple is None else self.couple[chunk] * difference
            np.einsum("en,en->e", weighted, difference, out=out[chunk])
        return out

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by a sparse factor or, if that fills, the diagonal."""
        diagonal = (self.degrees(w) if degrees is None else degrees) + shift
        if not self.exact_solver:
            return lambda b: b / diagonal[:, None]
        matrix = sp.csc_array(sp.diags_array(diagonal, format="csr") - self.adjacency(w))
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve

    @cached_property
    def analysis(self):
        """The analysis for sparse Cholesky factors; None where the graph counts as dense."""
        full = self.count > FULL * self.K * (self.K - 1) / 2
        return None if full and self.K > 1 else SparseCholesky(self.K, *self.ends)

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
    def band(self):
        """Every stratum's place (K,) in a band order (reverse Cuthill-McKee), and the largest distance between neighbours."""
        place, (i, j) = np.empty(self.K, dtype=np.intp), self.ends
        place[reverse_cuthill_mckee(sp.csr_matrix(self._pattern), symmetric_mode=True)] = np.arange(self.K)
        return place, int(np.abs(place[i] - place[j]).max(initial=0))

    def factor(self, w, diagonal, old=None):
        """The Cholesky factor of diag(diagonal) - A(w), with its ``log_det`` and ``inverse()``: its diagonal and edge array."""
        if old is None and self.sparse:
            check_memory("the sparse factors of this graph", POINTS * self.analysis.bytes)
        elif old is None:
            check_memory("dense matrices over the strata", POINTS * 4.0 * self.K**2, "give fewer edges")
        return Factor(self.analysis, diagonal, -w) if self.sparse else DenseFactor(self, diagonal, w, old)

    def adjacency(self, w):
        """The symmetric matrix A(w), a csr_array that shares its pattern."""
        matrix = copy.copy(self._pattern)  # a new csr_array would cost as much as a small product
        matrix.data = w[matrix.data]
        return matrix


class AllPairs(EdgeList):
    """All pairs of K strata: an `EdgeList` by dense matrices, with edges in the order of ``scipy.spatial.distance``."""

    all_pairs = True
    width = 0.0  # as no system has a sparse factor

    def __init__(self, K):
        self.K, self.count = int(K), int(K) * (int(K) - 1) // 2
        way = 'give candidate edges, such as edges="prior" or "knn"'
        check_memory(f"learning the weights of all {self.count:,} pairs", ARRAYS * 8.0 * self.count, way)

    @cached_property
    def ends(self):
        return np.triu_indices(self.K, 1)

    def adjacency(self, w):
        return squareform(w, checks=False)

    matrix = adjacency

    def degrees(self, w):
        out, ones = np.zeros(self.K), np.ones(self.K - 1)
        if ones.size:
            # w is a packed triangle of the order K - 1: the products with it and with its transpose.
            out[:-1] = dtpmv(ones.size, w, ones, lower=1, trans=1)
            out[1:] += dtpmv(ones.size, w, ones, lower=1)
        return out

    def add_ends(self, a, g, theta=None):
        theta = np.empty((self.K, 0)) if theta is None else theta
        if kernels.compiled is not None:
            return kernels.compiled.add_to_pairs(theta, a, g)
        g += squareform(np.add.outer(a, a), checks=False)
        g += pdist(theta, "sqeuclidean")
        return g

    def distances(self, theta):
        return self.add_ends(np.zeros(self.K), self.zeros(), theta)

    def solver(self, w, shift, degrees=None):
        """Function b -> (diag(degrees + shift) - A(w))^-1 b for b (K, n), by a dense Cholesky factor."""
        return DenseFactor(self, (self.degrees(w) if degrees is None else degrees) + shift, w).solve


def positions(K, i, j):
    """Positions of the entries (i, j), i >= j: the triangle of the columns j >= half lies transposed above the others."""
    half, odd = (K + 1) // 2, K % 2
    rows = K + 1 - odd
    return np.where(j < half, j * rows + i + 1 - odd, (i - half + odd) * rows + j - half)


class DenseFactor:
    """The Cholesky factor, by LAPACK or on a device, of the matrix with `diagonal` (K,) and -w on the edges, and `log_det`.

    A LinAlgError is raised if the matrix is not positive definite. The factor overwrites an `old` one, if given.
    """

    def __init__(self, edges, diagonal, w, old=None):
        self.edges, K = edges, edges.K
        self.packed = np.zeros(K * (K + 1) // 2) if old is None else old.packed
        if not edges.all_pairs:
            self.packed.fill(0.0)
        self.packed[edges.places] = -w
        self.packed[edges.diagonal] = diagonal
        if self._fails_on_device() if edges.device else dpftrf(K, self.packed, **FORMAT, overwrite_a=1)[1]:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        self.log_det = 2 * float(np.log(self.packed[edges.diagonal]).sum())

    def _square(self):
        return np.tril(dtfttr(self.edges.K, self.packed, **FORMAT)[0])

    def _fails_on_device(self):
        lower, device = self._square(), self.edges.device
        try:
            factor = host(device.xp.linalg.cholesky(device.array(lower + np.tril(lower, -1).T)))
        except Exception:  # each library has its own
            return True
        self.packed[...] = dtrttf(factor, **FORMAT)[0]
        return not np.all(factor.diagonal() > 0)

    def inverse(self):
        """The diagonal (K,) of the inverse, and its entries on the edges; they overwrite the factor."""
        edges, device = self.edges, self.edges.device
        if device is None:
            dpftri(edges.K, self.packed, **FORMAT, overwrite_a=1)
        else:  # L⁻ᵀ L⁻¹
            half = device.xp.linalg.inv(device.array(self._square()))
            inverse = host(device.xp.linalg.matmul(device.xp.linalg.matrix_transpose(half), half))
            self.packed[...] = dtrttf(inverse, **FORMAT)[0]
        return self.packed[edges.diagonal], self.packed.take(edges.places)

    @property
    def solve(self):
        """Function b -> matrix⁻¹ b for b (K, n), as bᵀ times the inverse: without copies to Fortran order and back."""
        lower = dtfttr(self.edges.K, self.packed, **FORMAT)[0]

        def solve(b):
            half = dtrsm(1.0, lower, b.T, side=1, lower=1, trans_a=1)
            return dtrsm(1.0, lower, half, side=1, lower=1, overwrite_b=1).T

        return solve
