"""NewtonCG: optima against one CVXPY solve of the whole problem, invariants, stops, options."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import paper_data
import pytest
from handmade import LeastSquares, Logistic, Norm1
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import strat
from strat.errors import ConvergenceWarning, DataWarning, NoOracleError, OptionError
from strat.oracles.rescaled import Rescaled
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph, LogDet
from strat.problem.joint_problem import JointProblem
from strat.solvers import MAPG, NewtonCG
from strat.solvers.default import default_solver
from strat.solvers.prox_slope import ProxSlope, probes

TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
N = 4  # features


# ---------------------------------------------------------------- whole problems, in strat and in CVXPY


def graph_of(name, weight=3.0):
    """Graphs on 9 strata; nothing has records in strata 2 and 8."""
    graph = nx.Graph()
    graph.add_nodes_from(range(9))
    edges = {
        "chain": [(k, k + 1) for k in range(8)],
        "grid": [(k, k + 1) for k in range(8) if k % 3 < 2] + [(k, k + 3) for k in range(6)],
        "random": list(nx.gnm_random_graph(9, 20, seed=3).edges),
        "disconnected": [(0, 1), (1, 2), (3, 4), (6, 7), (7, 8)],  # and 5 alone
    }[name]
    graph.add_edges_from((i, j, {"weight": weight * (1 + (i + j) % 3)}) for i, j in edges)
    if name == "disconnected":
        graph.add_edge(2, 3, weight=0.0)
    return graph


def records(loss, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.choice([0, 1, 3, 4, 5, 6, 7], size=70)
    X = rng.standard_normal((70, N))
    margin = X @ rng.standard_normal(N) + 0.3 * z * X[:, 0] - 1
    if loss == "logistic":
        return X, np.where(rng.random(70) < 1 / (1 + np.exp(-margin)), 1.0, -1.0), z
    if loss == "softmax":
        return X, np.eye(3)[rng.integers(3, size=70)], z
    if loss == "poisson":
        return X, rng.poisson(np.exp(np.clip(margin, -3, 2))).astype(float), z
    return X, margin + rng.standard_normal(70), z


def loss_of(name, u, y, total):
    """The loss of one record (or of all, with `total` = cp.sum), u = x @ theta."""
    return {
        "least squares": lambda: total(cp.square(u - y)),
        "logistic": lambda: total(cp.logistic(-cp.multiply(y, u))),
        "softmax": lambda: (
            cp.log_sum_exp(u) - u @ y
            if total is not cp.sum
            else cp.sum(cp.log_sum_exp(u, axis=1)) - cp.sum(cp.multiply(u, y))
        ),
        "poisson": lambda: total(cp.exp(u) - cp.multiply(y, u)),
        "huber": lambda: total(cp.huber(u - y, 0.5)),
    }[name]()


REGULARIZERS = {
    "ridge": lambda v: 0.3 * cp.sum_squares(v),
    "l1": lambda v: 0.8 * cp.norm1(v),
    "group": lambda v: (
        1.5 * cp.norm2(cp.reshape(v, (v.size,), order="C")[:2])
        + 1.5 * cp.norm2(cp.reshape(v, (v.size,), order="C")[2:])
    ),
    "box": lambda v: 0,
    "nonneg": lambda v: 0,
}


def limits(name, v):
    return {"box": [v >= -0.2, v <= 0.25], "nonneg": [v >= 0]}.get(name, [])


def shape_of(loss):
    return (N, 3) if loss == "softmax" else N


def declared(loss, regularizer, couple=None):
    theta, x = cp.Variable(shape_of(loss), name="theta"), cp.Parameter(N, name="x")
    y = cp.Parameter(3, name="y") if loss == "softmax" else cp.Parameter(name="y")
    options = {} if couple is None else {"couple": {theta: couple}}
    return strat.BaseModel(
        loss_of(loss, x @ theta, y, lambda e: e),
        REGULARIZERS[regularizer](theta),
        limits(regularizer, theta),
        data=(x, y),
        **options,
    )


def whole_problem(loss, regularizer, graph, X, Y, z, couple=None):
    """The LRSM as one CVXPY problem."""
    K = graph.number_of_nodes()
    thetas = [cp.Variable(shape_of(loss)) for _ in range(K)]
    total, rows = 0, []
    for k in range(K):
        mine = np.asarray(z) == k
        if mine.any():
            total += loss_of(loss, X[mine] @ thetas[k], Y[mine], cp.sum)
        total += REGULARIZERS[regularizer](thetas[k])
        rows += limits(regularizer, thetas[k])
    p = np.ones(shape_of(loss)) if couple is None else couple
    for i, j, w in graph.edges(data="weight"):
        total += w / 2 * cp.sum(cp.multiply(p, cp.square(thetas[i] - thetas[j])))
    return cp.Problem(cp.Minimize(total), rows)


def fitted(model, *data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return model.fit(*data, **options)


def solved(problem):
    """Optimal value; Clarabel may say that it does not reach the accuracy asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return problem.solve(solver=cp.CLARABEL, **TIGHT)


