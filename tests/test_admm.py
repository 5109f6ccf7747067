"""ADMM: optima against one CVXPY solve of the whole problem, certificates, the stops, and the proxes that it warms."""

import warnings

import cvxpy as cp
import handmade
import networkx as nx
import numpy as np
import paper_data
import pytest

import strat
from strat.model.bound_model import BoundModel
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.solvers import consensus
from strat.solvers.newton_system import GraphSystem

K, N, P = 12, 90, 3


def graph():
    """A path, a pair, an edge of weight zero, two strata alone."""
    found = nx.Graph()
    found.add_nodes_from(range(K))
    found.add_weighted_edges_from((i, i + 1, 1.0 + i) for i in range(4))
    found.add_weighted_edges_from([(5, 6, 0.0), (6, 7, 2.0), (8, 9, 0.3)])
    return found


def records(seed=0):
    """X, targets, strata (3 and 11 are empty) and weights, one of them zero."""
    rng = np.random.default_rng(seed)
    strata = rng.choice([0, 1, 2, 4, 5, 6, 7, 8, 9, 10], size=N)
    X, weight = rng.standard_normal((N, P)), rng.random(N) + 0.2
    y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(N)
    weight[3] = 0.0
    signs, counts, labels = np.sign(y), rng.poisson(2, N).astype(float), np.eye(3)[rng.integers(3, size=N)]
    return X, {"y": y, "sign": signs, "count": counts, "label": labels}, strata.tolist(), weight


#: Loss of (target, x @ theta), elementwise: of one record and of all.
LOSSES = {
    "least squares": ("y", lambda y, u: cp.square(y - u)),
    "huber": ("y", lambda y, u: cp.huber(y - u, 0.5)),
    "pinball": ("y", lambda y, u: cp.maximum(0.9 * (y - u), -0.1 * (y - u))),
    "absolute": ("y", lambda y, u: cp.abs(y - u)),
    "epsilon": ("y", lambda y, u: cp.pos(cp.abs(y - u) - 0.3)),
    "hinge": ("sign", lambda y, u: cp.pos(1 - cp.multiply(y, u))),
    "logistic": ("sign", lambda y, u: cp.logistic(-cp.multiply(y, u))),
    "poisson": ("count", lambda y, u: cp.exp(u) - cp.multiply(y, u)),
}
REGULARIZERS = {
    "ridge": (lambda t: 0.1 * cp.sum_squares(t), lambda t: []),
    "l1": (lambda t: 0.3 * cp.norm1(t), lambda t: []),
    "group": (lambda t: 0.5 * cp.norm2(t), lambda t: []),
    "box": (lambda t: 0.01 * cp.sum_squares(t), lambda t: [t <= 0.4, t >= -0.2]),
    "simplex": (lambda t: 0, lambda t: [t >= 0, cp.sum(t) == 1]),
    "l1 ball": (lambda t: 0, lambda t: [cp.norm1(t) <= 0.7]),
}
#: All pairs; a third of them, in which each occurs, in the fast suite.
CASES = [
    pytest.param(loss, regularizer, marks=[pytest.mark.slow] if (i + j) % 3 else [])
    for i, loss in enumerate(LOSSES)
    for j, regularizer in enumerate(REGULARIZERS)
]


def whole(theta, total, regularizer, constraints, couple=None):
    """Minimum of loss + regularizer + Laplacian term, by CVXPY."""
    rows = [theta[k] for k in range(theta.shape[0])]
    couple = np.ones(theta.shape[1]) if couple is None else couple
    total = total + sum(regularizer(t) for t in rows)
    for i, j, w in graph().edges(data="weight"):
        total += w / 2 * couple @ cp.square(theta[i] - theta[j])
    problem = cp.Problem(cp.Minimize(total), [c for t in rows for c in constraints(t)])
    return problem.solve(cp.CLARABEL, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10))


def fitted(model, *data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)
        warnings.simplefilter("ignore", strat.ConvergenceWarning)
        return model.fit(*data, **options)


def declared(loss, regularizer="ridge", **options):
    theta, x, y = cp.Variable(P, name="theta"), cp.Parameter(P, name="x"), cp.Parameter(name="y")
    r, constraints = REGULARIZERS[regularizer]
    couple = options.pop("couple", None)
    couple = None if couple is None else {theta: couple}
    return strat.BaseModel(
        LOSSES[loss][1](y, x @ theta),
        r(theta),
        data=(x, y),
        constraints=constraints(theta),
        couple=couple,
        **options,
    )


