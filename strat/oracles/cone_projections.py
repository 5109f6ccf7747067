"""Projections on second-order, semidefinite and exponential cones, of many points, and (D + ridge I)⁻¹, D their derivatives."""

from functools import cache

import numpy as np

#: Exponents beyond which e^−x is nothing, most steps to the root of a projection on the exponential cone, and its accuracy.
BEYOND, STEPS, EXACT = 700.0, 100, 1e-15


def project_second_order(v):
    """The nearest points to v (…, d) with ‖x‖ <= h, v = (h, x)."""
    # (h, x) with r = ‖x‖ goes to (a, a x / r), a = (h + r)/2, unless r <= h or r <= −h.
    h, x, r = _polar(v)
    a = np.where(r <= h, h, np.maximum((h + r) / 2, 0.0))
    return np.concatenate([a[..., None], x * (np.minimum(a, r) / np.maximum(r, 1e-300))[..., None]], axis=-1)


def invert_second_order(v, ridge):
    """(D + ridge I)⁻¹ (…, d, d), D the derivative of `project_second_order` at v."""
    # D has the eigenvectors (1, e) and (1, −e), e = x / r, and all that are orthogonal to both.
    h, x, r = _polar(v)
    e = x / np.maximum(r, 1e-300)[..., None]
    up, down = 1 / ((h > -r) + ridge), 1 / ((h > r) + ridge)
    across = 1 / (np.clip((1 + h / np.maximum(r, 1e-300)) / 2, 0.0, 1.0) + ridge)
    inverse = np.empty((*v.shape, v.shape[-1]))
    inverse[..., 0, 0] = (up + down) / 2
    inverse[..., 0, 1:] = inverse[..., 1:, 0] = ((up - down) / 2)[..., None] * e
    inverse[..., 1:, 1:] = ((up + down) / 2 - across)[..., None, None] * e[..., :, None] * e[..., None, :]
    i = np.arange(1, v.shape[-1])
    inverse[..., i, i] += across[..., None]
    return inverse


def _polar(v):
    h, x = v[..., 0], v[..., 1:]
    return h, x, np.sqrt(np.vecdot(x, x))


def project_semidefinite(v):
    """The nearest upper triangles to v (…, d), with √2 off the diagonal, of matrices without eigenvalues below 0."""
    basis = _symmetric(v.shape[-1])
    size, U = np.linalg.eigh(np.tensordot(v, basis, 1))
    nearest = (U * np.maximum(size, 0.0)[..., None, :]) @ U.swapaxes(-1, -2)
    return np.tensordot(nearest, basis, ((-2, -1), (1, 2)))


def invert_semidefinite(v, ridge):
    """(D + ridge I)⁻¹ (…, d, d), D the derivative of `project_semidefinite` at v."""
    # In the basis of the eigenvectors D multiplies entry ij by (λ_i⁺ − λ_j⁺) / (λ_i − λ_j), which is 0 or 1 for equal signs.
    basis = _symmetric(v.shape[-1])
    size, U = np.linalg.eigh(np.tensordot(v, basis, 1))
    rows, columns = size[..., :, None], size[..., None, :]
    above, apart = np.maximum(rows, 0.0) + np.maximum(columns, 0.0), np.abs(rows) + np.abs(columns)
    entries = U.swapaxes(-1, -2)[..., None, :, :] @ basis @ U[..., None, :, :]
    weighted = entries / (above / np.maximum(apart, 1e-300) + ridge)[..., None, :, :]
    return np.einsum("...dij,...eij->...de", entries, weighted)


@cache
def _symmetric(d):
    """An orthonormal basis (d, p, p) of the symmetric matrices, d = p (p + 1) / 2, along their upper triangles by columns."""
    p, k = int(np.sqrt(2 * d)), np.arange(d)
    basis, (j, i) = np.zeros((d, p, p)), np.tril_indices(p)
    basis[k, i, j] = basis[k, j, i] = np.where(i == j, 1.0, np.sqrt(0.5))
    return basis


def project_exponential(v):
    """The nearest points to v (…, 3) with y e^(x/y) <= z, y > 0, or with x <= 0 <= z and y = 0, v = (x, y, z)."""
    p, (inside, flat, curved) = np.zeros(v.shape), _regions(v)
    p[inside] = v[inside]
    p[flat] = np.clip(v[flat], [-np.inf, 0.0, 0.0], [0.0, 0.0, np.inf])
    rho, a, _, top, _ = _roots(v[curved])
    p[curved] = np.column_stack([a * rho, a, top])
    return p


