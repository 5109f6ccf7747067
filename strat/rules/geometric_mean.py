"""Geometric means."""

import cvxpy as cp
import numpy as np

from strat.rules import atoms, forms, rule
from strat.rules.base import Rows, at_point, grouped


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
