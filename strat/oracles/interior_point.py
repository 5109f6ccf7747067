"""An interior-point method for proxes over kinks and smooth convex constraints, all strata at once.

Of each stratum it solves

    minimise   ‖z − v‖²/2 + t f(z) + t Σ_i slope_i (a_iᵀz − knot_i)₊   subject to   g_j(z) <= 0,  E z = e,

where f and g_j are smooth and convex, and infinite slopes are constraints a_iᵀz <= knot_i. With u = a_iᵀz − knot_i or
g_j(z), u = p − m, a multiplier y >= 0 and q = t slope − y >= 0, the solution is where y m = 0 and q p = 0; p = 0 where a
slope is infinite. Newton's method follows the path on which these products are one number that goes to 0 (Mehrotra
1992, On the implementation of a primal-dual interior point method). The objective is strongly convex with modulus 1,
so that the products and the gradient that are left bound the distance to the solution.
"""

import numpy as np

from strat.oracles import kernels
from strat.oracles.quadratic import Quadratic
from strat.oracles.row_curvature import RowCurvature

#: The first products in multiples of the squared distance, how far to the boundary steps go, what the constraints may
#: be missed by in multiples of what is left to gain, and the smallest change of a row that a multiplier answers to.
FIRST, NEARLY, MISSED, SOFT = 0.1, (0.99, 1.0 - 1e-6), 0.5, 1e-13
#: The least products that steps aim for, as smaller ones are worth nothing and cost digits; products in multiples of
#: the gradient's square, which they should not fall behind; and how much more curved f may be than its model.
LEAST, BEHIND, BENT = 1e-22, 1e-3, 1.5
#: Products and gradients at the end, and where rounding allows no more.
EXACT, ALMOST = (1e-18, 1e-10), (1e-15, 2e-9)


class Restricted:
    """What is minimised beside the distance, and over what.

    Parameters
    ----------
    smooth : Oracle
        f, with gradients and Hessian blocks.
    levels : list of Oracle
        g_j, the same for all strata.
    design : ConstantDesign
        The rows a_i.
    knots : (m,) ndarray
    slopes : (K or 1, m) ndarray
        Positive; inf for constraints, in whole columns.
    equal : (E, e)
        With orthonormal rows E (r, n).
    box : (low, high)
        Bounds of coordinates that are among the rows: functions are taken within them, whatever the rounding.
    """

    def __init__(self, smooth, levels, design, knots, slopes, equal, box):
        self.smooth, self.levels, self.design, self.knots, self.slopes = smooth, levels, design, knots, slopes
        self.equal, self.box = equal, box
        #: Levels and f, their Hessians in terms of rows where they have such, and these rows below the others.
        self.functions = [*levels, smooth]
        self.curvatures = [RowCurvature.of(g) for g in self.functions]
        rows = [curvature.rows for curvature in self.curvatures if curvature is not None]
        self.stacked = np.concatenate([design.dense_matrix(), *rows])

    def take(self, strata):
        """The same for some strata."""
        out = object.__new__(Restricted)
        out.__dict__.update(self.__dict__)
        out.smooth = self.smooth.take(strata)
        out.slopes = self.slopes if len(self.slopes) == 1 else self.slopes[strata]
        out.functions = [*self.levels, out.smooth]
        last = self.curvatures[-1]
        out.curvatures = [*self.curvatures[:-1], None if last is None else last.take(strata)]
        return out


_STATE = (
    "v",
    "t",
    "top",
    "z",
    "u",
    "normals",
    "m",
    "p",
    "q",
    "y",
    "nu",
    "own",
    "gradient",
    "gap",
    "error",
    "missed",
    "size",
    "moved",
    "done",
)


