"""Losses with a domain: points at its edge, outside of it, and on the way inside."""

import itertools
import time

import cvxpy as cp
import numpy as np
import pytest

import strat
from strat.model import bound_model
from strat.oracles.clock import OutOfTime, seconds_left, within
from strat.oracles.cone_program import ConeProgram

CVXPYS = ("ignore:Solution may be inaccurate", "ignore:invalid value")
pytestmark = pytest.mark.filterwarnings("ignore::strat.DataWarning", *CVXPYS)
t, y = cp.Variable(name="t"), cp.Parameter(name="y", nonneg=True)
theta, x = cp.Variable(3, name="theta"), cp.Parameter(3, name="x")
u = x @ theta
Y, Z = np.array([1.0, 2.0, 4.0, 8.0]), ["p", "p", "q", "q"]
PAIR = strat.graphs.path(["p", "q"], weight=0.0)
RNG = np.random.default_rng(1)
N, K = 60, 4
STRATA = RNG.integers(0, 3, N)  # the last one has no records
X = np.c_[np.ones(N), RNG.exponential(size=(N, 2))]
TARGETS = RNG.gamma(2.0, size=N) + 0.1
CHAIN = strat.graphs.path(K, weight=1.0)
RIDGE = 0.01 * cp.sum_squares(theta)
S, A = cp.Variable((3, 3), PSD=True, name="S"), cp.Parameter((3, 3), name="A")
V = np.random.default_rng(0).standard_normal((40, 3, 5))
V = V @ V.swapaxes(1, 2)
POLES = {"inverse": cp.tr_inv(S), "fraction": cp.matrix_frac(A, S), "logarithm": -cp.log_det(S)}


def records(loss):
    """The data of a loss of x and y."""
    return {"x": X, "y": TARGETS}, tuple(p for p in (x, y) if p.id in {q.id for q in loss.parameters()})


def fitted(loss, solver=None, make=strat.lrsm, constraints=(), init=None, **data):
    values, names = records(loss)
    base = strat.BaseModel(loss, RIDGE, constraints, data=names)
    options = {"lambda1": 1.0, "lambda2": 0.1, "eta": 0.1, "mu": 0.1} if make is strat.joint else {}
    model = make(base, CHAIN, solver=solver, **options)
    return model.fit(*[(values | data)[p.name()] for p in names], strata=STRATA, init=init)


def assert_optimal(model, rel=1e-6):
    """The fit has CVXPY's minimum for its graph, at which CVXPY may have records a hair outside of the domain."""
    problem = model.to_cvxpy()
    problem.solve(cp.CLARABEL)
    best = problem.solution.opt_val + model.result_.parts["graph"]
    assert model.result_.status == "converged" and model.result_.objective == pytest.approx(best, rel=rel)


#: Finite at the edge, and infinitely steep there: the loss, and its minimiser of labels.
STEEP = {
    "sqrt": (y * t / 2 - cp.sqrt(t), lambda v: 1 / v.mean() ** 2),
    "kl_div": (cp.kl_div(t, y), lambda v: np.exp(np.log(v).mean())),
    "rel_entr": (cp.rel_entr(t, y) - t, lambda v: np.exp(np.log(v).mean())),
    "entr": (-cp.entr(t) - y * t, lambda v: np.exp(v.mean() - 1)),
    "power": (y * t - cp.power(t, 0.3), lambda v: (0.3 / v.mean()) ** (1 / 0.7)),
    "geo_mean": (y * t / 2 - cp.geo_mean(cp.hstack([t, 1.0])), lambda v: 1 / v.mean() ** 2),
}


@pytest.mark.parametrize("loss, best", STEEP.values(), ids=STEEP)
@pytest.mark.parametrize("start", [None, 0.0, 1e3])
def test_steep_edges_are_left(loss, best, start):
    base = strat.BaseModel(loss, data=(y,))
    init = None if start is None else {"theta": {"t": np.full(2, start)}}
    for model in (strat.lrsm(base, PAIR), strat.separate(base), strat.lrsm(base, PAIR, solver=strat.ADMM())):
        assert model.fit(Y, strata=Z, init=init).result_.status == "converged"
        assert model.theta_["t"] == pytest.approx([best(Y[:2]), best(Y[2:])], rel=1e-3)
    assert strat.common(base).fit(Y, strata=Z).theta_["t"] == pytest.approx([best(Y)] * 2, rel=1e-3)


