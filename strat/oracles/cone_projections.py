"""Projections of points onto second-order, semidefinite and exponential cones, and (D + ridge I)⁻¹, D their derivatives."""

from functools import cache

import numpy as np

#: Exponent beyond which e^−x is negligible, most steps to the root in a projection onto the exponential cone, its accuracy.
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
    across = 1 / (np.clip((1 + h / np.maximum(r, 1e-300)) / 2, 0.0, 1.0) + ridge)
    inverse = across[..., None, None] * np.eye(v.shape[-1])
    for sign in (1, -1):
        p = np.concatenate([np.ones((*h.shape, 1)), sign * x / np.maximum(r, 1e-300)[..., None]], axis=-1)
        more = (1 / ((h > -sign * r) + ridge) - across) / 2
        inverse += more[..., None, None] * p[..., :, None] * p[..., None, :]
    return inverse


def _polar(v):
    h, x = v[..., 0], v[..., 1:]
    return h, x, np.sqrt(np.vecdot(x, x))


def project_semidefinite(v):
    """The nearest upper triangles to v (…, d), multiplied by √2 off the diagonal, of positive semidefinite matrices."""
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
    # On the curved side D maps p to p, d to 0, and p x d to a multiple of p x d, as D is symmetric, p and d orthogonal.
    U, values = np.tile(np.eye(3), (*v.shape[:-1], 1, 1)), np.zeros(v.shape)
    inside, flat, curved = _regions(v)
    values[inside], values[flat] = 1.0, v[flat] * [-1.0, 0.0, 1.0] > 0
    rho, a, c, top, left = _roots(v[curved])
    low, high, small = np.exp(np.minimum(rho, 0.0)), np.exp(-np.maximum(rho, 0.0)), np.exp(-np.abs(rho))
    p = np.column_stack([rho * high, high, low])
    d = np.column_stack([low, (1 - rho) * low, -high])
    p, d = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (p, d))
    # As rho changes, v moves along p x d by the changes of a p, which D keeps, and of c d; here both times e^−|rho|.
    kept, lost = a * high**2 + top * small * (1 + (1 - rho) ** 2), c * low**2 + left * small * (1 + rho**2)
    values[curved] = np.stack([0 * rho + 1, 0 * rho, kept / np.maximum(kept + lost, 1e-300)], axis=1)
    U[curved] = np.stack([p, d, np.cross(p, d)], axis=2)
    return (U / (values + ridge)[..., None, :]) @ U.mT


def _regions(v):
    """Masks of the v in the exponential cone, of those projected onto its side with y = 0, and onto its curved side."""
    x, y, z = np.moveaxis(v, -1, 0)
    flat = (x <= 0) & (y <= 0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = (y > 0) & (y * np.exp(x / y) <= z)
        polar = (x > 0) & (x * np.exp(y / x - 1) <= -z)
    return inside, flat, ~(inside | flat | polar)


def _roots(v):
    """(rho, a, c, a e^rho, c e^−rho) with v = a p + c d, a, c >= 0, p = (rho, 1, e^rho), d = (1, 1 − rho, −e^−rho).

    p is a ray of the curved side, d the normal to it there (Friberg 2023). The first two equations give a and c for each rho,
    the third one is increasing in rho, and Newton steps or bisection find its root.
    """
    x, y, z = v.T
    with np.errstate(divide="ignore", invalid="ignore"):
        first, last = np.where(x > 0, 1 - y / x, -np.inf), np.where(y > 0, x / y, np.inf)  # a = 0 and c = 0
    low, high = np.maximum(first, np.minimum(last, -BEYOND)), np.minimum(last, np.maximum(first, BEYOND))
    # These are of the points k whose root is not found yet; `root` is of all points.
    k, rho, before = np.arange(len(v)), np.clip(0.0, low, high), np.full(len(v), np.inf)
    root = np.empty(len(v))
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
        root[k] = rho
        if done.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            after = rho - left / slope
        fast = (after > low) & (after < high) & (np.abs(left) < before / 2)
        middle = np.sinh((np.arcsinh(low) + np.arcsinh(high)) / 2)
        left_over = k, x, y, z, low, high, np.where(fast, after, middle), np.abs(left)
        k, x, y, z, low, high, rho, before = (each[~done] for each in left_over)
    (x, y, z), rho = v.T, root
    q = 1 - rho + rho**2
    a, c = np.maximum((y + (rho - 1) * x) / q, 0.0), np.maximum((x - rho * y) / q, 0.0)
    small = np.exp(-np.abs(rho))
    top = np.where(rho > 0, np.maximum(z + c * small, 0.0), a * small)
    left = np.where(rho > 0, c * small, np.maximum(top - z, 0.0))
    return rho, a, c, top, left