class InteriorPoint:
    """The state of all strata.

    Parameters
    ----------
    v : (K, n) ndarray
    t : (K,) ndarray
    problem : Restricted
    inside : (n,) ndarray
        Where the constraints hold, all but the equalities strictly.
    careful : bool
        Whether steps are shortened where f bends, which few points need and which costs time.

    Attributes
    ----------
    z : (K, n) ndarray
    u, m, p, q, y : (K, C) ndarray
        Of the rows, and then of the levels.
    nu : (K, r) ndarray
        Multipliers of the equalities.
    done : (K,) bool ndarray
    """

    def __init__(self, v, t, problem, inside, careful=False):
        self.v, self.t, self.problem, self.careful = v, t[:, None], problem, careful
        K, self.rows, J = len(v), problem.design.m, len(problem.levels)
        self.kinked = np.append(np.isfinite(problem.slopes[0]), np.zeros(J, dtype=bool))
        self.top = np.concatenate([self.t * problem.slopes, np.full((K, J), np.inf)], axis=1)
        self.z = np.broadcast_to(inside, v.shape).copy()
        self.nu = np.zeros((K, len(problem.equal[1])))
        self._expand()
        self._centre()
        self.moved = np.full(K, np.inf)
        self.look()

    def take(self, strata):
        """The same for some strata."""
        out = object.__new__(InteriorPoint)
        out.__dict__.update(self.__dict__)
        for name in _STATE:
            setattr(out, name, getattr(self, name)[strata])
        out.problem = self.problem.take(strata)
        return out

    def _centre(self):
        """Multipliers and slacks on the path, for the products that suit the distance to go."""
        pairs = max(self.u.shape[1] + self.kinked.sum(), 1)
        way = self.own if self.careful else self.v - self.z
        mu = FIRST * (1e-2 + (way**2).sum(axis=1, keepdims=True)) / pairs
        kinked, u = self.kinked, self.u
        self.m, self.p, self.q = np.maximum(-u, 1e-12), np.zeros_like(u), np.ones_like(u)
        if kinked.any():  # m/µ and p/µ are 1/y and 1/q, y + q is known, and so is p − m
            u, half = u[:, kinked], mu / self.top[:, kinked]
            total = 2.0 * half + np.sqrt(4.0 * half**2 + u**2)
            self.m[:, kinked] = np.where(u > 0, 2.0 * half * total / (total + u), 0.5 * (total - u))
            self.p[:, kinked] = np.where(u < 0, 2.0 * half * total / (total - u), 0.5 * (total + u))
            self.q[:, kinked] = mu / self.p[:, kinked]
        self.y = mu / self.m

    def _legal(self, z):
        return np.clip(z, *self.problem.box)

    def _levels(self, z):
        """Values of the levels (K, J)."""
        z = self._legal(z)
        return np.stack([g.value(z) for g in self.problem.levels], axis=1)

    def _expand(self):
        """Values and gradients at z."""
        problem, z = self.problem, self._legal(self.z)
        found = [g.value_and_gradient(z) for g in problem.levels]
        rows = problem.design.matvec(self.z) - problem.knots
        self.u = np.concatenate([rows, *(value[:, None] for value, _ in found)], axis=1)
        self.normals = np.stack([slope for _, slope in found], axis=1)
        self.own = self.z - self.v
        self.own = self.own + self.t * problem.smooth.value_and_gradient(z)[1]

    def _along(self, d):
        """Changes of the rows and levels along d."""
        levels = np.matmul(self.normals, d[..., None])[..., 0]
        return np.concatenate([self.problem.design.matvec(d), levels], axis=1)

    def _back(self, y):
        """The transpose."""
        levels = np.matmul(y[:, None, self.rows :], self.normals)[:, 0]
        return self.problem.design.rmatvec(y[:, : self.rows]) + levels

    def look(self):
        """How far the strata are from their ends."""
        E, e = self.problem.equal
        self.gradient = self.own + self._back(self.y) + self.nu @ E
        self.gap = (self.y * self.m).sum(axis=1) + (self.q * self.p).sum(axis=1)
        self.error = np.abs(self.gradient).max(axis=1)
        self.missed = (self.u + self.m - self.p).max(axis=1, initial=0.0)
        if len(e):
            self.missed = np.maximum(self.missed, np.abs(self.z @ E.T - e).max(axis=1))
        self.size = 1.0 + np.abs(self.z).max(axis=1)
        self.done = self.within(*EXACT)

    def within(self, gap, error):
        """Where products and gradients are that small."""
        rounding = 1e-3 * error * np.abs(self.v).max(axis=1)
        close = (self.gap <= gap * self.size**2) & (self.missed <= error * self.size + rounding)
        return close & (np.minimum(self.error, self.moved) <= error * self.size + rounding)

    def _hessian(self, weight):
        """The Hessians, with what the products' linearisation adds: the upper triangles."""
        problem, L, z = self.problem, self.rows, self._legal(self.z)
        scales = [self.y[:, L + j] for j in range(len(problem.levels))] + [self.t[:, 0]]
        weights, vectors, factors = [weight[:, :L]], [self.normals], [weight[:, L:]]
        H = np.zeros((len(z), z.shape[1], z.shape[1]))
        H.reshape(len(H), -1)[:, :: z.shape[1] + 1] = 1.0
        for scale, curvature, g in zip(scales, problem.curvatures, problem.functions, strict=True):
            if curvature is None:
                H += g.hessian(z) * scale[:, None, None]
                continue
            own, more = curvature.at(z)
            weights.append(own * scale[:, None])
            vectors.append(more)
            factors.append(np.broadcast_to(-scale[:, None], more.shape[:2]))
            if curvature.constant is not None:
                H += curvature.constant * scale[:, None, None]
        weights, vectors, factors = (np.concatenate(a, axis=1) for a in (weights, vectors, factors))
        if kernels.compiled:
            return kernels.compiled.normal_matrices(problem.stacked, weights, vectors, factors, H)
        H += np.matmul(problem.stacked.T * weights[:, None, :], problem.stacked)
        H += np.matmul(np.swapaxes(vectors * factors[..., None], 1, 2), vectors)
        return H

    def iterate(self):
        """A step to smaller products."""
        E, e = self.problem.equal
        y, m, p, q, kinked, L = self.y, self.m, self.p, self.q, self.kinked, self.rows
        excess, gap = self.u + m - p, self.gap[:, None]
        pairs = y.shape[1] + kinked.sum()
        weight = 1.0 / (p / q + m / y + SOFT)
        solved = _Solved(self._hessian(weight))
        if len(e):
            across = np.stack([solved(np.broadcast_to(row, self.z.shape)) for row in E], axis=2)
            schur, short = np.linalg.inv(np.matmul(E, across)), self.z @ E.T - e

        def direction(below, above, excess):
            """Changes of all, such that the products change by these to first order."""
            change = excess - above / q + below / y
            right = self.gradient + self._back(weight * change)
            d = -solved(right)
            nu = 0.0
            if len(e):
                nu = _times(schur, d @ E.T + short)
                d = d - _times(across, nu)
            dy = weight * (self._along(d) + change)
            model = -(d * right).sum(axis=1)
            return d, nu, model, dy, (below - m * dy) / y, np.where(kinked, (above + p * dy) / q, 0.0)

        def longest(dy, dm, dp):
            """How far all that is positive stays so."""
            speed = np.maximum(-dy / y, -dm / m)
            if kinked.any():
                with_kinks = np.maximum(dy / q, -dp / np.where(kinked, p, 1.0))
                speed = np.where(kinked, np.maximum(speed, with_kinks), speed)
            return 1.0 / np.maximum(speed.max(axis=1, keepdims=True), 1e-300)

        # Where a step with no regard for the path would lead tells how much smaller the products can be.
        below, above = -y * m, -q * p
        d, _, _, dy, dm, dp = direction(below, above, excess)
        length = np.minimum(1.0, longest(dy, dm, dp))
        after = ((y + length * dy) * (m + length * dm)).sum(axis=1, keepdims=True)
        after = after + (np.where(kinked, q - length * dy, 0.0) * (p + length * dp)).sum(
            axis=1, keepdims=True
        )
        aim = np.maximum(np.minimum(after / gap, 1.0) ** 3 * gap / pairs, LEAST * self.size[:, None] ** 2)
        aim = np.maximum(aim, np.minimum(BEHIND * self.error[:, None] ** 2, 0.5 * gap) / pairs)
        # What linear models leave out of the products, and of the levels up to their slack, is put right.
        bend = np.zeros_like(m)
        bend[:, L:] = self._levels(self.z + length * d) - self.u[:, L:] - length * self._along(d)[:, L:]
        bend = np.where(bend < m, bend, m) if len(self.problem.levels) else bend
        bend[:, :L] = 0.0
        above = np.where(kinked, above + aim + dy * dp, 0.0)
        d, nu, model, dy, dm, dp = direction(below + aim - dy * dm, above, excess + bend)
        length = np.minimum(1.0, np.clip(1.0 - gap / pairs, *NEARLY) * longest(dy, dm, dp))
        length = self._shortened(length, d, dm[:, L:], excess[:, L:])
        if self.careful:
            length = self._calmed(length, d, model)
        # Where curvature is large, rounding leaves gradients that move nothing: then Newton's last step bounds the error.
        self.moved = np.where(length[:, 0] > 0.9, np.abs(d).max(axis=1), np.inf)
        self.z, self.nu = self.z + length * d, self.nu + length * nu
        self.y, self.m, self.p = y + length * dy, m + length * dm, p + length * dp
        self.q = np.where(kinked, q - length * dy, 1.0)
        self._expand()
        self.look()

    def _shortened(self, length, d, dm, excess):
        """Lengths at which the levels are missed by less than before, or by little for what is left to gain."""
        y, m = self.y[:, self.rows :], self.m[:, self.rows :]
        scale = np.matmul(np.abs(self.normals), np.abs(self.z)[..., None])[..., 0]
        noise = 1e-14 * (1.0 + scale)
        pending, problem = np.arange(len(d)), self
        for _ in range(30):
            part = length[pending]
            missed = problem._levels(self.z[pending] + part * d[pending]) + m[pending] + part * dm[pending]
            allowed = np.maximum((1.0 - 0.5 * part) * excess[pending], noise[pending])
            fine = (missed <= allowed) | (missed * y[pending] <= MISSED * self.gap[pending, None])
            pending = pending[~fine.all(axis=1)]
            if not len(pending):
                break
            length[pending] *= 0.5
        return length

    def _calmed(self, length, d, model):
        """Lengths at which f bends not much more than the model dᵀHd of all says."""
        f, bends = self.problem.smooth, self.own - (self.z - self.v)
        if isinstance(f, Quadratic):
            return length
        pending = np.arange(len(d))
        for _ in range(30):
            some = self.problem.take(pending).smooth if len(pending) < len(d) else f
            there = some.value_and_gradient(self._legal(self.z[pending] + length[pending] * d[pending]))[1]
            rise = ((self.t[pending] * there - bends[pending]) * d[pending]).sum(axis=1)
            pending = pending[~(rise <= BENT * length[pending, 0] * model[pending])]
            if not len(pending):
                break
            length[pending] *= 0.5
        return length


class _Solved:
    """The solutions of linear systems with positive definite matrices (K, n, n), as a map of right-hand sides (K, n).

    Where loops are compiled, the matrices' upper triangles are enough.
    """

    def __init__(self, matrices):
        self.matrices = kernels.compiled.cholesky(matrices) if kernels.compiled else matrices

    def __call__(self, b):
        if kernels.compiled:
            return kernels.compiled.cholesky_solve(self.matrices, np.array(b, order="C"))
        try:
            return np.linalg.solve(self.matrices, b[..., None])[..., 0]
        except np.linalg.LinAlgError:  # a matrix that is singular to rounding
            return _times(np.linalg.pinv(np.nan_to_num(self.matrices), hermitian=True), b)


def _times(matrices, x):
    return np.matmul(matrices, x[..., None])[..., 0]