def check_optimum(loss, regularizer, graph, couple=None, weight=3.0):
    X, Y, z = records(loss)
    graph = graph_of(graph, weight)
    model = strat.lrsm(declared(loss, regularizer, couple), graph, solver=NewtonCG(tol=1e-8))
    result = fitted(model, X, Y, strata=z).result_
    best = solved(whole_problem(loss, regularizer, graph, X, Y, z, couple))
    assert result.status == "converged" and max(result.residual.values()) <= 1e-8
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert np.all(np.diff(result.history) <= 0)
    return result


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize(
    ("loss", "graph"),
    [
        ("least squares", "chain"),
        ("logistic", "grid"),
        ("softmax", "random"),
        ("poisson", "disconnected"),
        ("huber", "chain"),
    ],
)
def test_optimum(loss, graph, regularizer):
    check_optimum(loss, regularizer, graph)


@pytest.mark.parametrize("graph", ["grid", "random", "disconnected"])
@pytest.mark.parametrize("loss", ["least squares", "huber"])
def test_optimum_on_other_graphs(loss, graph):
    check_optimum(loss, "l1", graph)


@pytest.mark.parametrize("regularizer", ["l1", "group", "nonneg", "box"])
@pytest.mark.parametrize("loss", ["least squares", "logistic"])
def test_optimum_with_strong_edges(loss, regularizer):
    result = check_optimum(loss, regularizer, "grid", weight=500.0)
    assert result.iterations <= 15


@pytest.mark.parametrize("couple", [np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.0, 1e-3, 1.0, 50.0])])
@pytest.mark.parametrize("regularizer", ["ridge", "l1"])
def test_optimum_with_couple_weights(couple, regularizer):
    check_optimum("logistic", regularizer, "grid", couple)


@pytest.mark.parametrize("loss", ["least squares", "logistic"])
def test_least_squares_without_kinks_takes_one_step(loss):
    result = check_optimum(loss, "ridge", "chain")
    assert result.iterations == 1 if loss == "least squares" else 2 < result.iterations < 10


def test_one_stratum():
    X, Y, _ = records("logistic")
    graph = nx.Graph()
    graph.add_node(0)
    model = strat.lrsm(declared("logistic", "l1"), graph).fit(X, Y, strata=[0] * len(Y))
    best = solved(whole_problem("logistic", "l1", graph, X, Y, [0] * len(Y)))
    assert model.result_.objective == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("regularizer", ["simplex", "sum", "monotone"])
def test_constraints_that_tie_coordinates(regularizer):
    theta, x, y = cp.Variable(N, name="theta"), cp.Parameter(N, name="x"), cp.Parameter(name="y")
    constraints = {
        "simplex": lambda v: [v >= 0, cp.sum(v) == 1],
        "sum": lambda v: [cp.sum(v) == 1],
        "monotone": lambda v: [cp.diff(v) >= 0],
    }[regularizer]
    X, Y, z = records("least squares")
    graph = graph_of("grid")
    base = strat.BaseModel(cp.square(x @ theta - y), 0, constraints(theta), data=(x, y))
    model = fitted(strat.lrsm(base, graph, solver=NewtonCG(tol=1e-8)), X, Y, strata=z)
    assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-8)


# ------------------------------------------------------------------------------------ a covariance model


