"""Losses with kinks, smoothed or not: their records, an interior point method, and their prox."""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from strat.oracles.base import Rescaled, hessian_blocks, solve_blocks
from strat.oracles.cones import Cones, Matrix
from strat.oracles.design import Segments

MOST = 40  # iterations
INSIDE = 0.4  # least distance of initial slopes c from the ends of their intervals, relative to the length
CENTRED = 0.2  # initial complementarity, relative to a slope times an argument
NEAR = 0.1  # least share of CENTRED that is used, near the solution
BACK = 0.995  # longest step, relative to the way to the boundary
CLOSED = 1e-14  # the gap, relative to the initial gap, below which rounding decides
EXACT = 1e-3  # relative residual of the linear systems


@dataclass
class KinkedRows:
    """Σ_ij max_{low <= c <= high} (c r_ij − δ_i c² / 2) with r = A (unit · theta) + shift: pinball, hinge, |u| and the like."""

    design: object  # A, with m rows a record
    shift: np.ndarray  # (N, m J), for each of the J kinks of a row
    low: np.ndarray  # slopes before the kinks, with the records' weights in them
    high: np.ndarray  # slopes after the kinks, likewise
    delta: np.ndarray  # widths
    J: int
    segments: object  # the grouping of records
    unit: object = 1.0  # of each coordinate

    @classmethod
    def of(cls, rule, form, weight):
        """The rows of Σ weight × an atom at a BoundForm, or None where that is no such sum."""
        kinks, design = getattr(rule, "kinks_apart", None), form.design
        if kinks is None or design is None or form.inner or not design.has_gram or not form.on_records:
            return None
        if not ((weight > 0) & np.isfinite(weight)).all():
            return None
        place, low, high = kinks
        J, m, rows = len(place), design.m, form.segments.N
        weight = np.broadcast_to(weight.reshape(len(weight), -1), (rows, m)).repeat(J, axis=1)
        offset = 0.0 if form.offset is None else np.reshape(form.offset, (-1, m)).repeat(J, axis=1)
        place, low, high = (np.tile(part, m) for part in (place, low, high))
        shift, delta = np.broadcast_to(offset - place, weight.shape), rule.delta / weight
        return cls(design, shift, low * weight, high * weight, delta, J, form.segments)

    def rescaled(self, weight, unit):
        """The rows of weight × the sum at unit · theta, as a function of theta."""
        low, high, delta = self.low * weight, self.high * weight, self.delta / weight
        return replace(self, unit=self.unit * unit, low=low, high=high, delta=delta)

    def arguments(self, theta):
        """r, shape (N, m J)."""
        return self.tangent(theta) + self.shift

    def tangent(self, move):
        """Change of r where theta changes by `move`."""
        return self.design.matvec(self.unit * move).repeat(self.J, axis=1)

    def back(self, c):
        """Aᵀ c, shape (K, n)."""
        return self.unit * self.design.rmatvec(self._by_row(c))

    def gram(self, weights):
        """Aᵀ diag(weights) A, blocks (K, n, n)."""
        return self.design.gram(self._by_row(weights)) * np.multiply.outer(self.unit, self.unit)

    def _by_row(self, values):
        return values if self.J == 1 else values.reshape(len(values), -1, self.J).sum(axis=2)

    def slopes(self, r):
        """The c that attain the maximum: derivatives of the smoothed kinks."""
        return np.clip(r / (self.delta + 1e-300), self.low, self.high)

    def cones(self):
        """The sum, where δ > 0, as the records' cone programs: min t + s² / (2 δ) over t >= high (r − s), t >= low (r − s)."""
        N, m, n = *self.shift.shape, self.design.n
        size = np.maximum(np.abs(self.low), np.abs(self.high))  # the unit of t
        slopes, every = np.hstack([self.high / size, self.low / size]), np.arange(2 * m)
        a = np.stack([self.tangent(np.tile(e, (self.segments.K, 1))) for e in np.eye(n)], axis=2)
        a = np.concatenate([a, a], axis=1) * slopes[:, :, None]
        row, column = np.nonzero(a.any(axis=0))
        t, s = n + every % m, n + m + every % m
        values = np.hstack([a[:, row, column], -np.ones((N, 2 * m)), -slopes])
        A = Matrix(np.r_[row, every, every], np.r_[column, t, s], values)
        P = Matrix(s[:m], s[:m], 1 / self.delta)
        b, c = -slopes * np.tile(self.shift, 2), np.hstack([np.zeros((N, n)), size, np.zeros((N, m))])
        return Cones(n, n + 2 * m, [("nonnegative", 2 * m)], A, P, b, c, self.segments.index)


