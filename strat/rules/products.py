"""Products and quotients of expressions of the variables, which predictions may hold."""

import cvxpy as cp

from strat.rules import rule
from strat.rules.base import Elementwise


@rule("product")
class ProductRule(Elementwise):
    """u · v of two expressions of the variables."""

    @staticmethod
    def example():
        u, v = cp.Variable(2, name="u"), cp.Variable(2, name="v")
        return cp.multiply(u, v), {"u": [1.0, -2.0], "v": [0.5, 3.0]}

    def value(self, u, v):
        return u * v

    def partial(self, i, args, out, memo):
        return args[1 - i]

    def mixed(self, i, j, args, out, memo):
        return 0.0 if i == j else 1.0


@rule("reciprocal")
class Reciprocal(Elementwise):
    """1 / u of data or, in predictions, of the variables."""

    @staticmethod
    def example():
        u, v = cp.Variable(2, name="u"), cp.Variable(2, name="v")
        return u / v, {"u": [1.0, -2.0], "v": [0.5, 3.0]}

    def value(self, u):
        return 1.0 / u

    def partial(self, i, args, out, memo):
        return -(out**2)

    def mixed(self, i, j, args, out, memo):
        return 2.0 * out**3
