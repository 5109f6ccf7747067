"""All solvers: optima of the whole problem by CVXPY, invariants, certificates, stops, checkpoints, starts, refusals."""

import logging
import warnings
from functools import partial
from types import SimpleNamespace

import cvxpy as cp
import networkx as nx
import numpy as np
import paper_data
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import (
    KINKED,
    LOSSES,
    REGULARIZERS,
    P,
    declared,
    fitted,
    graph,
    mean,
    optimum,
    problem,
    records,
    solved,
)
from problems import solve as run

import strat
from strat.model.bound_model import BoundModel
from strat.solvers import base as solvers_base
from strat.solvers.starts import default_solver, point, solve

H = strat.LogDet(0.5, 0.2, 0.1, 0.2)
FOR_SMOOTH = strat.NewtonCG, strat.MAPG, strat.AlternatingMinimization, strat.Cone
STIFF = graph("chain", 1e7)
GRAPHS = "chain", "grid", "random", "mixed"
#: All pairs of a loss and a regularizer; their number picks the graph, the weights and whether ADMM takes part.
CASES = [(a, b, i + j) for i, a in enumerate(LOSSES) for j, b in enumerate(REGULARIZERS)]


@pytest.mark.parametrize(("loss", "regularizer", "number"), CASES)
def test_every_solver_reaches_the_optimum_of_the_whole_problem(loss, regularizer, number):
    on = graph(GRAPHS[number % 4], weight=200.0 if number % 5 == 0 else 3.0)
    couple = np.array([0.0, 1.0, 2.5]) if number % 3 == 0 and loss != "softmax" else None
    best = optimum(loss, regularizer, on, *records(loss), couple)
    solvers = [make(tol=1e-8) for make in ([strat.Cone] if loss in KINKED else FOR_SMOOTH)]
    for solver in [*solvers, strat.ADMM(tol=3e-7)] if number % 3 == 0 else solvers:
        model = strat.lrsm(declared(loss, regularizer, couple), on, solver=solver)
        result = fitted(model, *records(loss)).result_
        assert result.status == "converged" and max(result.residual.values()) <= solver.tol
        assert result.objective == pytest.approx(best, rel=1e-6)
        for theta in model.theta_["theta"]:
            for c in REGULARIZERS[regularizer][1](cp.Variable(model.theta_["theta"].shape[1:])):
                c.variables()[0].save_value(theta)
                assert np.max(c.violation()) <= 1e-7
        if isinstance(solver, (strat.NewtonCG, strat.MAPG)):
            assert np.all(np.diff(result.history) <= 0)
            assert not isinstance(solver, strat.NewtonCG) or result.iterations <= 15


@pytest.mark.parametrize("solver", [*FOR_SMOOTH, strat.ADMM])
def test_covariances_with_too_few_records(solver):
    """PSD matrix variable, -log_det + trace, fewer records than dimensions, an empty stratum."""
    d, rng, z = 4, np.random.default_rng(1), [0] * 9 + [1] * 2 + [2] * 3
    S, q = cp.Variable((d, d), PSD=True, name="S"), cp.Parameter((d, d), name="Q", PSD=True)
    Y = rng.standard_normal((14, d))
    base = strat.BaseModel(-cp.log_det(S) + cp.trace(S @ q), 0.1 * cp.trace(S), data=(q,))
    model = strat.lrsm(base, strat.graphs.path(4, weight=0.3), solver=solver())
    model.fit(np.einsum("ni,nj->nij", Y, Y), strata=z)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(cp.CLARABEL), rel=1e-6)
    assert np.linalg.eigvalsh(model.theta_["S"]).min() > 0.1
    assert model.theta_["S"] == pytest.approx(model.theta_["S"].swapaxes(1, 2), abs=1e-13)


@pytest.mark.parametrize("solver", [None, strat.ADMM(), strat.MAPG()])
@pytest.mark.parametrize("loss", ["pinball", "logistic"])
def test_one_stratum_and_the_common_model(loss, solver):
    X, y, z, weight = records(loss)
    solver = None if loss in KINKED and isinstance(solver, strat.MAPG) else solver
    one = fitted(strat.lrsm(declared(loss), nx.empty_graph(1), solver=solver), X, y, 0 * z, weight)
    best = optimum(loss, "ridge", nx.empty_graph(1), X, y, 0 * z, weight)
    assert one.result_.objective == pytest.approx(best, rel=1e-6)
    common = fitted(strat.common(declared(loss), graph(), solver=solver), X, y, z, weight).result_
    assert common.objective == pytest.approx(optimum(loss, "ridge", STIFF, X, y, z, weight), rel=1e-5)


