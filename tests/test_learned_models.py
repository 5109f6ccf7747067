"""Joint fits with every graph regularizer: stationarity, monotone objectives, starts, the estimator."""

import cvxpy as cp
import numpy as np
import paper_data
import pytest
from problems import graph as graph_of
from problems import mean, problem
from problems import solve as run
from sklearn.base import clone

import strat
from strat import MAPG, AlternatingMinimization, Entropy, LogDet, LogDiagonal, TraceConstraint
from strat.errors import ConvergenceWarning, GraphError, NoOracleError, OptionError
from strat.model.bound_model import BoundModel
from strat.problem.joint_problem import JointProblem
from strat.solvers.joint_steps import graph_step
from strat.solvers.starts import solve

LEARNED = [LogDet(0.5, 0.2, 0.1, 0.2), LogDiagonal(0.5, 0.2), TraceConstraint(6.0, 0.1), Entropy(0.8)]
SOLVERS = [MAPG, AlternatingMinimization]
BASE = mean(0.1, 2, "theta")


def is_monotone(result):
    return np.all(np.diff(result.history) <= 0)


def joint_problem(h, loss="logistic", regularizer="l1", edges="all", **options):
    """Edges of "list" are all pairs, too, but stored one by one."""
    on = graph_of("chain")
    pairs = [(i, j) for i in range(10) for j in range(i)] if edges == "list" else edges
    return problem(loss, regularizer, h, on, edges=pairs, **options)


@pytest.mark.parametrize("couple", [None, np.array([1.0, 0.0, 3.0])])
@pytest.mark.parametrize("edges", ["all", "prior"])
@pytest.mark.parametrize("h", LEARNED)
@pytest.mark.parametrize("solver", SOLVERS)
def test_joint_fits_are_stationary_and_monotone(solver, h, edges, couple):
    p = joint_problem(h, edges=edges, couple=couple)
    result = solve(p, solver())
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert is_monotone(result) and p.feasible(result.w)
    assert result.objective == pytest.approx(result.history[-1], rel=1e-10)
    assert result.objective == pytest.approx(sum(result.parts.values()))
    # Neither block alone can be improved: the graph step gives the same graph, ...
    best, parts = graph_step(p, result.theta).objective, result.parts
    assert parts["laplacian"] + parts["graph"] - best <= 1e-7 * (1 + abs(best))
    # ... and the fit for that graph the same parameters.
    fixed = JointProblem(p.loss, p.regularizer, strat.FixedGraph(), p.edges, result.w, p.couple)
    lrsm = solve(fixed, MAPG(tol=1e-9), {"theta": result.theta, "w": result.w})
    assert result.objective - parts["graph"] - lrsm.objective <= 1e-7 * (1 + abs(lrsm.objective))


def test_rounding_of_the_log_det_of_strong_edges_ends_no_fit():
    p = problem("squares", "ridge", LogDet(1e3, 1.0, 0.1, 0.1), graph_of("chain", 1e4), edges="prior")
    result = run(p, MAPG())
    assert result.status == "converged" and result.iterations < 20


@pytest.mark.parametrize("h", LEARNED)
@pytest.mark.parametrize("regularizer", ["ridge", "l1", "box"])
def test_all_solvers_and_edge_sets_reach_one_point(h, regularizer):
    p, q = (joint_problem(h, "huber", regularizer, edges) for edges in ("all", "list"))
    slow = run(p, AlternatingMinimization(tol=1e-9))
    assert slow.status == "converged" and is_monotone(slow)
    fast = solve(p, MAPG(tol=1e-8), {"theta": slow.theta, "w": slow.w})
    assert fast.objective == pytest.approx(slow.objective, rel=1e-9)
    np.testing.assert_allclose(fast.theta, slow.theta, atol=1e-5)
    x, y = (run(r, MAPG(tol=0, max_iter=20, step=(1e-2, 1e-2))) for r in (p, q))
    np.testing.assert_allclose(x.history, y.history, rtol=1e-9)
    x, y = (run(r, MAPG(tol=1e-9)) for r in (p, q))
    assert x.status == "converged" and x.objective == pytest.approx(y.objective, rel=1e-9)
    assert is_monotone(x)
    p.loss.has = lambda name: name in ("value", "value_and_gradient")
    plain = run(p, AlternatingMinimization(tol=1e-7))
    assert plain.status == "converged" and is_monotone(plain)
    assert plain.objective == pytest.approx(slow.objective, rel=1e-8)


