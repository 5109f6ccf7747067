"""The log-degree graph regularizer."""

import numpy as np

from strat.errors import OptionError
from strat.problem.graph_regularizers.base import NONNEGATIVE, GraphOracle, GraphRegularizer
from strat.problem.graph_regularizers.dual_newton import DegreeDual

DIRECT = 1e-5  # least lambda1 lambda2 / nu^2 for which one dual solve gives the weights to full accuracy
OUTER = 60  # most proximal steps otherwise
ACCURATE = 1e-11  # relative stationarity at which the proximal steps end


class LogDiagonalOracle(GraphOracle):
    """h(w) = -lambda1 sum_i log deg_i + 2 (lambda2/2) sum_e w_e^2, smooth where all degrees are positive."""

    def smooth(self):
        value = self.lambda2 * float(self._w @ self._w)
        if self.lambda1 and not np.min(self._degrees) > 0:
            return np.inf
        return value - self.lambda1 * float(np.log(self._degrees).sum()) if self.lambda1 else value

    def split_gradient(self, out):
        """The gradient over the edges is 2 lambda2 w_e - lambda1 / deg_i - lambda1 / deg_j."""
        np.multiply(self._w, 2 * self.lambda2, out=out)
        return -self.lambda1 / self._degrees if self.lambda1 else np.zeros(self.edges.K)

    def curvature(self, out):
        """The Hessian of -log deg has the entries A_ef = sum of 1/deg_i^2 over the common ends of e and f, so that
        A <= diag(A p / p) for any p > 0. Here p_e = w_e + s_e, where s_e is at most the mean weight at either end.
        """
        out[...] = 0.0
        if self.lambda1:
            edges = self.edges
            mean = edges.add_ends(edges.neighbors / self._degrees, edges.zeros())  # 1 / s_e
            edges.add_ends(2 * self.lambda1 / self._degrees, out)
            out *= mean
            out /= 1.0 + mean * self._w
        out += 2 * self.lambda2 or (1e-300 if self.lambda1 else 1.0)  # never zero, as it is divided by
        return out

    def scale(self):
        """Size of the terms that balance the distances: lambda1 ||1/deg_i + 1/deg_j||."""
        if not self.lambda1:
            return 0.0
        return np.linalg.norm(self.edges.add_ends(self.lambda1 / self._degrees, self.edges.zeros()))

    def minimize(self, c):
        """Exact graph step: the weights that minimise sum_e c_e w_e + h(w), c >= 0, and the number of Newton iterations.

        Where lambda2 is tiny beside c^2 / lambda1, the weights are small differences of large multipliers. Proximal
        steps, in which squares have a larger weight, then lead to the same minimum.
        """
        edges, squares = self.edges, self.lambda2
        if not self.lambda1:
            return edges.zeros(), 0
        nearest = np.full(edges.K, np.inf)
        for end in edges.ends:
            np.minimum.at(nearest, end, c)
        if not squares and not np.min(nearest) > 0:
            raise OptionError(
                "lambda2 = 0: two strata have equal parameters, so that their edge's weight has no bound. Give lambda2 > 0."
            )
        nu = (nearest + np.sqrt(nearest**2 + 16 * self.lambda1 * squares / edges.neighbors)) / 4
        direct = self.lambda1 * squares >= DIRECT * np.max(nu) ** 2
        w, total, ends = edges.zeros(), 0, edges.add_ends(nu, edges.zeros())
        for k in range(OUTER):
            # A step minimises sum_e c_e w_e + h(w) + sum_e extra_e (w_e - old_e)^2.
            share = max(10.0**-k, 10 * DIRECT) / self.lambda1
            rho = squares if direct else np.maximum(share * ends**2, squares)  # if direct, one step is exact
            extra, old = rho - squares, w
            w, nu, iterations = LogDegrees(edges, c - 2 * extra * old, rho, lambda1=self.lambda1).minimize(nu)
            total += iterations
            ends = edges.add_ends(nu, edges.zeros())
            if np.all(np.abs(2 * extra * (w - old)) <= ACCURATE * ends):
                break
        return w, total


class LogDegrees(DegreeDual):
    """The strata's part of the dual is -lambda1 sum_i log nu_i: its value, +inf outside nu > 0, and gradient (K,)."""

    def value(self, nu):
        return -self.lambda1 * float(np.log(nu).sum()) if np.min(nu) > 0 else np.inf

    def gradient(self, nu):
        return -self.lambda1 / nu

    def size(self, mismatch, nu):
        """Largest relative mismatch of the degrees."""
        return float(np.max(np.abs(mismatch) * nu)) / self.lambda1

    def longest(self, nu, step):
        """Longest step to try, which stays well inside the domain."""
        return 0.95 / max(0.95, float(np.max(-step / nu)))

    def direction(self, w, mismatch, nu):
        """Newton direction; the Hessian of this part is diag(lambda1 / nu^2)."""
        return -self.solver(w, self.lambda1 / nu**2)(mismatch)


class LogDiagonal(GraphRegularizer):
    """Log-degree graph regularizer, which learns W.

    h(W) = -lambda1 sum_i log(sum_j W_ij) + (lambda2/2) ||W||_F^2, with W >= 0; the norm is over the full matrix, so
    that every edge counts twice. Every stratum keeps neighbours, but the graph may fall into parts. The prior graph has
    no part in h; its nodes are the strata.

    Parameters
    ----------
    lambda1 : float, >= 0
        Weight of the logarithms, which keep all degrees positive.
    lambda2 : float, >= 0
        Weight of the squares, which spread the weights over more edges; > 0 where lambda1 > 0 and Theta is fitted, too.

    References
    ----------
    V. Kalofolias, "How to learn a graph from smooth signals", AISTATS 2016.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.LogDiagonal(lambda1=1.0, lambda2=0.1))
    >>> graph.W.round(2)
    array([[0.  , 3.01, 0.  ],
           [3.01, 0.  , 0.61],
           [0.  , 0.61, 0.  ]])
    """

    _oracle_class = LogDiagonalOracle
    _ranges = {"lambda1": NONNEGATIVE, "lambda2": NONNEGATIVE}
    _powers = {"lambda1": 1, "lambda2": 1}
    _falls_with_weights = _needs_an_edge = _needs_degrees = True

    def __init__(self, lambda1: float, lambda2: float) -> None:
        self.lambda1, self.lambda2 = lambda1, lambda2

    def _formula(self, cp, W, W0):
        return -self.lambda1 * cp.sum(cp.log(cp.sum(W, axis=1))) + self.lambda2 / 2 * cp.sum_squares(W)
