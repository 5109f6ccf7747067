"""The Jacobian of a prox, by differences: which directions are free, and how curved the regularizer is there.

The Jacobian of a prox is symmetric with eigenvalues in [0, 1]. Where an eigenvalue is 0 the point does not move (a
zero of the l1 norm, an active bound, the normal of a face); where it is s > 0 the regularizer has the curvature
(1/s - 1)/t. Coordinates of different blocks are probed together, so that a separable prox takes two calls.
"""

from functools import cached_property

import numpy as np

from strat.oracles.base import RescaledProx
from strat.oracles.prox_base import BlockProx

STEP, SHORT = 1e-5, 1e-8  # relative steps of the differences, and near a kink
JUMP = 1e-3  # slopes on both sides that differ by more than this are those of a kink
FREE = 1e-6  # a direction with a smaller slope does not move


class ProxSlope:
    """The Jacobian J = U diag(s) Uᵀ of ``prox(v, t)`` for each stratum, v (K, n) and t (K,).

    `jacobian` is (K, n, n), or (K, n) where it is diagonal; `slope` (K, n) are the eigenvalues s and `U` the eigenvectors,
    None where J is diagonal; `free` (K, n) tells where the point moves, and `curvature` (K, n) is (1/s - 1)/t there, 0
    elsewhere. `kinks` (K,) are the strata where v lies on a kink, so that only one-sided derivatives exist. `blocks` is what
    ``probes(prox, n)`` returned, for callers that take many Jacobians.
    """

    def __init__(self, prox, v, t, blocks=None):
        self.t, self.kinks = t, np.zeros(len(v), dtype=bool)
        diagonal = getattr(prox, "diagonal", None)
        if diagonal is not None:  # a ridge
            self.jacobian = 1 / (1 + t[:, None] * diagonal)
            self.free, self.curvature = np.ones(v.shape, dtype=bool), np.broadcast_to(diagonal, v.shape)
            return
        position, mates = probes(prox, v.shape[1]) if blocks is None else blocks
        step = STEP * (np.abs(v) + 0.01 * np.sqrt(np.mean(v**2, axis=1, keepdims=True)) + 1e-12)
        jacobian, jump = _differences(prox, v, t, step, position, mates)
        bent = jump > JUMP
        if bent.any():
            near, jump = _differences(prox, v, t, step * (SHORT / STEP), position, mates)
            jacobian[bent], self.kinks = near[bent], bent & (jump > JUMP)
        self.jacobian = jacobian[:, :, 0]
        if mates.shape[1] > 1:
            full = np.zeros((*v.shape, v.shape[1]))
            for r, mate in enumerate(mates.T):
                (rows,) = np.nonzero(mate >= 0)
                full[:, rows, mate[rows]] = jacobian[:, rows, r]
            self.jacobian = 0.5 * (full + full.swapaxes(1, 2))

    @cached_property
    def _eigen(self):
        s, U = (self.jacobian, None) if self.jacobian.ndim == 2 else np.linalg.eigh(self.jacobian)
        return np.where(np.abs(s - 1) < 1e-9, 1.0, np.clip(s, 0.0, 1.0)), U

    @property
    def U(self):
        """The eigenvectors, None where J is diagonal."""
        return self._eigen[1]

    @property
    def slope(self):
        """The eigenvalues (K, n)."""
        return self._eigen[0]

    @cached_property
    def free(self):
        """Which of them are not zero, (K, n)."""
        return self.slope > FREE

    @cached_property
    def curvature(self):
        """The regularizer's curvature in the free directions, (K, n)."""
        with np.errstate(divide="ignore"):
            return np.where(self.free, (1 / self.slope - 1) / self.t[:, None], 0.0)


def probes(prox, n):
    """Positions (n,) at which coordinates are probed, and each coordinate's block (n, longest), -1 beyond its end."""
    prox = prox.of if isinstance(prox, RescaledProx) else prox
    groups = prox.ties(n) if isinstance(prox, BlockProx) else [list(range(n))]
    position, mates = np.zeros(n, dtype=np.intp), np.full((n, max(map(len, groups))), -1)
    for group in groups:
        position[group] = np.arange(len(group))
        mates[group, : len(group)] = group
    return position, mates


def _differences(prox, v, t, step, position, mates):
    """Columns (K, n, longest) of the Jacobian within blocks, and the largest difference of both sides (K,)."""
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