@pytest.mark.parametrize("h", LEARNED[1:])
def test_the_papers_fixed_steps_reach_the_same_point(h):
    p = joint_problem(h, "squares", "ridge")
    slow = solve(p, MAPG(step=(0.01, 0.05), tol=1e-5, max_iter=20000))
    assert slow.status == "converged"
    assert slow.objective == pytest.approx(solve(p, MAPG(tol=1e-8)).objective, rel=1e-6)


def test_fixed_steps_that_are_too_long_stay_in_the_domain():
    result = run(joint_problem(LogDet(5.0, 0.01, 0.1, 0.01)), MAPG(step=(0.5, 2.0), tol=0, max_iter=30))
    assert np.all(np.isfinite(result.history)) and result.w.min() >= 0
    assert np.max(np.diff(result.history)) > 0  # verbatim Algorithm 1 is not monotone for long steps


def test_weights_outside_the_domain_are_not_taken_for_rounding():
    p = joint_problem(LogDiagonal(0.5, 0.2))
    point = p.point(np.zeros((p.K, p.n)), p.edges.zeros() + 1.0)
    point.w[...] = 0.0  # the loss at theta is known from before
    assert point.noise > 0 and point.evaluate().objective == np.inf and point.noise == 0


def test_cone_programs_are_trusted_to_their_gap_where_columns_are_far_from_zero():
    rng, N, (w, b) = np.random.default_rng(1), 200, (cp.Variable(3, name="w"), cp.Variable(name="b"))
    year, income = rng.integers(1990, 2025, N), np.exp(rng.normal(10.6, 0.8, N))
    time = rng.uniform(1.6e9, 1.63e9, N)
    z, x, y = rng.integers(0, 4, N), cp.Parameter(3, name="x"), cp.Parameter(name="y")
    Y = np.sign(0.08 * (year - 2007) + np.log(income) - 10.6 + rng.logistic(size=N))
    base = strat.BaseModel(cp.pos(1 - y * (x @ w + b)), 0.5 * cp.norm1(w), data=(x, y))
    model = strat.log_diagonal(base, strat.graphs.path(4, weight=5.0))
    result = model.fit(np.column_stack([year, income, time]), Y, strata=z).result_
    assert result.status == "converged" and result.iterations < 10


def test_alternating_minimization_of_a_given_graph_is_one_fit():
    p = problem()
    result = run(p, AlternatingMinimization(tol=1e-8))
    assert result.status == "converged" and np.array_equal(result.w, p.w0)
    assert result.objective == pytest.approx(run(p, MAPG(tol=1e-8)).objective, rel=1e-9)