def test_covariances_with_too_few_records():
    """PSD matrix variable, -log_det + trace, fewer records than dimensions, an empty stratum."""
    d, graph = 4, strat.graphs.path(5, weight=0.7)
    S, x = cp.Variable((d, d), PSD=True, name="S"), cp.Parameter(d, name="x")
    base = strat.BaseModel(-cp.log_det(S) + cp.quad_form(x, S), 0.1 * cp.trace(S), data=(x,))
    rng = np.random.default_rng(0)
    z = np.array([0, 0, 1, 1, 1, 3, 4, 4, 4, 4, 4, 4])
    X = rng.standard_normal((len(z), d)) @ rng.standard_normal((d, d))
    model = strat.lrsm(base, graph).fit(X, strata=z)
    matrices = [cp.Variable((d, d), PSD=True) for _ in range(5)]
    total = 0
    for k, V in enumerate(matrices):
        mine = X[z == k]
        total += -len(mine) * cp.log_det(V) + cp.trace(V @ (mine.T @ mine)) + 0.1 * cp.trace(V)
    for i, j, w in graph.edges(data="weight"):
        total += w / 2 * cp.sum_squares(matrices[i] - matrices[j])
    best = solved(cp.Problem(cp.Minimize(total)))
    assert model.result_.objective == pytest.approx(best, rel=1e-6)
    assert np.linalg.eigvalsh(model.theta_["S"]).min() > 1e-3
    assert model.theta_["S"] == pytest.approx(model.theta_["S"].swapaxes(1, 2), abs=1e-13)


# ------------------------------------------------------------------------------------ real data


def test_concrete_least_squares_optimum():
    """The whole least squares problem is one linear system."""
    train = paper_data.training("concrete")
    table = paper_data.rows("concrete/records.csv")
    names = [c for c in table[0] if c not in ("compressive_strength_mpa", "age_days", "fly_ash")]
    X = np.array([[float(row[c]) for c in names] for row in table])[train]
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    Y = np.array([float(row["compressive_strength_mpa"]) for row in table])[train]
    strata = [(int(r["age_bin"]), int(r["ash_bin"])) for r in paper_data.rows("concrete/strata.csv")]
    z = paper_data.select(strata, train)
    graph = strat.graphs.product(
        strat.graphs.path(range(10), weight=5.0), strat.graphs.path(range(10), weight=2.0)
    )
    n = X.shape[1]
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(x @ theta - y), 0.005 * cp.sum_squares(theta), data=(x, y))
    model = strat.lrsm(base, graph).fit(X, Y, strata=z)
    place = {label: k for k, label in enumerate(graph.nodes)}
    index = np.array([place[label] for label in z])
    H = np.kron(nx.laplacian_matrix(graph).toarray(), np.eye(n)) + 0.01 * np.eye(100 * n)
    b = np.zeros(100 * n)
    for xi, yi, k in zip(X, Y, index, strict=True):
        block = slice(k * n, (k + 1) * n)
        H[block, block] += 2 * np.outer(xi, xi)
        b[block] += 2 * yi * xi
    best = float(Y @ Y - 0.5 * b @ np.linalg.solve(H, b))
    assert model.result_.objective == pytest.approx(best, rel=1e-9)
    assert model.result_.iterations <= 2


