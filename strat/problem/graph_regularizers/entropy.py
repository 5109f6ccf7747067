"""The entropy graph regularizer."""

import numpy as np
from scipy.special import wrightomega, xlogy

from strat.problem.graph_regularizers.base import POSITIVE, GraphOracle, GraphRegularizer


class EntropyOracle(GraphOracle):
    """h(w) = sigma^2 sum_e w_e (log w_e - 1), all of which is left to the prox, as its gradient has a pole at 0."""

    closed_form = True

    def smooth(self):
        return 0.0

    def split_gradient(self, out):
        out[...] = 0.0
        return np.zeros(self.edges.K)

    def curvature(self, out):
        """sigma^2, h's own curvature at a weight of 1, or 1 if less: without a smooth part any number bounds the Hessian."""
        out[...] = min(self.sigma**2, 1.0)
        return out

    def size(self, half):
        """1 + size of the weights: the large distances of far strata would hide the errors of near ones."""
        return 1 + np.linalg.norm(self._w)

    def rest(self):
        """h(w), +inf where a weight is negative."""
        w = self._w
        return self.sigma**2 * float(np.sum(xlogy(w, w) - w)) if np.min(w, initial=0.0) >= 0 else np.inf

    def prox(self, v, t, out):
        """Prox of h: the z with z + t sigma^2 log z = v, by the Wright omega function."""
        s = self.sigma**2 * t
        return np.multiply(s, wrightomega(v / s - np.log(s)), out=out)

    def minimize(self, c):
        """Exact graph step: the weights exp(-c / sigma^2), which minimise sum_e c_e w_e + h(w)."""
        return np.exp(c / -(self.sigma**2)), 0


class Entropy(GraphRegularizer):
    """Entropy graph regularizer, which learns W as a Gaussian kernel of the parameters.

    h(W) = (sigma^2/2) sum_{i != j} W_ij (log W_ij - 1), with W >= 0. For given parameters the best weights are
    exp(-||theta_i - theta_j||^2 / (2 sigma^2)). The prior graph has no part in h; its nodes are the strata.

    Parameters
    ----------
    sigma : float, > 0
        Width of the kernel.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.Entropy(sigma=1.0))
    >>> graph.W.round(3)
    array([[0.   , 0.995, 0.135],
           [0.995, 0.   , 0.164],
           [0.135, 0.164, 0.   ]])
    """

    _oracle_class = EntropyOracle
    _ranges, _powers = {"sigma": POSITIVE}, {"sigma": 0.5}

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def _formula(self, cp, W, W0):
        w = cp.upper_tri(W)
        return self.sigma**2 * cp.sum(-cp.entr(w) - w)