def quantile_regression():
    q, x, y = cp.Variable(2, name="q"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    pinball = cp.maximum(0.9 * (y - x @ q), 0.1 * (x @ q - y))
    rng = np.random.default_rng(0)
    z = rng.integers(6, size=90)
    X = np.c_[np.ones(90), rng.standard_normal(90)]
    base = strat.BaseModel(pinball, 0.05 * cp.sum_squares(q), data=(x, y))
    return base, (X, z % 3 + rng.standard_normal(90)), z


@pytest.mark.parametrize("h", LEARNED)
def test_a_loss_with_kinks_and_a_learned_graph(h):
    base, data, z = quantile_regression()
    model = strat.StratifiedModel(base, None, h, solver=AlternatingMinimization(tol=1e-5))
    result = model.fit(*data, strata=z).result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-5
    assert is_monotone(result)
    # The best parameters for the graph, by CVXPY, and the best graph for the parameters.
    best = model.to_cvxpy().solve(cp.CLARABEL)
    assert result.objective - result.parts["graph"] == pytest.approx(best, rel=1e-6)
    graph = strat.learn_graph(model.theta_, h, tol=1e-9)
    assert result.parts["graph"] + result.parts["laplacian"] == pytest.approx(graph.objective, abs=1e-6)


def test_what_to_do_where_an_oracle_is_missing():
    base, data, z = quantile_regression()
    with pytest.raises(NoOracleError, match=r"or learn it with strat.AlternatingMinimization\(\)"):
        strat.log_diagonal(base, solver=MAPG()).fit(*data, strata=z)


@pytest.mark.filterwarnings("ignore:The fit has collapsed")
@pytest.mark.parametrize("solver", SOLVERS)
def test_far_from_the_origin(solver):
    """Rounding of the Laplacian term is relative to the parameters, not to their differences."""
    Y, z = records()
    model = strat.StratifiedModel(BASE, None, LEARNED[0], solver=solver(tol=1e-8))
    result = model.fit(Y + 50.0, strata=z).result_
    assert result.status == "converged" and is_monotone(result)


def test_residual_is_that_of_each_regularizers_own_prox():
    rng = np.random.default_rng(0)
    for h in LEARNED[1:]:
        p = joint_problem(h, edges="prior")
        theta, w = rng.standard_normal((10, 3)), rng.random(p.edges.count) + 0.1
        i, j = p.edges.ends
        d, degrees = ((theta[i] - theta[j]) ** 2).sum(axis=1), p.edges.degrees(w)
        x = cp.Variable(p.edges.count)
        if isinstance(h, LogDiagonal):
            main = -h.lambda1 * (1 / degrees[i] + 1 / degrees[j])
            step, rest, constraints = d / 2 + main + 2 * h.lambda2 * w, 0, [x >= 0]
        elif isinstance(h, TraceConstraint):
            main = h.lambda2 * (degrees[i] + degrees[j] + 2 * w)
            step, rest, constraints = d / 2 + main, 0, [x >= 0, 2 * cp.sum(x) == h.lambda1]
        else:
            main, step, constraints = 0 * d, d / 2, []
            rest = h.sigma**2 * cp.sum(-cp.entr(x) - x)
        near = cp.Problem(cp.Minimize(rest + 0.5 * cp.sum_squares(x - (w - step))), constraints)
        near.solve(cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        size = np.linalg.norm(w) if h == LEARNED[-1] else max(np.linalg.norm(d / 2), np.linalg.norm(main))
        assert p.residual(theta, w)["W"] == pytest.approx(np.linalg.norm(w - x.value) / (1 + size), rel=1e-4)


@pytest.mark.parametrize("h", [LogDiagonal(0.5, 0.2), TraceConstraint(6.0, 0.1)])
def test_where_w0_is_not_feasible_the_best_graph_is_the_start(h):
    p = joint_problem(h)
    p.w0 = p.edges.zeros()
    for init in ("zero", "separate", "lrsm"):
        with pytest.warns(ConvergenceWarning):
            start = solve(p, MAPG(max_iter=0), init)
        np.testing.assert_allclose(start.w, graph_step(p, start.theta).w)
        assert np.isfinite(start.objective)
    with pytest.raises(OptionError, match=r'init\["W"\] is not in the domain of .*the graph step gives the'):
        solve(p, MAPG(), {"w": p.edges.zeros()})


def records(seed=0, labels="abcdef"):
    Y, z = np.random.default_rng(seed).standard_normal((30, 2)), [labels[i % len(labels)] for i in range(30)]
    Y += np.array([[ord(label) // 3] * 2 for label in z]) / 5
    return Y, z


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("h", LEARNED)
def test_estimator(solver, h):
    Y, z = records()
    model = strat.StratifiedModel(BASE, None, h, solver=solver(tol=1e-9)).fit(Y, strata=z)
    W, parts = model.W_, model.result_.parts
    assert model.result_.status == "converged"
    assert np.array_equal(W, W.T) and W.shape == (6, 6)
    graph = float(h.expression(W).value)
    assert parts["graph"] == pytest.approx(graph, rel=1e-9)
    # The exported problem in theta has the model's own objective, less the graph's constant, as its minimum.
    assert model.to_cvxpy().solve(cp.CLARABEL) + graph == pytest.approx(model.result_.objective, rel=1e-6)
    # For the fitted theta CVXPY finds no better graph.
    rows, G = model.theta_["theta"], cp.Variable((6, 6), symmetric=True)
    d = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    best = cp.Problem(cp.Minimize(h.expression(G) + cp.sum(cp.multiply(d, G)) / 4), h.constraints(G))
    assert graph + parts["laplacian"] == pytest.approx(best.solve(cp.CLARABEL), abs=1e-5)
    # Other names permute theta and W.
    names = dict(zip("abcdef", "cfbead", strict=True))
    two = clone(model).fit(Y, strata=[names[label] for label in z])
    order = [two.strata_.index(names[label]) for label in model.strata_]
    np.testing.assert_allclose(two.theta_["theta"][order], rows, atol=1e-6)
    np.testing.assert_allclose(two.W_[np.ix_(order, order)], W, atol=1e-5)


def test_shorthands_candidates_and_warm_starts():
    Y, z = records()
    for make, h in (
        (strat.log_diagonal(BASE, lambda1=0.5, lambda2=0.2), LogDiagonal(0.5, 0.2)),
        (strat.trace_constraint(BASE, lambda1=6.0, lambda2=0.1), TraceConstraint(6.0, 0.1)),
        (strat.entropy(BASE, sigma=0.8), Entropy(0.8)),
    ):
        model = strat.StratifiedModel(BASE, None, h).fit(Y, strata=z)
        assert np.array_equal(make.fit(Y, strata=z).W_, model.W_)
        model.set_params(graph=strat.graphs.cycle(list("abcdef")), edges="prior").fit(Y, strata=z)
        assert model.result_.status == "converged" and not model.W_[0, 2:5].any()
    model = strat.trace_constraint(BASE, lambda1=6.0, lambda2=0.1, warm_start=True).fit(Y, strata=z)
    model.set_params(graph_regularizer__lambda1=12.0).fit(Y, strata=z)
    assert model.W_.sum() == pytest.approx(12.0)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_few_strata(solver, K):
    Y, z = records(labels="abc"[:K])
    for h in LEARNED:
        model = strat.StratifiedModel(BASE, None, h, solver=solver())
        if K == 1 and isinstance(h, (LogDiagonal, TraceConstraint)):
            with pytest.raises(GraphError, match="there is one stratum, and .* needs an edge between two"):
                model.fit(Y, strata=z)
        else:
            assert model.fit(Y, strata=z).result_.status == "converged"


@pytest.mark.parametrize("h", LEARNED)
def test_theta_that_stays_behind_the_graph_is_fitted_in_turn_with_it(h):
    """As beside narrow kinks, where every joint step is short."""
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((200, 4)), rng.integers(10, size=200)
    Y = np.sign(X @ np.ones(4) + rng.standard_t(3, 200))
    theta, x, y = cp.Variable(4), cp.Parameter(4), cp.Parameter()
    hinge, ridge = cp.pos(1 - y * (x @ theta)), 0.1 * cp.sum_squares(theta)
    base = strat.BaseModel(hinge, ridge, data=(x, y), smoothing=1e-3)
    fits = [strat.StratifiedModel(base, None, h, solver=s()).fit(X, Y, strata=z).result_ for s in SOLVERS]
    assert all(r.status == "converged" and r.iterations <= 150 and is_monotone(r) for r in fits)
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=1e-4)


def test_errors_of_the_estimator():
    Y, z = records()
    graph = strat.graphs.path(list("abcde"))
    graph.add_node("f")
    lonely = r"edges: stratum 'f' \(1 in all\) has no candidate edge"
    for model, error, match in (
        (strat.log_diagonal(BASE, lambda2=0), OptionError, "lambda2 = 0 .*above 0 where lambda1 > 0"),
        (strat.entropy(BASE, sigma=-1), OptionError, "sigma = -1 is out of range"),
        (strat.log_diagonal(BASE, graph, edges="prior"), GraphError, lonely),
        (strat.StratifiedModel(BASE, None, "entropy"), OptionError, r"an object such as strat.LogDet"),
    ):
        with pytest.raises(error, match=match):
            model.fit(Y, strata=z)


def quantiles_of_concrete(h, solver, ridge, smoothing, share, seed):
    X, Y, z, _ = paper_data.concrete()
    rows = np.random.default_rng(seed).permutation(len(Y))[: int(share * len(Y))]
    theta, x, y = cp.Variable(7), cp.Parameter(7), cp.Parameter()
    pinball = cp.maximum(0.9 * (y - x @ theta), -0.1 * (y - x @ theta))
    base = strat.BaseModel(pinball, ridge * cp.sum_squares(theta[:6]), data=(x, y), smoothing=smoothing)
    model = strat.StratifiedModel(base, strat.graphs.grid(10, 10, weight=0.5), h, solver=solver)
    result = model.fit(X[rows], Y[rows], strata=[z[k] for k in rows]).result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert is_monotone(result)


def test_alternating_steps_measure_the_rounding_of_the_objective():
    """Degrees and parameters are so large here that F rounds beyond its estimate while the residual is above tol."""
    quantiles_of_concrete(LogDiagonal(10.0, 0.2), AlternatingMinimization(), 0.005, 1.0, 0.6, seed=4)


@pytest.mark.slow
def test_parameters_far_behind_their_graph_catch_up():
    """Weak ties and a narrow kink: single Newton steps in theta gain next to nothing for thousands of iterations."""
    quantiles_of_concrete(LogDiagonal(1.0, 20.0), MAPG(max_iter=1000), 1e-4, 0.1, 0.75, seed=1)


@pytest.mark.parametrize("far", [1.0, 100.0, 1e5])
def test_entropy_ends_with_its_kernel_however_far_strata_are(far):
    rng, K = np.random.default_rng(0), 8
    w, x, y = cp.Variable(2, name="w"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    z, X = rng.integers(K, size=120), rng.normal(size=(120, 2))
    true = rng.normal(size=(K, 2)) + far * (np.arange(K) >= 4)[:, None]
    base = strat.BaseModel(cp.square(y - x @ w), 0.1 * cp.sum_squares(w), data=(x, y))
    model = strat.entropy(base, strat.graphs.path(K), solver=strat.MAPG())
    model.fit(X, (X * true[z]).sum(axis=1) + rng.normal(size=120), strata=z)
    theta = model.theta_["w"]
    kernel = np.exp(-0.5 * ((theta[:, None] - theta) ** 2).sum(axis=-1)) - np.eye(K)
    np.testing.assert_allclose(model.W_, kernel, atol=1e-12 if far > 1 else 1e-5)
    assert model.result_.status == "converged"


@pytest.mark.parametrize("edges", ["prior", "two-hop", "knn"])
def test_sparse_and_dense_factors_lead_to_the_same_fit(monkeypatch, edges):
    base, z, found = mean(shape=2, name="theta"), np.repeat(np.arange(30), 4), []
    Y = np.random.default_rng(0).standard_normal((120, 2)) + (z[:, None] > 14)
    graph = strat.graphs.path(30, weight=0.5)
    for small in (200, 0):
        monkeypatch.setattr("strat.problem.edges.SMALL", small)
        monkeypatch.setattr("strat.problem.edges.DENSE", np.inf)
        monkeypatch.setattr("strat.problem.edges.FULL", 1.0)
        model = strat.joint(base, graph, edges=edges, solver=strat.MAPG(tol=1e-9)).fit(Y, strata=z)
        candidates = BoundModel(model, (Y,), z).edges
        assert candidates.sparse == (small == 0)
        found.append(model)
    dense, sparse = found
    assert sparse.result_.objective == pytest.approx(dense.result_.objective, rel=1e-10)
    np.testing.assert_allclose(sparse.W_, dense.W_, atol=1e-8)
    count = {"prior": (29, 29), "two-hop": (57, 57), "knn": (76, 179)}[edges]
    assert count[0] <= candidates.count <= count[1]
