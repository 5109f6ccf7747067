"""Quadratics on affine subspaces, and boxes cut by one hyperplane."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space

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
        null = null_space(A, rcond=1e-12) if len(A) else np.eye(len(H))
        self.lift = np.linalg.pinv(A, rcond=1e-12).T
        self.values, vectors = np.linalg.eigh(null.T @ H @ null)
        self.basis, self.H = null @ vectors, H

    def __call__(self, v, t):
        v, t = self._by_group(v), self._steps_by_group(t)
        t = t[..., :1] if np.ndim(t) else t
        fixed = self.b @ self.lift
        y = (v - t * (self.q + fixed @ self.H)) @ self.basis / (1.0 + t * self.values)
        return (fixed + y @ self.basis.T).reshape(len(v), -1)


@dataclass(eq=False)
class HyperplaneBlock(Grouped):
    """{aᵀz = b or aᵀz <= b} between bounds: clip(v − ν a), ν the root of a piecewise linear function."""

    groups: np.ndarray  # coordinates, (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L)
    a: np.ndarray  # without zeros, (1, G, L)
    low: np.ndarray  # (1, G, L)
    high: np.ndarray  # (1, G, L)
    b: np.ndarray  # (1, G)
    equal: bool
    axes = {"groups": 0, "q": 1, "Q": 1, "a": 1, "low": 1, "high": 1, "b": 1}

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
        outside = (self.a * clipped).sum(axis=-1) > self.b
        if not (self.equal or outside.any()):
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
