"""Joint fits with every graph regularizer: stationarity, monotone objectives, starts, the estimator."""

import warnings

import cvxpy as cp
import handmade
import numpy as np
import paper_data
import pytest
from handmade import LeastSquares, Logistic, Norm1, Ridge
from sklearn.base import clone

import strat
from strat import MAPG, AlternatingMinimization, Entropy, LogDet, LogDiagonal, TraceConstraint
from strat.errors import ConvergenceWarning, GraphError, NoOracleError, OptionError
from strat.model.bound_model import BoundModel
from strat.model.refit import Refits
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.joint_problem import JointProblem
from strat.solvers.graph_step import graph_step
from strat.solvers.starts import solve

LEARNED = [LogDet(0.5, 0.2, 0.1, 0.2), LogDiagonal(0.5, 0.2), TraceConstraint(6.0, 0.1), Entropy(0.8)]
NEW = LEARNED[1:]
SOLVERS = [MAPG, AlternatingMinimization]


def problem(h, K=8, edges=None, loss=Logistic, regularizer=None, couple=None, seed=0):
    rng = np.random.default_rng(seed)
    stratum = rng.integers(max(K - 1, 1), size=60)  # the last of several strata has no record
    X, y = rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], size=60)
    edges = AllPairs(K) if edges is None else edges
    return JointProblem(loss(X, y, stratum, K), regularizer or Norm1(0.2), h, edges, edges.zeros(), couple)


