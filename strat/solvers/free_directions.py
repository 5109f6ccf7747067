"""The directions in which a prox moves, as a projection, and the curvature of the regularizer along them."""

import numpy as np

from strat.solvers.prox_slope import FREE


class FreeDirections:
    """Projection and curvature (J^-1 - I)/t of the free directions, from the prox's Jacobian J, a `ProxSlope`.

    Where coordinates are free or pinned as a whole, as for bounds, l1 and group norms, the projection is `mask` (K, n), and
    no eigenvectors are needed; elsewhere `mask` is None. `curvature` is (K, n, n), or (K, n) where it is diagonal.
    """

    def __init__(self, slope):
        J = slope.jacobian
        if J.ndim == 2:
            self.mask, self.curvature = slope.free, slope.curvature
        else:
            self.mask, self.curvature = _by_coordinates(J, slope.t)
            if self.mask is None:
                U = slope.U
                self._matrix = (U * slope.free[:, None, :]) @ U.swapaxes(1, 2)
                self.curvature = (U * slope.curvature[:, None, :]) @ U.swapaxes(1, 2)
            elif not self.curvature.any():
                self.curvature = np.zeros(J.shape[:2])
        self.all = self.mask is not None and bool(self.mask.all())

    @classmethod
    def everywhere(cls, K, n):
        """All directions, without curvature."""
        free = cls.__new__(cls)
        free.mask, free.curvature, free.all = np.ones((K, n), dtype=bool), np.zeros((K, n)), True
        return free

    def project(self, x):
        """The free part of x (K, n)."""
        if self.all:
            return x
        return x * self.mask if self.mask is not None else times(self._matrix, x)

    def bend(self, d):
        """Curvature times d."""
        return times(self.curvature, d)

    def restricted(self, blocks, outside, part=slice(None)):
        """Matrices (K, n, n) of a part of the strata on the free directions, with `outside` (K,) on the others' diagonal."""
        if self.all:
            return blocks
        outside = outside[:, None]
        if self.mask is not None:
            free = self.mask[part].astype(float)
            out = blocks * free[:, :, None]
            out *= free[:, None, :]
            np.einsum("kaa->ka", out)[...] += outside * (1 - free)
            return out
        P = self._matrix[part]
        return P @ blocks @ P + outside[:, None] * (np.eye(P.shape[1]) - P)


def times(matrices, x):
    """Diagonals (K, n) or matrices (K, n, n) times x (K, n)."""
    if matrices.ndim == 2:
        return matrices * x
    return np.einsum("kab,kb->ka", matrices, x)


def _by_coordinates(J, t):
    """(mask, curvature) where every coordinate is free or pinned; (None, None) where some direction is neither."""
    free = np.abs(J).max(axis=2) > FREE
    both = free[:, :, None] & free[:, None, :]
    identity = np.eye(J.shape[1])
    inside = np.where(both, J, identity)
    try:
        inverse = np.linalg.inv(inside)
    except np.linalg.LinAlgError:
        return None, None
    if not np.abs(inverse).max() < 0.01 / FREE:
        return None, None
    bend = np.where(both, inverse - identity, 0.0)
    bend[np.abs(bend) < 1e-9] = 0.0
    return free, bend / t[:, None, None]