def invert_exponential(v, ridge):
    """(D + ridge I)⁻¹ (…, 3, 3), D the derivative of `project_exponential` at v."""
    D, (inside, flat, curved) = np.zeros((*v.shape, 3)), _regions(v)
    D[inside] = np.eye(3)
    D[flat] = (v[flat] * [-1.0, 0.0, 1.0] > 0)[:, :, None] * np.eye(3)
    # D turns changes of v = a p + c d into those of a p.
    rho, a, c, top, left = _roots(v[curved])
    low, high = np.exp(np.minimum(rho, 0.0)), np.exp(-np.maximum(rho, 0.0))
    p = np.column_stack([rho * high, high, low])
    d = np.column_stack([low, (1 - rho) * low, -high])
    turned = np.column_stack([a, -c, top + left])  # the derivative in rho
    changes = np.stack([p, turned, d], axis=2)
    images = np.stack([p, turned * [1, 0, 1] - left[:, None] * [0, 0, 1], np.zeros(p.shape)], axis=2)
    size = np.linalg.norm(changes, axis=1, keepdims=True)
    D[curved] = (images / size) @ np.linalg.inv(changes / size)
    return np.linalg.inv(D + ridge * np.eye(3))


def _regions(v):
    """Where v is in the exponential cone, where it goes to the side with y = 0, and where to the curved side."""
    x, y, z = np.moveaxis(v, -1, 0)
    flat = (x <= 0) & (y <= 0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = (y > 0) & (y * np.exp(x / y) <= z)
        polar = (x > 0) & (x * np.exp(y / x - 1) <= -z)
    return inside, flat, ~(inside | flat | polar)


def _roots(v):
    """(rho, a, c, a e^rho, c e^−rho) with v = a p + c d, a, c >= 0, p = (rho, 1, e^rho), d = (1, 1 − rho, −e^−rho).

    p is a ray of the curved side, d the normal to it there (Friberg 2023). The first two equations give a and c for each rho,
    the third one is increasing in rho, and Newton steps or halves of the interval lead to its root.
    """
    x, y, z = v.T
    with np.errstate(divide="ignore", invalid="ignore"):
        first, last = np.where(x > 0, 1 - y / x, -np.inf), np.where(y > 0, x / y, np.inf)  # a = 0 and c = 0
    low, high = np.maximum(first, np.minimum(last, -BEYOND)), np.minimum(last, np.maximum(first, BEYOND))
    rho, before = np.clip(0.0, low, high), np.inf
    for _ in range(STEPS):
        # q a and q c with q = 1 − rho + rho², and the third equation, times q e^−|rho|
        small, q, a, c = np.exp(-np.abs(rho)), 1 - rho + rho**2, y + (rho - 1) * x, x - rho * y
        up, down = np.where(rho > 0, 1.0, small**2), np.where(rho > 0, small**2, 1.0)
        left = a * up - c * down - q * z * small
        rounding = (np.abs(y) + np.abs((rho - 1) * x)) * up + (np.abs(x) + np.abs(rho * y)) * down
        rounding += np.abs(q * z) * small
        turn = np.where(rho > 0, 2 * c * down + q * z * small, 2 * a * up - q * z * small)
        slope = x * up + y * down + turn - (2 * rho - 1) * z * small
        low, high = np.where(left < 0, rho, low), np.where(left > 0, rho, high)
        done = (np.abs(left) <= EXACT * rounding) | (high - low <= EXACT * (1 + np.abs(rho)))
        if done.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            after = rho - left / slope
        fast = (after > low) & (after < high) & (np.abs(left) < before / 2)
        middle = np.sinh((np.arcsinh(low) + np.arcsinh(high)) / 2)
        rho, before = np.where(done, rho, np.where(fast, after, middle)), np.abs(left)
    q = 1 - rho + rho**2
    a, c = np.maximum((y + (rho - 1) * x) / q, 0.0), np.maximum((x - rho * y) / q, 0.0)
    small = np.exp(-np.abs(rho))
    top = np.where(rho > 0, np.maximum(z + c * small, 0.0), a * small)
    left = np.where(rho > 0, c * small, np.maximum(top - z, 0.0))
    return rho, a, c, top, left
