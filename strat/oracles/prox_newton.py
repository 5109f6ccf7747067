"""Prox of a smooth function by Newton's method, all strata at once."""

import numpy as np


class NewtonProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) for a smooth convex f with Hessian products.

    Newton steps with backtracking in each stratum by itself, until the gradient is at rounding level. The objective
    is strongly convex with modulus 1/t, so the error in z is at most t times the norm of the gradient that is left.

    Parameters
    ----------
    oracle : Oracle
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables: v is replaced by its symmetric part.
    """

    kind = "Newton"

    def __init__(self, oracle, transposed=None, max_iter=100):
        self.oracle, self.transposed, self.max_iter = oracle, transposed, max_iter

    def __call__(self, v, t):
        if self.transposed is not None:
            v = 0.5 * (v + v[:, self.transposed])
        K, n = v.shape
        t = np.broadcast_to(np.asarray(t, dtype=float), K)[:, None]
        z = v.copy()
        value = self._value(z, v, t)
        if not np.isfinite(value).all():
            raise FloatingPointError("the prox starts outside the domain of the function")
        eye = np.eye(n)
        scale = 1.0 + np.abs(v).max(initial=0.0) / t[:, 0]
        for _ in range(self.max_iter):
            _, gradient = self.oracle.value_and_gradient(z)
            gradient = gradient + (z - v) / t
            size = np.sqrt((gradient**2).sum(axis=1))
            active = size > 1e-13 * np.maximum(scale, np.sqrt(n))
            if not active.any():
                break
            hessian = self._hessian(z, eye)
            step = -np.linalg.solve(hessian + eye / t[:, :, None], gradient[..., None])[..., 0]
            slope = (gradient * step).sum(axis=1)
            length, pending = np.where(active, 1.0, 0.0), active.copy()
            for _ in range(60):
                trial = z + length[:, None] * step
                new = self._value(trial, v, t)
                slack = 1e-14 * np.maximum(1.0, np.abs(value))
                pending &= ~(new <= value + 1e-4 * length * slope + slack)
                if not pending.any():
                    break
                length = np.where(pending, 0.5 * length, length)
            length = np.where(pending, 0.0, length)
            moved = length > 0
            z = z + length[:, None] * step
            value = self._value(z, v, t)
            if not moved.any() or np.all(np.abs(length[:, None] * step) <= 1e-15 * (1.0 + np.abs(z))):
                break
        return z

    def _hessian(self, z, eye):
        if self.oracle.has("hessian"):
            return self.oracle.hessian(z)
        operator = self.oracle.hessian_operator(z)
        return np.stack([operator(np.broadcast_to(e, z.shape)) for e in eye], axis=2)

    def _value(self, z, v, t):
        return self.oracle.value(z) + 0.5 * ((z - v) ** 2 / t).sum(axis=1)
