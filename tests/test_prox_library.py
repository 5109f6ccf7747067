"""The library of proxes: every form and its shifted, scaled and combined versions against CVXPY."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, directions, prox_by_cvxpy

import strat
from strat.oracles.prox_base import _root

w, W = cp.Variable(6, name="w"), cp.Variable((3, 4), name="W")
S, P = cp.Variable((3, 3), symmetric=True, name="S"), cp.Variable((3, 3), PSD=True, name="P")
n5, u, y = cp.Variable(5, nonneg=True, name="n5"), cp.Variable(3, name="u"), cp.Variable(name="y")
RNG = np.random.default_rng(7)
W0 = np.array([0.5, -0.2, 0.0, 1.0, 0.3, -0.7])
D = RNG.normal(size=(4, 6))
C = np.array([0.5, 0.0, 1.0, 2.0, 0.0, 0.3])
G = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])
LINEAR, RIDGE = 0.3 * cp.sum(w), 0.4 * cp.sum_squares(w - W0)

CLOSED = {
    "l1": (cp.norm1(w),),
    "l1 weighted": (cp.norm1(cp.multiply(C, w)),),
    "l1 shifted": (1.5 * cp.norm1(2 * w - W0) + LINEAR,),
    "elastic net": (cp.norm1(w) + RIDGE + LINEAR,),
    "l1 of a part": (cp.norm1(w[:-1]),),
    "pinball": (cp.sum(cp.maximum(0.9 * (w - W0), -0.1 * (w - W0))),),
    "two kinks": (cp.norm1(w) + cp.norm1(w - 1) + cp.sum(cp.pos(w - 0.3)),),
    "group": (0.7 * cp.norm(w, 2),),
    "group shifted": (cp.norm(2 * w - W0, 2) + LINEAR,),
    "group with a ridge": (cp.norm(w, 2) + 0.3 * cp.sum_squares(w),),
    "groups by slices": (np.sqrt(3) * cp.norm(w[:3]) + cp.norm(w[3:]),),
    "groups of unequal size": (cp.norm(w[:2]) + 2 * cp.norm(w[2:]),),
    "sparse group": (cp.norm(w[:3]) + cp.norm(w[3:]) + 0.3 * cp.norm1(cp.multiply(C, w)),),
    "rows": (cp.mixed_norm(W, 2, 1),),
    "columns": (cp.mixed_norm(W.T, 2, 1),),
    "sparse rows, nonnegative": (cp.sum(cp.norm(W, 2, axis=1)) + 0.2 * cp.norm1(W), W >= 0),
    "positive semidefinite": (0.3 * cp.trace(S), S >> 0),
    "positive semidefinite by its class": (0.3 * cp.trace(S), cp.PSD(S)),
    "negative semidefinite": (0.3 * cp.trace(S), 0 >> 2 * S),
    "largest": (0.8 * cp.norm_inf(w),),
    "largest shifted": (0.8 * cp.norm_inf(w - W0) + LINEAR + RIDGE,),
    "largest and l1": (cp.norm_inf(w) + 0.2 * cp.norm1(cp.multiply(C, w)), w >= 0),
    "largest by rows": (cp.sum(cp.norm(W, "inf", axis=1)),),
    "mixed norm inf": (cp.mixed_norm(W, "inf", 1),),
    "maximum": (cp.max(w),),
    "maximum, scaled and negated": (cp.max(-2 * w + 1) + LINEAR,),
    "maximum in a box": (cp.max(w), w >= -1, w <= 0.7),
    "minimum": (-cp.min(w) + 0.1 * cp.norm1(w),),
    "sum of largest": (cp.sum_largest(w, 3),),
    "sum of largest, fractional": (cp.sum_largest(w, 2.5) + LINEAR,),
    "sum of largest sizes": (0.6 * cp.sum_largest(cp.abs(w), 2),),
    "sum of largest sizes, nonnegative": (cp.sum_largest(cp.abs(w), 3) + 0.1 * cp.norm1(w), w >= 0),
    "l1 ball": (0, cp.norm(w, 1) <= 0.9),
    "l1 ball shifted": (LINEAR, cp.norm1(2 * w - W0) <= 0.9),
    "l1 ball, nonnegative": (LINEAR, cp.norm1(w) <= 0.9, w >= 0),
    "l2 ball": (RIDGE, cp.norm(w - W0, 2) <= 0.9),
    "l2 ball and l1": (0.2 * cp.norm1(w), cp.norm(w, 2) <= 0.9),
    "square ball": (LINEAR, cp.sum_squares(w) <= 0.5),
    "largest ball": (LINEAR, cp.norm_inf(w - W0) <= 0.4),
    "balls by rows": (0, cp.norm(W, 2, axis=1) <= 0.6),
    "simplex": (0, w >= 0, cp.sum(w) == 1),
    "simplex, weighted": (LINEAR + 0.2 * cp.sum_squares(w), w >= 0, np.arange(1, 7) @ w == 2),
    "box and plane": (RIDGE, w >= -1, w <= 0.5, cp.sum(w) - w[0] - w[0] == 0.3),
    "plane alone, box in part": (0, w[:2] >= 0, cp.sum(w) == -1),
    "half space": (LINEAR, cp.sum(w) <= 0.2),
    "corner simplex": (0, w >= 0, cp.sum(w) <= 1),
    "equations": (0, D[:2] @ w == np.array([0.3, -0.1])),
    "equations and a quadratic": (cp.sum_squares(D @ w - 1) + LINEAR, cp.sum(w) == 1),
    "redundant equations": (0, cp.sum(w) == 1, 2 * cp.sum(w) == 2),
    "row sums": (0, cp.sum(W, axis=1) == 0),
    "increasing": (0, cp.diff(w) >= 0),
    "increasing by slices": (RIDGE, w[1:] >= w[:-1]),
    "decreasing in a box": (0, cp.diff(w) <= 0, w >= -0.5, w <= 0.6),
    "increasing with steps": (0, cp.diff(w) >= 0.1),
    "total variation": (cp.tv(w),),
    "total variation, weighted": (cp.norm1(cp.multiply(C[:5], cp.diff(w))) + LINEAR,),
    "total variation with a ridge": (0.5 * cp.tv(w) + cp.sum_squares(w[:2]),),
    "total variation of columns": (cp.norm1(cp.diff(W, axis=0)),),
    "fused lasso": (0.4 * cp.norm1(w) + 0.7 * cp.tv(w),),
    "fused lasso in a box": (0.4 * cp.norm1(w) + 0.7 * cp.tv(w), w >= 0),
    "nearly monotone": (cp.sum(cp.pos(-cp.diff(w))) + 0.1 * cp.tv(w),),
    "differences from a plan": (cp.norm1(cp.diff(w) - 0.2),),
    "smooth differences": (cp.sum_squares(cp.diff(w, k=2)),),
    "quadratic form": (cp.quad_form(u - W0[:3], cp.psd_wrap(G)),),
    "quadratic forms by columns": (sum(cp.quad_form(W[:, j], np.eye(3) + G) for j in range(4)),),
    "nuclear": (cp.normNuc(W),),
    "nuclear shifted": (cp.normNuc(2 * W - 0.3) + 0.1 * cp.sum_squares(W),),
    "spectral": (cp.sigma_max(W),),
    "spectral ball": (0, cp.sigma_max(W) <= 0.8),
    "nuclear ball": (0, cp.normNuc(W) <= 1.2),
    "Frobenius": (cp.norm(W, "fro"),),
    "largest eigenvalue": (cp.lambda_max(S),),
    "largest eigenvalue shifted": (cp.lambda_max(2 * S + G) + 0.1 * cp.trace(S),),
    "largest eigenvalue, semidefinite": (cp.lambda_max(P),),
    "log det": (-0.7 * cp.log_det(S) + cp.trace(G @ S),),
    "log det scaled": (-cp.log_det(2 * S + 0.5 * np.eye(3)),),
    "trace of the inverse": (cp.tr_inv(S),),
    "semidefinite": (cp.trace(G @ P),),
    "symmetric, off the diagonal": (cp.norm1(cp.multiply(1 - np.eye(3), S)),),
    "symmetric, whole": (cp.norm(S, "fro") + 0.1 * cp.norm1(S),),
    "symmetric, a quadratic that is not": (cp.sum_squares(S @ W0[:3] - 1),),
    "symmetric, nuclear": (cp.normNuc(S),),
    "huber": (cp.sum(cp.huber(2 * w - W0, 0.6)),),
    "huber in a box": (cp.sum(cp.huber(w, 0.6)) + RIDGE, w >= 0),
    "3-norm": (0.7 * cp.norm(w, 3),),
    "3-norm and l1 of a shift": (cp.norm(2 * w - W0, 1.5) + RIDGE + LINEAR,),
    "norms of rows": (cp.norm(W[0], 4) + cp.norm(W[1], 1.2) + 0.2 * cp.norm1(W), W >= 0),
    "ball of the 3-norm": (cp.norm1(w), cp.norm(w, 3) <= 0.8),
    "log": (-0.7 * cp.sum(cp.log(2 * w + 1)) + LINEAR,),
    "entropy": (-0.7 * cp.sum(cp.entr(w)),),
    "exponential": (cp.sum(cp.exp(w)) + RIDGE,),
    "several blocks": (cp.norm1(w) + cp.norm(W, "fro") + cp.max(u) + cp.abs(y - 1) + 0 * cp.sum(n5), n5 <= 1),
    "norm of nothing": (0 * cp.norm(w, 2) + 0 * cp.norm_inf(u),),
}
#: Proxes of these are exact as well, by Newton steps or a cone program.
OPEN = "two kinks", "largest eigenvalue shifted", "log det scaled", "trace of the inverse", "symmetric, whole"
OPEN += "symmetric, nuclear", "3-norm", "3-norm and l1 of a shift", "norms of rows", "ball of the 3-norm"
# Constraints on one coordinate at a time: bounds, where they are piecewise linear.
ONE = {
    "a scalar within bounds": (0, cp.abs(y) <= 0.2),
    "shifted and scaled": (cp.norm1(w), cp.abs(2 * w - 1) <= 0.5),
    "within a bound that is concave": (RIDGE, -3 * cp.abs(w) >= -1),
    "kinks of two slopes": (LINEAR, cp.maximum(w, -2 * w) <= 0.3),
    "positive part": (0, cp.pos(w - 0.1) <= 0.2),
    "one of several": (cp.norm(w[1:], 2), cp.abs(w[0]) <= 0.1),
    "a fixed scalar": (0, y == 1),
    "fixed entries": (cp.norm1(w), 2 * w[:2] == np.array([1.0, -1.0])),
    "fixed within bounds": (RIDGE, w[0] == 1, w >= 0),
    "fixed and tied": (0, w[0] == 1, cp.sum(w) == 2),
    "symmetric, one entry": (0, cp.abs(S[0, 1]) <= 0.1),
    "symmetric, fixed": (0, S[0, 0] == 1),
    "squares": (0, cp.square(w - 1) <= 0.2),
    "norm of one": (0, cp.norm(w[:1]) <= 0.1, cp.norm_inf(w[1:2]) <= 0.2),
    "exponential of one": (0, cp.exp(w) <= 1.1, cp.log(u + 9) >= 2.2),
}
COMPOUND = {
    "l1 of a map": (cp.norm1(D @ w),),
    "l1 of a map and squares": (cp.norm1(D @ w - 0.3) + cp.sum_squares(D @ w) + 0.2 * cp.norm1(w),),
    "lasso": (0.5 * cp.norm1(w) + cp.sum_squares(D @ w - 1),),
    "cycle": (cp.tv(w) + cp.abs(w[0] - w[5]),),
    "trend filter": (cp.norm1(cp.diff(w, k=2)),),
    "fused with weights": (cp.tv(w) + cp.norm1(cp.multiply(C, w)),),
    "total variation on a simplex": (0.3 * cp.tv(w), w >= 0, cp.sum(w) == 1),
    "l1 on a simplex plane": (cp.norm1(cp.multiply(C, w)), cp.sum(w) == 1),
    "polyhedron": (0.2 * cp.norm1(w), D @ w <= 0.3, w >= -1),
    "convex sequence": (0, cp.diff(w, k=2) >= 0),
    "ridge in a box": (cp.sum_squares(D @ w - 1), w >= 0),
    "huber of a map": (cp.sum(cp.huber(D @ w, 0.5)), w >= 0),
    "barrier of a map": (-cp.sum(cp.log(D[:2] @ w + 1)),),
    "pinball of differences and a bound": (cp.sum(cp.maximum(cp.diff(w), -0.2 * cp.diff(w))), w[0] == 0.5),
}
STEPS = np.array([0.1, 1.0, 10.0, 1.0, 0.3, 10.0, 2.0])
K = len(STEPS)


def point(variables, seed=3):
    """Random points, ties, kinks and 0."""
    v = {name: 2 * part for name, part in directions(variables, K, np.random.default_rng(seed)).items()}
    for part in v.values():
        part[1], part[3], part[4], part[6] = 0.5, 0.0, np.round(part[4]), -1.0
    return v


def checked(expression, constraints, word, near=1e-6, exact=1e-9):
    program = strat.compile(expression, constraints=constraints)
    oracle = pickle.loads(pickle.dumps(program.bind()))
    assert word in str(program).splitlines()[-1], str(program).splitlines()[-1]
    v = point(program.variables)
    z = oracle.prox(v, STEPS)
    reference = prox_by_cvxpy(program.expression, program.variables, v, STEPS, constraints)
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, constraints, near, exact)
    one = oracle.prox({name: part[2:3] for name, part in v.items()}, 10.0)
    for name, part in one.items():  # K = 1, one step for all
        np.testing.assert_allclose(part[0], z[name][2], rtol=exact, atol=100 * exact)
    return oracle, v, z


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name):
    expression, *constraints = CLOSED[name]
    checked(expression, constraints, " have no joint closed form" if name in OPEN else "prox  closed form")


@pytest.mark.parametrize("name", ONE)
def test_constraints_on_one_coordinate(name):
    expression, *constraints = ONE[name]
    checked(expression, constraints, "")


@pytest.mark.parametrize("solver", [None, strat.NewtonCG(), strat.MAPG(), strat.ADMM()])
def test_fits_keep_constraints_on_one_coordinate(solver):
    target = cp.Parameter(6, name="target")
    rng = np.random.default_rng(3)
    for constraints in ([cp.abs(w) <= 0.3], [w[0] == 1, w[1:] >= 0]):
        base = strat.BaseModel(cp.sum_squares(target - w), constraints=constraints, data=(target,))
        model = strat.lrsm(base, strat.graphs.path(3), solver=solver)
        model.fit(rng.normal(size=(12, 6)), strata=np.arange(12) % 3)
        assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), rel=1e-6)


@pytest.mark.parametrize("name", COMPOUND)
def test_compounds_are_cone_programs(name):
    expression, *constraints = COMPOUND[name]
    checked(expression, constraints, "have no joint closed form", 1e-5, 1e-7)


def test_few_of_many_pieces_are_named():
    v = cp.Variable(8)
    text = str(strat.compile(sum(cp.maximum(v[i], v[j], 0) for i in range(8) for j in range(i))))
    assert text.count("; Maximum") == 3 and "24 more functions" in text


@pytest.mark.parametrize(
    "name", ["total variation", "fused lasso", "increasing", "simplex", "sum of largest"]
)
def test_many_strata_are_single_ones(name):
    expression, *constraints = CLOSED[name]
    oracle = strat.compile(expression, constraints=constraints).bind()
    rng = np.random.default_rng(5)
    v, t = np.round(3 * rng.normal(size=(300, 6)), 1), rng.uniform(0.1, 3, size=300)
    z = oracle.prox(v, t)
    for k in range(0, 300, 13):
        np.testing.assert_allclose(oracle.prox(v[k : k + 1], t[k])[0], z[k], rtol=1e-9, atol=1e-9)
    # A prox is firmly nonexpansive.
    a, b = oracle.prox(v[:150], 1.0), oracle.prox(v[150:], 1.0)
    assert np.all(((a - b) ** 2).sum(axis=1) <= ((a - b) * (v[:150] - v[150:])).sum(axis=1) + 1e-8)


def test_long_chains():
    oracle = strat.compile(cp.tv(cp.Variable(200, name="x"))).bind()
    v = np.cumsum(np.random.default_rng(0).normal(size=(5, 200)), axis=1)
    z = oracle.prox(v, 2.0)
    # The dual path: running sums of v − z stay within the step, and touch it where z jumps.
    sums = np.cumsum(v - z, axis=1)
    assert np.abs(sums[:, -1]).max() < 1e-10
    assert np.all(np.abs(sums[:, :-1]) <= 2.0 + 1e-10)
    jump = np.diff(z, axis=1)
    np.testing.assert_allclose(sums[:, :-1][jump > 1e-9], -2.0, atol=1e-9)
    np.testing.assert_allclose(sums[:, :-1][jump < -1e-9], 2.0, atol=1e-9)


def test_contradictions_are_said():
    for constraints in (
        [w >= 0, cp.sum(w) == -1],
        [cp.sum(w) == 0, 2 * cp.sum(w) == 1],
        [cp.norm(w, 2) <= -1],
        [w >= 1, w <= 0],
        [w[0] == 1, w <= 0],
        [w[0] == 1, w[0] == 2],
        [cp.abs(w) <= -1],
    ):
        oracle = strat.compile(0 * cp.sum(w), constraints=constraints).bind()
        with pytest.raises(strat.NoOracleError, match="constraints can be satisfied"):
            oracle.prox(np.zeros((1, 6)), 1.0)


# Losses on records.
x, target = cp.Parameter(3, name="x"), cp.Parameter(name="t")
sign, count = cp.Parameter(name="s"), cp.Parameter(name="c")
theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
q = cp.Variable(3, nonneg=True, name="q")
r = target - x @ theta - b
LOSSES = {
    "logistic": cp.logistic(-sign * (x @ theta + b)),
    "poisson": cp.exp(x @ theta + b) - count * (x @ theta + b),
    "absolute and squares": cp.abs(r) + 0.2 * cp.square(r) + 0.1 * cp.norm1(theta),
    "hinge and logistic": cp.pos(1 - sign * b) + cp.logistic(x @ theta),
    "nonnegative": cp.abs(target - x @ q),
    "weights": cp.abs(count) * 0 + cp.huber(r, 0.3),
}
INDEX = np.repeat(np.arange(7), [6, 1, 0, 9, 3, 20, 2])


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_records(name):
    loss, rng, N = LOSSES[name], np.random.default_rng(11), len(INDEX)
    values = {"x": rng.normal(size=(N, 3)), "t": rng.normal(size=N), "s": rng.choice([-1.0, 1.0], size=N)}
    values["c"] = rng.poisson(1.0, size=N).astype(float)
    data = tuple(p for p in (x, target, sign, count) if p.id in {p.id for p in loss.parameters()})
    arrays = [values[p.name()] for p in data]
    program = strat.compile(loss, data=data)
    oracle, v = program.bind(*arrays, strata=INDEX, strata_order=range(7)), point(program.variables)
    z, again = oracle.prox(v, STEPS), pickle.loads(pickle.dumps(oracle)).prox(v, STEPS)
    reference = prox_by_cvxpy(loss, program.variables, v, STEPS, (), data, arrays, INDEX)
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, (), 1e-5, 1e-7)
    for key, part in z.items():
        np.testing.assert_allclose(part[2], np.maximum(v[key][2], 0) if key == "q" else v[key][2], atol=1e-7)
        np.testing.assert_allclose(again[key], part, rtol=1e-12, atol=1e-12)


def test_newton_is_at_rounding():
    rng = np.random.default_rng(3)
    X, s = rng.normal(size=(500, 3)) * 30, rng.choice([-1.0, 1.0], 500)
    for loss, data, arrays in (
        (LOSSES["logistic"], (x, sign), (X, s)),
        (LOSSES["poisson"], (x, count), (X / 30, rng.poisson(2.0, 500).astype(float))),
    ):
        oracle = strat.compile(loss, data=data).bind(*arrays, strata=np.arange(500) % 10)
        v = {"theta": rng.normal(size=(10, 3)), "b": rng.normal(size=10)}
        for t in (1e-3, 1.0, 1e3):
            z = oracle.prox(v, t)
            g = oracle.gradient(z)
            for key in z:
                assert np.abs(t * g[key] + z[key] - v[key]).max() <= 1e-9 * (1 + t)


def test_newton_steps_below_rounding_end_the_search():
    calls, (v, t) = [], np.array([[-8.0], [1e-6]])

    def residual(z):
        calls.append(z)
        return 1 / (0.5 - z) - 1 / (0.5 + z) + (z - v) / t, (0.5 - z) ** -2 + (0.5 + z) ** -2 + 1 / t

    with np.errstate(all="ignore"):
        z = _root(residual, v, t, np.array([-0.5]), np.array([0.5]))
    assert abs(z + 0.5 - t / 7.5) < 1e-12 and len(calls) < 45


def test_exponentials_far_out():
    oracle = strat.compile(cp.exp(x @ theta), data=(x,)).bind(np.array([[1.0, 2.0, 0.5]]))
    v = np.array([[300.0, 200.0, 50.0]])
    z = oracle.prox(v, 1.0)
    a = np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(z, v - np.exp(z @ a)[:, None] * a, rtol=1e-9)
