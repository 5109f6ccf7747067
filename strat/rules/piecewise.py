"""Absolute values, maxima and minima, piecewise linear functions of one number with their Moreau envelopes, and steps.

The steps are not convex: only predictions may hold them.
"""

from functools import cached_property, reduce

import cvxpy as cp
import numpy as np

from strat.oracles.base import namespace
from strat.oracles.thresholds import onto_l1_ball
from strat.rules import atoms, rule
from strat.rules.base import Elementwise, Rule, Scalar, at_point

TINY = 1e-300  # stands for the width 0 of a function that is not smoothed


@rule(atoms.abs)
class Abs(Scalar):
    """|u|; prox is soft thresholding."""

    kinks = "zero"
    invariance = "absolute"
    value, project = staticmethod(np.abs), staticmethod(onto_l1_ball)
    slopes = (lambda u, out: np.sign(u), lambda u, out: 0.0)
    example = at_point(lambda u: cp.sum(cp.abs(u)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        # u itself where it is an atom that is never negative, such as a norm in a sum of norms.
        argument = e.args[0]
        positive = argument.is_nonneg() and not argument.is_affine()
        return args[0] if positive else walker.apply(Abs(), args, args[0].shape, e)


@rule(atoms.norm1)
class Norm1(Rule):
    """Σ|u|: the sum of absolute values, also by rows."""

    kinks = "some"
    example = at_point(cp.norm1, u=[[0.3, -1.0], [2.0, 0.1]])

    @classmethod
    def form(cls, walker, e, args):
        return walker.sum(Abs.form(walker, e, args), e.shape, atoms.axis_of(e))


@rule(atoms.maximum)
class Maximum(Elementwise):
    """max(u, v, …): pos, pinball, hinge."""

    kinks, portable = "some", True
    value = staticmethod(lambda *args: reduce(namespace(args[0]).maximum, args))
    mixed = staticmethod(lambda i, j, args, out, memo: 0.0)
    example = at_point(lambda u: cp.sum(cp.maximum(0.9 * u, -0.1 * u)), u=[0.3, -1.0, 2.0])

    def kinks_of(self, forms_):
        """The kinks of a positive part, max(u, 0), are where it is 0."""
        return "zero" if len(forms_) == 2 and any(not len(f.row) for f in forms_) else "some"

    def partial(self, i, args, out, memo):
        xp = namespace(args[0])
        first = xp.argmax(xp.stack(xp.broadcast_arrays(*args)), axis=0)
        return xp.asarray(first == i, dtype=xp.float64)


@rule(atoms.minimum)
class Minimum(Maximum):
    """min(u, v, …), concave, as in ``cp.neg``: minus the largest of the negated arguments."""

    portable = False  # devices read it as a maximum
    example = at_point(lambda u: -cp.sum(cp.minimum(u, 0)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        return Maximum.form(walker, e, [a.scaled(-1.0) for a in args]).scaled(-1.0)


@rule(atoms.sign)
class Sign(Elementwise):
    """1 where u > 0, −1 elsewhere."""

    value = staticmethod(lambda u: np.where(u > 0, 1.0, -1.0))
    example = at_point(cp.sign, u=-0.5)


@rule(atoms.ceil)
class Ceil(Elementwise):
    """The least whole number >= u (CVXPY rounds u within 1e-4 of a whole number to it)."""

    value = staticmethod(np.ceil)
    example = at_point(cp.ceil, u=[-0.5, 1.2])


@rule(atoms.floor)
class Floor(Elementwise):
    """The largest whole number <= u (CVXPY rounds u within 1e-4 of a whole number to it)."""

    value = staticmethod(np.floor)
    example = at_point(cp.floor, u=[-0.5, 1.2])


class PiecewiseLinear:
    """A continuous piecewise linear function: ascending knots, at least one, its values there, and the outer slopes."""

    def __init__(self, knots, values, left, right):
        self.knots, self.values = np.asarray(knots, dtype=float), np.asarray(values, dtype=float)
        self.left, self.right = float(left), float(right)

    def __call__(self, u):
        u = np.asarray(u, dtype=float)
        inside = np.interp(u, self.knots, self.values)
        below, above = np.minimum(u - self.knots[0], 0.0), np.maximum(u - self.knots[-1], 0.0)
        return inside + self.left * below + self.right * above

    def __add__(self, other):
        knots = np.union1d(self.knots, other.knots)
        slopes = self.left + other.left, self.right + other.right
        return PiecewiseLinear(knots, self(knots) + other(knots), *slopes)

    def scaled(self, factor):
        return PiecewiseLinear(self.knots, factor * self.values, factor * self.left, factor * self.right)

    def maximum(self, other):
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
        slopes = self.left if first else other.left, self.right if second else other.right
        return PiecewiseLinear(knots, np.maximum(self(knots), other(knots)), *slopes)

    @property
    def slopes(self):
        """Slopes of the pieces, from left to right."""
        inner = np.diff(self.values) / np.diff(self.knots) if len(self.knots) > 1 else np.zeros(0)
        return np.concatenate([[self.left], inner, [self.right]])

    def simplified(self):
        """The same function without knots at which the slope does not change."""
        slopes = self.slopes
        keep = np.abs(np.diff(slopes)) > 1e-12 * max(1.0, np.abs(slopes).max())
        keep[0] |= not keep.any()
        return PiecewiseLinear(self.knots[keep], self.values[keep], self.left, self.right)


class Envelope(Elementwise):
    """Moreau envelope of width δ of a convex piecewise linear function (Parikh and Boyd 2014, §3.1)."""

    portable = True
    #: Whether the derivative at 0 is 0.
    flat_at_zero = property(lambda self: self.forward([np.zeros(1)])[1][0] == 0.0)
    partial = staticmethod(lambda i, args, out, memo: memo)
    _kinks = cached_property(lambda self: np.stack(self.kinks_apart, axis=1).tolist())

    def __init__(self, function, delta):
        self.function, self.delta = function, float(delta)

    @property
    def key(self):
        f = self.function
        return ("Envelope", f.knots.tobytes(), f.values.tobytes(), f.left, f.right, self.delta)

    @property
    def kinks_apart(self):
        """(places, low, high): the envelope is a constant + Σ_j max_{low_j <= c <= high_j} c (u − place_j) − δ c² / 2.

        The envelope of the kink at knot_j is quadratic from knot_j + δ slope_j to knot_j + δ slope_{j+1}; these do not overlap.
        """
        f, slopes = self.function, self.function.slopes
        before = np.r_[0.0, slopes[1:-1]]  # the first kink includes the slope of the first piece
        return f.knots + self.delta * before, slopes[:-1] - before, slopes[1:] - before

    def forward(self, args):
        (u,), clip, slope = args, namespace(args[0]).clip, 0.0
        out = float(self.function.values[0])
        for place, low, high in self._kinks:
            c = clip((u - place) / (self.delta or TINY), low, high)
            out, slope = out + c * (u - place - 0.5 * self.delta * c), slope + c
        return out, slope

    def mixed(self, i, j, args, out, memo):
        (u,), xp = args, namespace(args[0])
        ends = ((place + self.delta * low, place + self.delta * high) for place, low, high in self._kinks)
        return sum(xp.asarray((u > a) & (u < b), dtype=u.dtype) for a, b in ends) / self.delta
