"""Proxes of piecewise linear and quadratic functions by active sets: optimal to rounding, and as Newton steps find them."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from against_cvxpy import prox_by_cvxpy
from scipy.optimize import lsq_linear

import strat
from strat.errors import NoOracleError
from strat.oracles import kernels
from strat.oracles.design import ConstantDesign
from strat.oracles.prox_active_set import ActiveSets
from strat.oracles.quadratic import Quadratic
from strat.oracles.row_functions import PiecewiseRows
from strat.oracles.row_terms import RowTerm, row_norms

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="nothing was compiled at installation")
K = 6


def rows(rng, n, m):
    """Piecewise linear rows, some of them equalities and inequalities which a point satisfies, some twice."""
    A = rng.normal(size=(m, n)) * (rng.random((m, n)) < rng.choice([0.2, 1.0]))
    A = np.concatenate([np.round(A) if rng.random() < 0.4 else A, A[: m // 3]])
    m, J, inside = len(A), 3, rng.normal(size=n)
    knots = np.sort(np.round(rng.normal(size=(J, 1, m)), int(rng.integers(0, 4))), axis=0)
    slopes = np.sort(3 * rng.normal(size=(J + 1, 1, m)), axis=0)
    weight = rng.exponential(size=(rng.choice([1, K]), m)) * (rng.random(m) < 0.9)
    for i, kind in enumerate(rng.choice(3, size=m, p=[0.7, 0.15, 0.15])):
        if kind:
            weight[:, i], knots[:, 0, i] = 1.0, A[i] @ inside + (kind == 2) * np.arange(J)
            slopes[:, 0, i] = [-np.inf, 0.0, 0.0, np.inf]
    matrix = sp.coo_array(A)
    design = ConstantDesign(*matrix.coords, matrix.data, m, n)
    offset = rng.normal(size=(1, m))
    functions = PiecewiseRows(knots + offset[None], slopes, weight)
    return RowTerm(design, offset, functions, None, row_norms(design))


def not_optimal(z, v, t, term, quadratic):
    """How far the best multipliers are from balancing the gradient, and rows from their domains."""
    A, f, worst = term.design.dense_matrix(), term.functions, 0.0
    gradient = (z - v) + t[:, None] * quadratic.value_and_gradient(z)[1]
    for k in range(len(z)):
        u = A @ z[k] + term.offset[0]
        knots = f.knots[:, 0]
        slopes = f.slopes[:, k if f.slopes.shape[1] > 1 else 0]
        near = 1e-11 * (1.0 + np.abs(u) + np.abs(knots).max(axis=0))
        first, last = (knots < u - near).sum(axis=0), (knots <= u + near).sum(axis=0)
        low, high = (np.take_along_axis(slopes, place[None], 0)[0] for place in (first, last))
        assert not (low == np.inf).any() and not (high == -np.inf).any()  # in the domain
        held = low < high
        rest = gradient[k] + t[k] * (A[~held].T @ low[~held])
        if held.any():
            bounds = t[k] * low[held], t[k] * high[held]
            rest = lsq_linear(A[held].T, -rest, bounds, tol=1e-15, method="bvls").fun
        worst = max(worst, np.abs(rest).max() / (1.0 + np.abs(v[k]).max() + np.abs(z[k]).max()))
    return worst


@pytest.mark.parametrize("seed", range(24))
def test_the_solution_is_optimal(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 16)), int(rng.integers(1, 25))
    term, H = rows(rng, n, m), rng.normal(size=(rng.choice([1, K]), n, n))
    H = rng.choice([0.0, 0.1, 3.0]) * np.matmul(H, np.swapaxes(H, 1, 2))
    quadratic = Quadratic(np.zeros(K), rng.normal(size=(1, n)), H)
    v = rng.normal(size=(K, n)) * rng.choice([1.0, 10.0])
    for t in (np.full(K, 0.5), np.geomspace(1e-3, 1e3, K)):
        z, found = ActiveSets.of([term], quadratic)(v, t)
        assert found.all()
        assert not_optimal(z, v, t, term, quadratic) < 1e-9


n = 8
w, S = cp.Variable(n, name="w"), cp.Variable((3, 3), symmetric=True, name="S")
M = cp.Variable((2, 4), name="M")
D = np.random.default_rng(1).normal(size=(5, n))
SIMPLEX = [w >= 0, cp.sum(w) == 1]
FORMS = {
    "rows": (cp.norm1(D @ w) + cp.norm1(w), []),
    "order and shape": (0 * w[0], [cp.diff(w) >= 0, cp.diff(w, 2) >= 0]),
    "quadratic": (cp.quad_form(w, D.T @ D) + 0.2 * cp.norm1(w - 0.1), [*SIMPLEX, w <= 0.4]),
    "largest": (cp.max(D @ w) + 0.3 * cp.norm1(w), []),
    "largest and smallest": (cp.max(w) - cp.min(w), [w >= -0.5]),
    "largest size": (cp.norm_inf(D @ w - 1), SIMPLEX),
    "several tops": (cp.sum(cp.max(M, axis=1)) + cp.norm_inf(M[:, 0]), [cp.sum(M) == 1]),
    "sum of largest": (cp.sum_largest(D @ w, 2), SIMPLEX),
    "sum of largest sizes": (cp.sum_largest(cp.abs(w), 3) + cp.tv(w), [w <= 0.5]),
    "sum of all": (cp.sum_largest(w, n) + cp.tv(w), []),
    "part of an entry": (cp.sum_largest(w, 2.5), [cp.sum(w) == 1]),
    "Huber": (cp.sum(cp.huber(w, 0.3)) + cp.norm1(cp.diff(w, 2)), []),
    "Huber of rows": (0.2 * cp.sum(cp.huber(100 * D @ w, 0.3)) + cp.norm1(w), [cp.sum(w) == 0]),
    "squares above": (5 * cp.sum(cp.square(cp.pos(w - 0.2))), SIMPLEX),
    "squares on both sides": (
        0.7 * cp.sum(cp.square(cp.pos(w))) + 0.3 * cp.sum(cp.square(cp.neg(D @ w))),
        [cp.diff(w) >= 0],
    ),
    "squares of several pieces": (cp.sum(cp.square(cp.maximum(2 * w - 1, 0, -w))) + cp.norm_inf(w), []),
    "symmetric": (cp.norm1(S) + cp.abs(cp.trace(S)), [cp.sum(S, axis=1) == 1]),
}


@pytest.mark.parametrize("name", FORMS)
def test_declarations(monkeypatch, name):
    """As a CVXPY solve has it, and more exactly as Newton steps have it."""
    expression, constraints = FORMS[name]
    program = strat.compile(expression, constraints=constraints)
    prox = pickle.loads(pickle.dumps(program.bind().flat.prox))
    assert prox.kind == "dual method, exact"
    rng = np.random.default_rng(0)
    v = rng.normal(size=(K, prox.blocks[0].columns.size)) * rng.choice([0.3, 3.0], size=(K, 1))
    for t in (1.0, np.geomspace(1e-3, 1e3, K)):
        z = prox(v, t)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "compiled", None)
            other = prox(v, t)
        np.testing.assert_allclose(z, other, atol=2e-7 * (1 + np.abs(v).max()))
    (variable,) = program.variables
    point = {variable.name(): v[:2].reshape(2, *variable.shape)}
    theirs = prox_by_cvxpy(expression, [variable], point, np.ones(2), constraints)
    theirs = theirs[variable.name()].reshape(2, -1)
    np.testing.assert_allclose(prox(v[:2], 1.0), theirs, atol=2e-5 * (1 + np.abs(v).max()))


def test_active_sets_alone_find_them(monkeypatch):
    """No stratum is left to Newton steps."""
    for expression, constraints in FORMS.values():
        (block,) = strat.compile(expression, constraints=constraints).bind().flat.prox.blocks
        monkeypatch.setattr(block, "_solve", None)
        v = np.random.default_rng(2).normal(size=(40, len(block.columns)))
        for t in (1e-3, 1.0, 1e3):
            assert np.isfinite(block(v, t)).all()


def test_constraints_that_contradict_each_other():
    with pytest.raises(NoOracleError, match="could not be computed|not found"):
        prox = (
            strat.compile(cp.norm1(w), constraints=[cp.sum(w) >= 1, cp.sum(w) + w[0] <= 0, w >= 0])
            .bind()
            .flat.prox
        )
        prox(np.zeros((2, n)), 1.0)
