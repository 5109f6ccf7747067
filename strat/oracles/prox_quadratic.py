"""The prox of a quadratic of each stratum, in the eigenvectors of its matrix: a new step costs no factorisation."""

import numpy as np


class QuadraticProx:
    """argmin_z gᵀz + ½ zᵀHz + ‖z − v‖²/(2t) with one symmetric H (K, n, n) for each stratum.

    Parameters
    ----------
    quadratic : Quadratic
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    """

    kind = "closed form"

    def __init__(self, quadratic, transposed=None):
        self.quadratic, self.transposed, self._factors = quadratic, transposed, None

    def rescaled(self, weight, unit):
        """The prox of weight × the quadratic at unit · z."""
        return QuadraticProx(self.quadratic.rescaled(weight, unit), self.transposed)

    def __getstate__(self):
        return {**self.__dict__, "_factors": None}

    def __call__(self, v, t):
        quadratic, p = self.quadratic, self.transposed
        v = v if p is None else 0.5 * (v + v[:, p])
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))[:, None]
        gradient = quadratic.value_and_gradient(v)[1]
        if p is not None:
            gradient = 0.5 * (gradient + gradient[:, p])
        if quadratic.H is None:
            return v - t * gradient
        if self._factors is None:
            H = quadratic.H
            if p is not None:
                H = 0.25 * (H + H[:, p] + H[:, :, p] + H[:, p][:, :, p])
            self._factors = np.linalg.eigh(H)
        values, vectors = self._factors
        rotated = np.matmul(np.swapaxes(vectors, 1, 2), gradient[..., None])[..., 0]
        rotated = rotated * (t / (1.0 + t * np.maximum(values, 0.0)))
        return v - np.matmul(vectors, rotated[..., None])[..., 0]
