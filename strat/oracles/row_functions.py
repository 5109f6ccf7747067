"""Functions of one number on each row, with their prox and its slope: what a sum over rows A z is made of."""

import numpy as np

from strat.oracles.prox_slopes import diagonal
from strat.oracles.scalar_newton import safeguarded


class PiecewiseRows:
    """weight × convex piecewise linear functions; infinite outer slopes make them constraints.

    Parameters
    ----------
    knots : (J, R or 1, m) ndarray
        Ascending; +inf where a function has fewer.
    slopes : (J + 1, R or 1, m) ndarray
        Between and outside the knots, ascending.
    weight : (R or 1, m) ndarray
        Negative for concave functions.
    first : (m,) ndarray
        The functions' values at the first knots.
    """

    def __init__(self, knots, slopes, weight, first=0.0):
        self.knots, self.weight = knots, weight
        self.first = np.broadcast_to(first, weight.shape[1:]) * weight
        with np.errstate(invalid="ignore"):
            self.slopes = np.where(weight != 0, slopes * weight, 0.0)

    @classmethod
    def beside(cls, parts):
        """Several, side by side."""
        own = ((f.knots, f.slopes, f.weight[None], f.first[None]) for f in parts)
        knots, slopes, weight, first = zip(*own, strict=True)
        out = object.__new__(cls)
        out.knots, out.slopes = _padded(knots, np.inf), _padded(slopes, None)
        out.weight, out.first = _padded(weight, None)[0], _padded(first, None)[0]
        return out

    def point(self, u, step, near=None):
        """argmin_s f(s) + (s − u)²/(2 step); ``near`` is a point near it, where one is known."""
        z = u - step * self.slopes[0]
        for knot, slope in zip(self.knots, self.slopes[1:], strict=True):
            # Up to the knot as the piece before has it, beyond it as the next has it, or else on the knot.
            z = np.maximum(np.minimum(z, knot), u - step * slope)
        return z

    def prox(self, u, step, near=None):
        """``point``, and its derivative in u: 0 on a knot and 1 elsewhere."""
        z = self.point(u, step)
        moves = np.ones(z.shape)
        for knot in self.knots:
            moves[z == knot] = 0.0
        return z, moves

    def locate(self, u, near):
        """Where rows are: on a knot if within `near` of it (its place, 0, 0), else on a piece (u, 1, its slope)."""
        at, moves = u.copy(), np.ones(u.shape)
        slope = np.broadcast_to(self.slopes[0], u.shape)
        for knot, behind in zip(self.knots, self.slopes[1:], strict=True):
            slope = np.where(u > knot, behind, slope)
            on = (np.abs(u - knot) <= near) & (self.weight != 0)
            at, moves = np.where(on, knot, at), np.where(on, 0.0, moves)
        return at, moves, np.where(moves > 0, slope, 0.0)

    def take(self, strata):
        """The functions of some strata."""
        out = object.__new__(PiecewiseRows)
        out.knots, out.slopes, out.weight, out.first = (
            part if part.shape[-2] == 1 else part[..., strata, :]
            for part in (self.knots, self.slopes, self.weight, self.first)
        )
        return out

    def nearest(self, u):
        """The nearest point of the domain: of finite functions, the point itself."""
        return u

    def total(self, z):
        """Σ f over each stratum's rows."""
        value = self.first + self.slopes[0] * (z - self.knots[0])
        for knot, before, behind in zip(self.knots, self.slopes, self.slopes[1:], strict=False):
            value = value + (behind - before) * np.maximum(z - knot, 0.0)
        return value.sum(axis=1)

    def gradient(self, z):
        """The slopes; 0 on knots, where they are not known."""
        slope = np.broadcast_to(self.slopes[0], z.shape)
        for knot, behind in zip(self.knots, self.slopes[1:], strict=True):
            slope = np.where(z > knot, behind, np.where(z == knot, 0.0, slope))
        return slope

    def matrix(self, z, u, step):
        """Derivative of the prox z at u (R, m, m)."""
        return diagonal(self.prox(u, step)[1])


def _padded(parts, filling):
    """Arrays (J, R or 1, m) side by side, to the longest J with a number or with their last entry."""
    J, R = (max(part.shape[axis] for part in parts) for axis in (0, 1))
    out = []
    for part in parts:
        part = np.broadcast_to(part, (part.shape[0], R, part.shape[2]))
        rest = np.broadcast_to(part[-1:] if filling is None else filling, (J - len(part), *part.shape[1:]))
        out.append(np.concatenate([part, rest]))
    return np.concatenate(out, axis=2)