@pytest.mark.parametrize("solver", [None, strat.MAPG(), strat.ADMM(), strat.Cone()])
def test_rates_in_a_box(solver):
    _, y, z, weight = records("logistic")
    p, won = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="won")
    base = strat.BaseModel(-won * cp.log(p) - (1 - won) * cp.log(1 - p), data=(won,))
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        model = strat.lrsm(base, graph(), solver=solver).fit(y > 0, strata=z, sample_weight=weight)
    assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-6)
    assert model.theta_["p"].min() >= 1e-5 and model.theta_["p"].max() <= 1 - 1e-5


def test_a_minimum_at_the_edge_of_the_losss_domain_is_finite():
    rate, y = cp.Variable(name="rate"), cp.Parameter(name="y")
    base = strat.BaseModel(rate - y * cp.log(rate), data=(y,))
    model = strat.separate(base, strat.graphs.path(2), solver=strat.ADMM(max_iter=300))
    with warnings.catch_warnings(action="ignore", category=strat.ConvergenceWarning):
        model.fit([0.0, 0.0, 2.0, 4.0], strata=[0, 0, 1, 1])
    assert model.result_.objective == pytest.approx(6 - 6 * np.log(3), abs=1e-5)
    np.testing.assert_allclose(model.theta_["rate"], [0.0, 3.0], atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_a_linear_loss(weight):
    theta, x = cp.Variable(2, name="theta"), cp.Parameter(2, name="x")
    X, on = np.array([[1.0, -2.0], [3.0, 1.0]]), strat.graphs.path(2, weight=weight)
    for regularizer, constraints in ((cp.sum_squares(theta), []), (0, [theta >= -1, theta <= 2])):
        base = strat.BaseModel(x @ theta, regularizer, constraints, data=(x,))
        model = strat.lrsm(base, on, solver=strat.NewtonCG()).fit(X, strata=[0, 1])
        assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-7)


@pytest.mark.parametrize("on", GRAPHS)
def test_quadratics_alone_take_one_factor_and_one_step(on):
    model = strat.lrsm(declared("squares"), graph(on), solver=strat.NewtonCG(tol=1e-9))
    result = fitted(model, *records("squares")).result_
    assert result.status == "converged" and result.iterations <= 2
    again = fitted(model, *records("squares"), init={"theta": model.theta_}).result_
    assert again.status == "converged" and again.objective <= result.objective * (1 + 1e-13)


def test_quadratics_without_curvature_in_some_strata():
    on = strat.graphs.path(5)
    on.add_edge(5, 6)  # a part without records: it stays where it starts
    model = strat.lrsm(mean(), on)
    with pytest.warns(strat.DataWarning):
        theta = model.fit([1.0, 2.0, 6.0], strata=[0, 0, 3]).theta_["mu"]
    assert model.result_.status == "converged"
    np.testing.assert_allclose(theta[5:], 0.0, atol=1e-8)
    assert theta[3] == pytest.approx(theta[4], abs=1e-6)
    assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-8)


def test_the_0_9_quantile_of_concrete():
    X, Y, z, train = paper_data.concrete()
    theta, x, y = cp.Variable(7, name="theta"), cp.Parameter(7, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(LOSSES["pinball"][1](y, x @ theta), 0.005 * cp.sum_squares(theta), data=(x, y))
    model = strat.lrsm(base, strat.graphs.grid(10, 10, weight=0.5))
    model.fit(X[train], Y[train], strata=paper_data.select(z, train))
    assert model.result_.status == "converged" and model.result_.smoothed_objective is None
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(cp.CLARABEL), rel=1e-6)