def test_mesothelioma_logistic_optimum():
    train = paper_data.training("mesothelioma")
    table = paper_data.rows("mesothelioma/records.csv")
    skipped = {"age", "gender", list(table[0])[-1]}
    columns = [c for c in table[0] if c not in skipped]
    X = np.array([[float(row[c]) for c in columns] for row in table])[train]
    X = X[:, X.std(axis=0) > 0]
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    Y = np.array([2.0 * (int(row[list(row)[-1]]) == 2) - 1 for row in table])[train]
    strata = paper_data.rows("mesothelioma/strata.csv")
    z = paper_data.select([(row["sex"], int(row["age"])) for row in strata], train)
    ages = strat.graphs.path(range(19, 86), weight=500.0)
    graph = strat.graphs.product(strat.graphs.path(["Male", "Female"], weight=10.0), ages)
    n = X.shape[1]
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-y * (x @ theta)), 0.1 * cp.sum_squares(theta), data=(x, y))
    result = strat.lrsm(base, graph).fit(X, Y, strata=z).result_
    place = {label: k for k, label in enumerate(graph.nodes)}
    index, L = np.array([place[label] for label in z]), nx.laplacian_matrix(graph).tocsr()

    def value_and_gradient(flat):
        T = flat.reshape(-1, n)
        margin, LT = -Y * np.einsum("ij,ij->i", X, T[index]), L @ T
        g = LT + 0.2 * T
        np.add.at(g, index, (-Y / (1 + np.exp(-margin)))[:, None] * X)
        value = np.logaddexp(0, margin).sum() + 0.1 * np.sum(T**2) + 0.5 * np.sum(T * LT)
        return value, g.ravel()

    options = {"maxiter": 20000, "maxfun": 50000, "maxcor": 50, "ftol": 1e-16, "gtol": 1e-8}
    start = np.zeros(L.shape[0] * n)
    best = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.objective <= best * (1 + 1e-9)


# ------------------------------------------------------------------------------------ invariants

sizes = st.integers(2, 6)
seeds = st.integers(0, 10**6)
few = settings(max_examples=8, deadline=None, derandomize=True)


def small(K, seed, loss="logistic", regularizer="l1", weight=1.0):
    """A random connected graph, records in all but perhaps some strata, and a model."""
    rng = np.random.default_rng(seed)
    graph = nx.Graph()
    graph.add_nodes_from(range(K))
    graph.add_edges_from(
        (k, int(rng.integers(k)), {"weight": weight * rng.uniform(0.5, 2)}) for k in range(1, K)
    )
    z = rng.integers(K, size=40)
    X, Y = rng.standard_normal((40, N)), rng.choice([-1.0, 1.0], size=40)
    model = strat.lrsm(declared(loss, regularizer), graph, solver=NewtonCG(tol=1e-9))
    return model, graph, X, Y, z


def theta(model):
    return model.theta_["theta"]


@few
@given(sizes, seeds, st.sampled_from(["logistic", "least squares"]))
def test_strong_edges_give_the_common_model(K, seed, loss):
    model, graph, X, Y, z = small(K, seed, loss, "ridge", weight=1e7)
    common = fitted(strat.common(model.base, graph, solver=NewtonCG(tol=1e-9)), X, Y, strata=z)
    assert theta(fitted(model, X, Y, strata=z)) == pytest.approx(theta(common), abs=1e-4)


@few
@given(sizes, seeds, st.sampled_from(["logistic", "least squares", "huber"]))
def test_no_edges_give_the_separate_models(K, seed, loss):
    model, graph, X, Y, z = small(K, seed, loss, "l1")
    separate = fitted(strat.separate(model.base, graph, solver=NewtonCG(tol=1e-9)), X, Y, strata=z)
    for k in np.unique(z):
        alone = fitted(strat.separate(model.base), X[z == k], Y[z == k], strata=z[z == k])
        assert separate.at(k)["theta"] == pytest.approx(alone.at(k)["theta"], abs=1e-5)
    nothing = fitted(model.set_params(scale=0.0), X, Y, strata=z)
    assert np.array_equal(theta(nothing), theta(separate))


@few
@given(sizes, seeds)
def test_relabelling_permutes(K, seed):
    model, graph, X, Y, z = small(K, seed)
    other = nx.Graph()
    other.add_nodes_from(f"s{k}" for k in np.random.default_rng(seed).permutation(K))
    other.add_weighted_edges_from((f"s{i}", f"s{j}", w) for i, j, w in graph.edges(data="weight"))
    fitted(model, X, Y, strata=z)
    twin = fitted(strat.lrsm(model.base, other, solver=model.solver), X, Y, strata=[f"s{k}" for k in z])
    for k in range(K):
        assert twin.at(f"s{k}")["theta"] == pytest.approx(model.at(k)["theta"], abs=1e-6)


@few
@given(sizes, seeds)
def test_weights_count_records(K, seed):
    model, _, X, Y, z = small(K, seed)
    weight = np.random.default_rng(seed).integers(3, size=len(Y))
    weight[0] = 1
    one = theta(fitted(model, X, Y, strata=z, sample_weight=weight))
    X, Y, z = (np.repeat(a, weight, axis=0) for a in (X, Y, z))
    assert one == pytest.approx(theta(fitted(model, X, Y, strata=z)), abs=1e-6)