def problem(loss="pinball", regularizer="ridge", **options):
    """What the solver sees, with its start."""
    X, targets, strata, weight = records()
    model = strat.lrsm(declared(loss, regularizer, **options), graph(), solver=strat.ADMM())
    return BoundModel(model, (X, targets[LOSSES[loss][0]]), strata, weight).problem()


def solve(p, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.ConvergenceWarning)
        return strat.ADMM(**options).run(p, p.prox(np.zeros((p.K, p.n)), 1.0), p.w0)


# ----------------------------------------------------------------- optima


@pytest.mark.parametrize(("loss", "regularizer"), CASES)
def test_against_one_cvxpy_solve(loss, regularizer):
    X, targets, strata, weight = records()
    y = targets[LOSSES[loss][0]]
    couple = np.array([1.0, 0.0, 2.5]) if regularizer == "l1" else None
    base = declared(loss, regularizer, couple=couple)
    model = fitted(
        strat.lrsm(base, graph(), solver=strat.ADMM(tol=3e-7)), X, y, strata=strata, sample_weight=weight
    )
    theta = cp.Variable((K, P))
    u = cp.sum(cp.multiply(X, theta[strata]), axis=1)
    best = whole(theta, weight @ LOSSES[loss][1](y, u), *REGULARIZERS[regularizer], couple)
    result = model.result_
    assert result.status == "converged"
    assert result.residual["theta"] <= 3e-7
    assert result.objective == pytest.approx(best, rel=1e-6)
    fit = model.theta_["theta"]
    if regularizer == "box":
        assert fit.min() >= -0.2 and fit.max() <= 0.4
    if regularizer == "simplex":
        assert fit.min() >= 0 and np.abs(fit.sum(axis=1) - 1).max() <= 1e-12
    if regularizer == "l1 ball":
        assert np.abs(fit).sum(axis=1).max() <= 0.7 + 1e-12


@pytest.mark.parametrize("regularizer", ["ridge", "l1 ball"])
def test_softmax_against_one_cvxpy_solve(regularizer):
    X, targets, strata, weight = records()
    theta, x, y = cp.Variable((P, 3), name="theta"), cp.Parameter(P, name="x"), cp.Parameter(3, name="y")
    r, constraints = REGULARIZERS[regularizer]
    base = strat.BaseModel(
        cp.log_sum_exp(x @ theta) - (x @ theta) @ y, r(theta), data=(x, y), constraints=constraints(theta)
    )
    model = strat.lrsm(base, graph(), solver=strat.ADMM())
    fitted(model, X, targets["label"], strata=strata, sample_weight=weight)
    all_theta = cp.Variable((K, 3 * P))
    u = cp.hstack([cp.sum(cp.multiply(X, all_theta[strata, c::3]), axis=1, keepdims=True) for c in range(3)])
    total = weight @ (cp.log_sum_exp(u, axis=1) - cp.sum(cp.multiply(u, targets["label"]), axis=1))
    best = whole(all_theta, total, r, constraints)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(best, rel=1e-6)


def test_rates_in_a_box_against_one_cvxpy_solve():
    X, targets, strata, weight = records()
    won = (targets["y"] > 0).astype(float)
    p, y = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="y")
    base = strat.BaseModel(-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,))
    model = strat.lrsm(base, graph(), solver=strat.ADMM())
    fitted(model, won, strata=strata, sample_weight=weight)
    rates = cp.Variable((K, 1))
    wins, losses = (np.bincount(strata, weight * w, K) for w in (won, 1 - won))
    seen = np.flatnonzero(wins + losses)
    total = -wins[seen] @ cp.log(rates[seen, 0]) - losses[seen] @ cp.log(1 - rates[seen, 0])
    best = whole(rates, total, lambda t: 0, lambda t: [t >= 1e-5, t <= 1 - 1e-5])
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(best, rel=1e-6)
    assert model.theta_["p"].min() >= 1e-5


