"""Proximal maps of functions of one coordinate each."""

import numpy as np

from strat.oracles.prox_base import folded, present
from strat.oracles.scalar_newton import safeguarded

#: Next to 0, on the side where a function with a kink at 0 has its other slope.
NEXT = 1e-300


class Separable:
    """A block of functions of one coordinate each."""

    @property
    def ties(self):
        """Every coordinate may take a step of its own."""
        return [[c] for c in self.columns]


class SeparableBlock(Separable):
    """A convex function of each coordinate, with linear and diagonal quadratic parts q and Q, between bounds.

    Clipping the prox to the bounds is exact for convex functions of one number.
    """

    kind = "closed form"

    def __init__(self, columns, q, Q, low, high):
        self.columns, self.q, self.Q, self.low, self.high = columns, present(q), present(Q), low, high
        self.bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def __call__(self, v, t):
        z = self.prox(*folded(v, t, self.q, self.Q))
        return np.clip(z, self.low, self.high) if self.bounded else z

    def symmetric(self, pair):
        """Whether the functions of coordinates i and pair[i] are the same."""
        return all(np.array_equal(part[..., pair], part) for part in self.parts)


class ScalarBlock(SeparableBlock):
    """weight × an elementwise function of scale · z + offset that knows its own prox."""

    def __init__(self, columns, q, Q, rule, others, weight, scale, offset, low, high):
        super().__init__(columns, q, Q, low, high)
        self.rule, self.others, self.weight, self.scale, self.offset = rule, others, weight, scale, offset
        self.parts = (weight, scale, offset, *others)

    def prox(self, v, t):
        with np.errstate(all="ignore"):
            u = v * self.scale + self.offset
            return (
                self.rule.prox(u, t * self.weight * self.scale**2, *self.others) - self.offset
            ) / self.scale


class PiecewiseBlock(SeparableBlock):
    """A convex piecewise linear function of each coordinate.

    Parameters
    ----------
    knots : (J, 1, m) ndarray
        Ascending; +inf where a function has fewer.
    slopes : (J + 1, 1 or K, m) ndarray
        Between and outside the knots, ascending.
    """

    def __init__(self, columns, q, Q, knots, slopes, low, high):
        super().__init__(columns, q, Q, low, high)
        self.knots, self.slopes = knots, slopes
        self.parts = (knots, slopes)

    def prox(self, v, t):
        z = v - t * self.slopes[0]
        for knot, slope in zip(self.knots, self.slopes[1:], strict=True):
            # Up to the knot the piece before it decides, beyond it the next; between the two, z is the knot.
            z = np.maximum(np.minimum(z, knot), v - t * slope)
        return z


class SoftBlock(PiecewiseBlock):
    """weight × |z − centre| of each coordinate: soft thresholding."""

    def __init__(self, columns, q, Q, weight, centre, low, high):
        super().__init__(columns, q, Q, centre[None, None, :], np.stack([-weight, weight]), low, high)
        self.weight, self.centre = weight, present(centre)

    @property
    def diagonal(self):
        """Diagonal of the Hessian, (1 or K, m), where this is a quadratic; None where it is not."""
        if self.bounded or np.any(self.weight):
            return None
        return np.zeros((1, len(self.columns))) if self.Q is None else self.Q

    def prox(self, v, t):
        if self.centre is not None:
            return super().prox(v, t)
        threshold = t * self.weight
        return v - np.minimum(np.maximum(v, -threshold), threshold)


class NewtonBlock(Separable):
    """Any sum of functions of one coordinate each, between bounds: safeguarded Newton to rounding.

    Parameters
    ----------
    columns : (m,) int ndarray
    n : int
        Scalars in a stratum.
    tape : Tape
        The functions; they touch only these columns.
    q, Q : ndarray
        Linear and diagonal quadratic parts.
    low, high : (m,) ndarray
        Bounds, the domain's included.
    """

    kind = "Newton, to rounding"

    def __init__(self, columns, n, tape, q, Q, low, high):
        self.columns, self.n, self.tape, self.q, self.Q = columns, n, tape, q, Q
        self.low, self.high = low, high
        self.kinked = any(node.rule.kinks != "none" for node in tape.nodes)

    def _slopes(self, z):
        theta = np.zeros((len(z), self.n))
        theta[:, self.columns] = z
        _, gradient = self.tape.value_and_gradient(theta)
        ones = np.zeros_like(theta)
        ones[:, self.columns] = 1.0
        curvature = self.tape.hessian_operator(theta)(ones)
        return gradient[:, self.columns], curvature[:, self.columns]

    def __call__(self, v, t):
        t = np.broadcast_to(t, v.shape)

        def residual(z):
            slope, curvature = self._slopes(z)
            return slope + self.q + self.Q * z + (z - v) / t, curvature + self.Q + 1.0 / t

        low, high = (np.broadcast_to(end, v.shape) for end in (self.low, self.high))
        with np.errstate(all="ignore"):
            at_zero = np.zeros(v.shape, dtype=bool)
            if self.kinked:  # the residual jumps at 0, which bisection comes near to but never meets
                below, above = (residual(np.full(v.shape, z))[0] for z in (-NEXT, NEXT))
                at_zero = (below < 0) & (above > 0) & (low < 0) & (high > 0)

            def without_jump(z):
                value, slope = residual(z)
                return np.where(at_zero, z / t, value), np.where(at_zero, 1.0 / t, slope)

            return safeguarded(without_jump, np.where(at_zero, 0.0, v), v, t, low, high)
