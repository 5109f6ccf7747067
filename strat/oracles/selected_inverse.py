"""Chosen entries of the inverse of a sparse symmetric matrix, without the others.

A block elimination in fill-reducing order gives A = L Lᵀ; the entries of the inverse Z on the pattern of L then follow from
the last block to the first, each from entries of later blocks (Takahashi, Fagan and Chen 1973). With S the later blocks
that block 1 touches and G = A₁₁⁻¹ A₁S of the eliminated matrix:

    Z₁S = −G Z_SS,    Z₁₁ = A₁₁⁻¹ − Z₁S Gᵀ.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.sparse.linalg import splu

from strat.errors import OptionError

DENSE = 25_000  # numbers: a dense inverse of this many takes 5 GB
FULL = 0.25  # a block pattern with this share of all blocks is as good as dense
OVERHEAD = 30  # columns whose elimination costs as much as copying a front


def inverse_entries(A, starts, rows, columns):
    """Log det and chosen entries of the inverse of a symmetric positive definite matrix.

    Parameters
    ----------
    A : ndarray or sparse array, shape (M, M)
        The matrix, both halves.
    starts : (K + 1,) ndarray of int
        Block k is the indices from starts[k] to starts[k + 1] - 1.
    rows, columns : (E,) ndarray of int
        The entries, each inside a block of A that is not zero.

    Returns
    -------
    float, (E,) ndarray
        The log det of A, and the inverse's entries.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    OptionError
        If the inverse is dense and too large.
    """
    starts, rows, columns = (np.asarray(a, dtype=np.intp) for a in (starts, rows, columns))
    if not sp.issparse(A):
        return _dense(A, rows, columns)
    elimination = _Elimination.plan(A, np.unique(starts))  # empty blocks are no blocks
    if elimination is not None:
        return elimination.run(A, rows, columns)
    if A.shape[0] > DENSE:
        raise OptionError(
            f"the graph fills the factor of a system of {A.shape[0]:,} numbers, and a dense inverse is made for at "
            f"most {DENSE:,}. A sparser graph has no such bound."
        )
    return _dense(A.toarray(), rows, columns)


def _dense(A, rows, columns):
    factor = _cholesky(A, clean=0)
    log_det = 2 * float(np.log(np.diag(factor)).sum())
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    return log_det, inverse[np.maximum(rows, columns), np.minimum(rows, columns)]


def _cholesky(A, clean=1):
    """The lower Cholesky factor; `clean` sets what is above the diagonal to 0."""
    factor, info = dpotrf(A, lower=1, clean=clean)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return factor


class _Elimination:
    """The order in which blocks are eliminated, and the later blocks that each one touches.

    A block's number is its place in the order. Its front is its own indices and those of the blocks it touches; what its
    elimination changes there goes to its parent, the first block that it touches.

    Parameters
    ----------
    permutation : (M,) ndarray of int
        The indices in order of elimination.
    starts : (K + 1,) ndarray of int
        Where each block starts in the permutation.
    touched : list of ndarray
        The later blocks that each one touches.
    """

    def __init__(self, permutation, starts, touched):
        self.permutation, self.starts = permutation, starts
        index = np.split(np.arange(starts[-1]), starts[1:-1])
        self.fronts = [np.concatenate([index[b] for b in (k, *later)]) for k, later in enumerate(touched)]
        self.parents = [int(later[0]) if len(later) else None for later in touched]

    @classmethod
    def plan(cls, A, starts):
        """The elimination, or None where it fills so much that dense arithmetic is cheaper."""
        K = len(starts) - 1
        pattern = _block_pattern(A, starts)
        if pattern.nnz > FULL * K * K and K > 1:
            return None
        order = np.argsort(_minimum_degree(pattern))
        pattern = pattern[order][:, order]
        touched, children = [], [[] for _ in range(K)]
        for k in range(K):
            neighbours = pattern.indices[pattern.indptr[k] : pattern.indptr[k + 1]]
            later = np.unique(np.concatenate([neighbours, *(touched[c] for c in children[k])]))
            touched.append(later[later > k])
            if len(touched[k]):
                children[touched[k][0]].append(k)
        size = np.diff(starts)[order]
        permutation = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in order])
        elimination = cls(permutation, np.concatenate([[0], np.cumsum(size)]), touched)
        front = np.array([len(indices) for indices in elimination.fronts], dtype=float)
        cheap = 2 * np.sum(front**2 * (size + OVERHEAD)) < float(starts[-1]) ** 3
        return elimination if cheap or starts[-1] > DENSE else None

    def run(self, A, rows, columns):
        """Log det, and the entries of the inverse, gathered block by block."""
        place = np.argsort(self.permutation)
        factors = self._factorize(sp.csc_array(sp.csr_array(A)[self.permutation][:, self.permutation]))
        log_det = 2 * sum(float(np.log(np.diag(factor)).sum()) for factor, _ in factors)
        rows, columns = place[rows], place[columns]
        block = np.searchsorted(self.starts, np.minimum(rows, columns), side="right") - 1
        order = np.argsort(block, kind="stable")
        cuts = np.searchsorted(block[order], np.arange(len(factors) + 1))
        values = np.empty(len(rows))
        for k, Z in self._inverse(factors):
            entries, front = order[cuts[k] : cuts[k + 1]], self.fronts[k]
            values[entries] = Z[
                np.searchsorted(front, rows[entries]), np.searchsorted(front, columns[entries])
            ]
        return log_det, values

    def _factorize(self, A):
        """For each block the Cholesky factor of its own part, and G (None where it touches no later block)."""
        factors, updates = [], [[] for _ in self.fronts]
        local = np.empty(A.shape[0], dtype=np.intp)  # where an index is in the front
        for k, front in enumerate(self.fronts):
            a, b = self.starts[k : k + 2]
            size = b - a
            local[front] = np.arange(len(front))
            F = np.zeros((len(front), len(front)))
            column = np.repeat(np.arange(size), np.diff(A.indptr[a : b + 1]))
            stored = slice(A.indptr[a], A.indptr[b])
            below = A.indices[stored] >= a
            F[local[A.indices[stored][below]], column[below]] = A.data[stored][below]
            for indices, update in updates[k]:
                at = local[indices]
                F[at[:, None], at] += update
            updates[k] = None
            factor, G = _cholesky(F[:size, :size]), None
            if len(front) > size:
                G, _ = dpotrs(factor, F[size:, :size].T, lower=1)
                updates[self.parents[k]].append((front[size:], F[size:, size:] - F[size:, :size] @ G))
            factors.append((factor, G))
        return factors

    def _inverse(self, factors):
        """Yield each block and the inverse Z on its front, from the last to the first."""
        waiting = np.bincount([p for p in self.parents if p is not None], minlength=len(factors))
        parts = {}  # Z of blocks whose children are still to come
        for k in reversed(range(len(factors))):
            (factor, G), front, parent = factors[k], self.fronts[k], self.parents[k]
            size = len(factor)
            Z = np.empty((len(front), len(front)))
            lower, _ = dpotri(factor, lower=1)  # above the diagonal there are zeros
            np.add(lower, lower.T, out=Z[:size, :size])
            np.einsum("aa->a", Z[:size, :size])[...] *= 0.5
            if G is not None:
                at = np.searchsorted(self.fronts[parent], front[size:])
                Z[size:, size:] = parts[parent][at[:, None], at]
                Z[:size, size:] = -G @ Z[size:, size:]
                Z[size:, :size] = Z[:size, size:].T
                Z[:size, :size] -= Z[:size, size:] @ G.T
                waiting[parent] -= 1
                if not waiting[parent]:
                    del parts[parent]
            if waiting[k]:
                parts[k] = Z
            yield k, Z


def _block_pattern(A, starts):
    """Which blocks are not zero, as a symmetric csr_array of ones with a full diagonal."""
    K, block = len(starts) - 1, np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    rows, columns = (block[index] for index in sp.coo_array(A).coords)
    ends = np.r_[rows, columns, np.arange(K)], np.r_[columns, rows, np.arange(K)]
    pattern = sp.csr_array((np.ones(len(ends[0])), ends), shape=(K, K))
    pattern.data[:] = 1.0
    return pattern


def _minimum_degree(pattern):
    """The place of each block in a minimum-degree order."""
    degree = np.diff(pattern.indptr).astype(float)
    matrix = sp.csc_array(sp.diags_array(degree + 1.0) - pattern)
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).perm_c
