"""The p-norms."""

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import onto_l2_ball
from strat.rules import atoms, rule
from strat.rules.base import Rows, at_point, grouped, newton_from_above
from strat.rules.piecewise import Abs


class Norm2(Rows):
    """‖u‖₂ of each row; prox shrinks the row as a whole."""

    kinks = "zero"
    invariance = "absolute"

    def prox(self, u, step):
        """Shrink the row as a whole."""
        norm = np.sqrt((u * u).sum(axis=-1))
        return u * np.maximum(1.0 - step / np.where(norm > 0, norm, np.inf), 0.0)[..., None]

    def project(self, u, radius):
        """Scaled to the surface of the ball, where u is outside."""
        return onto_l2_ball(u, radius)

    def forward(self, args):
        return np.sqrt((args[0] ** 2).sum(axis=-1)), None

    def _unit(self, args, out):
        return args[0] / np.where(out > 0, out, 1.0)[..., None]

    def pullback(self, i, args, out, memo, g):
        return g[..., None] * self._unit(args, out)

    def curve(self, i, args, out, memo, g, tangents):
        unit, t = self._unit(args, out), tangents[0]
        radial = unit * (unit * t).sum(axis=-1, keepdims=True)
        return (g / np.where(out > 0, out, np.inf))[..., None] * (t - radial)


@rule(atoms.Pnorm)
class PnormRule(Rows):
    """‖u‖_p of each row."""

    kinks = "zero"

    def __init__(self, p):
        self.p = p

    example = at_point(lambda u: cp.sum(cp.norm(u, 2, axis=1)), u=[[0.3, -1.0, 2.0], [1.0, 1.0, 0.5]])

    @classmethod
    def form(cls, walker, e, args):
        rows, p = grouped(args[0], atoms.axis_of(e)), atoms.exponent(e)
        if rows.shape[1] == 1 and p >= 1:
            return walker.apply(Abs(), [rows], rows.shape, e).reshaped(e.shape)
        rule_ = Norm2() if p == 2 else (Pnorm(p) if p > 1 else cls(p))
        return walker.apply(rule_, [rows], rows.shape[:1], e).reshaped(e.shape)

    def forward(self, args):
        u = np.abs(args[0])
        top = u.max(axis=-1, keepdims=True)
        scaled = u / np.where(top > 0, top, 1.0)
        return top[..., 0] * (scaled**self.p).sum(axis=-1) ** (1.0 / self.p), None

    def pullback(self, i, args, out, memo, g):
        (u,) = args
        ratio = np.abs(u) / np.where(out > 0, out, 1.0)[..., None]
        return g[..., None] * np.sign(u) * ratio ** (self.p - 1.0)

    @property
    def intervals(self):
        return {0: (0.0, np.inf)} if self.p < 1 else {}


class Pnorm(PnormRule):
    """‖u‖_p of each row for p > 1, which is convex.

    With λ the step and r = ‖z‖_p, the prox z of sizes a = |u| is r s, where r s_j + λ s_j^(p−1) = a_j and Σ s_j^p = 1:
    one equation in r, which is nearly linear when it is written (Σ s_j^p)^(−1/p) = 1.
    """

    invariance = "absolute"

    def prox(self, u, step):
        """Newton's method for r between bounds; each step solves the equations for the s_j."""
        a, step = np.abs(u), np.asarray(step, dtype=float)
        top = a.max(axis=-1)
        safe = np.where(top > 0, top, 1.0)  # all sizes in multiples of the largest entry
        a, strength = a / safe[..., None], step / safe
        q = self.p / (self.p - 1.0)
        # The prox is 0 for points in the ball of the dual norm.
        moved = ((a**q).sum(axis=-1) > strength**q) & (top > 0)
        high = (a**self.p).sum(axis=-1) ** (1.0 / self.p)
        low, r = np.zeros(high.shape), np.maximum(high - strength, 0.5 * high)
        last = np.full(high.shape, np.inf)
        for _ in range(100):
            s, total, slope = self._parts(a, r, strength)
            with np.errstate(all="ignore"):
                level = total ** (-1.0 / self.p)
                f, rise = level - 1.0, -level * slope / (self.p * total)
                low, high = np.where(f < 0, r, low), np.where(f > 0, r, high)
                trial = r - f / rise
            inside = (trial > low) & (trial < high) & (np.abs(trial - r) <= last)
            new = np.where(inside, trial, 0.5 * (low + high))
            last = np.abs(new - r)
            done = ~moved | (last <= 2e-16 * r) | (np.abs(f) <= 4e-16)
            r = np.where(done, r, new)
            if done.all():
                break
        s = self._parts(a, r, strength)[0]
        return np.sign(u) * s * np.where(moved, r * safe, 0.0)[..., None]

    def _parts(self, a, r, step):
        """s, Σ s^p and the derivative of that sum in r."""
        r, step, p = r[..., None], step[..., None], self.p
        if p >= 2:
            s = _root(r, step, p - 1.0, a)
            power = s ** (p - 2.0) if p != 3 else s
            moves = r + (p - 1.0) * step * power
            power = power * s
        else:  # in terms of s^(p−1), whose own power is above 1
            power = _root(step, r, 1.0 / (p - 1.0), a)
            s = power ** (1.0 / (p - 1.0)) if p != 1.5 else power * power
            moves = r + (p - 1.0) * step * power / np.where(s > 0, s, 1.0)
        return s, (power * s).sum(axis=-1), -p * (power * s / np.where(moves > 0, moves, 1.0)).sum(axis=-1)

    def project(self, u, radius):
        """u minus the prox of the dual norm (Moreau)."""
        return u - Pnorm(self.p / (self.p - 1.0)).prox(u, radius)


def _root(a, b, m, c):
    """The root x >= 0 of a x + b x^m = c, m >= 1: Newton steps from above, the left side being convex."""
    if m == 2:
        root = a + np.sqrt(a * a + 4.0 * b * c)
        return 2.0 * c / np.where(root > 0, root, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.minimum(np.where(a > 0, c / a, np.inf), np.where(b > 0, (c / b) ** (1.0 / m), np.inf))

    def equation(x):
        power = x * x if m == 3 else x ** (m - 1.0)
        return a * x + b * power * x - c, a + m * b * power

    return newton_from_above(equation, np.where(np.isfinite(x), x, 0.0))
