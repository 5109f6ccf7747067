"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from strat.oracles import kernels
from strat.oracles.prox_base import Grouped


@dataclass(eq=False)
class ChainBlock(Grouped):
    """Σ up · (z₊ − z)₊ + down · (z − z₊)₊ of shifted neighbours; infinite slopes make constraints.

    An absolute value (the same for all coordinates of a path) and an interval are added exactly afterwards, since
    they keep the order of the entries.
    """

    groups: np.ndarray  # coordinates in the order of the path, (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L)
    shift: np.ndarray  # the differences are those of z − shift, (G, L)
    up: np.ndarray  # slopes where z rises, (K or 1, G, L − 1)
    down: np.ndarray  # slopes where z falls
    l1: np.ndarray | None  # weights of absolute values, (K or 1, G, L)
    low: np.ndarray | None
    high: np.ndarray | None
    axes = {"groups": 0, "q": 1, "Q": 1, "shift": 0, "up": 1, "down": 1, "l1": 1, "low": 1, "high": 1}

    @property
    def signature(self):
        """Equal for blocks that can be joined."""
        limits = np.isinf(self.up[0, 0]).tobytes(), np.isinf(self.down[0, 0]).tobytes()
        return (type(self).__name__, self.groups.shape[1], *limits, self.l1 is None, self.low is None)

    def __call__(self, v, t):
        K, (G, L) = len(v), self.groups.shape
        v, t = self._fold(v, t)
        v = np.broadcast_to(v, (K, G, L)) - self.shift
        terms = (np.divide(1.0, t), L), (self.up, L - 1), (self.down, L - 1)
        parts = (np.broadcast_to(part, (K, G, size)).reshape(K * G, size) for part, size in terms)
        z = path_prox(v.reshape(-1, L), *parts).reshape(K, G, L)
        z = z + self.shift if np.any(self.shift) else z
        return self._simple(z, t).reshape(K, -1)


def path_prox(v, curvature, up, down):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row: (P, L) and (P, L − 1) to (P, L).

    By dynamic programming: the derivative of the best value as a function of the last coordinate is piecewise linear and
    increasing; a step clips it to the slopes of the penalty and adds the next coordinate's quadratic (Johnson 2013, A
    dynamic programming algorithm for the fused lasso).
    """
    if kernels.compiled:
        return kernels.compiled.path_proxes(v, curvature, up, down)
    rows = zip(*(part.tolist() for part in (v, curvature, up, down)), strict=True)
    return np.array([_path(*row) for row in rows])


def _path(v, curvature, up, down):
    """One row, by the outer lines (slope, value at 0) of the derivative and by its changes of line at the knots between."""
    knots, ends = deque(), []
    left = right = curvature[0], -curvature[0] * v[0]
    for rise, fall, c, next_v in zip(up, down, curvature[1:], v[1:], strict=True):
        low, high = -math.inf, math.inf
        if fall < math.inf:
            slope, shift = _passed(knots, left, -fall)
            low, left = -(fall + shift) / slope, (0.0, -fall)
            knots.appendleft((low, slope, shift + fall))
        if rise < math.inf:
            slope, shift = _passed(knots, right, rise, keep=int(fall < math.inf), at_left=False)
            high, right = (rise - shift) / slope, (0.0, rise)
            knots.append((high, -slope, rise - shift))
        ends.append((low, high))
        left, right = ((slope + c, shift - c * next_v) for slope, shift in (left, right))
    slope, shift = _passed(knots, left, 0.0)
    z = [-shift / slope]
    for low, high in reversed(ends):
        z.append(min(max(z[-1], low), high))
    return z[::-1]


def _passed(knots, line, level, keep=0, at_left=True):
    """The outer line at one end without the knots, all but `keep`, at which it is beyond the level."""
    (slope, shift), side = line, 1 if at_left else -1
    while len(knots) > keep and side * (slope * knots[0 if at_left else -1][0] + shift - level) <= 0:
        _, turn, jump = knots.popleft() if at_left else knots.pop()
        slope, shift = slope + side * turn, shift + side * jump
    return slope, shift