class ScalarRows:
    """weight × an elementwise rule on each row, within its domain.

    Parameters
    ----------
    rule : Elementwise
    others : tuple of (R or 1, m) ndarray
        The rule's further arguments, which are no variables.
    weight : (R or 1, m) ndarray
        Negative for concave rules.
    low, high : (R or 1, m) ndarray
        The domain.
    place : int
        Which of the rule's arguments varies.
    absolute : bool
        Whether the rule is taken of the row's absolute value.
    """

    def __init__(self, rule, others, weight, low, high, place=0, absolute=False):
        self.rule, self.others, self.weight, self.place, self.absolute = (
            rule,
            tuple(others),
            weight,
            place,
            absolute,
        )
        self.low, self.high = (np.maximum(low, 0.0) if absolute else low), high

    def take(self, strata):
        """The functions of some strata."""

        def part(a):
            return a if len(a) == 1 else a[strata]

        others = tuple(part(a) for a in self.others)
        return ScalarRows(
            self.rule, others, part(self.weight), part(self.low), part(self.high), self.place, self.absolute
        )

    def _derivatives(self, z, which=None):
        """First and second derivatives; of flat entries ``which`` where given."""
        args, weight, i = list(self.others), self.weight, self.place
        if which is not None:
            row, column = which
            args = [a[row if len(a) > 1 else 0, column] for a in args]
            weight = weight[row if len(weight) > 1 else 0, column]
        args.insert(i, z)
        out, memo = self.rule.forward(args)
        slope, curvature = self.rule.partial(i, args, out, memo), self.rule.mixed(i, i, args, out, memo)
        return np.where(weight == 0, 0.0, weight * slope), np.where(weight == 0, 0.0, weight * curvature)

    def point(self, u, step, near=None):
        """argmin_s f(s) + (s − u)²/(2 step); ``near`` is a point near it, where one is known."""
        return self.prox(u, step, near)[0]

    def prox(self, u, step, near=None):
        """``point``, and its derivative in u."""
        signs, u = np.sign(u), np.abs(u) if self.absolute else u
        step = np.broadcast_to(step, u.shape)
        low, high = np.broadcast_to(self.low, u.shape), np.broadcast_to(self.high, u.shape)

        def residual(z, which):
            slope, curvature = self._derivatives(z, np.divmod(which, m))
            return slope + (z - at[which]) / steps[which], curvature + 1.0 / steps[which]

        with np.errstate(all="ignore"):
            if self.rule.scalar_prox is not None and self.place == 0:
                z = np.clip(self.rule.scalar_prox(u, step * self.weight, *self.others), low, high)
            else:
                m, at, steps = u.shape[1], u.reshape(-1), step.reshape(-1)
                start = None if near is None else (np.abs(near) if self.absolute else near).reshape(-1)
                limits = low.reshape(-1), high.reshape(-1)
                z = safeguarded(residual, at, steps, *limits, apart=True, start=start).reshape(u.shape)
            curvature = self._derivatives(z)[1]
            moves = np.where(
                (z > low) & (z < high) | (curvature * step > 1e16), 1.0 / (1.0 + step * curvature), 0.0
            )
        moves = np.where(np.isfinite(moves), moves, 0.0)
        return (signs * z if self.absolute else z), moves

    def nearest(self, u):
        """The nearest point of the domain."""
        return np.clip(u, self.low, self.high) if not self.absolute else u

    def total(self, z):
        """Σ f over each stratum's rows, +inf outside the domain."""
        args = list(self.others)
        args.insert(self.place, z)
        with np.errstate(all="ignore"):
            value = self.weight * self.rule.forward(args)[0]
        value = np.where((self.weight == 0) & ~np.isfinite(value), 0.0, value)
        outside = (z < self.low) | (z > self.high) | np.isnan(value)
        return np.where(outside, np.inf, value).sum(axis=1)

    def expansion(self, z):
        """Total (R,), first and second derivatives inside the domain."""
        args, i = list(self.others), self.place
        args.insert(i, z)
        out, memo = self.rule.forward(args)
        slope, curvature = self.rule.partial(i, args, out, memo), self.rule.mixed(i, i, args, out, memo)
        weight = self.weight
        return (
            np.einsum("ij,ij->i", np.broadcast_to(weight, out.shape), out),
            weight * slope,
            weight * curvature,
        )

    def gradient(self, z):
        """First derivatives."""
        with np.errstate(all="ignore"):
            return self._derivatives(z)[0]

    def matrix(self, z, u, step):
        """Derivative of the prox z at u (R, m, m)."""
        return diagonal(self.prox(u, step, z)[1])
