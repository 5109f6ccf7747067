"""Signs and whole numbers, for predictions: the class that a margin stands for, a count."""

import cvxpy as cp
import numpy as np

from strat.rules import atoms, rule
from strat.rules.base import Elementwise


@rule(atoms.sign)
class Sign(Elementwise):
    """1 where u > 0, −1 elsewhere."""

    @staticmethod
    def example():
        return cp.sign(cp.Variable(name="u")), {"u": -0.5}

    def value(self, u):
        return np.where(u > 0, 1.0, -1.0)


@rule(atoms.ceil)
class Ceil(Elementwise):
    """The least whole number >= u (CVXPY itself takes u within 1e-4 of a whole number as that)."""

    @staticmethod
    def example():
        return cp.ceil(cp.Variable(2, name="u")), {"u": [-0.5, 1.2]}

    def value(self, u):
        return np.ceil(u)


@rule(atoms.floor)
class Floor(Elementwise):
    """The largest whole number <= u (with the same difference)."""

    @staticmethod
    def example():
        return cp.floor(cp.Variable(2, name="u")), {"u": [-0.5, 1.2]}

    def value(self, u):
        return np.floor(u)
