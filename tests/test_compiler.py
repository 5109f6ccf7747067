"""The compiler: spellings, affine operations, records, weights, statistics, compositions, smoothing, pickling."""

import copy
import pickle
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from affine_expressions import Declaration
from against_cvxpy import assert_derivatives, values_at

import strat
from strat.compiler.base_model import BaseModel
from strat.compiler.program import Program
from strat.oracles.base import Quadratic, hessian_blocks
from strat.records.strata import Strata

N, K = 40, 4
theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
B, T = cp.Variable((3, 4), name="B"), cp.Variable((2, 2), PSD=True, name="T")
q = cp.Variable(3, nonneg=True, name="q")
p, a = cp.Variable(name="p"), cp.Variable(name="a")
x, y, s = cp.Parameter(3, name="x"), cp.Parameter(name="y"), cp.Parameter(name="s")
c, w, v = cp.Parameter(4, name="c"), cp.Parameter(2, name="w"), cp.Parameter((2, 2), symmetric=True, name="v")
M = cp.Parameter(nonneg=True, value=0.7, name="M")
tau = cp.Parameter(nonneg=True, value=0.8, name="tau")

rng = np.random.default_rng(0)
Z = rng.integers(0, K, size=N)
Z[Z == 2] = 1  # one stratum without records
Z[Z == 3] = 1
Z[5] = 3  # one stratum with one record
OUTER = np.einsum("ni,nj->nij", rng.normal(size=(2 * N, 2)), np.ones((2 * N, 2)))[:N]
POINTS = {
    "theta": rng.normal(size=(K, 3)),
    "b": rng.normal(size=K),
    "B": rng.normal(size=(K, 3, 4)),
    "q": rng.uniform(0.5, 2, size=(K, 3)),
    "p": rng.uniform(0.1, 0.9, size=K),
    "a": rng.uniform(0.5, 2, size=K),
    "T": np.eye(2) + 0.1 * np.ones((K, 2, 2)),
}
REAL = {
    "x": rng.normal(size=(N, 3)),
    "y": rng.normal(size=N),
    "s": rng.uniform(0.5, 2, size=N),
    "c": np.eye(4)[rng.integers(0, 4, size=N)],
    "w": rng.normal(size=(N, 2)),
    "v": np.einsum("ni,nj->nij", OUTER[:, :, 0], OUTER[:, :, 0]),
}
SIGNS = REAL | {"y": np.where(REAL["y"] > 0, 1.0, -1.0)}
ZERO_ONE = REAL | {"y": (REAL["y"] > 0).astype(float)}
COUNTS = REAL | {"y": rng.poisson(2.0, size=N).astype(float), "x": rng.uniform(0.2, 1, size=(N, 3))}


def data_of(expression):
    return tuple(parameter for parameter in expression.parameters() if parameter.name() in REAL)


def bound(expression, data=REAL, **options):
    """The oracle of an expression bound to the records, and a point for it."""
    used = data_of(expression)
    options = {"strata": Z, "strata_order": range(K)} | options
    oracle = strat.compile(expression, data=used).bind(*[data[p.name()] for p in used], **options)
    return oracle, {variable.name(): POINTS[variable.name()] for variable in expression.variables()}


def at_cvxpy(expression, point, data=REAL, index=Z):
    used = data_of(expression)
    return values_at(expression, expression.variables(), point, used, [data[p.name()] for p in used], index)


