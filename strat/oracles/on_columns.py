"""A smooth function of some coordinates: a quadratic and atoms that touch no others."""

import numpy as np

from strat.oracles.base import Oracle


class OnColumns(Oracle):
    """A quadratic plus a tape, as a function of the coordinates ``columns`` of n.

    Parameters
    ----------
    quadratic : Quadratic
        Of these coordinates.
    tape : Tape
        Of all n; it depends on these coordinates only, and its rows are strata.
    columns : (L,) int ndarray
    apart : bool
        Whether each of the tape's atoms depends on one coordinate only, entry by entry.
    """

    def __init__(self, quadratic, tape, columns, apart=False):
        self.quadratic, self.tape, self.columns, self.n = quadratic, tape, columns, len(columns)
        self.apart = apart

    def _lifted(self, z):
        theta = np.zeros((len(z), self.tape.n))
        theta[:, self.columns] = z
        return theta

    def value(self, theta):
        """Value of each stratum."""
        return self.quadratic.value(theta) + self.tape.value(self._lifted(theta))

    def value_and_gradient(self, theta):
        """Value (K,) and gradient (K, L)."""
        value, gradient = self.quadratic.value_and_gradient(theta)
        more, slope = self.tape.value_and_gradient(self._lifted(theta))
        return value + more, gradient + slope[:, self.columns]

    def hessian(self, theta):
        """Blocks (K, L, L)."""
        lifted = self._lifted(theta)
        if self.tape.has("hessian"):
            blocks = self.tape.hessian(lifted)[:, self.columns][:, :, self.columns]
            return blocks + self.quadratic.hessian(theta)
        operator, directions = self.tape.hessian_operator(lifted), np.zeros_like(lifted)
        blocks = np.empty((len(theta), self.n, self.n))
        for i, column in enumerate(self.columns):
            directions[:, column] = 1.0
            blocks[:, :, i] = operator(directions)[:, self.columns]
            directions[:, column] = 0.0
        return blocks + self.quadratic.hessian(theta)

    def take(self, strata):
        """The function of some strata."""
        return OnColumns(self.quadratic.take(strata), self.tape.take(strata), self.columns, self.apart)
