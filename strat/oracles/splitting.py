"""Cone programs of a few unknowns, one a stratum with the same matrices: all at once, by ADMM."""

from contextlib import suppress
from functools import partial

import numpy as np
import scipy.linalg

from strat.oracles.cone_program import ConeProgram

#: Cones with a projection in closed form, and numbers of a program above which dense matrices are no good choice.
PROJECTED, LARGEST = ("zero", "nonnegative", "second order"), 200
#: Over-relaxation, iterations between two looks at the residuals, and most iterations.
RELAXATION, PERIOD, MOST = 1.6, 10, 500
#: Looks between two changes of the penalty rho, the factor by which it changes, and the ratio of the residuals that asks for it.
LOOKS, FACTOR, UNEVEN = 20, 8.0, 3.0
#: Accuracy that is asked for, and the one that is enough in the end: F sees violated constraints to first order.
ACCURACY, ENOUGH = 1e-13, 1e-10
#: With a larger share of strata left, or more looks for each stratum, Clarabel would have been as fast.
LEFT, LONG = 0.5, 2
_longest = partial(np.linalg.norm, ord=np.inf, axis=1)  # the largest absolute value of each row


class Splitting:
    """argmin_z t_k f(z) + ½ ‖z − v_k‖² for all strata k, f the sum of `functions` (Cones that are the same in all strata).

    With x = (z, u) and M = diag(I, 0) + t P, the program is: minimise ½ xᵀ M x + qᵀ x subject to A x + s = b, s in the cones.
    ADMM (as in Stellato et al. 2020) takes in turn

        x = argmin ½ xᵀ M x + qᵀ x + rho/2 ‖A x + s − b + y‖²,
        s = the projection of b − A x − y on the cones,        y = y + A x + s − b.

    One basis V serves all steps t: Vᵀ (diag(I, 0) + rho AᵀA) V = I and Vᵀ P V = diag(curvature). Each stratum has its own rho.
    """

    def __init__(self, functions):
        self.n = functions[0].n
        one = ConeProgram(1, self.n, functions)
        (A, b), (P, self.c) = one.constraints[:2], one.objective()
        P = P.toarray().astype(float)
        self.P = P + np.triu(P, 1).T
        kinds = [(PROJECTED.index(kind), size) for f in functions for kind, size in f.kinds]
        starts = np.cumsum([0, *(size for _, size in kinds)])
        cones = sorted((*kind, start) for kind, start in zip(kinds, starts, strict=False))
        # Rows of one kind, and second-order cones of one size, stand side by side.
        order = [row for _, size, start in cones for row in range(start, start + size)]
        self.A, self.b = A.toarray()[order], b[order]
        self.zero, self.lines = np.cumsum([sum(size for k, size, _ in cones if k == kind) for kind in (0, 1)])
        sizes = [size for kind, size, _ in cones if kind == 2]
        self.second_order = [(size, sizes.count(size)) for size in sorted(set(sizes))]
        self.near = np.arange(len(self.c)) < self.n
        self._scale(np.append(np.arange(self.lines), self.lines + np.repeat(np.arange(len(sizes)), sizes)))
        self.bases = {}
        self._basis(1.0)

    @classmethod
    def of(cls, functions):
        """The method for these functions, or None where it does not apply."""
        alike = all(f.strata is None and len(f.c) == 1 for f in functions)
        kinds = {kind for f in functions for kind, _ in f.kinds}
        small = sum(f.size + f.b.shape[1] for f in functions) <= LARGEST
        with suppress(scipy.linalg.LinAlgError):  # unknowns that the rows do not tell apart
            return cls(functions) if alike and small and kinds and kinds <= set(PROJECTED) else None

    def __call__(self, v, t, state):
        """z (K, n), the strata that are left unsolved, the state where the next call may start, and if it took long.

        The only error is that of A x + s = b: y fits s, and x fits both. It is relative to the size of v_k or A x.
        """
        K, m = len(v), len(self.b)
        if state.shape != (K, 2 * m + 1):
            state = np.hstack([np.zeros((K, 2 * m)), np.ones((K, 1))])
        s, dual, rho = state[:, :m].copy(), state[:, m:-1] * t[:, None], state[:, -1].copy()
        q = t[:, None] * self.c
        q[:, : self.n] -= v
        z, left, work = np.empty(v.shape), np.arange(K), 0
        for look in range(1, MOST // PERIOD + 1):
            done = np.zeros(K, dtype=bool)
            for penalty in np.unique(rho[left]):
                work += 1
                k = left[rho[left] == penalty]
                z[k], s[k], dual[k], gap, uneven = self._iterations(penalty, t[k], q[k], s[k], dual[k])
                done[k] = gap <= (ENOUGH if look == MOST // PERIOD else ACCURACY)
                if look % LOOKS == 0:
                    rho[k] *= FACTOR ** ((uneven > UNEVEN) - 1.0 * (uneven < 1 / UNEVEN))
            left = left[~done[left]]
            if not left.size:
                break
        long = work > LONG * max(K, MOST // PERIOD) or len(left) > LEFT * K
        return z, left, np.column_stack([s, dual / t[:, None], rho]), long

    def _iterations(self, rho, t, q, s, dual):
        """PERIOD iterations: z, s and the dual solution rho y, the gap, and the ratio of the residuals of equations and dual."""
        b, (curvature, V, AV) = self.b, self._basis(rho)
        H, y, back = 1 + t[:, None] * curvature, dual / rho, rho * AV
        origin = (b @ back - q @ V) / H
        for _ in range(PERIOD):
            x = origin - ((s + y) @ back) / H  # in the basis V
            ahead = s - y - RELAXATION * (x @ AV.T + s - b)
            before, s = s, self._project(ahead)
            y = s - ahead
        x = origin - ((s + y) @ back) / H
        image = x @ AV.T
        gap = _longest(image + s - b) / np.maximum(_longest(q[:, : self.n]), _longest(image))
        move = rho * _longest((s - before) @ self.A) / np.maximum(_longest(q), rho * _longest(y @ self.A))
        return x @ V[: self.n].T, s, rho * y, gap, gap / np.maximum(move, 1e-300)

    def _basis(self, rho):
        """(curvature, V, A V) for a penalty."""
        if rho not in self.bases:
            curvature, V = scipy.linalg.eigh(self.P, np.diag(self.near) + rho * self.A.T @ self.A)
            self.bases[rho] = curvature, V, self.A @ V
        return self.bases[rho]

    def _project(self, v):
        s = v.copy()
        s[:, : self.zero] = 0.0
        np.maximum(s[:, self.zero : self.lines], 0.0, out=s[:, self.zero : self.lines])
        for part in self._second_order_cones(s):
            # (h, x) with r = ‖x‖ goes to (a, a x / r), a = (h + r)/2, unless r <= h or r <= -h.
            h, x = part[..., 0], part[..., 1:]
            r = np.sqrt(np.vecdot(x, x))
            a = np.where(r <= h, h, np.maximum((h + r) / 2, 0.0))
            part[..., 0] = a
            x *= (np.minimum(a, r) / np.maximum(r, 1e-300))[..., None]
        return s

    def _second_order_cones(self, s):
        """Views (…, count, size) of the last axis of s, for each size."""
        row = self.lines
        for size, count in self.second_order:
            yield s[..., row : row + size * count].reshape(*s.shape[:-1], count, size)
            row += size * count

    def _scale(self, cone):
        """Scale the rows of A, those of a `cone` (m,) alike, and the columns of u.

        The squares of the logarithms of A's entries are least (Curtis and Reid 1972): so results do not depend on units.
        """
        rows, columns = np.nonzero(self.A)
        unknowns = np.hstack([np.eye(len(cone))[cone[rows]], np.eye(len(self.c))[columns][:, self.n :]])
        logarithms = np.linalg.lstsq(unknowns, -np.log(np.abs(self.A[rows, columns])))[0]
        rows = np.exp(logarithms[: len(cone)])[cone]
        columns = np.append(np.ones(self.n), np.exp(logarithms[len(cone) :]))
        self.A, self.P = self.A * rows[:, None] * columns, self.P * columns[:, None] * columns
        self.b, self.c = self.b * rows, self.c * columns