@pytest.mark.parametrize("size", [0.1, 10.0])
@pytest.mark.parametrize("loss", [cp.multiply(y, u) / 2 - cp.sqrt(u), -cp.entr(u) + cp.multiply(y - 1, u)])
def test_steps_do_not_land_on_a_steep_edge(loss, size):
    assert_optimal(fitted(loss, constraints=[theta >= 0], init={"theta": {"theta": np.full((K, 3), size)}}))


def test_records_of_zeros_stay_at_a_steep_edge():
    data = X * (np.arange(N) % 7 > 0)[:, None]
    for loss in (cp.kl_div(u, y), -cp.entr(u) + cp.multiply(y - 1, u)):
        assert_optimal(fitted(loss, x=data))


def test_the_tip_of_a_quadratic_over_a_line_is_left():
    a = cp.Variable(name="a")
    base = strat.BaseModel(cp.quad_over_lin(theta, a) + cp.square(y - u) + a, data=(x, y))
    assert_optimal(strat.lrsm(base, CHAIN).fit(X, TARGETS, strata=STRATA))


@pytest.mark.parametrize("make", [strat.lrsm, strat.joint, strat.separate])
def test_no_infinite_slope_reaches_a_factorisation(make):
    M, S = cp.Variable((2, 3), name="M"), cp.Variable((2, 2), PSD=True, name="S")
    for loss, regularizer in (
        (-cp.sqrt(cp.sum(M)) + cp.sum_squares(y - M), 0.1 * cp.normNuc(M)),
        (-cp.sqrt(M[0, 0]) + cp.sum_squares(y - M), 0.1 * cp.sigma_max(M)),
        (-cp.von_neumann_entr(S) + cp.square(y - cp.trace(S)), 0),
    ):
        base = strat.BaseModel(loss, regularizer, data=(y,))
        options = {"lambda1": 1.0, "lambda2": 0.1} if make is strat.joint else {}
        assert_optimal(make(base, CHAIN, **options).fit(TARGETS, strata=STRATA), 1e-5)


COUNTS = np.where(TARGETS < 2, 0.0, TARGETS)
WALLS = {
    "power": (cp.power(y - u, 1.5) + 0.3 * cp.square(u), {}),
    "counts of zero": (u - cp.multiply(y, cp.log(u)), {"x": X - [0, 0.9, 0.9], "y": COUNTS}),
}


@pytest.mark.parametrize("loss, data", WALLS.values(), ids=WALLS)
@pytest.mark.parametrize("solver", [None, strat.MAPG(), strat.AlternatingMinimization(), strat.Cone()])
def test_fits_go_along_the_edge(loss, data, solver):
    model = fitted(loss, solver, **data)
    assert_optimal(model)
    assert model.result_.residual["theta"] <= 1e-6
    values = records(loss)[0] | data
    assert np.isfinite(model.losses(values["x"], values["y"], strata=STRATA)).all()


@pytest.mark.parametrize("solver", [None, strat.AlternatingMinimization(), strat.Cone()])
def test_raw_columns_along_the_edge(solver):
    rng, beta, age = np.random.default_rng(3), cp.Variable(2, name="beta"), cp.Parameter(2, name="age")
    ages, z = np.c_[rng.integers(18, 90, 200), np.ones(200)], rng.choice(4, 200)
    base = strat.BaseModel(strat.losses.poisson_rate(y, age @ beta), data=(age, y))
    model = strat.lrsm(base, strat.graphs.path(5, weight=3.0), solver=solver)
    assert_optimal(model.fit(ages, rng.poisson(np.clip(ages[:, 0] / 30 - 1, 0, 9)), strata=z))


@pytest.mark.filterwarnings("ignore::strat.ConvergenceWarning")
def test_a_fit_along_an_edge_is_resumed(tmp_path):
    loss, data = WALLS["counts of zero"]
    whole = fitted(loss, strat.AlternatingMinimization(tol=1e-9, max_iter=8), strat.joint, **data)
    path = tmp_path / "state.npz"
    fitted(loss, strat.AlternatingMinimization(tol=1e-9, max_iter=4, checkpoint=path), strat.joint, **data)
    again = strat.AlternatingMinimization(tol=1e-9, max_iter=8, checkpoint=path)
    assert np.array_equal(fitted(loss, again, strat.joint, **data).theta_["theta"], whole.theta_["theta"])


