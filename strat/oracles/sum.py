"""Sums of oracles."""

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

    def missing(self, name):
        """Why a method is missing."""
        return self.why.get(name, "a piece has none")

    def arguments(self, theta):
        """Affine images of theta, one for each part or None where it takes none."""
        return [part.arguments(theta) for part in self.parts]

    def value(self, theta, arguments=None):
        """Sum of the values (K,)."""
        if len(self.parts) == 1:  # small problems spend more time on the calls than on the arrays
            return self.parts[0].value(theta, *self._only(arguments))
        first, *others = self._inputs(theta, arguments)
        value = first[0].value(*first[1])
        for part, inputs in others:
            value = value + part.value(*inputs)
        return value

    def value_and_gradient(self, theta, arguments=None):
        """Sums of values (K,) and gradients (K, n)."""
        if len(self.parts) == 1:
            return self.parts[0].value_and_gradient(theta, *self._only(arguments))
        first, *others = self._inputs(theta, arguments)
        value, gradient = first[0].value_and_gradient(*first[1])
        for part, inputs in others:
            v, g = part.value_and_gradient(*inputs)
            value, gradient = value + v, gradient + g
        return value, gradient

    @staticmethod
    def _only(arguments):
        """What the methods of a single part take beside theta."""
        return () if arguments is None or arguments[0] is None else arguments

    def _inputs(self, theta, arguments):
        """The parts, each with what its methods take."""
        if arguments is None:
            return [(part, (theta,)) for part in self.parts]
        return [
            (part, (theta,) if u is None else (theta, u))
            for part, u in zip(self.parts, arguments, strict=True)
        ]

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


class Weighted(Oracle):
    """weight × an oracle, with its capabilities; the prox takes the step weight × t."""

    def __init__(self, oracle, weight):
        self.oracle, self.weight, self.n = oracle, float(weight), oracle.n
        self.quadratic = oracle.quadratic
        for name in ("value_and_gradient", "hessian_operator"):
            if not oracle.has(name):
                setattr(self, name, None)
        self.prox = WeightedProx(oracle.prox, self.weight) if oracle.has("prox") else None
        self.cones = self._weighted_cones if oracle.has("cones") else None

    def _weighted_cones(self):
        return [function.scaled(self.weight) for function in self.oracle.cones()]

    def missing(self, name):
        """Why a method is missing."""
        return self.oracle.missing(name)

    def value(self, theta):
        """Weighted values (K,)."""
        return self.weight * self.oracle.value(theta)

    def value_and_gradient(self, theta):
        """Weighted values (K,) and gradients (K, n)."""
        value, gradient = self.oracle.value_and_gradient(theta)
        return self.weight * value, self.weight * gradient

    def hessian_operator(self, theta):
        """The weighted Hessian as a map."""
        operator = self.oracle.hessian_operator(theta)
        return lambda v: self.weight * operator(v)


class WeightedProx:
    """The prox of weight × a function, whose prox is `of`: it takes the step weight × t.

    What is known of the prox (its kind, its blocks) stays in sight through `of`.
    """

    def __init__(self, of, weight):
        self.of, self.weight = of, weight

    def __call__(self, v, t):
        return self.of(v, np.asarray(t) * self.weight)

    @property
    def diagonal(self):
        """Diagonal of the Hessian where the function is a quadratic of each coordinate; None where it is not."""
        diagonal = getattr(self.of, "diagonal", None)
        return None if diagonal is None else self.weight * diagonal

    def next(self, v, t):
        """The prox in a sequence of calls."""
        return getattr(self.of, "next", self.of)(v, np.asarray(t) * self.weight)

    def __getattr__(self, name):
        if name in ("costly", "restricted", "memory", "remember"):
            return getattr(self.of, name)
        raise AttributeError(name)
