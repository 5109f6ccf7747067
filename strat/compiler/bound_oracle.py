"""Programs bound to records: oracles that take and return parameters by variable name."""

import numpy as np

from strat.compiler.pieces import Sets
from strat.errors import NoOracleError, OptionError, ShapeError
from strat.oracles.base import floats, symmetric


class BoundOracle:
    """A program bound to records: its value, derivatives and prox over all strata at once.

    ``theta`` and ``v`` are ``{variable name: (K, *shape)}``, or the bare array where there is one variable; results
    come in the form of the argument. Made by ``Program.bind``.

    Attributes
    ----------
    strata : list or None
        Labels of the strata, in order; None for a program without data, which takes any K.
    """

    def __init__(self, program, flat, strata):
        self.program, self.flat, self.strata = program, flat, strata
        self._transposed = Sets(program.variables, program.layout).transposed

    def _read(self, theta):
        packed = self.program.layout.pack(theta)
        if self.strata is not None and len(packed) != len(self.strata):
            raise ShapeError(
                f"theta has {len(packed)} strata on its first axis, but the oracle is bound to {len(self.strata)}."
            )
        return packed

    def _write(self, packed, like):
        named = self.program.layout.unpack(packed)
        return named if isinstance(like, dict) else next(iter(named.values()))

    def _need(self, name, word):
        if not self.flat.has(name):
            raise NoOracleError(
                f"there is no {word} of {self.program.what}: {self.flat.missing(name)}. {_WAYS_OUT[name]}"
            )

    def value(self, theta):
        """Value of each stratum, (K,): the expression alone, +inf outside its domain and where numbers overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _never_nan(self.flat.value(self._read(theta)))

    def gradient(self, theta):
        """Gradient, in the form of theta."""
        return self.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta):
        """Value (K,) and gradient in one pass; raises NoOracleError where a piece is not differentiable."""
        self._need("value_and_gradient", "gradient")
        value, gradient = self.flat.value_and_gradient(self._read(theta))
        return _never_nan(value), self._write(symmetric(gradient, self._transposed), theta)

    def hvp(self, theta, v):
        """Product of the Hessian at theta with v; raises NoOracleError where a piece has no second derivatives."""
        self._need("hessian_operator", "Hessian product")
        product = self.flat.hessian_operator(self._read(theta))(self._read(v))
        return self._write(symmetric(product, self._transposed), theta)

    def prox(self, v, t):
        """argmin_z f(z) + ‖z − v‖² / (2t) for each stratum, constraints and attributes included; t is positive, one or (K,).

        Raises NoOracleError where there is no prox, and OptionError where a step is not positive.
        """
        self._need("prox", "prox")
        packed, step = self._read(v), floats(t)
        if not (np.all(step > 0) and np.all(np.isfinite(step))):
            raise OptionError(f"t must be positive and finite, but it is {t}; it is the step of the prox.")
        if step.ndim > 1 or (step.ndim == 1 and len(step) != len(packed)):
            raise ShapeError(f"t has shape {step.shape}; give one number, or {len(packed)}: one per stratum.")
        return self._write(self.flat.prox(packed, step), v)


def _never_nan(value):
    """Values with +inf for NaN, which is inf - inf in sums that overflow: a convex function grows without bound there."""
    return np.where(np.isnan(value), np.inf, value)


_WAYS_OUT = {
    "value_and_gradient": "Smooth it (smoothing= on the BaseModel), or put it into the regularizer.",
    "hessian_operator": "Use a method that needs gradients only.",
    "prox": "Merge or drop pieces that share variables, or move smooth ones into the loss.",
}
