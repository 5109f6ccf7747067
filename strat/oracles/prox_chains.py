"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences."""

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


def path_prox(v, curvature, up, down):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row of v (P, L).

    The others are (P or 1, L or 1) and (P or 1, L − 1); infinite slopes are at the same places in all rows.
    """
    if kernels.compiled:
        return kernels.compiled.path_prox(v, curvature, up, down)
    P, L = v.shape
    return by_dynamic_programming(
        v, *(np.broadcast_to(part, (P, m)) for part, m in ((curvature, L), (up, L - 1), (down, L - 1)))
    )
