"""Largest and smallest entries of each row, also among the entries so far, and sums of the largest."""

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import excess_level, shrunk_largest, shrunk_maximum
from strat.rules import atoms, forms, rule
from strat.rules.base import Rows, Rule, at_point, grouped
from strat.rules.piecewise import Abs


class _Largest(Rows):
    """A sum of entries of each row, chosen by their sizes and weighed by ``_weights(u)``."""

    kinks = "some"

    def forward(self, args):
        weights = self._weights(args[0])
        return (weights * args[0]).sum(axis=-1), weights


def _first(mask):
    return (mask & (np.cumsum(mask, axis=-1) == 1)).astype(float)


@rule(atoms.max)
class Max(_Largest):
    """Largest entry of each row."""

    invariance = "ordered"
    example = at_point(cp.max, u=[0.3, -1.0, 2.0])

    def prox(self, u, step):
        """Cut the largest entries to one level."""
        return shrunk_maximum(u, step)

    def project(self, u, radius):
        """Cut at the radius."""
        return np.minimum(u, radius[..., None])

    def _weights(self, u):
        return _first(u == u.max(axis=-1, keepdims=True))


@rule(atoms.cummax)
class CumulativeMax(Rule):
    """Largest entry so far, along an axis: the maximum of each row of entries up to there."""

    kinks = "some"
    example = at_point(lambda u: cp.sum(cp.cummax(u)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        (u,), axis = args, e.axis
        if axis is None:
            u, axis = u.reshaped((u.size,)), 0
        places = np.moveaxis(u.positions, axis, -1)
        length = places.shape[-1]
        # Rows of one length: what comes later is replaced by the last entry that counts.
        so_far = np.minimum(np.arange(length)[None, :], np.arange(length)[:, None])
        rows = np.moveaxis(places[..., so_far], -2, axis).reshape(-1, length)
        return walker.apply(Max(), [forms.take(u, rows)], (len(rows),), e).reshaped(e.shape)


@rule(atoms.min)
class Min(_Largest):
    """Smallest entry of each row, concave."""

    invariance = "ordered"
    example = at_point(lambda u: -cp.min(u), u=[0.3, -1.0, 2.0])

    def prox(self, u, step):
        """Raise the smallest entries to one level; the step is negative, since the function is concave."""
        return -shrunk_maximum(-u, -step)

    def _weights(self, u):
        return _first(u == u.min(axis=-1, keepdims=True))


@rule(atoms.norm_inf)
class NormInf(_Largest):
    """Largest absolute value of each row."""

    invariance = "absolute"
    example = at_point(cp.norm_inf, u=[0.3, -1.0, 2.5])

    def prox(self, u, step):
        """Cut the largest entries to one level: u minus its projection on a ball of the 1-norm (Moreau)."""
        level = np.maximum(excess_level(np.abs(u), step), 0.0)[..., None]
        return np.clip(u, -level, level)

    def project(self, u, radius):
        """Cut at the radius."""
        return np.clip(u, -radius[..., None], radius[..., None])

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
    example = at_point(lambda u: cp.sum_largest(u, 2), u=[0.3, -1.0, 2.5, 1.0])

    def __init__(self, k):
        self.k = k

    def prox(self, u, step):
        """u minus its projection on the set {0 <= s <= step, Σ s = k step}."""
        return shrunk_largest(u, step, self.k)

    @classmethod
    def of(cls, e):
        return cls(atoms.sum_largest_count(e))

    def _weights(self, u):
        rank = np.argsort(np.argsort(-u, axis=-1, kind="stable"), axis=-1, kind="stable")
        return np.clip(self.k - rank, 0.0, 1.0)
