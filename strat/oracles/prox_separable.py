"""Proximal maps of functions of one coordinate each."""

import numpy as np

from strat.oracles.prox_base import folded, present

#: The bits of a number in floating point that order it among those of its sign.
ORDER = np.int64(2**63 - 1)


class SeparableBlock:
    """A convex function of each coordinate, with linear and diagonal quadratic parts q and Q, between bounds.

    Clipping the prox to the bounds is exact for convex functions of one number.
    """

    kind = "closed form"

    @property
    def ties(self):
        """Every coordinate may take a step of its own."""
        return [[c] for c in self.columns]

    def __init__(self, columns, q, Q, low, high):
        self.columns, self.q, self.Q, self.low, self.high = columns, present(q), present(Q), low, high
        self.bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def __call__(self, v, t):
        z = self.prox(*folded(v, t, self.q, self.Q))
        return np.clip(z, self.low, self.high) if self.bounded else z


class ScalarBlock(SeparableBlock):
    """weight × an elementwise function of scale · z + offset that knows its own prox."""

    def __init__(self, columns, q, Q, rule, others, weight, scale, offset, low, high):
        super().__init__(columns, q, Q, low, high)
        self.rule, self.others, self.weight, self.scale, self.offset = rule, others, weight, scale, offset

    def prox(self, v, t):
        with np.errstate(all="ignore"):
            u = v * self.scale + self.offset
            return (
                self.rule.prox(u, t * self.weight * self.scale**2, *self.others) - self.offset
            ) / self.scale


class SoftBlock(SeparableBlock):
    """weight × |z − centre| of each coordinate: soft thresholding."""

    def __init__(self, columns, q, Q, weight, centre, low, high):
        super().__init__(columns, q, Q, low, high)
        self.weight, self.centre = weight, present(centre)

    @property
    def diagonal(self):
        """Diagonal of the Hessian, (1 or K, m), where this is a quadratic; None where it is not."""
        if self.bounded or np.any(self.weight):
            return None
        return np.zeros((1, len(self.columns))) if self.Q is None else self.Q

    def prox(self, v, t):
        threshold = t * self.weight
        far = v if self.centre is None else v - self.centre
        z = far - np.minimum(np.maximum(far, -threshold), threshold)
        return z if self.centre is None else z + self.centre


class NewtonBlock(SeparableBlock):
    """Any sum of smooth functions of one coordinate each, given by a tape, by safeguarded Newton steps to rounding.

    The domain's bounds are among `low` and `high`, (1, m).
    """

    kind = "Newton, to rounding"

    def __init__(self, columns, q, Q, n, tape, low, high):
        super().__init__(columns, q, Q, low, high)
        self.n, self.tape = n, tape

    def prox(self, v, t):
        t = np.broadcast_to(t, v.shape)

        def residual(z):
            theta, ones = np.zeros((2, len(z), self.n))
            theta[:, self.columns], ones[:, self.columns] = z, 1.0
            slope = self.tape.value_and_gradient(theta)[1][:, self.columns]
            curvature = self.tape.hessian_operator(theta)(ones)[:, self.columns]
            return slope + (z - v) / t, curvature + 1.0 / t

        low, high = (np.broadcast_to(end, v.shape) for end in (self.low, self.high))
        with np.errstate(all="ignore"):
            return _root(residual, v, t, low, high)


def _root(residual, v, t, low, high):
    """z in [low, high] nearest to the root of a function of each entry, of which (z − v)/t is an increasing part.

    ``residual(z)`` gives the values and slopes. Newton steps that must at least halve, or else the bracket is halved (rtsafe,
    Press et al. 2007, §9.4), by the numbers between its ends that there are in floating point: the root may be at any order
    of distance from the end of a domain.
    """
    at_low, at_high = residual(low)[0] >= 0, residual(high)[0] <= 0
    z = np.where((v > low) & (v < high), v, _middle(low, high))
    f, slope = residual(z)
    # The residual grows at least by 1/t a unit, so the root lies within t |f| of any point.
    a = np.where(f > 0, np.maximum(low, z - t * f), z)
    b = np.where(f < 0, np.minimum(high, z - t * f), z)
    done, last = at_low | at_high, np.full(v.shape, np.inf)
    for _ in range(200):
        done |= np.abs(f) <= 4e-16 * (np.abs(z) + np.abs(v)) / t  # nothing but rounding
        trial = z - f / slope
        inside = (trial > a) & (trial < b) & (np.abs(trial - z) <= 0.5 * last)
        new = np.where(done, z, np.where(inside, trial, _middle(a, b)))
        last, z = np.abs(new - z), new
        done |= last <= 4e-16 * np.abs(z)
        if done.all():
            break
        f, slope = residual(z)
        a, b = np.where(f < 0, z, a), np.where(f > 0, z, b)
    return np.where(at_low, low, np.where(at_high, high, z))


def _middle(a, b):
    """The number halfway between others in the order of all numbers of floating point."""
    a, b = (np.where(i < 0, -(i & ORDER), i) for i in (x.astype(float).view(np.int64) for x in (a, b)))
    middle = a // 2 + b // 2
    return np.where(middle < 0, -middle | ~ORDER, middle).view(float)