@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_covariances_stay_positive_definite(penalty):
    rng, d = np.random.default_rng(1), 4
    Y = rng.standard_normal((14, d))
    Q, strata = np.einsum("ni,nj->nij", Y, Y), [0] * 9 + [1] * 2 + [2] * 3  # stratum 3 has no record
    S, q = cp.Variable((d, d), PSD=True, name="S"), cp.Parameter((d, d), name="Q", PSD=True)
    base = strat.BaseModel(-cp.log_det(S) + cp.trace(S @ q), penalty * cp.sum_squares(S), data=(q,))
    model = strat.lrsm(base, strat.graphs.path(4, weight=0.3), solver=strat.ADMM()).fit(Q, strata=strata)
    all_S = [cp.Variable((d, d), PSD=True) for _ in range(4)]
    total = sum(-cp.log_det(all_S[k]) + cp.trace(all_S[k] @ M) for k, M in zip(strata, Q, strict=True))
    total += sum(penalty * cp.sum_squares(M) for M in all_S)
    total += sum(0.15 * cp.sum_squares(all_S[k] - all_S[k + 1]) for k in range(3))
    best = cp.Problem(cp.Minimize(total)).solve(cp.CLARABEL)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(best, rel=1e-6)
    assert np.linalg.eigvalsh(model.theta_["S"]).min() > 0.1
    assert np.array_equal(model.theta_["S"], np.swapaxes(model.theta_["S"], 1, 2))


@pytest.mark.parametrize("loss", ["pinball", "logistic"])
def test_one_stratum_and_the_common_model(loss):
    X, targets, strata, weight = records()
    y, base = targets[LOSSES[loss][0]], declared(loss)
    theta = cp.Variable(P)
    total = LOSSES[loss][1](y, X @ theta)
    for model, regularizer_weight in (
        (strat.lrsm(base, strat.graphs.path(1), solver=strat.ADMM()), 1),
        (strat.common(base, graph(), solver=strat.ADMM()), K),
    ):
        ridge = regularizer_weight * 0.1 * cp.sum_squares(theta)
        best = cp.Problem(cp.Minimize(cp.sum(total) + ridge)).solve(cp.CLARABEL)
        model.fit(X, y, strata=[0] * N if regularizer_weight == 1 else strata)
        assert model.result_.status == "converged"
        assert model.result_.objective == pytest.approx(best, rel=1e-6)


def test_a_minimum_at_the_edge_of_the_losss_domain_is_finite():
    rate, y = cp.Variable(name="rate"), cp.Parameter(name="y")
    base = strat.BaseModel(rate - y * cp.log(rate), data=(y,))
    model = strat.separate(base, strat.graphs.path(2), solver=strat.ADMM(max_iter=300))
    fitted(model, [0.0, 0.0, 2.0, 4.0], strata=[0, 0, 1, 1])
    assert model.result_.objective == pytest.approx(6 - 6 * np.log(3), abs=1e-5)
    np.testing.assert_allclose(model.theta_["rate"], [0.0, 3.0], atol=1e-5)


def test_wine():
    X, Y, z, train = paper_data.wine()
    theta, x, y = cp.Variable((9, 2), name="theta"), cp.Parameter(9, name="x"), cp.Parameter(2, name="y")
    base = strat.BaseModel(cp.log_sum_exp(x @ theta) - (x @ theta) @ y, 0.01 * cp.norm1(theta), data=(x, y))
    model = strat.lrsm(base, paper_data.wine_graph(), solver=strat.ADMM())
    model.fit(X[train], Y[train], strata=paper_data.select(z, train))
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(691.381464702, rel=1e-7)  # that of all solvers


def test_election():
    outcome, z, train = paper_data.election()
    p, y = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="y")
    base = strat.BaseModel(-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,))
    model = strat.lrsm(base, paper_data.election_graph(), solver=strat.ADMM())
    model.fit(outcome[train], strata=paper_data.select(z, train))
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(293.770630055, rel=1e-7)  # that of all solvers


def test_the_0_9_quantile_of_concrete():
    X, Y, z, train = paper_data.concrete()
    X, Y, z = X[train], Y[train], paper_data.select(z, train)
    theta, x, y = cp.Variable(7, name="theta"), cp.Parameter(7, name="x"), cp.Parameter(name="y")
    residual = y - x @ theta
    base = strat.BaseModel(
        cp.maximum(0.9 * residual, -0.1 * residual), 0.005 * cp.sum_squares(theta), data=(x, y)
    )
    path = strat.graphs.path(range(10), weight=0.5)
    model = strat.lrsm(base, strat.graphs.product(path, path)).fit(X, Y, strata=z)  # ADMM by default
    index = {label: k for k, label in enumerate(model.strata_)}
    full = cp.Variable((100, 7))
    residuals = Y - cp.sum(cp.multiply(X, full[[index[label] for label in z]]), axis=1)
    ends = np.array([(index[a], index[b]) for a, b in model.graph.edges])
    total = cp.sum(cp.maximum(0.9 * residuals, -0.1 * residuals)) + 0.005 * cp.sum_squares(full)
    total += 0.25 * cp.sum_squares(full[ends[:, 0]] - full[ends[:, 1]])
    best = cp.Problem(cp.Minimize(total)).solve(cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10)
    assert model.result_.status == "converged"
    assert model.result_.objective == pytest.approx(best, rel=1e-6)
    assert model.result_.smoothed_objective is None


