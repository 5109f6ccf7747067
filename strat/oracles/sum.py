"""Sums of oracles."""

import copy

import numpy as np

from strat.oracles.base import Oracle


class SumOracle(Oracle):
    """The sum of oracles, with the capabilities that all of them have.

    Parameters
    ----------
    parts : sequence of Oracle
    n : int
    smooth, curved : bool
        Whether gradients and Hessian products exist.
    prox : callable or None
        ``prox(v, t)`` of the sum.
    cones : callable or None
        ``cones()`` gives the sum, and the constraints that its prox holds, as a list of `Cones`.
    why : dict
        Why a method is missing (or a prox has no closed form), by the method's name, for messages.
    """

    def __init__(self, parts, n, smooth=True, curved=True, prox=None, why=None, cones=None):
        self.parts, self.n, self.why = tuple(parts), n, why or {}
        if not smooth:
            self.value_and_gradient = None
        if not (smooth and curved):
            self.hessian_operator = None
        if not (smooth and curved and all(part.has("hessian") for part in self.parts)):
            self.hessian = None
        self.prox, self.cones = prox, cones
        self.quadratic = all(part.quadratic for part in self.parts)

    def interior(self):
        """The same sum where its gradient is finite, +inf elsewhere."""
        summed = copy.copy(self)
        summed.parts = tuple(part.interior() for part in self.parts)
        return summed

    def limited(self):
        """The affine arguments with a domain of all parts."""
        return [argument for part in self.parts for argument in part.limited()]

    def missing(self, name):
        """Why a method is missing."""
        return self.why.get(name, "a piece has none")

    @property
    def sizes(self):
        """The sizes of the coordinates' coefficients."""
        return np.max([np.broadcast_to(part.sizes, self.n) for part in self.parts], axis=0)

    def value(self, theta):
        """Sum of the values (K,)."""
        first, *others = self.parts
        value = first.value(theta)
        for part in others:
            value = value + part.value(theta)
        return value

    def value_and_gradient(self, theta):
        """Sums of values (K,) and gradients (K, n)."""
        first, *others = self.parts
        value, gradient = first.value_and_gradient(theta)
        for part in others:
            v, g = part.value_and_gradient(theta)
            value, gradient = value + v, gradient + g
        return value, gradient

    def hessian(self, theta):
        """Sum of the Hessians' blocks (K, n, n)."""
        first, *others = (part.hessian(theta) for part in self.parts)
        return sum(others, first)

    def hessian_operator(self, theta):
        """Sum of the Hessians as a map."""
        operators = [part.hessian_operator(theta) for part in self.parts]
        if len(operators) == 1:
            return operators[0]
        return lambda v: sum((operator(v) for operator in operators), np.zeros_like(v))
