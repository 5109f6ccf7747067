"""Functions that are not convex, which predictions may hold: products, quotients, signs and whole numbers."""

import cvxpy as cp
import numpy as np

from strat.rules import atoms, rule
from strat.rules.base import Elementwise, at_point


@rule("product")
class ProductRule(Elementwise):
    """u · v of two expressions of the variables."""

    value = staticmethod(np.multiply)
    example = at_point(cp.multiply, u=[1.0, -2.0], v=[0.5, 3.0])


@rule("reciprocal")
class Reciprocal(Elementwise):
    """1 / u of data or, in predictions, of the variables."""

    value = staticmethod(np.reciprocal)
    example = at_point(lambda u, v: u / v, u=[1.0, -2.0], v=[0.5, 3.0])


@rule(atoms.sign)
class Sign(Elementwise):
    """1 where u > 0, −1 elsewhere."""

    value = staticmethod(lambda u: np.where(u > 0, 1.0, -1.0))
    example = at_point(cp.sign, u=-0.5)


@rule(atoms.ceil)
class Ceil(Elementwise):
    """The least whole number >= u (CVXPY rounds u within 1e-4 of a whole number to it)."""

    value = staticmethod(np.ceil)
    example = at_point(cp.ceil, u=[-0.5, 1.2])


@rule(atoms.floor)
class Floor(Elementwise):
    """The largest whole number <= u (CVXPY rounds u within 1e-4 of a whole number to it)."""

    value = staticmethod(np.floor)
    example = at_point(cp.floor, u=[-0.5, 1.2])
