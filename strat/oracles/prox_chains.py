"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences.

Dynamic programming over the path, all strata and paths at once (Johnson 2013, A dynamic programming algorithm for
the fused lasso). The derivative of the best value as a function of the last coordinate is piecewise linear and
increasing; a step clips it to the slopes of the penalty and adds the next coordinate's quadratic.
"""

import numpy as np

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
        z = path_prox(v.reshape(-1, L), curvature, up, down).reshape(K, G, L) + self.shift
        if self.l1 is not None:
            z = z - np.clip(z, -t * self.l1, t * self.l1)
        if self.low is not None:
            z = np.clip(z, self.low, self.high)
        return z.reshape(K, -1)


def path_prox(v, curvature, up, down):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row: (P, L) arrays to (P, L)."""
    P, L = v.shape
    rows, best = np.arange(P), _Derivative(P, L)
    best.add(curvature[:, 0], v[:, 0])
    lower, upper = np.full((P, L), -np.inf), np.full((P, L), np.inf)
    for k in range(L - 1):
        if np.isfinite(down[:, k]).all():
            lower[:, k] = best.clip_below(-down[:, k], rows)
        if np.isfinite(up[:, k]).all():
            upper[:, k] = best.clip_above(up[:, k], rows)
        best.add(curvature[:, k + 1], v[:, k + 1])
    z = np.empty((P, L))
    z[:, -1] = best.root(rows)
    for k in range(L - 2, -1, -1):
        z[:, k] = np.clip(z[:, k + 1], lower[:, k], upper[:, k])
    return z


class _Derivative:
    """Increasing piecewise linear functions, one a row: outer lines and the changes of line at the knots between."""

    def __init__(self, P, L):
        self.knot, self.slope, self.constant = (np.zeros((P, 2 * L + 2)) for _ in range(3))
        self.first, self.last = np.full(P, L), np.full(P, L - 1)
        self.left, self.right = np.zeros((2, P)), np.zeros((2, P))

    def add(self, curvature, centre):
        """Add curvature · (x − centre)."""
        for line in (self.left, self.right):
            line[0] += curvature
            line[1] -= curvature * centre

    def _pass_from_left(self, level, todo):
        """Drop knots at the left where the function is at most the level."""
        while len(todo):
            at = self.first[todo]
            passed = (at <= self.last[todo]) & (
                self.left[0, todo] * self.knot[todo, at] + self.left[1, todo] <= level[todo]
            )
            todo, at = todo[passed], at[passed]
            self.left[0, todo] += self.slope[todo, at]
            self.left[1, todo] += self.constant[todo, at]
            self.first[todo] += 1

    def clip_below(self, level, rows):
        """max(function, level); where it starts to exceed the level."""
        self._pass_from_left(level, rows)
        x = (level - self.left[1]) / self.left[0]
        self.first -= 1
        self._set(rows, self.first, x, self.left[0], self.left[1] - level)
        self.left[0], self.left[1] = 0.0, level
        return x

    def clip_above(self, level, rows):
        """min(function, level); where it reaches the level."""
        todo = rows
        while len(todo):
            at = self.last[todo]
            # The line at the far left, if it is flat, is what a lower level has just made: its knot stays.
            kept = self.first[todo] + (self.left[0, todo] == 0)
            passed = (at >= kept) & (
                self.right[0, todo] * self.knot[todo, at] + self.right[1, todo] >= level[todo]
            )
            todo, at = todo[passed], at[passed]
            self.right[0, todo] -= self.slope[todo, at]
            self.right[1, todo] -= self.constant[todo, at]
            self.last[todo] -= 1
        x = (level - self.right[1]) / self.right[0]
        self.last += 1
        self._set(rows, self.last, x, -self.right[0], level - self.right[1])
        self.right[0], self.right[1] = 0.0, level
        return x

    def root(self, rows):
        """Where the function is 0."""
        self._pass_from_left(np.zeros(len(rows)), rows)
        return -self.left[1] / self.left[0]

    def _set(self, rows, at, x, slope, constant):
        self.knot[rows, at], self.slope[rows, at], self.constant[rows, at] = x, slope, constant
