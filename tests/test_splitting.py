"""Proxes by ADMM over all strata: those of Clarabel, in any units; strata that it leaves; and joint fits by them that resume."""

import cvxpy as cp
import numpy as np
import pytest
from compounds import COMPOUNDS, declared, graph, records

import strat
from strat.oracles import splitting
from strat.oracles.cone_prox import MISSES, Start

NAMES = ("overlapping groups", "OSCAR", "square of l1", "ball and plane", "risk bound", "Huber of a norm")
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
        z, exact = prox(unit * v, unit**2 * STEPS, start), prox(unit * v, unit**2 * STEPS)
        np.testing.assert_allclose(z / unit, exact / unit, atol=1e-5)
    assert start.state.shape[0] == K and not start.misses


def test_strata_that_are_left_are_solved_by_clarabel(monkeypatch):
    prox, start = prox_of(CONES["overlapping groups"]), Start()
    monkeypatch.setattr(splitting, "MOST", splitting.PERIOD)
    for factor in (-1.0) ** np.arange(MISSES + 2):
        np.testing.assert_allclose(prox(factor * V, STEPS, start), prox(factor * V, STEPS), atol=1e-6)
    assert start.misses == MISSES  # then it is given up


def test_exponential_cones_and_large_programs_are_left_to_clarabel():
    v, theta, start = RNG.normal(size=(3, 90)), cp.Variable(90, name="theta"), Start()
    for f in (cp.log_sum_exp(theta) + cp.norm1(theta), cp.norm(theta[:60], 2) + cp.tv(theta)):
        strat.compile(f).bind().flat.prox(v, np.ones(3), start)
    assert start.state.size == 1


@pytest.mark.parametrize("name", ["overlapping groups", "ball and plane"])
def test_joint_fits_resume_where_they_stopped(name, tmp_path):
    X, Y, z = records(CONES[name], "logistic", 60)

    def fitted(**options):
        constants = {"lambda1": 1.0, "lambda2": 0.3, "eta": 0.1, "mu": 0.2}
        model = strat.joint(
            declared(CONES[name], "logistic"), graph(60), **constants, solver=strat.MAPG(**options)
        )
        return model.fit(X, Y, strata=z)

    whole = fitted(tol=1e-5)
    given = strat.lrsm(whole.base, (list(range(60)), whole.W_)).fit(X, Y, strata=z)
    np.testing.assert_allclose(given.theta_["w"], whole.theta_["w"], atol=1e-3)
    with pytest.warns(strat.ConvergenceWarning):
        fitted(max_iter=12, checkpoint=tmp_path / "fit")
    resumed = fitted(tol=1e-5, checkpoint=tmp_path / "fit")
    assert resumed.result_.history == whole.result_.history
