"""The log-degree graph regularizer."""

import numpy as np

from strat.errors import GraphError, OptionError
from strat.problem.graph_regularizers.base import GraphRegularizer, check_range, several_strata, unbounded
from strat.problem.graph_regularizers.dual_newton import DegreeDual, minimize
from strat.problem.graph_regularizers.oracle import GraphOracle


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

    def __init__(self, lambda1, lambda2):
        self.lambda1 = lambda1
        self.lambda2 = lambda2

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W; then lambda2 must be above 0 where lambda1 is.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        check_range("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        check_range("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)
        if joint and self.lambda1 > 0:
            check_range("lambda2", self.lambda2, unbounded, lambda v: v > 0)

    def check_edges(self, edges, labels):
        """Check that every stratum has a candidate edge, as the logarithm of a degree 0 is not finite.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        labels : list
            The strata.

        Raises
        ------
        GraphError
            If one has none.
        """
        several_strata(self, edges)
        lonely = np.flatnonzero(edges.degrees(edges.mask) == 0)
        if lonely.size:
            raise GraphError(
                f"edges: stratum {labels[lonely[0]]!r} ({lonely.size} in all) has no candidate edge, so that its degree "
                f'is 0, where LogDiagonal is infinite. Add edges to it, use edges="all", or LogDet.'
            )

    def expression(self, W, W0=None):
        """Give h(W) as a CVXPY expression, without constraints.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K), symmetric
            The graph.
        W0 : ndarray, optional
            Not used.

        Returns
        -------
        cvxpy.Expression
            A convex scalar.
        """
        import cvxpy as cp

        W = cp.Constant(W) if isinstance(W, np.ndarray) else W
        return -self.lambda1 * cp.sum(cp.log(cp.sum(W, axis=1))) + self.lambda2 / 2 * cp.sum_squares(W)

    def oracle(self, edges, w0, outside=0.0):
        """Make memory for h and its derivatives at one point.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        w0 : edge array
            Not used.
        outside : float
            Not used.

        Returns
        -------
        LogDiagonalOracle
            The memory.
        """
        return LogDiagonalOracle(self, edges)


DIRECT = (
    1e-5  # least lambda1 lambda2 / nu^2 for which the weights come out of one dual solve to full accuracy
)
OUTER = 60  # most proximal steps where they do not
ACCURATE = 1e-11  # relative stationarity at which they end


class LogDiagonalOracle(GraphOracle):
    """h(w) = -lambda1 sum_i log deg_i + 2 (lambda2/2) sum_e w_e^2, smooth where all degrees are positive."""

    def __init__(self, h, edges):
        self.edges = edges
        self.lambda1, self.square = float(h.lambda1), 2.0 * h.lambda2

    def set(self, w, degrees=None):
        """Move to the weights w (and their degrees, where known) and return h(w), +inf outside the domain."""
        self._w = w
        self._degrees = self.edges.degrees(w) if degrees is None else degrees
        value = self.square / 2 * self.edges.dot(w, w)
        if self.lambda1:
            if not np.min(self._degrees) > 0:
                return np.inf
            value -= self.lambda1 * float(np.log(self._degrees).sum())
        return value if np.isfinite(value) else np.inf

    def gradient_without_ends(self, out):
        """Return a (K,) and write b to out, where the gradient over the edges is b_e + a_i + a_j."""
        np.multiply(self._w, self.square, out=out)
        return -self.lambda1 / self._degrees if self.lambda1 else np.zeros(self.edges.K)

    def curvature(self, out):
        """A diagonal that bounds the Hessian over the edges, written to out.

        The Hessian of -log deg has the entries A_ef = sum of 1/deg_i^2 over the common ends of e and f, so that
        A <= diag(A p / p) for any p > 0. Here p_e = w_e + s_e, where s_e is at most the mean weight at either end.
        """
        out[...] = 0.0
        if self.lambda1:
            mean = self.edges.add_ends(
                self.edges.degrees(self.edges.mask) / self._degrees, self.edges.zeros()
            )
            self.edges.add_ends(2 * self.lambda1 / self._degrees, out)
            out *= mean
            mean *= self._w
            mean += 1.0
            out /= mean
        out += self.square or (1e-300 if self.lambda1 else 1.0)  # never zero, as it is divided by
        return out

    def scale(self):
        """Size of the terms that balance in the stationarity condition: lambda1 ||1/deg_i + 1/deg_j||."""
        if not self.lambda1:
            return 0.0
        ends = self.edges.add_ends(self.lambda1 / self._degrees, self.edges.zeros())
        ends *= self.edges.mask
        return self.edges.norm(ends)

    def minimize(self, c):
        """Exact graph step: the weights that minimise sum_e c_e w_e + h(w), c >= 0, and the Newton iterations.

        With lambda2 tiny next to c^2 / lambda1 the weights are small differences of large multipliers; proximal steps
        with a longer curvature then lead to the same minimum.
        """
        edges = self.edges
        if not self.lambda1:
            return edges.zeros(), 0
        nearest = edges.nearest(c)
        if not self.square and not np.min(nearest) > 0:
            raise OptionError(
                "lambda2 = 0: two strata have equal parameters, so that the weight of their edge would grow for ever. "
                "Give lambda2 > 0."
            )
        count = edges.degrees(edges.mask)
        nu = (nearest + np.sqrt(nearest**2 + 8 * self.lambda1 * self.square / count)) / 4
        rho, w, total = self.square / 2, None, 0
        if self.lambda1 * rho >= DIRECT * np.max(nu) ** 2:
            w, _, total = minimize(DegreeDual(edges, c, rho), LogDegrees(self.lambda1), nu)
            return w, total
        for k in range(OUTER):
            soft = max(10.0**-k, 10 * DIRECT)
            rho = edges.add_ends(nu, edges.zeros()) ** 2 * (soft / self.lambda1)
            rho = np.where(edges.mask, np.maximum(rho, self.square / 2), 1.0)
            extra = rho - self.square / 2
            shifted = c if w is None else c - 2 * extra * w
            old, (w, nu, steps) = w, minimize(DegreeDual(edges, shifted, rho), LogDegrees(self.lambda1), nu)
            total += steps
            move = edges.vector(2 * extra * (w if old is None else w - old))
            if np.all(np.abs(move) <= ACCURATE * edges.vector(edges.add_ends(nu, edges.zeros()))):
                break
        return w, total


class LogDegrees:
    """The strata's part of the dual: -lambda1 sum_i log nu_i."""

    def __init__(self, lambda1):
        self.lambda1 = lambda1

    def value(self, nu):
        """Value, +inf outside nu > 0."""
        return -self.lambda1 * float(np.log(nu).sum()) if np.min(nu) > 0 else np.inf

    def gradient(self, nu):
        """Gradient, shape (K,)."""
        return -self.lambda1 / nu

    def size(self, gradient, nu):
        """Largest relative mismatch of the degrees."""
        return float(np.max(np.abs(gradient) * nu)) / self.lambda1

    def longest(self, nu, step):
        """Length up to which the step stays well inside the domain."""
        return 0.95 / max(0.95, float(np.max(-step / nu)))

    def direction(self, solver, gradient, nu):
        """Newton direction; `solver(shift)` solves with the edges' part of the Hessian plus a diagonal."""
        return -solver(self.lambda1 / nu**2)(gradient)
