"""Proximal maps of functions of one coordinate each."""

import numpy as np

from strat.oracles import kernels
from strat.oracles.prox_base import folded, present
from strat.oracles.scalar_newton import safeguarded

#: The first place beside 0.
NEXT = 1e-300


class SoftBlock:
    """λ|z − c| on each coordinate, between bounds: soft thresholding, then clipping.

    Clipping after the prox is exact for convex functions of one number.
    """

    kind = "closed form"

    def __init__(self, columns, q, Q, weight, centre, low, high):
        self.columns, self.q, self.Q = columns, present(q), present(Q)
        self.weight, self.centre, self.low, self.high = weight, centre, low, high
        self._centred = bool(np.any(centre))
        self._bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())
        self._plain = not self._centred and not self._bounded and self.q is None and self.Q is None

    @property
    def diagonal(self):
        """Diagonal of the Hessian, (1 or K, m), where this is a quadratic; None where it is not."""
        if self._bounded or np.any(self.weight):
            return None
        return np.zeros((1, len(self.columns))) if self.Q is None else self.Q

    def __call__(self, v, t):
        if kernels.compiled and self._plain and (np.ndim(t) == 0 or t.shape[-1] == 1):
            return kernels.compiled.soft_threshold(v, t, self.weight)
        v, t = folded(v, t, self.q, self.Q)
        threshold = t * self.weight
        if self._centred:
            v = v - self.centre
        part = np.maximum(v, -threshold)
        np.minimum(part, threshold, out=part)
        z = np.subtract(v, part, out=part)
        if self._centred:
            z += self.centre
        return np.clip(z, self.low, self.high) if self._bounded else z


class ScalarBlock:
    """weight × an elementwise function of scale · z + offset that knows its own prox, between bounds."""

    kind = "closed form"

    def __init__(self, columns, q, Q, rule, others, weight, scale, offset, low, high):
        self.columns, self.q, self.Q, self.rule, self.others = columns, present(q), present(Q), rule, others
        self.weight, self.scale, self.offset, self.low, self.high = weight, scale, offset, low, high

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        with np.errstate(all="ignore"):
            u = self.rule.prox(v * self.scale + self.offset, t * self.weight * self.scale**2, *self.others)
        return np.clip((u - self.offset) / self.scale, self.low, self.high)

    def symmetric(self, pair):
        """Whether the functions of coordinates i and pair[i] are the same."""
        parts = (self.weight, self.scale, self.offset, *self.others)
        return all(np.array_equal(part[..., pair], part) for part in parts)


class PiecewiseBlock:
    """A convex piecewise linear function of each coordinate, between bounds.

    Parameters
    ----------
    columns : (m,) int ndarray
    q, Q : ndarray
        Linear and diagonal quadratic parts.
    knots : (J, 1, m) ndarray
        Ascending; +inf where a function has fewer.
    slopes : (J + 1, 1, m) ndarray
        Between and outside the knots, ascending.
    low, high : (m,) ndarray
    """

    kind = "closed form"

    def __init__(self, columns, q, Q, knots, slopes, low, high):
        self.columns, self.q, self.Q, self.knots, self.slopes = columns, present(q), present(Q), knots, slopes
        self.low, self.high = low, high

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        z = v - t * self.slopes[0]
        for knot, slope in zip(self.knots, self.slopes[1:], strict=True):
            # Up to the knot as the piece before has it, beyond it as the next has it, or else on the knot.
            z = np.maximum(np.minimum(z, knot), v - t * slope)
        return np.clip(z, self.low, self.high)

    def symmetric(self, pair):
        """Whether the functions of coordinates i and pair[i] are the same."""
        return all(np.array_equal(part[..., pair], part) for part in (self.knots, self.slopes))


class NewtonBlock:
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
            # A kink at 0 is no place that halved brackets come to.
            at_zero = np.zeros(v.shape, dtype=bool)
            if self.kinked:
                below, above = (residual(np.full(v.shape, z))[0] for z in (-NEXT, NEXT))
                at_zero = (below < 0) & (above > 0) & (low < 0) & (high > 0)

            def pinned(z):
                value, slope = residual(z)
                return np.where(at_zero, z / t, value), np.where(at_zero, 1.0 / t, slope)

            if not at_zero.any():
                return safeguarded(residual, v, t, low, high)
            return safeguarded(pinned, v, t, low, high, start=np.where(at_zero, 0.0, v))
