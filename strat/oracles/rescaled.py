"""Oracles in other units: a weight times a function of unit times the parameters."""

from functools import cached_property, partial

import numpy as np

from strat.oracles.base import Oracle


class Rescaled(Oracle):
    """weight × f(unit · theta), with the capabilities of f.

    Parameters
    ----------
    oracle : Oracle
        f.
    weight : float
    unit : (n,) ndarray, optional
    """

    def __init__(self, oracle, weight=1.0, unit=None):
        if isinstance(oracle, Rescaled):
            weight, inner, oracle = weight * oracle.weight, oracle.unit, oracle.oracle
            unit = unit if inner is None else inner if unit is None else inner * unit
        self.oracle, self.weight, self.unit, self.n = oracle, float(weight), unit, oracle.n
        self.quadratic = oracle.quadratic
        for name in ("value_and_gradient", "hessian_operator", "hessian"):
            if not oracle.has(name):
                setattr(self, name, None)
        self.cones = None
        if oracle.has("cones"):
            self.cones = partial(self._rescaled_cones)
            self.cones.size = getattr(oracle.cones, "size", 0)

    @cached_property
    def prox(self):
        """The prox, None where f has none."""
        return _prox(self.oracle.prox, self.weight, self.unit) if self.oracle.has("prox") else None

    def _rescaled_cones(self):
        functions = [function.scaled(self.weight) for function in self.oracle.cones()]
        return functions if self.unit is None else [f.in_units(self.unit) for f in functions]

    def interior(self):
        """The same where its gradient is finite, +inf elsewhere."""
        return Rescaled(self.oracle.interior(), self.weight, self.unit)

    def limited(self):
        """The affine arguments with a domain, where they are those of the parameters as they are."""
        return self.oracle.limited() if self.unit is None else []

    def missing(self, name):
        """Why a method is missing."""
        return self.oracle.missing(name)

    @property
    def parts(self):
        """The terms of a sum."""
        return tuple(Rescaled(part, self.weight, self.unit) for part in getattr(self.oracle, "parts", ()))

    @property
    def kinked_rows(self):
        """The records of a sum of smoothed kinks; None where it is another function."""
        rows = getattr(self.oracle, "kinked_rows", None)
        return rows and rows.rescaled(self.weight, self.unit)

    def _out(self, theta):
        return theta if self.unit is None else self.unit * theta

    def value(self, theta):
        """Values (K,)."""
        return self.weight * self.oracle.value(self._out(theta))

    def value_and_gradient(self, theta):
        """Values (K,) and gradients (K, n)."""
        value, gradient = self.oracle.value_and_gradient(self._out(theta))
        return self.weight * value, self._out(self.weight * gradient)

    def hessian_operator(self, theta):
        """The Hessian as a map."""
        operator = self.oracle.hessian_operator(self._out(theta))
        return lambda v: self._out(self.weight * operator(self._out(v)))

    def hessian(self, theta):
        """The Hessian's blocks (K, n, n)."""
        size = self.weight if self.unit is None else self.weight * np.outer(self.unit, self.unit)
        blocks = self.oracle.hessian(self._out(theta))
        return np.multiply(size, blocks, out=blocks if blocks.flags.writeable else None)


def _prox(prox, weight, unit):
    native = getattr(prox, "rescaled", None)
    return RescaledProx(prox, weight, unit) if unit is None or native is None else native(weight, unit)


class RescaledProx:
    """The prox of weight × f(unit · theta), by that of f, `of`: a step weight × unit² × t for every coordinate.

    What is known of the prox (its kind, its blocks) stays in sight through `of`.
    """

    def __init__(self, of, weight, unit=None):
        self.of, self.weight, self.unit = of, weight, unit

    def _step(self, t):
        t = np.asarray(t) * self.weight
        return t if self.unit is None else t.reshape(-1, 1) * self.unit**2

    def __call__(self, v, t):
        if self.unit is None:
            return self.of(v, self._step(t))
        return self.of(self.unit * v, self._step(t)) / self.unit

    @property
    def diagonal(self):
        """Diagonal of the Hessian where the function is a quadratic of each coordinate; None where it is not."""
        diagonal = getattr(self.of, "diagonal", None)
        return None if diagonal is None else self._step(1.0) * diagonal

    def __getattr__(self, name):
        if name in ("costly", "restricted"):
            return getattr(self.of, name)
        raise AttributeError(name)