@pytest.mark.parametrize("solver", [strat.NewtonCG(), strat.MAPG(), strat.ADMM(), strat.Cone()])
@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_units_of_the_data_are_no_reason_to_stop_at_once(solver, loss):
    """With data of size 1e-8 all gradients are below the 1 in the residual."""
    if loss in KINKED and not isinstance(solver, (strat.ADMM, strat.Cone)):
        return
    rng, results, z = np.random.default_rng(0), [], np.arange(200) % 20
    X = rng.standard_normal((200, 6))
    Y = X @ rng.standard_normal(6) + rng.standard_normal(200) + z * 0.1
    for u in (1.0, 1e-8, 1e3):
        theta, x, y = cp.Variable(6), cp.Parameter(6), cp.Parameter()
        f = cp.huber(y - x @ theta, u) if loss == "huber" else u * cp.abs(y - x @ theta)
        base = strat.BaseModel(f, 3 * u**2 * cp.norm1(theta), data=(x, y))
        on = strat.graphs.path(20, weight=5 * u**2)
        results.append(strat.lrsm(base, on, solver=solver).fit(u * X, u * Y, strata=z).result_)
        assert results[-1].status == "converged"
        assert results[-1].objective / u**2 == pytest.approx(results[0].objective, rel=2e-3)
        assert results[-1].iterations < 2 * results[0].iterations + 2


@pytest.mark.parametrize("solver", [strat.NewtonCG, strat.MAPG, strat.ADMM])
def test_the_residual_bounds_the_distance_to_the_optimum(solver):
    loss = "pinball" if solver is strat.ADMM else "logistic"
    model = strat.lrsm(declared(loss), graph())
    best, at = optimum(loss, "ridge", graph(), *records(loss)), fitted(model, *records(loss)).result_.theta
    for most in (1, 4, 12, 300):
        result = fitted(model.set_params(solver=solver(max_iter=most)), *records(loss)).result_
        above = (result.objective - best) / (1 + abs(best))
        assert above <= 10 * result.residual["theta"] * (1 + np.linalg.norm(result.theta - at)) + 1e-9
    assert result.residual["theta"] <= 1e-6


few = settings(max_examples=8, deadline=None, derandomize=True)
sizes, seeds, losses = st.integers(2, 6), st.integers(0, 10**6), st.sampled_from(["logistic", "squares"])


def small(size, seed, loss="logistic", regularizer="l1", weight=1.0):
    """A random connected graph, records in all but perhaps some strata, and a model."""
    rng, on = np.random.default_rng(seed), nx.empty_graph(size)
    for k in range(1, size):
        on.add_edge(k, int(rng.integers(k)), weight=weight * rng.uniform(0.5, 2))
    X, y, z = rng.standard_normal((40, P)), rng.choice([-1.0, 1.0], size=40), rng.integers(size, size=40)
    return strat.lrsm(declared(loss, regularizer), on, solver=strat.NewtonCG(tol=1e-9)), on, X, y, z


def theta_of(model, *data, **options):
    return fitted(model, *data, **options).theta_["theta"]


@few
@given(sizes, seeds, losses)
def test_strong_edges_give_the_common_model(size, seed, loss):
    model, on, *data = small(size, seed, loss, "ridge", weight=1e7)
    common = strat.common(model.base, on, solver=model.solver)
    assert theta_of(model, *data) == pytest.approx(theta_of(common, *data), abs=1e-4)


@few
@given(sizes, seeds, losses)
def test_no_edges_give_the_separate_models(size, seed, loss):
    model, on, X, y, z = small(size, seed, loss)
    separate = fitted(strat.separate(model.base, on, solver=model.solver), X, y, z)
    for k in np.unique(z):
        alone = fitted(strat.separate(model.base), X[z == k], y[z == k], z[z == k])
        assert separate.at(k)["theta"] == pytest.approx(alone.at(k)["theta"], abs=1e-5)
    assert np.array_equal(theta_of(model.set_params(scale=0.0), X, y, z), separate.theta_["theta"])


@few
@given(sizes, seeds)
def test_relabelling_permutes(size, seed):
    model, on, X, y, z = small(size, seed)
    other = nx.Graph()
    other.add_nodes_from(f"s{k}" for k in np.random.default_rng(seed).permutation(size))
    other.add_weighted_edges_from((f"s{i}", f"s{j}", w) for i, j, w in on.edges(data="weight"))
    fitted(model, X, y, z)
    twin = fitted(strat.lrsm(model.base, other, solver=model.solver), X, y, [f"s{k}" for k in z])
    for k in range(size):
        assert twin.at(f"s{k}")["theta"] == pytest.approx(model.at(k)["theta"], abs=1e-6)


@few
@given(sizes, seeds)
def test_weights_count_records(size, seed):
    model, _, *data = small(size, seed)
    weight = np.r_[1, np.random.default_rng(seed).integers(3, size=39)]
    copies = (np.repeat(a, weight, axis=0) for a in data)
    assert theta_of(model, *data, weight) == pytest.approx(theta_of(model, *copies), abs=1e-6)


