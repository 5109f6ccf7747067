"""The prox of a quadratic and piecewise linear rows by a dual active-set method, compiled.

It starts at the minimum with each row on one of its linear pieces. As long as a row is outside its piece, that row's
multiplier moves towards the slope beyond until the row stands on the knot between the two, or goes over to the next piece;
rows on knots stay there, and leave when their own multiplier reaches a slope beside the knot. Each step raises the dual
objective and all are finite in number (Goldfarb and Idnani 1983, A numerically stable dual method for solving strictly
convex quadratic programs, for constraints; the slopes beside a knot are bounds of its multiplier here).
"""

import numpy as np

from strat import kernels
from strat.oracles.lifted_rows import LiftedRows

#: Coordinates and rows up to which the method is faster than Newton steps for all strata at once; a lifted one counts 3 times.
COORDINATES, ROWS = 200, 1000
#: Curvature that coordinates without one are lent, and that is taken off again; that of the point's is 1.
LENT = 1e-5


class ActiveSets:
    """argmin f(z) + Σ φ_i(a_iᵀz + offset_i) + ‖z − v‖²/(2t), f quadratic, exact to rounding.

    Parameters
    ----------
    rows : LiftedRows
    quadratic : Quadratic or None
        f.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    """

    def __init__(self, rows, quadratic, transposed=None):
        # Coordinates without curvature go last.
        flat = ~rows.curvature.any(axis=0)
        order = np.argsort(flat, kind="stable")
        self.free, self.quadratic = int(flat.sum()), quadratic
        self.cost, self.curvature = rows.cost[:, order], rows.curvature[:, order]
        n = rows.A.shape[1]
        self.basis = self.place = None
        A = rows.A
        if transposed is not None:  # in the coordinates up to the diagonal
            own = np.flatnonzero(np.arange(n) <= transposed)
            self.place = np.searchsorted(own, np.minimum(np.arange(n), transposed))
            self.basis = np.eye(len(own))[self.place]
            A = A @ self.basis
        self.n, A = A.shape[1], np.concatenate([A, rows.B[:, order]], axis=1)
        self.norms = np.linalg.norm(A, axis=1)
        self.norms[self.norms == 0] = 1.0
        self.A = A / self.norms[:, None]
        self.knots = _by_row((rows.knots - rows.offset) / self.norms)
        self.slopes = _by_row(rows.slopes * self.norms)

    @classmethod
    def of(cls, terms, quadratic, transposed=None):
        """The method for these terms and f; None where it does not serve them."""
        if kernels.compiled is None or not terms or not (quadratic is None or hasattr(quadratic, "H")):
            return None
        parts = [LiftedRows.of(term) for term in terms]
        if any(part is None for part in parts):
            return None
        rows = LiftedRows.beside(parts)
        small = rows.A.shape[1] + 3 * rows.B.shape[1] <= COORDINATES and len(rows.A) <= ROWS
        return cls(rows, quadratic, transposed) if small else None

    def __call__(self, v, t):
        """The prox at v (K, n) for steps t (K,), and the strata where it was found."""
        t = (t[:1] if np.ptp(t) == 0 else t)[:, None]
        load, G, n = v, np.eye(v.shape[1])[None], self.n
        if self.quadratic is not None:
            zero = np.zeros((1, v.shape[1]))
            load = v - t * self.quadratic.value_and_gradient(zero)[1]
            if np.any(self.quadratic.H):
                G = G + t[:, :, None] * self.quadratic.H
        if self.basis is not None:
            load, G = load @ self.basis, self.basis.T @ G @ self.basis
        e = self.cost.shape[1]
        if e:
            G, own, load, more = G, t * self.curvature, load, -t * self.cost
            own = np.where(np.arange(e) < e - self.free, own, LENT)
            whole = np.zeros((max(len(G), len(own)), n + e, n + e))
            whole[:, :n, :n] = G
            whole[:, np.arange(n, n + e), np.arange(n, n + e)] = own
            G, load = whole, np.concatenate([load, np.broadcast_to(more, (len(load), e))], axis=1)
        load = np.array(load, dtype=float, order="C")
        x, found = kernels.compiled.active_sets(
            self.A, G, load, self.knots, t[:, :, None] * self.slopes, self.free
        )
        return (x[:, :n] if self.place is None else x[:, self.place]), found


def _by_row(part):
    """(J, R, m) as the compiled method reads it, (R, m, J)."""
    return np.ascontiguousarray(np.moveaxis(part, 0, 2))
