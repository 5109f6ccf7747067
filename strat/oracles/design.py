"""Records sorted by stratum, and affine maps of the variables bound to them: u = A theta, and its transpose.

Rows live either on strata (no record data in the map: one constant matrix serves all) or on records.
``gram(weights)`` is Σ weights_ir a_ir a_irᵀ over each stratum's rows, (K, n, n), for designs with ``has_gram``: dense
ones, and sparse ones of few columns.
"""

from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
import scipy.sparse as sp

from strat.oracles import kernels

SMALL = 24  # columns up to which a loop over the records is faster than a product for each stratum
FEW = 64  # columns up to which sparse records have Gram matrices


class Segments:
    """N records in K strata; ``index`` holds each record's stratum, in ascending order."""

    def __init__(self, index, K):
        self.index = np.asarray(index, dtype=np.intp)
        self.K, self.N = int(K), len(self.index)
        self.counts = np.bincount(self.index, minlength=self.K)
        self.filled = np.flatnonzero(self.counts)
        self._starts = (np.cumsum(self.counts) - self.counts)[self.filled]

    def sum(self, values):
        """Sums over each stratum's records: (N, …) to (K, …)."""
        sums = np.add.reduceat(values, self._starts, axis=0)
        if len(self.filled) == self.K:
            return sums
        out = np.zeros((self.K, *values.shape[1:]))
        out[self.filled] = sums
        return out

    def max(self, values):
        """The largest of each stratum's values (N,), 0 where there are none: (K,)."""
        out = np.zeros(self.K)
        out[self.filled] = np.maximum.reduceat(values, self._starts) if self.N else 0.0
        return out

    def gram(self, a, weight):
        """Σ weight_i a_i a_iᵀ over each stratum's records: (N, p) and (N,) to (K, p, p)."""
        if sp.issparse(a):
            return self._sparse_gram(sp.csr_array(a), weight)
        if kernels.compiled and a.size and a.shape[1] <= SMALL:
            return kernels.compiled.grams(kernels.of_floats(a), self.index, weight, self.K)
        out = np.zeros((self.K, a.shape[1], a.shape[1]))
        for k, start in zip(self.filled, self._starts, strict=True):
            own = slice(start, start + self.counts[k])
            out[k] = (a[own] * weight[own, None]).T @ a[own]
        return out

    def _sparse_gram(self, a, weight):
        p, out = a.shape[1], np.zeros((self.K, a.shape[1], a.shape[1]))
        stratum = self.index.repeat(np.diff(a.indptr))
        rows = sp.csr_array((a.data, stratum * p + a.indices, a.indptr), shape=(self.N, self.K * p))
        grams = sp.coo_array(rows.T @ (sp.diags_array(weight) @ rows))
        i, j = grams.coords
        out[i // p, i % p, j % p] = grams.data
        return out


class Design:
    """A linear map of theta: ``coefficients`` (R, T) multiply the ``columns`` of theta, (T,) or (m, T).

    ``matvec`` takes theta (K, n) to (R, m), and ``rmatvec``, the transpose, takes (R, m) to (K, n).
    """

    on_records = True

    def sizes(self):
        """Root mean square of the coefficients of every coordinate, (n,)."""
        out, values = np.zeros(self.n), self.coefficients
        if values.shape[0] and self.columns.size:
            sparse = sp.issparse(values)
            squares = values.multiply(values).sum(axis=0) if sparse else np.einsum("rt,rt->t", values, values)
            for row in np.atleast_2d(self.columns):
                np.maximum.at(out, row, np.sqrt(np.ravel(squares) / values.shape[0]))
        return out


class ConstantDesign(Design):
    """The same map for every stratum: u_k = C theta_k, rows on strata; with `segments`, on records, u_i = C theta_{z_i}."""

    has_gram = True

    def __init__(self, row, column, scale, m, n, segments=None):
        self.m, self.n, self.segments, self.on_records = m, n, segments, segments is not None
        self.coefficients, self.columns = scale[None, :], column
        whole = m == n == len(row) and np.array_equal(row, np.arange(m)) and np.array_equal(column, row)
        self._identity = whole and np.all(scale == 1.0)  # a product would turn infinite numbers into NaN
        self._c = sp.csr_array((scale, (row, column)), shape=(m, n))
        if m * n <= 4096 or len(row) > 0.25 * m * n:
            self._c = self._c.toarray()

    def gram(self, weights):
        c = self._c.toarray() if sp.issparse(self._c) else self._c
        weights = self.segments.sum(weights) if self.on_records else weights
        return np.matmul(c.T * weights[:, None, :], c)

    def matvec(self, theta):
        u = theta if self._identity else theta @ self._c.T
        return u[self.segments.index] if self.on_records else u

    def rmatvec(self, g):
        g = self.segments.sum(g) if self.on_records else g
        return g if self._identity else g @ self._c


class SharedDesign(Design):
    """All rows of a record use the same coefficients on different columns: u_i = (a_i Theta_{z_i}).

    A CSR matrix over (record, stratum × coefficient) serves all rows of the form in one product.
    """

    def __init__(self, coefficients, columns, segments, n):
        self.segments, self.n = segments, n
        self.coefficients, self.columns = coefficients, columns
        self.m, self.p = columns.shape
        sparse = sp.issparse(coefficients)
        self.has_gram = not sparse or self.p <= FEW
        one = not sparse and self.m == 1 and coefficients.size  # whether a record has one row
        self._rows = np.require(coefficients, float, "C") if one else None  # as the compiled loops take them
        flat = columns.T.reshape(-1)
        self._order = None if np.array_equal(flat, np.arange(n)) else flat
        self._unique = len(np.unique(flat)) == len(flat)

    @cached_property
    def _a(self):
        segments, p = self.segments, self.p
        N, K = segments.N, segments.K
        dtype = np.int32 if max(K * p, N * p) < 2**31 else np.int64
        base = segments.index.astype(dtype) * dtype(p)
        csr = sp.csr_array(self.coefficients)
        data, indptr = csr.data, csr.indptr.astype(dtype)
        indices = csr.indices.astype(dtype) + np.repeat(base, np.diff(indptr))
        return sp.csr_array((data, indices, indptr), shape=(N, K * p))

    def matvec(self, theta):
        if self._order is not None:
            theta = theta[:, self._order]
        if kernels.compiled and self._rows is not None:
            return kernels.compiled.rows_times(self._rows, self.segments.index, theta)[:, None]
        return self._a @ theta.reshape(-1, self.m)

    def rmatvec(self, g):
        if kernels.compiled and self._rows is not None:
            back = kernels.compiled.rows_sum(self._rows, self.segments.index, g, self.segments.K)
        else:
            back = (self._a.T @ g).reshape(self.segments.K, -1)
        if self._order is None:
            return back
        out = np.zeros((self.segments.K, self.n))
        if self._unique:
            out[:, self._order] = back
        else:
            np.add.at(out, (slice(None), self._order), back)
        return out

    def gram(self, weights):
        if self.m == 1 and self._order is None:
            return self.segments.gram(self.coefficients, weights[:, 0])
        return self.pairs(lambda r, s: weights, self.m)

    def pairs(self, weight, groups):
        """Σ weight(r, s) a_gr a_gsᵀ over the rows r, s of each group g, weight(r, s) (N, groups): (K, n, n)."""
        out, columns = np.zeros((self.segments.K, self.n, self.n)), self.columns.reshape(groups, -1, self.p)
        before = None
        for r, s in combinations_with_replacement(range(columns.shape[1]), 2):
            for own, some in zip(weight(r, s).T, columns, strict=True):
                if before is None or not np.array_equal(own, before):
                    block, before = self.segments.gram(self.coefficients, own), own
                for a, b in {(r, s), (s, r)}:
                    np.add.at(out, (slice(None), some[a][:, None], some[b][None, :]), block)
        return out


class RowDesign(Design):
    """Any other map of record data: one sparse row for each entry of each record's form."""

    def __init__(self, coefficients, row, column, m, segments, n):
        self.segments, self.m, self.n = segments, m, n
        self.coefficients, self.row, self.columns = coefficients, row, column
        self.has_gram = not sp.issparse(coefficients)
        N, K = segments.N, segments.K
        coo = sp.coo_array(coefficients)
        (record, term), data = coo.coords, coo.data
        rows = record.astype(np.int64) * m + row[term]
        columns = segments.index[record] * np.int64(n) + column[term]
        self._a = sp.csr_array((data, (rows, columns)), shape=(N * m, K * n))

    def matvec(self, theta):
        return (self._a @ theta.reshape(-1)).reshape(-1, self.m)

    def rmatvec(self, g):
        return (self._a.T @ g.reshape(-1)).reshape(self.segments.K, self.n)

    def gram(self, weights):
        out = np.zeros((self.segments.K, self.n, self.n))
        for r in range(self.m):
            terms = np.flatnonzero(self.row == r)
            columns = self.columns[terms]
            block = self.segments.gram(self.coefficients[:, terms], weights[:, r])
            np.add.at(out, (slice(None), columns[:, None], columns[None, :]), block)
        return out
