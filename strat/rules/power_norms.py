"""The p-norms."""

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import onto_l2_ball
from strat.rules import atoms, rule
from strat.rules.base import Rows, at_point, grouped
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
class Pnorm(Rows):
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
        rule_ = Norm2() if p == 2 else cls(p)
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
