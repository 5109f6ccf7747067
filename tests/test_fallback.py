"""The prox by a solver: for everything without a closed form, as accurate as a solver is, and announced."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import strat
from strat.compiler.fallback import FallbackProx

W = cp.Variable(4, name="w")
S = cp.Variable((3, 3), PSD=True, name="S")
M = cp.Variable((2, 3), name="M")
P = cp.Variable(name="p", bounds=[-1, 2])
LAM = cp.Parameter(nonneg=True, value=0.7, name="lam")

CASES = [
    (cp.norm(W, 2) + cp.norm_inf(W), ()),
    (LAM * cp.tv(W) + cp.norm(W, 2), (W >= 0, cp.sum(W) == 1)),
    (cp.norm1(cp.multiply(1 - np.eye(3), S)) - cp.log_det(S), ()),
    (cp.norm(M, "nuc") + cp.norm1(M), ()),
    (cp.norm1(W), (W[0] + W[1] <= 0.3, cp.norm(W, 2) <= 1)),
    (cp.abs(P) + cp.norm(cp.hstack([P, W]), 2), ()),
]


@pytest.mark.parametrize(("expression", "constraints"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_it_is_the_solution_that_cvxpy_finds(expression, constraints):
    program = strat.compile(expression, constraints=constraints)
    prox = pickle.loads(pickle.dumps(FallbackProx(program, program.values())))
    rng = np.random.default_rng(0)
    v = {x.name(): rng.normal(size=(3, *x.shape)) for x in program.variables}
    for t in (0.1, np.array([0.3, 1.0, 4.0])):
        z = program.layout.unpack(prox(program.layout.pack(v), t))
        steps = np.broadcast_to(t, 3)
        for k in range(3):
            near = sum(cp.sum_squares(x - v[x.name()][k]) for x in program.variables) / (2 * steps[k])
            problem = cp.Problem(cp.Minimize(expression + near), list(constraints))
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
            for x in program.variables:
                assert np.allclose(
                    x.value, z[x.name()][k], atol=2e-5 if "log_det" in str(expression) else 1e-6
                )


def test_it_serves_a_fit():
    y = cp.Parameter(4, name="y")
    base = strat.BaseModel(cp.sum_squares(y - W), cp.norm(W, 3), [W >= 0, cp.sum(W) == 1], data=(y,))
    assert "regularizer's prox  Clarabel" in str(base)
    Y = np.random.default_rng(1).normal(size=(12, 4))
    model = strat.lrsm(base, strat.graphs.path(3)).fit(Y, strata=np.arange(12) % 3)
    assert np.allclose(model.theta_["w"].sum(axis=1), 1.0, atol=1e-7)
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), rel=1e-6)


def test_constraints_that_cannot_hold_are_said_to_be_the_trouble():
    program = strat.compile(cp.norm1(W), constraints=[W[0] + W[1] <= -1, W[0] + W[1] >= 1])
    with pytest.raises(strat.NoOracleError, match="constraints can be satisfied"):
        FallbackProx(program, {})(np.zeros((1, 4)), 1.0)