# ----------------------------------------------------------------- which solver, and what it needs


def test_a_loss_without_a_gradient_gets_cones_where_the_graph_is_given():
    X, targets, strata, weight = records()
    base, data = declared("pinball"), (X, targets["y"])
    given = fitted(strat.lrsm(base, graph()), *data, strata=strata, sample_weight=weight)
    named = strat.lrsm(base, graph(), solver=strat.Cone())
    fitted(named, *data, strata=strata, sample_weight=weight)
    assert given.result_.history == named.result_.history
    with pytest.raises(
        strat.NoOracleError, match=r"MAPG needs the gradient.*\n.*strat\.Cone\(\).*smoothing=1e-3"
    ):
        fitted(strat.lrsm(base, graph(), solver=strat.MAPG()), *data, strata=strata)
    with pytest.raises(strat.NoOracleError, match="MAPG needs the gradient"):
        strat.joint(base, graph(), lambda1=1.0, lambda2=1.0, eta=0.1, mu=0.1).fit(*data, strata=strata)


def test_a_learned_graph_is_refused():
    X, targets, strata, _ = records()
    h = strat.LogDet(lambda1=1.0, lambda2=1.0, eta=0.1, mu=0.1)
    model = strat.StratifiedModel(declared("pinball"), graph(), h, solver=strat.ADMM())
    with pytest.raises(
        strat.OptionError, match=r"ADMM fits a given graph, but LogDet.*AlternatingMinimization"
    ):
        model.fit(X, targets["y"], strata=strata)


def test_a_loss_without_another_prox_takes_cone_programs_and_a_warning_says_so():
    X, targets, strata, weight = records()
    theta, x, y = cp.Variable(P, name="theta"), cp.Parameter(P, name="x"), cp.Parameter(name="y")
    u = y - x @ theta
    base = strat.BaseModel(cp.norm2(cp.hstack([u, 2 * theta])), data=(x, y))
    model = strat.lrsm(base, graph(), solver=strat.ADMM())
    text = r"a cone program of all records in every iteration.*strat\.Cone\(\)"
    with pytest.warns(strat.DataWarning, match=text):
        model.fit(X, targets["y"], strata=strata, sample_weight=weight)
    assert model.result_.status == "converged"
    best = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert model.result_.objective == pytest.approx(best, rel=1e-6)


def test_a_start_fitted_without_a_gradient():
    X, targets, strata, weight = records()
    for init in ("separate", "lrsm"):
        model = strat.lrsm(declared("absolute"), graph())
        fitted(model, X, targets["y"], strata=strata, init=init)
        assert model.result_.status == "converged"
        assert model.result_.init == init


@pytest.mark.parametrize("loss", ["logistic", "absolute"])
def test_a_warm_start_at_the_optimum_stays_there(loss):
    X, targets, strata, _ = records()
    model = strat.lrsm(declared(loss), graph(), solver=strat.ADMM(tol=1e-9), warm_start=True)
    fitted(model, X, targets[LOSSES[loss][0]], strata=strata)
    cold = model.result_.iterations
    model.solver = strat.ADMM()
    fitted(model, X, targets[LOSSES[loss][0]], strata=strata)
    assert model.result_.iterations <= 0.5 * cold


# ----------------------------------------------------------------- certificate


@pytest.mark.parametrize("regularizer", ["ridge", "l1"])
def test_the_certificate_bounds_the_distance_to_the_optimum(regularizer):
    p = problem("pinball", regularizer)
    algorithm = consensus.Consensus(p, np.zeros((K, P)), p.w0)
    while (algorithm.residual(1e-10) or {"theta": 1.0})["theta"] > 1e-10:
        algorithm.step()
    best, optimum = algorithm.x.theta.copy(), algorithm.x.objective
    rng = np.random.default_rng(0)
    for size in (0.0, 1e-6, 1e-3, 1.0):
        theta = best + size * rng.standard_normal(best.shape)
        found = algorithm.subgradient_residual(theta, p.w0)["theta"]
        above = (p.objective(theta, p.w0) - optimum) / (1 + abs(optimum))
        assert above <= 10 * found * (1 + np.linalg.norm(theta - best)) + 1e-11
        assert found <= 1e-9 if size == 0 else found > 1e-3 * size


