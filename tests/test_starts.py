"""Starting points and the choice among several."""

import numpy as np
import pytest
from handmade import Bernoulli, Box, Logistic, Norm1

from strat.errors import OptionError
from strat.problem.edges import AllPairs
from strat.problem.graph_regularizers import FixedGraph, LogDet
from strat.problem.joint_problem import JointProblem
from strat.solvers import MAPG, NewtonCG
from strat.solvers.starts import point, solve

K = 10


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    stratum = rng.integers(K - 1, size=80)
    loss = Logistic(rng.standard_normal((80, 3)), rng.choice([-1.0, 1.0], size=80), stratum, K)
    edges = AllPairs(K)
    w0 = edges.from_vector(rng.random(edges.count))
    return JointProblem(loss, Norm1(0.3), LogDet(0.5, 0.2, 0.1, 0.2), edges, w0)


def test_zero_is_the_prox_at_zero(problem):
    theta, w = point(problem, "zero")
    assert not theta.any()
    assert np.array_equal(w, problem.w0)
    problem.regularizer = Box(0.5, 2.0)
    assert np.all(point(problem, "default")[0] == 0.5)


def test_separate_and_lrsm_are_nearly_fitted(problem):
    theta, _ = point(problem, "separate")
    gradient = problem.loss.value_and_gradient(theta)[1]
    assert np.linalg.norm(theta - problem.prox(theta - gradient, 1.0)) < 0.05
    assert not theta[-1].any()  # no records
    theta, w = point(problem, "lrsm")
    assert problem.residual(theta, w)["theta"] < 1e-3
    assert theta[-1].any()


def test_random_starts_follow_the_seed(problem):
    a, b, c = (point(problem, "random", seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_a_given_start(problem):
    given = {"theta": np.ones((K, 3))}
    theta, w = point(problem, given)
    assert np.all(theta == 1)
    assert np.array_equal(w, problem.w0)
    w = problem.edges.mask.copy()
    theta, same = point(problem, {"w": w})
    assert not theta.any()
    assert same is w
    with pytest.raises(OptionError, match="init = 'best' is unknown"):
        point(problem, "best")


def test_a_loss_that_is_infinite_at_zero_asks_for_a_start():
    edges = AllPairs(3)
    loss = Bernoulli(np.array([1.0, 0.0]), np.array([0, 1]), 3)
    p = JointProblem(loss, Box(0.0, 1.0), LogDet(0.5, 0.2, 0.1, 0.2), edges, edges.zeros())
    p.start_point = lambda theta, bad: np.where(bad[:, None], 0.5, theta)
    assert point(p, "zero")[0].ravel().tolist() == [0.5, 0.0, 0.0]
    loss.prox = lambda v, t: np.full_like(v, 0.25)
    p.start_point = None
    assert point(p, "zero")[0].ravel().tolist() == [0.25, 0.0, 0.0]


def test_the_lowest_objective_is_kept(problem):
    result = solve(problem, MAPG(), n_starts=6)
    names = [s["init"] for s in result.starts]
    assert names == ["default", "zero", "separate", "lrsm", "random 1", "random 2"]
    assert result.objective == min(s["objective"] for s in result.starts)
    assert solve(problem, MAPG(), "lrsm").init == "lrsm"
    assert [s["init"] for s in solve(problem, MAPG(), {}, n_starts=2).starts] == ["given", "default"]


def test_the_lowest_validation_loss_is_kept(problem):
    result = solve(problem, MAPG(patience=2), n_starts=3, score=lambda theta: -np.abs(theta).sum())
    assert result.init in ("default", "separate")


def test_an_interrupt_ends_the_search(problem):
    result = solve(problem, MAPG(callback=lambda state: True), n_starts=4)
    assert result.status == "interrupted"
    assert len(result.starts) == 1


@pytest.mark.parametrize("solver", [MAPG, NewtonCG])
def test_a_start_outside_the_constraints_is_projected(problem, solver):
    # The objective there, without the constraints, is lower than at the optimum.
    h, w0 = FixedGraph(), problem.w0
    wide, narrow = (JointProblem(problem.loss, Box(-b, b), h, problem.edges, w0) for b in (0.3, 0.2))
    start = {"theta": solve(wide, solver()).theta}
    assert np.abs(start["theta"]).max() == pytest.approx(0.3)
    assert narrow.objective(start["theta"], w0) < solve(narrow, solver()).objective
    result = solve(narrow, solver(tol=1e-8), start)
    assert result.status == "converged" and np.abs(result.theta).max() <= 0.2
    assert result.objective == pytest.approx(solve(narrow, solver(tol=1e-8)).objective, rel=1e-12)
    inside = np.full((K, 3), 0.1)
    assert np.array_equal(point(narrow, {"theta": inside})[0], inside)
