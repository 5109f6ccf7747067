"""An interior point method for losses with one smoothed kink a record."""

import numpy as np

from strat.oracles.base import hessian_blocks
from strat.solvers.free_directions import FreeDirections, times

MOST = 40  # iterations
INSIDE = 0.4  # least distance of the first slopes c from the ends of their intervals, relative to the length
CENTRED = 0.02  # first complementarity, relative to a slope times an argument
BACK = 0.995  # longest step, relative to the way to the boundary
CLOSED = 1e-12  # the gap, relative to the first one, below which rounding decides
EXACT = 1e-3  # relative residual of the linear systems
DAMPING = 1e-9  # relative


class InteriorPoint:
    """Minimise Q(theta) + Σ_i max_{low <= c_i <= high} (c_i r_i − δ c_i² / 2), Q quadratic and r affine in theta.

    That is the problem of a smoothed loss with one kink, such as pinball, hinge or |u|. With multipliers a of c <= high
    and b of c >= low, the optimum has ∇Q + Aᵀc = 0 and r − δ c = a − b. Newton's method on these equations and on
    a (high − c) = b (c − low) = μ, μ falling to 0 (Mehrotra 1992), takes 10 to 20 steps whatever the start and the width,
    where Newton's method on the smoothed function goes from kink to kink. The matrix of a step is the Hessian of Q
    plus Aᵀ D A, D diagonal and positive.

    Parameters
    ----------
    problem : JointProblem
    system : NewtonSystem
        Solves with the matrices, in place of the Hessian that it has.
    rows : KinkedRows
        The records with kinks.
    rest : list of oracles
        All other terms but the Laplacian's; quadratic.
    """

    def __init__(self, problem, system, rows, rest):
        self.problem, self.system, self.rows, self.rest = problem, system, rows, rest
        self.everywhere = FreeDirections.everywhere(problem.K, problem.n)

    @classmethod
    def of(cls, problem, system):
        """The method for a problem, or None where it is not of this kind."""
        parts, regularizer = getattr(problem.loss, "parts", ()), problem.regularizer
        kinked = [part for part in parts if getattr(part, "kinked_rows", None) is not None]
        rest = [part for part in (*parts, regularizer) if part not in kinked]
        if len(kinked) != 1 or not system.forms_blocks:
            return None
        if not all(getattr(o, "quadratic", False) and o.has("hessian_operator") for o in rest):
            return None
        return cls(problem, system, kinked[0].kinked_rows, rest)

    def solve(self, point, tol):
        """The minimiser, from a differentiated point on, as far as a gradient of norm tol.

        Returns
        -------
        (K, n) ndarray or None
            None where the linear algebra fails.
        """
        rows = self.rows
        self._start(point)
        first = gap = self._gap()
        for _ in range(MOST):
            done = np.linalg.norm(self.slope + rows.back(rows.slopes(self.r))) <= tol
            if done or not gap > CLOSED * first:
                break
            self._factorise()
            predicted = self._direction(0.0, 0.0)
            length = self._length(predicted)
            # Centre as much as the predicted step fails to close the gap, and correct for its second order.
            left = self._gap(predicted, length)
            mean = (left / gap) ** 3 * gap / (2 * self.c.size)
            _, _, dc, da, db = predicted
            step = self._direction(mean + length**2 * da * dc, mean - length**2 * db * dc)
            if not np.isfinite(step[0]).all():
                return None
            self._move(step, self._length(step))
            gap = self._gap()
        return self.theta

    def _start(self, point):
        """Slopes in the middle of their intervals, and the multipliers that they ask for."""
        rows, self.theta = self.rows, point.theta.copy()
        self.r = rows.arguments(self.theta)
        at_kinks, wide = rows.slopes(self.r), rows.high - rows.low
        regularizer = self.problem.regularizer.value_and_gradient(self.theta)[1]
        self.slope = point.theta_gradient + regularizer - rows.back(at_kinks)  # of Q
        self.quadratic = sum(hessian_blocks(oracle, self.theta) for oracle in self.rest)
        self.c = np.clip(at_kinks, rows.low + INSIDE * wide, rows.high - INSIDE * wide)
        over = self.r - rows.delta * self.c
        centre = CENTRED * float(np.mean(wide)) * float(np.median(np.abs(self.r))) + 1e-300
        self.a = np.maximum(over, 0.0) + centre / (rows.high - self.c)
        self.b = np.maximum(-over, 0.0) + centre / (self.c - rows.low)
        self.above, self.below = rows.high - self.c, self.c - rows.low

    def _factorise(self):
        rows, system = self.rows, self.system
        self.D = 1 / (rows.delta + self.a / self.above + self.b / self.below)
        blocks = self.quadratic + rows.gram(self.D)
        size = np.einsum("kaa->k", blocks) / self.problem.n
        system.take(blocks)
        system.set(self.everywhere, DAMPING * (size + size.mean()) + 1e-300)
        self.uneven = self.slope + rows.back(self.c)
        self.off = self.r - rows.delta * self.c - self.a + self.b

    def _direction(self, first, second):
        """Changes of (theta, r, c, a, b) to where a (high − c) is `first` and b (c − low) is `second`."""
        rows = self.rows
        first, second = first / self.above - self.a, second / self.below - self.b
        q = self.off - first + second
        right = -self.uneven - rows.back(self.D * q)
        move = self.system.solve(right, self.everywhere, EXACT * np.linalg.norm(right))
        turn = rows.tangent(move)
        dc = self.D * (q + turn)
        return move, turn, dc, first + self.a * dc / self.above, second - self.b * dc / self.below

    def _length(self, step):
        """The longest step up to 1 that keeps the slopes inside and the multipliers positive."""
        _, _, dc, da, db = step
        pairs = ((dc, self.above), (-dc, self.below), (-da, self.a), (-db, self.b))
        reached = max(float(np.max(change / value)) for change, value in pairs)
        return min(1.0, BACK / reached) if reached > 0 else 1.0

    def _gap(self, step=(0.0,) * 5, length=0.0):
        """Σ a (high − c) + b (c − low), after a step."""
        _, _, dc, da, db = step
        upper = (self.a + length * da) * (self.above - length * dc)
        lower = (self.b + length * db) * (self.below + length * dc)
        return float(upper.sum() + lower.sum())

    def _move(self, step, length):
        move, turn, dc, da, db = step
        self.theta += length * move
        self.r, self.c = self.r + length * turn, self.c + length * dc
        self.a, self.b = self.a + length * da, self.b + length * db
        self.above, self.below = self.rows.high - self.c, self.c - self.rows.low
        bent = times(self.quadratic, move)
        self.slope += length * (bent + self.system.laplacian(move) if self.system.coupled else bent)