@pytest.mark.parametrize("make", [strat.lrsm, strat.separate])
def test_a_stratum_with_nothing_gets_the_regularizers_minimiser(make):
    theta_, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    graph = nx.Graph()
    graph.add_nodes_from("abc")
    graph.add_edge("a", "b", weight=1.0)
    base = strat.BaseModel(cp.sum_squares(theta_ - y), cp.norm1(theta_ - np.array([3.0, -2.0])), data=(y,))
    with pytest.warns(DataWarning, match="The stratum 'c' has neither records nor edges"):
        model = make(base, graph).fit([[0.0, 0.0], [9.0, 9.0]], strata=["a", "b"])
    assert model.at("c")["theta"] == pytest.approx([3.0, -2.0], abs=1e-9)
    assert any("'c'" in note and "regularizer's minimiser" in note for note in model.result_.notes)
    without = strat.BaseModel(cp.sum_squares(theta_ - y), data=(y,))
    with pytest.warns(DataWarning, match="stay at the start"):
        model = make(without, graph).fit([[0.0, 0.0], [9.0, 9.0]], strata=["a", "b"])
    assert np.array_equal(model.at("c")["theta"], [0.0, 0.0])


# ------------------------------------------------------------------------------------ default, options, stops


def problem(loss=Logistic, h=None, edges=None, K=8):
    rng = np.random.default_rng(0)
    X, y, stratum = (
        rng.standard_normal((60, 3)),
        rng.choice([-1.0, 1.0], size=60),
        rng.integers(K - 1, size=60),
    )
    edges = EdgeList(K, range(K - 1), range(1, K)) if edges is None else edges
    w0 = edges.from_vector(rng.random(edges.count))
    return JointProblem(loss(X, y, stratum, K), Norm1(0.2), h or FixedGraph(), edges, w0)


