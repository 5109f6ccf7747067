"""The trace-constrained graph regularizer."""

import numpy as np

from strat.problem.graph_regularizers.base import GraphRegularizer, check_range, several_strata
from strat.problem.graph_regularizers.dual_newton import DegreeDual, minimize
from strat.problem.graph_regularizers.oracle import GraphOracle
from strat.problem.graph_regularizers.simplex import onto_simplex, water_level


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

    def __init__(self, lambda1, lambda2):
        self.lambda1 = lambda1
        self.lambda2 = lambda2

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        check_range("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        check_range("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)

    def check_edges(self, edges, labels):
        """Check that there are edges to take the weight.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        labels : list
            The strata.

        Raises
        ------
        GraphError
            If there is one stratum only.
        """
        several_strata(self, edges)

    def constraints(self, W):
        """Constraints on W.

        Parameters
        ----------
        W : cvxpy.Variable, shape (K, K), symmetric
            The graph.

        Returns
        -------
        list of cvxpy constraints
            W >= 0 with a zero diagonal, and the sum of its entries.
        """
        import cvxpy as cp

        return [*super().constraints(W), cp.sum(W) == self.lambda1]

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
        return self.lambda2 / 2 * (cp.sum_squares(cp.sum(W, axis=1)) + cp.sum_squares(W))

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
        TraceConstraintOracle
            The memory.
        """
        return TraceConstraintOracle(self, edges)


SLACK = 1e-9  # relative error of the trace that still counts as feasible


class TraceConstraintOracle(GraphOracle):
    """h(w) = (lambda2/2) (sum_i deg_i^2 + 2 sum_e w_e^2) on the simplex w >= 0, 2 sum_e w_e = lambda1."""

    projects = False

    def __init__(self, h, edges):
        self.edges = edges
        self.total, self.lambda2 = h.lambda1 / 2.0, float(h.lambda2)

    def set(self, w, degrees=None):
        """Move to the weights w (and their degrees, where known) and return the quadratic part of h."""
        self._w = w
        self._degrees = self.edges.degrees(w) if degrees is None else degrees
        value = self.lambda2 * (float(self._degrees @ self._degrees) / 2 + self.edges.dot(w, w))
        return value if np.isfinite(value) else np.inf

    def feasible(self, w):
        """Whether w is on the simplex."""
        total = float(self.edges.degrees(w).sum()) / 2
        return super().feasible(w) and abs(total - self.total) <= SLACK * self.total

    def prox(self, v, t, out):
        """Projection on the simplex in the metric 1/t, written to out."""
        vector = self.edges.vector
        t = vector(t) if isinstance(t, np.ndarray) else 1.0
        return self.edges.assign(onto_simplex(vector(v), t, self.total), out)

    def gradient_without_ends(self, out):
        """Return a (K,) and write b to out, where the gradient over the edges is b_e + a_i + a_j."""
        np.multiply(self._w, 2 * self.lambda2, out=out)
        return self.lambda2 * self._degrees

    def curvature(self, out):
        """A diagonal that bounds the Hessian over the edges, written to out.

        The Hessian A = lambda2 (B'B + 2 I) is nonnegative, so that A <= diag(A p / p) for any p > 0; here p is w plus
        the mean weight.
        """
        out[...] = 0.0
        if not self.lambda2:
            out += 1.0  # never zero, as it is divided by
            return out
        s = (self.total or 1.0) / max(self.edges.count, 1)
        self.edges.add_ends(self.lambda2 * (self._degrees + s * self.edges.degrees(self.edges.mask)), out)
        out /= self._w + s
        out += 2 * self.lambda2
        return out

    def scale(self):
        """Size of the terms that balance in the stationarity condition: the gradient of h."""
        gradient = self.gradient(self.edges.zeros())
        gradient *= self.edges.mask
        return self.edges.norm(gradient)

    def minimize(self, c):
        """Exact graph step: the weights that minimise sum_e c_e w_e + h(w), and the Newton iterations."""
        edges = self.edges
        if not self.total:
            return edges.zeros(), 0
        vector = edges.vector(c)
        vector = vector - vector.min()  # the sum of the weights is given
        if not self.lambda2:
            nearest = vector == 0.0
            return edges.from_vector(nearest * (self.total / nearest.sum())), 0
        level = water_level(-vector, 1.0, 2 * self.lambda2 * self.total)
        dual, own = DegreeDual(edges, edges.from_vector(vector), self.lambda2), FixedTotal(self)
        w, _, steps = minimize(dual, own, np.full(edges.K, level / 2))
        w *= self.total / (float(edges.degrees(w).sum()) / 2)
        return w, steps


class FixedTotal:
    """The strata's part of the dual: min over tau of sum_i (tau - nu_i)^2 / (2 lambda2) - 2 tau total."""

    def __init__(self, graph_oracle):
        self.total, self.lambda2, self.K = graph_oracle.total, graph_oracle.lambda2, graph_oracle.edges.K

    def _degrees(self, nu):
        """The degrees (tau - nu) / lambda2 at the best tau; they sum to twice the total."""
        return (nu.mean() - nu) / self.lambda2 + 2 * self.total / self.K

    def value(self, nu):
        """Value."""
        degrees = self._degrees(nu)
        tau = nu.mean() + 2 * self.total * self.lambda2 / self.K
        return float(self.lambda2 / 2 * degrees @ degrees - 2 * tau * self.total)

    def gradient(self, nu):
        """Gradient, shape (K,)."""
        return -self._degrees(nu)

    def size(self, gradient, nu):
        """Largest mismatch of the degrees, over their mean."""
        return float(np.max(np.abs(gradient))) * self.K / (2 * self.total)

    def longest(self, nu, step):
        """Length up to which the step stays inside the domain: any."""
        return 1.0

    def direction(self, solver, gradient, nu):
        """Newton direction; the Hessian of this part is (I - 1 1'/K) / lambda2."""
        solve = solver(np.full(self.K, 1 / self.lambda2))
        x, ones = solve(gradient), solve(np.ones(self.K))
        left = self.K * self.lambda2 - ones.sum()  # zero only where no edge is active
        return -x - ones * (x.sum() / max(left, 1e-12 * self.K * self.lambda2))
