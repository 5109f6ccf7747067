"""The augmented Lagrangian method compiled, for a quadratic, piecewise linear rows and groups of rows of the most usual kinds."""

import numpy as np

from strat import kernels
from strat.oracles.design import ConstantDesign
from strat.oracles.group_terms import GroupFunctions, SpectralFunctions
from strat.oracles.lifted_rows import LiftedRows
from strat.oracles.quadratic_part import QuadraticPart, by_row
from strat.oracles.second_order_cone import SecondOrderCone

#: Coordinates and rows up to which one stratum after the other is faster than all at once.
COORDINATES, ROWS = 150, 1000
#: Functions of groups of rows in the order of the compiled method (strat/augmented.c).
KINDS = (
    "length",
    "ball",
    "cone",
    "semidefinite",
    "top eigenvalue",
    "log det",
    "nuclear",
    "top singular value",
)
STEPS = 200


class AugmentedLagrangians:
    """argmin f(z) + Σ φ_i(a_iᵀz + offset_i) + Σ of functions of groups of rows + ‖z − v‖²/(2t), f quadratic.

    Parameters
    ----------
    rows : LiftedRows or None
        Without cost.
    groups : list of (kind, GroupTerm)
    quadratic : Quadratic or None
        f.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    """

    def __init__(self, rows, groups, quadratic, transposed=None):
        terms = [term for _, term in groups]
        n = terms[0].design.n
        if rows is None:
            rows = LiftedRows.none(n)
        self.part = QuadraticPart(n, quadratic, transposed, rows.curvature)
        matrices = [rows.A, *(term.design.dense_matrix() for term in terms)]
        lifted = np.concatenate([rows.B, np.zeros((sum(map(len, matrices[1:])), rows.B.shape[1]))])
        norms = [np.sqrt((rows.A**2).sum(axis=1) + (rows.B**2).sum(axis=1))]
        norms = np.concatenate([*norms, *(term.norms.reshape(-1) for term in terms)])
        norms[norms == 0] = 1.0
        self.A = self.part.reduced(np.concatenate(matrices), lifted) / norms[:, None]
        m = len(rows.A)
        self.knots = by_row((rows.knots - rows.offset) / norms[:m])
        self.slopes = by_row(rows.slopes * norms[:m])
        offsets = [np.zeros((1, m)), *(term.offset for term in terms)]
        R = max(map(len, offsets))
        self.offset = np.concatenate([np.broadcast_to(b, (R, b.shape[1])) for b in offsets], axis=1) / norms
        shapes, fixed, moving = [], [], []
        for kind, term in groups:
            functions, norm = term.functions, term.norms.reshape(term.functions.groups, -1)[:, 0]
            length = term.design.m // functions.groups
            matrix = functions.shape if kind in KINDS[3:] else (length, 1)
            for _ in range(functions.groups):
                shapes.append((KINDS.index(kind), m, *matrix))
                m += length
            radius, weight = _measures(kind, functions)
            fixed.append(radius / (1.0 if kind == "semidefinite" else norm))
            moving.append(weight * (1.0 if kind == "log det" else norm))
        self.shapes = np.array(shapes, dtype=np.intp)
        self.fixed = np.concatenate(fixed, axis=1)
        R = max(map(len, moving))
        self.moving = np.concatenate([np.broadcast_to(w, (R, w.shape[1])) for w in moving], axis=1)

    @classmethod
    def of(cls, terms, quadratic, transposed=None):
        """The method for these terms and f; None where it does not serve them."""
        if kernels.compiled is None or not terms or not (quadratic is None or hasattr(quadratic, "H")):
            return None
        groups = [(_kind(term), term) for term in terms]
        rows = [LiftedRows.of(term) for kind, term in groups if kind is None]
        groups = [(kind, term) for kind, term in groups if kind is not None]
        if not groups or any(part is None or part.free.any() for part in rows):
            return None
        rows = LiftedRows.beside(rows) if rows else None
        n, M = terms[0].design.n, sum(term.design.m for term in terms)
        lifted = 0 if rows is None else rows.B.shape[1]
        return cls(rows, groups, quadratic, transposed) if n + lifted <= COORDINATES and M <= ROWS else None

    def __call__(self, v, t):
        """The prox at v (K, n) for steps t (K,), and the strata where it was found."""
        t = (t[:1] if np.ptp(t) == 0 else t)[:, None]
        G, load, start = self.part(v, t)
        x, found = kernels.compiled.augmented_lagrangians(
            self.A,
            self.offset,
            G,
            load,
            self.knots,
            t[:, :, None] * self.slopes,
            self.shapes,
            self.fixed + t * self.moving,
            start,
            STEPS,
        )
        return self.part.whole(x), found


def _measures(kind, functions):
    """Radius and weight of each group, (1, groups) and (R, groups), one of them 0."""
    none = np.zeros((1, functions.groups))
    if kind == "cone":
        return none, none
    if functions.weight is not None:
        return none, np.abs(functions.weight)
    squares = functions.rule is not None and functions.rule.kernel == "squares"
    return none + (np.sqrt(functions.radius) if squares else functions.radius), none


def _kind(term):
    """Which of the functions of groups a term has; None for others."""
    functions = term.functions
    if term.segments is not None or not isinstance(term.design, ConstantDesign):
        return None
    if isinstance(functions, SecondOrderCone):
        return "cone"
    if not isinstance(functions, GroupFunctions) or functions.absolute:
        return None
    if isinstance(functions, SpectralFunctions) and functions.rule is None:
        return "semidefinite"
    kernel = functions.rule.kernel
    if functions.weight is None:
        return "ball" if kernel in ("length", "squares") else None
    return kernel if kernel in KINDS else None