DOMAINS = {
    "logarithm": cp.multiply(y, u) - cp.log(u),
    "power": cp.power(u - y, 1.5),
    "slack": -cp.log(y - u) + cp.square(u),
    "overflow": cp.exp(300 * u) - y * u,
    "nested": -cp.log(1 - cp.exp(u)) - 0.5 * cp.multiply(y, u),
}


@pytest.mark.parametrize("loss", DOMAINS.values(), ids=DOMAINS)
@pytest.mark.filterwarnings("ignore::strat.ConvergenceWarning")
def test_whatever_is_returned_is_inside(loss):
    solvers = [strat.ADMM(max_iter=2), *(s(max_iter=1) for s in (strat.ADMM, strat.NewtonCG, strat.MAPG))]
    for solver in (*solvers, strat.ADMM(time_limit=0), strat.MAPG(step=(0.1, 0.1), max_iter=3)):
        for start in (None, {"theta": {"theta": np.full((K, 3), -2.0)}}):
            model = fitted(loss, solver, init=start)
            assert np.isfinite(model.result_.objective)
            assert np.isfinite(model.losses(X, TARGETS, strata=STRATA)).all()


def test_a_warm_start_is_moved_inside():
    base = strat.BaseModel(cp.square(t) - cp.log(t - y), data=(y,))
    assert_optimal(strat.lrsm(base, PAIR, warm_start=True).fit(Y, strata=Z).fit(Y + 10, strata=Z))


@pytest.mark.parametrize("loss", [DOMAINS["logarithm"], DOMAINS["power"], DOMAINS["nested"], cp.kl_div(u, y)])
def test_cone_programs_find_first_points_too(loss, monkeypatch):
    monkeypatch.setattr(bound_model, "central_points", lambda loss, theta: [])
    assert_optimal(fitted(loss))


def test_a_regularizer_with_a_domain_of_its_own_has_a_first_point():
    base = strat.BaseModel(cp.square(y + u), 0.1 * cp.inv_pos(cp.sum(theta)), data=(x, y))
    far = RNG.normal(size=(N, 3))  # the losses' minimiser, (−1, −1, −1), is outside
    assert_optimal(strat.lrsm(base, CHAIN).fit(np.abs(far), np.abs(far).sum(axis=1), strata=STRATA))


@pytest.mark.parametrize("solver", [None, strat.NewtonCG(), strat.MAPG(), strat.ADMM(tol=1e-8)])
@pytest.mark.parametrize("p", [3, 1.5])
def test_minima_at_the_edge_of_a_regularizer_s_domain(p, solver):
    base = strat.BaseModel(cp.square(y + u), 0.1 * cp.power(cp.sum(theta), p), data=(x, y))
    assert_optimal(strat.lrsm(base, CHAIN, solver=solver).fit(X, TARGETS, strata=STRATA))


def test_the_error_about_first_points_names_a_piece_and_a_record():
    model = strat.lrsm(strat.BaseModel(u - cp.log(x[0] * theta[0]), data=(x,)), CHAIN)
    data = X.copy()
    data[7, 0] = -1.0
    label = STRATA[7]
    with pytest.raises(strat.OptionError, match=rf"\* theta\[0\]\)\) of record \d+ \(stratum {label}\)"):
        model.fit(data, strata=STRATA)


@pytest.mark.parametrize(
    "f", [cp.inv_pos(cp.sqrt(t)), -cp.log(cp.sqrt(t)), cp.exp(-cp.log(t)), cp.square(cp.pos(-cp.log(t)))]
)
def test_strata_without_records_add_nothing(f):
    loss = y * t + f
    oracle = strat.compile(loss, data=(y,)).bind(Y, strata=[0] * 4, strata_order=[0, 1])
    for at in (0.0, -1.0):
        point = np.array([1.0, at])
        value, gradient = oracle.value_and_gradient(point)
        assert value[1] == gradient[1] == oracle.hvp(point, np.ones(2))[1] == 0
    model = strat.lrsm(strat.BaseModel(loss, data=(y,)), strat.graphs.path(["p", "q", "r"])).fit(Y, strata=Z)
    assert model.result_.iterations < 20
    assert_optimal(model)


