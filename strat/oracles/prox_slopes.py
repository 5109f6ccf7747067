"""Derivatives of the proximal maps of groups of numbers, (…, L) points to (…, L, L): one element of Clarke's Jacobian.

All are symmetric with eigenvalues between 0 and 1, as those of every proximal map are.
"""

import numpy as np


def tied(free, signs, factor=1.0):
    """Entries that move freely, and entries tied to one level, with their signs (0 for those that are not)."""
    count = np.abs(signs).sum(axis=-1)[..., None, None]
    out = signs[..., :, None] * signs[..., None, :] * (factor / np.maximum(count, 1.0))
    diagonal = np.arange(free.shape[-1])
    out[..., diagonal, diagonal] += free
    return out


def diagonal(free):
    """Entries that move freely or not at all."""
    return tied(free, np.zeros(free.shape))


def shrunk_length(u, z):
    """Of z = r(‖u‖) u with ‖z‖ = ‖u‖ − step: r I + (1 − r) û ûᵀ."""
    return _radial(u, z, 1.0)


def scaled_length(u, z):
    """Of the projection on a ball: r (I − û ûᵀ) outside, I inside."""
    return _radial(u, z, 0.0)


def _radial(u, z, along):
    square = (u * u).sum(axis=-1)
    safe = np.where(square > 0, square, 1.0)
    ratio = np.sqrt((z * z).sum(axis=-1) / safe)
    same = (u == z).all(axis=-1)
    ratio = np.where(same, 1.0, ratio)
    turn = np.where(same | (ratio == 0), 0.0, (along - ratio) / safe)
    out = u[..., :, None] * u[..., None, :] * turn[..., None, None]
    place = np.arange(u.shape[-1])
    out[..., place, place] += ratio[..., None]
    return out


def on_eigenvalues(matrix, out, inner):
    """Of V diag(g(λ)) Vᵀ = out for symmetric matrices V diag(λ) Vᵀ, in C order: (…, d, d) to (…, d², d²).

    ``inner(values, changed)`` is the derivative of g at λ (Daleckii and Krein's divided differences between).
    """
    values, vectors = np.linalg.eigh(matrix)
    changed = np.einsum("...ik,...ij,...jk->...k", vectors, out, vectors)
    slopes, d = inner(values, changed), matrix.shape[-1]
    weights = _divided(values, changed, slopes)
    pairs = vectors[..., :, None, :, None] * vectors[..., None, :, None, :]
    basis = pairs.reshape(*matrix.shape[:-2], d * d, d * d)
    return _assembled(basis, weights.reshape(*weights.shape[:-2], -1), slopes, np.arange(d) * (d + 1))


def on_singular_values(matrix, out, inner):
    """The same of U diag(g(s)) Vᵀ = out for any matrices: (…, m, n) to (…, mn, mn)."""
    m, n = matrix.shape[-2:]
    if m > n:
        flipped = on_singular_values(np.swapaxes(matrix, -1, -2), np.swapaxes(out, -1, -2), inner)
        order = np.arange(m * n).reshape(n, m).T.reshape(-1)
        return flipped[..., order[:, None], order]
    left, values, right = np.linalg.svd(matrix)
    changed = np.einsum("...ik,...ij,...kj->...k", left, out, right[..., :m, :])
    slopes = inner(values, changed)
    even = _divided(values, changed, slopes)  # on the symmetric part of Uᵀ H V, and on the rest of it:
    total = values[..., :, None] + values[..., None, :]
    both = changed[..., :, None] + changed[..., None, :]
    own = np.diagonal(slopes, axis1=-2, axis2=-1)
    odd = np.where(total > 0, both / np.where(total > 0, total, 1.0), own[..., :, None])
    outer = np.where(values > 0, changed / np.where(values > 0, values, 1.0), own)
    pairs = left[..., :, None, :, None] * np.swapaxes(right, -1, -2)[..., None, :, None, :]
    square, rest = pairs[..., :m], pairs[..., m:]
    turned = np.swapaxes(square, -1, -2)
    upper = np.triu(np.ones((m, m), dtype=bool))
    lead = matrix.shape[:-2]
    # (u_i v_jᵀ + u_j v_iᵀ)/√2 above the diagonal and on it, the difference below.
    basis = np.where(upper, square + turned, square - turned) / np.sqrt(2.0)
    place = np.arange(m)
    basis[..., place, place] /= np.sqrt(2.0)
    basis = basis.reshape(*lead, m * n, m * m)
    weights = np.where(upper, even, odd).reshape(*lead, m * m)
    if n > m:
        basis = np.concatenate([basis, rest.reshape(*lead, m * n, m * (n - m))], axis=-1)
        weights = np.concatenate([weights, np.repeat(outer, n - m, axis=-1)], axis=-1)
    return _assembled(basis, weights, slopes, place * (m + 1))


def _divided(values, changed, slopes):
    """(g_i − g_j)/(x_i − x_j), the derivative along the difference where the two are equal."""
    gap = values[..., :, None] - values[..., None, :]
    rise = changed[..., :, None] - changed[..., None, :]
    own = np.diagonal(slopes, axis1=-2, axis2=-1)
    along = 0.5 * (own[..., :, None] + own[..., None, :]) - slopes
    near = np.abs(gap) <= 1e-12 * (1.0 + np.abs(values).max(axis=-1))[..., None, None]
    return np.clip(np.where(near, along, rise / np.where(near, 1.0, gap)), 0.0, 1.0)


def _assembled(basis, weights, slopes, diagonal):
    """basis diag(weights) basisᵀ, with a full block for the columns ``diagonal``."""
    weights = weights.copy()
    weights[..., diagonal] = 0.0
    own = basis[..., diagonal]
    back = np.swapaxes(basis, -1, -2)
    return (basis * weights[..., None, :]) @ back + own @ slopes @ np.swapaxes(own, -1, -2)