@pytest.mark.parametrize("make", [strat.lrsm, strat.separate])
def test_a_stratum_with_nothing_gets_the_regularizers_minimiser(make):
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    on, Y = nx.Graph([("a", "b")]), [[0.0, 0.0], [9.0, 9.0]]
    on.add_node("c")
    base = strat.BaseModel(cp.sum_squares(theta - y), cp.norm1(theta - np.array([3.0, -2.0])), data=(y,))
    with pytest.warns(strat.DataWarning, match="The stratum 'c' has neither records nor edges"):
        model = make(base, on).fit(Y, strata=["a", "b"])
    assert model.at("c")["theta"] == pytest.approx([3.0, -2.0], abs=1e-9)
    assert any("'c'" in note and "regularizer's minimiser" in note for note in model.result_.notes)
    with pytest.warns(strat.DataWarning, match="stay at the start"):
        model = make(strat.BaseModel(base.loss, data=(y,)), on).fit(Y, strata=["a", "b"])
    assert np.array_equal(model.at("c")["theta"], [0.0, 0.0])


FIXED = partial(strat.MAPG, step=(1e-2, 1e-2))
RUNS = {
    "NewtonCG": (strat.NewtonCG, None, "logistic"),
    "MAPG": (strat.MAPG, None, "logistic"),
    "Cone": (strat.Cone, None, "pinball"),
    "ADMM": (strat.ADMM, None, "pinball"),
    "ADMM of smooth losses": (strat.ADMM, None, "logistic"),
    "MAPG, learned": (strat.MAPG, H, "logistic"),
    "MAPG, fixed steps": (FIXED, H, "logistic"),
    "Alternating": (strat.AlternatingMinimization, H, "logistic"),
    "Alternating, kinks": (strat.AlternatingMinimization, H, "pinball"),
}
runs = pytest.mark.parametrize(("make", "h", "loss"), RUNS.values(), ids=RUNS)


@runs
@pytest.mark.filterwarnings("ignore::strat.DataWarning")
def test_stops_and_checkpoints(make, h, loss, tmp_path):
    path, seen, couple = tmp_path / "state.npz", [], np.array([1.0, 0.0, 2.0])
    p = problem(loss, "ridge", h, couple=couple, solver=make())
    whole = run(p, make(tol=0, max_iter=9))
    assert whole.status == "max_iter" and len(whole.history) <= 10
    assert run(p, make(tol=0, time_limit=0)).status == "time_limit"
    stopped = run(p, make(tol=0, callback=lambda state: seen.append(state.objective) or len(seen) == 3))
    assert stopped.status == "interrupted" and seen == stopped.history[1:] == whole.history[1:4]
    run(p, make(tol=0, max_iter=3, checkpoint=path))
    resumed = run(p, make(tol=0, max_iter=9, checkpoint=path))
    assert resumed.history == whole.history and np.array_equal(resumed.w, whole.w)
    assert np.array_equal(resumed.theta, whole.theta)
    assert run(p, make(tol=1e-2, max_iter=4000, checkpoint=path)).status == "converged" and not path.exists()


@runs
@pytest.mark.filterwarnings("ignore::strat.DataWarning")
def test_ctrl_c_returns_the_best_point(make, h, loss):
    def stop(state):
        if state.iteration == 3:
            raise KeyboardInterrupt

    result = run(problem(loss, "ridge", h, solver=make()), make(tol=0, callback=stop))
    assert result.status == "interrupted"
    assert result.objective == pytest.approx(min(result.history), rel=1e-12)


def test_ctrl_c_within_an_iteration_leaves_a_whole_point():
    p, calls = problem(h=H), []
    value = p.loss.value

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 17:
            raise KeyboardInterrupt
        return value(*arguments)

    p.loss.value = interrupted
    result = run(p, strat.MAPG(tol=0))
    assert result.status == "interrupted" and result.objective <= result.history[-1]
    assert result.objective == pytest.approx(p.objective(result.theta, result.w), rel=1e-12)