class InteriorPoint:
    """Minimise Q(theta) + Σ_i max_{low <= c_i <= high} (c_i r_i − δ c_i² / 2), Q quadratic and r affine in theta.

    This is the problem of a loss with kinks, such as pinball, hinge or |u|, exact (δ = 0) or smoothed. With multipliers
    a of c <= high and b of c >= low, the optimum has ∇Q + Aᵀc = 0 and r − δ c = a − b. Newton's method on these equations
    and on a (high − c) = b (c − low) = μ, μ falling to 0 (Mehrotra 1992), takes 10 to 20 steps whatever the start and the
    width, where Newton's method on the smoothed function goes from kink to kink. The matrix of a step is the Hessian of Q
    plus Aᵀ D A, D diagonal and positive.

    `rows` are KinkedRows and `quadratic` (K, n, n) the Hessian of Q without the `laplacian`, a map or None, that joins strata.
    ``solver_of(blocks)`` gives the function (b, tolerance) -> solution of the equations of blocks (K, n, n) and the Laplacian.
    `segments` groups the rows by stratum if nothing joins the strata: each stratum then takes steps of its own length.
    """

    def __init__(self, rows, quadratic, solver_of, segments=None, laplacian=None):
        self.rows, self.quadratic, self.solver_of, self.laplacian = rows, quadratic, solver_of, laplacian
        self.segments = segments or Segments(np.zeros(len(rows.shift)), 1)

    def solve(self, theta, slope, tol=0.0):
        """The minimiser (K, n), found from theta, where ∇Q is `slope`, to a gradient of norm tol or to rounding.

        ``closed`` then tells whether the gap is closed.
        """
        rows, stratum = self.rows, self.segments.index  # of the rows
        self._start(theta, slope)
        gap = self._gap()
        last, size = CLOSED * gap, 2.0 * self.c.shape[1] * self.segments.counts[:, None]
        for _ in range(MOST):
            done = np.linalg.norm(self.slope + rows.back(rows.slopes(self.r))) <= tol
            if done or not np.any(gap > last):
                break
            self.D = 1 / (rows.delta + self.a / self.above + self.b / self.below)
            self.newton = self.solver_of(self.quadratic + rows.gram(self.D))
            self.uneven = self.slope + rows.back(self.c)
            self.off = self.r - rows.delta * self.c - self.a + self.b
            predicted = self._direction(0.0, 0.0)
            length = self._length(predicted)[stratum]
            # Centre the more, the less the predicted step closes the gap, and correct for its second-order terms.
            left = self._gap(predicted, length)
            mean = ((left / np.maximum(gap, 1e-300)) ** 3 * gap / np.maximum(size, 1))[stratum]
            _, _, dc, da, db = predicted
            step = self._direction(mean + length**2 * da * dc, mean - length**2 * db * dc)
            if not np.isfinite(step[0]).all():
                break
            self._move(step, np.where(gap > last, self._length(step), 0.0))
            gap = self._gap()
        self.closed = np.all(gap <= 1e3 * last)
        return self.theta

    def _start(self, theta, slope):
        """Start from slopes well inside their intervals, and the multipliers that correspond to them."""
        rows, self.theta, self.slope = self.rows, theta.copy(), slope.copy()
        self.r = rows.arguments(theta)
        at_kinks, wide = rows.slopes(self.r), rows.high - rows.low
        self.c = np.clip(at_kinks, rows.low + INSIDE * wide, rows.high - INSIDE * wide)
        over = self.r - rows.delta * self.c
        pulls = rows.back(at_kinks)
        left = np.linalg.norm(slope + pulls) / (np.linalg.norm(slope) + np.linalg.norm(pulls) + 1e-300)
        centre = CENTRED * max(left, NEAR) * float(np.mean(wide)) * float(np.median(np.abs(self.r))) + 1e-300
        self.a = np.maximum(over, 0.0) + centre / (rows.high - self.c)
        self.b = np.maximum(-over, 0.0) + centre / (self.c - rows.low)
        self.above, self.below = rows.high - self.c, self.c - rows.low

    def _direction(self, first, second):
        """Changes of (theta, r, c, a, b) to where a (high − c) is `first` and b (c − low) is `second`."""
        rows = self.rows
        first, second = first / self.above - self.a, second / self.below - self.b
        q = self.off - first + second
        right = -self.uneven - rows.back(self.D * q)
        move = self.newton(right, EXACT * np.linalg.norm(right))
        turn = rows.tangent(move)
        dc = self.D * (q + turn)
        return move, turn, dc, first + self.a * dc / self.above, second - self.b * dc / self.below

    def _length(self, step):
        """The longest step up to 1 that keeps the slopes inside and the multipliers positive."""
        _, _, dc, da, db = step
        pairs = ((dc, self.above), (-dc, self.below), (-da, self.a), (-db, self.b))
        reached = reduce(np.maximum, (change / value for change, value in pairs)).max(axis=1)
        return np.minimum(1.0, BACK / np.maximum(self.segments.max(reached), 1e-300))[:, None]

    def _gap(self, step=(0.0,) * 5, length=0.0):
        """Σ a (high − c) + b (c − low), after a step, over the rows of each stratum with steps of its own, (K, 1)."""
        _, _, dc, da, db = step
        upper = (self.a + length * da) * (self.above - length * dc)
        lower = (self.b + length * db) * (self.below + length * dc)
        return self.segments.sum((upper + lower).sum(axis=1, keepdims=True))

    def _move(self, step, length):
        move, turn, dc, da, db = step
        move = length * move
        self.theta += move
        self.slope += np.matmul(self.quadratic, move[..., None])[..., 0]
        self.slope += self.laplacian(move) if self.laplacian else 0.0
        length = length[self.segments.index]
        self.r, self.c = self.r + length * turn, self.c + length * dc
        self.a, self.b = self.a + length * da, self.b + length * db
        self.above, self.below = self.above - length * dc, self.below + length * dc


