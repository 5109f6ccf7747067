"""Proximal maps of functions of groups of coordinates and of symmetric matrices: norms, maxima, balls, eigenvalues."""

from dataclasses import dataclass

import numpy as np

from strat.oracles.prox_base import Grouped, folded, present


@dataclass(eq=False)
class GroupBlock(Grouped):
    """Σ weight · f(scale · z + offset) over groups, or the groups' sets f(scale · z + offset) <= radius.

    What may be added, exactly: where f grows in every |u| ("absolute"), weighted absolute values and signs, which act
    first; where f keeps the order of the entries ("ordered"), one absolute value and one interval a group, which act
    afterwards (Yu 2013, On decomposing the proximal map). A set of the latter kind may have neither, since what acts
    afterwards may lead out of it.
    """

    rule: object  # a Rule with ``prox`` or ``project`` on arrays (K, groups, *shape)
    shape: tuple  # of a group's argument
    groups: np.ndarray  # coordinates, (G, L)
    scale: np.ndarray  # (G, L), its size the same within a group
    offset: np.ndarray  # (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L), the same within a group
    weight: np.ndarray | None  # (K or 1, G)
    radius: np.ndarray | None  # (1, G)
    l1: np.ndarray | None  # weights of absolute values, (K or 1, G, L)
    low: np.ndarray | None
    high: np.ndarray | None
    absolute: bool = False  # whether f is a function of |u|, of which the rule knows only f(u)
    axes = {
        "groups": 0, "scale": 0, "offset": 0, "q": 1, "Q": 1, "weight": 1, "radius": 1, "l1": 1, "low": 1, "high": 1
    }  # fmt: skip

    @property
    def signature(self):
        """Equal for blocks that can be joined."""
        missing = [part is None for part in (self.weight, self.l1, self.low)]
        return (type(self).__name__, self.rule.key, self.shape, self.absolute, *missing)

    def __call__(self, v, t):
        z, t = self._fold(v, t)
        first = self.absolute or self.rule.invariance == "absolute"
        if first:
            z = self._simple(z, t)
        u = self._prox(z * self.scale + self.offset, self._steps(t, z.shape))
        z = (u - self.offset) / self.scale
        return (z if first else self._simple(z, t)).reshape(v.shape)

    def _steps(self, t, shape):
        if self.weight is None:
            return None
        step = np.broadcast_to(t, shape)[:, :, 0] if np.ndim(t) else t
        return step * self.weight * self.scale[:, 0] ** 2 * np.ones((shape[0], 1))

    def _prox(self, u, step):
        signs = np.sign(u) if self.absolute else None
        u = np.abs(u) if self.absolute else u
        shaped = u.reshape(*u.shape[:2], *self.shape)
        if self.weight is None:
            out = self.rule.project(shaped, np.broadcast_to(self.radius, u.shape[:2]))
        else:
            out = self.rule.prox(shaped, step)
        out = out.reshape(u.shape)
        return signs * np.maximum(out, 0.0) if self.absolute else out


class ConeBlock:
    """The semidefinite cone, or none, with a function of the eigenvalues, or none."""

    kind = "closed form"

    @property
    def ties(self):
        """All coordinates take the same step."""
        return [list(self.columns)]

    def __init__(self, columns, d, q, Q, cone, rule=None, weight=None):
        self.columns, self.d, self.q, self.Q, self.cone = columns, d, present(q), present(Q), cone
        self.rule, self.weight = rule, weight

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        matrix = v.reshape(len(v), self.d, self.d)
        values, vectors = np.linalg.eigh(0.5 * (matrix + np.swapaxes(matrix, 1, 2)))
        if self.rule is not None:
            step = np.broadcast_to(t, v.shape)[:, 0] * self.weight[:, 0]
            values = self.rule.prox_eigenvalues(values, step)
        if self.cone == "PSD":
            values = np.maximum(values, 0.0)
        if self.cone == "NSD":
            values = np.minimum(values, 0.0)
        return np.matmul(vectors * values[:, None, :], np.swapaxes(vectors, 1, 2)).reshape(v.shape)
