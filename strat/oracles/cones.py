"""Functions of a stratum's parameters written as cone programs, and one call of Clarabel."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from strat.oracles.base import symmetric
from strat.oracles.clock import seconds_left


@dataclass
class Matrix:
    """Sparse matrices of one pattern: ``values`` has a row for each matrix, or one row for all."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass
class Cones:
    """A function of a stratum's parameters theta, written as the value of a cone program, once or many times.

    f_i(theta) = min over u of ½ xᵀ P_i x + c_iᵀ x, subject to A_i x + s = b_i with s in a product of cones, where x stacks
    theta and the program's own unknowns u. Numbers that are the same for all i have one row.
    """

    n: int  # length of theta, which comes first in x
    size: int  # length of x
    kinds: list  # the cones in the order of the rows: (kind, size or exponent)
    A: Matrix
    P: Matrix  # symmetric, its upper triangle listed
    b: np.ndarray  # (I or 1, m)
    c: np.ndarray  # (I or 1, size)
    strata: np.ndarray = None  # the stratum of every i, (I,); None for one function per stratum
    low: np.ndarray = None  # bounds of theta that the cones imply, (n,), met up to rounding
    high: np.ndarray = None
    transposed: np.ndarray = None  # coordinates of the transposes of symmetric variables, (n,)
    settle: Callable = None  # moves theta (K, n) into the domain of f where rounding has left it

    @cached_property
    def rows(self):
        """The cone of every row, the row's place in it, and the cones' sizes."""
        three, kinds = ("exponential", "power"), self.kinds
        sizes = [d * (d + 1) // 2 if kind == "psd" else 3 if kind in three else d for kind, d in kinds]
        sizes = np.array(sizes, dtype=int)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        cone = np.repeat(np.arange(len(sizes)), sizes)
        return {"cone": cone, "offset": np.arange(starts[-1]) - starts[cone], "sizes": sizes}

    def scaled(self, factor):
        """The function times a positive number, or f_i times the i-th of several."""
        factor = np.reshape(factor, (-1, 1))
        return replace(self, P=replace(self.P, values=self.P.values * factor), c=self.c * factor)

    def in_units(self, unit):
        """The functions f_i(unit · theta), unit (n,)."""
        factor = np.ones(self.size)
        factor[: self.n] = unit
        A = replace(self.A, values=self.A.values * factor[self.A.columns])
        P = replace(self.P, values=self.P.values * factor[self.P.rows] * factor[self.P.columns])
        low, high = (end if end is None else end / unit for end in (self.low, self.high))
        settle = self.settle and (lambda theta: self.settle(unit * theta) / unit)
        return replace(self, A=A, P=P, c=self.c * factor, low=low, high=high, settle=settle)

    def take(self, strata, most=np.inf):
        """The functions of some of the strata, which are renumbered, at most so many of each."""
        if self.strata is None:
            return self
        place = np.full(int(max(self.strata.max(initial=-1), strata.max(initial=-1))) + 1, -1)
        place[strata] = np.arange(len(strata))
        number = np.arange(len(self.strata)) - np.searchsorted(self.strata, self.strata)  # within the stratum
        here = (place[self.strata] >= 0) & (number < most)

        def few(values):
            return values if len(values) == 1 else values[here]

        A, P = (replace(matrix, values=few(matrix.values)) for matrix in (self.A, self.P))
        return replace(self, strata=place[self.strata[here]], A=A, P=P, b=few(self.b), c=few(self.c))

    def inside(self, theta):
        """theta (K, n) with its bounds, symmetries and domain restored where rounding has broken them."""
        theta = symmetric(theta, self.transposed)
        theta = theta if self.low is None else np.clip(theta, self.low, self.high)
        return theta if self.settle is None else self.settle(theta)


ACCEPTED = 1e-7  # the accuracy that is accepted where rounding error stops progress
LARGEST_GAP = 1e-3  # a solution with a larger gap, relative to the objective, is discarded
#: Numbers of entries of the objective's matrix, per row and in all, above which its factors are dense and large.
DENSE, LARGE = 20, 60_000


def cones_of(kind, number, size, count):
    """Clarabel's cones for `count` instances of one cone; zero and nonnegative cones are merged into one."""
    import clarabel

    made = {
        "zero": clarabel.ZeroConeT,
        "nonnegative": clarabel.NonnegativeConeT,
        "second order": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
        "exponential": lambda _: clarabel.ExponentialConeT(),
        "power": clarabel.PowerConeT,
    }
    lines = kind in ("zero", "nonnegative")
    return [made[kind](size * count)] if lines else [made[kind](number) for _ in range(count)]


def solved(P, q, A, b, cones, gap, feasible, step=0.99, regular=1e-8):
    """The solution of min ½ xᵀ P x + qᵀ x with b - A x in the cones; the time limit may end it early.

    `gap` and `feasible` are the accuracies asked for, of the objective and of the equations. `regular` is the
    regularization that Clarabel adds to the equilibrated matrix before factoring it.
    """
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter, settings.time_limit = False, 200, max(seconds_left(), 0.0)
    # qdldl is several times as fast as faer, except on dense graphs.
    settings.direct_solve_method = "faer" if P.nnz > max(DENSE * P.shape[0], LARGE) else "qdldl"
    settings.tol_gap_abs, settings.tol_gap_rel, settings.tol_feas = gap, gap, feasible
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = ACCEPTED
    # Clarabel's test for infeasibility multiplies by b, and assumes that b is near one.
    settings.tol_infeas_rel = settings.reduced_tol_infeas_rel = 1e-8 / max(np.abs(b).max(initial=0.0), 1.0)
    settings.static_regularization_constant = regular
    settings.max_step_fraction = step  # of the way to the cones' boundary
    settings.equilibrate_min_scaling, settings.equilibrate_max_scaling = 1e-6, 1e6
    return clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()


def gap_of(solution):
    """The gap between the primal and the dual objective."""
    return abs(solution.obj_val - solution.obj_val_dual)


def usable(solution, accepted):
    """Whether a solution is exact enough."""
    status = str(solution.status)
    if status in ("Solved", "AlmostSolved"):
        return True
    exact = max(solution.r_prim, solution.r_dual) <= accepted
    exact = exact and gap_of(solution) <= LARGEST_GAP * (1 + abs(solution.obj_val))
    return status in ("InsufficientProgress", "MaxIterations", "NumericalError") and exact