def test_time_limits_count_the_fits_that_give_a_start():
    model = fitted(cp.square(y - u) + cp.exp(u), strat.MAPG(time_limit=0), strat.joint, init="separate")
    result = model.result_
    assert result.status == "time_limit" and result.iterations == 0
    assert 0 < result.history_seconds[0] <= result.seconds


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("regularizer", [cp.norm1, lambda t: cp.cvar(t, 0.5)], ids=["l1", "cvar"])
@pytest.mark.parametrize("init", ["default", "separate", "random"])
@pytest.mark.parametrize(
    "solver",
    [strat.NewtonCG, strat.MAPG, strat.ADMM, strat.Cone, strat.AlternatingMinimization],
    ids=lambda s: s.__name__,
)
def test_every_solver_and_start_looks_at_the_clock(solver, init, regularizer, monkeypatch):
    ticks = itertools.count(step=1e-3)  # every look takes a millisecond, so that 50 of them are the limit
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    rng = np.random.default_rng(0)
    t, x, y = cp.Variable(3, name="t"), cp.Parameter(3, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-cp.multiply(y, x @ t)), regularizer(t), data=(x, y))
    h = strat.LogDet(0.1, 0.1, 0.1, 0.2) if solver is strat.AlternatingMinimization else strat.FixedGraph()
    method = solver(tol=1e-300, max_iter=10**6, time_limit=0.05)
    model = strat.StratifiedModel(base, strat.graphs.path(6), h, solver=method)
    model.fit(rng.normal(size=(90, 3)), rng.choice([-1.0, 1.0], 90), strata=np.arange(90) % 6, init=init)
    stalled = model.result_.status == "max_iter" and model.result_.iterations < 10**6
    assert model.result_.status == "time_limit" or stalled
    assert next(ticks) < 0.5


def test_the_time_of_what_is_inside_is_that_of_what_is_around_it():
    assert seconds_left() == np.inf
    with within(10.0), within(20.0), within(None):
        assert 0 < seconds_left() <= 10
    with within(0.0), pytest.raises(OutOfTime):
        cones = strat.compile(cp.norm1(cp.cumsum(theta))).bind().flat.cones()
        ConeProgram(1, 3, cones).solve(np.ones((1, 3)), np.ones((1, 3)))


@pytest.mark.filterwarnings("error::strat.DataWarning")  # of cone programs of all records
def test_admm_takes_newton_steps_on_steep_losses_of_records():
    theta, x, v = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="v")
    base = strat.BaseModel(-cp.sqrt(x @ theta + 1) + cp.square(v - x @ theta), data=(x, v))
    X = np.abs(np.random.default_rng(0).normal(size=(20, 2)))
    model = strat.lrsm(base, strat.graphs.path(2), solver=strat.ADMM(tol=1e-8))
    assert_optimal(model.fit(X, X @ [1.0, 2.0], strata=np.arange(20) % 2))


@pytest.mark.parametrize("loss", POLES.values(), ids=POLES)
@pytest.mark.parametrize("size", [None, 1e-9])
def test_starts_next_to_a_pole_are_left(loss, size):
    base = strat.BaseModel(loss + cp.trace(A @ S), 0.3 * cp.normNuc(S) + 0.2 * cp.norm1(S), data=(A,))
    init = size and {"theta": {"S": np.tile(size * np.eye(3), (2, 1, 1))}}
    assert_optimal(strat.lrsm(base, strat.graphs.path(2)).fit(V, strata=np.arange(40) % 2, init=init), 1e-5)


def test_a_fit_that_has_left_a_pole_is_resumed(tmp_path):
    base = strat.BaseModel(POLES["inverse"] + cp.trace(A @ S), data=(A,))
    init = {"theta": {"S": np.tile(1e-9 * np.eye(3), (2, 1, 1))}}

    def fitted(**options):
        model = strat.lrsm(base, strat.graphs.path(2), solver=strat.NewtonCG(**options))
        return model.fit(V, strata=np.arange(40) % 2, init=init).result_

    whole, path = fitted(), tmp_path / "fit"
    with pytest.warns(strat.ConvergenceWarning):
        fitted(max_iter=whole.iterations - 2, checkpoint=path)
    assert fitted(checkpoint=path).history == whole.history


def test_a_matrix_that_is_singular_up_to_rounding_is_outside():
    values = strat.compile(cp.matrix_frac(A[0], S), data=(A,)).bind(np.eye(3)[None], strata=[0])
    inside, outside = np.diag([1.0, 1.0, 1e-9]), np.ones((3, 3)) + 1e-17 * np.eye(3)
    assert np.isfinite(values.value(inside[None])).all() and np.isinf(values.value(outside[None])).all()
