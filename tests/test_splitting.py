"""Proxes by Newton steps and ADMM over all strata: Clarabel's, in any units; strata that are left; and joint fits that resume."""

from unittest import mock

import cvxpy as cp
import numpy as np
import pytest
from compounds import COMPOUNDS, declared, graph, records

import strat
from strat.oracles import cone_projections, splitting
from strat.oracles.iterated_prox import Start

NAMES = "overlapping groups", "OSCAR", "square of l1", "ball and plane", "risk bound"
NAMES += "3-norm ball", "entropy on the simplex", "log-sum-exp bound"
CONES = {row.name: row for row in COMPOUNDS if row.name in NAMES}
K, n = 40, 6
RNG = np.random.default_rng(1)
STEPS, V, MOVE = RNG.uniform(0.02, 2, size=K), 0.3 + RNG.normal(size=(K, n)), 1e-3 * RNG.normal(size=(K, n))


def prox_of(row, unit=1.0):
    base = declared(row, "least squares", unit)
    return strat.compile(base.regularizer, constraints=base.constraints).bind().flat.prox


@pytest.mark.parametrize("unit", [1.0, 1e-5])
@pytest.mark.parametrize("name", CONES)
def test_proxes_are_those_of_clarabel(name, unit):
    prox, start = prox_of(CONES[name], unit), Start()
    for v in (V, V + MOVE, 2 * V):
        z = prox(unit * v, unit**2 * STEPS, start)
        exact = prox.some(np.arange(K), unit * v, unit**2 * STEPS)
        np.testing.assert_allclose(z / unit, exact / unit, atol=1e-5)
    assert start.state.shape[0] == K


def test_strata_that_are_left_are_solved_by_clarabel(monkeypatch):
    prox, start = prox_of(CONES["overlapping groups"]), Start()
    monkeypatch.setattr(splitting, "ROUNDS", 0)
    monkeypatch.setattr(splitting, "STEPS", 1)
    for factor in (1.0, -1.0):
        by_clarabel = prox.some(np.arange(K), factor * V, STEPS)
        np.testing.assert_allclose(prox(factor * V, STEPS, start), by_clarabel, atol=1e-6)


def test_equal_points_are_solved_once():
    prox, same = prox_of(CONES["3-norm ball"]), np.tile(V[0], (K, 1))
    with mock.patch.object(prox, "_solved", wraps=prox._solved) as solved:
        z = prox(same, 0.5)
    assert [len(call.args[1]) for call in solved.call_args_list] == [1]
    np.testing.assert_allclose(z, prox.some(np.arange(K), same, np.full(K, 0.5)), atol=1e-6)


def test_power_cones_and_large_programs_are_left_to_clarabel():
    v, theta, start = RNG.normal(size=(3, 90)), cp.Variable(90, name="theta"), Start()
    for f in (cp.sum(cp.power(theta[:5], 1.3)) + cp.norm1(theta), cp.norm(theta[:60], 2) + cp.tv(theta)):
        strat.compile(f).bind().flat.prox(v, np.ones(3), start)
    assert start.state.size == 1


@pytest.mark.parametrize("kind", ["second_order", "exponential", "semidefinite"])
def test_projections_on_cones(kind):
    project, invert = (getattr(cone_projections, f"{verb}_{kind}") for verb in ("project", "invert"))
    v = RNG.normal(size=(300, 3)) * 10.0 ** RNG.uniform(-2, 2, size=(300, 3))
    p = project(v)
    size = np.linalg.norm(v, axis=1)
    assert np.abs(np.vecdot(p, v - p) / size**2).max() < 1e-14
    np.testing.assert_allclose(project(p), p, atol=1e-13 * size.max())
    assert np.abs(project(v - p) / size[:, None]).max() < 1e-13 and (np.linalg.norm(p, axis=1) > 0).any()
    x = cp.Variable(3)
    cone = cp.SOC(x[0], x[1:]) if kind == "second_order" else cp.constraints.ExpCone(x[0], x[1], x[2])
    for row in range(10):
        if kind == "semidefinite":
            cone = cp.bmat([[x[0], x[1] / 2**0.5], [x[1] / 2**0.5, x[2]]]) >> 0
        cp.Problem(cp.Minimize(cp.sum_squares(x - v[row] / size[row])), [cone]).solve(solver="CLARABEL")
        np.testing.assert_allclose(p[row] / size[row], x.value, atol=1e-4)
    v, h = RNG.normal(size=(300, 3)), 1e-6
    moves = [(project(v + h * e) - project(v - h * e)) / (2 * h) for e in np.eye(3)]
    slopes = np.linalg.inv(invert(v, 1e-8)) - 1e-8 * np.eye(3)
    np.testing.assert_allclose(slopes, np.stack(moves, axis=2), atol=1e-6)


@pytest.mark.parametrize("name", ["overlapping groups", "ball and plane"])
def test_joint_fits_resume_where_they_stopped(name, tmp_path):
    X, Y, z = records(CONES[name], "logistic", 60)

    def fitted(**options):
        base, h = declared(CONES[name], "logistic"), strat.LogDet(1.0, 0.3, 0.1, 0.2)
        return strat.joint(base, graph(60), h, solver=strat.MAPG(**options)).fit(X, Y, strata=z)

    whole = fitted(tol=1e-5)
    given = strat.lrsm(whole.base, (list(range(60)), whole.W_)).fit(X, Y, strata=z)
    np.testing.assert_allclose(given.theta_["w"], whole.theta_["w"], atol=1e-3)
    with pytest.warns(strat.ConvergenceWarning):
        fitted(max_iter=12, checkpoint=tmp_path / "fit")
    assert fitted(tol=1e-5, checkpoint=tmp_path / "fit").result_.history == whole.result_.history
