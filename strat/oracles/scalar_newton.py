"""Roots of increasing functions of one number, many at once, to rounding."""

import numpy as np


def safeguarded(residual, start, v, t, low, high):
    """z in [low, high] nearest to the root of a function that rises at least by 1/t a unit.

    Parameters
    ----------
    residual : callable
        ``residual(z)`` gives the function's value and slope, (z − v)/t among them.
    start, v, t, low, high : ndarray
        Of one shape; the start is used where it lies between the bounds, and v or a point between them elsewhere.
    """

    def read(z):
        value, slope = residual(z)
        return np.where(np.isnan(value), 0.0, value), slope

    width = np.where(np.isfinite(high - low), high - low, 2.0 * np.maximum(1.0, np.sqrt(t)))
    inner = np.where(np.isfinite(low), low + 0.5 * width, np.where(np.isfinite(high), high - 0.5 * width, v))
    z = np.where((v > low) & (v < high), v, inner)
    z = np.where((start > low) & (start < high), start, z)
    f, slope = read(z)
    # The residual grows at least by 1/t a unit, so the root lies within t |f| of any point.
    a = np.where(f > 0, np.maximum(low, z - t * f), z)
    b = np.where(f < 0, np.minimum(high, z - t * f), z)
    low_end, high_end = (a == low) & np.isfinite(low), (b == high) & np.isfinite(high)
    at_low, at_high = (f > 0) & low_end, (f < 0) & high_end
    if at_low.any():
        at_low &= read(np.where(low_end, low, z))[0] >= 0
    if at_high.any():
        at_high &= read(np.where(high_end, high, z))[0] <= 0
    done = at_low | at_high | _nothing(f, z, v, t)
    z = np.where(at_low, low, np.where(at_high, high, z))
    last, bounded = np.full(v.shape, np.inf), np.isfinite(low).any()
    for iteration in range(200):
        if done.all():
            break
        trial = z - f / slope
        # Newton steps must at least halve, or the bracket is halved instead (rtsafe, Press et al. 2007, §9.4).
        inside = (trial > a) & (trial < b) & (np.abs(trial - z) <= 0.5 * last)
        # Where a slope overflowed, one end of the bracket is still infinite: go there in doubling steps.
        far = np.where(np.isinf(a), b, a) + np.where(np.isinf(a), -1.0, 1.0) * 2.0 ** min(iteration, 1000)
        middle = np.where(np.isfinite(b - a), 0.5 * a + 0.5 * b, far)
        if bounded:  # the root may be at any order of distance from the end of a domain
            near, wide = a - low, b - low
            order = np.where(near > 0, np.sqrt(near) * np.sqrt(wide), wide * 0.5 ** min(2**iteration, 1000))
            middle = np.where(np.isfinite(wide) & (wide > 16.0 * near), low + order, middle)
        # Short steps down to the size of rounding: bisection would only follow noise.
        ended = (np.abs(trial - z) <= 4e-15 * np.abs(z)) & (last <= 1e-7 * np.abs(z))
        new = np.where(done, z, np.where(inside | ended, trial, middle))
        done |= ended
        last = np.abs(new - z)
        done |= last <= 4e-16 * np.abs(new)
        z = new
        if done.all():
            break
        f, slope = read(z)
        a, b = np.where(f < 0, z, a), np.where(f > 0, z, b)
        done |= _nothing(f, z, v, t) | (
            np.isfinite(b - a) & (b - a <= 2e-16 * np.maximum(np.abs(a), np.abs(b)))
        )
    return z


def _nothing(f, z, v, t):
    """Whether a residual, (z − v)/t being a part of it, is 0 up to rounding."""
    return np.abs(f) <= 4e-16 * (np.abs(z) + np.abs(v)) / t
