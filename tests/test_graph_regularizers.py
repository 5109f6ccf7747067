"""Graph regularizers: numbers of their oracles, exact graph steps against CVXPY, scaling laws, learn_graph, errors."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone

import strat
from strat import Entropy, FixedGraph, LogDet, LogDiagonal, TraceConstraint
from strat.errors import ConvergenceWarning, DataError, GraphError, OptionError, ShapeError
from strat.problem import graph_regularizers
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers.trace_constraint import onto_simplex

K = 6
EDGES = [AllPairs(K), EdgeList(K, [0, 0, 1, 2, 4, 3], [1, 5, 3, 4, 5, 2])]
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of Clarabel, asked for much
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
CASES = [
    *(LogDet(2.0, 0.5, 0.3, 0.1), LogDet(2.0, 0.5, 1.0, 0.1), LogDet(0.0, 0.5, 0.0, 1.0), LogDet(1.0, 0.0, 0.5, 2.0)),
    *(LogDiagonal(2.0, 0.5), LogDiagonal(0.0, 0.5), LogDiagonal(3.0, 1e-3), Entropy(0.7)),
    *(TraceConstraint(4.0, 0.3), TraceConstraint(4.0, 0.0), TraceConstraint(2.0, 1e-4)),
]  # fmt: skip
ALL = [LogDet(0.5, 0.2, 0.1, 0.2), LogDiagonal(1.0, 0.1), TraceConstraint(5.0, 0.1), Entropy(0.7)]
LONELY = nx.Graph([(0, 1), (1, 2)])
LONELY.add_node(3)
THETA, TWO, ONE = np.arange(4.0)[:, None], [[0.0], [1.0]], [[0.0]]


def point(edges, seed=0):
    return np.random.default_rng(seed).random(edges.count)


def oracle_of(h, edges):
    return h._oracle_class(h, edges, edges.zeros())


def half_distances(edges, scale=1.0, seed=0):
    return edges.distances(scale * np.random.default_rng(seed).standard_normal((edges.K, 3))) / 2


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", CASES)
def test_values_are_the_expressions_and_derivatives_are_differences(h, edges):
    w, w0, n = point(edges), point(edges, 1), edges.count
    for prior, expression in ((w0, h.expression(*map(edges.matrix, (w, w0)))), (edges.zeros(), None)):
        expression = h.expression(edges.matrix(w)) if expression is None else expression
        for factor in (1.0, 1e5):
            oracle = h._oracle_class(h._times(factor), edges, prior)
            assert oracle.set(w) + oracle.rest() == pytest.approx(factor * expression.value, rel=1e-9)

    def gradient(w):
        oracle.set(w)
        return oracle.gradient(edges.zeros())

    oracle = h._oracle_class(h, edges, w0)
    steps, slope = [1e-5 * e for e in np.eye(n)], gradient(w)
    differences = [(oracle.set(w + s) - oracle.set(w - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)
    # The metric bounds the Hessian, that of the log determinant up to 3.
    hessian = np.stack([(gradient(w + s) - gradient(w - s)) / 2e-5 for s in steps])
    oracle.set(w)
    bound = np.diag(oracle.curvature(edges.zeros())) * (3 if isinstance(h, LogDet) else 1)
    smallest = np.linalg.eigvalsh(bound - (hessian + hessian.T) / 2).min()
    assert smallest > -1e-6 or (isinstance(h, LogDet) and edges is EDGES[1])


@pytest.mark.parametrize("h", CASES)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_value_without_edges_is_the_expression(h):
    oracle, none = oracle_of(h, EDGES[0]), EDGES[0].zeros()
    expected = np.nan_to_num(h.expression(np.zeros((K, K))).value, posinf=np.inf)
    assert oracle.set(none) + oracle.rest() == pytest.approx(expected)


def test_every_graph_regularizer_is_public_and_tested():
    names = set(graph_regularizers.__all__) - {"FixedGraph", "GraphRegularizer"}
    assert names == {type(h).__name__ for h in CASES} == names & set(strat.__all__)


def test_projection_on_the_simplex_far_away():
    v = np.array([1e9, 1e9 + 1.0, -1e12])
    np.testing.assert_allclose(onto_simplex(v, 1.0, 2.0), [0.5, 1.5, 0.0], atol=1e-6)
    assert not onto_simplex(v, 1.0, 0.0).any()


def test_domains():
    edges = AllPairs(3)
    one, none = np.full(3, 1 / 3), edges.zeros()
    assert oracle_of(LogDet(1.0, 1.0, 0.1, 0.5), edges).set(-np.ones(3)) == np.inf
    for h, inside, outside in (
        (LogDiagonal(1.0, 1.0), [one], [none, -one]),
        (LogDiagonal(0.0, 1.0), [one, none], []),
        (TraceConstraint(2.0, 1.0), [one], [none, 1.1 * one]),
        (Entropy(1.0), [one, none], [-one]),
    ):
        feasible = h._oracle_class(h, edges, none).feasible
        assert all(map(feasible, inside)) and not any(map(feasible, outside))


def learned(theta, h, pairs=None, W0=None):
    """learn_graph, and the minimum by Clarabel over matrices W that are 0 where there is no candidate edge."""
    K = len(theta)
    graph = None if W0 is None else (list(range(K)), W0)
    found = strat.learn_graph(theta, h, graph, edges="all" if pairs is None else pairs, tol=1e-9)
    W, absent = cp.Variable((K, K), symmetric=True), np.ones((K, K))
    for i, j in zip(*np.tril_indices(K), strict=True) if pairs is None else pairs:
        absent[i, j] = absent[j, i] = 0
    total = h.expression(W, W0) + cp.sum(cp.multiply(((theta[:, None] - theta) ** 2).sum(axis=2), W)) / 4
    problem = cp.Problem(cp.Minimize(total), [*h.constraints(W), cp.multiply(absent, W) == 0])
    problem.solve(cp.CLARABEL, **TIGHT)
    return found, problem.solution.opt_val


@pytest.mark.parametrize("h", [h for h in CASES + ALL if all(h.get_params().values())])
@pytest.mark.parametrize("pairs", [None, [*nx.path_graph(7).edges], [(0, 1), (2, 3), (4, 5), (6, 0), (3, 6)]])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_learn_graph_against_cvxpy(pairs, h, scale):
    rng = np.random.default_rng(int(10 * scale))
    theta = scale * rng.standard_normal((7, 3)) / (2 if isinstance(h, Entropy) else 1)
    W0 = nx.to_numpy_array(strat.graphs.cycle(7, weight=rng.random(7))) if scale == 1 else None
    found, best = learned(theta, h, pairs, W0)
    assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    W = found.W
    laplacian = np.trace(theta.T @ (np.diag(W.sum(axis=1)) - W) @ theta) / 2
    assert found.objective == pytest.approx(laplacian + h.expression(W, W0).value, rel=1e-9)
    assert found.objective == pytest.approx(sum(found.parts.values()))
    assert np.array_equal(W, W.T) and not np.diag(W).any() and W.min() >= 0
    assert found.residual <= 1e-8 and found.seconds > 0 and str(found).startswith("graph       7 strata, ")


def stationarity(h, edges, c, w):
    """Relative violation of the conditions of the optimum of a LogDiagonal step: sign, and complementarity."""
    oracle = oracle_of(h, edges)
    oracle.set(w)
    gradient = oracle.gradient(edges.zeros()) + c
    size = edges.add_ends(h.lambda1 / edges.degrees(w), edges.zeros())
    return max(np.max(-gradient / size), np.sum(w * np.abs(gradient)) / (h.lambda1 * edges.K))


@pytest.mark.parametrize("edges", [AllPairs(30), EdgeList(30, range(29), range(1, 30))])
@pytest.mark.parametrize("lambda2", [1.0, 1e-3, 1e-8, 0.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8])
def test_log_diagonal_at_all_scales(edges, lambda2, scale):
    h, c = LogDiagonal(1.0, lambda2), half_distances(edges, scale)
    assert stationarity(h, edges, c, oracle_of(h, edges).minimize(c)[0]) <= 1e-7


def test_log_diagonal_with_a_cluster_and_strata_far_from_it():
    edges, h, theta = AllPairs(20), LogDiagonal(1.0, 1e-3), np.zeros((20, 1))
    theta[10:, 0] = 10.0 ** np.linspace(-3, 4, 10)
    c = edges.distances(theta) / 2
    assert stationarity(h, edges, c, oracle_of(h, edges).minimize(c)[0]) <= 1e-7


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_trace_constraint_at_all_scales(scale):
    edges, h = AllPairs(20), TraceConstraint(5.0, 0.1)
    c, oracle = half_distances(edges, scale), oracle_of(h, edges)
    w, _ = oracle.minimize(c)
    oracle.set(w)
    gradient, active = oracle.gradient(edges.zeros()) + c, w > 0
    level = gradient[active].mean()
    assert np.ptp(gradient[active]) <= 1e-10 * (abs(level) + 1e-12)
    assert gradient[~active].min(initial=np.inf) >= level * (1 - 1e-10)


def test_graph_steps_with_a_formula():
    edges, theta = AllPairs(5), np.array([[0.0], [1.0], [3.0]])
    w, _ = oracle_of(LogDiagonal(2.0, 0.5), edges).minimize(edges.zeros())
    np.testing.assert_allclose(w, np.sqrt(2.0 / (4 * 0.5)), rtol=1e-10)
    for lambda2 in (0.0, 0.5):
        w, _ = oracle_of(TraceConstraint(2.0, lambda2), edges).minimize(edges.zeros())
        np.testing.assert_allclose(w, 0.1, rtol=1e-10)
    W = strat.learn_graph(theta, TraceConstraint(2.0, 0.0)).W
    np.testing.assert_allclose(W, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    for h in (LogDiagonal(0.0, 1.0), TraceConstraint(0.0, 1.0)):
        assert not strat.learn_graph(theta, h).W.any()
    assert strat.learn_graph([[0.0]], Entropy(1.0)).objective == 0.0


@pytest.mark.parametrize("h", [LogDiagonal(1.0, 0.1), TraceConstraint(20.0, 0.1)])
def test_candidate_edges_that_would_fill_a_factor(monkeypatch, h):
    size = 200
    ends = np.transpose(nx.compose(nx.gnm_random_graph(size, 800, seed=0), nx.path_graph(size)).edges)
    exact = EdgeList(size, *ends)
    c = half_distances(exact)
    expected, _ = oracle_of(h, exact).minimize(c)
    assert exact.exact_solver
    monkeypatch.setattr("strat.problem.edges.WIDTH", 10)
    edges = EdgeList(size, *ends)
    assert not edges.exact_solver
    w, _ = oracle_of(h, edges).minimize(c)
    np.testing.assert_allclose(w, expected, atol=1e-9)


@pytest.mark.parametrize("h", ALL)
def test_relabelling_permutes_the_graph(h):
    rng = np.random.default_rng(3)
    theta, order = rng.standard_normal((8, 2)), rng.permutation(8)
    W, moved = (strat.learn_graph(rows, h, tol=1e-10).W for rows in (theta, theta[order]))
    np.testing.assert_allclose(moved, W[np.ix_(order, order)], atol=1e-7)


def test_scaling_laws_of_log_diagonal():
    theta = np.random.default_rng(3).standard_normal((8, 2))
    W = strat.learn_graph(theta, LogDiagonal(2.0, 0.3)).W
    np.testing.assert_allclose(2.0 * strat.learn_graph(theta, LogDiagonal(1.0, 2.0 * 0.3)).W, W, atol=1e-9)
    scaled = strat.learn_graph(3.0 * theta, LogDiagonal(2.0, 0.3 * 3.0**4)).W
    np.testing.assert_allclose(3.0**2 * scaled, W, atol=1e-9)


def test_a_prior_graph_and_a_dict_of_parameters():
    graph, h = strat.graphs.path(["a", "b", "c"], weight=2.0), ALL[0]
    theta = {"v": np.arange(12.0).reshape(3, 2, 2) / 10, "b": np.ones(3)}
    one = strat.learn_graph(theta, h, graph)
    two = strat.learn_graph(np.c_[theta["v"].reshape(3, 4), theta["b"]], h, graph)
    assert np.array_equal(one.W, two.W) and one.labels == ["a", "b", "c"]


def test_a_stratum_without_candidate_edges():
    for h in (TraceConstraint(1.0, 1.0), Entropy(1.0), ALL[0]):
        assert not strat.learn_graph(THETA, h, LONELY, edges="prior").W[3].any()
    with pytest.raises(GraphError, match=r"edges: stratum 3 \(1 in all\) has no candidate edge"):
        strat.learn_graph(THETA, LogDiagonal(1.0, 1.0), LONELY, edges="prior")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((TWO, FixedGraph()), OptionError, "graph_regularizer must be strat.LogDet"),
        ((TWO, LogDiagonal(-1, 1)), OptionError, "lambda1 = -1 is out of range"),
        (([*ONE, *TWO], LogDiagonal(1.0, 0.0)), OptionError, "lambda2 = 0: two strata have equal parameters"),
        ((ONE, LogDiagonal(1, 1)), GraphError, "there is one stratum, and LogDiagonal needs an edge"),
        (([["a"], ["b"]], ALL[3]), DataError, "theta holds something other than numbers"),
        ((TWO, ALL[3], strat.graphs.path(3)), ShapeError, "theta has 2 rows, but the graph has 3"),
    ],
)
def test_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        strat.learn_graph(*arguments)


def test_too_few_iterations_warn():
    text = "learn_graph stopped with residual .* after 2 iterations. Raise max_iter"
    with pytest.warns(ConvergenceWarning, match=text):
        strat.learn_graph(np.random.default_rng(1).standard_normal((7, 4)), ALL[0], max_iter=2)
    with warnings.catch_warnings(action="error"):
        far = 1e8 * np.random.default_rng(0).normal(size=(6, 3))
        assert strat.learn_graph(far, strat.LogDet(1.0, 0.1, 0.1, 0.5), strat.graphs.path(6)).residual == 0


def test_sklearn_parameters():
    assert clone(TraceConstraint(lambda1=1, lambda2="x")).get_params() == {"lambda1": 1, "lambda2": "x"}
    h = LogDet(lambda1=1, lambda2="x", eta=0.1, mu=2)
    assert clone(h).get_params() == {"lambda1": 1, "lambda2": "x", "eta": 0.1, "mu": 2}
    assert h.set_params(lambda2=3).lambda2 == 3
    assert h.learned and not FixedGraph().learned and FixedGraph().expression(np.eye(2)).value == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lambda1": -1}, "lambda1 = -1 is out of range: it must be a number of at least 0"),
        ({"eta": 1.5}, "eta = 1.5 is out of range: it must be a number between 0 and 1"),
        ({"mu": 0}, "mu = 0 is out of range: it must be a number above 0"),
        ({"mu": "big"}, "mu = 'big'"),
    ],
)
def test_parameters_out_of_range(options, text):
    h = LogDet(**{"lambda1": 1.0, "lambda2": 1.0, "eta": 0.1, "mu": 0.1, **options})
    with pytest.raises(OptionError, match=text):
        h.validate(joint=True)


def test_lambda2_may_be_zero_unless_the_objective_would_fall_for_ever():
    text = "lambda2 = 0.* is out of range: it must be a number above 0 where"
    for h in (LogDet(1.0, 0, 0.1, 0.1), LogDiagonal(1.0, 0.0)):
        h.validate()
        with pytest.raises(OptionError, match=text):
            h.validate(joint=True)
    for h in (LogDet(0, 0, 0.1, 0.1), LogDiagonal(0.0, 0.0), TraceConstraint(1.0, 0.0)):
        h.validate(joint=True)


def test_the_bayesian_constants_give_the_posterior():
    """The objective differs from minus the log posterior by a constant, over random parameters and graphs."""
    n, mu, c1, c2 = 3, 0.7, 0.8, 0.3
    h = LogDet.from_bayes(n=n, c1=c1, c2=c2, mu=mu)
    assert (h.lambda1, h.lambda2, h.eta, h.mu) == (n / 2, c1 + c2, c2 / (c1 + c2), mu)
    for seed in range(5):
        theta = np.random.default_rng(seed).standard_normal((K, n))
        W = EDGES[0].matrix(point(EDGES[0], seed))
        precision = mu * np.eye(K) + np.diag(W.sum(axis=1)) - W
        # Each of the n columns of theta is N(0, precision^-1); W has density ∝ exp(-c1/2 ||W||_F^2 - c2 ||W||_1).
        square = 0.5 * np.trace(theta.T @ precision @ theta)
        log_prior = n / 2 * np.linalg.slogdet(precision)[1] - square
        log_prior += -c1 / 2 * np.sum(W**2) - c2 * np.abs(W).sum()
        assert square + h.expression(W).value + log_prior == pytest.approx(0.0, abs=1e-9)
    for c1, c2 in ((0.0, 0.0), (-1.0, 2.0), (1.0, np.nan)):
        with pytest.raises(OptionError, match="c1|c2"):
            LogDet.from_bayes(n=3, c1=c1, c2=c2, mu=1.0)
