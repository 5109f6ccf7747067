"""The prox by a solver: for everything without a closed form, as accurate as a solver is, and announced."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.compiler.fallback import FallbackProx

W = cp.Variable(4, name="w")
S = cp.Variable((3, 3), PSD=True, name="S")
M = cp.Variable((2, 3), name="M")
P = cp.Variable(name="p", bounds=[-1, 2])
LAM = cp.Parameter(nonneg=True, value=0.7, name="lam")


def soft_maximum(*functions):
    """No closed form and no dual method serve it."""
    return cp.log_sum_exp(cp.hstack(functions))


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


def test_strata_and_steps_do_not_wear_it_out():
    """One object for all: the scaling of one stratum's numbers, or of one step's, is no good for another's."""
    w = cp.Variable(20, name="w")
    for expression, constraints in (
        (0 * w[0], [cp.norm(w[1:], 2) <= w[0], cp.sum(w) == 1]),
        (0.1 * cp.sum(cp.exp(w)) + 0.3 * cp.tv(w), []),
    ):
        program = strat.compile(expression, constraints=constraints)
        exact, prox = program.bind().flat.prox, FallbackProx(program, program.values())
        v = np.random.default_rng(0).normal(size=(3, 20))
        for t in (1e-3, 1e3):
            np.testing.assert_allclose(prox(v, t), exact(v, t), atol=1e-7)


def test_it_serves_a_fit():
    y = cp.Parameter(4, name="y")
    top = soft_maximum(cp.norm(W, 2), cp.norm1(W) / 3)
    base = strat.BaseModel(cp.sum_squares(y - W), top, [W >= 0, cp.sum(W) == 1], data=(y,))
    assert "regularizer's prox  Clarabel" in str(base)
    Y = np.random.default_rng(1).normal(size=(12, 4))
    model = strat.lrsm(base, strat.graphs.path(3)).fit(Y, strata=np.arange(12) % 3)
    assert np.allclose(model.theta_["w"].sum(axis=1), 1.0, atol=1e-7)
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), rel=1e-6)


u, y = cp.Variable(3, name="u"), cp.Variable(name="y")


#: Pieces without a closed form on w, and others on u and y that keep theirs.
PARTLY = [
    (soft_maximum(cp.norm(W, 2), cp.norm1(W)) + cp.norm1(u) - cp.log(y), (), {"w"}),
    (cp.norm1(W) + cp.norm1(u), (soft_maximum(cp.norm(u, 2), cp.norm1(u)) <= 2,), {"u"}),
    (soft_maximum(cp.norm(W[1:], 3), 0) + cp.norm1(W) + cp.square(y), (u >= 0, cp.sum(u) == 1), {"w"}),
    (cp.tv(W) + cp.abs(y - 1), (soft_maximum(cp.norm(u[:2], 2), cp.norm1(u[:2])) <= 2, u[2] <= 0), {"u"}),
    (soft_maximum(cp.norm(M, "fro"), cp.sum(cp.abs(M))) - cp.log_det(S) + cp.norm1(W), (), {"M"}),
]


@pytest.mark.parametrize(
    ("expression", "constraints", "tied"), PARTLY, ids=[str(i) for i in range(len(PARTLY))]
)
def test_only_what_is_tied_goes_to_the_solver(expression, constraints, tied):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)
        program = strat.compile(expression, constraints=constraints)
    oracle = pickle.loads(pickle.dumps(program.bind()))
    solved = [block.columns for block in oracle.flat.prox.blocks if getattr(block, "costly", False)]
    own = {
        name for name, s in program.layout.slices.items() if np.isin(np.arange(s.start, s.stop), solved).any()
    }
    assert len(solved) == 1
    assert own == tied
    assert "closed form" in str(program).splitlines()[-1]
    rng, steps = np.random.default_rng(0), np.array([0.1, 1.0, 10.0])
    v = {x.name(): rng.normal(size=(3, *x.shape)) for x in program.variables}
    if "S" in v:
        v["S"] = 0.5 * (v["S"] + np.swapaxes(v["S"], 1, 2))
    z = oracle.prox(v, steps)
    reference = prox_by_cvxpy(program.expression, program.variables, v, steps, constraints)
    assert_same_prox(oracle, program.variables, z, v, steps, reference, constraints, 1e-6, 1e-7)


def test_a_stratum_that_the_dual_method_does_not_solve_is_solved_by_the_solver():
    program = strat.compile(cp.norm(W, 2) + cp.norm_inf(W) + cp.norm1(u))
    oracle = program.bind()
    v = {"w": np.random.default_rng(0).normal(size=(4, 4)), "u": np.ones((4, 3))}
    whole = oracle.prox(v, 0.3)
    (block,) = (block for block in oracle.flat.prox.blocks if hasattr(block, "rescue"))
    solve = block._solve
    block._solve = lambda *args: (np.nan * solve(*args)[0], np.ones(4, dtype=bool))
    rescued = oracle.prox(v, 0.3)
    np.testing.assert_allclose(rescued["w"], whole["w"], atol=1e-7)


def test_degenerate_points_are_refined():
    """Where a constraint holds without a force, the error of one solve is the root of its gap."""
    y, q = cp.Variable(name="y"), cp.Variable(3, nonneg=True, name="q")
    program = strat.compile(cp.kl_div(q @ [1.0, 0.5, 2.0], q[0] + y + 0.3))
    v = {"q": np.zeros((2, 3)), "y": np.array([-0.3, 1.0])}
    first = FallbackProx(program, {})(program.layout.pack(v), 1.0)
    theirs = prox_by_cvxpy(program.expression, program.variables, v, np.ones(2))
    assert_same_prox(program.bind(), program.variables, program.layout.unpack(first), v, np.ones(2), theirs)


def test_constraints_that_cannot_hold_are_said_to_be_the_trouble():
    program = strat.compile(cp.norm1(W), constraints=[W[0] + W[1] <= -1, W[0] + W[1] >= 1])
    with pytest.raises(strat.NoOracleError, match="constraints can be satisfied"):
        FallbackProx(program, {})(np.zeros((1, 4)), 1.0)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_running_sums_are_written_by_cvxpy_too(axis):
    sums = cp.cumsum(M, axis=axis)
    v = np.random.default_rng(0).normal(size=(2, 6))
    for expression, limits in (
        (cp.norm1(sums), []),
        (cp.norm1(M), [sums <= 0.3]),
        (cp.quad_over_lin(sums, 2.0) + cp.norm1(M), []),
    ):
        program = strat.compile(expression, constraints=limits)
        z = FallbackProx(program, program.values())(v, 1.0)
        np.testing.assert_allclose(z, program.bind().flat.prox(v, 1.0), atol=1e-7)


def test_what_cvxpy_cannot_read_or_write_is_an_error_of_the_package():
    assert strat.compile(cp.square(cp.cumsum(P))).bind().value(np.array([3.0])) == pytest.approx(9.0)
    with pytest.raises(strat.DeclarationError, match="cannot be read"):
        strat.compile(cp.sum(cp.cumsum(W, axis=P)))
    program = strat.compile(cp.norm1(W), constraints=[cp.sum(cp.imag(W)) >= 1])
    with pytest.raises(strat.NoOracleError, match=r"CVXPY could not write it .*np\.tril"):
        program.bind().prox(np.zeros((1, 4)), 1.0)