def test_the_certificate_of_a_smooth_loss_is_that_of_every_solver():
    p = problem("logistic", "l1")
    result = solve(p)
    assert result.residual == p.residual(result.theta, p.w0)
    assert result.residual["theta"] <= 1e-6


# ----------------------------------------------------------------- the graph's system


@pytest.mark.parametrize("edges", [AllPairs(6), EdgeList(6, [0, 1, 2, 4], [1, 2, 3, 5])])
@pytest.mark.parametrize("couple", [None, np.array([1.0, 0.0, 2.0, 1.0])])
@pytest.mark.parametrize("exact", [True, False])
def test_systems_with_the_graph(edges, couple, exact, monkeypatch):
    rng = np.random.default_rng(0)
    w = edges.from_vector(rng.random(edges.count))
    loss = handmade.LeastSquares(np.ones((1, 4)), [0.0], [0], 6)
    p = JointProblem(loss, handmade.Zero(), FixedGraph(), edges, w, couple)
    if not exact:  # as on a graph whose factor would be too full
        degrees = edges.degrees(w)
        monkeypatch.setattr(
            type(edges), "solver", lambda self, w, shift: lambda b: b / (degrees + shift)[:, None]
        )
    system, weights = GraphSystem(p, w), np.ones(4) if couple is None else couple
    for rho in (0.7, 3.0, 3.0):
        b = rng.standard_normal((6, 4))
        x = system.solve(b, rho, rng.standard_normal((6, 4)))
        np.testing.assert_allclose(edges.dense_laplacian(w) @ x * weights + 2 * rho * x, b, atol=1e-8)
    assert system.preconditioner.factorizations == (2 if couple is None else 4)


# ----------------------------------------------------------------- proxes from nearby


@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber"])
@pytest.mark.parametrize("distance", [1e-12, 1e-4, 1.0, 100.0])
def test_a_prox_from_nearby_is_the_prox(loss, distance):
    p = problem(loss)
    rng = np.random.default_rng(2)
    v, t = rng.standard_normal((K, P)), rng.uniform(0.1, 10.0, K)
    expected = p.loss.prox(v, t)
    z = p.loss.prox(v + distance * rng.standard_normal((K, P)), t)
    np.testing.assert_allclose(p.loss.prox.near(v, t, z), expected, atol=1e-9)


# ----------------------------------------------------------------- the stops


def test_stops_and_history():
    p = problem()
    assert solve(p, tol=0, time_limit=0).status == "time_limit"
    seen = []
    result = solve(p, tol=0, callback=lambda s: seen.append(s.objective) or len(seen) == 4)
    assert result.status == "interrupted" and seen == result.history[1:]
    with pytest.warns(strat.ConvergenceWarning, match=r"ADMM stopped with residual .* max_iter=2 is reached"):
        result = strat.ADMM(max_iter=2).run(p, np.zeros((p.K, p.n)), p.w0)
    assert result.status == "max_iter" and len(result.history) == 3
    assert result.factorizations == 1


def test_keyboard_interrupt_returns_the_best_iterate():
    def stop(state):
        if state.iteration == 6:
            raise KeyboardInterrupt

    result = solve(problem(), tol=0, callback=stop)
    assert result.status == "interrupted"
    assert result.objective == pytest.approx(min(result.history), rel=1e-12)


@pytest.mark.parametrize(("loss", "couple"), [("pinball", None), ("logistic", np.array([1.0, 0.0, 2.0]))])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, loss, couple):
    path, p = tmp_path / "state.npz", problem(loss, couple=couple)
    whole_run = solve(p, tol=0, max_iter=25)
    solve(p, tol=0, max_iter=9, checkpoint=path)
    resumed = solve(p, tol=0, max_iter=25, checkpoint=path)
    assert resumed.history == whole_run.history
    assert np.array_equal(resumed.theta, whole_run.theta)
    assert resumed.factorizations <= whole_run.factorizations + 2
    assert solve(p, checkpoint=path).status == "converged"
    assert not path.exists()


def test_deterministic():
    assert solve(problem()).history == solve(problem()).history