z = x @ theta + b
r = y - z
m = cp.multiply(y, z)
scores = x @ B + np.array([0.1, 0.0, -0.2, 0.3])
#: Records, and spellings of one loss that are legal for them.
SPELLINGS = {
    "least squares": (REAL, [
        cp.sum_squares(r), cp.sum_squares(z - y), r**2, cp.square(r), cp.power(r, 2), cp.norm(r, 2) ** 2,
        cp.norm2(r) ** 2, cp.abs(r) ** 2, cp.norm(cp.hstack([r, 0]), 2) ** 2,
        cp.quad_form(cp.hstack([r]), np.eye(1)), cp.quad_over_lin(r, 1), 2 * cp.quad_over_lin(r, 2),
        cp.huber(r, 1e6), cp.square(-r), 4 * cp.square(r / 2), cp.square(y) + cp.square(z) - 2 * y * z,
        cp.square(z) - 2 * cp.multiply(y, z) + y**2, sum(cp.square(e) for e in [r]),
        cp.sum(cp.hstack([cp.square(r), 0])), cp.sum_squares(sum(x[j] * theta[j] for j in range(3)) + b - y),
        cp.sum_squares(cp.sum(cp.multiply(x, theta)) + b - y), cp.sum_squares(theta.T @ x + b - y),
        cp.sum_squares(cp.hstack([x, 1]) @ cp.hstack([theta, b]) - y),
        cp.sum_squares(cp.reshape(x, (1, 3), order="C") @ theta + b - y),
        cp.matrix_frac(cp.hstack([r]), np.eye(1)),
    ]),
    "weighted least squares": (REAL, [
        s * cp.square(r), cp.multiply(s, cp.square(r)), cp.sum_squares(cp.multiply(cp.sqrt(s), r)),
        cp.hstack([s]) @ cp.hstack([cp.square(r)]), cp.quad_over_lin(r, 1 / s),
        cp.sum_squares(r) / cp.inv_pos(s), cp.sum_squares(r / cp.power(s, -0.5)),
    ]),
    "logistic, signs": (SIGNS, [
        cp.logistic(-m), cp.logistic(-y * z), cp.log_sum_exp(cp.hstack([0, -m])),
        cp.log_sum_exp(cp.vstack([0, -y * z])), cp.logistic(m) - m, cp.log_sum_exp(cp.hstack([m, 0])) - m,
        cp.logistic(z) - (y + 1) / 2 * z, (1 + y) / 2 * cp.logistic(-z) + (1 - y) / 2 * cp.logistic(z),
        cp.logistic(-(y * x) @ theta - y * b),
    ]),
    "logistic, 0 and 1": (ZERO_ONE, [
        cp.logistic(z) - y * z, cp.logistic(z) - cp.multiply(y, z),
        y * cp.logistic(-z) + (1 - y) * cp.logistic(z), cp.logistic(-(2 * y - 1) * z),
        cp.log_sum_exp(cp.hstack([0, z])) - y * z,
    ]),
    "softmax": (REAL, [
        cp.log_sum_exp(scores) - scores @ c, cp.log_sum_exp(scores) - cp.sum(cp.multiply(c, scores)),
        cp.log_sum_exp(B.T @ x + np.array([0.1, 0.0, -0.2, 0.3])) - c @ scores,
        cp.sum(cp.log_sum_exp(cp.reshape(scores, (1, 4), order="C"), axis=1)) - c @ scores,
        cp.log_sum_exp(scores - c @ scores),
    ]),
    "huber": (REAL, [
        cp.huber(r, M), cp.huber(z - y, 0.7), cp.huber(cp.abs(r), M), cp.huber(cp.norm(r), 0.7),
        0.49 * cp.huber(r / 0.7, 1), cp.sum(cp.huber(cp.hstack([r, 0]), M)), M * cp.huber(r, M) / 0.7,
    ]),
    "poisson": (COUNTS, [
        cp.exp(z) - y * z, cp.exp(z) - cp.multiply(y, z), cp.sum(cp.exp(cp.hstack([z]))) - y * z,
    ]),
    "poisson with offset": (COUNTS, [cp.exp(z + s) - y * (z + s), cp.exp(s) * cp.exp(z) - y * z - y * s]),
    "gamma": (COUNTS, [z + cp.multiply(y, cp.exp(-z)), z + y * cp.exp(-x @ theta - b)]),
    "poisson rates": (COUNTS, [
        cp.kl_div(y, x @ q) - cp.kl_div(y, 1) + 1, x @ q - y * cp.log(x @ q),
        cp.rel_entr(y, x @ q) + x @ q + cp.entr(y),
    ]),
    "bernoulli rate": (ZERO_ONE, [
        -y * cp.log(p) - (1 - y) * cp.log(1 - p), -(y * cp.log(p) + (1 - y) * cp.log(1 - p)),
        -cp.log(p) * y - cp.log1p(-p) * (1 - y), cp.kl_div(y, p) + cp.kl_div(1 - y, 1 - p),
        cp.rel_entr(y, p) + cp.rel_entr(1 - y, 1 - p),
    ]),
    "poisson rate": (COUNTS, [a - y * cp.log(a), cp.kl_div(y, a) - cp.kl_div(y, 1) + 1]),
    "squared hinge": (SIGNS, [cp.square(cp.pos(1 - m)), cp.maximum(0, 1 - m) ** 2, cp.pos(1 - y * z) ** 2]),
    "3/2 power": (REAL, [cp.power(cp.abs(r), 1.5), cp.abs(r) ** 1.5, cp.norm(r) ** 1.5]),
    "expectile": (REAL, [
        0.8 * cp.square(cp.pos(r)) + 0.2 * cp.square(cp.neg(r)),
        tau * cp.square(cp.pos(r)) + (1 - tau) * cp.square(cp.pos(-r)),
        tau * cp.maximum(r, 0) ** 2 + (1 - tau) * cp.maximum(-r, 0) ** 2,
    ]),
    "log cosh": (REAL, [cp.logistic(2 * r) - r - np.log(2), cp.log_sum_exp(cp.hstack([r, -r])) - np.log(2)]),
    "exponential": (SIGNS, [cp.exp(-m), cp.exp(-cp.multiply(y, z))]),
    "rows": (REAL, [
        cp.huber(cp.norm(x @ B - c, 2), 0.7),
        cp.sum(cp.huber(cp.norm(cp.reshape(x @ B - c, (1, 4), order="C"), 2, axis=1), 0.7)),
    ]),
    "matrix squares": (REAL, [
        cp.norm(x @ B - c, 2) ** 2, cp.sum_squares(x @ B - c),
        cp.norm(cp.reshape(x @ B - c, (2, 2), order="F"), "fro") ** 2, cp.quad_form(x @ B - c, np.eye(4)),
        cp.sum(cp.square(B.T @ x - c)),
    ]),
    "gaussian": (REAL, [
        cp.trace(v @ T) - cp.log_det(T), cp.sum(cp.multiply(v, T)) - cp.log_det(T),
        cp.vec(v, order="F") @ cp.vec(T, order="F") - cp.log_det(T),
    ]),
    "gaussian of vectors": (REAL, [
        cp.sum_squares(T @ w - 1) - cp.log_det(T), cp.norm(w @ T - 1) ** 2 - cp.log_det(T),
    ]),
    "scale": (REAL, [
        0.5 * cp.sum_squares(y * a - x @ theta) - cp.log(a),
        0.5 * (y * a - x @ theta) ** 2 + cp.log(1) - cp.log(a),
    ]),
    "masked": (REAL, [
        s * cp.square(r) + (2 - s) * cp.square(cp.pos(r)), cp.square(cp.pos(r)) * (2 - s) + s * r**2,
    ]),
    "mixed powers": (REAL, [
        cp.power(theta[0], 4) * s + x @ theta, s * cp.square(cp.square(theta[0])) + theta @ x,
    ]),
}  # fmt: skip
CASES = [(name, i) for name, (_, spellings) in SPELLINGS.items() for i in range(len(spellings))]


