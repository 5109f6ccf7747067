"""The joint problem from its definitions, and the edge sets, both storages of which compute the same numbers."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from problems import graph, problem

from strat.errors import GraphError, OptionError
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph
from strat.problem import joint_problem
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import LogDet
from strat.problem.laplacians import Laplacians
from strat.solvers.joint_steps import graph_step

H = LogDet(0.7, 0.3, 0.2, 0.4)
COUPLE = np.array([1.0, 0.0, 2.5])
PAIRS = [(i, j) for i in range(10) for j in range(i)]


def joint(loss="logistic", edges="all", couple=None):
    return problem(loss, "l1", H, graph("random"), couple, edges=edges)


def point(p, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((p.K, p.n)), rng.random(p.edges.count)


def gradients(p, theta, w):
    there = p.point(theta, w).differentiate()
    return there.theta_gradient, there.w_gradient


@pytest.mark.parametrize("couple", [None, COUPLE])
@pytest.mark.parametrize("loss", ["logistic", "squares"])
@pytest.mark.parametrize("edges", ["all", "prior"])
def test_objective_from_its_definition_and_its_gradients_are_differences(edges, loss, couple):
    p = joint(loss, edges, couple)
    theta, w = point(p)
    i, j = p.edges.ends
    d = ((theta[i] - theta[j]) ** 2 * (1 if couple is None else couple)).sum(axis=1)
    parts = p.parts(theta, w)
    assert parts["laplacian"] == pytest.approx(0.5 * w @ d)
    W, W0 = p.edges.matrix(w), p.edges.matrix(p.w0)
    assert parts["graph"] == pytest.approx(p.graph_regularizer.expression(W, W0).value)
    assert parts["regularizer"] == pytest.approx(0.8 * np.abs(theta).sum())
    assert p.objective(theta, w) == pytest.approx(sum(parts.values()))
    assert p.point(theta, w).objective == pytest.approx(p.objective(theta, w), rel=1e-13)
    assert p.point(theta, np.full(p.edges.count, -100)).objective == np.inf
    theta_gradient, w_gradient = gradients(p, theta, w)

    def smooth(a, b):
        parts = p.parts(theta + a * direction, w + b * change)
        return parts["loss"] + parts["laplacian"] + parts["graph"]

    direction, change = point(p, 2)
    e = 1e-6
    by_theta, by_w = (smooth(e, 0) - smooth(-e, 0)) / (2 * e), (smooth(0, e) - smooth(0, -e)) / (2 * e)
    assert np.vdot(theta_gradient, direction) == pytest.approx(by_theta, rel=1e-6)
    assert w_gradient @ change == pytest.approx(by_w, rel=1e-6)


@pytest.mark.parametrize("part", [7, 2**17])  # numbers that are worked on at a time
def test_residual_from_its_definition(part, monkeypatch):
    monkeypatch.setattr(joint_problem, "PART", part)
    p = joint()
    theta, w = point(p)
    np.testing.assert_array_equal(*(f(theta, np.arange(1.0, p.K + 1)) for f in (p.prox, p.regularizer.prox)))
    i, j = p.edges.ends
    v, L = w, np.diag(p.edges.degrees(w)) - p.edges.matrix(w)
    loss_gradient = p.loss.value_and_gradient(theta)[1]
    step = theta - p.prox(theta - loss_gradient - L @ theta, 1.0)
    size = 1 + max(np.linalg.norm(loss_gradient), np.linalg.norm(L @ theta))
    S = np.linalg.inv(L + 0.4 * np.eye(p.K))
    rho, d = S[i, i] + S[j, j] - 2 * S[i, j], ((theta[i] - theta[j]) ** 2).sum(axis=1)
    gw = d / 2 - 0.7 * rho + 2 * 0.3 * 0.8 * (v - p.w0) + 2 * 0.3 * 0.2
    move = v - np.maximum(v - gw, 0)
    residual = p.residual(theta, w)
    assert residual["theta"] == pytest.approx(np.linalg.norm(step) / size)
    size = 1 + max(np.linalg.norm(d / 2), 0.7 * np.linalg.norm(rho))
    assert residual["W"] == pytest.approx(np.linalg.norm(move) / size)


def test_graph_steps_of_many_numbers(monkeypatch):
    p = joint()
    w = graph_step(p, point(p)[0]).w
    monkeypatch.setattr(joint_problem, "PART", 7)
    np.testing.assert_array_equal(graph_step(p, point(p)[0]).w, w)


def test_both_edge_sets_agree():
    a, b = joint(), joint(edges=PAIRS)
    theta, w = point(a)
    assert a.objective(theta, w) == pytest.approx(b.objective(theta, w), rel=1e-13)
    assert a.residual(theta, w) == pytest.approx(b.residual(theta, w), rel=1e-12)
    np.testing.assert_allclose(gradients(a, theta, w)[1], gradients(b, theta, w)[1], atol=1e-12)


@pytest.mark.parametrize("edges", ["all", "prior"])
def test_a_stratum_far_out_does_not_blur_those_that_no_edge_joins_to_it(edges):
    p = joint("squares", edges)
    theta, w = point(p)
    w *= np.min(p.edges.ends, axis=0) > 0
    near = p.point(theta, w).energies.copy()
    theta[0] = 1e15
    assert np.allclose(p.point(theta, w).energies, near, rtol=1e-12)


def test_a_fixed_graph_has_no_w_residual_and_no_graph_term():
    p = problem(regularizer="box")
    theta, w = point(p)
    assert p.residual(theta, w)["W"] == p.parts(theta, w)["graph"] == 0


K, N = 7, 3
EDGES = [AllPairs(K), EdgeList(K, *np.triu_indices(K, 1)), EdgeList(K, [0, 5, 2, 6], [3, 1, 4, 2])]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("edges", [*EDGES, AllPairs(1), EdgeList(3, [], [])])
def test_conversions_are_inverse(edges, rng):
    w = rng.random(edges.count)
    W = edges.matrix(w)
    assert np.array_equal(W, W.T)
    assert not np.diag(W).any()
    assert np.array_equal(edges.from_matrix(W), w)
    assert np.array_equal(edges.from_matrix(sp.csr_array(W)), w)
    i, j = edges.ends
    assert np.all(i < j)
    assert np.array_equal(w, W[i, j])


@pytest.mark.parametrize("edges", EDGES)
def test_numbers_against_matrices(edges, rng):
    w, theta = rng.random(edges.count), rng.standard_normal((K, N))
    W, (i, j) = edges.matrix(w), edges.ends
    L = np.diag(W.sum(axis=1)) - W
    degrees = edges.degrees(w)
    d = ((theta[i] - theta[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(degrees, W.sum(axis=1), rtol=1e-14)
    for order in "CF":
        product = Laplacians(edges, w, np.ones(N)).times(np.array(theta, order=order))
        np.testing.assert_allclose(product, L @ theta, atol=1e-13)
    np.testing.assert_allclose(edges.distances(theta), d, atol=1e-13)
    np.testing.assert_allclose(edges.add_ends(degrees, w.copy()), w + degrees[i] + degrees[j], atol=1e-13)
    assert edges.factor(w, degrees + 0.3).log_det == pytest.approx(np.linalg.slogdet(L + 0.3 * np.eye(K))[1])
    shift = rng.random(K) + 0.1
    assert np.allclose(edges.solver(w, shift)(theta), np.linalg.solve(L + np.diag(shift), theta), atol=1e-11)


@pytest.mark.parametrize("graph", ["neighbours", "grid", "star", "parts"])
def test_sparse_factors_are_those_of_dense_matrices(graph, rng):
    size, grid = 400, nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20))
    made = {"grid": grid, "parts": grid.subgraph(range(200, 400)), "star": nx.star_graph(399)}
    if graph == "neighbours":
        i, j = candidate_edges("knn", PriorGraph.without_edges(range(size)), lambda: rng.random((size, 2)))
    else:  # nodes without edges, too
        i, j = np.transpose(made[graph].edges)
    edges, w = EdgeList(size, i, j), rng.random(len(i))
    factors = []
    for edges.sparse in (True, False):
        factors.append(edges.factor(w, edges.degrees(w) + 0.1))
        with pytest.raises(np.linalg.LinAlgError):
            edges.factor(-w, -edges.degrees(w))
    assert factors[0].log_det == pytest.approx(factors[1].log_det, abs=1e-10)
    for sparse, dense in zip(*(factor.inverse() for factor in factors), strict=True):
        np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-10)


def test_what_does_not_fit_into_memory_is_refused_before_it_starts():
    text = "all 499,999,500,000 pairs would take 80,000 GB of memory, and the machine has .*knn"
    with pytest.raises(OptionError, match=text):
        AllPairs(1_000_000)
    with pytest.raises(OptionError, match="the sparse factors of this graph would take"):
        EdgeList.factor(SimpleNamespace(sparse=True, analysis=SimpleNamespace(bytes=1e15)), None, None)


def test_a_list_is_sorted_and_checked():
    edges = EdgeList(4, [3, 1], [0, 2])
    assert edges.ends[0].tolist() == [0, 1]
    assert edges.ends[1].tolist() == [3, 2]
    with pytest.raises(GraphError, match="listed twice"):
        EdgeList(4, [0, 1], [1, 0])
    with pytest.raises(GraphError, match="two different strata"):
        EdgeList(4, [2], [2])
    with pytest.raises(GraphError, match=r"shape \(3, 3\), but the graph has 4 strata"):
        edges.from_matrix(np.zeros((3, 3)))


def test_a_graph_that_fills_the_factor_is_not_factorised():
    K = 6000
    made = nx.fast_gnp_random_graph(K, 10 / K, seed=0), nx.path_graph(K)
    random, chain = (EdgeList(K, *np.transpose(graph.edges)) for graph in made)
    b, shift = np.ones((K, 1)), np.full(K, 0.5)
    for edges, exact in ((random, False), (chain, True)):
        w = np.ones(edges.count)
        x = edges.solver(w, shift)(b)
        assert np.allclose(Laplacians(edges, w, np.ones(1)).times(x) + shift[:, None] * x, b) == exact
