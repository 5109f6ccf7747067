"""The augmented Lagrangian method compiled, for a quadratic, piecewise linear rows and rows of the most usual functions."""

from dataclasses import dataclass

import numpy as np

from strat.oracles import kernels
from strat.oracles.design import ConstantDesign
from strat.oracles.group_terms import GroupFunctions, SpectralFunctions
from strat.oracles.kernels import KINDS, NUMBERS
from strat.oracles.lifted_rows import LiftedRows
from strat.oracles.quadratic_part import QuadraticPart, by_row
from strat.oracles.row_functions import ScalarRows
from strat.oracles.second_order_cone import SecondOrderCone

#: Coordinates and rows up to which one stratum after the other is faster than all at once.
COORDINATES, ROWS = 150, 1000
#: Their sets, by the rule that they bound.
BALLS = {
    "length": "ball",
    "squares": "ball",
    "size": "l1 ball",
    "top singular value": "spectral ball",
    "nuclear": "nuclear ball",
}
STEPS = 200


@dataclass
class Groups:
    """The groups of rows of one term, as the compiled method takes them.

    Attributes
    ----------
    kind : str
        One of KINDS.
    term : RowTerm
    shape : tuple of two ints
        Of one group.
    radius, weight : (1, g), (R, g) ndarray
        One of them is 0.
    power, tilt, low : float or (g,) ndarray
        Exponent or count, what multiple of the number is added, and its least value.
    """

    kind: str
    term: object
    shape: tuple
    radius: np.ndarray
    weight: np.ndarray
    power: float = 0.0
    tilt: object = 0.0
    low: object = -np.inf

    @classmethod
    def of(cls, term):
        """Those of a term; None for other functions."""
        functions = term.functions
        if term.segments is not None or not isinstance(term.design, ConstantDesign):
            return None
        if isinstance(functions, ScalarRows):
            return cls._numbers(term, functions)
        if isinstance(functions, SecondOrderCone):
            return cls("cone", term, (term.design.m, 1), np.zeros((1, 1)), np.zeros((1, 1)))
        if not isinstance(functions, GroupFunctions):
            return None
        rule, none = functions.rule, np.zeros((1, functions.groups))
        if isinstance(functions, SpectralFunctions) and rule is None:
            return cls("semidefinite", term, functions.shape, none + functions.radius, none)
        matrix = rule.kernel in KINDS[KINDS.index("semidefinite") :]
        shape = functions.shape if matrix else (term.design.m // functions.groups, 1)
        if functions.weight is None:
            ball = BALLS.get(rule.kernel)
            radius = np.sqrt(functions.radius) if rule.kernel == "squares" else functions.radius
            return None if ball is None or functions.absolute else cls(ball, term, shape, none + radius, none)
        kind, sizes = rule.kernel, functions.absolute
        if kind not in KINDS[len(NUMBERS) :] or (sizes and kind != "largest"):
            return None
        kind = "largest sizes" if sizes else kind
        return cls(kind, term, shape, none, np.abs(functions.weight), rule.kernel_power)

    @classmethod
    def _numbers(cls, term, functions):
        """Functions of one number."""
        rule, kind, absolute = functions.rule, functions.rule.kernel, functions.absolute
        if kind not in NUMBERS or functions.place or np.any(functions.high != np.inf):
            return None
        if absolute and kind != "power":
            return None
        whole = kind == "exponential" or (kind == "power" and not absolute and rule.even)
        low = functions.low
        if len(low) > 1 or np.any(low != -np.inf if whole else low != 0.0 if absolute else low < 0.0):
            return None
        low = np.full((1, 1), -np.inf) if absolute else low
        tilt = rule.kernel_tilt(*functions.others) if functions.others else np.zeros((1, 1))
        if not np.all(np.isfinite(tilt)) or len(tilt) > 1:
            return None
        kind = "power above 0" if kind == "power" and not absolute and not whole else kind
        m, weight = term.design.m, np.abs(functions.weight)
        tilt = np.broadcast_to(tilt, (1, m))[0]
        low = np.broadcast_to(low, (1, m))[0]
        return cls(kind, term, (1, 1), np.zeros((1, m)), weight, rule.kernel_power, tilt, low)

    @property
    def count(self):
        """How many groups there are."""
        return self.radius.shape[1]

    @property
    def norms(self):
        """What the rows of each group are measured by, (g,)."""
        return self.term.norms.reshape(self.count, -1)[:, 0]

    @property
    def strength(self):
        """What stays and what grows with the step, (1, g) and (R, g), for rows of norm 1."""
        radius = self.radius if self.kind == "semidefinite" else self.radius / self.norms
        if self.kind in NUMBERS or self.kind == "log det":
            return radius, self.weight
        return radius, self.weight / self.norms if self.kind == "inverse" else self.weight * self.norms


class AugmentedLagrangians:
    """argmin f(z) + Σ φ_i(a_iᵀz + offset_i) + Σ of functions of groups of rows + ‖z − v‖²/(2t), f quadratic.

    Parameters
    ----------
    rows : LiftedRows or None
        Without cost.
    groups : list of Groups
    quadratic : Quadratic or None
        f.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    """

    def __init__(self, rows, groups, quadratic, transposed=None):
        terms = [part.term for part in groups]
        n = terms[0].design.n
        rows = LiftedRows.none(n) if rows is None else rows
        self.part = QuadraticPart(n, quadratic, transposed, rows.curvature)
        m, matrices = len(rows.A), [rows.A, *(term.design.dense_matrix() for term in terms)]
        lifted = np.zeros((sum(map(len, matrices)), rows.B.shape[1]))
        lifted[:m] = rows.B
        own = np.sqrt((rows.A**2).sum(axis=1) + (rows.B**2).sum(axis=1))
        norms = np.concatenate([own, *(term.norms.reshape(-1) for term in terms)])
        norms[norms == 0] = 1.0
        self.A = self.part.reduced(np.concatenate(matrices), lifted) / norms[:, None]
        self.knots = by_row((rows.knots - rows.offset) / norms[:m])
        self.slopes = by_row(rows.slopes * norms[:m])
        self.offset = _beside([np.zeros((1, m)), *(term.offset for term in terms)]) / norms
        shapes, powers = [], []
        for part in groups:
            own = (part.norms, *(np.broadcast_to(values, part.count) for values in (part.tilt, part.low)))
            for norm, tilt, low in zip(*own, strict=True):
                shapes.append((KINDS.index(part.kind), m, *part.shape))
                powers.append((part.power, norm, tilt, low))
                m += part.shape[0] * part.shape[1]
        self.shapes, self.powers = np.array(shapes, dtype=np.intp), np.array(powers)
        self.fixed, self.growing = (_beside(part) for part in zip(*(g.strength for g in groups), strict=True))

    @classmethod
    def of(cls, terms, quadratic, transposed=None, more=()):
        """The method for these terms, f, and ``more`` LiftedRows; None where it does not serve them."""
        if kernels.compiled is None or not terms or not (quadratic is None or hasattr(quadratic, "H")):
            return None
        groups = [Groups.of(term) for term in terms]
        rows = [LiftedRows.of(term) for term, part in zip(terms, groups, strict=True) if part is None]
        rows += more
        groups = [part for part in groups if part is not None]
        if not groups or any(part is None or part.free.any() for part in rows):
            return None
        rows = LiftedRows.beside(rows) if rows else None
        n, M = terms[0].design.n, sum(part.term.design.m for part in groups)
        M += 0 if rows is None else len(rows.A)
        lifted = 0 if rows is None else rows.B.shape[1]
        return cls(rows, groups, quadratic, transposed) if n + lifted <= COORDINATES and M <= ROWS else None

    def __call__(self, v, t):
        """The prox at v (K, n) for steps t (K,), and the strata where it was found."""
        t = (t[:1] if np.ptp(t) == 0 else t)[:, None]
        G, load, start = self.part(v, t)
        slopes = t[:, :, None] * self.slopes
        groups = self.shapes, self.powers, self.fixed + t * self.growing
        x, found = kernels.compiled.stratum_proxes(
            self.A, self.offset, G, load, self.knots, slopes, groups, start, STEPS
        )
        return self.part.whole(x), found


def _beside(parts):
    R = max(map(len, parts))
    return np.concatenate([np.broadcast_to(part, (R, part.shape[1])) for part in parts], axis=1)