def test_the_warning_about_max_iter_and_the_log_say_what_was_reached(caplog):
    model = strat.lrsm(declared("logistic"), graph(), solver=strat.MAPG(max_iter=2, verbose=True))
    X, y, z, _ = records("logistic")
    with caplog.at_level(logging.INFO, "strat"), pytest.warns() as found:
        model.fit(X, y, strata=z)
    text = str([w.message for w in found if w.category is strat.ConvergenceWarning][0])
    assert "MAPG stopped with residual" in text and "max_iter=2 is reached" in text
    assert "MAPG  iteration" in caplog.text and "residual" in caplog.text
    assert len(model.result_.history) == 3 and str(model.result_).startswith("status      max_iter after")


def test_starts_by_name_and_by_value():
    p = problem(h=H)
    assert not point(p, "zero")[0].any() and np.array_equal(point(p, "zero")[1], p.w0)
    assert point(problem(regularizer="simplex", h=H), "default")[0].sum(axis=1) == pytest.approx(np.ones(p.K))
    theta, w = point(p, "separate")
    assert np.linalg.norm(theta - p.prox(theta - p.loss.value_and_gradient(theta)[1], 1.0)) < 0.05
    assert not theta[3].any() and not theta[9].any()  # no records
    theta, w = point(p, "lrsm")
    assert p.residual(theta, w)["theta"] < 1e-3 and theta[3].any()
    a, b, c = (point(p, "random", seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    theta, w = point(p, {"theta": np.ones((p.K, P))})
    assert np.all(theta == 1) and np.array_equal(w, p.w0)
    w = np.ones(p.edges.count)
    assert point(p, {"w": w})[1] is w
    with pytest.raises(strat.OptionError, match="init = 'best' is unknown"):
        point(p, "best")


def test_the_best_of_several_starts_is_kept():
    p = problem(h=H)
    result = solve(p, strat.MAPG(), n_starts=6)
    names = ["default", "zero", "separate", "lrsm", "random 1", "random 2"]
    assert [s["init"] for s in result.starts] == names
    assert result.objective == min(s["objective"] for s in result.starts)
    assert [s["init"] for s in solve(p, strat.MAPG(), {}, n_starts=2).starts] == ["given", "default"]
    by_score = solve(p, strat.MAPG(patience=2), n_starts=3, score=lambda theta: -np.abs(theta).sum())
    assert by_score.init in ("default", "separate")
    stopped = solve(p, strat.MAPG(callback=lambda state: True), n_starts=4)
    assert stopped.status == "interrupted" and len(stopped.starts) == 1


@pytest.mark.parametrize("solver", [strat.MAPG, strat.NewtonCG])
def test_a_start_outside_the_constraints_is_projected(solver):
    p = problem(regularizer="box")
    start = {"theta": solve(problem(regularizer="ridge"), solver()).theta * 3}
    assert np.abs(start["theta"]).max() > 0.4
    result = solve(p, solver(tol=1e-8), start)
    assert result.status == "converged" and np.abs(result.theta).max() <= 0.4
    assert result.objective == pytest.approx(solve(p, solver(tol=1e-8)).objective, rel=1e-12)
    assert np.array_equal(point(p, {"theta": np.full((p.K, P), 0.1)})[0], np.full((p.K, P), 0.1))


def test_a_start_outside_the_domain_is_an_error():
    p, y = cp.Variable(name="p"), cp.Parameter(name="y")
    model = strat.separate(strat.BaseModel(p - y * cp.log(p), data=(y,)))
    seen = BoundModel(model, (np.ones(3),), [0, 1, 2]).problem()
    text = r"init: the loss of stratum number 0 \(3 in all\) is not finite"
    with pytest.raises(strat.OptionError, match=text):
        strat.MAPG()._run(seen, np.zeros((3, 1)), seen.w0)


@pytest.mark.parametrize("loss", ["logistic", "absolute"])
def test_warm_starts_at_the_optimum_stay_there_and_named_starts_need_no_gradient(loss):
    model = strat.lrsm(declared(loss), graph(), solver=strat.ADMM(tol=1e-9), warm_start=True)
    cold = fitted(model, *records(loss)).result_.iterations
    assert fitted(model.set_params(solver=strat.ADMM()), *records(loss)).result_.iterations <= 0.5 * cold
    for init in ("separate", "lrsm"):
        result = fitted(strat.lrsm(declared(loss), graph()), *records(loss), init=init).result_
        assert result.status == "converged" and result.init == init


def test_the_default_follows_loss_regularizer_and_graph():
    smooth, kinked = problem("logistic"), problem("pinball")
    assert type(default_solver(smooth.loss, learned=False)) is strat.NewtonCG
    assert type(default_solver(smooth.loss, learned=True)) is strat.MAPG
    assert type(default_solver(kinked.loss, learned=False)) is strat.Cone
    cones = strat.compile(cp.log_sum_exp(cp.hstack([cp.norm(cp.Variable(2)), 1]))).bind_regularizer()
    assert type(default_solver(smooth.loss, learned=False, regularizer=cones)) is strat.Cone


@pytest.mark.parametrize(
    ("solver", "part", "has", "match"),
    [
        (strat.NewtonCG(), "loss", ("value_and_gradient",), r"needs the Hessian product of the loss.*\n.*strat\.MAPG\(\)"),
        (strat.MAPG(), "loss", ("prox",), r"MAPG needs the gradient of the loss.*\n.*strat\.Cone\(\).*smoothing=1e-3"),
        (strat.MAPG(), "regularizer", (), "MAPG needs the prox of the regularizer"),
        (strat.AlternatingMinimization(), "loss", (), "needs the gradient or the cone program of the loss"),
    ],
)  # fmt: skip
def test_missing_oracles_are_named(solver, part, has, match):
    p = problem(h=H if isinstance(solver, strat.AlternatingMinimization) else None)
    getattr(p, part).has = lambda name: name in has
    with pytest.raises(strat.NoOracleError, match=match):
        solve(p, solver)


@pytest.mark.parametrize(
    ("solver", "match"),
    [
        (strat.NewtonCG(), r"NewtonCG fits theta for a given graph.*learns W.*strat\.MAPG\(\)"),
        (strat.ADMM(), r"ADMM fits theta for a given graph, but LogDet.*AlternatingMinimization"),
        (strat.Cone(), "Cone fits theta for a given graph"),
        # Options of all solvers, and MAPG's own.
        (strat.MAPG(tol=-1), "tol = -1 is out of range: it must be a number of at least 0"),
        (strat.AlternatingMinimization(max_iter=-1), "max_iter = -1 is out of range"),
        (strat.MAPG(max_iter=1.5), "max_iter = 1.5 is out of range"),
        (strat.MAPG(patience=0), "patience = 0"),
        (strat.MAPG(patience=3), "patience watches the validation loss"),
        (strat.MAPG(time_limit="long"), "time_limit = 'long'"),
        (strat.MAPG(callback=3), "callback = 3"),
        (strat.MAPG(checkpoint=3), "checkpoint = 3 is no path"),
        (strat.MAPG(step=0.1), r"step = 0.1 is out of range: .* two numbers \(alpha_x, alpha_y\) above 0"),
        (strat.MAPG(step=(1, 0)), "step"),
    ],
)
def test_solvers_and_options_that_do_not_fit_are_refused(solver, match):
    with pytest.raises(strat.OptionError, match=match):
        solve(problem(h=H), solver)


def test_a_loss_without_another_prox_takes_cone_programs_and_a_warning_says_so():
    theta, x, y = cp.Variable(P, name="theta"), cp.Parameter(P, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.norm2(cp.hstack([y - x @ theta, 2 * theta])), data=(x, y))
    model, (X, Y, z, weight) = strat.lrsm(base, graph(), solver=strat.ADMM()), records("squares")
    text = r"a cone program of all records in every iteration.*strat\.Cone\(\)"
    with pytest.warns(strat.DataWarning, match=text):
        model.fit(X, Y, strata=z, sample_weight=weight)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-6)


@pytest.mark.parametrize(("K", "seconds"), [(2000, [1.0, 2.0]), (2000, [2.0, 1.0]), (1999, [1.0, 2.0])])
def test_more_blas_threads_than_one_work_where_they_are_faster(K, seconds, monkeypatch):
    edges, calls = SimpleNamespace(sparse=False), iter(seconds)
    monkeypatch.setattr(solvers_base, "timeit", lambda factor, number: next(calls))
    before = threadpoolctl.threadpool_info()
    with solvers_base._blas_threads(SimpleNamespace(learned=True, K=K, edges=edges)):
        counts = [p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    all_of_them = [pool["num_threads"] for pool in before if pool["user_api"] == "blas"]
    assert counts == (all_of_them if (K, seconds[0]) == (2000, 1.0) else [1] * len(counts))
    assert threadpoolctl.threadpool_info() == before
