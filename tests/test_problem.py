"""The joint problem: objective, gradients and residual from their definitions."""

import numpy as np
import pytest
from problems import graph, problem

from strat.problem import joint_problem
from strat.problem.graph_regularizers import LogDet

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


def test_both_edge_sets_agree():
    a, b = joint(), joint(edges=PAIRS)
    theta, w = point(a)
    assert a.objective(theta, w) == pytest.approx(b.objective(theta, w), rel=1e-13)
    assert a.residual(theta, w) == pytest.approx(b.residual(theta, w), rel=1e-12)
    found = gradients(a, theta, w)[1]
    np.testing.assert_allclose(found, gradients(b, theta, w)[1], atol=1e-12)


def test_a_fixed_graph_has_no_w_residual_and_no_graph_term():
    p = problem(regularizer="box")
    theta, w = point(p)
    assert p.residual(theta, w)["W"] == p.parts(theta, w)["graph"] == 0
