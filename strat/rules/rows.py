"""Functions of each row of entries: the largest and smallest, also among those so far, sorted sums, geometric means."""

import cvxpy as cp
import numpy as np

from strat.errors import NoOracleError
from strat.oracles.prox_chains import path_prox
from strat.oracles.thresholds import excess_level, shrunk_largest, shrunk_maximum
from strat.rules import atoms, forms, rule
from strat.rules.base import Rows, Rule, at_point, grouped
from strat.rules.piecewise import Abs
from strat.rules.text import text


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


@rule(atoms.dotsort)
class DotSort(Rows):
    """Sum of the sorted entries of u times sorted weights; prox by isotonic regression of the sorted entries.

    Parameters
    ----------
    weights : tuple of float
        Ascending.
    """

    kinks = "some"
    invariance = "ordered"

    def __init__(self, weights):
        self.weights = weights

    example = at_point(lambda u: cp.dotsort(u, [2.0, 1.0, -0.5]), u=[0.3, -1.0, 2.5, 1.0])

    @classmethod
    def form(cls, walker, e, args):
        u, weights = args[0], e.args[1]
        if weights.parameters():
            raise NoOracleError(
                f"the weights of {text(e)} are Parameters; there is a rule for constant weights only. Give numbers, "
                f"or write the function as a sum of sum_largest times Parameters."
            )
        padded = np.zeros(u.size)
        padded[: weights.size] = np.asarray(weights.value, dtype=float).reshape(-1)
        rule_ = cls(tuple(np.sort(padded).tolist()))
        return walker.apply(rule_, [u.reshaped((1, u.size))], (1,), e).reshaped(())

    def prox(self, u, step):
        """z keeps the order of u: the increasing sequence nearest to the sorted u − step × weights."""
        order = np.argsort(u, axis=-1, kind="stable")
        target = np.take_along_axis(u, order, axis=-1) - step[..., None] * np.array(self.weights)
        flat = target.reshape(-1, target.shape[-1])
        free = np.zeros((len(flat), flat.shape[1] - 1))
        z = path_prox(flat, np.ones(flat.shape), free, free + np.inf).reshape(target.shape)
        out = np.empty_like(u)
        np.put_along_axis(out, order, z, axis=-1)
        return out

    def forward(self, args):
        order = np.argsort(args[0], axis=-1, kind="stable")
        weights = np.empty(args[0].shape)
        np.put_along_axis(weights, order, np.broadcast_to(self.weights, weights.shape), axis=-1)
        return (weights * args[0]).sum(axis=-1), weights


@rule(atoms.GeoMean)
class GeometricMean(Rows):
    """Π u_j^w_j of each row with weights that sum to 1, u >= 0: concave."""

    intervals = {0: (0.0, np.inf)}
    steep = (0,)

    def __init__(self, weights):
        self.weights = weights

    example = at_point(lambda u: -cp.geo_mean(u, [1, 2, 1]), u=[0.5, 1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        (u,), axis = args, atoms.axis_of(e)
        if axis is None:  # the weights are those of the entries in column order
            u = forms.take(u, u.positions.reshape(-1, order="F"))
        rows, weights = grouped(u, axis), atoms.geometric_weights(e)
        rows = forms.take(rows, rows.positions[:, weights > 0])
        rule_ = cls(tuple(weights[weights > 0].tolist()))
        return walker.apply(rule_, [rows], rows.shape[:1], e).reshaped(e.shape)

    def forward(self, args):
        return np.prod(np.maximum(args[0], 0.0) ** self.weights, axis=-1), None

    def _relative(self, args):
        """Derivatives of the logarithm of the output."""
        return self.weights / args[0]

    def pullback(self, i, args, out, memo, g):
        relative = self._relative(args)
        return g[..., None] * np.where(np.isinf(relative), np.inf, out[..., None] * relative)

    def curve(self, i, args, out, memo, g, tangents):
        relative, t = self._relative(args), tangents[0]
        along = (relative * t).sum(axis=-1, keepdims=True)
        return (g * out)[..., None] * relative * (along - t / args[0])
