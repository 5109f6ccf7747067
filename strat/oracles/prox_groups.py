"""Proximal maps of functions of groups of coordinates: norms, maxima, balls, eigenvalues, differences on paths, affine sets."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import lsq_linear

from strat.oracles import kernels
from strat.oracles.prox_base import Grouped, folded, present
from strat.oracles.thresholds import balance, excess_level


@dataclass(eq=False)
class GroupBlock(Grouped):
    """Σ weight · f(scale · z + offset) over groups, or the groups' sets f(scale · z + offset) <= radius.

    Other terms may be added exactly: where f grows in every |u| ("absolute"), weighted absolute values and sign constraints,
    whose prox acts first; where f keeps the order of the entries ("ordered"), one absolute value and one interval per group,
    whose prox acts afterwards (Yu 2013, On decomposing the proximal map). A set of the second kind allows neither, since
    the second prox may lead out of it.
    """

    rule: object  # a Rule with ``prox`` or ``project`` on arrays (K, groups, *shape)
    shape: tuple  # of a group's argument
    groups: np.ndarray  # coordinates, (G, L)
    scale: np.ndarray  # (G, L), of one absolute value within a group
    offset: np.ndarray  # (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L), the same within a group
    weight: np.ndarray | None  # (K or 1, G)
    radius: np.ndarray | None  # (1, G)
    l1: np.ndarray | None  # weights of absolute values, (K or 1, G, L)
    low: np.ndarray | None
    high: np.ndarray | None
    absolute: bool = False  # whether the function is f(|u|), where f is the rule's
    axes = {
        "groups": 0, "scale": 0, "offset": 0, "q": 1, "Q": 1, "weight": 1, "radius": 1, "l1": 1, "low": 1, "high": 1
    }  # fmt: skip

    @property
    def signature(self):
        missing = [part is None for part in (self.weight, self.l1, self.low)]
        return (type(self).__name__, self.rule.key, self.shape, self.absolute, *missing)

    def __call__(self, v, t):
        z, t = self._fold(v, t)
        first = self.absolute or self.rule.invariance == "absolute"
        if first:
            z = self._simple(z, t)
        u = z * self.scale + self.offset
        shaped = (np.abs(u) if self.absolute else u).reshape(*u.shape[:2], *self.shape)
        if self.weight is None:
            out = self.rule.project(shaped, np.broadcast_to(self.radius, u.shape[:2])).reshape(u.shape)
        else:
            step = np.broadcast_to(t, u.shape)[:, :, 0] * self.weight * self.scale[:, 0] ** 2
            out = self.rule.prox(shaped, step).reshape(u.shape)
        u = np.sign(u) * np.maximum(out, 0.0) if self.absolute else out
        z = (u - self.offset) / self.scale
        return (z if first else self._simple(z, t)).reshape(v.shape)


class ConeBlock:
    """A function of a symmetric matrix's eigenvalues (`rule`, or None) on a semidefinite cone (`cone`, or None)."""

    kind, ties = "closed form", property(lambda self: [list(self.columns)])

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


@dataclass(eq=False)
class ChainBlock(Grouped):
    """Σ up · (z₊ − z)₊ + down · (z − z₊)₊ over neighbours z, z₊ on a path, shifted; infinite slopes make constraints.

    The prox of an absolute value and an interval, the same for all coordinates of a path, acts afterwards. This is exact,
    since it keeps the order of the entries.
    """

    groups: np.ndarray  # coordinates in the order of the path, (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L)
    shift: np.ndarray  # the differences are those of z − shift, (G, L)
    up: np.ndarray  # slopes where z rises, (K or 1, G, L − 1)
    down: np.ndarray  # slopes where z falls
    l1: np.ndarray | None  # weights of absolute values, (K or 1, G, L)
    low: np.ndarray | None
    high: np.ndarray | None
    axes = {"groups": 0, "q": 1, "Q": 1, "shift": 0, "up": 1, "down": 1, "l1": 1, "low": 1, "high": 1}

    @property
    def signature(self):
        limits = np.isinf(self.up[0, 0]).tobytes(), np.isinf(self.down[0, 0]).tobytes()
        return (type(self).__name__, self.groups.shape[1], *limits, self.l1 is None, self.low is None)

    def __call__(self, v, t):
        K, (G, L) = len(v), self.groups.shape
        v, t = self._fold(v, t)
        v = np.broadcast_to(v, (K, G, L)) - self.shift
        terms = (np.divide(1.0, t), L), (self.up, L - 1), (self.down, L - 1)
        parts = (np.broadcast_to(part, (K, G, size)).reshape(K * G, size) for part, size in terms)
        z = path_prox(v.reshape(-1, L), *parts).reshape(K, G, L)
        z = z + self.shift if np.any(self.shift) else z
        return self._simple(z, t).reshape(K, -1)