def kinked_and_quadratic(terms):
    """(`KinkedRows` of the one oracle that has them, the other oracles, all quadratic); None for any other sum."""
    kinked = [term for term in terms if term.kinked_rows is not None]
    rest = [term for term in terms if term not in kinked]
    known = all(f.quadratic and f.has("hessian_operator") for f in rest)
    return (kinked[0].kinked_rows, rest) if known and len(kinked) == 1 else None


class KinkedProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) for f a sum of kinks and quadratics, all strata at once.

    `rows` are KinkedRows, `rest` quadratic oracles, and `rescue` is the ConeProx used where the method does not converge.
    """

    kind = "interior points, all strata at once"

    def __init__(self, rows, rest, rescue):
        self.rows, self.rest, self.rescue = rows, rest, rescue

    def rescaled(self, weight, unit):
        rest = [Rescaled(oracle, weight, unit) for oracle in self.rest]
        return KinkedProx(self.rows.rescaled(weight, unit), rest, self.rescue.rescaled(weight, unit))

    def __call__(self, v, t):
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        blocks = np.eye(v.shape[1]) / t[:, None, None] + sum(hessian_blocks(f, v) for f in self.rest)

        def solver_of(matrices):
            return lambda b, tolerance: solve_blocks(matrices, b)

        method = InteriorPoint(self.rows, blocks, solver_of, self.rows.segments)
        z = method.solve(v, sum((f.value_and_gradient(v)[1] for f in self.rest), np.zeros(v.shape)))
        return z if method.closed else self.rescue(v, t)
