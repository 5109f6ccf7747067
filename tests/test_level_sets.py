"""Sets that functions bound from above: projections and derivatives, and whole proxes against CVXPY."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.oracles.group_terms import GroupFunctions
from strat.oracles.level_set import LevelSet
from strat.oracles.row_functions import ScalarRows
from strat.oracles.scalar_newton import safeguarded
from strat.oracles.second_order_cone import SecondOrderCone
from strat.rules.exponentials import Entr, Exp, Log
from strat.rules.piecewise import Norm2
from strat.rules.powers import Square

INF = np.inf


def rows(rule, weight, m, low=-INF):
    return m, ScalarRows(rule, (), *(np.full((1, m), x) for x in (weight, low, INF)))


NORM = (4, GroupFunctions(Norm2(), 1, (4,), np.ones((1, 1))))
#: The parts, whether a linear row follows, the radius, and what a point exceeds it by.
SETS = {
    "exp": ([rows(Exp(), 1.0, 4)], False, 3.0, lambda x: np.exp(x).sum() - 3),
    "exp below a row": ([rows(Exp(), 1.0, 4)], True, 0.0, lambda x: np.exp(x[:4]).sum() + x[4]),
    "entropy": ([rows(Entr(), -1.0, 4, 0.0)], False, -1.0, lambda x: (x * np.log(x + (x == 0))).sum() + 1),
    "log": ([rows(Log(), -1.0, 4, 0.0)], True, 0.0, lambda x: x[4] - np.log(x[:4]).sum()),
    "cone": ([NORM], True, 0.0, lambda x: np.linalg.norm(x[:4]) + x[4]),
    "two": (
        [NORM, rows(Square(), 0.5, 3)],
        True,
        1.0,
        lambda x: np.linalg.norm(x[:4]) + 0.5 * (x[4:7] ** 2).sum() + x[7] - 1,
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_projections_and_their_derivatives(name):
    parts, sloped, radius, excess = SETS[name]
    L = sum(m for m, _ in parts) + sloped
    functions, rng = LevelSet(parts, sloped, radius), np.random.default_rng(0)
    u = 2 * rng.normal(size=(40, L))
    z = functions.point(u, None)
    other = functions.point(2 * rng.normal(size=(200, L)), None)
    for k in range(40):
        assert excess(z[k]) <= 1e-13
        # z is the projection: no point of the set lies beyond the plane through z.
        assert ((other - z[k]) @ (u[k] - z[k])).max() <= 1e-12
    np.testing.assert_allclose(functions.point(u, None, functions.point(u + 1e-3, None)), z, atol=1e-13)
    slopes, d = functions.slopes(z, u, None)[:, 0], 1e-6 * rng.normal(size=u.shape)
    change = functions.point(u + d, None) - functions.point(u - d, None)
    np.testing.assert_allclose(2e6 * np.matmul(slopes, d[..., None])[..., 0], 1e6 * change, atol=1e-5)


def test_the_second_order_cone_is_projected_on_in_closed_form():
    cone, general = SecondOrderCone(), LevelSet([NORM], True, 0.0)
    u = 2 * np.random.default_rng(0).normal(size=(60, 5))
    z = cone.point(u, None)
    np.testing.assert_allclose(z, general.point(u, None), atol=1e-14)
    np.testing.assert_allclose(cone.slopes(z, u, None), general.slopes(z, u, None), atol=1e-13)
    at_the_tip = np.zeros((1, 5))
    np.testing.assert_array_equal(cone.point(at_the_tip, None), at_the_tip)
    assert np.isfinite(cone.slopes(at_the_tip, at_the_tip, None)).all()


w, y = cp.Variable(5, name="w"), cp.Variable(name="y")
B = np.random.default_rng(1).normal(size=(3, 5))
CASES = {
    "a second-order cone": (cp.norm1(w), cp.norm(B @ w) <= 0.3 * w[0] + w[4] + 0.5),
    "an epigraph": (cp.norm1(w) + 2 * y, cp.norm(w, 3) <= y),
    "exponentials": (cp.norm1(w), cp.sum(cp.exp(w)) <= 4),
    "squares and a linear part": (cp.norm1(w), cp.sum_squares(B @ w) + w[1] <= 1),
    "entropy on a plane": (0, cp.sum(cp.entr(w)) >= 1.2, cp.sum(w) == 1),
    "a ball of relative entropy": (cp.norm1(w - 0.3), cp.sum(cp.kl_div(w, np.full(5, 0.2))) <= 0.1),
    "two norms": (0, cp.norm(w, 2) + cp.norm_inf(w) <= 1),
    "log-sum-exp": (cp.norm1(w), 2 * cp.log_sum_exp(B @ w) <= 0.4),
    "log-sum-exp below a row": (cp.norm1(w), cp.log_sum_exp(3 * w) <= 0.5 * w[0] + 1),
    "two log-sum-exps": (0, cp.log_sum_exp(w[:3]) <= 0.5, cp.log_sum_exp(-w) <= 2),
    "weighted powers": (0.1 * cp.sum(w), 2 * cp.sum(cp.power(w - 1, 4)) <= 1, w[0] + w[1] <= 1),
}


@pytest.mark.parametrize("name", CASES)
def test_proxes_are_cvxpys(name):
    expression, *constraints = CASES[name]
    program = strat.compile(expression, constraints=constraints)
    oracle = pickle.loads(pickle.dumps(program.bind()))
    assert str(program).splitlines()[-1].split()[1] in ("dual", "interior", "Newton")
    steps = np.array([0.1, 1.0, 10.0, 1.0])
    rng, v = np.random.default_rng(3), {}
    for x in program.variables:
        v[x.name()] = 2 * rng.normal(size=(4, *x.shape))
        v[x.name()][3] = 0.0
    z = oracle.prox(v, steps)
    reference = prox_by_cvxpy(program.expression, program.variables, v, steps, constraints)
    assert_same_prox(oracle, program.variables, z, v, steps, reference, constraints, 1e-6, 1e-9)


def test_roots_are_found_to_rounding_whatever_the_start():
    rng = np.random.default_rng(0)
    v, t = 5 * rng.normal(size=500), 10.0 ** rng.uniform(-3, 3, size=500)

    def residual(z, which):
        return np.exp(z) + (z - v[which]) / t[which], np.exp(z) + 1 / t[which]

    low, high = np.full(500, -INF), np.full(500, INF)
    z = safeguarded(residual, v, t, low, high, apart=True)
    again = safeguarded(residual, v, t, low, high, apart=True, start=z + rng.normal(size=500))
    value, slope = residual(z, np.arange(500))
    assert (np.abs(value / slope) / (1 + np.abs(v))).max() <= 4e-15
    np.testing.assert_allclose(again, z, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("radius", [0.2, 3.0])
def test_squares_over_linear_bound_and_are_bounded(radius):
    w, y = cp.Variable(4, name="w"), cp.Variable(name="y")
    over = cp.quad_over_lin(w[:2], y + 1)
    for f, limits in (
        (cp.norm1(w), [over <= w[3]]),
        (0 * y, [over + cp.norm1(w) <= radius]),
        (cp.norm(w, 2), [over <= radius]),
    ):
        program = strat.compile(f, constraints=limits)
        rng, steps = np.random.default_rng(0), np.array([0.1, 1.0, 10.0])
        v = {"w": 2 * rng.normal(size=(3, 4)), "y": np.array([-3.0, 0.0, 2.0])}
        oracle = program.bind()
        z = oracle.prox(v, steps)
        reference = prox_by_cvxpy(program.expression, program.variables, v, steps, limits)
        assert_same_prox(oracle, program.variables, z, v, steps, reference, limits, 1e-6)
