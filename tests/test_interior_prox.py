"""The interior-point method for smooth convex constraints: whole proxes against CVXPY, and what it hands on."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.oracles import kernels
from strat.oracles.prox_interior import InteriorProx, solve

pytestmark = pytest.mark.filterwarnings("ignore::strat.DataWarning")
rng = np.random.default_rng(2)
A, B = rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
P = A.T @ A
w, y = cp.Variable(5, name="w"), cp.Variable(name="y")
CASES = {
    "two log-sum-exps": (cp.norm1(w), cp.log_sum_exp(A @ w) <= 2, cp.log_sum_exp(B @ w) <= 2),
    "a sum of two": (0, cp.log_sum_exp(A @ w) + cp.log_sum_exp(B @ w) <= 4),
    "squares and a log-sum-exp": (cp.norm1(w), cp.sum_squares(A @ w) + cp.log_sum_exp(B @ w) <= 3),
    "logistic": (cp.tv(w), cp.sum(cp.logistic(A @ w)) <= 2.5, w <= 0.7),
    "entropy on a plane": (0, cp.sum(cp.entr(w)) >= 1.2, cp.sum(w) == 1),
    "relative entropy on a simplex": (
        cp.norm1(w - 0.2),
        cp.sum(cp.kl_div(w, np.full(5, 0.2))) <= 0.1,
        cp.sum(w) == 1,
    ),
    "a norm and squares": (cp.norm1(w), cp.norm(A @ w) + cp.sum_squares(w) <= 1),
    "logarithms": (cp.norm1(w), -cp.sum(cp.log(A @ w + 1)) <= 1),
    "a geometric mean": (cp.sum(w), cp.geo_mean(w) >= 0.5),
    "cubes": (0, cp.sum(cp.power(w, 3)) <= 1, w >= 0),
    "a quadratic form": (cp.norm1(w), cp.quad_form(w - 0.1, P) + 0.2 * w[1] <= 1),
    "two quadratic forms": (0, cp.quad_form(w, P) + w[0] <= 1, cp.sum_squares(B @ w) <= 1),
    "an epigraph": (cp.norm1(w) + y, cp.sum(cp.exp(w)) <= y),
    "a smooth objective": (cp.log_sum_exp(A @ w), cp.sum(cp.exp(w)) <= 4, w[0] + w[1] <= -0.5),
    "entropy as objective": (-cp.sum(cp.entr(w)), cp.sum(cp.exp(w)) <= 7, cp.sum(w) == 1),
    "a function of functions": (cp.norm1(w), cp.sum(cp.exp(cp.square(w))) <= 8),
    "powers of absolute values": (cp.norm1(w), cp.sum(cp.power(cp.abs(w), 1.5)) <= 2),
    "a fixed coordinate": (cp.norm1(w), cp.log_sum_exp(A @ w) <= 2, w[0] == 0.1, w[1] >= 0.2, w[1] <= 0.2),
}


@pytest.mark.parametrize("name", CASES)
def test_proxes_are_cvxpys(name):
    expression, *constraints = CASES[name]
    program = strat.compile(expression + 0 * w[0], constraints=constraints)
    oracle = pickle.loads(pickle.dumps(program.bind()))
    assert "interior point method" in str(program).splitlines()[-1]
    steps = np.array([1e-3, 1.0, 1e2, 1.0, 0.3])
    v = {x.name(): 2 * rng.normal(size=(5, *x.shape)) for x in program.variables}
    for part in v.values():
        part[3] *= 0.01
        part[4] *= 20
    z = oracle.prox(v, steps)
    reference = prox_by_cvxpy(program.expression, program.variables, v, steps, constraints)
    assert_same_prox(oracle, program.variables, z, v, steps, reference, constraints, 1e-6, 1e-9)


def block(name):
    expression, *constraints = CASES[name]
    prox = strat.compile(expression + 0 * w[0], constraints=constraints).bind().flat.prox
    (found,) = [part for part in getattr(prox, "blocks", [prox]) if isinstance(part, InteriorProx)]
    return found


@pytest.mark.parametrize("name", ["a sum of two", "logistic", "logarithms", "cubes", "a quadratic form"])
def test_nothing_is_left_to_other_methods_and_the_conditions_of_optimality_hold(name):
    prox, v, t = block(name), 2 * rng.normal(size=(200, 5)), 10.0 ** rng.uniform(-2, 1, size=200)
    z, open_ = solve(v, t, prox.problem, prox.inside)
    assert not open_.any()
    # No point of the set lies beyond the plane through z that the gradient is normal to.
    if name in ("a sum of two", "cubes"):
        assert max(g.value(np.clip(z, *prox.problem.box)).max() for g in prox.problem.levels) <= 1e-9
        assert np.einsum("ki,kji->kj", v - z, z[None] - z[:, None]).max() <= 1e-7
    for k in (0, 77):
        np.testing.assert_allclose(prox(v[k : k + 1], t[k])[0], prox(v, t)[k], atol=1e-9)


def test_a_step_whose_constraints_are_slack_goes_nowhere():
    program = strat.compile(0 * w[0], constraints=[cp.log_sum_exp(w) <= 20, cp.sum(cp.exp(w)) <= 1e4])
    v = rng.normal(size=(6, 5))
    np.testing.assert_allclose(program.bind().prox({"w": v}, 1.0)["w"], v, atol=1e-9)


def test_without_compiled_loops_the_result_is_the_same(monkeypatch):
    prox, v = block("squares and a log-sum-exp"), 2 * rng.normal(size=(20, 5))
    z = prox(v, 1.0)
    monkeypatch.setattr(kernels, "compiled", None)
    np.testing.assert_allclose(prox(v, 1.0), z, atol=1e-9)


def test_strata_that_are_not_solved_go_to_another_method(monkeypatch):
    prox, v = block("a sum of two"), 2 * rng.normal(size=(4, 5))
    z = prox(v, 1.0)
    monkeypatch.setattr("strat.oracles.prox_interior.ROUNDS", (2, 2))
    np.testing.assert_allclose(prox(v, 1.0), z, atol=1e-6)


def test_sets_without_a_point_inside_and_empty_sets():
    flat = strat.compile(cp.norm1(w), constraints=[cp.sum_squares(A @ w) + cp.log_sum_exp(w) <= np.log(5)])
    assert np.isfinite(flat.bind().prox({"w": rng.normal(size=(2, 5))}, 1.0)["w"]).all()
    empty = strat.compile(0 * w[0], constraints=[cp.log_sum_exp(w) + cp.log_sum_exp(-w) <= 3, w[0] >= 5])
    with pytest.raises(strat.NoOracleError, match="constraints can be satisfied"):
        empty.bind().prox({"w": np.zeros((2, 5))}, 1.0)


@pytest.mark.skipif(kernels.compiled is None, reason="no compiled loops")
def test_compiled_factors_solve_and_count_lost_directions_as_stiff():
    rows, weights = rng.normal(size=(7, 5)), rng.random((3, 7))
    vectors, factors = rng.normal(size=(3, 2, 5)), rng.random((3, 2))
    start = np.tile(np.eye(5), (3, 1, 1))
    H = kernels.compiled.normal_matrices(rows, weights, vectors, factors, start.copy())
    wanted = start + np.einsum("km,mi,mj->kij", weights, rows, rows)
    wanted += np.einsum("kr,kri,krj->kij", factors, vectors, vectors)
    np.testing.assert_allclose(np.triu(H), np.triu(wanted), rtol=1e-12, atol=1e-12)
    b = rng.normal(size=(3, 5))
    x = kernels.compiled.cholesky_solve(kernels.compiled.cholesky(H), b.copy())
    np.testing.assert_allclose(np.einsum("kij,kj->ki", wanted, x), b, atol=1e-12)
    singular = np.array([[[1.0, 1.0], [1.0, 1.0]]])
    x = kernels.compiled.cholesky_solve(kernels.compiled.cholesky(singular), np.array([[1.0, 1.0]]))
    np.testing.assert_array_equal(x, [[1.0, 0.0]])
