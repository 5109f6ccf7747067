"""Cholesky factors of sparse symmetric matrices of one pattern, and the entries of the inverse on the pattern.

The analysis, made once for a pattern, orders the indices by minimum degree and groups them into fronts: a front's own indices
are eliminated together, and its later rows are those that they touch. With L the Cholesky factor and G the part of L below it,
the front's update -G Gᵀ goes to its parent, the front of its first later row (Duff and Reid 1983, multifrontal method). The
entries Z of the inverse then follow from the last front to the first, each from those on its later rows S (Takahashi, Fagan and
Chen 1973): with H = G L⁻¹

    Z_S1 = -Z_SS H,    Z_11 = (L Lᵀ)⁻¹ - Hᵀ Z_S1.

All arithmetic is LAPACK's on dense fronts, which are merged with their parents where that takes less time than handling two.
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsymm, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse.csgraph import depth_first_order
from scipy.sparse.linalg import spilu

from strat.errors import check_memory

OVERHEAD = 1e5  # multiplications that take as long as the calls for one front
RATE = 3e-10  # seconds a multiplication takes in a front
FILLED = 1.5  # numbers that fronts store per entry of the factor


class SparseCholesky:
    """The analysis of a pattern: symmetric K x K matrices with a diagonal and entries at E pairs (i, j), i != j, each once."""

    bytes = property(lambda self: FILLED * 8.0 * self.count.sum())  # about the size of a factor

    def __init__(self, K, i, j):
        self.K, self.i, self.j = K, i, j
        ends, ones = (np.r_[i, j], np.r_[j, i]), np.ones(2 * len(i))
        degree = np.bincount(ends[0], minlength=K)
        pattern = sp.diags_array(degree + 1.0) - sp.coo_array((ones, ends), shape=(K, K))
        # SuperLU finds the order; its incomplete factor, from which every entry is dropped, costs nothing.
        rough = {"drop_tol": 1e300, "fill_factor": 1, "options": {"SymmetricMode": True}}
        place = spilu(sp.csc_array(pattern), permc_spec="MMD_AT_PLUS_A", **rough).perm_c
        low, high = self._ordered(place)
        rows = sp.csr_array((ones[: len(i)], (high, low)), shape=(K, K))
        parent, count = _elimination_tree(rows.indptr, rows.indices)
        # Children before parents, and the descendants of every index just before it
        tree = sp.csr_array((np.ones(K), (np.where(parent < 0, K, parent), np.arange(K))), shape=(K + 1,) * 2)
        order = depth_first_order(tree, K, return_predecessors=False)[:0:-1]
        after = np.empty(K + 1, dtype=np.intp)
        after[order], after[-1] = np.arange(K), K
        self.place = after[place]  # of every index in the order of elimination
        self._parent = after[parent[order]]  # the first later row of every column, K for none
        self.count = count[order]  # the entries of every column of the factor

    def _ordered(self, place):
        a, b = place[self.i], place[self.j]
        return np.minimum(a, b), np.maximum(a, b)

    @property
    def seconds(self):
        """Rough time of a factorisation."""
        fronts = min(self.K, 1 + self.K // 30)
        return RATE * (float(np.sum(self.count.astype(float) ** 2)) + OVERHEAD * fronts)

    @cached_property
    def _own(self):
        """Where the own indices of every front start, and K."""
        parent, count, fronts = self._parent.tolist(), self.count.tolist(), []
        for k in range(self.K):
            first, size, below = k, 1, count[k] - 1
            while fronts:
                start, length, rows = fronts[-1]
                if parent[start + length - 1] > k:
                    break
                apart = size * (size + below) ** 2 + length * (length + rows) ** 2
                if (size + length) * (size + length + below) ** 2 > apart + OVERHEAD:
                    break
                fronts.pop()
                first, size = start, size + length
            fronts.append((first, size, below))
        return np.array([first for first, _, _ in fronts] + [self.K])

    @cached_property
    def _fronts(self):
        """Every front's own size, rows and parent, its later rows' places in the parent, and its matrix entries' places."""
        check_memory("a sparse Cholesky factor of this graph", self.bytes)
        (low, high), K, starts = self._ordered(self.place), self.K, self._own
        key = np.r_[self.place, low].astype(np.int64) * K + np.r_[self.place, high]
        self._source = np.argsort(key)  # the matrix's entries, column by column
        column, row = np.divmod(key[self._source], K)
        self._cut = np.searchsorted(column, starts)
        front_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        fronts, later, children = [], [], [[] for _ in starts[1:]]
        for k, (a, b) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
            cut = slice(self._cut[k], self._cut[k + 1])
            rows = np.unique(np.concatenate([row[cut], *(later[c] for c in children[k])]))
            later.append(rows[np.searchsorted(rows, b) :])
            rows = np.concatenate([np.arange(a, b), later[k]])
            for c in children[k]:
                fronts[c][3] = np.searchsorted(rows, later[c])
            parent = int(front_of[later[k][0]]) if len(later[k]) else None
            if parent is not None:
                children[parent].append(k)
            place = (column[cut] - a) * len(rows) + np.searchsorted(rows, row[cut])
            fronts.append([b - a, rows, parent, None, place])
        return fronts


