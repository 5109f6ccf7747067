"""Largest and smallest entries of each row, and sums of the largest."""

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import excess_level, shrunk_largest, shrunk_maximum
from strat.rules import atoms, rule
from strat.rules.base import Rows, grouped
from strat.rules.piecewise import Abs


class _Largest(Rows):
    """Functions of the sorted entries of each row."""

    kinks = "some"

    def _weights(self, u):
        raise NotImplementedError

    def forward(self, args):
        weights = self._weights(args[0])
        return (weights * args[0]).sum(axis=-1), weights


def _first(mask):
    return (mask & (np.cumsum(mask, axis=-1) == 1)).astype(float)


@rule(atoms.max)
class Max(_Largest):
    """Largest entry of each row."""

    invariance = "ordered"

    @staticmethod
    def example():
        u = cp.Variable(3, name="u")
        return cp.max(u), {"u": [0.3, -1.0, 2.0]}

    def prox(self, u, step):
        """Cut the largest entries to one level."""
        return shrunk_maximum(u, step)

    def project(self, u, radius):
        """Cut at the radius."""
        return np.minimum(u, radius[..., None])

    def _weights(self, u):
        return _first(u == u.max(axis=-1, keepdims=True))


@rule(atoms.min)
class Min(_Largest):
    """Smallest entry of each row, concave."""

    invariance = "ordered"

    @staticmethod
    def example():
        u = cp.Variable(3, name="u")
        return -cp.min(u), {"u": [0.3, -1.0, 2.0]}

    def prox(self, u, step):
        """Raise the smallest entries to one level; the step is negative, as the weight of a concave function."""
        return -shrunk_maximum(-u, -step)

    def _weights(self, u):
        return _first(u == u.min(axis=-1, keepdims=True))


@rule(atoms.norm_inf)
class NormInf(_Largest):
    """Largest absolute value of each row."""

    invariance = "absolute"

    def prox(self, u, step):
        """Cut the largest entries to one level: what is left of a projection on a ball of the 1-norm."""
        level = np.maximum(excess_level(np.abs(u), step), 0.0)[..., None]
        return np.clip(u, -level, level)

    def project(self, u, radius):
        """Cut at the radius."""
        return np.clip(u, -radius[..., None], radius[..., None])

    @staticmethod
    def example():
        u = cp.Variable(3, name="u")
        return cp.norm_inf(u), {"u": [0.3, -1.0, 2.5]}

    @classmethod
    def form(cls, walker, e, args):
        rows = grouped(args[0], atoms.axis_of(e))
        if rows.shape[1] == 1:
            return walker.apply(Abs(), [rows], rows.shape, e).reshaped(e.shape)
        return walker.apply(cls(), [rows], rows.shape[:1], e).reshaped(e.shape)

    def _weights(self, u):
        size = np.abs(u)
        return _first(size == size.max(axis=-1, keepdims=True)) * np.sign(u)


@rule(atoms.sum_largest)
class SumLargest(_Largest):
    """Sum of the k largest entries of each row (k may be fractional)."""

    invariance = "ordered"

    def __init__(self, k):
        self.k = k

    def prox(self, u, step):
        """Take a projection on a capped simplex off."""
        return shrunk_largest(u, step, self.k)

    @staticmethod
    def example():
        u = cp.Variable(4, name="u")
        return cp.sum_largest(u, 2), {"u": [0.3, -1.0, 2.5, 1.0]}

    @classmethod
    def of(cls, e):
        return cls(atoms.sum_largest_count(e))

    def _weights(self, u):
        rank = np.argsort(np.argsort(-u, axis=-1, kind="stable"), axis=-1, kind="stable")
        return np.clip(self.k - rank, 0.0, 1.0)
