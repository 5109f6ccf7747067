"""Affine rows with functions on them: the parts of a sum Σ φ_i(a_iᵀz + offset_i) of one kind."""

import numpy as np
import scipy.sparse as sp

from strat.oracles.segments import Segments


class RowTerm:
    """Functions on the rows u = A z + offset.

    Parameters
    ----------
    design : object
        With ``matvec``, ``rmatvec`` and ``gram``.
    offset : (R or 1, m) ndarray
    functions : PiecewiseRows or ScalarRows
    segments : Segments or None
        The grouping of rows; None where rows are strata.
    norms : (R or 1, m) ndarray
        Norms of the rows; all distances and penalties are measured in multiples of them.
    """

    def __init__(self, design, offset, functions, segments, norms):
        self.design, self.offset, self.functions, self.segments = design, offset, functions, segments
        self.norms = np.where(norms > 0, norms, 1.0)

    def take(self, strata):
        """The rows of some strata; rows on strata only."""
        offset = self.offset if len(self.offset) == 1 else self.offset[strata]
        norms = self.norms if len(self.norms) == 1 else self.norms[strata]
        return RowTerm(self.design, offset, self.functions.take(strata), None, norms)

    def on_rows(self, values):
        """(K,) values at the rows, (R, 1)."""
        return (values if self.segments is None else values[self.segments.index])[:, None]

    def penalties(self, sigma):
        """(K,) penalties as those of the rows."""
        return self.on_rows(sigma) / self.norms**2

    def sums(self, values):
        """(R, m) to (K,)."""
        values = values.sum(axis=1)
        return values if self.segments is None else self.segments.sum(values)

    def largest(self, values):
        """Largest entry of each stratum in multiples of the rows' norms, (R, m) to (K,)."""
        values = (np.abs(values) / self.norms).max(axis=1, initial=0.0)
        if self.segments is None:
            return values
        out = np.zeros(self.segments.K)
        np.maximum.at(out, self.segments.index, values)
        return out

    def curvature(self, s, moves, sigma):
        """Σ σ (1 − slope of the prox) a aᵀ over each stratum's rows (K, n, n)."""
        return self.gram((1.0 - moves) * self.penalties(sigma))

    def gram(self, weights):
        """Σ weights a aᵀ over each stratum's rows (K, n, n); rows without weight are left out."""
        design, segments = self.design, self.segments
        if not design.dense:
            return sparse_gram(design, segments.K, weights)
        used = weights.any(axis=1)
        if segments is None or used.mean() > 0.5 or not hasattr(design, "coefficients"):
            return design.gram(weights)
        part = Segments(segments.index[used], segments.K)
        out = np.zeros((segments.K, design.n, design.n))
        for r in range(design.m):
            mine = slice(None) if hasattr(design, "p") else np.flatnonzero(design.row == r)
            columns = design.columns[r] if hasattr(design, "p") else design.column[mine]
            block = part.gram(design.coefficients[used][:, mine], weights[used, r])
            np.add.at(out, (slice(None), columns[:, None], columns[None, :]), block)
        return out


def sparse_gram(design, K, weights):
    """Σ weights a aᵀ over each stratum's rows for rows kept as one sparse matrix over all strata."""
    out, a = np.zeros((K, design.n, design.n)), design._a
    shared = hasattr(design, "p")
    for w, columns in (
        zip(weights.T, design.columns, strict=True) if shared else ((weights.reshape(-1), None),)
    ):
        used = np.flatnonzero(w)
        part = a[used]
        block = sp.coo_array(part.T @ sp.diags_array(w[used]) @ part)
        size = design.p if shared else design.n
        stratum, row = np.divmod(block.coords[0], size)
        column = block.coords[1] % size
        place = (stratum, columns[row], columns[column]) if shared else (stratum, row, column)
        np.add.at(out, place, block.data)
    return out


def row_norms(design):
    """Norms of the rows, (R or 1, m)."""
    if hasattr(design, "constant"):
        return row_norms(design.constant)
    if not design.on_records:
        return np.sqrt(np.asarray(abs(sp.csr_array(design._c)).power(2).sum(axis=1)).reshape(1, -1))
    squares = np.asarray(sp.csr_array(design._a).power(2).sum(axis=1))
    return np.sqrt(squares.reshape(design.segments.N, -1))