def solve(p, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return NewtonCG(**options).run(p, p.prox(np.zeros((p.K, p.n)), 1.0), p.w0)


@pytest.mark.parametrize("loss", [Logistic, LeastSquares])
def test_an_array_of_all_pairs_serves_as_well_as_a_list(loss):
    chain, pairs = problem(loss), problem(loss, edges=AllPairs(8))
    pairs.w0 = pairs.edges.from_matrix(chain.edges.to_matrix(chain.w0))
    one, other = solve(chain, tol=1e-9), solve(pairs, tol=1e-9)
    assert one.theta == pytest.approx(other.theta, abs=1e-8)


def test_the_default_follows_loss_and_graph():
    curved = Logistic(np.ones((2, 1)), np.ones(2), np.arange(2), 2)
    assert type(default_solver(curved, learned=False)) is NewtonCG
    assert type(default_solver(curved, learned=True)) is MAPG
    cones = Norm1(1.0)
    cones.prox = (
        strat.compile(cp.log_sum_exp(cp.hstack([cp.norm(cp.Variable(2)), 1]))).bind_regularizer().prox
    )
    assert type(default_solver(curved, learned=False, regularizer=cones)) is strat.Cone
    flat = Logistic(np.ones((2, 1)), np.ones(2), np.arange(2), 2)
    flat.hessian_operator = None
    flat.has = lambda name: name == "value_and_gradient"
    assert type(default_solver(flat, learned=False)) is MAPG


def test_a_learned_graph_is_an_error_that_names_mapg():
    with pytest.raises(
        OptionError, match=r"NewtonCG fits theta for a given graph.*learns W.*strat\.MAPG\(\)"
    ):
        solve(problem(h=LogDet(0.5, 0.2, 0.1, 0.2), edges=AllPairs(8)))


def test_a_loss_without_second_derivatives_is_an_error_that_names_mapg():
    p = problem()
    p.loss.has = lambda name: name != "hessian_operator"
    with pytest.raises(
        NoOracleError, match=r"NewtonCG needs the Hessian product of the loss.*\n.*strat\.MAPG\(\)"
    ):
        solve(p)


def test_stops_and_a_checkpoint(tmp_path):
    p, path = problem(), tmp_path / "state.npz"
    whole = solve(p, tol=1e-9)
    assert whole.status == "converged" and not list(tmp_path.iterdir())
    assert solve(p, tol=1e-9, max_iter=2).status == "max_iter"
    assert solve(p, tol=1e-9, time_limit=0.0).status == "time_limit"
    stopped = solve(p, tol=1e-9, checkpoint=path, callback=lambda state: state.iteration == 2)
    assert stopped.status == "interrupted" and path.exists()
    resumed = solve(p, tol=1e-9, checkpoint=path)
    assert resumed.status == "converged" and not path.exists()
    assert resumed.history == pytest.approx(whole.history, rel=1e-12)
    assert np.array_equal(solve(p, tol=1e-9).theta, whole.theta)


def test_no_accuracy_is_too_much():
    result = solve(problem(), tol=0.0)
    assert result.status == "max_iter" and result.residual["theta"] <= 1e-12
    assert np.all(np.diff(result.history) <= 0)


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_a_linear_loss(weight):
    theta, x = cp.Variable(2, name="theta"), cp.Parameter(2, name="x")
    X, graph = np.array([[1.0, -2.0], [3.0, 1.0]]), strat.graphs.path(2, weight=weight)
    for regularizer, constraints in ((cp.sum_squares(theta), []), (0, [theta >= -1, theta <= 2])):
        base = strat.BaseModel(x @ theta, regularizer, constraints, data=(x,))
        model = strat.lrsm(base, graph, solver=NewtonCG()).fit(X, strata=[0, 1])
        assert model.result_.objective == pytest.approx(solved(model.to_cvxpy()), rel=1e-7)


def test_a_weighted_regularizer_is_probed_by_its_blocks():
    theta, x = cp.Variable(6), cp.Parameter(6)
    base = strat.BaseModel(cp.square(x @ theta), 0.3 * cp.norm1(theta), data=(x,))
    plain = base.regularizer_program.bind_regularizer()
    weighted = Rescaled(plain, 7.0)
    v, t = np.random.default_rng(0).standard_normal((4, 6)), np.full(4, 0.1)
    np.testing.assert_allclose(weighted.prox(v, t), plain.prox(v, 7 * t), rtol=1e-14)
    assert probes(weighted.prox, 6)[1].shape == (
        6,
        1,
    )  # one pair of calls for all coordinates, not one for each
    assert ProxSlope(weighted.prox, v, t).jacobian.shape == (4, 6)


@pytest.mark.parametrize(
    "solver",
    [strat.MAPG(), strat.NewtonCG(), strat.AlternatingMinimization()],
    ids=["MAPG", "NewtonCG", "alternating"],
)
def test_tiny_data_are_no_reason_to_stop_at_once(solver):
    # With data of size 1e-8 all gradients are below the 1 in the residual; the same problem in other units has the same fit.
    rng, K, objectives = np.random.default_rng(0), 20, []
    X, z = rng.standard_normal((200, 6)), np.arange(200) % 20
    Y = X @ rng.standard_normal(6) + rng.standard_normal(200) + z * 0.1
    for unit in (1.0, 1e-8):
        theta, x, y = cp.Variable(6), cp.Parameter(6), cp.Parameter()
        base = strat.BaseModel(cp.huber(y - x @ theta, unit), 3 * unit**2 * cp.norm1(theta), data=(x, y))
        graph = strat.graphs.path(range(K), weight=5 * unit**2)
        model = strat.StratifiedModel(base, graph, strat.FixedGraph(), solver=solver)
        result = model.fit(unit * X, unit * Y, strata=z).result_
        assert result.status == "converged"
        objectives.append(result.objective / unit**2)
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-4)


