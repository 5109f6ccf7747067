"""Single entries of the inverse of a sparse symmetric matrix, without the rest.

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
    starts = np.unique(starts)  # empty blocks are no blocks
    if not sp.issparse(A):
        return _dense(A, rows, columns)
    plan = _Elimination.plan(A, starts)
    if plan is None:
        if A.shape[0] > DENSE:
            raise OptionError(
                f"the graph fills the factor of a system of {A.shape[0]:,} numbers, and a dense inverse is made for at "
                f"most {DENSE:,}. A sparser graph has no such bound."
            )
        return _dense(A.toarray(), rows, columns)
    return plan.run(A, rows, columns)


def _dense(A, rows, columns):
    factor, info = dpotrf(A, lower=1, clean=0)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    log_det = 2 * float(np.log(np.diag(factor)).sum())
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    return log_det, inverse[np.maximum(rows, columns), np.minimum(rows, columns)]


class _Elimination:
    """Which block is eliminated when, and which later blocks it touches.

    Attributes
    ----------
    order : list of int
        The blocks in order of elimination; below, a block's number is its place in this order.
    later : list of ndarray
        The later blocks that each one touches at its elimination.
    """

    def __init__(self, order, later, starts):
        self.order, self.later = order, later
        size = np.diff(starts)[order]
        self.starts = np.concatenate([[0], np.cumsum(size)])
        self.permutation = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in order])
        #: The indices of each block and of those it touches, after the permutation.
        self.front = [
            np.concatenate([np.arange(self.starts[b], self.starts[b + 1]) for b in (k, *touched)])
            for k, touched in enumerate(later)
        ]
        self.parent = [int(touched[0]) if len(touched) else -1 for touched in later]

    @classmethod
    def plan(cls, A, starts):
        """The elimination, or None where it fills so much that dense arithmetic is cheaper."""
        K = len(starts) - 1
        pattern = _block_pattern(A, starts)
        if pattern.nnz > FULL * K * K and K > 1:
            return None
        place = _places(pattern)
        order = np.argsort(place)
        pattern = pattern[order][:, order]
        later, children = [], [[] for _ in range(K)]
        for k in range(K):
            touched = pattern.indices[pattern.indptr[k] : pattern.indptr[k + 1]]
            touched = np.unique(np.concatenate([touched, *(later[c] for c in children[k])]))
            later.append(touched[touched > k])
            if len(later[k]):
                children[later[k][0]].append(k)
        elimination = cls(order, later, starts)
        size = np.diff(elimination.starts)
        front = np.array([len(f) for f in elimination.front])
        cost = 2.0 * np.sum(
            front.astype(float) ** 2 * (size + 30)
        )  # copying a front costs as much as 30 columns
        return elimination if cost < float(starts[-1]) ** 3 or starts[-1] > DENSE else None

    def run(self, A, rows, columns):
        """Factorise, and gather the entries on the way back."""
        p = self.permutation
        factors = self._factorise(sp.csc_array(sp.csc_array(A)[p][:, p]))
        log_det = 2 * sum(float(np.log(np.diag(factor)).sum()) for factor, _ in factors)
        place = np.empty(len(p), dtype=np.intp)
        place[p] = np.arange(len(p))
        first, second = place[rows], place[columns]
        owner = np.searchsorted(self.starts, np.minimum(first, second), side="right") - 1
        wanted = np.argsort(owner, kind="stable")
        cut = np.searchsorted(owner[wanted], np.arange(len(self.order) + 1))
        values = np.empty(len(rows))
        for k, Z in self._inverse(factors):
            mine, front = wanted[cut[k] : cut[k + 1]], self.front[k]
            values[mine] = Z[np.searchsorted(front, first[mine]), np.searchsorted(front, second[mine])]
        return log_det, values

    def _factorise(self, A):
        """Per block: the Cholesky factor of its own part, and G."""
        factors, updates = [], [[] for _ in self.order]
        local = np.empty(A.shape[0], dtype=np.intp)
        for k, front in enumerate(self.front):
            a, b = self.starts[k], self.starts[k + 1]
            size = b - a
            local[front] = np.arange(len(front))
            F = np.zeros((len(front), len(front)))
            low, high = A.indptr[a], A.indptr[b]
            i, j = A.indices[low:high], np.repeat(np.arange(size), np.diff(A.indptr[a : b + 1]))
            kept = i >= a
            F[local[i[kept]], j[kept]] = A.data[low:high][kept]
            for index, update in updates[k]:
                at = local[index]
                F[at[:, None], at] += update
            updates[k] = None
            factor, info = dpotrf(F[:size, :size], lower=1, clean=1)
            if info:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            G = None
            if len(front) > size:
                G, _ = dpotrs(factor, F[size:, :size].T, lower=1)
                updates[self.parent[k]].append((front[size:], F[size:, size:] - F[size:, :size] @ G))
            factors.append((factor, G))
        return factors

    def _inverse(self, factors):
        """Yield each block with the inverse on its front, from the last to the first."""
        waiting = np.bincount([p for p in self.parent if p >= 0], minlength=len(self.parent))
        kept = {}
        for k in range(len(factors) - 1, -1, -1):
            (factor, G), front = factors[k], self.front[k]
            size = len(factor)
            Z = np.empty((len(front), len(front)))
            own, _ = dpotri(factor, lower=1)  # above the diagonal there are zeros
            np.add(own, own.T, out=Z[:size, :size])
            np.einsum("aa->a", Z[:size, :size])[...] *= 0.5
            if G is not None:
                parent = self.parent[k]
                at = np.searchsorted(self.front[parent], front[size:])
                Z[size:, size:] = kept[parent][at[:, None], at]
                Z[:size, size:] = -G @ Z[size:, size:]
                Z[size:, :size] = Z[:size, size:].T
                Z[:size, :size] -= Z[:size, size:] @ G.T
                waiting[parent] -= 1
                if not waiting[parent]:
                    del kept[parent]
            if waiting[k]:
                kept[k] = Z
            yield k, Z


def _block_pattern(A, starts):
    """Which blocks are not zero, as a symmetric csr_array of ones with a full diagonal."""
    K, A = len(starts) - 1, sp.coo_array(A)
    block = np.repeat(np.arange(K), np.diff(starts))
    rows, columns = (block[index] for index in A.coords)
    rows, columns = (
        np.concatenate([rows, columns, np.arange(K)]),
        np.concatenate([columns, rows, np.arange(K)]),
    )
    pattern = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(K, K))
    pattern.sum_duplicates()
    pattern.data[:] = 1.0
    return pattern


def _places(pattern):
    """The place of each block in a minimum-degree order."""
    degree = np.diff(pattern.indptr).astype(float)
    matrix = sp.csc_array(sp.diags_array(degree + 1.0) - pattern)
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).perm_c
