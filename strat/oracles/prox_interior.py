"""The prox of smooth functions and kinks under smooth convex constraints, by an interior-point method of all strata."""

from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from strat.errors import NoOracleError
from strat.oracles.design import ConstantDesign
from strat.oracles.interior_point import ALMOST, InteriorPoint, Restricted
from strat.oracles.quadratic import Quadratic

#: Most iterations, the numbers of the Hessians of strata that go together, and the weight of feasibility beside the distance.
ROUNDS, TOGETHER, PULL = (40, 80), 2**20, 1e3


class InteriorProx:
    """argmin_z f(z) + Σ kinks + ‖z − v‖²/(2t) over {g_j <= 0} and affine constraints, all strata at once.

    Parameters
    ----------
    columns : (n,) int ndarray
        The coordinates that it acts on.
    problem : Restricted
    domain : (m,) bool ndarray
        Which rows bound the functions' domain.
    other : callable
        Gives another prox, slower, for strata where the method does not come to the end and for sets without a point
        that is strictly inside.
    """

    kind = "interior point method, to 1e-9"

    def __init__(self, columns, problem, other):
        self.columns, self.problem, self._other = columns, problem, other

    def __getstate__(self):
        return {**self.__dict__, "other": self.other, "_other": None}  # what gives it need not be kept

    @cached_property
    def other(self):
        """The other prox; None where there is none."""
        return self._other()

    def _rescued(self, v, t):
        """By the other prox."""
        if self.other is None:
            raise NoOracleError(
                f"the prox was not found in {len(v)} strata. Check that the constraints can be satisfied and that the "
                f"data have a reasonable scale."
            )
        return self.other(v, t)

    @cached_property
    def inside(self):
        """A point where all constraints hold strictly; None where there is none."""
        with np.errstate(all="ignore"):
            return strictly_inside(self.problem)

    def __call__(self, v, t):
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        if self.inside is None:
            return self._rescued(v, t)
        out, open_ = np.empty_like(v), np.ones(len(v), dtype=bool)
        many = max(TOGETHER // v.shape[1] ** 2, 1)
        for start in range(0, len(v), many):
            some = slice(start, start + many)
            part = self.problem.take(some) if len(self.problem.slopes) > 1 or many < len(v) else self.problem
            with np.errstate(all="ignore"):
                out[some], open_[some] = solve(v[some], t[some], part, self.inside)
        if open_.any():
            out[open_] = self._rescued(v[open_], t[open_])
        return np.clip(out, *self.problem.box)


def solve(v, t, problem, inside):
    """The solutions, and where they were not found."""
    out, open_ = _solve(v, t, problem, inside, False, ROUNDS[0])
    lost = np.flatnonzero(open_)
    if len(lost) and not isinstance(problem.smooth, Quadratic):
        out[lost], open_[lost] = _solve(v[lost], t[lost], problem.take(lost), inside, True, ROUNDS[1])
    return out, open_


def _solve(v, t, problem, inside, careful, rounds):
    out, left = np.empty_like(v), np.arange(len(v))
    open_ = np.zeros(len(v), dtype=bool)
    state = InteriorPoint(v, t, problem, inside, careful)
    for _ in range(rounds):
        if state.done.mean() > 0.1 or state.done.all():
            out[left[state.done]] = state.z[state.done]
            keep = np.flatnonzero(~state.done)
            left, state = left[keep], state.take(keep)
            if not len(left):
                return out, open_
        state.iterate()
    out[left], open_[left] = state.z, ~state.within(*ALMOST)
    return out, open_


def strictly_inside(problem):
    """A point where all constraints hold, all but the equalities strictly; None where none was found."""
    E, e = problem.equal
    n, held = problem.design.n, np.isinf(problem.slopes[0])
    A, knots, start = problem.design.dense_matrix()[held], problem.knots[held], E.T @ e
    if len(A) and not np.all(A @ start - knots < -1e-3):
        # The largest distance, up to 1, from the rows.
        A_ub = np.append(A, np.linalg.norm(A, axis=1)[:, None], axis=1)
        A_eq = np.append(E, np.zeros((len(E), 1)), axis=1) if len(e) else None
        bounds = [(None, None)] * n + [(None, 1.0)]
        found = linprog(np.append(np.zeros(n), -1.0), A_ub, knots, A_eq, e if len(e) else None, bounds)
        if found.x is None or found.x[-1] <= 1e-9:
            return None
        start = found.x[:n]
    if not problem.levels:
        return start
    # The smallest bound τ >= −1 of all levels, as a prox with one coordinate more.
    levels = [_Below(g) for g in problem.levels]
    top = max(float(g.value(start[None])[0]) for g in problem.levels)
    if not np.isfinite(top):
        return None
    m = len(A)
    rows = np.zeros((m + 1, n + 1))
    rows[:m, :n], rows[m, n] = A, -1.0
    row, column = np.nonzero(rows)
    design = ConstantDesign(row, column, rows[row, column], m + 1, n + 1)
    wider = (np.append(E, np.zeros((len(E), 1)), axis=1), e)
    box = tuple(np.append(end, far) for end, far in zip(problem.box, (-np.inf, np.inf), strict=True))
    nothing = Quadratic(np.zeros(1), np.zeros((1, n + 1)))
    lowest = Restricted(
        nothing, levels, design, np.append(knots, 1.0), np.full((1, m + 1), np.inf), wider, box
    )
    v = np.append(start, -PULL)[None]
    state = InteriorPoint(v, np.ones(1), lowest, np.append(start, max(top, -1.0) + 1.0 + 0.1 * abs(top)))
    for _ in range(ROUNDS[1]):
        if state.within(1e-6, 1e-3)[0] or not np.isfinite(state.z).all():
            break
        state.iterate()
    z = state.z[0, :n]
    highest = max(float(g.value(z[None])[0]) for g in problem.levels)
    return z if highest < -1e-7 and np.all(A @ z < knots) else None


class _Below:
    """g(z) − τ as a function of (z, τ)."""

    def __init__(self, g):
        self.g = g

    def value(self, x):
        """Value of each stratum."""
        return self.g.value(x[:, :-1]) - x[:, -1]

    def value_and_gradient(self, x):
        """Value and gradient."""
        value, gradient = self.g.value_and_gradient(x[:, :-1])
        return value - x[:, -1], np.append(gradient, np.full((len(x), 1), -1.0), axis=1)

    def hessian(self, x):
        """Blocks of the Hessian."""
        return np.pad(self.g.hessian(x[:, :-1]), ((0, 0), (0, 1), (0, 1)))