@pytest.mark.parametrize(("name", "i"), CASES)
def test_spellings_have_the_same_numbers(name, i):
    data, spellings = SPELLINGS[name]
    oracle, point = bound(spellings[i], data)
    first, _ = bound(spellings[0], data)
    value, gradient = oracle.value_and_gradient(point)
    np.testing.assert_allclose(value, at_cvxpy(spellings[i], point, data), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(oracle.value(point), value, rtol=1e-12, atol=1e-12)
    wanted, slope = first.value_and_gradient(point)
    np.testing.assert_allclose(value, wanted, rtol=1e-11, atol=1e-11)
    for key in point:
        np.testing.assert_allclose(gradient[key], slope[key], rtol=1e-10, atol=1e-10)
    assert value[2] == 0 and not any(gradient[key][2].any() for key in point)
    assert_derivatives(oracle, oracle.program.variables, point, rng, second=False)
    if "T" in point:
        np.testing.assert_allclose(gradient["T"], np.swapaxes(gradient["T"], 1, 2), rtol=0, atol=1e-12)


#: Smooth compositions that no rule knows as a whole.
COMPOSITE = [
    cp.logistic(cp.square(z)), cp.exp(cp.log_sum_exp(0.3 * scores)),
    cp.quad_over_lin(cp.hstack([r, theta]), a), s * cp.quad_over_lin(z, a) + cp.inv_pos(a),
    cp.power(cp.norm(x @ B - c), 3), cp.huber(cp.norm(cp.hstack([r, theta]), 2), 0.5),
    cp.log_sum_exp(cp.hstack([cp.square(r), cp.logistic(z), 0])), cp.square(cp.logistic(0.1 * z) + 1),
    cp.exp(cp.square(0.3 * r)) + s * cp.square(cp.square(b)), cp.power(1 + cp.square(r), 1.5),
    cp.square(cp.pos(cp.square(z) - s)), cp.sum_squares(cp.pos(cp.abs(r) - 0.3)),
    -s * cp.sqrt(x @ x + a) + a * s, cp.logistic(cp.log_sum_exp(scores)) - cp.entr(a) + s * cp.kl_div(a, 2),
    -cp.log(cp.sqrt(a) + s) + cp.square(r), cp.quad_form(cp.hstack([r, b]), v) + cp.square(r),
    -cp.geo_mean(cp.hstack([a, a + s])) + cp.square(a),
]  # fmt: skip


@pytest.mark.parametrize("expression", COMPOSITE, ids=[str(i) for i in range(len(COMPOSITE))])
def test_compositions_have_values_gradients_and_hessian_products(expression):
    oracle, point = bound(expression)
    np.testing.assert_allclose(oracle.value(point), at_cvxpy(expression, point), rtol=1e-9, atol=1e-9)
    assert_derivatives(oracle, oracle.program.variables, point, rng)


@pytest.mark.parametrize("seed", range(120))
def test_random_affine_expressions_are_cvxpys(seed):
    made = Declaration(seed)
    expression, _ = made.affine(steps=2 + seed % 10)
    program = Program(expression, made.data, (), made.variables, "predict")
    found = program.evaluation(made.arrays, Strata([*range(made.K)], made.z))(program.layout.pack(made.theta))
    expected = made.cvxpy_values(expression)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


LOSSES = {
    "logistic": (cp.logistic(-m), SIGNS),
    "least squares": (cp.square(r), REAL),
    "bernoulli": (-y * cp.log(p) - (1 - y) * cp.log(1 - p), ZERO_ONE),
    "softmax": (cp.log_sum_exp(scores) - scores @ c, REAL),
    "gaussian": (cp.trace(v @ T) - cp.log_det(T), REAL),
    "data-free part": (cp.square(r) + cp.sum_squares(theta) - cp.log(a) + s * a, REAL),
}


@pytest.mark.parametrize("name", LOSSES)
def test_records_count_by_weight_in_any_order_and_form_one_stratum_without_strata(name):
    loss, data = LOSSES[name]
    count = np.ones(N, dtype=int)
    count[[0, 3]], count[[1, 5]] = 2, 0
    weighted, point = bound(loss, data, sample_weight=count)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(N), count))
    copied, _ = bound(loss, {key: value[rows] for key, value in data.items()}, strata=Z[rows])
    np.testing.assert_allclose(weighted.value(point), copied.value(point), rtol=1e-12)
    for key, part in weighted.gradient(point).items():
        np.testing.assert_allclose(part, copied.gradient(point)[key], rtol=1e-12, atol=1e-12)
    whole, _ = bound(loss, data, strata=None, strata_order=None)
    point = {key: value[:1] for key, value in point.items()}
    np.testing.assert_allclose(whole.value(point), at_cvxpy(loss, point, data, 0 * Z), rtol=1e-10)


