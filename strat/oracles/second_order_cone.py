"""The second-order cone {‖x‖ + s <= 0} on one group of rows (x, s): the projection on it and its derivative."""

import numpy as np


class SecondOrderCone:
    """The functions of one group of rows, the last of which is s: the cone's indicator."""

    groups = 1

    def take(self, strata):
        """The functions of some strata: the same."""
        return self

    def point(self, u, step, near=None):
        """The nearest point of the cone."""
        x, s = u[:, :-1], u[:, -1]
        size = np.sqrt((x * x).sum(axis=1))
        height = np.where(size + s <= 0, -s, np.maximum(0.5 * (size - s), 0.0))
        ratio = np.where(size > height, height / np.where(size > 0, size, 1.0), 1.0)
        return np.concatenate([x * ratio[:, None], -height[:, None]], axis=1)

    def prox(self, u, step, near=None):
        """``point``, and u, which ``slopes`` needs."""
        return self.point(u, step), u

    def slopes(self, z, u, step):
        """Derivative of the projection z at u, (K, 1, L, L)."""
        x, s = u[:, :-1], u[:, -1]
        K, m = x.shape
        size = np.sqrt((x * x).sum(axis=1))
        unit = x / np.where(size > 0, size, 1.0)[:, None]
        slant = s / np.where(size > 0, size, 1.0)
        out = np.empty((K, m + 1, m + 1))
        np.multiply(unit[:, :, None], (0.5 * slant[:, None] * unit)[:, None, :], out=out[:, :m, :m])
        place = np.arange(m)
        out[:, place, place] += 0.5 * (1.0 - slant)[:, None]
        out[:, :m, m] = out[:, m, :m] = -0.5 * unit
        out[:, m, m] = 0.5
        out[size <= s] = 0.0
        out[size + s <= 0] = np.eye(m + 1)
        return out[:, None]