def path_prox(v, curvature, up, down):
    """argmin ½ Σ curvature (z − v)² + Σ up (z₊ − z)₊ + down (z − z₊)₊ for each row: (P, L) and (P, L − 1) to (P, L).

    The compiled loop uses dynamic programming: the derivative of the best value as a function of the last coordinate is
    piecewise linear and increasing; a step clips it to the slopes of the penalty and adds the next coordinate's quadratic
    (Johnson 2013, A dynamic programming algorithm for the fused lasso).
    """
    if kernels.compiled:
        return kernels.compiled.paths(v, curvature, up, down)
    # The dual: with the differences D z, z = v − C⁻¹ Dᵀ u for the u in [−down, up] that minimises ‖C^½ v − C^-½ Dᵀ u‖.
    z, D = np.empty(v.shape), np.diff(np.eye(v.shape[1]), axis=0)
    for row, (at, c, rise, fall) in enumerate(zip(v, curvature, up, down, strict=True)):
        root, bounds = np.sqrt(c), (-fall, np.nextafter(rise, np.inf))
        u = lsq_linear((D / root).T, root * at, bounds, method="bvls", tol=1e-15).x
        z[row] = at - D.T @ u / c
    return z


class SubspaceBlock(Grouped):
    """½ zᵀHz + qᵀz on {A z = b}: solved in the eigenvectors of H on the subspace, which serve every step.

    `groups` are (G, L), q (K or 1, G, L), H (L, L), A (m, L), and b (G, m) is consistent with A.
    """

    axes = {"groups": 0, "q": 1, "b": 0}

    def __init__(self, groups, q, H, A, b):
        self.groups, self.q, self.b = groups, q, b
        self.signature = (type(self).__name__, H.tobytes(), A.tobytes(), A.shape)
        null = null_space(A, rcond=1e-12) if len(A) else np.eye(len(H))
        self.lift = np.linalg.pinv(A, rcond=1e-12).T
        self.values, vectors = np.linalg.eigh(null.T @ H @ null)
        self.basis, self.H = null @ vectors, H

    def __call__(self, v, t):
        v, t = self._by_group(v), self._steps_by_group(t)
        t = t[..., :1] if np.ndim(t) else t
        fixed = self.b @ self.lift
        y = (v - t * (self.q + fixed @ self.H)) @ self.basis / (1.0 + t * self.values)
        return (fixed + y @ self.basis.T).reshape(len(v), -1)


@dataclass(eq=False)
class HyperplaneBlock(Grouped):
    """{aᵀz = b or aᵀz <= b} between bounds: clip(v − ν a), ν the root of a piecewise linear function."""

    groups: np.ndarray  # coordinates, (G, L)
    q: np.ndarray  # linear part, (K or 1, G, L)
    Q: np.ndarray  # diagonal quadratic part, (K or 1, G, L)
    a: np.ndarray  # without zeros, (1, G, L)
    low: np.ndarray  # (1, G, L)
    high: np.ndarray  # (1, G, L)
    b: np.ndarray  # (1, G)
    equal: bool
    axes = {"groups": 0, "q": 1, "Q": 1, "a": 1, "low": 1, "high": 1, "b": 1}
    signature = property(lambda self: (type(self).__name__, self.equal, self.groups.shape[1]))

    def __call__(self, v, t):
        c, w = self._fold(v, t)
        clipped = np.clip(c, self.low, self.high)
        outside = (self.a * clipped).sum(axis=-1) > self.b
        if not (self.equal or outside.any()):
            return clipped.reshape(v.shape)
        b = np.broadcast_to(self.b, c.shape[:2])
        level = np.all(self.a == self.a[..., :1]) and np.all(self.Q[..., :1] == self.Q)
        if level and np.all(self.low == 0.0) and np.all(self.high == np.inf):  # a simplex
            z = np.maximum(c - excess_level(c, b / self.a[..., 0])[..., None], 0.0)
        else:
            level = balance(c, self.a, w, self.low, self.high, b)
            z = np.clip(c - w * self.a * level[..., None], self.low, self.high)
        if not self.equal:
            z = np.where(outside[..., None], z, clipped)
        return z.reshape(v.shape)
