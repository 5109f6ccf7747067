"""The largest of several convex functions, each of rows of its own: its prox and the derivative of that.

With multipliers λ_j >= 0 that sum to the weight, the prox with a step τ_j for each function's rows is
u_j → prox_{λ_j τ_j f_j}(u_j), and the functions with a positive multiplier all have the largest value there. These λ
maximise a concave function, the sum of the functions' Moreau envelopes, whose slope in λ_j is the value f_j(z_j): Newton's
method on a simplex, each step of which is a threshold.
"""

import numpy as np

from strat.oracles.group_terms import GroupTerm
from strat.oracles.line_search import Search

ROUNDS, SHORTENED, ROUNDED = 30, 15, 1e-12
#: Speeds at which a value falls in its multiplier that count as none, in multiples of the largest.
FLAT = 1e-12


class LargestOf:
    """The functions of one group of rows: weight × max(f_1, f_2, …, least).

    Parameters
    ----------
    branches : list of (int, LevelSet)
        How many rows each function takes, and the function as the set where it is at most 0.
    least : float
        A constant among them; −inf where there is none.
    weight : (K or 1, 1) ndarray
        Not negative.
    """

    groups = 1

    def __init__(self, branches, least, weight):
        self.branches, self.least, self.weight = branches, least, weight
        self.ends = np.cumsum([m for m, _ in branches])

    def take(self, strata):
        """The functions of some strata."""
        weight = self.weight if len(self.weight) == 1 else self.weight[strata]
        return LargestOf([(m, f.take(strata)) for m, f in self.branches], self.least, weight)

    def split(self):
        """(rows, function) of each."""
        return [(slice(end - m, end), f) for end, (m, f) in zip(self.ends, self.branches, strict=True)]

    def steps(self, u, step):
        """Steps of the functions' rows (K, p)."""
        return np.broadcast_to(step, u.shape)[:, self.ends - 1]

    def point(self, u, step, near=None):
        """argmin_s f(s) + Σ (s − u)²/(2 step), the step the same for a function's rows; ``near`` is a point near it."""
        return self.prox(u, step, near)[0]

    def prox(self, u, step, near=None):
        """``point``, nan where it was not found, and u with the multipliers, which ``curvature`` needs."""
        K, p = len(u), len(self.branches)
        step, total = self.steps(u, step), np.broadcast_to(self.weight[:, 0], K)
        level = self._start(u, step, near, total)
        out, multipliers, left, some = np.full(u.shape, np.nan), np.zeros((K, p)), np.arange(K), self
        at, (z, value, fall) = u, some._at(u, step, level, u if near is None else near)
        last = np.full(K, np.inf)
        for _ in range(ROUNDS):
            new, top = threshold(value, fall, level, total, self.least)
            move, over = new - level, value - top[:, None]
            gap = np.where(level > 0, np.abs(over), over).max(axis=1)
            size = 1.0 + np.abs(at).max(axis=1) + np.abs(top)
            # The method ends at rounding, which it shows by no longer gaining.
            done = (gap <= 2e-16 * size) | ((gap <= ROUNDED * size) & (gap >= 0.3 * last))
            done |= np.abs(move).max(axis=1) <= 1e-16 * total
            out[left[done]], multipliers[left[done]] = z[done], level[done]
            keep = np.flatnonzero(~done)
            if not len(keep):
                break
            last = gap[keep]
            if len(keep) < len(left):
                some, left = some.take(keep), left[keep]
                at, step, level, total, z = (part[keep] for part in (at, step, level, total, z))
                value, move, top = (part[keep] for part in (value, move, top))
            level, z, value, fall = some._step(at, step, level, move, top, value, z)
        return out, np.concatenate([u, multipliers], axis=1)

    def _start(self, u, step, near, total):
        """Multipliers at first."""
        p = len(self.branches)
        even = np.repeat(total[:, None] / p, p, axis=1)
        if near is None:
            return even
        level = np.stack([f.multiplier(u[:, here], near[:, here]) for here, f in self.split()], axis=1) / step
        level = np.clip(np.where(np.isfinite(level), level, 0.0), 0.0, total[:, None])
        size = level.sum(axis=1, keepdims=True)
        scale = total[:, None] / np.where(size > 0, size, 1.0)
        if np.isfinite(self.least):
            scale = np.minimum(scale, 1.0)
        return np.where(size > 0, level * scale, even)

    def _at(self, u, step, level, near):
        """Proxes at multipliers (K, p), the functions' values there and the speeds at which these fall."""
        z, value, fall = np.empty_like(u), np.empty_like(level), np.empty_like(level)
        for j, (here, f) in enumerate(self.split()):
            idle, own = level[:, j] <= 0, level[:, j] * step[:, j]
            z[:, here], fall[:, j] = f.at(u[:, here], np.where(idle, 1.0, own), near[:, here])
            if idle.any():
                still = f.nearest(u[idle, here])
                z[idle, here], fall[idle, j] = still, (f.gradient(still) ** 2).sum(axis=1)
            value[:, j] = f.excess(z[:, here])
        return z, value, fall * step

    def _step(self, u, step, level, move, top, value, z):
        """Multipliers on the way along a move, where the concave function rises far enough, and all there."""
        # What the multipliers add up to stays the same, or is taken from the least.
        apart = np.abs(move.sum(axis=1)) > 1e-10 * np.maximum(level.sum(axis=1), 1e-300)
        rest = np.where(apart & np.isfinite(self.least), self.least, top)[:, None]
        start, noise = -((value - rest) * move).sum(axis=1), 1e-15 * (1.0 + np.abs(top))
        everywhere = np.ones(len(u), dtype=bool)
        search = Search(start, everywhere.astype(float), everywhere, noise * np.abs(move).max(axis=1))
        for round_ in range(SHORTENED):
            trial = level + search.trial[:, None] * move
            z, value, fall = self._at(u, step, trial, z)
            if not search.update(-((value - rest) * move).sum(axis=1), round_).any():
                break
        return trial, z, value, fall


