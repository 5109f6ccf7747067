"""The compiled augmented Lagrangian method: as in NumPy, stratum by stratum, and as a CVXPY solve has it."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import prox_by_cvxpy

import strat
from strat.errors import NoOracleError
from strat.oracles import kernels
from strat.oracles.augmented_lagrangian import AugmentedLagrangian
from strat.oracles.design import ConstantDesign
from strat.oracles.group_terms import GroupFunctions, GroupTerm
from strat.oracles.prox_augmented import AugmentedLagrangians
from strat.oracles.prox_rows import RowsProx
from strat.oracles.quadratic import Quadratic
from strat.oracles.row_functions import ScalarRows
from strat.oracles.row_terms import RowTerm
from strat.rules.exponentials import Entr, Exp, Log
from strat.rules.largest import Max, NormInf, SumLargest
from strat.rules.piecewise import Abs, Norm2
from strat.rules.power_norms import Pnorm
from strat.rules.powers import PowerRule, Square
from strat.rules.spectral import NuclearNorm, SpectralNorm

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="nothing was compiled at installation")

K, n = 6, 8
w, M = cp.Variable(n, name="w"), cp.Variable((3, 4), name="M")
S, P = cp.Variable((3, 3), symmetric=True, name="S"), cp.Variable((3, 3), PSD=True, name="P")
N, Q = cp.Variable((3, 3), NSD=True, name="N"), cp.Variable((3, 3), name="Q")
D = np.random.default_rng(1).normal(size=(5, n))
OFF = 1 - np.eye(3)
FORMS = {
    "length and rows": (cp.norm(w, 2) + cp.tv(w), [w >= 0, cp.sum(w) == 1]),
    "length of rows": (cp.norm(D @ w - 1, 2) + 0.3 * cp.norm1(w), []),
    "lengths that overlap": (cp.norm(w[:5], 2) + 2 * cp.norm(w[3:], 2), []),
    "lengths with a quadratic": (
        cp.sum(cp.norm(M, 2, axis=1)) + cp.sum_squares(cp.sum(M, axis=0)) + cp.norm(M, "fro"),
        [],
    ),
    "Huber's function beside": (cp.sum(cp.huber(w, 0.3)) + cp.norm(D @ w, 2), []),
    "squares beside": (cp.sum(cp.square(cp.pos(D @ w - 0.1))) + cp.norm(w, 2), [w >= -1]),
    "balls": (cp.norm1(w), [cp.norm(w, 2) <= 1, cp.sum_squares(D @ w - 1) <= 4, w[0] + w[1] <= 0.3]),
    "ellipsoid": (cp.norm1(w - 0.1), [cp.quad_form(w, D.T @ D + np.eye(n)) <= 0.7, cp.sum(w) == 1]),
    "second-order cone": (0.3 * cp.norm1(w), [cp.norm(D @ w) <= 0.2 * w[0] + 0.5]),
    "Lorentz cone": (0 * w[0], [cp.norm(w[1:], 2) <= w[0], cp.sum(w) == 1]),
    "positive semidefinite": (0.3 * cp.norm1(P), [cp.trace(P) == 1]),
    "negative semidefinite": (0.3 * cp.norm1(cp.multiply(OFF, N)), [cp.diag(N) == -1]),
    "between matrices": (0.1 * cp.norm1(S), [S >> 0.1 * np.eye(3), S << np.diag([1.0, 2.0, 3.0])]),
    "eigenvalues between": (
        0 * S[0, 0],
        [2 * cp.lambda_max(S) <= 2, cp.lambda_min(S) >= 0.2, cp.trace(S) == 2],
    ),
    "linear matrix inequality": (
        0.1 * cp.norm1(w),
        [
            np.eye(3)
            + sum(w[i] * (A + A.T) for i, A in enumerate(np.random.default_rng(5).normal(size=(n, 3, 3))))
            >> 0
        ],
    ),
    "matrix not symmetric": (0.1 * cp.norm1(Q), [Q >> 0.1 * np.eye(3)]),
    "largest eigenvalue": (cp.lambda_max(S) + 0.3 * cp.norm1(cp.multiply(OFF, S)), []),
    "log det": (-cp.log_det(P) + 0.3 * cp.norm1(cp.multiply(OFF, P)), []),
    "nuclear": (cp.normNuc(M) + 0.2 * cp.norm1(M), []),
    "nuclear, tall": (cp.normNuc(M.T) + 0.2 * cp.norm1(M), [cp.sum(M, axis=1) == 0]),
    "sizes to a power": (
        0.3 * cp.sum(cp.power(cp.abs(w - 0.1), 1.5)) + cp.quad_form(w, D.T @ D),
        [cp.sum(w) == 1],
    ),
    "powers": (cp.sum(cp.power(w, 3)) + cp.sum(cp.inv_pos(w)) - cp.sum(cp.sqrt(D @ w + 9)), [cp.sum(w) <= 4]),
    "entropy": (-cp.sum(cp.entr(w)) + 0.3 * cp.tv(w), [cp.sum(w) == 1]),
    "relative entropy": (
        cp.sum(cp.kl_div(w[:4], [0.1, 0.2, 0.3, 0.4])) + cp.sum(cp.rel_entr(w[4:], 0.2)),
        [cp.sum(w) == 1],
    ),
    "logarithms": (-0.1 * cp.sum(cp.log(w)), [cp.sum(w) == 1, w <= 0.3]),
    "p-norms": (cp.norm(w[:5], 3) + cp.norm(w[3:], 1.5) + 0.3 * cp.norm(D @ w, 4), []),
    "largest beside": (cp.norm(w, 2) + cp.max(D @ w) + cp.norm_inf(w), [w >= -0.5]),
    "sums of the largest beside": (
        cp.norm(w, 2) + cp.sum_largest(w, 3) + cp.sum_largest(cp.abs(D @ w), 2.5),
        [],
    ),
    "l1 balls": (
        cp.quad_form(w, D.T @ D),
        [w >= 0, cp.sum(w) == 1, cp.norm1(w - 0.125) <= 0.5, cp.tv(w) <= 0.4],
    ),
    "nuclear ball": (0.1 * cp.norm1(M), [cp.normNuc(M) <= 1.5]),
    "largest eigenvalues": (cp.lambda_sum_largest(S, 2) + 0.2 * cp.norm1(S), []),
    "spectral ball": (0.2 * cp.norm1(M), [cp.sigma_max(M) <= 1]),
    "trace of the inverse": (0.1 * cp.tr_inv(P) + 0.2 * cp.norm1(cp.multiply(OFF, P)), []),
    "largest singular value": (cp.sigma_max(M) + 0.2 * cp.norm1(M), []),
}


@pytest.mark.parametrize("name", FORMS)
def test_declarations(monkeypatch, name):
    expression, constraints = FORMS[name]
    program = strat.compile(expression, constraints=constraints)
    prox = pickle.loads(pickle.dumps(program.bind().flat.prox))
    (block,) = prox.blocks
    assert isinstance(block._compiled, AugmentedLagrangians)
    rng = np.random.default_rng(0)
    v = rng.normal(size=(K, len(block.columns))) * rng.choice([0.3, 3.0], size=(K, 1))
    for t in (1.0, np.geomspace(1e-3, 1e3, K)):
        with monkeypatch.context() as patch:
            patch.setattr(block, "_solve", None)  # nothing is left to NumPy
            z = prox(v, t)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "compiled", None)
            other = prox(v, t)
        np.testing.assert_allclose(z, other, atol=2e-8 * (1 + np.abs(v).max()))
    (variable,) = program.variables
    point = {variable.name(): v[:2].reshape(2, *variable.shape)}
    theirs = prox_by_cvxpy(expression, [variable], point, np.ones(2), constraints)
    theirs = theirs[variable.name()].reshape(2, -1)
    np.testing.assert_allclose(prox(v[:2], 1.0), theirs, atol=5e-5 * (1 + np.abs(v).max()))


FUNCTIONS = {
    "length": (Norm2(), (5,), {}),
    "ball": (Norm2(), (5,), {"radius": 0.7}),
    "ball of squares": (Square(), (5,), {"radius": 0.7}),
    "l1 ball": (Abs(), (5,), {"radius": 0.7}),
    "largest": (Max(), (5,), {}),
    "largest of sizes": (Max(), (5,), {"absolute": True}),
    "largest size": (NormInf(), (5,), {}),
    "sum of largest": (SumLargest(2), (5,), {}),
    "sum of largest sizes": (SumLargest(3.5), (5,), {"absolute": True}),
    "sum of all": (SumLargest(5), (5,), {}),
    "3-norm": (Pnorm(3.0), (5,), {}),
    "4-norm": (Pnorm(4.0), (5,), {}),
    "1.5-norm": (Pnorm(1.5), (5,), {}),
    "1.2-norm": (Pnorm(1.2), (5,), {}),
    "nuclear": (NuclearNorm(), (2, 3), {}),
    "spectral": (SpectralNorm(), (3, 2), {}),
    "spectral ball": (SpectralNorm(), (2, 3), {"radius": 0.7}),
    "nuclear ball": (NuclearNorm(), (3, 2), {"radius": 0.7}),
    "1.5": (PowerRule(1.5), None, {"absolute": True}),
    "2.5": (PowerRule(2.5), None, {"absolute": True}),
    "cube": (PowerRule(3.0), None, {}),
    "fourth": (PowerRule(4.0), None, {}),
    "root": (PowerRule(0.5), None, {}),
    "inverse": (PowerRule(-1.0), None, {}),
    "entropy": (Entr(), None, {}),
    "logarithm": (Log(), None, {}),
    "exponential": (Exp(), None, {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_are_those_of_the_rules(name):
    """Alone on the coordinates, in other units, the whole method is the function's own prox."""
    rule, shape, more = FUNCTIONS[name]
    n, rng = 5 if shape is None else int(np.prod(shape)), np.random.default_rng(0)
    design = ConstantDesign(np.arange(n), np.arange(n), np.full(n, 3.0), n, n)
    sign = -1.0 if isinstance(rule, (Entr, Log)) or getattr(rule, "p", 1) == 0.5 else 1.0
    if shape is None:
        low = -np.inf if isinstance(rule, Exp) or more or rule.name == "PowerRule" and rule.even else 0.0
        ends = np.full((1, n), low), np.full((1, n), np.inf)
        functions = ScalarRows(rule, (), np.full((1, n), 0.8 * sign), *ends, **more)
        term = RowTerm(design, np.zeros((1, n)), functions, None, np.full((1, n), 3.0))
    else:
        functions = GroupFunctions(rule, 1, shape, None if "radius" in more else np.full((1, 1), 0.8), **more)
        term = GroupTerm(design, np.zeros((1, n)), functions, np.full((1, n), 3.0))
    method = AugmentedLagrangians.of([term], None)
    for size in (0.1, 1.0, 10.0):
        v, t = size * rng.normal(size=(50, n)), rng.choice([0.01, 0.3, 10.0], size=50)
        z, found = method(v, t)
        assert found.all()
        expected = functions.point(3.0 * v, np.repeat(9.0 * t[:, None], n, axis=1)) / 3.0
        np.testing.assert_allclose(z, expected, atol=1e-9 * (1.0 + size))


