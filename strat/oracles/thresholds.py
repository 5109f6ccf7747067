"""Projections onto simplices and balls, and the thresholds to which they reduce.

All functions except those in a metric t work along the last axis, for any leading axes at once.
"""

import numpy as np


def excess_level(u, total):
    """τ with Σ max(u − τ, 0) = total, for total >= 0 (Held, Wolfe and Crowder 1974)."""
    ordered = -np.sort(-u, axis=-1)
    sums = np.cumsum(ordered, axis=-1) - np.asarray(total)[..., None]
    count = np.arange(1, u.shape[-1] + 1)
    above = np.maximum((ordered * count > sums).sum(axis=-1), 1)
    return _entries(sums, above - 1) / above


def water_level(v, t, total):
    """l with sum max(0, v + l t) = total > 0, for t > 0, by Newton's method: the active set only shrinks (Michelot 1986)."""
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


def onto_l1_ball(u, radius):
    """Projection on {‖z‖₁ <= radius}."""
    size, radius = np.abs(u), np.asarray(radius, dtype=float)
    outside = size.sum(axis=-1) > radius
    if not outside.any():
        return u.copy()
    level = np.where(outside, excess_level(size, np.maximum(radius, 0.0)), 0.0)[..., None]
    return np.sign(u) * np.maximum(size - level, 0.0)


def _entries(values, index):
    """values[..., index], one index for each row: `np.take_along_axis`, but faster for few rows."""
    rows = np.arange(index.size).reshape(index.shape)
    return values.reshape(-1)[rows * values.shape[-1] + index]


def onto_l2_ball(u, radius):
    """Projection on {‖z‖₂ <= radius}."""
    size = np.sqrt((u * u).sum(axis=-1))
    radius = np.broadcast_to(radius, size.shape)
    return u * np.where(size > radius, radius / np.where(size > 0, size, 1.0), 1.0)[..., None]


def balance(c, a, w, low, high, b):
    """ν with Σ a clip(c − w a ν, low, high) = b, a not 0, w > 0: exact, the sum being piecewise linear in ν."""
    c, a, w, low, high = np.broadcast_arrays(c, a, w, low, high)
    slope = w * a
    with np.errstate(invalid="ignore", over="ignore"):
        ends = np.sort(np.concatenate([(c - low) / slope, (c - high) / slope], axis=-1), axis=-1)

        def total(level):
            return (a * np.minimum(np.maximum(c - slope * level[..., None], low), high)).sum(axis=-1)

        # The sum decreases in ν: bisect the sorted ends of its pieces, then solve the linear equation on one piece.
        first, last = np.full(c.shape[:-1], -1), np.full(c.shape[:-1], ends.shape[-1])
        for _ in range(int(np.ceil(np.log2(ends.shape[-1] + 2)))):
            middle = np.clip((first + last) // 2, 0, ends.shape[-1] - 1)
            above = total(_entries(ends, middle)) >= b
            open_ = last - first > 1
            first, last = np.where(open_ & above, middle, first), np.where(open_ & ~above, middle, last)
        end = np.full((*c.shape[:-1], 1), np.inf)
        padded = np.concatenate([-end, ends, end], axis=-1)
        left, right = _entries(padded, first + 1), _entries(padded, last + 1)
        open_ended = np.isinf(left) | np.isinf(right)
        between = np.where(open_ended, np.clip(0.0, left + 1.0, right - 1.0), 0.5 * left + 0.5 * right)
        x = c - slope * between[..., None]
        inside = (x > low) & (x < high)
        fixed = np.where(inside, c, np.where(x <= low, low, high))
        weight = np.where(inside, a * slope, 0.0).sum(axis=-1)
        level = ((a * fixed).sum(axis=-1) - b) / np.where(weight > 0, weight, 1.0)
    return np.clip(np.where(weight > 0, level, between), left, right)
