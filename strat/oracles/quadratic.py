"""Quadratics with one matrix for each stratum: least squares by sufficient statistics, ridges, linear terms."""

import numpy as np

from strat.oracles.base import Oracle


class Quadratic(Oracle):
    """c + gᵀ(theta − centre) + ½ (theta − centre)ᵀ H (theta − centre).

    Parameters
    ----------
    c : (K,) ndarray
    g : (K, n) ndarray
    H : (K, n, n) ndarray or None
        Symmetric, positive semidefinite; None for a linear function. A leading 1 serves all strata.
    centre : (K, n) ndarray or None
        Where c and g belong to; a centre near the minimiser keeps the value exact to rounding. None: 0.
    sizes : (n,) ndarray, optional
        See `Oracle`.
    """

    quadratic = True

    def __init__(self, c, g, H=None, centre=None, sizes=0.0):
        self.c, self.g, self.H, self.centre = c, g, H, centre
        self.n, self.sizes = g.shape[1], sizes

    def _parts(self, theta):
        d = theta if self.centre is None else theta - self.centre
        return d, None if self.H is None else np.matmul(self.H, d[..., None])[..., 0]

    def value(self, theta):
        """Value of each stratum."""
        d, hd = self._parts(theta)
        slope = self.g if hd is None else self.g + 0.5 * hd
        return self.c + (slope * d).sum(axis=1)

    def value_and_gradient(self, theta):
        """Value and gradient of each stratum."""
        d, hd = self._parts(theta)
        if hd is None:
            return self.c + (self.g * d).sum(axis=1), np.broadcast_to(self.g, d.shape).copy()
        return self.c + ((self.g + 0.5 * hd) * d).sum(axis=1), self.g + hd

    def hessian_operator(self, theta):
        """The constant Hessian as a map."""
        if self.H is None:
            return np.zeros_like
        return lambda v: np.matmul(self.H, v[..., None])[..., 0]

    def hessian(self, theta):
        """The constant Hessian's blocks."""
        return np.broadcast_to(0.0 if self.H is None else self.H, (len(theta), self.n, self.n))
