"""The prox of a quadratic of each stratum, in the eigenvectors of its matrix: a new step costs no factorisation."""

from functools import cached_property

import numpy as np

from strat.oracles.base import symmetric


class QuadraticProx:
    """argmin_z gᵀz + ½ zᵀHz + ‖z − v‖²/(2t) with one g (K, n) and one symmetric H (K or 1, n, n) for each stratum.

    Parameters
    ----------
    g, H : ndarray
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    """

    kind = "closed form"

    def __init__(self, g, H, transposed=None):
        self.g, self.H, self.transposed = g, H, transposed

    @classmethod
    def of(cls, quadratics, transposed):
        """That of a sum of quadratics."""
        zero = np.zeros((max(len(part.g) for part in quadratics), quadratics[0].n))
        g = sum(part.value_and_gradient(zero)[1] for part in quadratics)
        return cls(g, sum(part.hessian(zero) for part in quadratics), transposed)

    def rescaled(self, weight, unit):
        """The prox of weight × the quadratic at unit · z."""
        return QuadraticProx(weight * unit * self.g, weight * unit[:, None] * self.H * unit, self.transposed)

    @cached_property
    def _factors(self):
        return np.linalg.eigh(symmetric(self.H, self.transposed))

    def __call__(self, v, t):
        v = symmetric(v, self.transposed)
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))[:, None]
        gradient = symmetric(self.g + np.matmul(self.H, v[..., None])[..., 0], self.transposed)
        values, vectors = self._factors
        rotated = np.matmul(np.swapaxes(vectors, 1, 2), gradient[..., None])[..., 0]
        rotated = rotated * (t / (1.0 + t * np.maximum(values, 0.0)))
        return v - np.matmul(vectors, rotated[..., None])[..., 0]