class Factor:
    """The Cholesky factor of the matrix with an analysed pattern, a `diagonal` (K,), and `entries` (E,) at the pairs.

    ``log_det`` is the matrix's; a LinAlgError is raised where the matrix is not positive definite.
    """

    def __init__(self, analysis, diagonal, entries):
        self.analysis, self.parts, self.log_det = analysis, [], 0.0
        fronts = analysis._fronts
        values = np.concatenate([diagonal, entries])[analysis._source]
        updates = [[] for _ in fronts]
        for k, (size, rows, parent, at, place) in enumerate(fronts):
            m = len(rows)
            F = np.zeros(m * m)
            F[place] = values[analysis._cut[k] : analysis._cut[k + 1]]
            F = F.reshape(m, m, order="F")  # the lower triangle counts
            for there, update in updates[k]:
                F.T[there[:, None], there] += update.T
            updates[k] = None
            L, info = dpotrf(F[:size, :size], lower=1, clean=1)
            if info:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            self.log_det += 2 * float(np.log(L.diagonal()).sum())
            G = None
            if m > size:
                G = dtrsm(1.0, L, F[size:, :size], side=1, lower=1, trans_a=1)
                updates[parent].append((at, dsyrk(-1.0, G, 1.0, F[size:, size:], lower=1)))
            self.parts.append((L, G))

    def inverse(self):
        """The inverse's diagonal (K,), and its entries (E,) at the pairs."""
        analysis, fronts = self.analysis, self.analysis._fronts
        waiting = np.bincount([f[2] for f in fronts if f[2] is not None], minlength=len(fronts)).tolist()
        values, whole = np.empty(len(analysis._source)), {}  # Z of fronts whose children are still to come
        for k in reversed(range(len(fronts))):
            (L, G), (size, rows, parent, at, place) = self.parts[k], fronts[k]
            Z = np.empty((len(rows), len(rows)), order="F")
            own = dpotri(L, lower=1)[0]
            if G is not None:
                Z[size:, size:] = whole[parent].T[at[:, None], at].T
                H = dtrsm(1.0, L, G, side=1, lower=1)
                Z[size:, :size] = dsymm(-1.0, Z[size:, size:], H, lower=1)
                own -= H.T @ Z[size:, :size]
                waiting[parent] -= 1
                if not waiting[parent]:
                    del whole[parent]
            Z[:size, :size] = own
            values[analysis._cut[k] : analysis._cut[k + 1]] = Z.ravel(order="K")[place]
            if waiting[k]:
                whole[k] = Z
        out = np.empty_like(values)
        out[analysis._source] = values
        return out[: analysis.K], out[analysis.K :]


def inverse_entries(A, rows, columns):
    """Log det and the entries (rows, columns) of the inverse of a symmetric sparse array A, of which both halves are stored.

    Raises a LinAlgError if A is not positive definite, and an OptionError if there is not enough memory.
    """
    M, rows, columns = A.shape[0], np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    lower = sp.tril(A, -1).tocoo()
    own, wanted = (np.maximum(r, c) * M + np.minimum(r, c) for r, c in (lower.coords, (rows, columns)))
    key = np.union1d(own, wanted[rows != columns])
    entries = np.zeros(len(key))
    entries[np.searchsorted(key, own)] = lower.data
    factor = Factor(SparseCholesky(M, *np.divmod(key, M)), A.diagonal(), entries)
    diagonal, entries = factor.inverse()
    entries = np.append(entries, 0.0)[np.searchsorted(key, wanted)]
    return factor.log_det, np.where(rows == columns, diagonal[rows], entries)


def _elimination_tree(indptr, indices):
    """Parent (-1 for none) and entries of every column of the factor, from the lower triangle's rows (Liu 1986)."""
    K = len(indptr) - 1
    parent, count, seen = [-1] * K, [1] * K, list(range(K))
    starts, columns = indptr.tolist(), indices.tolist()
    for k in range(K):
        for column in columns[starts[k] : starts[k + 1]]:
            while seen[column] != k:
                if parent[column] < 0:
                    parent[column] = k
                count[column] += 1
                seen[column] = k
                column = parent[column]
    return np.array(parent), np.array(count)
