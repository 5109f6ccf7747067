"""Small cone programs, one per stratum with the same matrices, solved all at once by semismooth Newton steps and ADMM."""

from contextlib import suppress
from functools import partial

import numpy as np
import scipy.linalg

from strat.oracles import cone_projections as cones
from strat.oracles.cone_program import ConeProgram

#: Cones with a projection, size of a program up to which dense matrices are a good choice, and numbers held at a time.
PROJECTED, LARGEST, MOST = ("zero", "nonnegative", "second order", "exponential", "psd"), 200, 1_000_000
#: Projections onto these cones, and (D + ridge)⁻¹ for their derivatives D.
CONES = (
    (np.zeros_like, lambda v, ridge: np.full((*v.shape, 1), 1 / ridge)),
    (partial(np.maximum, 0.0), lambda v, ridge: 1 / ((v > 0)[..., None] + ridge)),
    (cones.project_second_order, cones.invert_second_order),
    (cones.project_exponential, cones.invert_exponential),
    (cones.project_semidefinite, cones.invert_semidefinite),
)
#: Over-relaxation, iterations of ADMM between runs of Newton steps, and how often ADMM runs at most.
RELAXATION, PERIOD, ROUNDS = 1.6, 10, 8
#: Most Newton steps in a run, their lengths, the ridge added to D, and the share of its diagonal added to the system.
STEPS, LENGTHS, RIDGE, ROUNDING = 20, (1.0, 0.5, 0.25, 0.1, 0.03, 0.01), 1e-8, 1e-14
#: Largest factor by which a Newton step may enlarge u, which diverges where there is no dual solution.
FAR = 10.0
#: Accuracy that is asked for, and the one accepted in the end: violated constraints change F to first order.
ACCURACY, ENOUGH = 1e-13, 1e-10
_longest = partial(np.linalg.norm, ord=np.inf, axis=1)  # the largest absolute value of each row