def group(rule, groups, shape, weight, seed):
    A = np.random.default_rng(seed).normal(size=(groups * int(np.prod(shape)), 6))
    row, column = np.indices(A.shape)
    design = ConstantDesign(row.reshape(-1), column.reshape(-1), A.reshape(-1), *A.shape)
    norms = np.linalg.norm(A.reshape(groups, -1, 6), 2, axis=(1, 2))
    offset = np.random.default_rng(seed + 1).normal(size=(1, len(A)))
    functions = GroupFunctions(rule, groups, shape, weight)
    return GroupTerm(design, offset, functions, np.repeat(norms, len(A) // groups)[None])


@pytest.mark.parametrize("common", [True, False])
def test_weights_and_matrices_of_each_stratum(common):
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=(1 if common else K, 2))
    weight[0, 1] = 0.0
    terms = [group(Norm2(), 2, (4,), weight, 1), group(NuclearNorm(), 1, (3, 2), weight[:, :1], 3)]
    H = rng.normal(size=(1 if common else K, 6, 3))
    quadratic = Quadratic(np.zeros(K), rng.normal(size=(1, 6)), H @ np.swapaxes(H, 1, 2))
    v, t = rng.normal(size=(K, 6)), np.full(K, 0.7) if common else np.geomspace(0.01, 10, K)
    z, found = AugmentedLagrangians.of(terms, quadratic)(v, t)
    other, open_ = RowsProx(np.arange(6), terms, quadratic)._solve(v, t, terms, quadratic)
    assert found.all() and not open_.any()
    np.testing.assert_allclose(z, other, atol=1e-9)


def test_constraints_that_contradict_each_other():
    expression, constraints = cp.norm1(w), [cp.norm(w, 2) <= 1, cp.sum(w) >= 10, cp.tv(w) <= 5]
    with pytest.raises(NoOracleError, match="could not be computed"):
        strat.compile(expression, constraints=constraints).bind().flat.prox(np.zeros((2, n)), 1.0)


def test_what_it_leaves_goes_to_newton_steps_for_all(monkeypatch):
    (block,) = strat.compile(*[FORMS["balls"][0]], constraints=FORMS["balls"][1]).bind().flat.prox.blocks
    v = np.random.default_rng(3).normal(size=(K, n))
    expected, sizes = block(v, 1.0), []
    found = np.arange(K) % 2 == 0
    monkeypatch.setattr(block, "_compiled", lambda v, t: (expected + 5.0 * ~found[:, None], found.copy()))
    approach = AugmentedLagrangian.approach
    monkeypatch.setattr(
        AugmentedLagrangian, "approach", lambda self, *a: (sizes.append(len(self.v)), approach(self, *a))
    )
    np.testing.assert_allclose(block(v, 1.0), expected, atol=1e-9)
    assert sizes == [K // 2]