def threshold(value, fall, level, total, least):
    """Multipliers (K, p) that bring the linear models value − fall × change to one top, and that top.

    The multipliers are not negative and sum to the total (K,), or to less where the top is the least.
    """
    soft = np.maximum(fall, FLAT * np.maximum(fall.max(axis=1, keepdims=True), 1.0))
    edge, weight = value + soft * level, 1.0 / soft
    top = np.full(len(value), -np.inf)
    for _ in range(value.shape[1]):  # those whose multiplier would be negative drop out
        weight = np.where(edge > top[:, None], weight, 0.0)
        size = weight.sum(axis=1)
        new = ((weight * edge).sum(axis=1) - total) / np.where(size > 0, size, 1.0)
        new = np.where(size > 0, new, edge.max(axis=1))
        if np.all(new <= top):
            break
        top = np.maximum(top, new)
    top = np.maximum(top, least)
    new = np.maximum((edge - top[:, None]) / soft, 0.0)
    # The flattest one takes the rest, which its own model knows least well.
    flattest = np.arange(len(new)), np.argmin(np.where(new > 0, soft, np.inf), axis=1)
    rest = np.where(top > least, total - new.sum(axis=1), 0.0)
    new[flattest] = np.maximum(new[flattest] + rest, 0.0)
    return new, top


class LargestTerm(GroupTerm):
    """LargestOf on rows on strata; each function's rows are measured by one norm."""

    def penalties(self, sigma):
        """(K,) penalties as those of the rows: shared between the functions."""
        return super().penalties(sigma) / len(self.functions.branches)

    def curvature(self, s, memo, sigma):
        """The curvature of the functions' Moreau envelope at rows with penalties, (K, n, n)."""
        (K, L), n = s.shape, self.design.n
        u, levels = memo[:, :L], memo[:, L:]
        penalty = np.broadcast_to(self.penalties(sigma), s.shape)[:, self.functions.ends - 1]
        step, matrix = 1.0 / np.where(penalty > 0, penalty, 1.0), self.design.dense_matrix()
        out, tied, rate = np.zeros((K, n, n)), np.zeros((K, n)), np.zeros(K)
        for j, (here, f) in enumerate(self.functions.split()):
            own, along, active = f.linearised(s[:, here], u[:, here], levels[:, j] * step[:, j])
            push = np.matmul(own, along[..., None])[..., 0]
            soft = np.maximum((push * along).sum(axis=1), FLAT)
            share = np.where(active, penalty[:, j] / soft, 0.0)
            rest = own * -penalty[:, j, None, None]
            place = np.arange(rest.shape[1])
            rest[:, place, place] += penalty[:, j, None]
            rest += push[:, :, None] * (share[:, None] * push)[:, None, :]
            out += np.matmul(matrix[here].T, np.matmul(rest, matrix[here]))
            tied += (share[:, None] * push) @ matrix[here]
            rate += share
        # Above the least, the values rise and fall together.
        free = levels.sum(axis=1) >= (1.0 - 1e-12) * self.functions.weight[:, 0]
        tied *= np.where(free & (rate > 0), 1.0 / np.sqrt(np.where(rate > 0, rate, 1.0)), 0.0)[:, None]
        out -= tied[:, :, None] * tied[:, None, :]
        return out
