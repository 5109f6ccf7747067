"""LogDiagonal, TraceConstraint, Entropy: numbers, exact graph steps against CVXPY, scaling laws, learn_graph."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from test_graph_regularizers import CASES

import strat
from strat import Entropy, LogDet, LogDiagonal, TraceConstraint
from strat.errors import ConvergenceWarning, DataError, GraphError, OptionError, ShapeError
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers.trace_constraint import onto_simplex

K = 6
EDGES = [AllPairs(K), EdgeList(K, [0, 0, 1, 2, 4, 3], [1, 5, 3, 4, 5, 2])]
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of Clarabel, asked for much

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
SCALES = [0.0, 0.1, 1.0, 10.0]


def point(edges, seed=0):
    return edges.from_vector(np.random.default_rng(seed).random(edges.count))


def oracle_of(h, edges):
    return h.oracle(edges, edges.zeros())


def half_distances(edges, scale=1.0, seed=0):
    theta = scale * np.random.default_rng(seed).standard_normal((edges.K, 3))
    return edges.from_vector(edges.distances(theta) / 2)


def objective(h, edges, c, w):
    graph_oracle = oracle_of(h, edges)
    return edges.dot(c, w) + graph_oracle.set(w) + graph_oracle.rest()


def cvxpy_minimum(h, edges, c):
    """Minimum of sum_e c_e w_e + h(w) by Clarabel, on these edges."""
    W = cp.Variable((edges.K, edges.K), symmetric=True)
    C, absent, (i, j) = np.zeros((edges.K, edges.K)), np.ones((edges.K, edges.K)), edges.ends
    C[i, j], absent[i, j], absent[j, i] = edges.vector(c), 0, 0
    total = h.expression(W) + cp.sum(cp.multiply(C, W))
    constraints = [*h.constraints(W), cp.multiply(absent, W) == 0]
    return cp.Problem(cp.Minimize(total), constraints).solve(cp.CLARABEL, **TIGHT)


# ----------------------------------------------------------------- the numbers


def test_scales_are_the_norms_of_the_terms_that_balance():
    edges, w = EDGES[0], point(EDGES[0])
    i, j = edges.ends
    degrees = edges.degrees(w)
    graph_oracle = oracle_of(LogDiagonal(2.0, 0.5), edges)
    graph_oracle.set(w)
    assert graph_oracle.scale() == pytest.approx(2 * np.linalg.norm(1 / degrees[i] + 1 / degrees[j]))
    graph_oracle = oracle_of(TraceConstraint(1.0, 0.5), edges)
    graph_oracle.set(w)
    assert graph_oracle.scale() == pytest.approx(
        0.5 * np.linalg.norm(degrees[i] + degrees[j] + 2 * edges.vector(w))
    )


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", [TraceConstraint(4.0, 0.3), Entropy(0.7), LogDiagonal(1.0, 1.0)])
@pytest.mark.parametrize("metric", ["number", "edge array"])
def test_prox_of_the_rest_against_cvxpy(h, edges, metric):
    rng = np.random.default_rng(2)
    v = rng.standard_normal(edges.count)
    t = 0.4 if metric == "number" else rng.random(edges.count) + 0.1
    graph_oracle = oracle_of(h, edges)
    edge_t = t if metric == "number" else edges.from_vector(t)
    z = edges.vector(graph_oracle.prox(edges.from_vector(v), edge_t, edges.zeros()))
    x = cp.Variable(edges.count)
    rest, constraints = 0, [x >= 0]
    if isinstance(h, Entropy):
        rest = h.sigma**2 * cp.sum(-cp.entr(x) - x)
    elif isinstance(h, TraceConstraint):
        constraints.append(2 * cp.sum(x) == h.lambda1)
    near = cp.sum(cp.multiply(1 / (2 * np.broadcast_to(t, v.shape)), cp.square(x - v)))
    cp.Problem(cp.Minimize(rest + near), constraints).solve(cp.CLARABEL, **TIGHT)
    np.testing.assert_allclose(z, x.value, atol=1e-5)


def test_projection_on_the_simplex_far_away():
    v = np.array([1e9, 1e9 + 1.0, -1e12])
    np.testing.assert_allclose(onto_simplex(v, 1.0, 2.0), [0.5, 1.5, 0.0], atol=1e-6)
    assert not onto_simplex(v, 1.0, 0.0).any()


def test_feasible():
    edges = AllPairs(3)
    one = edges.mask / 3
    assert LogDiagonal(1.0, 1.0).oracle(edges, edges.zeros()).feasible(one)
    assert not LogDiagonal(1.0, 1.0).oracle(edges, edges.zeros()).feasible(edges.zeros())
    assert not LogDiagonal(1.0, 1.0).oracle(edges, edges.zeros()).feasible(-one)
    assert LogDiagonal(0.0, 1.0).oracle(edges, edges.zeros()).feasible(edges.zeros())
    assert TraceConstraint(2.0, 1.0).oracle(edges, edges.zeros()).feasible(one)
    assert not TraceConstraint(2.1, 1.0).oracle(edges, edges.zeros()).feasible(one)
    assert Entropy(1.0).oracle(edges, edges.zeros()).feasible(edges.zeros())
    assert not Entropy(1.0).oracle(edges, edges.zeros()).feasible(-one)


# ----------------------------------------------------------------- the graph step


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "h",
    [LogDiagonal(1.0, 0.1), LogDiagonal(3.0, 1e-3), TraceConstraint(5.0, 0.1), TraceConstraint(2.0, 1e-4)],
)
@pytest.mark.parametrize(
    "edges",
    [
        AllPairs(2),
        AllPairs(9),
        EdgeList(9, range(8), range(1, 9)),
        EdgeList(9, [0, 2, 4, 6, 8, 3], [1, 3, 5, 7, 0, 6]),
    ],
)
def test_graph_step_against_cvxpy(edges, h, scale):
    c = half_distances(edges, scale, seed=int(10 * scale))
    w, iterations = oracle_of(h, edges).minimize(c)
    best = cvxpy_minimum(h, edges, c)
    assert objective(h, edges, c, w) == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert h.oracle(edges, edges.zeros()).feasible(w)
    assert iterations <= 40


@pytest.mark.parametrize("edges", [AllPairs(4), EdgeList(4, [0, 1], [1, 2])])
def test_graph_step_of_the_entropy(edges):
    h, c = Entropy(0.8), half_distances(edges)
    w, _ = oracle_of(h, edges).minimize(c)
    np.testing.assert_allclose(edges.vector(w), np.exp(-edges.vector(c) / 0.8**2), rtol=1e-12)
    assert objective(h, edges, c, w) == pytest.approx(cvxpy_minimum(h, edges, c), rel=1e-7)


def stationarity(h, edges, c, w):
    """Relative violation of the conditions of the optimum of a LogDiagonal step: sign, and complementarity."""
    graph_oracle = oracle_of(h, edges)
    graph_oracle.set(w)
    gradient = edges.vector(graph_oracle.gradient(edges.zeros()) + c)
    size = edges.vector(edges.add_ends(h.lambda1 / edges.degrees(w), edges.zeros()))
    return max(np.max(-gradient / size), np.sum(edges.vector(w) * np.abs(gradient)) / (h.lambda1 * edges.K))


@pytest.mark.parametrize("edges", [AllPairs(30), EdgeList(30, range(29), range(1, 30))])
@pytest.mark.parametrize("lambda2", [1.0, 1e-3, 1e-8, 0.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8])
def test_log_diagonal_at_all_scales(edges, lambda2, scale):
    h, c = LogDiagonal(1.0, lambda2), half_distances(edges, scale)
    w, _ = oracle_of(h, edges).minimize(c)
    assert stationarity(h, edges, c, w) <= 1e-7


def test_log_diagonal_with_a_cluster_and_strata_far_from_it():
    edges, h = AllPairs(20), LogDiagonal(1.0, 1e-3)
    theta = np.zeros((20, 1))
    theta[10:, 0] = 10.0 ** np.linspace(-3, 4, 10)
    c = edges.from_vector(edges.distances(theta) / 2)
    w, _ = oracle_of(h, edges).minimize(c)
    assert stationarity(h, edges, c, w) <= 1e-7


def test_trace_constraint_at_all_scales():
    edges = AllPairs(20)
    for scale in (1e-6, 1.0, 1e4):
        h, c = TraceConstraint(5.0, 0.1), half_distances(edges, scale)
        w, _ = oracle_of(h, edges).minimize(c)
        graph_oracle = oracle_of(h, edges)
        graph_oracle.set(w)
        gradient = edges.vector(graph_oracle.gradient(edges.zeros()) + c)
        active = edges.vector(w) > 0
        level = gradient[active].mean()
        assert np.ptp(gradient[active]) <= 1e-10 * (abs(level) + 1e-12)
        assert gradient[~active].min(initial=np.inf) >= level * (1 - 1e-10)


def test_equal_strata():
    edges = AllPairs(5)
    w, _ = oracle_of(LogDiagonal(2.0, 0.5), edges).minimize(edges.zeros())
    np.testing.assert_allclose(edges.vector(w), np.sqrt(2.0 / (4 * 0.5)), rtol=1e-10)
    for lambda2 in (0.0, 0.5):
        w, _ = oracle_of(TraceConstraint(2.0, lambda2), edges).minimize(edges.zeros())
        np.testing.assert_allclose(edges.vector(w), 0.1, rtol=1e-10)


def test_without_squares():
    theta = np.array([[0.0], [1.0], [3.0]])
    W = strat.learn_graph(theta, TraceConstraint(2.0, 0.0)).W
    np.testing.assert_allclose(W, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    with pytest.raises(OptionError, match="lambda2 = 0: two strata have equal parameters"):
        strat.learn_graph([[0.0], [0.0], [3.0]], LogDiagonal(1.0, 0.0))


def test_zero_lambda1():
    for h in (LogDiagonal(0.0, 1.0), TraceConstraint(0.0, 1.0)):
        assert not strat.learn_graph([[0.0], [1.0], [3.0]], h).W.any()


def test_a_stratum_without_candidate_edges():
    graph = nx.Graph([(0, 1), (1, 2)])
    graph.add_node(3)
    theta = np.arange(4.0)[:, None]
    for h in (TraceConstraint(1.0, 1.0), Entropy(1.0), LogDet(1.0, 1.0, 0.1, 0.1)):
        W = strat.learn_graph(theta, h, graph, edges="prior").W
        assert not W[3].any()
    with pytest.raises(GraphError, match=r"edges: stratum 3 \(1 in all\) has no candidate edge"):
        strat.learn_graph(theta, LogDiagonal(1.0, 1.0), graph, edges="prior")


@pytest.mark.parametrize("h", [LogDiagonal(1.0, 0.1), TraceConstraint(20.0, 0.1)])
def test_candidate_edges_that_would_fill_a_factor(monkeypatch, h):
    rng, size = np.random.default_rng(0), 200
    pairs = rng.integers(size, size=(800, 2))
    chain = np.arange(size - 1)
    pairs = np.sort(np.r_[pairs[pairs[:, 0] != pairs[:, 1]], np.c_[chain, chain + 1]], axis=1)
    ends = np.unique(pairs, axis=0).T
    exact = EdgeList(size, *ends)
    c = half_distances(exact)
    expected, _ = oracle_of(h, exact).minimize(c)
    assert exact.exact_solver
    monkeypatch.setattr("strat.problem.edges.edge_list.WIDTH", 10)
    edges = EdgeList(size, *ends)
    assert not edges.exact_solver
    w, _ = oracle_of(h, edges).minimize(c)
    np.testing.assert_allclose(w, expected, atol=1e-9)


# ----------------------------------------------------------------- learn_graph


ALL = list({type(h): h for h in reversed(CASES)}.values())  # the first of each


@pytest.mark.parametrize("h", ALL)
def test_learn_graph_against_cvxpy(h):
    theta = np.random.default_rng(1).standard_normal((7, 4))
    graph = strat.learn_graph(theta, h)
    edges = AllPairs(7)
    c = edges.from_vector(edges.distances(theta) / 2)
    assert graph.objective == pytest.approx(cvxpy_minimum(h, edges, c), rel=1e-7)
    L = np.diag(graph.W.sum(axis=1)) - graph.W
    assert graph.objective == pytest.approx(
        0.5 * np.trace(theta.T @ L @ theta) + float(h.expression(graph.W).value), rel=1e-10
    )
    assert graph.objective == pytest.approx(sum(graph.parts.values()))
    assert graph.residual <= 1e-8
    assert np.array_equal(graph.W, graph.W.T)
    assert not np.diag(graph.W).any()
    assert graph.W.min() >= 0
    assert graph.seconds > 0
    assert str(graph).startswith("graph       7 strata, ")


@pytest.mark.parametrize("h", ALL)
def test_relabelling_permutes_the_graph(h):
    rng = np.random.default_rng(3)
    theta, order = rng.standard_normal((8, 2)), rng.permutation(8)
    W, moved = (strat.learn_graph(rows, h, tol=1e-10).W for rows in (theta, theta[order]))
    np.testing.assert_allclose(moved, W[np.ix_(order, order)], atol=1e-7)


def test_candidate_edges_of_all_pairs_change_nothing():
    theta = np.random.default_rng(3).standard_normal((6, 2))
    pairs = [(i, j) for i in range(6) for j in range(i)]
    for h in ALL:
        one, two = strat.learn_graph(theta, h, tol=1e-10), strat.learn_graph(theta, h, tol=1e-10, edges=pairs)
        np.testing.assert_allclose(two.W, one.W, atol=1e-7)


def test_scaling_laws_of_log_diagonal():
    theta = np.random.default_rng(3).standard_normal((8, 2))
    W = strat.learn_graph(theta, LogDiagonal(2.0, 0.3)).W
    np.testing.assert_allclose(2.0 * strat.learn_graph(theta, LogDiagonal(1.0, 2.0 * 0.3)).W, W, atol=1e-9)
    scaled = strat.learn_graph(3.0 * theta, LogDiagonal(2.0, 0.3 * 3.0**4)).W
    np.testing.assert_allclose(3.0**2 * scaled, W, atol=1e-9)


def test_a_prior_graph_and_a_dict_of_parameters():
    graph = strat.graphs.path(["a", "b", "c"], weight=2.0)
    theta = {"v": np.arange(12.0).reshape(3, 2, 2) / 10, "b": np.ones(3)}
    h = LogDet(0.5, 0.2, 0.1, 0.2)
    one = strat.learn_graph(theta, h, graph)
    two = strat.learn_graph(np.c_[theta["v"].reshape(3, 4), theta["b"]], h, graph)
    assert np.array_equal(one.W, two.W)
    assert one.labels == ["a", "b", "c"]
    W0 = nx.to_numpy_array(graph)
    d = ((theta["v"][:, None] - theta["v"][None]) ** 2).sum(axis=(2, 3))
    assert one.objective == pytest.approx(h.expression(one.W, W0).value + (one.W * d).sum() / 4, rel=1e-9)
    on_prior = strat.learn_graph(theta, h, graph, edges=[("a", "c")])
    assert on_prior.objective == pytest.approx(
        h.expression(on_prior.W, W0).value + (on_prior.W * d).sum() / 4, rel=1e-9
    )


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([[0.0], [1.0]], strat.FixedGraph()), OptionError, "graph_regularizer must be strat.LogDet"),
        (
            ([[0.0], [1.0]], Entropy(0.0)),
            OptionError,
            "sigma = 0.0 is out of range: it must be a number above 0",
        ),
        (([[0.0], [1.0]], LogDiagonal(-1, 1)), OptionError, "lambda1 = -1 is out of range"),
        (([[0.0], [1.0]], TraceConstraint(1, "x")), OptionError, "lambda2 = 'x' is out of range"),
        (([[0.0]], LogDiagonal(1, 1)), GraphError, "there is one stratum, and LogDiagonal needs an edge"),
        (
            ([[0.0]], TraceConstraint(1, 1)),
            GraphError,
            "there is one stratum, and TraceConstraint needs an edge",
        ),
        (({"a": [1.0], "b": [1.0, 2.0]}, Entropy(1.0)), DataError, r"theta has the shape \(1,\), \(2,\)"),
        (([[0.0], [np.nan]], Entropy(1.0)), DataError, "theta holds nan in row 1, column 0"),
        (([["a"], ["b"]], Entropy(1.0)), DataError, "theta holds something other than numbers"),
        (
            ([[0.0], [1.0]], Entropy(1.0), strat.graphs.path(3)),
            ShapeError,
            "theta has 2 rows, but the graph has 3",
        ),
    ],
)
def test_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        strat.learn_graph(*arguments)


def test_one_stratum_has_an_entropy():
    assert strat.learn_graph([[0.0]], Entropy(1.0)).objective == 0.0


def test_too_few_iterations_warn():
    theta = np.random.default_rng(1).standard_normal((7, 4))
    with pytest.warns(
        ConvergenceWarning, match="learn_graph stopped with residual .* after 2 iterations. Raise max_iter"
    ):
        strat.learn_graph(theta, CASES[0], max_iter=2)
