"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences."""

import itertools

import numpy as np

from strat.oracles import kernels
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
        curvature = np.asarray(1.0 / np.asarray(t, dtype=float))
        parts = (
            self._rows(np.atleast_1d(curvature), K, G),
            self._rows(self.up, K, G),
            self._rows(self.down, K, G),
        )
        z = path_prox(v.reshape(-1, L), *parts).reshape(K, G, L)
        z = z + self.shift if np.any(self.shift) else z
        if self.l1 is not None:
            z = z - np.clip(z, -t * self.l1, t * self.l1)
        if self.low is not None:
            z = np.clip(z, self.low, self.high)
        return z.reshape(K, -1)

    @staticmethod
    def _rows(part, K, G):
        """A number or an array (K or 1, G, m) for each path: one row where all paths have the same."""
        if part.size == part.shape[-1]:
            return part.reshape(1, -1)
        return np.broadcast_to(part, (K, G, part.shape[-1])).reshape(K * G, -1)


def path_prox(v, curvature, up, down, rounds=30):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row of v (P, L).

    The others are (P or 1, L or 1) and (P or 1, L − 1). By active sets, all rows at once: guess which neighbours are
    equal, solve, and correct the guess from the multipliers of the equal ones and the jumps of the others
    (Hintermüller, Ito and Kunisch 2003, The primal-dual active set strategy as a semismooth Newton method). What does
    not settle is left to dynamic programming.
    """
    if kernels.compiled:
        return kernels.compiled.path_prox(v, curvature, up, down)
    z, left = np.empty(v.shape), np.arange(len(v))
    paths = _Paths(v, curvature, up, down)
    for _ in range(rounds):
        here, open_ = paths.step()
        if not open_.any():
            z[left] = here.T
            return z
        if open_.mean() < 0.9:
            z[left[~open_]] = here[:, ~open_].T
            keep = np.flatnonzero(open_)
            left = left[keep]
            paths.keep(keep)
    P, L = len(left), v.shape[1]
    curvature, up, down = (
        np.broadcast_to(part if len(part) == 1 else part[left], (P, m))
        for part, m in ((curvature, L), (up, L - 1), (down, L - 1))
    )
    z[left] = by_dynamic_programming(v[left], curvature, up, down)
    return z


class _Paths:
    """A guess of which neighbours rise, fall or are equal. Paths are columns, so that neighbours are whole rows."""

    def __init__(self, v, curvature, up, down):
        v, self.curvature = np.ascontiguousarray(v.T), np.ascontiguousarray(curvature.T)
        self.load = self.curvature * v
        gap, inverse = v[1:] - v[:-1], 1.0 / self.curvature
        # What each pair of neighbours would do by itself.
        room = 2.0 * inverse if len(inverse) == 1 else inverse[1:] + inverse[:-1]
        slack = 1e-13 * (1.0 + np.abs(self.load).max(axis=0))
        self.jumps, self.slopes, self.ends, self.signs = [], [], [], []
        for sign, slope in ((1.0, up.T), (-1.0, down.T)):
            finite = np.isfinite(slope)
            if finite.any():  # no pair ever reaches an infinite slope
                self.jumps.append(sign * gap > slope * room)
                self.slopes.append(sign * np.where(finite, slope, 0.0))
                self.ends.append(sign * (slope + slack))
                self.signs.append(sign)

    def keep(self, columns):
        """Go on with some paths."""
        self.load, self.curvature = self.load[:, columns], _some(self.curvature, columns)
        self.jumps, self.slopes, self.ends = (
            [_some(part, columns) for part in parts] for parts in (self.jumps, self.slopes, self.ends)
        )

    def step(self):
        """The best z for the guess (L, P), and the paths whose guess had to be corrected."""
        z, y = self._solved()
        step, wrong = z[1:] - z[:-1], np.zeros(z.shape[1], dtype=bool)
        for i, sign in enumerate(self.signs):
            jump, end = self.jumps[i], self.ends[i]
            # A jump must go its way, and equal neighbours must not pull harder than the slope.
            if sign > 0:
                self.jumps[i] = (jump & (step > 0)) | (~jump & (y > end))
            else:
                self.jumps[i] = (jump & (step < 0)) | (~jump & (y < end))
            wrong |= (self.jumps[i] != jump).any(axis=0)
        return z, wrong

    def _solved(self):
        """The best z with neighbours equal except where they jump (L, P), and its multipliers (L − 1, P)."""
        L, P = self.load.shape
        segment, total = np.empty((L, P), dtype=np.intp), self.load.copy()
        segment[0], segment[1:] = np.arange(P) * L, sum(self.jumps, np.zeros((1, 1), dtype=bool))
        for jump, slope in zip(self.jumps, self.slopes, strict=True):
            if slope.any():
                push = slope * jump
                total[:-1] += push
                total[1:] -= push
        segment = _running_sums(segment).reshape(-1)
        if self.curvature.size == 1:
            weight = self.curvature.item() * np.bincount(segment, minlength=L * P)
        else:
            curvature = np.broadcast_to(self.curvature, (L, P)).reshape(-1)
            weight = np.bincount(segment, curvature, minlength=L * P)
        mean = np.bincount(segment, total.reshape(-1), minlength=L * P)
        mean /= np.maximum(weight, np.finfo(float).tiny)
        z = mean.take(segment).reshape(L, P)
        return z, _running_sums(self.curvature * z - self.load)[:-1]


def _some(part, columns):
    return part if part.shape[1] == 1 else part[:, columns]


def _running_sums(rows):
    """Sums over the rows so far, in place; one addition a row is fast where rows are long."""
    if rows.shape[1] < 256:
        return np.cumsum(rows, axis=0, out=rows)
    for before, row in itertools.pairwise(rows):
        row += before
    return rows