def test_an_empty_strata_may_be_outside_the_domain():
    oracle, _ = bound(-y * cp.log(p) - (1 - y) * cp.log(1 - p), ZERO_ONE)
    value = oracle.value(np.array([0.5, 0.5, -3.0, 0.5]))
    assert value[2] == 0 and np.isfinite(value).all()
    assert np.isinf(oracle.value(np.array([-0.1, 0.5, 0.5, 0.5]))[0])


def test_dicts_give_dicts_and_arrays_arrays():
    oracle = strat.compile(cp.square(y - x @ theta), data=(x, y)).bind(REAL["x"], REAL["y"], strata=Z)
    array = np.zeros((3, 3))
    assert isinstance(oracle.gradient(array), np.ndarray)
    assert set(oracle.gradient({"theta": array})) == {"theta"}
    assert isinstance(oracle.prox({"theta": array}, 1.0), dict)
    assert oracle.hvp(array, array).shape == (3, 3)
    np.testing.assert_array_equal(array, 0.0)


def test_statistics_are_the_rows():
    """With many records a stratum squares become Gram matrices; the sum stays the same."""
    many, k = 4000, 3
    X, target, z0 = rng.normal(size=(many, 3)), rng.normal(size=many), rng.integers(0, k, size=many)
    loss = s * cp.sum_squares(x @ theta + b - y) + cp.square(b)
    scale = rng.uniform(0.5, 2, size=many)
    oracle = strat.compile(loss, data=(x, y, s)).bind(X, target, scale, strata=z0)
    assert any(isinstance(part, Quadratic) and part.H is not None for part in oracle.flat.parts)
    point = {"theta": rng.normal(size=(k, 3)), "b": rng.normal(size=k)}
    residual = (X * point["theta"][z0]).sum(axis=1) + point["b"][z0] - target
    expected = np.bincount(z0, scale * residual**2 + point["b"][z0] ** 2, k)
    np.testing.assert_allclose(oracle.value(point), expected, rtol=1e-12)
    slope = np.bincount(z0, 2 * scale * residual + 2 * point["b"][z0], k)
    np.testing.assert_allclose(oracle.gradient(point)["b"], slope, rtol=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_gram_values_stay_accurate_where_residuals_are_tiny(size):
    many = 1000
    X, truth = rng.normal(size=(many, 3)), size * rng.normal(size=3)
    target = X @ truth + 1e-3 * rng.normal(size=many)
    oracle = strat.compile(cp.square(y - x @ theta), data=(x, y)).bind(X, target)
    assert any(isinstance(part, Quadratic) and part.H is not None for part in oracle.flat.parts)
    exact = ((target - X @ truth) ** 2).sum()
    # The rounding of targets of size 1e6 is 1e-7 of residuals of 1e-3.
    np.testing.assert_allclose(oracle.value(truth[None]), [exact], rtol=1e-6 if size > 1 else 1e-12)
    far = truth + 1.0
    np.testing.assert_allclose(oracle.value(far[None]), [((target - X @ far) ** 2).sum()], rtol=1e-10)


@pytest.mark.parametrize("size", [1e150, 1e154, 1e300, -1e300, 1.7e308])
def test_sums_that_overflow_are_infinite_and_never_nan(size):
    X, point = rng.normal(size=(50, 3)), {"theta": size * np.array([[1.0, -1.0, 0.5]]), "b": np.array([size])}
    for loss in (
        cp.square(y - x @ theta - b),
        cp.sum_squares(cp.hstack([x @ theta - y, 2 * b, theta - x])) - y * b,
        cp.logistic(x @ theta + b) - y * (x @ theta),
    ):
        oracle = strat.compile(loss, data=(x, y)).bind(X, np.ones(50))
        with np.errstate(all="ignore"):
            values = oracle.value(point), oracle.value_and_gradient(point)[0]
        assert not np.isnan(values).any() and (np.ravel(values) > -np.inf).all()


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.coo_array])
@pytest.mark.parametrize(
    "loss", [cp.logistic(-y * (x @ theta)), cp.square(r), cp.huber(y - (2 * x) @ theta + x[0])]
)
def test_sparse_records_are_dense_ones(kind, loss):
    X = REAL["x"] * (rng.random((N, 3)) < 0.4)
    dense, point = bound(loss, SIGNS | {"x": X})
    sparse, _ = bound(loss, SIGNS | {"x": kind(X)})
    np.testing.assert_allclose(sparse.value(point), dense.value(point), rtol=1e-12)
    one, other = sparse.gradient(point), dense.gradient(point)
    for key in point:
        np.testing.assert_allclose(one[key], other[key], rtol=1e-11, atol=1e-12)
    blocks = [hessian_blocks(oracle.flat, oracle.program.layout.pack(point)) for oracle in (sparse, dense)]
    np.testing.assert_allclose(*blocks, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spelling", [cp.square, lambda e: cp.logistic(-y * e)])
def test_sparse_records_stay_sparse(spelling):
    many, width = 100_000, 1000
    big, wide = cp.Variable(width, name="big"), cp.Parameter(width, name="wide")
    X = sp.random_array((many, width), density=1e-3, format="csr", rng=np.random.default_rng(0))
    target, z0 = np.where(np.arange(many) % 2, 1.0, -1.0), np.arange(many) % 10
    program = strat.compile(spelling(wide @ big) + y * big[0], data=(wide, y))
    tracemalloc.start()
    value, gradient = program.bind(X, target, strata=z0).value_and_gradient(np.zeros((10, width)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e8
    assert value.shape == (10,) and gradient.shape == (10, width)


def test_hyperparameters_are_read_at_bind():
    lam = cp.Parameter(nonneg=True, name="lam")
    program = strat.compile(lam * cp.norm1(theta))
    lam.value = 2.0
    oracle = program.bind()
    lam.value = 5.0
    np.testing.assert_allclose(oracle.value(np.ones((1, 3))), [6.0])
    np.testing.assert_allclose(program.bind().value(np.ones((1, 3))), [15.0])
    np.testing.assert_allclose(program.bind_regularizer({"lam": 1.0}).value(np.ones((1, 3))), [3.0])


def test_a_models_own_thresholds_and_exponents_are_those_of_its_cone_programs():
    """They are no arguments of their atoms, and a model's values go before the Parameters' own."""
    threshold, order = cp.Parameter(nonneg=True, value=1.0, name="t"), cp.Parameter(value=1.5, name="order")
    Y = 3 * rng.normal(size=12)

    def declared(t, p):
        penalty = cp.power(cp.norm1(theta) + cp.norm(theta), p) + cp.huber(b, t)
        return BaseModel(cp.abs(y - theta[0] - b) + cp.huber(y - cp.sum(theta), t), penalty, data=(y,))

    own = strat.separate(declared(threshold, order)).set_params(base__t=0.2, base__order=2.5)
    fixed = strat.separate(declared(0.2, 2.5)).fit(Y, strata=[0] * 12)
    assert own.fit(Y, strata=[0] * 12).result_.objective == pytest.approx(fixed.result_.objective, rel=1e-7)
    assert own.to_cvxpy().solve(cp.CLARABEL) == pytest.approx(fixed.result_.objective, rel=1e-6)


def smoothed(loss, width, data=REAL):
    used, base = data_of(loss), BaseModel(loss, data=data_of(loss), smoothing=width)
    oracle = base.loss_program.bind(*[data[p.name()] for p in used], strata=Z, strata_order=range(K))
    return *oracle.value_and_gradient({key: POINTS[key] for key in base.variables}), oracle


PINBALL = [
    cp.maximum(0.8 * r, (0.8 - 1) * r), 0.8 * cp.pos(r) + 0.2 * cp.pos(-r), 0.8 * cp.pos(r) + 0.2 * cp.neg(r),
    0.5 * cp.abs(r) + (0.8 - 0.5) * r, cp.pos(r) - 0.2 * r, 0.5 * cp.abs(z - y) + 0.3 * (y - z),
    cp.maximum(tau * r, (tau - 1) * r), tau * cp.pos(r) + (1 - tau) * cp.pos(-r),
    cp.pos(y - z) - (1 - tau) * (y - z), cp.sum(cp.maximum(0.8 * cp.hstack([r]), -0.2 * cp.hstack([r]))),
    0.8 * cp.maximum(r, 0) - 0.2 * cp.minimum(r, 0), 0.5 * cp.norm1(r) + 0.3 * r,
    0.5 * cp.norm(r, 2) + 0.3 * y - 0.3 * (x @ theta) - 0.3 * b, cp.max(cp.hstack([0.8 * r, -0.2 * r])),
    -cp.min(cp.hstack([-0.8 * r, 0.2 * r])),
]  # fmt: skip


def envelope(u, low, high, d):
    """Design: u²/(2δ) for δ·low <= u <= δ·high, high·u − high²δ/2 above, low·u − low²δ/2 below."""
    below, above = low * u - low**2 * d / 2, high * u - high**2 * d / 2
    return np.where(u > high * d, above, np.where(u < low * d, below, u**2 / (2 * d)))


PREDICTED = (REAL["x"] * POINTS["theta"][Z]).sum(axis=1) + POINTS["b"][Z]
RESIDUAL, SLACK = REAL["y"] - PREDICTED, 1 - SIGNS["y"] * PREDICTED
#: The argument of a kink, its slopes, and the losses that have it.
ENVELOPES = [
    *[(RESIDUAL, -0.2, 0.8, loss, REAL) for loss in PINBALL],
    (RESIDUAL, -1, 1, cp.abs(r), REAL),
    *[(SLACK, 0, 1, e, SIGNS)
      for e in (cp.pos(1 - m), cp.maximum(0, 1 - y * z), 0.5 * (cp.abs(1 - m) + 1 - m))],
    *[(np.abs(RESIDUAL) - 0.3, 0, 1, e, REAL)
      for e in (cp.pos(cp.abs(r) - 0.3), cp.pos(r - 0.3) + cp.pos(-r - 0.3))],
]  # fmt: skip


@pytest.mark.parametrize("width", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("i", range(len(ENVELOPES)))
def test_every_spelling_of_a_kink_has_its_envelope(i, width):
    u, low, high, loss, data = ENVELOPES[i]
    value, gradient, oracle = smoothed(loss, width, data)
    expected = np.bincount(Z, envelope(u, low, high, width), K)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    assert oracle.flat.has("hessian_operator")
    if u is RESIDUAL:
        slope = -np.bincount(Z, np.clip(u / width, low, high), K)
        np.testing.assert_allclose(gradient["b"], slope, rtol=1e-11, atol=1e-12)
        # The weight multiplies the envelope.
        value, _, _ = smoothed(s * loss, width)
        expected = np.bincount(Z, REAL["s"] * envelope(u, low, high, width), K)
        np.testing.assert_allclose(value, expected, rtol=1e-11, atol=1e-12)


def test_norms_of_records_are_smoothed_by_their_envelopes():
    delta, u = 0.05, c - x @ B
    X, C, z = rng.normal(size=(60, 3)), rng.normal(size=(60, 4)), np.arange(60) % 2
    C[:20] = X[:20] @ np.ones((3, 4))  # many residuals of 0 at the solution
    graph, spelled = strat.graphs.path(2), cp.huber(cp.norm(u, 2), delta) / (2 * delta)
    smooth = strat.lrsm(BaseModel(cp.norm(u, 2), data=(x, c), smoothing=delta), graph).fit(X, C, strata=z)
    wanted = strat.lrsm(BaseModel(spelled, data=(x, c)), graph).fit(X, C, strata=z).result_.objective
    assert smooth.result_.smoothed_objective == pytest.approx(wanted, rel=1e-9)
    several = 2 * cp.norm(u, 2) + cp.norm(x[0] * u[:2], 2) + 0.3 * cp.norm(B[0], 2) + cp.abs(u[0] - 1)
    model = strat.lrsm(BaseModel(several, data=(x, c), smoothing=delta), graph).fit(X, C, strata=z)
    optimum = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert optimum - 1e-6 <= model.result_.objective <= optimum + model.result_.smoothing_bound + 1e-6
    assert 0 < model.result_.smoothing_bound < 0.1 * optimum
    zero = strat.lrsm(smooth.base, graph).fit(X, 0 * C, strata=z, init="zero").result_  # at the kink itself
    assert zero.status == "converged" and zero.objective == 0


def test_smoothing_leaves_smooth_losses_alone():
    for loss in (cp.square(r), cp.logistic(-m), cp.square(cp.pos(1 - m))):
        value, _, _ = smoothed(loss, 0.5, SIGNS)
        np.testing.assert_allclose(value, bound(loss, SIGNS)[0].value({k: POINTS[k] for k in ("theta", "b")}))


@pytest.mark.parametrize("name", LOSSES)
def test_programs_and_oracles_pickle(name):
    loss, data = LOSSES[name]
    oracle, point = bound(loss, data)
    again = pickle.loads(pickle.dumps(oracle))
    np.testing.assert_array_equal(again.value(point), oracle.value(point))
    program = pickle.loads(pickle.dumps(strat.compile(loss, data=data_of(loss))))
    used = data_of(loss)
    rebound = program.bind(*[data[parameter.name()] for parameter in used], strata=Z, strata_order=range(K))
    np.testing.assert_array_equal(rebound.value(point), oracle.value(point))
    if oracle.flat.has("prox"):
        for key in point:
            np.testing.assert_array_equal(again.prox(point, 0.5)[key], oracle.prox(point, 0.5)[key])


def test_prox_of_a_loss_with_a_residual_at_its_kink():
    """The curvature of |e|^1.5 is infinite at e = 0: neither nan nor a stop there."""
    oracle = strat.compile(cp.power(cp.abs(y - b), 1.5), data=(y,)).bind([1.0, 2.0])
    assert np.isfinite(oracle.hvp(np.ones(1), np.ones(1))).all()
    for v in (1.0, 2.0, 0.3):
        z = oracle.prox(np.array([v]), 0.7)
        np.testing.assert_allclose(0.7 * oracle.gradient(z) + z - v, 0.0, atol=1e-7)


def test_linear_parts_of_many_coefficients_take_no_memory():
    """x @ B @ c has a product of data for each entry of B; they are summed a few at a time."""
    wide, hot, many = cp.Parameter(300, name="wide"), cp.Parameter(20, name="hot"), 2000
    big = cp.Variable((300, 20), name="big")
    X, C = rng.normal(size=(many, 300)), np.eye(20)[rng.integers(0, 20, size=many)]
    program = strat.compile(cp.log_sum_exp(wide @ big) - wide @ big @ hot, data=(wide, hot))
    tracemalloc.start()
    oracle = program.bind(X, C)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * X.nbytes
    np.testing.assert_allclose(oracle.gradient(np.zeros((1, 300, 20)))[0], X.T @ (1 / 20 - C), atol=1e-9)


wide, shift = cp.Variable((3, 4), name="wide"), cp.Variable(4, name="shift")
SCORES = x @ wide
BLOCKS = [
    cp.logistic(-m), cp.huber(r, 0.7) + cp.square(b), s * cp.exp(0.1 * z) + 0.5 * cp.sum_squares(theta),
    cp.square(r), cp.log_sum_exp(SCORES + shift) - c @ (SCORES + shift),
    s * cp.log_sum_exp(SCORES) + cp.sum_squares(SCORES - c) + cp.sum(cp.logistic(shift)),
    s * cp.log_sum_exp(np.arange(12.0).reshape(3, 4) @ shift) + cp.square(x[0] - shift[0]),
    cp.sum(cp.log_sum_exp(cp.vstack([SCORES[:2], SCORES[2:]]), axis=1)) + cp.sum(c @ shift),
    0.9 * cp.square(cp.pos(r)) + 0.1 * cp.square(cp.neg(r)), cp.power(cp.abs(r), 1.5) + s * cp.exp(0.1 * cp.square(z)),
    cp.sum_squares(cp.pos(cp.abs(SCORES - c) - 0.1)) + cp.sum_squares(cp.pos(shift)) + cp.log_sum_exp(SCORES),
]  # fmt: skip


@pytest.mark.parametrize("loss", BLOCKS, ids=range(len(BLOCKS)))
def test_hessian_blocks_are_the_hessian_products(loss):
    used = data_of(loss)
    oracle = strat.compile(loss, data=used).bind(*[SIGNS[q.name()] for q in used], strata=Z % 3).flat
    at, h = np.random.default_rng(0).normal(size=(len(np.unique(Z % 3)), oracle.n)), 1e-6
    assert oracle.has("hessian") == (loss is not BLOCKS[6])  # coefficients without records
    blocks, product = hessian_blocks(oracle, at), oracle.hessian_operator(at)
    for j, e in enumerate(np.eye(oracle.n)):
        change = oracle.value_and_gradient(at + h * e)[1] - oracle.value_and_gradient(at - h * e)[1]
        np.testing.assert_allclose(blocks[:, :, j], change / (2 * h), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(blocks[:, :, j], product(np.tile(e, (len(at), 1))), rtol=1e-11, atol=1e-11)


def test_what_was_read_once_is_used_again_for_the_same_values():
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    lam, p = cp.Parameter(name="lam", value=1.0), cp.Parameter(nonneg=True, name="p", value=2.0)
    base = strat.BaseModel(cp.sum_squares(y - theta), lam * cp.sum(cp.power(cp.abs(theta), p)), data=(y,))
    at, program = np.array([[1.0, -2.0]]), base.regularizer_program
    for value, expected in ((1.0, 5.0), (3.0, 15.0), (1.0, 5.0)):
        assert program.bind_regularizer({"lam": value}).value(at) == pytest.approx(expected)
        for twin in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
            assert twin.bind_regularizer({"lam": value}).value(at) == pytest.approx(expected)
    with pytest.raises(strat.NotConvexError, match="lam"):
        program.bind_regularizer({"lam": -1.0})
    assert program.bind_regularizer({"lam": 1.0}).value(at) == pytest.approx(5.0)
