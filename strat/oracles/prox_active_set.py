"""The prox of a quadratic and piecewise linear rows by a dual active-set method, compiled.

It starts at the minimum with each row on one of its linear pieces. As long as a row is outside its piece, that row's
multiplier moves towards the slope beyond until the row stands on the knot between the two, or goes over to the next piece;
rows on knots stay there, and leave when their own multiplier reaches a slope beside the knot. Each step raises the dual
objective and all are finite in number (Goldfarb and Idnani 1983, A numerically stable dual method for solving strictly
convex quadratic programs, for constraints; the slopes beside a knot are bounds of its multiplier here).
"""

import numpy as np

from strat.oracles import kernels
from strat.oracles.lifted_rows import LiftedRows
from strat.oracles.quadratic_part import QuadraticPart, by_row

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
        order = np.argsort(rows.free, kind="stable")  # coordinates without curvature go last
        self.free, cost, curvature = int(rows.free.sum()), rows.cost[:, order], rows.curvature[:, order]
        self.part = QuadraticPart(rows.A.shape[1], quadratic, transposed, curvature, cost, LENT)
        A = self.part.reduced(rows.A, rows.B[:, order])
        norms = np.linalg.norm(A, axis=1)
        norms[norms == 0] = 1.0
        self.A = A / norms[:, None]
        self.knots, self.slopes = by_row((rows.knots - rows.offset) / norms), by_row(rows.slopes * norms)

    @classmethod
    def of(cls, terms, quadratic, transposed=None, more=()):
        """The method for these terms, f, and ``more`` LiftedRows; None where it does not serve them."""
        if kernels.compiled is None or not terms or not (quadratic is None or hasattr(quadratic, "H")):
            return None
        parts = [*(LiftedRows.of(term) for term in terms), *more]
        if any(part is None for part in parts):
            return None
        rows = LiftedRows.beside(parts)
        small = rows.A.shape[1] + 3 * rows.B.shape[1] <= COORDINATES and len(rows.A) <= ROWS
        return cls(rows, quadratic, transposed) if small else None

    def __call__(self, v, t):
        """The prox at v (K, n) for steps t (K,), and the strata where it was found."""
        t = (t[:1] if np.ptp(t) == 0 else t)[:, None]
        G, load, _ = self.part(v, t)
        x, found = kernels.compiled.active_sets(
            self.A, G, load, self.knots, t[:, :, None] * self.slopes, self.free
        )
        return self.part.whole(x), found
