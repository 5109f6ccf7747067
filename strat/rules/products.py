"""Products and quotients of expressions of the variables, which predictions may hold."""

from strat.rules import rule
from strat.rules.base import Elementwise


@rule("product")
class ProductRule(Elementwise):
    """u · v of two expressions of the variables (predictions only: it is not convex)."""

    def value(self, u, v):
        return u * v

    def partial(self, i, args, out, memo):
        return args[1 - i]

    def mixed(self, i, j, args, out, memo):
        return 0.0 if i == j else 1.0


@rule("reciprocal")
class Reciprocal(Elementwise):
    """1 / u of data or, in predictions, of the variables."""

    def value(self, u):
        return 1.0 / u

    def partial(self, i, args, out, memo):
        return -(out**2)

    def mixed(self, i, j, args, out, memo):
        return 2.0 * out**3
