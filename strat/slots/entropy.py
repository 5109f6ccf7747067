"""The numbers of the entropy graph regularizer at one point, and its exact graph step."""

import numpy as np
from scipy.special import wrightomega, xlogy

from strat.slots.base import Slot


class EntropySlot(Slot):
    """h(w) = sigma^2 sum_e w_e (log w_e - 1).

    Its gradient has a pole at 0, so that the whole of h is left to the prox, and the smooth part is zero.
    """

    projects = False

    def __init__(self, h, edges):
        self.edges, self.square = edges, float(h.sigma) ** 2

    def set(self, w, degrees=None):
        """Move to the weights w and return the smooth part, zero."""
        self._w = w
        return 0.0

    def rest(self):
        """h(w), +inf where a weight is negative."""
        w = self.edges.vector(self._w)
        if not np.min(w, initial=0.0) >= 0:
            return np.inf
        return self.square * float(np.sum(xlogy(w, w) - w))

    def prox(self, v, t, out):
        """Prox of h: the z with z + t sigma^2 log z = v, by the Wright omega function."""
        vector = self.edges.vector
        s = self.square * (vector(t) if isinstance(t, np.ndarray) else t)
        return self.edges.assign(s * wrightomega(vector(v) / s - np.log(s)), out)

    def gradient_without_ends(self, out):
        """Zero, as there is no smooth part."""
        out[...] = 0.0
        return np.zeros(self.edges.K)

    def curvature(self, out):
        """A number for the step lengths; with no smooth part any would do.

        Weights are about 1 and less, where the curvature of h is sigma^2 and more.
        """
        out[...] = min(self.square, 1.0)
        return out

    def scale(self):
        """Size of the terms that balance the distances; the prox holds them."""
        return 0.0

    def minimize(self, c):
        """Exact graph step: the weights exp(-c / sigma^2), which minimise sum_e c_e w_e + h(w)."""
        w = np.exp(c / -self.square)
        w *= self.edges.mask
        return w, 0
