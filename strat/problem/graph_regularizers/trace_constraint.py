"""The trace-constrained graph regularizer."""

import numpy as np

from strat.oracles.thresholds import onto_simplex, water_level
from strat.problem.graph_regularizers.base import NONNEGATIVE, GraphOracle, GraphRegularizer
from strat.problem.graph_regularizers.dual_newton import DegreeDual

SLACK = 1e-9  # relative error of the trace that still counts as feasible


class TraceConstraintOracle(GraphOracle):
    """h(w) = (lambda2/2) (sum_i deg_i^2 + 2 sum_e w_e^2) on the simplex w >= 0, 2 sum_e w_e = lambda1."""

    total = property(lambda self: self.lambda1 / 2)  # of the weights

    def smooth(self):
        """The quadratic part of h."""
        return self.lambda2 * (float(self._degrees @ self._degrees) / 2 + float(self._w @ self._w))

    def split_gradient(self, out):
        """The gradient over the edges is lambda2 (2 w_e + deg_i + deg_j)."""
        np.multiply(self._w, 2 * self.lambda2, out=out)
        return self.lambda2 * self._degrees

    def curvature(self, out):
        """The Hessian A = lambda2 (B'B + 2 I) is nonnegative, so that A <= diag(A p / p) for any p > 0; here p is w plus
        the mean weight s.
        """
        edges, s = self.edges, (self.total or 1.0) / max(self.edges.count, 1)
        out[...] = 0.0
        edges.add_ends(self.lambda2 * (self._degrees + s * edges.neighbors), out)
        out /= self._w + s
        out += 2 * self.lambda2 or 1.0  # never zero, as it is divided by
        return out

    def feasible(self, w):
        """Whether w is on the simplex."""
        total = float(self.edges.degrees(w).sum()) / 2
        return super().feasible(w) and abs(total - self.total) <= SLACK * self.total

    def prox(self, v, t, out):
        """Projection on the simplex in the metric 1/t, written to out."""
        out[...] = onto_simplex(v, t, self.total)
        return out

    def minimize(self, c):
        """Exact graph step: the weights that minimise sum_e c_e w_e + h(w), and the number of Newton iterations."""
        edges = self.edges
        if not self.total:
            return edges.zeros(), 0
        distances = c - c.min()  # a shift has no effect, as the sum of the weights is given
        if not self.lambda2:
            nearest = distances == 0.0
            return nearest * (self.total / nearest.sum()), 0
        level = water_level(-distances, 1.0, 2 * self.lambda2 * self.total)
        dual = FixedTotal(edges, distances, self.lambda2, total=self.total)
        w, _, steps = dual.minimize(np.full(edges.K, level / 2))
        return w * (self.total / (float(edges.degrees(w).sum()) / 2)), steps


class FixedTotal(DegreeDual):
    """The strata's part of the dual is the minimum over tau of sum_i (tau - nu_i)^2 / (2 rho) - 2 tau total, rho a number."""

    def value(self, nu):
        """Value at the best tau, the mean of nu plus 2 total rho / K."""
        degrees = -self.gradient(nu)
        tau = nu.mean() + 2 * self.total * self.rho / len(nu)
        return float(self.rho / 2 * degrees @ degrees - 2 * tau * self.total)

    def gradient(self, nu):
        """Gradient (nu - tau) / rho, shape (K,): minus degrees that sum to twice the total."""
        return (nu - nu.mean()) / self.rho - 2 * self.total / len(nu)

    def size(self, mismatch, nu):
        """Largest mismatch of the degrees, over their mean."""
        return float(np.max(np.abs(mismatch))) * len(nu) / (2 * self.total)

    def longest(self, nu, step):
        return 1.0

    def direction(self, w, mismatch, nu):
        """Newton direction; the Hessian of this part is (I - 1 1'/K) / rho."""
        solve = self.solver(w, np.full(len(nu), 1 / self.rho))
        x, ones = solve(mismatch), solve(np.ones(len(nu)))
        whole = len(nu) * self.rho
        remaining = whole - ones.sum()  # zero only where no edge is active
        return -x - ones * (x.sum() / max(remaining, 1e-12 * whole))


class TraceConstraint(GraphRegularizer):
    """Graph regularizer with a given sum of all weights, which learns W.

    h(W) = (lambda2/2) ||G(W)||_F^2, with W >= 0 and Tr G(W) = sum_ij W_ij = lambda1, every edge counted twice. G(W) is
    the Laplacian: ||G(W)||_F^2 = sum_i deg_i^2 + ||W||_F^2. Strata may lose all their edges. The prior graph has no part
    in h; its nodes are the strata.

    Parameters
    ----------
    lambda1 : float, >= 0
        The sum of all entries of W.
    lambda2 : float, >= 0
        Weight of the squares, which spread the weights over more edges; with 0 all weight goes to the closest pair.

    References
    ----------
    X. Dong, D. Thanou, P. Frossard and P. Vandergheynst, "Learning Laplacian matrix in smooth graph signal
    representations", IEEE Transactions on Signal Processing, 2016.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.TraceConstraint(lambda1=6.0, lambda2=0.5))
    >>> graph.W.round(2)
    array([[0.  , 1.84, 0.51],
           [1.84, 0.  , 0.64],
           [0.51, 0.64, 0.  ]])
    >>> round(float(graph.W.sum()), 6)
    6.0
    """

    _oracle_class = TraceConstraintOracle
    _ranges, _powers = {"lambda1": NONNEGATIVE, "lambda2": NONNEGATIVE}, {"lambda2": 1}
    _needs_an_edge = True
    _weight = np.inf  # the size of W is given, however small h is

    def __init__(self, lambda1: float, lambda2: float) -> None:
        self.lambda1, self.lambda2 = lambda1, lambda2

    def _formula(self, cp, W, W0):
        return self.lambda2 / 2 * (cp.sum_squares(cp.sum(W, axis=1)) + cp.sum_squares(W))

    def _constraints(self, cp, W):
        return [cp.sum(W) == self.lambda1]
