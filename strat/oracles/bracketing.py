"""Roots of decreasing functions of one number in [0, 1], many at once."""

import numpy as np

ROUNDS = 80


def decreasing_root(function, K):
    """Find each function's root, or the end of [0, 1] that is nearest to one.

    The method of Illinois, with the factors of Anderson and Björck (1973, A new high order method of regula falsi type for
    computing a root of an equation), and a bisection where the bracket shrinks slowly.

    Parameters
    ----------
    function : callable
        ``function(x, which)`` gives the values at x of the functions `which`, and what counts as 0 of each. It is called
        with the root of each function last.
    K : int

    Returns
    -------
    found : (K,) bool ndarray
        Not where a function is nan at an end.
    """
    left = np.arange(K)
    high = np.ones(K)
    at_high, _ = function(high, left)
    left = left[~(at_high >= 0)]
    found = np.ones(K, dtype=bool)
    if not len(left):
        return found
    low, high, at_high = np.zeros(len(left)), high[left], at_high[left]
    at_low, _ = function(low, left)
    found[left] = ~(np.isnan(at_low) | np.isnan(at_high))
    keep = ~(at_low <= 0) & found[left]
    left, low, high, at_low, at_high = (part[keep] for part in (left, low, high, at_low, at_high))
    width, side = np.ones(len(left)), np.zeros(len(left))
    for round_ in range(ROUNDS):
        if not len(left):
            return found
        with np.errstate(all="ignore"):
            x = high - at_high * (high - low) / (at_high - at_low)
        # Roots near 0 may be of any order.
        order = np.where(low > 0, np.sqrt(low) * np.sqrt(high), high * 0.5 ** min(2**round_, 1000))
        middle = np.where(high > 16.0 * low, order, 0.5 * (low + high))
        slow = (round_ % 3 == 2) & (high - low > 0.5 * width)
        x = np.where(np.isfinite(x) & (x > low) & (x < high) & ~slow, x, middle)
        if round_ % 3 == 2:
            width = high - low
        value, noise = function(x, left)
        done = (np.abs(value) <= noise) | (high - low <= 4e-16 * high)
        above = value > 0
        with np.errstate(all="ignore"):
            factor = 1.0 - value / np.where(above, at_low, at_high)
        # An end that stays where it was twice counts for less.
        factor = np.where(side == np.where(above, 1.0, -1.0), np.where(factor > 0, factor, 0.5), 1.0)
        side = np.where(above, 1.0, -1.0)
        low, high, at_low, at_high = (
            np.where(above, x, low),
            np.where(above, high, x),
            np.where(above, value, at_low * factor),
            np.where(above, at_high * factor, value),
        )
        keep = ~done
        left, low, high, at_low, at_high, width, side = (
            part[keep] for part in (left, low, high, at_low, at_high, width, side)
        )
    found[left] = False
    return found
