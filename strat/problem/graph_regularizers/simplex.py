"""Projection on a simplex in a diagonal metric."""

import numpy as np


def water_level(v, t, total):
    """The number l with sum max(0, v + l t) = total > 0.

    Newton's method on a convex function, from the right. It ends because edges only leave the support (Michelot 1986).

    Parameters
    ----------
    v : ndarray, shape (E,)
    t : float or ndarray, shape (E,)
        Above 0.
    total : float
        Above 0.
    """
    t = np.broadcast_to(t, v.shape)
    while True:
        level = (total - v.sum()) / t.sum()
        inside = v > -level * t
        if inside.all() or not inside.any():
            return level
        v, t = v[inside], t[inside]


def onto_simplex(v, t, total):
    """argmin of sum (z - v)^2 / (2 t) over z >= 0 with sum z = total; shapes as in `water_level`."""
    if not total or not v.size:
        return np.zeros_like(v)
    v = v - np.max(v / t) * t  # the same problem, without the cancellation of large numbers
    z = np.maximum(v + water_level(v, t, total) * t, 0.0)
    return z * (total / z.sum())
