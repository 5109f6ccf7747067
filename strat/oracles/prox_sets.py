"""Quadratics on affine subspaces, and boxes cut by one hyperplane."""

import numpy as np

from strat.oracles.prox_base import Grouped
from strat.oracles.thresholds import balance, excess_level


class SubspaceBlock(Grouped):
    """½ zᵀHz on {A z = b}: solved in the eigenvectors of H within the subspace, whatever the step.

    Parameters
    ----------
    groups : (G, L) int ndarray
    q : (K or 1, G, L) ndarray
    H : (L, L) ndarray
    A : (m, L) ndarray
    b : (G, m) ndarray
        Consistent with A.
    """

    axes = {"groups": 0, "q": 1, "b": 0}

    def __init__(self, groups, q, H, A, b):
        self.groups, self.q, self.b = groups, q, b
        self.signature = (type(self).__name__, H.tobytes(), A.tobytes(), A.shape)
        if len(A):
            _, s, vt = np.linalg.svd(A)
            null = vt[(s > 1e-12 * s.max(initial=0.0)).sum() :].T
        else:
            null = np.eye(len(H))
        self.lift = np.linalg.pinv(A, rcond=1e-12).T if len(A) else None
        self.values, vectors = np.linalg.eigh(null.T @ H @ null)
        self.basis, self.H = null @ vectors, H

    def __call__(self, v, t):
        v, t = self._by_group(v), np.expand_dims(t, -1) if np.ndim(t) else t
        if self.lift is None:
            z = ((v - t * self.q) @ self.basis / (1.0 + t * self.values)) @ self.basis.T
            return z.reshape(len(v), -1)
        fixed = self.b @ self.lift
        y = (v - t * (self.q + fixed @ self.H)) @ self.basis / (1.0 + t * self.values)
        return (fixed + y @ self.basis.T).reshape(len(v), -1)


class HyperplaneBlock(Grouped):
    """{aᵀz = b or aᵀz <= b} between bounds: clip(v − ν a), ν the root of a piecewise linear function.

    Parameters
    ----------
    groups : (G, L) int ndarray
    q, Q : (K or 1, G, L) ndarray
    a, low, high : (1, G, L) ndarray
        a has no zeros.
    b : (1, G) ndarray
    equal : bool
    """

    axes = {"groups": 0, "q": 1, "Q": 1, "a": 1, "low": 1, "high": 1, "b": 1}

    def __init__(self, groups, q, Q, a, low, high, b, equal):
        self.groups, self.q, self.Q, self.a = groups, q, Q, a
        self.low, self.high, self.b, self.equal = low, high, b, equal

    @property
    def signature(self):
        """Equal for blocks that can be joined."""
        return (type(self).__name__, self.equal, self.groups.shape[1])

    @property
    def _simplex(self):
        level = np.all(self.a == self.a[..., :1]) and np.all(self.Q[..., :1] == self.Q)
        return level and np.all(self.low == 0.0) and np.all(self.high == np.inf)

    def __call__(self, v, t):
        c, w = self._fold(v, t)
        clipped = np.clip(c, self.low, self.high)
        if not self.equal:
            outside = (self.a * clipped).sum(axis=-1) > self.b
            if not outside.any():
                return clipped.reshape(v.shape)
        b = np.broadcast_to(self.b, c.shape[:2])
        if self._simplex:
            z = np.maximum(c - excess_level(c, b / self.a[..., 0])[..., None], 0.0)
        else:
            level = balance(c, self.a, w, self.low, self.high, b)
            z = np.clip(c - w * self.a * level[..., None], self.low, self.high)
        if not self.equal:
            z = np.where(outside[..., None], z, clipped)
        return z.reshape(v.shape)
