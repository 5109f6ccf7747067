"""Fits do not depend on the units of columns, labels and weights, nor on the order and the names of records and strata."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from problems import mean

import strat
from strat.oracles.base import Quadratic

pytestmark = pytest.mark.filterwarnings("error")
N, n, K = 240, 3, 4
Z = np.random.default_rng(1).integers(0, K, N)
X = np.random.default_rng(2).standard_normal((N, n))
ETA = X @ [0.5, -0.3, 0.2] + 0.1 * Z
RNG = np.random.default_rng(3)
NOISY, SIGNS = ETA + 0.4 * RNG.standard_normal(N), np.where(RNG.random(N) < 1 / (1 + np.exp(-ETA)), 1.0, -1.0)
COUNTS, TIMES = RNG.poisson(np.exp(ETA)).astype(float), RNG.gamma(2.0, np.exp(ETA) / 2)

#: The loss in prediction u and label y, and the labels.
LOSSES = {
    "squares": (lambda u, y: cp.square(y - u), NOISY),
    "huber": (lambda u, y: cp.huber(y - u, 0.5), NOISY),
    "expectile": (lambda u, y: 0.7 * cp.square(cp.pos(y - u)) + 0.3 * cp.square(cp.neg(y - u)), NOISY),
    "power": (lambda u, y: cp.power(cp.abs(y - u), 1.5), NOISY),
    "log cosh": (lambda u, y: cp.log_sum_exp(cp.hstack([y - u, u - y])), NOISY),
    "absolute": (lambda u, y: cp.abs(y - u), NOISY),
    "pinball": (lambda u, y: cp.maximum(0.7 * (y - u), 0.3 * (u - y)), NOISY),
    "insensitive": (lambda u, y: cp.pos(cp.abs(y - u) - 0.1), NOISY),
    "logistic": (lambda u, y: cp.logistic(-cp.multiply(y, u)), SIGNS),
    "hinge": (lambda u, y: cp.pos(1 - cp.multiply(y, u)), SIGNS),
    "squared hinge": (lambda u, y: cp.square(cp.pos(1 - cp.multiply(y, u))), SIGNS),
    "poisson": (lambda u, y: cp.exp(u) - y * u, COUNTS),
    "gamma": (lambda u, y: u + cp.multiply(y, cp.exp(-u)), TIMES),
}
KINKED = ("absolute", "pinball", "insensitive", "hinge")
#: Equivalent regularizers and constraints of theta = t / s.
REGULARIZERS = {
    "l1": lambda s, t: (4 * cp.norm1(cp.multiply(s, t)), []),
    "ridge": lambda s, t: (2 * cp.sum_squares(cp.multiply(s, t)), []),
    "box": lambda s, t: (0, [t <= 0.3 / s, t >= -0.2 / s]),
    "norm": lambda s, t: (4 * cp.norm(cp.multiply(s, t)), []),
    "simplex": lambda s, t: (0, [cp.sum(cp.multiply(s, t)) == 0.4, t >= 0]),
}
SCALES = {
    "all": 10.0 ** np.array([12, -9, 4]),
    "large": 10.0 ** np.array([12, 8, 10]),
    "small": 10.0 ** np.array([-9, -8, -9]),
}
TIGHT = strat.NewtonCG, strat.MAPG, strat.AlternatingMinimization, strat.Cone
HELD = {
    "box": lambda t: (0, [t >= -0.5, t <= 0.7]),
    "ball": lambda t: (0, [cp.norm2(t) <= 0.5]),
    "logarithms": lambda t: (-cp.sum(cp.log(t + 3)), []),
    "elastic net": lambda t: (cp.norm1(t) + cp.sum_squares(t), []),
}
LEARNED = [strat.LogDet(5.0, 0.5, 0.1, 0.2), strat.Entropy(0.5)]
GRAPHS = {"path": strat.graphs.path(4, weight=7.0), "complete": strat.graphs.complete(40, weight=500.0)}
RAW = np.random.default_rng(0).lognormal(10.5, 0.6, N), np.random.default_rng(4).standard_normal((N, 2))
SETS = {
    "income and its square": np.c_[RAW[0], RAW[0] ** 2],
    "metres": [5e5, 4.5e6] + 1e4 * RAW[1],
    "seconds since 1970": np.c_[1.6e9 + 3e7 * RAW[1][:, 0], RAW[1][:, 1]],
    "year": np.c_[np.round(2007 + 8 * RAW[1][:, 0]), RAW[1][:, 1]],
}


def declared(loss, scale=1.0, regularizer=None, intercept=True, **options):
    t, b = cp.Variable(n, name="t"), cp.Variable(name="b")
    x, y = cp.Parameter(n if intercept else n + 1, name="x"), cp.Parameter(name="y")
    u = x @ t + b if intercept else x[:n] @ t + x[n] * b
    r, constraints = REGULARIZERS[regularizer](scale * np.ones(n), t) if regularizer else (0, [])
    couple = options.pop("couple", None)
    if couple is not None:
        options["couple"] = {t: np.square(scale) * np.ones(n), b: couple}
    return strat.BaseModel(LOSSES[loss][0](u, y), r, constraints, data=(x, y), predict=u, **options)


@pytest.mark.parametrize("loss", LOSSES)
def test_predictions_are_the_same_in_all_units(loss):
    rng, y = np.random.default_rng(len(loss)), LOSSES[loss][1]
    solver = strat.Cone(tol=1e-7) if loss in KINKED else strat.NewtonCG(tol=1e-8)
    expected = strat.separate(declared(loss), solver=solver).fit(X, y, strata=Z).predict(X, strata=Z)
    for _ in range(3):
        scale, order = 10.0 ** rng.uniform(-9, 12, n), rng.permutation(N)
        offset = scale * rng.choice([0.0, 1.0, 300.0], n)
        names = np.array([f"group {k}" for k in rng.permutation(K)])
        weight = np.full(N, 10.0 ** rng.uniform(-10, 8))
        moved, intercept = (X * scale + offset)[order], rng.random() < 0.5
        given = moved if intercept else np.c_[moved, np.ones(N)]
        model = strat.separate(declared(loss, intercept=intercept), solver=solver)
        model.fit(given, y[order], strata=names[Z][order], sample_weight=weight)
        np.testing.assert_allclose(model.predict(given, strata=names[Z][order]), expected[order], atol=1e-6)


@pytest.mark.parametrize("loss", ["squares", "expectile", "power", "absolute", "pinball"])
def test_labels_in_all_units(loss):
    y = LOSSES[loss][1]
    expected = strat.separate(declared(loss)).fit(X, y, strata=Z).predict(X, strata=Z)
    for unit in (1e-8, 1e-4, 1e4, 1e8, 1e12):
        model = strat.separate(declared(loss)).fit(X, unit * y, strata=Z)
        np.testing.assert_allclose(model.predict(X, strata=Z) / unit, expected, atol=2e-6)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("loss", ["squares", "poisson"])
def test_equivalent_regularizers(loss, regularizer, scales):
    y, s = LOSSES[loss][1], SCALES[scales]
    for solver in (strat.NewtonCG(tol=1e-8), strat.Cone(tol=1e-8)):
        models = [strat.common(declared(loss, scale, regularizer), solver=solver) for scale in (1.0, s)]
        first, second = (m.fit(X * scale, y, strata=Z) for m, scale in zip(models, (1.0, s), strict=True))
        assert second.result_.objective == pytest.approx(first.result_.objective, rel=1e-9)
        np.testing.assert_allclose(second.predict(X * s, strata=Z), first.predict(X, strata=Z), atol=3e-6)


@pytest.mark.parametrize("solver", [*(make(tol=1e-7) for make in TIGHT), strat.ADMM(tol=1e-9)], ids=repr)
def test_all_solvers(solver):
    model = strat.separate(declared("logistic"), solver=solver)
    expected = model.fit(X, SIGNS, strata=Z).predict(X, strata=Z)
    for scale in SCALES.values():
        model.fit(X * scale + 50 * scale, SIGNS, strata=Z)
        np.testing.assert_allclose(model.predict(X * scale + 50 * scale, strata=Z), expected, atol=1e-6)


@pytest.mark.parametrize("h", LEARNED, ids=repr)
@pytest.mark.parametrize("solver", [strat.MAPG(tol=1e-7), strat.AlternatingMinimization(tol=1e-7)], ids=repr)
def test_learned_graphs(solver, h):
    models = {}
    for name, scale in {"ones": np.ones(n), **SCALES}.items():
        base = declared("poisson", scale, couple=0.0)
        model = strat.StratifiedModel(base, strat.graphs.path(K), h, solver=solver)
        models[name] = model.fit(X * scale + 50 * scale * (name == "large"), COUNTS, strata=Z)
        assert models[name].result_.objective == pytest.approx(models["ones"].result_.objective, rel=1e-9)
        np.testing.assert_allclose(models[name].W_, models["ones"].W_, rtol=1e-4)


@pytest.mark.parametrize("loss, unit", [("squares", 1e-8), ("squares", 1e8), ("power", 1e-4), ("power", 1e6)])
@pytest.mark.parametrize("h", [*LEARNED, strat.LogDiagonal(1, 1), strat.TraceConstraint(2, 3)], ids=repr)
def test_labels_in_all_units_with_a_learned_graph(h, loss, unit):
    # F of the labels times u is u^p F of the labels, if h and the distances are weighed alike.
    degree, models = {"squares": 2.0, "power": 1.5}[loss], []
    for u in (1.0, unit):
        base = declared(loss, u ** (degree / 2 - 1), couple=u ** (degree - 2))
        options = {"graph_regularizer": h._times(u**degree), "solver": strat.MAPG(tol=1e-7)}
        model = strat.StratifiedModel(base, strat.graphs.path(K), **options)
        models.append(model.fit(X, u * LOSSES[loss][1], strata=Z))
    first, second = models
    np.testing.assert_allclose(second.predict(X, strata=Z) / unit, first.predict(X, strata=Z), atol=2e-6)


@pytest.mark.parametrize("name", SETS)
def test_least_squares_of_raw_columns(name):
    S = (SETS[name] - SETS[name].mean(axis=0)) / SETS[name].std(axis=0)
    labels = S @ [0.5, -0.25] + 0.3 * RNG.standard_normal(N)
    model = strat.separate(declared_of(2, "squares")).fit(SETS[name], labels, strata=Z)
    groups = ((np.c_[S, np.ones(N)][k == Z], labels[k == Z]) for k in range(K))
    least = sum(np.linalg.lstsq(A, c)[1][0] for A, c in groups)
    assert model.result_.objective == pytest.approx(least, rel=1e-9)
    assert model.result_.status == "converged" and model.result_.iterations <= 4


@pytest.mark.parametrize("name", ["seconds since 1970", "metres", "year"])
def test_kinks_of_raw_columns_and_a_graph(name):
    raw = SETS[name] * np.ones((N, 2))
    mean, spread, t, b = raw.mean(axis=0), raw.std(axis=0), cp.Variable((K, 2)), cp.Variable(K)
    S = (raw - mean) / spread
    labels = S @ [0.5, -0.25] + 0.3 * np.random.default_rng(1).standard_normal(N)
    model = strat.lrsm(declared_of(2), strat.graphs.path(K, weight=2.0), solver=strat.Cone(tol=1e-5))
    model.fit(raw, labels, strata=Z)
    # The same in centred columns: raw coefficients are t / spread, and intercepts b - mean · t / spread.
    loss = cp.sum(LOSSES["pinball"][0](cp.sum(cp.multiply(S, t[Z]), axis=1) + b[Z], labels))
    apart = [cp.diff(t / spread[None, :]), cp.diff(b - t @ (mean / spread))]
    minimum = cp.Problem(cp.Minimize(loss + sum(map(cp.sum_squares, apart)))).solve(cp.CLARABEL)
    assert model.result_.objective == pytest.approx(minimum, rel=1e-6)


@pytest.mark.parametrize("name", ["seconds since 1970", "metres", "income and its square"])
def test_tuning_of_raw_columns(name):
    raw, found = SETS[name] * np.ones((N, 2)), []
    mean, spread = raw.mean(axis=0), raw.std(axis=0)
    for columns, scale in (((raw - mean) / spread, np.ones(2)), (raw, spread)):
        base = declared_of(2, "logistic", 0.5, scale)
        found.append(strat.tune(strat.lrsm(base, strat.graphs.path(K)), (columns, SIGNS, Z), folds=3))
    assert found[1].after == pytest.approx(found[0].after, rel=1e-6)


@pytest.mark.parametrize("regularizer", HELD)
@pytest.mark.parametrize("loss", ["squares", "power", "logistic", "pinball"])
def test_intercepts_take_up_means_far_from_zero(loss, regularizer):
    t, b, x, y = cp.Variable(n), cp.Variable(), cp.Parameter(n), cp.Parameter()
    base = strat.BaseModel(LOSSES[loss][0](x @ t + b, y), *HELD[regularizer](t), data=(x, y), couple=[t])
    near = X * [1e6, 1.0, 1e-3]
    path, y = strat.graphs.path(K), LOSSES[loss][1]
    first, second = (strat.lrsm(base, path).fit(raw, y, strata=Z) for raw in (near, near + [0, 1e4, 0]))
    assert second.result_.objective == pytest.approx(first.result_.objective, rel=1e-7)


def declared_of(n, loss="pinball", ridge=0.0, scale=1.0):
    """A line in n columns, with a ridge in columns over `scale`; where there is a ridge, intercepts are not coupled."""
    t, b = cp.Variable(n, name="t"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    penalty = ridge * cp.sum_squares(cp.multiply(scale * np.ones(n), t))
    couple = {t: np.square(scale) * np.ones(n), b: 0.0} if ridge else None
    u = x @ t + b
    return strat.BaseModel(LOSSES[loss][0](u, y), penalty, data=(x, y), predict=u, couple=couple)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_given_graph_penalises_differences_in_the_users_units(graph):
    # One least squares problem with a row for each record and for each edge and coefficient.
    raw, strata = X * [1e3, 1e-3, 1.0] + [2e5, 0.0, 30.0], np.arange(N) % len(graph)
    model = strat.lrsm(declared("squares"), graph).fit(raw, NOISY, strata=strata)
    records = np.zeros((N, len(graph), n + 1))
    records[np.arange(N), strata] = np.c_[raw, np.ones(N)]
    incidence = nx.incidence_matrix(graph, oriented=True).toarray().T
    weight = next(iter(graph.edges(data="weight")))[2]
    A = np.vstack([records.reshape(N, -1), np.sqrt(weight / 2) * np.kron(incidence, np.eye(n + 1))])
    size = np.linalg.norm(A, axis=0)
    solution = np.linalg.lstsq(A / size, np.r_[NOISY, np.zeros(len(A) - N)], rcond=1e-15)[0] / size
    expected = records.reshape(N, -1) @ solution
    np.testing.assert_allclose(model.predict(raw, strata=strata), expected, atol=1e-6)
    assert model.result_.iterations <= 5


@pytest.mark.parametrize("held", [None, "box", "simplex"])
@pytest.mark.parametrize("loss", ["squares", "huber", "poisson", "pinball", "absolute"])
def test_strata_without_records_are_means_of_their_neighbours_in_all_units(loss, held):
    smoothing, path = 0.1 if loss == "pinball" else None, nx.path_graph(K + 2)
    for size, weight in ((np.ones(n), 1e-9), (np.array([1e5, 1.0, 1e-3]), 1.0)):
        base = declared(loss, size, held, smoothing=smoothing)
        models = [strat.lrsm(base, graph, scale=weight) for graph in (nx.complete_graph(K + 2), path)]
        models += [strat.joint(base, path, lambda1=0.01, lambda2=1.0, eta=0.1, mu=0.1)] if held else []
        for model in models:
            with warnings.catch_warnings(action="ignore", category=strat.CollapseWarning):
                t = model.fit(X * size, LOSSES[loss][1], strata=Z).theta_["t"] * size
            L = (np.diag(model.W_.sum(axis=1)) - model.W_)[K:]
            means = np.linalg.solve(L[:, K:], -L[:, :K] @ t[:K])
            np.testing.assert_allclose(t[K:], means, rtol=1e-4, atol=1e-7)


EMPTY = [5, 6, 14, 23]


def amounts(dollars, seed=1):
    """Records of 24 strata, some of them empty."""
    rng = np.random.default_rng(seed)
    z = rng.choice(np.delete(np.arange(24), EMPTY), 300)
    return dollars * (10 + np.sin(z / 4) + 0.3 * rng.normal(size=300)), z


@pytest.mark.parametrize("loss", [cp.square, cp.abs])
@pytest.mark.parametrize("dollars", [100.0, 1000.0])
def test_strata_without_records_join_a_learned_graph(loss, dollars):
    level, y = cp.Variable(name="level"), cp.Parameter(name="y")
    values, z = amounts(dollars)
    base = strat.BaseModel(loss(y - level), data=(y,), predict=level)
    model = strat.joint(base, strat.graphs.path(24, weight=2.0), lambda1=1.0, lambda2=0.1, eta=0.1, mu=0.5)
    objectives = [model.fit(values, strata=z, init=init).result_.objective for init in ("lrsm", None)]
    assert objectives[1] <= objectives[0] * (1 + 1e-5)
    assert model.W_[EMPTY].sum(axis=1).min() > 1 and model.theta_["level"][EMPTY].min() > 9 * dollars


def test_validation_judges_a_second_fit_of_strata_that_were_left_out():
    values, z = amounts(1000)
    model = strat.joint(mean(), strat.graphs.path(24, weight=2.0), lambda1=1.0, lambda2=0.1, eta=0.1, mu=0.5)
    # Stratum 23 is left out at first, at 9701.6.
    for held_out, joined in ((([9701.6], [23]), False), (([9000.0], [0]), True)):
        with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
            model.fit(values, strata=z, validation=held_out)
        assert (model.W_[23].sum() > 1) == joined and model.result_.status == "converged"
    result = model.fit(values, strata=z).result_
    assert len(result.history) == len(result.history_seconds) == result.iterations + 1
    assert np.all(np.diff(result.history) <= 1e-12 * np.abs(result.history[-1])) and model.W_[23].sum() > 1


@pytest.mark.parametrize("seed", [14, 28])
def test_steps_of_weights_grow_again(seed):
    values, z = amounts(100, seed)
    model = strat.log_diagonal(mean(), strat.graphs.path(24, weight=2.0), lambda1=1.0, lambda2=0.1)
    assert model.fit(values, strata=z).result_.iterations < 1000


def test_predictions_of_strata_that_the_learned_graph_leaves_out_warn():
    model = strat.joint(mean(0.1), strat.graphs.path(3), lambda1=1e-3, lambda2=1.0, eta=1.0, mu=1.0)
    with pytest.warns(strat.DataWarning, match="stratum 2 has neither records nor edges"):
        model.fit([9.0, 9.5, 5.0], strata=[0, 0, 1])
    assert model.W_[2].sum() == 0
    with pytest.warns(strat.DataWarning, match="does not depend on any data"):
        model.predict(strata=[2])


@pytest.mark.parametrize("loss", ["squares", "logistic", "absolute"])
def test_strata_without_records_balance_edges_and_regularizer_in_raw_units(loss):
    size, path, rate = np.array([1e5, 1.0, 1e4]), nx.path_graph(K + 2), 0.02
    t, x, y = cp.Variable(n, name="t"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(LOSSES[loss][0](x @ t, y), rate * cp.sum_squares(t), [t >= 0], data=(x, y))
    t = strat.lrsm(base, path).fit(X * size, LOSSES[loss][1], strata=Z).theta_["t"]
    A = nx.laplacian_matrix(path)[K:, K:].toarray() + 2 * rate * np.eye(2)
    np.testing.assert_allclose(t[K:], np.linalg.solve(A, [t[K - 1], np.zeros(n)]), rtol=1e-4, atol=1e-11)


@pytest.mark.parametrize("norm", [cp.norm_inf, lambda t: cp.norm(t, 3)])
def test_derivatives_in_hyperparameters_of_raw_columns(norm):
    t, lam = cp.Variable(3, name="t"), cp.Parameter(nonneg=True, name="lam", value=0.7)
    x, y, raw = cp.Parameter(3, name="x"), cp.Parameter(name="y"), X * [15.0, 1.0, 0.01] + [150.0, 0.0, 0.0]
    base = strat.BaseModel(cp.square(y - x @ t), lam * norm(t), data=(x, y))
    model = strat.lrsm(base, strat.graphs.path(K), scale=3.0)
    found = []
    for value in (0.7, 0.7002, 0.6998):
        model.set_params(base__lam=value).fit(raw, NOISY, strata=Z)
        found.append(strat.hypergradient(model, (raw[:90], SIGNS[:90], Z[:90]), wrt=(lam,)))
    slope = (found[1][0] - found[2][0]) / 4e-4
    assert found[0][1]["lam"] == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("regularizer", ["ridge", "l1", "box"])
def test_derivatives_of_fits(regularizer):
    found = []
    for scale in (np.ones(n), *SCALES.values()):
        base = declared("logistic", scale, regularizer, couple=1.0)
        model = strat.lrsm(base, strat.graphs.path(K, weight=3.0)).fit(X * scale, SIGNS, strata=Z)
        loss, gradient = strat.hypergradient(model, (1.1 * X[:90] * scale, SIGNS[:90], Z[:90]))
        errors, moved = strat.standard_errors(model)["t"] * scale, strat.sensitivity(model)[0, 1]["t"] * scale
        found.append([loss, gradient["W0"], np.nan_to_num(errors), moved])
    for other in found[1:]:
        for value, expected in zip(other, found[0], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["squares", "logistic", "poisson", "gamma", "squared hinge"])
def test_columns_far_from_zero_keep_their_digits_unless_they_are_named(loss):
    y, far = LOSSES[loss][1], X + [2e4, 0.0, -3e3]
    tight = strat.separate(declared(loss), solver=strat.NewtonCG(tol=1e-9))
    expected = tight.fit(X, y, strata=Z).predict(X, strata=Z)
    model = strat.separate(declared(loss)).fit(far, y, strata=Z)
    np.testing.assert_allclose(model.predict(far, strata=Z), expected, atol=2e-6)


def test_columns_that_lose_their_digits_are_named():
    raw = X * [1.0, 1.0, 1e-3] + [0.0, 0.0, 1e6]
    with pytest.warns(strat.DataWarning, match="column 2 of x: the numbers differ by less than .*Subtract"):
        strat.separate(declared("squares")).fit(raw, NOISY, strata=Z)


def test_no_point_far_out_is_low_by_rounding_alone():
    a = np.random.default_rng(0).standard_normal((200, 1, 2))
    # Of rank one: far along its null direction the form is rounding alone, of either sign.
    H = a.swapaxes(1, 2) @ a
    flat = 1e25 * np.stack([a[:, 0, 1], -a[:, 0, 0]], axis=1)
    assert (np.vecdot(flat, np.matmul(H, flat[..., None])[..., 0]) < 0).any()
    assert (Quadratic(np.ones(200), 0 * flat, H).value(flat) >= 1).all()


@pytest.mark.parametrize("loss", ["pinball", "absolute", "squares"])
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_strong_edges_of_small_columns_and_of_intercepts_far_out(loss, scale):
    raw = np.c_[2000 + 1500 * RAW[1][:, 0], np.round(1960 + 40 * RAW[1][:, 1]), 3e-4 + 1e-4 * X[:, 2]]
    labels = raw @ [200.0, 500.0, 1e8] + 2e4 * np.random.default_rng(0).standard_normal(N)
    fits = strat.lrsm(declared(loss), strat.graphs.path(K), scale=scale), strat.common(declared(loss))
    result, common = (model.fit(raw, labels, strata=Z).result_ for model in fits)
    assert result.status == "converged" and result.iterations <= 3
    assert result.objective <= common.objective * (1 + 1e-9)


def test_huber_losses_with_almost_all_records_on_their_straight_parts():
    z, rng = np.arange(60) % 10, np.random.default_rng(0)
    raw = np.c_[rng.normal(5e4, 1.5e4, 60), rng.normal(0.1, 0.03, 60), rng.integers(2, 7, 60)]
    prices = (2 + 0.5 * np.sin(0.6 * z)) * raw[:, 0] + 8e3 * raw[:, 2] + rng.normal(5e4, 2e4, 60)
    base, path = declared("huber"), strat.graphs.path(10)
    model = strat.lrsm(base, path).fit(raw, prices, strata=z)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), rel=1e-7)
    assert strat.joint(base, path).fit(raw, prices, strata=z).result_.status == "converged"


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_rates_of_times_in_all_units(unit):
    r, t = cp.Variable(name="r", pos=True), cp.Parameter(name="t", nonneg=True)
    z, times = np.repeat([0, 1, 2], [5, 50, 500]), unit * np.random.default_rng(0).exponential(size=555)
    model = strat.separate(strat.BaseModel(r * t - cp.log(r), data=(t,))).fit(times, strata=z)
    np.testing.assert_allclose(model.theta_["r"] * [times[z == k].mean() for k in range(3)], 1.0, rtol=1e-5)


def test_covariances_of_raw_columns():
    S, x = cp.Variable((2, 2), name="S", PSD=True), cp.Parameter(2, name="x")
    A = np.random.default_rng(0).standard_normal((N, 2)) * [9e3, 0.05]
    model = strat.separate(strat.BaseModel(cp.quad_form(x, S) - cp.log_det(S), data=(x,)))
    with warnings.catch_warnings(action="ignore"):  # about what the accuracy of cone programs leaves
        precisions = model.fit(A, strata=Z).theta_["S"]
    for precision, own in zip(precisions, (A[k == Z] for k in range(K)), strict=True):
        np.testing.assert_allclose(precision @ own.T @ own / len(own), np.eye(2), atol=1e-3)


@pytest.mark.filterwarnings("ignore::strat.DataWarning")
def test_powers_of_labels_far_from_zero():
    b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.power(cp.abs(y - b), 4), data=(y,))
    far, near = (strat.separate(base).fit(level + X[:, 0], strata=Z).result_ for level in (1e5, 0.0))
    assert far.objective == pytest.approx(near.objective, rel=1e-6)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3])
def test_labels_that_a_model_nearly_fits_take_few_steps(noise):
    t, x, y = cp.Variable(n, name="t", nonneg=True), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - x @ t), 0.01 * cp.sum_squares(t), [cp.diff(t) >= 0], data=(x, y))
    model = strat.lrsm(base, GRAPHS["path"]).fit(X, 1e3 * X @ [1, 2, 4] + noise * NOISY, strata=Z)
    assert model.result_.status == "converged" and model.result_.iterations <= 10


def test_counts_of_hundreds_of_millions():
    counts = np.round(1e8 * np.exp(0.1 * X[:, 0]))
    result = strat.lrsm(declared("poisson"), GRAPHS["path"]).fit(X, counts, strata=Z).result_
    assert result.status == "converged"


@pytest.mark.parametrize("scale", [1e8, 1e12])
def test_strong_edges_beside_ties_of_parameters(scale):
    t, x, y = cp.Variable(n, name="t"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-y * (x @ t)), 0, [cp.norm1(t) <= 0.8], data=(x, y))
    result = strat.lrsm(base, GRAPHS["path"], scale=scale).fit(X, SIGNS, strata=Z).result_
    common = strat.common(base).fit(X, SIGNS, strata=Z).result_
    assert result.objective == pytest.approx(common.objective, rel=1e-6)
