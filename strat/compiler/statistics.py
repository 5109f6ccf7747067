"""Sufficient statistics: what of a loss can be summed over the records of a stratum once and for all."""

import numpy as np
import scipy.sparse as sp

from strat.oracles.design import GatheredDesign, SharedDesign
from strat.oracles.quadratic import Quadratic


def stratum_sums(values, weight, segments):
    """Σ weight × values over each stratum's records: (R, T) values, R = N or 1, to (K, T)."""
    if segments is None:
        return np.asarray(values, dtype=float)
    if values.shape[0] == 1 and segments.N != 1:
        totals = segments.sum(weight[:, None])
        return totals * (values.toarray() if sp.issparse(values) else values)
    if sp.issparse(values):
        index = segments.index
        gather = sp.csr_array((weight, (index, np.arange(len(index)))), shape=(segments.K, len(index)))
        return (gather @ values).toarray()
    return segments.sum(values * weight[:, None])


def least_squares(form, weights):
    """Σ weights × (form)² over records as one quadratic for each stratum; None where that is no gain.

    Parameters
    ----------
    form : BoundForm
        An affine form with rows on records.
    weights : (N, m) ndarray
    """
    design, segments = form.design, form.segments
    K, n = segments.K, design.n
    if K * n * n > max(design.nnz, segments.N) or design.m > 64:
        return None
    hessian = _gram(design, weights, segments)
    if hessian is None:
        return None
    hessian *= 2.0
    zero = np.zeros((K, n))

    def residual_sums(theta):
        residual = form.value(theta, {}).reshape(-1, form.m)
        return segments.sum((weights * residual**2).sum(axis=1)), 2.0 * design.rmatvec(weights * residual)

    # At the minimiser of a slightly regularized problem the residuals are small, and so is what cancels.
    ridge = 1e-9 * np.trace(hessian, axis1=1, axis2=2) / n + 1e-300
    _, slope = residual_sums(zero)
    centre = -np.linalg.solve(hessian + ridge[:, None, None] * np.eye(n), slope[..., None])[..., 0]
    centre[~np.isfinite(centre)] = 0.0
    c, g = residual_sums(centre)
    return Quadratic(c, g, hessian, centre)


def _gram(design, weights, segments):
    K, n = segments.K, design.n
    out = np.zeros((K, n, n))
    if isinstance(design, GatheredDesign):
        c = design.constant.dense()
        return np.einsum("km,ma,mb->kab", segments.sum(weights), c, c, optimize=True)
    if sp.issparse(design.coefficients):
        return None
    if isinstance(design, SharedDesign):
        equal = bool(np.all(weights == weights[:, :1]))
        blocks = [segment_gram(design.coefficients, weights[:, r], segments) for r in range(1 if equal else design.m)]
        for r, columns in enumerate(design.columns):
            np.add.at(out, (slice(None), columns[:, None], columns[None, :]), blocks[0 if equal else r])
        return out
    for r in range(design.m):
        terms = np.flatnonzero(design.row == r)
        columns = design.column[terms]
        block = segment_gram(design.coefficients[:, terms], weights[:, r], segments)
        np.add.at(out, (slice(None), columns[:, None], columns[None, :]), block)
    return out


def segment_gram(a, weight, segments):
    """Σ weight_i a_i a_iᵀ of each stratum: (N, p) to (K, p, p); strata of like size go together."""
    p = a.shape[1]
    out = np.zeros((segments.K, p, p))
    counts = segments.counts
    starts = np.cumsum(counts) - counts
    level = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    for size in np.unique(level[counts > 0]):
        strata = np.flatnonzero((level == size) & (counts > 0))
        length = int(counts[strata].max())
        batch = max(1, int(2**22 // max(length * p, 1)))
        for first in range(0, len(strata), batch):
            part = strata[first : first + batch]
            offsets = np.arange(length)
            inside = offsets < counts[part][:, None]
            rows = np.where(inside, starts[part][:, None] + offsets, 0)
            block = a[rows]
            out[part] = np.matmul(np.swapaxes(block, 1, 2), block * (weight[rows] * inside)[..., None])
    return out
