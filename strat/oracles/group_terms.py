"""Functions of groups of affine rows that know their prox: norms, maxima, balls, functions of eigenvalues, cones."""

import numpy as np

from strat.oracles import prox_slopes
from strat.oracles.row_terms import RowTerm


class GroupFunctions:
    """weight × a rule of each group of rows, or the groups' sets {rule <= radius}.

    Parameters
    ----------
    rule : Rule
        With ``prox_rows`` and ``prox_slopes``, or with ``project_rows`` and ``project_slopes``.
    groups : int
    shape : tuple
        Shape of a group's argument.
    weight : (K or 1, groups) ndarray or None
        Negative for concave rules.
    radius : float or None
    absolute : bool
        Whether the rule is taken of the rows' absolute values.
    """

    def __init__(self, rule, groups, shape, weight=None, radius=None, absolute=False):
        self.rule, self.groups, self.shape, self.weight = rule, groups, tuple(shape), weight
        self.radius, self.absolute = radius, absolute

    def take(self, strata):
        """The functions of some strata."""
        weight = self.weight if self.weight is None or len(self.weight) == 1 else self.weight[strata]
        return type(self)(self.rule, self.groups, self.shape, weight, self.radius, self.absolute)

    def _strength(self, step):
        """The step × weight (or the radius) of each group."""
        step = step.reshape(len(step), self.groups, -1)[..., 0]
        return np.full(step.shape, self.radius) if self.weight is None else step * self.weight

    def _shaped(self, u):
        u = u.reshape(len(u), self.groups, *self.shape)
        return np.abs(u) if self.absolute else u

    def _map(self, u, strength):
        change = self.rule.project_rows if self.weight is None else self.rule.prox_rows
        return change(u, strength)

    def point(self, u, step, near=None):
        """argmin_s f(s) + (s − u)²/(2 step), the step the same within a group."""
        step = np.broadcast_to(step, u.shape)
        out = self._map(self._shaped(u), self._strength(step)).reshape(u.shape)
        return np.sign(u) * np.maximum(out, 0.0) if self.absolute else out

    def prox(self, u, step, near=None):
        """``point``, and u, which ``slopes`` needs."""
        return self.point(u, step), u

    def nearest(self, u):
        """The nearest point of the domain, which a prox without a step leads to."""
        inside = self.rule.domain(self.rule.arguments(self._shaped(u)))
        return u if inside is None or inside.all() else self.point(u, np.zeros((1, 1)))

    def total(self, z):
        """Σ f over the groups, +inf outside the domain."""
        args = self.rule.arguments(self._shaped(z))
        with np.errstate(all="ignore"):
            total = (self.weight * self.rule.forward(args)[0]).sum(axis=1)
        inside = self.rule.domain(args)
        return total if inside is None else np.where(inside, total, np.inf)

    def gradient(self, z):
        """A subgradient."""
        args = self.rule.arguments(self._shaped(z))
        out, memo = self.rule.forward(args)
        weight = np.broadcast_to(self.weight, out.shape)
        parts = [self.rule.pullback(i, args, out, memo, weight) for i in range(len(args))]
        parts = [part.reshape(*out.shape, -1) for part in parts]
        return np.concatenate(parts, axis=-1).reshape(z.shape) * (np.sign(z) if self.absolute else 1.0)

    def fall(self, z, u):
        """How fast the total at the prox z of u falls in the step (K,), where the rule knows it; else None."""
        if self.rule.prox_fall is None:
            return None
        return (self.weight**2 * self.rule.prox_fall(self._shaped(u), self._shaped(z))).sum(axis=1)

    def matrix(self, z, u, step):
        """Derivative of the prox z at u (K, m, m), the groups together."""
        blocks = self.slopes(z, u, step)
        K, groups, L, _ = blocks.shape
        out = np.zeros((K, groups, L, groups, L))
        place = np.arange(groups)
        out[:, place, :, place] = np.swapaxes(blocks, 0, 1)
        return out.reshape(K, groups * L, groups * L)

    def slopes(self, s, u, step):
        """Derivative of the prox s at u, (K, groups, L, L)."""
        step = np.broadcast_to(step, u.shape)
        strength, shaped = self._strength(step), self._shaped(u)
        change = self.rule.project_slopes if self.weight is None else self.rule.prox_slopes
        out = change(shaped, self._shaped(s), strength)
        if self.absolute:
            signs = (np.sign(u) * (s != 0)).reshape(len(u), self.groups, -1)
            out = signs[..., :, None] * out * signs[..., None, :]
        return out


class SpectralFunctions(GroupFunctions):
    """weight × a rule of the eigenvalues of one symmetric matrix, or a semidefinite cone (no weight).

    The radius is 1 for positive and −1 for negative semidefinite.
    """

    def _map(self, u, strength):
        values, vectors = np.linalg.eigh(u[:, 0])
        if self.weight is None:
            values = self.radius * np.maximum(self.radius * values, 0.0)
        else:
            values = self.rule.prox_eigenvalues(values, strength[:, 0])
        return (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)

    def slopes(self, s, u, step):
        strength = self._strength(np.broadcast_to(step, u.shape))[:, 0]

        def inner(values, changed):
            if self.weight is None:
                return prox_slopes.diagonal((self.radius * values > 0).astype(float))
            return self.rule.eigenvalue_slopes(values, changed, strength)

        found = prox_slopes.on_eigenvalues(self._shaped(u)[:, 0], self._shaped(s)[:, 0], inner)
        return found[:, None]


class GroupTerm(RowTerm):
    """Functions of groups of rows on strata; the rows of a group are measured by one norm.

    Parameters
    ----------
    design : ConstantDesign
        Of groups × L rows, group by group.
    offset : (1, groups × L) ndarray
    functions : GroupFunctions
    norms : (1, groups × L) ndarray
        The same within a group.
    """

    def __init__(self, design, offset, functions, norms):
        super().__init__(design, offset, functions, None, norms)
        self._blocks = design.dense_matrix().reshape(functions.groups, -1, design.n)

    def take(self, strata):
        """The rows of some strata."""
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        out.functions = self.functions.take(strata)
        return out

    def curvature(self, s, u, sigma):
        """Σ over groups of σ Aᵀ(I − J)A with J the derivative of the prox, (K, n, n)."""
        penalty = np.broadcast_to(self.penalties(sigma), u.shape)
        moves = self.functions.slopes(s, u, 1.0 / np.where(penalty > 0, penalty, 1.0))
        L = moves.shape[-1]
        scale = penalty.reshape(len(u), -1, L)[..., 0]
        rest, place = np.multiply(moves, -scale[..., None, None], out=moves), np.arange(L)
        rest[..., place, place] += scale[..., None]
        if self.design.whole and rest.shape[1] == 1:
            return rest[:, 0]
        return np.matmul(np.matmul(np.swapaxes(self._blocks, 1, 2), rest), self._blocks).sum(axis=1)