def fitted(p, solver, start=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(p, solver, start)


def is_monotone(result):
    return np.all(np.diff(result.history) <= 0)


def chain_and_more(K):
    return EdgeList(K, [*range(K - 1), 0, 1], [*range(1, K), K - 1, K - 2])


@pytest.mark.parametrize("couple", [None, np.array([1.0, 0.0, 3.0])])
@pytest.mark.parametrize("edges", [AllPairs(8), chain_and_more(8)])
@pytest.mark.parametrize("h", NEW)
@pytest.mark.parametrize("solver", SOLVERS)
def test_joint_fits_are_stationary_and_monotone(solver, h, edges, couple):
    p = problem(h, edges=edges, couple=couple)
    result = fitted(p, solver())
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-6
    assert is_monotone(result)
    assert result.objective == pytest.approx(result.history[-1], rel=1e-10)
    assert result.objective == pytest.approx(sum(result.parts.values()))
    assert p.feasible(result.w)
    # Neither block alone can be improved: the graph step gives the same graph, ...
    best = graph_step(p, result.theta)
    assert result.parts["laplacian"] + result.parts["graph"] - best.objective <= 1e-7 * (
        1 + abs(best.objective)
    )
    # ... and the fit for that graph the same parameters.
    fixed = JointProblem(p.loss, p.regularizer, strat.FixedGraph(), p.edges, result.w, p.couple)
    lrsm = fitted(fixed, MAPG(tol=1e-9), {"theta": result.theta, "w": result.w})
    assert result.objective - result.parts["graph"] - lrsm.objective <= 1e-7 * (1 + abs(lrsm.objective))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("h", NEW)
@pytest.mark.parametrize("solver", SOLVERS)
def test_few_strata(solver, h, K):
    assert fitted(problem(h, K), solver()).status == "converged"


@pytest.mark.parametrize("h", NEW)
def test_both_edge_sets_give_the_same_fits(h):
    a, b = problem(h), problem(h, edges=EdgeList(8, *np.triu_indices(8, 1)))
    x, y = (fitted(p, MAPG(tol=0, max_iter=20, step=(1e-2, 1e-2))) for p in (a, b))
    np.testing.assert_allclose(x.history, y.history, rtol=1e-9)
    # Newton steps are solved with another preconditioner, so that only their end is the same.
    x, y = (fitted(p, MAPG(tol=1e-8)) for p in (a, b))
    assert x.objective == pytest.approx(y.objective, rel=1e-9)


@pytest.mark.parametrize("h", NEW)
def test_the_papers_fixed_steps_reach_the_same_point(h):
    p = problem(h, loss=LeastSquares, regularizer=Ridge(1.0))
    fast, slow = fitted(p, MAPG(tol=1e-8)), fitted(p, MAPG(step=(0.05, 0.05), tol=1e-5, max_iter=20000))
    assert slow.status == "converged"
    assert slow.objective == pytest.approx(fast.objective, rel=1e-6)


@pytest.mark.parametrize("h", [LogDiagonal(5.0, 2.0), TraceConstraint(500.0, 0.1)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_wine(solver, h):
    wine = handmade.wine()
    p = JointProblem(wine.loss, wine.regularizer, h, wine.edges, wine.w0)
    result = fitted(p, solver())
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-6
    assert is_monotone(result)


# ----------------------------------------------------------------- alternating minimization


def without_second_derivatives(p):
    p.loss.has = lambda name: name in ("value", "value_and_gradient")
    return p


@pytest.mark.parametrize("h", LEARNED)
def test_alternating_minimization_and_mapg_agree_from_the_same_point(h):
    p = problem(h)
    slow = fitted(p, AlternatingMinimization(tol=1e-8))
    assert slow.status == "converged"
    fast = fitted(p, MAPG(tol=1e-8), {"theta": slow.theta, "w": slow.w})
    assert fast.objective == pytest.approx(slow.objective, rel=1e-9)
    np.testing.assert_allclose(fast.theta, slow.theta, atol=1e-5)


@pytest.mark.parametrize("h", LEARNED)
def test_alternating_minimization_without_second_derivatives(h):
    one = fitted(problem(h), AlternatingMinimization(tol=1e-8))
    two = fitted(without_second_derivatives(problem(h)), AlternatingMinimization(tol=1e-7))
    assert two.status == "converged"
    assert is_monotone(two)
    assert two.objective == pytest.approx(one.objective, rel=1e-8)


def test_alternating_minimization_of_a_given_graph_is_one_fit():
    p = problem(strat.FixedGraph(), edges=chain_and_more(8))
    p.w0 += 1.0
    result = fitted(p, AlternatingMinimization(tol=1e-8))
    assert result.status == "converged"
    assert result.objective == pytest.approx(fitted(p, MAPG(tol=1e-8)).objective, rel=1e-9)
    assert np.array_equal(result.w, p.w0)


def test_alternating_minimization_stops_as_all_solvers_do(tmp_path):
    p, seen = problem(NEW[0]), []
    solver = AlternatingMinimization(
        tol=0, callback=lambda state: seen.append(state.objective) or len(seen) == 3
    )
    result = fitted(p, solver)
    assert result.status == "interrupted"
    assert seen == result.history[1:]
    assert fitted(p, AlternatingMinimization(tol=0, time_limit=0)).status == "time_limit"
    with pytest.raises(OptionError, match="max_iter = -1 is out of range"):
        fitted(p, AlternatingMinimization(max_iter=-1))
    path = tmp_path / "state.npz"
    whole = fitted(p, AlternatingMinimization(tol=0, max_iter=6))
    fitted(p, AlternatingMinimization(tol=0, max_iter=3, checkpoint=path))
    resumed = fitted(p, AlternatingMinimization(tol=0, max_iter=6, checkpoint=path))
    assert resumed.history == whole.history


def test_a_tolerance_below_what_the_objective_resolves():
    for h in LEARNED:
        result = fitted(problem(h), AlternatingMinimization(tol=1e-9))
        assert max(result.residual.values()) <= 1e-9
        assert is_monotone(result)


def quantile_regression():
    q, x, y = cp.Variable(2, name="q"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    pinball = cp.maximum(0.9 * (y - x @ q), 0.1 * (x @ q - y))
    rng = np.random.default_rng(0)
    z = rng.integers(6, size=90)
    X = np.c_[np.ones(90), rng.standard_normal(90)]
    return (
        strat.BaseModel(pinball, 0.05 * cp.sum_squares(q), data=(x, y)),
        (X, z % 3 + rng.standard_normal(90)),
        z,
    )


@pytest.mark.parametrize("h", LEARNED)
def test_a_loss_with_kinks_and_a_learned_graph(h):
    base, data, z = quantile_regression()
    model = strat.StratifiedModel(base, None, h, solver=AlternatingMinimization(tol=1e-5)).fit(
        *data, strata=z
    )
    result = model.result_
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-5
    assert is_monotone(result)
    # The best parameters for the graph, by CVXPY, and the best graph for the parameters.
    best = model.to_cvxpy().solve(cp.CLARABEL)
    assert result.objective - result.parts["graph"] == pytest.approx(best, rel=1e-6)
    graph = strat.learn_graph(model.theta_, h, tol=1e-9)
    assert result.parts["graph"] + result.parts["laplacian"] == pytest.approx(graph.objective, abs=1e-6)


def test_a_loss_with_kinks_goes_on_from_a_checkpoint(tmp_path):
    base, data, z = quantile_regression()

    def histories(**options):
        with pytest.warns(ConvergenceWarning):
            solver = AlternatingMinimization(tol=1e-10, **options)
            return strat.log_diagonal(base, solver=solver).fit(*data, strata=z).result_.history

    whole = histories(max_iter=4)
    histories(max_iter=2, checkpoint=tmp_path / "state.npz")
    assert histories(max_iter=4, checkpoint=tmp_path / "state.npz") == whole


def test_what_to_do_where_an_oracle_is_missing():
    base, data, z = quantile_regression()
    with pytest.raises(NoOracleError, match=r"or learn it with strat.AlternatingMinimization\(\)"):
        strat.log_diagonal(base).fit(*data, strata=z)
    p = problem(NEW[0])
    p.loss.has = lambda name: False
    with pytest.raises(
        NoOracleError, match="AlternatingMinimization needs the gradient or the cone program of the loss"
    ):
        fitted(p, AlternatingMinimization())


@pytest.mark.filterwarnings("ignore:The fit has collapsed")
def test_far_from_the_origin():
    """Rounding of the Laplacian term is relative to the parameters, not to their differences."""
    Y, z = records()
    for solver in SOLVERS:
        model = strat.StratifiedModel(declared(), None, LEARNED[0], solver=solver(tol=1e-8)).fit(
            Y + 50.0, strata=z
        )
        assert model.result_.status == "converged"
        assert is_monotone(model.result_)


# ----------------------------------------------------------------- residual


def test_residual_is_that_of_each_regularizers_own_prox():
    rng = np.random.default_rng(0)
    for h in NEW:
        p = problem(h, K=5, edges=chain_and_more(5))
        theta, w = rng.standard_normal((5, 3)), rng.random(p.edges.count) + 0.1
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
        near = 0.5 * cp.sum_squares(x - (w - step))
        cp.Problem(cp.Minimize(rest + near), constraints).solve(
            cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
        )
        size = np.linalg.norm(w) if h == NEW[-1] else max(np.linalg.norm(d / 2), np.linalg.norm(main))
        expected = np.linalg.norm(w - x.value) / (1 + size)
        assert p.residual(theta, w)["W"] == pytest.approx(expected, rel=1e-4)


# ----------------------------------------------------------------- starts


@pytest.mark.parametrize("h", [LogDiagonal(0.5, 0.2), TraceConstraint(6.0, 0.1)])
@pytest.mark.parametrize("init", ["zero", "separate", "lrsm"])
def test_where_w0_is_not_feasible_the_best_graph_is_the_start(h, init):
    p = problem(h)
    with pytest.warns(ConvergenceWarning):
        start = solve(p, MAPG(max_iter=0), init)
    np.testing.assert_allclose(start.w, graph_step(p, start.theta).w)
    assert np.isfinite(start.objective)


def test_w0_is_the_start_where_it_is_feasible():
    p = problem(TraceConstraint(56.0, 0.1))
    p.w0 = p.edges.mask.copy(order="F")
    with pytest.warns(ConvergenceWarning):
        assert np.array_equal(solve(p, MAPG(max_iter=0)).w, p.w0)


def test_a_given_start_outside_the_domain_is_an_error():
    for h in (LogDiagonal(0.5, 0.2), TraceConstraint(6.0, 0.1)):
        p = problem(h)
        with pytest.raises(
            OptionError, match=r'init\["W"\] is not in the domain of .*the graph step gives the best'
        ):
            solve(p, MAPG(), {"w": p.edges.zeros()})


# ----------------------------------------------------------------- the estimator


def declared():
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    return strat.BaseModel(cp.sum_squares(y - theta), 0.1 * cp.sum_squares(theta), data=(y,), predict=theta)


def records(seed=0, labels="abcdef"):
    rng = np.random.default_rng(seed)
    Y, z = rng.standard_normal((30, 2)), [labels[i % len(labels)] for i in range(30)]
    Y += np.array([[ord(label) // 3] * 2 for label in z]) / 5
    return Y, z


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("h", NEW)
def test_estimator(solver, h):
    Y, z = records()
    model = strat.StratifiedModel(declared(), None, h, solver=solver()).fit(Y, strata=z)
    assert model.result_.status == "converged"
    W = model.W_
    assert np.array_equal(W, W.T)
    assert W.shape == (6, 6)
    graph = float(h.expression(W).value)
    assert model.result_.parts["graph"] == pytest.approx(graph, rel=1e-9)
    # The exported problem in theta has the model's own objective, less the graph's constant, as its minimum.
    exported = model.to_cvxpy()
    assert exported.solve(cp.CLARABEL) + graph == pytest.approx(model.result_.objective, rel=1e-6)
    # For the fitted theta CVXPY finds no better graph.
    rows = model.theta_["theta"]
    d = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    G = cp.Variable((6, 6), symmetric=True)
    best = cp.Problem(cp.Minimize(h.expression(G) + cp.sum(cp.multiply(d, G)) / 4), h.constraints(G)).solve(
        cp.CLARABEL
    )
    assert graph + model.result_.parts["laplacian"] == pytest.approx(best, abs=1e-5)
    assert np.array_equal(clone(model).fit(Y, strata=z).W_, W)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("h", LEARNED)
def test_relabelling_permutes_theta_and_w(solver, h):
    Y, z = records()
    names = dict(zip("abcdef", "cfbead", strict=True))
    one = strat.StratifiedModel(declared(), None, h, solver=solver(tol=1e-9)).fit(Y, strata=z)
    two = clone(one).fit(Y, strata=[names[label] for label in z])
    order = [two.strata_.index(names[label]) for label in one.strata_]
    np.testing.assert_allclose(two.theta_["theta"][order], one.theta_["theta"], atol=1e-6)
    np.testing.assert_allclose(two.W_[np.ix_(order, order)], one.W_, atol=1e-5)


def test_shorthands():
    base, (Y, z) = declared(), records()
    for make, h in (
        (strat.log_diagonal(base, lambda1=0.5, lambda2=0.2), LogDiagonal(0.5, 0.2)),
        (strat.trace_constraint(base, lambda1=6.0, lambda2=0.1), TraceConstraint(6.0, 0.1)),
        (strat.entropy(base, sigma=0.8), Entropy(0.8)),
    ):
        model = strat.StratifiedModel(base, None, h).fit(Y, strata=z)
        assert np.array_equal(make.fit(Y, strata=z).W_, model.W_)


def test_a_sparse_candidate_set():
    Y, z = records()
    graph = strat.graphs.cycle(list("abcdef"))
    for h in NEW:
        model = strat.StratifiedModel(declared(), graph, h, edges="prior").fit(Y, strata=z)
        assert model.result_.status == "converged"
        assert not model.W_[0, 2:5].any()


def test_warm_start_with_other_constants():
    Y, z = records()
    model = strat.trace_constraint(declared(), lambda1=6.0, lambda2=0.1, warm_start=True).fit(Y, strata=z)
    model.set_params(graph_regularizer__lambda1=12.0).fit(Y, strata=z)
    assert model.W_.sum() == pytest.approx(12.0)


def test_refits_with_other_constants():
    Y, z = records()
    refits = Refits(strat.trace_constraint(declared(), lambda1=6.0, lambda2=0.1), (Y,), z)
    one = refits.fit()
    two = refits.fit(one.theta, one.w, graph_regularizer=TraceConstraint(12.0, 0.1))
    assert two.result.status == "converged"
    assert two.w.sum() == pytest.approx(6.0)


def test_one_stratum():
    for make in (strat.log_diagonal, strat.trace_constraint):
        with pytest.raises(GraphError, match="there is one stratum, and .* needs an edge between two"):
            make(declared()).fit(np.ones((3, 2)), strata=[0, 0, 0])
    assert strat.entropy(declared()).fit(np.ones((3, 2)), strata=[0, 0, 0]).result_.status == "converged"


def test_errors_of_the_estimator():
    Y, z = records()
    with pytest.raises(
        OptionError, match="lambda2 = 0 is out of range: it must be a number above 0 where lambda1 > 0"
    ):
        strat.log_diagonal(declared(), lambda2=0).fit(Y, strata=z)
    with pytest.raises(OptionError, match="sigma = -1 is out of range"):
        strat.entropy(declared(), sigma=-1).fit(Y, strata=z)
    graph = strat.graphs.path(list("abcde"))
    graph.add_node("f")
    with pytest.raises(GraphError, match=r"edges: stratum 'f' \(1 in all\) has no candidate edge"):
        strat.log_diagonal(declared(), graph, edges="prior").fit(Y, strata=z)
    with pytest.raises(
        OptionError, match=r"graph_regularizer must be an object such as strat.LogDet.*Entropy"
    ):
        strat.StratifiedModel(declared(), None, "entropy").fit(Y, strata=z)


def test_alternating_steps_measure_the_rounding_of_the_objective():
    """Degrees and parameters are so large here that F rounds beyond its estimate while the residual is above tol."""
    X, Y, z, _ = paper_data.concrete()
    rows = np.random.default_rng(4).permutation(len(Y))[: int(0.6 * len(Y))]
    theta, x, y = cp.Variable(7), cp.Parameter(7), cp.Parameter()
    residual = y - x @ theta
    pinball = cp.maximum(0.9 * residual, -0.1 * residual)
    base = strat.BaseModel(pinball, 0.005 * cp.sum_squares(theta), data=(x, y), smoothing=1.0)
    graph = strat.graphs.grid(10, 10, weight=0.5)
    model = strat.log_diagonal(base, graph, lambda1=10.0, lambda2=0.2, solver=AlternatingMinimization())
    result = model.fit(X[rows], Y[rows], strata=[z[k] for k in rows]).result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert np.all(np.diff(result.history) <= 0)


@pytest.mark.slow
def test_parameters_far_behind_their_graph_catch_up():
    """Weak ties and a narrow kink: single Newton steps in theta gain next to nothing for thousands of iterations."""
    X, Y, z, _ = paper_data.concrete()
    rows = np.random.default_rng(1).permutation(len(Y))[: int(0.75 * len(Y))]
    theta, b, x, y = cp.Variable(6), cp.Variable(), cp.Parameter(6), cp.Parameter()
    residual = y - x @ theta - b
    pinball = cp.maximum(0.9 * residual, -0.1 * residual)
    base = strat.BaseModel(pinball, 1e-4 * cp.sum_squares(theta), data=(x, y), smoothing=0.1)
    graph = strat.graphs.grid(10, 10, weight=0.5)
    model = strat.log_diagonal(base, graph, lambda1=1.0, lambda2=20.0, solver=MAPG(max_iter=1000))
    result = model.fit(X[rows, :6], Y[rows], strata=[z[k] for k in rows]).result_
    assert result.status == "converged"
    assert np.all(np.diff(result.history) <= 0)


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
    rng, theta, y = np.random.default_rng(0), cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    base = strat.BaseModel(cp.sum_squares(y - theta), data=(y,))
    z = np.repeat(np.arange(30), 4)
    Y, found = rng.standard_normal((120, 2)) + (z[:, None] > 14), []
    graph = strat.graphs.path(30, weight=0.5)
    for small in (200, 0):
        monkeypatch.setattr("strat.problem.edges.edge_list.SMALL", small)
        monkeypatch.setattr("strat.problem.edges.edge_list.DENSE", np.inf)
        monkeypatch.setattr("strat.problem.edges.edge_list.FULL", 1.0)
        model = strat.joint(base, graph, edges=edges, solver=strat.MAPG(tol=1e-9)).fit(Y, strata=z)
        candidates = BoundModel(model, (Y,), z).edges
        assert candidates.sparse == (small == 0)
        found.append(model)
    dense, sparse = found
    assert sparse.result_.objective == pytest.approx(dense.result_.objective, rel=1e-10)
    np.testing.assert_allclose(sparse.W_, dense.W_, atol=1e-8)
    count = {"prior": (29, 29), "two-hop": (57, 57), "knn": (76, 179)}[edges]
    assert count[0] <= candidates.count <= count[1]
