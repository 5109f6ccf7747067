"""Projection on a level set {Σ F_i(u_i) + s <= radius} of functions that know their prox, and its derivative.

With the multiplier λ >= 0 the projection is u_i → prox_{λF_i}(u_i), s → s − λ, and λ the root of a decreasing function:
what Σ F_i + s exceeds the radius by there. Its slope, and the projection's derivative, follow from those of the proxes.
"""

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.level_newton import level_newton
from strat.oracles.row_functions import PiecewiseRows, ScalarRows

ROUNDS = 100


class LevelSet:
    """The functions of one group of rows: the sets' indicators.

    Parameters
    ----------
    parts : list of (int, functions)
        How many rows each takes, and its ScalarRows or GroupFunctions.
    sloped : bool
        Whether a row s follows, which enters as it is.
    radius : float
    """

    groups = 1

    def __init__(self, parts, sloped, radius):
        self.parts, self.sloped, self.radius = parts, sloped, radius
        #: Whether all are functions of one number each, smooth inside their domains.
        self.scalar = all(isinstance(f, ScalarRows) and not f.absolute for _, f in parts)

    def take(self, strata):
        """The functions of some strata."""
        return LevelSet([(m, f.take(strata)) for m, f in self.parts], self.sloped, self.radius)

    def _split(self, u):
        ends = np.cumsum([m for m, _ in self.parts])
        return [
            (u[:, end - m : end], functions) for end, (m, functions) in zip(ends, self.parts, strict=True)
        ]

    def point(self, u, step, near=None):
        """The nearest point in the set; ``near`` is one near it, where one is known."""
        out = self.nearest(u)
        excess = self.excess(out)
        left = np.flatnonzero(~(excess <= 0))
        if len(left):
            some = self if len(left) == len(u) else self.take(left)
            near = None if near is None else near[left]
            out[left] = (
                some._from_nearby(u[left], near)
                if self.scalar and near is not None
                else some._beyond(u[left], near)
            )
        return out

    def _from_nearby(self, u, near):
        """The projection of points outside: Newton's method for all unknowns, from a point near it."""
        ends = np.cumsum([m for m, _ in self.parts])
        functions = [(slice(end - m, end), f) for end, (m, f) in zip(ends, self.parts, strict=True)]
        s = u[:, -1] if self.sloped else None
        start = near[:, : ends[-1]]
        level = np.maximum(self.multiplier(u, near), 0.0)
        z, level, found = level_newton(functions, u[:, : ends[-1]], s, self.radius, start, level)
        if self.sloped:
            z = np.concatenate([z, (s - level)[:, None]], axis=1)
        lost = np.flatnonzero(~found)
        if len(lost):
            z[lost] = self.take(lost)._beyond(u[lost], near[lost])
        return z

    def prox(self, u, step, near=None):
        """``point``, and u, which ``slopes`` needs."""
        return self.point(u, step, near), u

    def excess(self, z):
        """What the functions and s exceed the radius by."""
        total = sum(f.total(part) for part, f in self._split(z)) - self.radius
        return total + z[:, -1] if self.sloped else total

    def _beyond(self, u, near):
        """The projection of points outside, by Newton's method in λ between bounds; what is found drops out."""
        K = len(u)
        low, high = np.zeros(K), np.full(K, np.inf)
        level = np.ones(K) if near is None else self.multiplier(u, near)
        level = np.where(np.isfinite(level) & (level > 1e-12), level, 1.0)
        noise = 2e-15 * (1.0 + np.abs(u).max(axis=1) + abs(self.radius))
        out, z, left, some = np.empty_like(u), u, np.arange(K), self
        for round_ in range(ROUNDS):
            z, fall = some.at(u, level, z)
            excess = some.excess(z)
            low, high = np.where(excess > 0, level, low), np.where(excess < 0, level, high)
            with np.errstate(all="ignore"):
                trial = level + excess / fall
                # Far away the excess is more nearly linear in log λ.
                far = level * np.exp(np.clip(excess / (level * fall), -3.0, 3.0))
                trial = np.where((trial > 0.25 * level) & (trial < 4.0 * level), trial, far)
                inside = (trial > low) & (trial < high)
                middle = np.where(low > 0, np.sqrt(low) * np.sqrt(high), high / 16.0)
                middle = np.where(np.isinf(high), 4.0 * level, middle)
            new = np.where(inside & (round_ % 8 < 7), trial, middle)
            done = (
                (np.abs(excess) <= noise)
                | (np.abs(new - level) <= 1e-15 * level)
                | (high - low <= 1e-15 * low)
            )
            out[left] = z
            if done.all():
                break
            level = np.where(done, level, new)
            if done.mean() > 0.3:
                keep = np.flatnonzero(~done)
                u, z, level, low, high, noise, left, excess, done = (
                    part[keep] for part in (u, z, level, low, high, noise, left, excess, done)
                )
                some = some.take(keep)
        empty = int((~done & ~(excess <= 1e7 * noise)).sum())
        if empty:
            raise NoOracleError(
                f"no point was found where functions are at most {self.radius:g}, in {empty} strata. Check that the "
                f"constraints can be satisfied."
            )
        return out

    def at(self, u, level, near):
        """Proxes at a multiplier (K,), and the speed at which their total falls in it."""
        out, fall = [], np.full(len(u), 1.0 if self.sloped else 0.0)
        for (part, f), (start, _) in zip(self._split(u), self._split(near), strict=True):
            step = np.broadcast_to(level[:, None], part.shape)
            z, memo = f.prox(part, step, start)
            fall = fall + _fall(f, part, z, memo, step)
            out.append(z)
        if self.sloped:
            out.append(u[:, -1:] - level[:, None])
        return np.concatenate(out, axis=1), fall

    def nearest(self, u):
        """The nearest points of the functions' domains."""
        z = [f.nearest(part) for part, f in self._split(u)]
        return np.concatenate([*z, u[:, -1:]] if self.sloped else z, axis=1)

    def gradient(self, z):
        """Of Σ F_i + s; 0 where that is infinite."""
        gradient = [f.gradient(part) for part, f in self._split(z)]
        if self.sloped:
            gradient.append(np.ones((len(z), 1)))
        gradient = np.concatenate(gradient, axis=1)
        return np.where(np.isfinite(gradient), gradient, 0.0)

    def multiplier(self, u, z):
        """λ with u − z = λ × gradient, by least squares."""
        gradient = self.gradient(z)
        square = (gradient * gradient).sum(axis=1)
        return ((u - z) * gradient).sum(axis=1) / np.where(square > 0, square, 1.0)

    def _scalar_slopes(self, z, u, level):
        """``slopes`` where all are functions of one number: a diagonal less a matrix of rank one."""
        K, L = u.shape
        soft, along, start, active = np.ones((K, L)), np.zeros((K, L)), 0, (level > 0)[:, None]
        with np.errstate(all="ignore"):
            for (part, f), (at, _) in zip(self._split(u), self._split(z), strict=True):
                here = slice(start, start := start + part.shape[1])
                _, along[:, here], curvature = f.expansion(at)
                soft[:, here] = np.where(
                    active, 1.0 / (1.0 + level[:, None] * curvature), (part >= f.low) & (part <= f.high)
                )
        if self.sloped:
            along[:, -1] = 1.0
        push = np.where(active & (soft > 0), soft * along, 0.0)
        fall = (push * np.where(active, along, 0.0)).sum(axis=1, where=push != 0)
        out = push[:, :, None] * (-push / np.where(fall > 0, fall, 1.0)[:, None])[:, None, :]
        place = np.arange(L)
        out[:, place, place] += soft
        return out[:, None]

    def linearised(self, z, u, level):
        """Derivatives (K, L, L) at u of the proxes z at multipliers (K,), gradients (K, L) there, and where λ > 0."""
        K, L = u.shape
        active = level > 0
        level = np.where(active, level, 1.0)
        own, along = np.zeros((K, L, L)), np.zeros((K, L))
        start = 0
        for (part, f), (at, _) in zip(self._split(u), self._split(z), strict=True):
            here = slice(start, start := start + part.shape[1])
            step = np.broadcast_to(level[:, None], part.shape)
            own[:, here, here] = f.matrix(at, part, step)
            inside = f.matrix(
                at, part, np.full(part.shape, 1e-300)
            )  # the prox of almost nothing: of the domain
            own[:, here, here] = np.where(active[:, None, None], own[:, here, here], inside)
            along[:, here] = (part - at) / step
        if self.sloped:
            own[:, -1, -1] = along[:, -1] = 1.0
        return own, along, active

    def slopes(self, z, u, step):
        """Derivative of the projection z at u, (K, 1, L, L)."""
        level = u[:, -1] - z[:, -1] if self.sloped else self.multiplier(u, z)
        if self.scalar:
            return self._scalar_slopes(z, u, level)
        own, along, active = self.linearised(z, u, level)
        push = np.matmul(own, along[..., None])[..., 0]
        fall = (push * along).sum(axis=1)
        some = active & (fall > 0)
        turn = push[:, :, None] * push[:, None, :] / np.where(some, fall, 1.0)[:, None, None]
        return (own - np.where(some[:, None, None], turn, 0.0))[:, None]


def _fall(functions, u, z, memo, step):
    """How fast the functions' total at the prox z of u falls in the step."""
    known = functions.fall(z, u) if hasattr(functions, "fall") else None
    if known is not None:
        return known
    slope = (u - z) / step
    if isinstance(functions, (PiecewiseRows, ScalarRows)):
        return np.einsum("ij,ij,ij->i", memo, slope, slope)
    groups = functions.slopes(z, memo, step)
    slope = slope.reshape(*groups.shape[:-1], 1)
    return (slope * np.matmul(groups, slope)).sum(axis=(1, 2, 3))
