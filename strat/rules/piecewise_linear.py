"""Convex piecewise linear functions of one number, and their Moreau envelopes."""

import numpy as np

from strat.rules.base import Elementwise


class PiecewiseLinear:
    """A continuous piecewise linear function: ascending knots, at least one, its values there, and the outer slopes."""

    def __init__(self, knots, values, left, right):
        self.knots, self.values = np.asarray(knots, dtype=float), np.asarray(values, dtype=float)
        self.left, self.right = float(left), float(right)

    @classmethod
    def affine(cls, slope, offset):
        """slope · u + offset."""
        return cls([0.0], [offset], slope, slope)

    def __call__(self, u):
        """Value at u."""
        u = np.asarray(u, dtype=float)
        inside = np.interp(u, self.knots, self.values)
        below, above = np.minimum(u - self.knots[0], 0.0), np.maximum(u - self.knots[-1], 0.0)
        return inside + self.left * below + self.right * above

    def __add__(self, other):
        knots = np.union1d(self.knots, other.knots)
        return PiecewiseLinear(
            knots, self(knots) + other(knots), self.left + other.left, self.right + other.right
        )

    def scaled(self, factor):
        """factor times the function."""
        return PiecewiseLinear(self.knots, factor * self.values, factor * self.left, factor * self.right)

    def maximum(self, other):
        """The larger of two functions."""
        knots = np.union1d(self.knots, other.knots)
        d = self(knots) - other(knots)
        crossing = d[:-1] * d[1:] < 0
        new = knots[:-1][crossing] - d[:-1][crossing] * np.diff(knots)[crossing] / np.diff(d)[crossing]
        left, right = self.left - other.left, self.right - other.right
        outer = [knots[0] - d[0] / left] if left * d[0] > 0 else []
        outer += [knots[-1] - d[-1] / right] if right * d[-1] < 0 else []
        knots = np.union1d(knots, np.concatenate([new, outer]))
        ends = np.array([knots[0] - 1.0, knots[-1] + 1.0])
        first, second = self(ends) >= other(ends)
        values = np.maximum(self(knots), other(knots))
        return PiecewiseLinear(
            knots, values, self.left if first else other.left, self.right if second else other.right
        )

    def minimum(self, other):
        """The smaller of two functions."""
        return self.scaled(-1.0).maximum(other.scaled(-1.0)).scaled(-1.0)

    @property
    def slopes(self):
        """Slopes of the pieces, from left to right."""
        inner = np.diff(self.values) / np.diff(self.knots) if len(self.knots) > 1 else np.zeros(0)
        return np.concatenate([[self.left], inner, [self.right]])

    def simplified(self):
        """The same function without knots at which the slope does not change."""
        slopes = self.slopes
        keep = np.abs(np.diff(slopes)) > 1e-12 * max(1.0, np.abs(slopes).max())
        if not keep.any():
            keep[0] = True
        return PiecewiseLinear(self.knots[keep], self.values[keep], self.left, self.right)

    def below(self, level):
        """(low, high) of the interval where a convex function is at most level; (inf, -inf) where it is empty."""
        mirrored = PiecewiseLinear(-self.knots[::-1], self.values[::-1], -self.right, -self.left)
        return -mirrored._last(level), self._last(level)

    def _last(self, level):
        """The largest u where a convex function is at most level."""
        if self.right <= 0:
            reached = self.right < 0 or self.values.min() <= level
            return np.inf if reached else -np.inf
        inside = np.flatnonzero(self.values <= level)
        if not len(inside):
            return self.knots[0] - (self.values[0] - level) / self.left if self.left > 0 else -np.inf
        last = inside[-1]
        slope = self.slopes[last + 1]
        return self.knots[last] + (level - self.values[last]) / slope

    def prox(self, u, step):
        """argmin_v f(v) + (u − v)²/(2 step), for convex f."""
        slopes, knots = self.slopes, self.knots
        # u falls on knot j for step·slope_j <= u − knot_j <= step·slope_{j+1}, on piece j between knots otherwise.
        ends = np.stack([knots + step * slopes[:-1], knots + step * slopes[1:]], axis=1).reshape(-1)
        place = np.searchsorted(ends, u)
        on_knot = place % 2 == 1
        piece = place // 2
        return np.where(on_knot, knots[np.minimum(piece, len(knots) - 1)], u - step * slopes[piece])


class Envelope(Elementwise):
    """Moreau envelope of width δ of a convex piecewise linear function (Parikh and Boyd 2014, §3.1)."""

    def __init__(self, function, delta):
        self.function, self.delta = function, float(delta)

    @property
    def key(self):
        f = self.function
        return ("Envelope", f.knots.tobytes(), f.values.tobytes(), f.left, f.right, self.delta)

    @property
    def flat_at_zero(self):
        """Whether the derivative at 0 is 0: the prox of 0 is 0."""
        return self.function.prox(np.zeros(1), self.delta)[0] == 0.0

    @property
    def kinks_apart(self):
        """(places, low, high): the function is affine + Σ_j max_{low_j <= c <= high_j} c (u − place_j) − δ c² / 2.

        The envelope of the kink at knot_j is quadratic from knot_j + δ slope_j to knot_j + δ slope_{j+1}; these do not overlap.
        """
        f, slopes = self.function, self.function.slopes
        before = np.r_[0.0, slopes[1:-1]]  # the first kink has the slope of the first piece in it
        return f.knots + self.delta * before, slopes[:-1] - before, slopes[1:] - before

    def forward(self, args):
        (u,) = args
        v = self.function.prox(u, self.delta)
        return self.function(v) + (u - v) ** 2 / (2.0 * self.delta or 1.0), v

    def partial(self, i, args, out, memo):
        return (args[0] - memo) / self.delta

    def mixed(self, i, j, args, out, memo):
        on_knot = np.isin(memo, self.function.knots)
        return on_knot / self.delta
