"""Functions of the differences of neighbours on a path, by dynamic programming over all paths at once.

The derivative of the best value as a function of the last coordinate is piecewise linear and increasing; a step clips
it to the slopes of the penalty and adds the next coordinate's quadratic (Johnson 2013, A dynamic programming algorithm
for the fused lasso).
"""

import numpy as np


def by_dynamic_programming(v, curvature, up, down):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row: (P, L) arrays to (P, L)."""
    P, L = v.shape
    # Transposed, since one coordinate of all rows is read at a time.
    c, slope = np.ascontiguousarray(curvature.T), np.ascontiguousarray((curvature * v).T)
    up, down = np.ascontiguousarray(up.T), np.ascontiguousarray(down.T)
    best = _Derivative(P, L, c[0], slope[0])
    lower, upper = [None] * L, [None] * L
    for k in range(L - 1):
        if np.isfinite(down[k, 0]):
            lower[k] = best.clip_below(-down[k])
        if np.isfinite(up[k, 0]):
            upper[k] = best.clip_above(up[k], lower[k] is not None)
        best.add(c[k + 1], slope[k + 1])
    z = np.empty((L, P))
    z[-1] = best.root()
    for k in range(L - 2, -1, -1):
        z[k] = z[k + 1]
        if lower[k] is not None:
            np.maximum(z[k], lower[k], out=z[k])
        if upper[k] is not None:
            np.minimum(z[k], upper[k], out=z[k])
    return z.T


class _Derivative:
    """Increasing piecewise linear functions, one a row: the outer lines, and how the line changes at each knot between.

    The knots of all rows lie in one flat array, those of a row from ``first`` to ``last``.
    """

    def __init__(self, P, L, slope, negative):
        width = 2 * L + 2
        self.knot, self.change = np.zeros(P * width), np.zeros((2, P * width))
        self.first = np.arange(P) * width + L
        self.last = self.first - 1
        self.left, self.right = [slope.copy(), -negative], [slope.copy(), -negative]

    def add(self, slope, negative):
        """Add slope · x − negative."""
        for line in (self.left, self.right):
            line[0] = line[0] + slope
            line[1] = line[1] - negative

    def _drop(self, line, ends, limit, level, side):
        """Pass knots from one end (side 1: the left, -1: the right) while the function there is beyond the level."""
        value = line[0] * self.knot.take(ends) + line[1]
        beyond = value <= level if side == 1 else value >= level
        beyond &= side * (limit - ends) >= 0
        todo = np.flatnonzero(beyond)
        # Times the side, lines change by the knots' changes and are passed up to the level, whichever end it is.
        lines = side * np.stack([part[todo] for part in (*line, level)])
        places = np.stack([todo, ends[todo], side * (limit - ends)[todo]])
        while places.size:
            lines[:2] += self.change.take(places[1], axis=1)
            places[1] += side
            places[2] -= 1
            beyond = (lines[0] * self.knot.take(places[1]) + lines[1] <= lines[2]) & (places[2] >= 0)
            if not beyond.all():
                stop = ~beyond
                rows = places[0, stop]
                line[0][rows], line[1][rows], ends[rows] = *(side * lines[:2, stop]), places[1, stop]
                places, lines = places.compress(beyond, axis=1), lines.compress(beyond, axis=1)

    def clip_below(self, level):
        """max(function, level); where it starts to exceed the level."""
        self._drop(self.left, self.first, self.last, level, 1)
        a, b = self.left
        x = (level - b) / a
        self.first -= 1
        self._set(self.first, x, a, b - level)
        self.left = [np.zeros_like(a), level.copy()]
        return x

    def clip_above(self, level, below):
        """min(function, level); where it reaches the level. The knot of a `clip_below` just before stays."""
        self._drop(self.right, self.last, self.first + below, level, -1)
        a, b = self.right
        x = (level - b) / a
        self.last += 1
        self._set(self.last, x, -a, level - b)
        self.right = [np.zeros_like(a), level.copy()]
        return x

    def root(self):
        """Where the function is 0."""
        self._drop(self.left, self.first, self.last, np.zeros(len(self.first)), 1)
        return -self.left[1] / self.left[0]

    def _set(self, at, x, turn, jump):
        self.knot[at], self.change[0, at], self.change[1, at] = x, turn, jump
