"""The cone solver: against CVXPY on whole problems, in any units, for losses with and without kinks, and within joint fits."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import strat
from strat.oracles.cone_program import ConeProgram
from strat.solvers.starts import default_solver

P, K, N = 4, 6, 90
RNG = np.random.default_rng(0)
X, STRATA = RNG.normal(size=(N, P)), RNG.integers(0, K - 1, size=N)  # the last stratum has no records
TRUE = RNG.normal(size=(K, P))
Y = (X * TRUE[STRATA]).sum(axis=1) + 0.3 * RNG.normal(size=N)
TARGETS = {"real": Y, "sign": np.sign(Y), "count": RNG.poisson(np.exp(0.3 * Y)).astype(float)}

w, x, y = cp.Variable(P, name="w"), cp.Parameter(P, name="x"), cp.Parameter(name="y")
b = cp.Variable(name="b")
LOSSES = {
    "squares": (cp.square(y - x @ w), "real"),
    "logistic": (cp.logistic(-y * (x @ w)), "sign"),
    "poisson": (cp.exp(x @ w) - y * (x @ w), "count"),
    "pinball": (cp.maximum(0.8 * (y - x @ w), -0.2 * (y - x @ w)), "real"),
    "hinge": (cp.pos(1 - cp.multiply(y, x @ w)), "sign"),
    "absolute and squares": (cp.abs(y - x @ w) + 0.3 * cp.square(y - x @ w), "real"),
    "weighted by data": (cp.abs(y) * cp.abs(1 - x @ w) + cp.square(y) * cp.pos(x @ w), "real"),
    "norm": (cp.norm(cp.hstack([y - x @ w, 0.1 * w[0]]), 2), "real"),
}
COMPOUNDS = {
    "overlapping groups": (cp.norm(w[:3], 2) + cp.norm(w[1:], 2), []),
    "pairs": (0.2 * sum(cp.maximum(cp.abs(w[i]), cp.abs(w[j])) for i in range(P) for j in range(i)), []),
    "exponentials": (0.1 * cp.norm1(w), [cp.log_sum_exp(w) <= 1.6]),
    "ball and plane": (0, [cp.norm(w, 2) <= 1, cp.sum(w) == 0.3]),
    "entropy": (-cp.sum(cp.entr(w)), [cp.sum(w) == 1, w[0] + w[1] <= 0.5]),
    "mean": (0.1 * cp.norm1(w), [cp.geo_mean(w, approx=False) >= 0.2]),
    "cubic": (0.2 * cp.norm(w, 3) + 0.1 * cp.norm1(cp.diff(w)), []),
}
GRAPH = strat.graphs.path(range(K), weight=1.5)


def fitted(loss, compound, solver=None, **options):
    expression, target = LOSSES[loss]
    regularizer, constraints = COMPOUNDS[compound]
    base = strat.BaseModel(expression, regularizer, constraints, data=(x, y), **options)
    weight = np.linspace(0.5, 1.5, N)
    return strat.lrsm(base, GRAPH, solver=solver).fit(X, TARGETS[target], strata=STRATA, sample_weight=weight)


@pytest.mark.parametrize("compound", COMPOUNDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_fits_are_cvxpys(loss, compound):
    model = fitted(loss, compound)
    assert model.result_.status == "converged"
    best = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert model.result_.objective == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_programs_with_sparse_bounds():
    ends = [sp.diags_array([-0.2, -0.1]), sp.diags_array([0.3, 0.4])]
    W = cp.Variable((2, 2), sparsity=([0, 1], [0, 1]), bounds=ends, name="W")
    report = strat.compile(cp.normNuc(W)).check()
    assert report.ok and "prox" in {row.oracle for row in report.rows}


def test_narrow_smoothed_kinks_beside_an_intercept(tmp_path):
    """Too few records have curvature at once to tell how far the columns are from 0."""
    loss, path = strat.losses.pinball(y, x @ w + b, 0.8), tmp_path / "fit"
    base = strat.BaseModel(loss, 0.1 * cp.norm1(w), data=(x, y), smoothing=0.01)

    def fitted(solver=strat.Cone, **options):
        return strat.lrsm(base, GRAPH, solver=solver(**options)).fit(X, Y, strata=STRATA).result_

    whole = fitted()
    assert whole.objective == pytest.approx(fitted(strat.MAPG).objective, rel=1e-8)
    with pytest.warns(strat.ConvergenceWarning):
        fitted(max_iter=4, checkpoint=path)
    assert fitted(checkpoint=path).history == whole.history


def test_fits_of_many_iterations_end_by_programs():
    points, z = np.random.default_rng(0).normal(size=(45, P)), np.repeat(np.arange(15), 3)
    loss = cp.power(cp.abs(y - x @ w - b), 1.5)
    model = strat.lrsm(strat.BaseModel(loss, 1e-3 * cp.norm1(w), data=(x, y)), strat.graphs.path(15, 1e-3))
    result = model.fit(points, points[:, 0] + points[:, 1] ** 2, strata=z).result_
    assert result.status == "converged" and 64 < result.iterations < 90


def test_joint_fits_take_what_is_as_good_as_the_gap_of_a_program():
    base = strat.BaseModel(cp.abs(y - x @ w), 0, [cp.norm2(w) <= 1], data=(x, y))
    solver = strat.AlternatingMinimization(tol=1e-7)
    data = X, Y + np.random.default_rng(1).normal(size=N)
    result = strat.entropy(base, GRAPH, sigma=0.7, solver=solver).fit(*data, strata=STRATA).result_
    assert result.status == "converged" and result.iterations < 20


@pytest.mark.parametrize("solver", [strat.MAPG(), strat.AlternatingMinimization()])
@pytest.mark.parametrize("loss", ["squares", "logistic"])
def test_joint_fits_never_raise_the_objective(loss, solver):
    expression, target = LOSSES[loss]
    base = strat.BaseModel(expression, *COMPOUNDS["overlapping groups"], data=(x, y))
    model = strat.joint(base, GRAPH, lambda1=1.0, lambda2=0.3, eta=0.1, mu=0.1, solver=solver)
    result = model.fit(X, TARGETS[target], strata=STRATA).result_
    assert result.status == "converged" and result.iterations < 20
    assert (np.diff(result.history) <= 1e-8 * (1 + np.abs(result.history[:-1]))).all()
    given = strat.lrsm(base, (list(range(K)), model.W_)).fit(X, TARGETS[target], strata=STRATA)
    np.testing.assert_allclose(given.theta_["w"], model.theta_["w"], atol=1e-3)


def test_dense_joint_fits_write_their_program_once(monkeypatch):
    made, init = [], ConeProgram.__init__
    monkeypatch.setattr(ConeProgram, "__init__", lambda self, *a, **k: made.append(k) or init(self, *a, **k))
    monkeypatch.setattr("strat.solvers.mapg.DENSE", 20)  # from which on MAPG takes its own steps
    count = 44
    z = np.arange(4 * count) % count
    data = np.random.default_rng(0).normal(size=(len(z), P))
    base = strat.BaseModel(LOSSES["squares"][0], *COMPOUNDS["overlapping groups"], data=(x, y))
    model = strat.joint(base, strat.graphs.complete(count), solver=strat.MAPG(max_iter=60, tol=0))
    assert model.fit(data, data[:, 0], strata=z).result_.status == "max_iter"
    assert [names.get("what") for names in made].count("the fit's cone program") == 1


def test_what_cannot_hold_is_an_error_that_says_so():
    base = strat.BaseModel(LOSSES["squares"][0], 0, [cp.norm(w, 2) <= 1, cp.sum(w) == 30], data=(x, y))
    with pytest.raises(strat.NoOracleError, match="Check that the constraints can be satisfied"):
        strat.lrsm(base, GRAPH).fit(X, Y, strata=STRATA)


@pytest.mark.parametrize("atom", [cp.quad_form, cp.matrix_frac])
def test_matrices_of_records_enter_by_their_roots(atom):
    S = cp.Parameter((P, P), PSD=True, name="S")
    roots = RNG.normal(size=(N, P, P))
    matrices = roots @ roots.swapaxes(1, 2) + 0.5 * np.eye(P)
    base = strat.BaseModel(atom(w - y, S) + cp.abs(x @ w - y), 0.1 * cp.sum_squares(w), data=(S, x, y))
    model = strat.lrsm(base, GRAPH).fit(matrices, X, Y, strata=STRATA)
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), rel=1e-6)


def test_a_loss_whose_cones_cannot_be_written_is_pickled_and_says_so():
    loss = cp.quad_form(cp.abs(w), np.eye(P)) + cp.abs(w[0] - y)  # CVXPY has no cones for it
    oracle = strat.compile(loss, data=(y,)).bind(np.ones(3))
    for flat in (oracle.flat, pickle.loads(pickle.dumps(oracle)).flat):
        with pytest.raises(strat.NoOracleError, match="Write it with other atoms"):
            flat.cones()


def test_records_whose_program_would_not_fit_into_the_memory_are_refused(monkeypatch):
    base = strat.BaseModel(cp.maximum(cp.abs(x @ w - y), 2 * cp.abs(w[0] - y)), data=(x, y))
    assert type(default_solver(base.loss_program.bind(X, Y, strata=STRATA).flat, learned=False)) is strat.Cone
    monkeypatch.setattr("os.sysconf", lambda name: 300)
    with pytest.raises(strat.NoOracleError, match="the machine has 0 GB: smooth the loss"):
        strat.lrsm(base, GRAPH).fit(X, Y, strata=STRATA)


def test_fits_in_several_threads_share_nothing_that_changes():
    expression, constraints = COMPOUNDS["ball and plane"]
    base = strat.BaseModel(LOSSES["squares"][0], expression, constraints, data=(x, y))

    def objective(solver):
        return strat.lrsm(base, GRAPH, solver=solver).fit(X, Y, strata=STRATA).result_.objective

    with ThreadPoolExecutor(4) as threads:
        objectives = list(threads.map(objective, [None, strat.ADMM(), strat.MAPG(), strat.NewtonCG()] * 2))
    np.testing.assert_allclose(objectives, objective(None), rtol=1e-6)


def test_columns_far_from_zero_do_not_change_a_fit_with_kinks():
    base = strat.BaseModel(cp.abs(y - x @ w - b), data=(x, y), couple={b: 0})

    def objective(offset):
        return strat.lrsm(base, GRAPH).fit(X + offset, Y, strata=STRATA).result_.objective

    far = np.array([3e4, 0.0, 0.0, 0.0])
    assert objective(far) == pytest.approx(objective(0 * far), rel=1e-8)


@pytest.mark.parametrize("column, label", [(1e-9, 1.0), (1.0, 1e8), (1e-9, 1e8)])
def test_bounds_do_not_set_the_units_of_a_fit_with_kinks(column, label):
    def objective(c, u):
        r = (y - x @ w - b) / u
        box = [w <= 0.25 * u / c, w >= -0.25 * u / c]
        base = strat.BaseModel(cp.maximum(0.9 * r, -0.1 * r), constraints=box, data=(x, y))
        return strat.separate(base).fit(c * X, u * Y, strata=STRATA).result_.objective

    assert objective(column, label) == pytest.approx(objective(1.0, 1.0), rel=1e-8)


@pytest.mark.parametrize("loss, seed, orders", [("pinball", 3, 6), ("hinge", 4, 4), ("hinge", 4, 6)])
def test_weights_of_many_sizes_leave_fits_with_kinks_exact(loss, seed, orders):
    rng, t, u = np.random.default_rng(seed), cp.Variable(2, name="t"), cp.Parameter(2, name="u")
    z, m = rng.choice(4, 50, p=[0.7, 0.2, 0.08, 0.02]), u @ t + b
    raw = np.column_stack([rng.integers(18, 90, 50), rng.integers(1990, 2027, 50)]).astype(float)
    real = raw[:, 0] * 50 + rng.normal(size=50) * 300
    sign = np.sign(raw[:, 0] - 55 + rng.normal(size=50) * 15 + 0.01)
    weight = 10.0 ** rng.uniform(0, orders, 50)
    pinball = cp.maximum(0.9 * (y - m), -0.1 * (y - m)), 0, real
    f, regularizer, labels = pinball if loss == "pinball" else (cp.pos(1 - y * m), 0.1 * cp.norm1(t), sign)
    model = strat.lrsm(strat.BaseModel(f, regularizer, data=(u, y)), strat.graphs.path(5, weight=3.0))
    result = model.fit(raw, labels, strata=z, sample_weight=weight).result_
    assert result.status == "converged"
    assert result.objective == pytest.approx(model.to_cvxpy().solve("CLARABEL"), rel=1e-7)


@pytest.mark.parametrize("weight", [1e1, 1e2, 1e4])
@pytest.mark.parametrize("loss", ["absolute", "hinge"])
def test_right_sides_far_above_theta_s_part_are_not_taken_for_constraints_that_cannot_hold(loss, weight):
    expression, kind = (cp.abs(y - x @ w), "sign") if loss == "absolute" else LOSSES[loss]
    base = strat.BaseModel(expression, 0.1 * cp.norm1(w) + 0.1 * cp.sum_squares(w), data=(x, y))
    model = strat.lrsm(base, strat.graphs.path(K, weight=weight))
    result = model.fit(1e-3 * X, TARGETS[kind], strata=STRATA).result_
    best = model.to_cvxpy().solve("CLARABEL")
    assert result.status == "converged" and result.objective == pytest.approx(best, rel=1e-7)


def test_huber_losses_that_are_straight_at_the_start_are_fitted_beside_a_compound():
    base = strat.BaseModel(cp.huber(y + 50 - x @ w - b, 0.1), cp.norm(w, 2), data=(x, y))
    model = strat.separate(base).fit(X, Y, strata=STRATA)
    best = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert model.result_.objective == pytest.approx(best, rel=1e-7)
    dates = X * [3e7, 1, 1, 1] + [1.6e9, 0, 0, 0]  # the norm is 0 there but for the last three
    assert strat.separate(base).fit(dates, Y, strata=STRATA).result_.objective < 1.01 * best


def test_a_prox_that_fails_loses_no_fit(monkeypatch):
    def fails(*_):
        raise strat.errors.NoOracleError("")

    monkeypatch.setattr("strat.solvers.cone.ConeNewton.residual", lambda *_: None)
    monkeypatch.setattr("strat.problem.joint_problem.JointProblem.prox", fails)
    with pytest.warns(strat.ConvergenceWarning):
        result = fitted("logistic", "overlapping groups").result_
    assert result.status == "max_iter" and np.isfinite(result.objective)


def test_columns_of_any_size_do_not_change_a_smooth_fit_with_constraints():
    r = y - x @ w - b

    def result(column, offset, unit):
        loss, increasing = cp.square(r) + cp.huber(r, 0.3), cp.diff(cp.multiply(unit, w)) >= 0
        base = strat.BaseModel(loss, 0, [increasing], data=(x, y), couple={b: 0})
        return strat.separate(base).fit(X * column + offset, Y, strata=STRATA).result_

    size = np.array([1e6, 1.0, 1e-3, 1.0])
    raw, scaled = result(size, np.array([0, 1e4, 0, 0]), 1.0), result(1.0, 0.0, 1 / size)
    assert raw.status == "converged"
    assert raw.objective == pytest.approx(scaled.objective, rel=1e-6)


@pytest.mark.parametrize("graph, weight", [(strat.graphs.complete, 1e4), (strat.graphs.path, 1e-3)])
def test_edges_of_any_strength_leave_labels_far_from_zero_what_they_are(graph, weight):
    u, labels = cp.Variable(P, nonneg=True), 4 + X @ np.ones(P) + np.random.default_rng(1).normal(size=N)
    base = strat.BaseModel(strat.losses.pinball(y, x @ u + cp.Variable(), 0.8), data=(x, y))

    def objective(unit):
        model = strat.lrsm(base, graph(20, weight * 5e4 / unit))
        return model.fit(X, unit * labels, strata=np.arange(N) % 20).result_.objective / unit

    assert objective(5e4) == pytest.approx(objective(1.0), rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_constraints_that_are_held_without_force_in_strata_without_records(seed):
    rng, w, x = np.random.default_rng(seed), cp.Variable(3, name="w"), cp.Parameter(3, name="x")
    bound = [cp.quad_form(w, np.diag([1.0, 2.0, 3.0])) <= 0.05]
    base = strat.BaseModel(cp.square(y - x @ w), data=(x, y), constraints=bound)
    X, Y, z = rng.standard_normal((12, 3)), rng.standard_normal(12), np.arange(12) % 2
    found = strat.lrsm(base, strat.graphs.path(3)).fit(X, Y, strata=z).result_
    exact = strat.lrsm(base, strat.graphs.path(3), solver=strat.ADMM(tol=1e-9)).fit(X, Y, strata=z).result_
    assert found.status == "converged" and found.objective == pytest.approx(exact.objective, rel=1e-6)


@pytest.mark.parametrize(
    "loss", [cp.huber(y - x @ w - b), cp.abs(y - x @ w - b), cp.power(cp.abs(y - x @ w), 1.5)]
)
@pytest.mark.parametrize("weight", [1e-3, 1e6])
def test_complete_graphs_of_few_records(loss, weight):
    base = strat.BaseModel(loss, 0.1 * cp.norm1(cp.diff(w)) + cp.norm(w), [cp.sum(w) <= 1], data=(x, y))
    model = strat.lrsm(base, strat.graphs.complete(20, weight)).fit(
        X[:45], 3 * Y[:45], strata=np.arange(45) % 20
    )
    assert model.result_.status == "converged"
    best = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert model.result_.objective == pytest.approx(best, rel=1e-6)
