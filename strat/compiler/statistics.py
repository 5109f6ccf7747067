"""Sufficient statistics: what of a loss can be summed over the records of a stratum once and for all."""

import numpy as np
import scipy.sparse as sp

from strat.oracles.quadratic import Quadratic

#: Share of a column's squares about its mean below which sums of squares are no gain, and below which it is rounding.
SPREAD, ROUNDING = 1e-4, 1e-14


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
    if K * n * n > max(design.nnz, segments.N) or design.m > 64 or not design.dense:
        return None
    hessian = 2.0 * design.gram(weights)
    total = np.maximum(segments.sum(weights.sum(axis=1)), 1e-300)
    square = np.einsum("kaa->ka", hessian)
    left = square - 2.0 * design.rmatvec(weights) ** 2 / total[:, None]
    if np.any((left > ROUNDING * square) & (left < SPREAD * square)):
        return None  # a column is so far from 0 for its spread that the sums lose digits
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
    return Quadratic(c, g, hessian, centre, design.sizes())