@pytest.mark.parametrize("solver", [strat.ADMM(), strat.AlternatingMinimization()])
@pytest.mark.parametrize("unit", [1e-8, 1e3])
def test_units_of_the_data_do_not_stop_admm(solver, unit):
    rng, K, results = np.random.default_rng(0), 20, []
    X, z = rng.standard_normal((200, 6)), np.arange(200) % 20
    Y = X @ rng.standard_normal(6) + rng.standard_normal(200) + z * 0.1
    for u in (1.0, unit):
        theta, x, y = cp.Variable(6), cp.Parameter(6), cp.Parameter()
        base = strat.BaseModel(u * cp.abs(y - x @ theta), 3 * u**2 * cp.norm1(theta), data=(x, y))
        graph = strat.graphs.path(range(K), weight=5 * u**2)
        results.append(strat.lrsm(base, graph, solver=solver).fit(u * X, u * Y, strata=z).result_)
        assert results[-1].status == "converged"
    assert results[1].objective / unit**2 == pytest.approx(results[0].objective, rel=2e-3)
    assert results[1].iterations < 2 * results[0].iterations + 2


def ridge_model(loss, graph, **options):
    theta, x, y = cp.Variable(N), cp.Parameter(N), cp.Parameter()
    base = strat.BaseModel(loss(x @ theta - y), 0.3 * cp.sum_squares(theta - 1), data=(x, y))
    return strat.lrsm(base, graph, **options)


@pytest.mark.parametrize("graph", ["chain", "grid", "random", "disconnected"])
def test_quadratics_alone_take_one_factor_and_one_step(graph):
    X, y, z = records("least squares")
    model = ridge_model(cp.square, graph_of(graph), solver=NewtonCG(tol=1e-9))
    result = model.fit(X, y, strata=z).result_
    assert result.status == "converged" and result.iterations <= 2
    assert result.history == sorted(result.history, reverse=True)
    value = model.to_cvxpy().solve(solver=cp.CLARABEL, **TIGHT)
    assert result.objective == pytest.approx(value, rel=1e-9)
    again = model.fit(X, y, strata=z, init={"theta": model.theta_}).result_
    assert again.status == "converged" and again.objective <= result.objective * (1 + 1e-13)


def test_quadratics_without_curvature_in_some_strata():
    y, z = np.array([1.0, 2.0, 6.0]), [0, 0, 3]
    theta, p = cp.Variable(), cp.Parameter()
    base = strat.BaseModel(cp.square(p - theta), data=(p,))
    graph = strat.graphs.path([0, 1, 2, 3, 4])
    graph.add_edge(5, 6)  # a part without records: it stays where it starts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = strat.lrsm(base, graph).fit(y, strata=z)
    fitted = next(iter(model.theta_.values()))
    assert model.result_.status == "converged"
    np.testing.assert_allclose(fitted[5:], 0.0, atol=1e-8)
    assert fitted[3] == pytest.approx(fitted[4], abs=1e-6)
    value = model.to_cvxpy().solve(solver=cp.CLARABEL, **TIGHT)
    assert model.result_.objective == pytest.approx(value, rel=1e-8)


def test_the_curvature_of_ridges_is_known():
    theta = cp.Variable(3)
    for regularizer in (
        0.7 * cp.sum_squares(theta - 2),
        cp.sum_squares(cp.multiply([1.0, 0.0, 3.0], theta)) + theta[0],
    ):
        oracle = strat.compile(regularizer).bind_regularizer()
        for prox, weight in ((oracle.prox, 1.0), (Rescaled(oracle, 3.0).prox, 3.0)):
            v, t = np.random.default_rng(0).standard_normal((4, 3)), np.array([1e-6, 0.1, 1.0, 1e9])
            e, slope = 1e-6 * np.eye(3), ProxSlope(prox, v, t)
            differences = [(prox(v + d, t) - prox(v - d, t))[:, i] / 2e-6 for i, d in enumerate(e)]
            np.testing.assert_allclose(slope.jacobian, np.transpose(differences), rtol=1e-4, atol=1e-9)
            hessian = weight * oracle.hessian_operator(v)(np.ones((4, 3)))
            np.testing.assert_allclose(slope.curvature, hessian, rtol=1e-14)
            assert slope.free.all() and not slope.kinks.any()
    for other in (cp.norm1(theta), cp.sum_squares(theta) + cp.pos(theta[0]), cp.norm(theta)):
        assert strat.compile(other).bind_regularizer().prox.diagonal is None
    assert (
        strat.compile(cp.sum_squares(theta), constraints=[theta >= 0]).bind_regularizer().prox.diagonal
        is None
    )
