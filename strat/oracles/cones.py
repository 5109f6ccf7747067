"""Functions of a stratum's parameters written as cone programs."""

from dataclasses import dataclass, field, replace

import numpy as np

from strat.oracles.base import symmetric


@dataclass
class Matrix:
    """Sparse matrices of one pattern: ``values`` has a row for each matrix, or one row for all."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def scaled(self, factor):
        """Each matrix times a number, or all times one number."""
        return Matrix(self.rows, self.columns, self.values * np.reshape(factor, (-1, 1)))


@dataclass
class Cones:
    """A function of a stratum's parameters theta, written as the value of a cone program, once or many times.

    f_i(theta) = min over u of ½ xᵀ P_i x + c_iᵀ x, subject to A_i x + s = b_i with s in a product of cones, where x stacks
    theta and the program's own unknowns u. Numbers that are the same for all i have one row.

    Parameters
    ----------
    n : int
        Length of theta; the unknowns u come after it in x.
    size : int
        Length of x.
    kinds : sequence of (str, number)
        The cones in the order of the rows: their kind, and their size or exponent.
    A, P : Matrix
        P is symmetric, and its upper triangle is listed.
    b, c : (I or 1, m), (I or 1, size) ndarray
    strata : (I,) int ndarray or None
        The stratum of every i; None for one function a stratum.
    low, high : (n,) ndarray, optional
        Bounds of theta that the cones imply; a solver keeps them but for rounding.
    transposed : (n,) int ndarray, optional
        Coordinates of the transposes of symmetric variables.
    """

    n: int
    size: int
    kinds: list
    A: Matrix
    P: Matrix
    b: np.ndarray
    c: np.ndarray
    strata: np.ndarray = None
    low: np.ndarray = None
    high: np.ndarray = None
    transposed: np.ndarray = None
    rows: dict = field(init=False, repr=False, default=None)

    def __post_init__(self):
        sizes = np.array([rows_of(kind, number) for kind, number in self.kinds], dtype=int)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        cone = np.repeat(np.arange(len(sizes)), sizes)
        self.rows = {"cone": cone, "offset": np.arange(starts[-1]) - starts[cone], "sizes": sizes}

    def scaled(self, factor):
        """The function times a positive number, or f_i times the i-th of several."""
        return replace(self, P=self.P.scaled(factor), c=self.c * np.reshape(factor, (-1, 1)))

    def in_units(self, unit):
        """The functions f_i(unit · theta), unit (n,)."""
        factor = np.ones(self.size)
        factor[: self.n] = unit
        A, P = self.A, self.P
        bounds = {
            name: end if end is None else end / unit for name, end in (("low", self.low), ("high", self.high))
        }
        return replace(
            self,
            A=Matrix(A.rows, A.columns, A.values * factor[A.columns]),
            P=Matrix(P.rows, P.columns, P.values * factor[P.rows] * factor[P.columns]),
            c=self.c * factor,
            **bounds,
        )

    def take(self, strata):
        """One function a stratum, for some strata alone."""
        if self.strata is None:
            return self
        place = np.full(int(max(self.strata.max(initial=-1), strata.max(initial=-1))) + 1, -1)
        place[strata] = np.arange(len(strata))
        here = place[self.strata] >= 0
        few = {
            name: value if len(value) == 1 else value[here] for name, value in (("b", self.b), ("c", self.c))
        }
        for name, matrix in (("A", self.A), ("P", self.P)):
            values = matrix.values if len(matrix.values) == 1 else matrix.values[here]
            few[name] = Matrix(matrix.rows, matrix.columns, values)
        return replace(self, strata=place[self.strata[here]], **few)

    def inside(self, theta):
        """theta (K, n) with its bounds and symmetries restored where rounding has broken them."""
        theta = symmetric(theta, self.transposed)
        return theta if self.low is None else np.clip(theta, self.low, self.high)


def rows_of(kind, number):
    """Rows of a cone."""
    if kind == "psd":
        return number * (number + 1) // 2
    return 3 if kind in ("exponential", "power") else number
