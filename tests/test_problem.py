"""The joint problem: objective, gradients and residual from their definitions."""

import numpy as np
import pytest
from handmade import Box, LeastSquares, Logistic, Norm1, Softmax

from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph, LogDet
from strat.problem.joint_problem import JointProblem

K, P = 6, 3


def problem(edges=None, h=None, couple=None, loss="logistic", regularizer=None):
    rng = np.random.default_rng(1)
    edges = AllPairs(K) if edges is None else edges
    X, stratum = rng.standard_normal((40, P)), rng.integers(K - 1, size=40)  # the last stratum has no record
    if loss == "softmax":
        loss = Softmax(X, rng.integers(2, size=40), stratum, K)
    elif loss == "squares":
        loss = LeastSquares(X, rng.standard_normal(40), stratum, K)
    else:
        loss = Logistic(X, rng.choice([-1.0, 1.0], size=40), stratum, K)
    h = LogDet(0.7, 0.3, 0.2, 0.4) if h is None else h
    w0 = edges.from_vector(rng.random(edges.count))
    return JointProblem(loss, Norm1(0.1) if regularizer is None else regularizer, h, edges, w0, couple)


def point(problem, seed=0):
    rng = np.random.default_rng(seed)
    edges = problem.edges
    return rng.standard_normal((problem.K, problem.n)), edges.from_vector(rng.random(edges.count))


def gradients(problem, theta, w):
    point = problem.point(theta, w).differentiate()
    return point.theta_gradient, point.w_gradient * problem.edges.mask


COUPLE = np.array([1.0, 0.0, 2.5])


@pytest.mark.parametrize("couple", [None, COUPLE])
def test_objective_from_its_definition(couple):
    p = problem(couple=couple)
    theta, w = point(p)
    i, j = p.edges.ends
    c = np.ones(P) if couple is None else couple
    d = ((theta[i] - theta[j]) ** 2 * c).sum(axis=1)
    parts = p.parts(theta, w)
    assert parts["laplacian"] == pytest.approx(0.5 * p.edges.vector(w) @ d)
    W, W0 = p.edges.to_matrix(w), p.edges.to_matrix(p.w0)
    assert parts["graph"] == pytest.approx(p.graph_regularizer.expression(W, W0).value)
    assert parts["regularizer"] == pytest.approx(0.1 * np.abs(theta).sum())
    assert p.objective(theta, w) == pytest.approx(sum(parts.values()))
    assert p.point(theta, w).objective == pytest.approx(p.objective(theta, w), rel=1e-13)


@pytest.mark.parametrize("couple", [None, COUPLE])
@pytest.mark.parametrize("loss", ["logistic", "squares"])
@pytest.mark.parametrize("edges", [AllPairs(K), EdgeList(K, [0, 1, 2, 0], [1, 2, 3, 5])])
def test_gradients_are_finite_differences(edges, loss, couple):
    p = problem(edges, loss=loss, couple=couple)
    theta, w = point(p)
    theta_gradient, w_gradient = gradients(p, theta, w)

    def smooth(theta, w):
        parts = p.parts(theta, w)
        return parts["loss"] + parts["laplacian"] + parts["graph"]

    rng = np.random.default_rng(2)
    direction, change = rng.standard_normal(theta.shape), edges.from_vector(rng.standard_normal(edges.count))
    e = 1e-6
    by_theta = (smooth(theta + e * direction, w) - smooth(theta - e * direction, w)) / (2 * e)
    by_w = (smooth(theta, w + e * change) - smooth(theta, w - e * change)) / (2 * e)
    assert np.vdot(theta_gradient, direction) == pytest.approx(by_theta, rel=1e-6)
    assert edges.dot(w_gradient, change) == pytest.approx(by_w, rel=1e-6)


def test_residual_from_its_definition():
    p = problem()
    theta, w = point(p)
    i, j = p.edges.ends
    v = p.edges.vector(w)
    loss_gradient = p.loss.value_and_gradient(theta)[1]
    L = p.edges.dense_laplacian(w)
    g = loss_gradient + L @ theta
    step = theta - p.prox(theta - g, 1.0)
    size = 1 + max(np.linalg.norm(loss_gradient), np.linalg.norm(L @ theta))
    S = np.linalg.inv(L + 0.4 * np.eye(K))
    rho, d = S[i, i] + S[j, j] - 2 * S[i, j], ((theta[i] - theta[j]) ** 2).sum(axis=1)
    gw = d / 2 - 0.7 * rho + 2 * 0.3 * 0.8 * (v - p.edges.vector(p.w0)) + 2 * 0.3 * 0.2
    move = v - np.maximum(v - gw, 0)
    residual = p.residual(theta, w)
    assert residual["theta"] == pytest.approx(np.linalg.norm(step) / size)
    assert residual["W"] == pytest.approx(
        np.linalg.norm(move) / (1 + max(np.linalg.norm(d / 2), 0.7 * np.linalg.norm(rho)))
    )


def test_both_edge_sets_agree():
    a, b = problem(AllPairs(K)), problem(EdgeList(K, *np.triu_indices(K, 1)))
    theta, w = point(a)
    v = a.edges.vector(w)
    assert a.objective(theta, w) == pytest.approx(b.objective(theta, v), rel=1e-13)
    assert a.residual(theta, w) == pytest.approx(b.residual(theta, v), rel=1e-12)
    np.testing.assert_allclose(
        a.edges.vector(gradients(a, theta, w)[1]), gradients(b, theta, v)[1], atol=1e-12
    )


def test_a_fixed_graph_has_no_w_residual_and_no_graph_term():
    p = problem(h=FixedGraph(), regularizer=Box(-1.0, 1.0))
    theta, w = point(p)
    assert p.residual(theta, w)["W"] == 0
    assert p.parts(theta, w)["graph"] == 0
    assert not gradients(p, theta, w)[1].any()


def test_outside_the_domain_F_is_infinite():
    p = problem()
    theta, w = point(p)
    assert p.point(theta, -100 * p.edges.mask).objective == np.inf
