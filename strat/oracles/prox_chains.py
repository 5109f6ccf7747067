"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences."""

import numpy as np

from strat.oracles.path_dynamic import by_dynamic_programming
from strat.oracles.prox_base import Grouped


class ChainBlock(Grouped):
    """Σ up · (z₊ − z)₊ + down · (z − z₊)₊ of shifted neighbours; infinite slopes make constraints.

    An absolute value (the same for all coordinates of a path) and an interval are added exactly afterwards, since
    they keep the order of the entries.

    Parameters
    ----------
    groups : (G, L) int ndarray
        Coordinates, in the order of the path.
    q, Q : (K or 1, G, L) ndarray
    shift : (G, L) ndarray
        The differences are those of z − shift.
    up, down : (K or 1, G, L − 1) ndarray
        Slopes for rising and falling.
    l1, low, high : (K or 1, G, L) ndarray or None
    """

    axes = {"groups": 0, "q": 1, "Q": 1, "shift": 0, "up": 1, "down": 1, "l1": 1, "low": 1, "high": 1}

    def __init__(self, groups, q, Q, shift, up, down, l1, low, high):
        self.groups, self.q, self.Q, self.shift = groups, q, Q, shift
        self.up, self.down, self.l1, self.low, self.high = up, down, l1, low, high

    @property
    def signature(self):
        """Equal for blocks that can be joined."""
        limits = np.isinf(self.up[0, 0]).tobytes(), np.isinf(self.down[0, 0]).tobytes()
        return (type(self).__name__, self.groups.shape[1], *limits, self.l1 is None, self.low is None)

    def __call__(self, v, t):
        K, (G, L) = len(v), self.groups.shape
        v, t = self._fold(v, t)
        v = np.broadcast_to(v, (K, G, L)) - self.shift
        curvature = np.broadcast_to(1.0 / np.asarray(t, dtype=float), (K, G, L)).reshape(-1, L)
        up, down = (np.broadcast_to(part, (K, G, L - 1)).reshape(-1, L - 1) for part in (self.up, self.down))
        z = path_prox(v.reshape(-1, L), curvature, up, down).reshape(K, G, L)
        z = z + self.shift if np.any(self.shift) else z
        if self.l1 is not None:
            z = z - np.clip(z, -t * self.l1, t * self.l1)
        if self.low is not None:
            z = np.clip(z, self.low, self.high)
        return z.reshape(K, -1)


def path_prox(v, curvature, up, down, rounds=30):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row: (P, L) arrays to (P, L).

    By active sets, all rows at once: guess which neighbours are equal, solve, and correct the guess from the
    multipliers of the equal ones and the jumps of the others (Hintermüller, Ito and Kunisch 2003, The primal-dual
    active set strategy as a semismooth Newton method). What does not settle is left to dynamic programming.
    """
    P, L = v.shape
    z, left = np.empty((P, L)), np.arange(P)
    load = curvature * v
    gap, room = np.diff(v, axis=1), 1.0 / curvature[:, 1:] + 1.0 / curvature[:, :-1]
    rise, fall = gap > up * room, gap < -down * room  # what each pair of neighbours would do by itself
    slack = 1e-13 * (1.0 + np.abs(load).max(axis=1, keepdims=True))
    # No pair ever reaches an infinite slope, which stands as 0 where slopes are added up.
    finite = (np.where(np.isfinite(part), part, 0.0) for part in (up, -down))
    parts = (load, curvature, *finite, up + slack, -down - slack)
    for _ in range(rounds):
        here, y = _with_jumps(rise, fall, *parts[:4])
        step, equal = np.diff(here, axis=1), ~(rise | fall)
        rising = (rise & (step > 0)) | (equal & (y > parts[4]))
        falling = (fall & (step < 0)) | (equal & (y < parts[5]))
        open_ = ((rising != rise) | (falling != fall)).any(axis=1)
        if not open_.any():
            z[left] = here
            return z
        rise, fall = rising, falling
        if open_.mean() < 0.9:
            z[left[~open_]] = here[~open_]
            left, rise, fall, parts = (
                left[open_],
                rise[open_],
                fall[open_],
                tuple(part[open_] for part in parts),
            )
    z[left] = by_dynamic_programming(v[left], curvature[left], up[left], down[left])
    return z


def _with_jumps(rise, fall, load, curvature, up, down):
    """The best z with neighbours equal except where they rise or fall, and its multipliers (P, L − 1)."""
    P, L = load.shape
    first = np.ones((P, L), dtype=bool)
    np.logical_or(rise, fall, out=first[:, 1:])
    segment = np.cumsum(first.reshape(-1)) - 1
    push = up * rise + down * fall
    total = load.copy()
    total[:, :-1] += push
    total[:, 1:] -= push
    mean = np.bincount(segment, total.reshape(-1)) / np.bincount(segment, curvature.reshape(-1))
    z = mean.take(segment).reshape(P, L)
    y = curvature * z
    y -= load
    return z, np.cumsum(y, axis=1, out=y)[:, :-1]
