"""Functions of the differences of neighbours on a path: total variation, fused lasso, monotone sequences."""

from dataclasses import dataclass

import numpy as np

from strat.oracles import kernels
from strat.oracles.path_dynamic import by_dynamic_programming
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
        curvature = np.atleast_1d(1.0 / np.asarray(t, dtype=float))
        parts = (self._rows(part, K, G) for part in (curvature, self.up, self.down))
        z = path_prox(v.reshape(-1, L), *parts).reshape(K, G, L)
        z = z + self.shift if np.any(self.shift) else z
        return self._simple(z, t).reshape(K, -1)

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
