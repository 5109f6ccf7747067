"""The directions in which a prox moves, as a projection, and the curvature of the regularizer along them.

They follow from the Jacobian of the prox, by finite differences. It is symmetric with eigenvalues in [0, 1]. Where an
eigenvalue is 0 the point does not move (a zero of the l1 norm, an active bound, the normal of a face); where it is s > 0 the
regularizer has the curvature (1/s - 1)/t. Coordinates of different blocks are probed together, so that a separable prox takes
two calls.
"""

import numpy as np

from strat.oracles.prox_base import BlockProx

STEP, SHORT = 1e-5, 1e-8  # relative steps of the differences, and near a kink
JUMP = 1e-3  # one-sided slopes that differ by more than this indicate a kink
NOISE = 1e-7  # rounding error of J, with short steps: slopes this near to 1 are 1, as division by t would magnify it
FREE = 1e-6  # a direction with a smaller slope does not move


class FreeDirections:
    """Projection on the free directions of each stratum, and the regularizer's curvature (J^-1 - I)/t along them.

    Where coordinates are free or pinned as a whole, as for bounds, l1 and group norms, the projection is `mask` (K, n);
    elsewhere `mask` is None, and the columns of `vectors` (K, n, n) that `free` (K, n) marks span the free directions.
    `curvature` is (K, n, n), or (K, n) where it is diagonal. `kinks` (K,) marks the strata that lie on a kink, where only
    one-sided derivatives exist.
    """

    def __init__(self, mask, curvature):
        self.mask, self.curvature, self.kinks = mask, curvature, np.zeros(len(curvature), dtype=bool)
        self.all, self.noise = mask is not None and bool(mask.all()), 0.0

    @classmethod
    def everywhere(cls, K, n, curvature=0.0):
        """All directions, with a diagonal curvature."""
        return cls(np.broadcast_to(True, (K, n)), np.broadcast_to(curvature, (K, n)))

    @classmethod
    def of(cls, prox, v, t):
        """The free directions of ``prox(v, t)``, v (K, n) and t (K,)."""
        if getattr(prox, "diagonal", None) is not None:  # a ridge
            return cls.everywhere(*v.shape, prox.diagonal)
        J, kinks = _jacobian(prox, v, t)
        free = cls(*(_spectrum if J.ndim == 2 else _by_coordinates)(J, t))
        if free.mask is None:
            s, U = np.linalg.eigh(J)
            free.vectors, (free.free, curvature) = U, _spectrum(s, t)
            free._matrix = (U * free.free[:, None, :]) @ U.swapaxes(1, 2)
            free.curvature = (U * curvature[:, None, :]) @ U.swapaxes(1, 2)
        free.kinks, free.noise = kinks, NOISE / t[:, None]
        return free

    def settle(self):
        """Set curvatures to 0 that are negative or rounding error, which strong edges, and so short steps, make large."""
        if self.curvature.ndim == 3:
            s, U = np.linalg.eigh(self.curvature)
            self.curvature = (U * np.where(s > self.noise, s, 0.0)[:, None, :]) @ U.swapaxes(1, 2)

    def project(self, x):
        """The free part of x (K, n)."""
        if self.all:
            return x
        return x * self.mask if self.mask is not None else times(self._matrix, x)

    def restricted(self, blocks, outside, part=slice(None)):
        """Matrices (K, n, n) of some strata restricted to the free directions, with `outside` (K,) on the others' diagonal."""
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
    return matrices * x if matrices.ndim == 2 else np.einsum("kab,kb->ka", matrices, x)


def _jacobian(prox, v, t):
    """J at v, (K, n, n) or (K, n) where it is diagonal, and the strata on a kink (K,)."""
    # The probe in which each coordinate moves (n,), and the coordinates of its block (n, longest), padded with -1.
    n = v.shape[1]
    groups = prox.ties(n) if isinstance(prox, BlockProx) else [list(range(n))]
    position, mates = np.zeros(n, dtype=np.intp), np.full((n, max(map(len, groups))), -1)
    mates[:, 0] = np.arange(n)
    for group in groups if mates.shape[1] > 1 else ():
        position[group] = np.arange(len(group))
        mates[group, : len(group)] = group
    step = STEP * (np.abs(v) + 0.01 * np.sqrt(np.mean(v**2, axis=1, keepdims=True)) + 1e-12)
    jacobian, jump = _differences(prox, v, t, step, position, mates)
    kinks = bent = jump > JUMP
    if bent.any():
        near, jump = _differences(prox, v, t, step * (SHORT / STEP), position, mates)
        jacobian[bent], kinks = near[bent], bent & (jump > JUMP)
    if mates.shape[1] == 1:
        return jacobian[:, :, 0], kinks
    full = np.zeros((*v.shape, n))
    for r, mate in enumerate(mates.T):
        (rows,) = np.nonzero(mate >= 0)
        full[:, rows, mate[rows]] = jacobian[:, rows, r]
    return 0.5 * (full + full.swapaxes(1, 2)), kinks


def _differences(prox, v, t, step, position, mates):
    """Columns (K, n, longest) of the Jacobian within blocks, and the largest difference of one-sided slopes (K,)."""
    centre, longest = prox(v, t), mates.shape[1]
    jacobian, jump = np.zeros((*v.shape, longest)), np.zeros(len(v))
    for r in range(longest):
        e = np.where(position == r, step, 0.0)
        mate = mates[:, r]
        length = np.where(mate >= 0, step[:, mate], 1.0)
        forward, backward = (prox(v + e, t) - centre) / length, (centre - prox(v - e, t)) / length
        jacobian[:, :, r] = np.where(mate >= 0, 0.5 * (forward + backward), 0.0)
        jump = np.maximum(jump, np.abs(forward - backward).max(axis=1))
    return jacobian, jump


def _spectrum(s, t):
    """Which directions are free, from the eigenvalues s of J, and their curvature (1/s - 1)/t, 0 elsewhere, (K, n)."""
    s = np.where(np.abs(s - 1) < NOISE, 1.0, np.clip(s, 0.0, 1.0))
    with np.errstate(divide="ignore"):
        return s > FREE, np.where(s > FREE, (1 / s - 1) / t[:, None], 0.0)


def _by_coordinates(J, t):
    """(mask, curvature) where every coordinate is free or pinned; mask is None where some direction is neither."""
    free = np.abs(J).max(axis=2) > FREE
    both = free[:, :, None] & free[:, None, :]
    identity, unknown = np.eye(J.shape[1]), (None, np.empty(J.shape))
    try:
        inverse = np.linalg.inv(np.where(both, J, identity))
    except np.linalg.LinAlgError:
        return unknown
    if not np.abs(inverse).max() < 0.01 / FREE:
        return unknown
    bend = np.where(both, inverse - identity, 0.0)
    bend[np.abs(bend) < NOISE] = 0.0
    return free, bend / t[:, None, None] if bend.any() else np.zeros(J.shape[:2])