class Splitting:
    """argmin_z t_k f(z) + ½ ‖z − v_k‖² for all strata k, f the sum of `functions` (Cones that are the same in all strata).

    With x = (z, other unknowns) and M = diag(I, 0) + t P, minimise ½ xᵀ M x + qᵀ x subject to A x + s = b, s in the cones.
    With s the projection of u (m,) onto the cones, and y = s − u the dual solution, this is solved by the u for which

        R(u) = A x + s − b = 0,        x = argmin ½ xᵀ M x + qᵀ x + ½ ‖A x + s − b + y‖².

    ADMM (as in Stellato et al. 2020) iterates u − 1.6 R(u). Near a solution far fewer semismooth Newton steps on R suffice:
    they are taken while they lower R enough, and ADMM continues where they do not. One basis V serves all steps t: with
    Vᵀ (diag(I, 0) + AᵀA) V = I and Vᵀ P V = diag(curvature), x = V w for H w = (b − s − y)ᵀ A V − qᵀ V, H = 1 + t curvature.
    """

    def __init__(self, functions):
        self.n = functions[0].n
        one = ConeProgram(1, self.n, functions)
        (A, b), (P, self.c) = one.constraints[:2], one.objective()
        P = P.toarray().astype(float)
        self.P = P + np.triu(P, 1).T
        kinds = []  # (kind, size); half-lines and equations are cones of one row
        for f in functions:
            for (name, _), size in zip(f.kinds, f.rows["sizes"], strict=True):
                kind = PROJECTED.index(name)
                kinds += [(kind, 1)] * size if kind < 2 else [(kind, int(size))]
        starts = np.cumsum([0, *(size for _, size in kinds)])
        blocks = sorted((*kind, start) for kind, start in zip(kinds, starts, strict=False))
        # Cones of one kind and size are made adjacent.
        order = [row for _, size, start in blocks for row in range(start, start + size)]
        self.A, self.b = A.toarray()[order], b[order]
        self.blocks = [(*kind, kinds.count(kind)) for kind in sorted(set(kinds))]
        self._scale(np.repeat(np.arange(len(blocks)), [size for _, size, _ in blocks]))
        near = np.diag(1.0 * (np.arange(len(self.c)) < self.n))
        self.curvature, self.V = scipy.linalg.eigh(self.P, near + self.A.T @ self.A)
        self.AV = self.A @ self.V

    @classmethod
    def of(cls, functions):
        """The method for these functions, or None where it does not apply."""
        kinds = {kind for f in functions for kind, _ in f.kinds}
        small = sum(f.size + f.b.shape[1] for f in functions) <= LARGEST
        with suppress(scipy.linalg.LinAlgError):  # the rows do not determine the unknowns
            return cls(functions) if small and kinds and kinds <= set(PROJECTED) else None

    def __call__(self, v, t, state):
        """z (K, n), the strata that are left unsolved, and the state from which the next call may start.

        The only error is R, as s, y and x follow exactly from u. It is measured relative to the size of v_k or A x.
        """
        K, m = len(v), len(self.b)
        if state.shape != (K, 2 * m):
            state = np.zeros((K, 2 * m))
        u, q = state[:, :m] - t[:, None] * state[:, m:], t[:, None] * self.c
        q[:, : self.n] -= v
        H = 1 + t[:, None] * self.curvature
        points = _Points(self, H, (self.b @ self.AV - q @ self.V) / H, _longest(v), _longest(q), u)
        left = np.arange(K)
        for rounds in range(ROUNDS + 1):
            for some in np.array_split(left, 1 + left.size * self.AV.size // MOST):
                points.newton(some)
            left = left[points.gap[left] > (ENOUGH if rounds == ROUNDS else ACCURACY)]
            if rounds == ROUNDS or not left.size:
                break
            points.iterate(left)
        state = np.hstack([points.s, (points.s - points.u) / t[:, None]])
        return points.x @ self.V[: self.n].T, left, state

    def project(self, u):
        """The projection of u (k, m) on the cones."""
        s = np.empty(u.shape)
        for rows, part, (project, _) in self._cones(u):
            s[:, rows] = project(part).reshape(len(u), -1)
        return s

    def inverse(self, u):
        """The function X (k, m, j) ↦ (D + RIDGE)⁻¹ X, D the derivatives (k, m, m) of the projection at u."""
        parts = [(rows, invert(part, RIDGE)) for rows, part, (_, invert) in self._cones(u)]

        def apply(X):
            images = np.empty(X.shape)
            for rows, inverse in parts:
                part = X[:, rows].reshape(*inverse.shape[:3], -1)
                part = inverse * part if inverse.shape[2] == 1 else inverse @ part
                images[:, rows] = part.reshape(images[:, rows].shape)
            return images

        return apply

    def _cones(self, u):
        """For each kind and size of cones: their rows, u in these rows (k, count, size), and their functions."""
        row = 0
        for kind, size, count in self.blocks:
            rows = slice(row, row + count * size)
            yield rows, u[:, rows].reshape(-1, count, size), CONES[kind]
            row = rows.stop

    def _scale(self, cone):
        """Scale the rows of A, equally within each `cone` (m,), and the columns of the unknowns other than z.

        This minimises the squared logarithms of A's entries (Curtis and Reid 1972), so that results do not depend on units.
        """
        rows, columns = np.nonzero(self.A)
        unknowns = np.hstack([np.eye(len(cone))[cone[rows]], np.eye(len(self.c))[columns][:, self.n :]])
        logarithms = np.linalg.lstsq(unknowns, -np.log(np.abs(self.A[rows, columns])))[0]
        rows = np.exp(logarithms[: len(cone)])[cone]
        columns = np.append(np.ones(self.n), np.exp(logarithms[len(cone) :]))
        self.A, self.P = self.A * rows[:, None] * columns, self.P * columns[:, None] * columns
        self.b, self.c = self.b * rows, self.c * columns


class _Points:
    """The iterates of all strata: u, its projection s, x in the basis V, R, and the gap, the relative size of R."""

    def __init__(self, splitting, H, origin, size, slope, u):
        self.splitting, self.H, self.origin, self.size, self.slope = splitting, H, origin, size, slope
        self.u, self.s, self.x, self.R, self.gap = u, *self._at(np.arange(len(u)), u)

    def _at(self, k, u):
        """(s, x, R, the gap) of the strata k at u."""
        AV, b = self.splitting.AV, self.splitting.b
        s = self.splitting.project(u)
        x = self.origin[k] - ((2 * s - u) @ AV) / self.H[k]
        image = x @ AV.T
        R = image + s - b
        return s, x, R, _longest(R) / np.maximum(np.maximum(_longest(image), self.size[k]), 1e-300)

    def _move(self, k, u, values):
        self.u[k], self.s[k], self.x[k], self.R[k], self.gap[k] = u, *values

    def iterate(self, k):
        """PERIOD iterations of ADMM in the strata k."""
        u, values = self.u[k], (self.s[k], self.x[k], self.R[k])
        for _ in range(PERIOD):
            u = u - RELAXATION * values[2]
            values = self._at(k, u)
        self._move(k, u, values)

    def newton(self, k):
        """Newton steps in those of the strata k that are not solved, as long as they lower R enough.

        With Q = (D + ridge)⁻¹ and W = (I − D) Q, the changes du of u, and dx of x in the basis V, solve

            (H + (A V)ᵀ (W − I) A V) dx = −(A V)ᵀ (W − I) R,        du = −Q (R + A V dx).
        """
        AV = self.splitting.AV
        i = np.arange(AV.shape[1])
        for _ in range(STEPS):
            k = k[self.gap[k] > ACCURACY]
            if not k.size:
                break
            R, inverse = self.R[k][:, :, None], self.splitting.inverse(self.u[k])
            both = np.concatenate([np.broadcast_to(AV, (len(k), *AV.shape)), R], axis=2)
            both = AV.T @ ((1 + 2 * RIDGE) * inverse(both) - 2 * both)  # W − I = (1 + 2 ridge) Q − 2 I
            matrix = both[..., :-1]
            matrix[:, i, i] += self.H[k]
            matrix[:, i, i] *= 1 + ROUNDING
            du = -inverse(R - AV @ np.linalg.solve(matrix, both[..., -1:]))[..., 0]
            waits = np.arange(len(k))
            for length in LENGTHS:
                some = k[waits]
                u = self.u[some] + length * du[waits]
                values = self._at(some, u)
                falls = values[-1] <= (1 - length / 2) * self.gap[some]
                taken = falls & (_longest(u) <= FAR * (_longest(self.u[some]) + self.slope[some]))
                self._move(some[taken], u[taken], [value[taken] for value in values])
                waits = waits[~taken]
                if not waits.size:
                    break
            k = np.delete(k, waits)
