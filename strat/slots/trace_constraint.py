"""The numbers of the trace-constrained graph regularizer at one point, and its exact graph step."""

import numpy as np

from strat.slots.base import Slot
from strat.slots.dual_newton import DegreeDual, minimize
from strat.slots.simplex import onto_simplex, water_level

SLACK = 1e-9  # relative error of the trace that still counts as feasible


class TraceConstraintSlot(Slot):
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

    def __init__(self, slot):
        self.total, self.lambda2, self.K = slot.total, slot.lambda2, slot.edges.K

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
