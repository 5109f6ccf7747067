"""Losses with smoothed kinks by interior points."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from problems import TIGHT

import strat
from strat.oracles.interior_point import KinkedProx

N = 3


def records(seed=0):
    """Records of 8 strata; nothing is known of stratum 3."""
    rng = np.random.default_rng(seed)
    z = rng.choice([0, 1, 2, 4, 5, 6, 7], size=90)
    X = rng.standard_normal((90, N))
    y = X @ rng.standard_normal(N) + 0.4 * z + rng.standard_t(2, 90)
    return X, y, z, rng.integers(1, 4, 90).astype(float)


LOSSES = {
    "pinball": lambda u, y: cp.maximum(0.9 * (y - u), -0.1 * (y - u)),
    "hinge": lambda u, y: cp.pos(1 - y * u),
    "absolute": lambda u, y: 2 * cp.abs(y - u),
}
KINKED = {
    "pinball": LOSSES["pinball"],
    "eps": lambda u, y: cp.pos(cp.abs(y - u) - 0.5),
    "three kinks": lambda u, y: cp.maximum(0, y - u - 1, 2 * (y - u) - 4, u - y),
    "with a square": lambda u, y: 2 * cp.abs(y - u) + 0.3 * cp.square(u - y),
}


def graph_of(name):
    graph = {"chain": nx.path_graph(8), "complete": nx.complete_graph(8), "star": nx.star_graph(7)}[name]
    nx.set_edge_attributes(graph, 1.7, "weight")
    return graph


def declared(loss, smoothing, regularizer=None, **options):
    theta, b = cp.Variable(N, name="theta", **options), cp.Variable(name="b")
    x, y = cp.Parameter(N, name="x"), cp.Parameter(name="y")
    penalty = 0.05 * cp.sum_squares(theta) if regularizer is None else regularizer(theta)
    return strat.BaseModel(loss(x @ theta + b, y), penalty, data=(x, y), smoothing=smoothing)


def by_cvxpy(loss, smoothing, graph, X, y, z, weight, regularizer=None, nonneg=False):
    """The smoothed problem: a record's loss is min_v loss(v) + (u − v)² / (2 smoothing)."""
    theta, b, v = cp.Variable((8, N), nonneg=nonneg), cp.Variable(8), cp.Variable(len(y))
    u = cp.sum(cp.multiply(X, theta[z]), axis=1) + b[z]
    argument = 1 - cp.multiply(y, u) if loss == "hinge" else y - u
    one = {"hinge": cp.pos(v), "pinball": cp.maximum(0.9 * v, -0.1 * v), "absolute": 2 * cp.abs(v)}[loss]
    scale = y**2 if loss == "hinge" else np.ones(len(y))  # the envelope is one in x @ theta + b
    total = weight @ (one + cp.multiply(1 / (2 * smoothing * scale), cp.square(argument - v)))
    total += 0.05 * cp.sum_squares(theta) if regularizer is None else regularizer(theta)
    for i, j, w in graph.edges(data="weight"):
        total += 0.5 * w * (cp.sum_squares(theta[i] - theta[j]) + cp.square(b[i] - b[j]))
    return cp.Problem(cp.Minimize(total)).solve(solver="CLARABEL", **TIGHT)


@pytest.mark.parametrize("graph", ["chain", "complete", "star"])
@pytest.mark.parametrize("smoothing", [1.0, 0.01])
@pytest.mark.parametrize("loss", LOSSES)
def test_smoothed_kinks_reach_the_optimum_in_few_iterations(loss, smoothing, graph):
    X, y, z, weight = records()
    y = np.sign(y) if loss == "hinge" else y
    model = strat.lrsm(declared(LOSSES[loss], smoothing), graph_of(graph), solver=strat.NewtonCG(tol=1e-8))
    model.fit(X, y, strata=z, sample_weight=weight)
    best = by_cvxpy(loss, smoothing, graph_of(graph), X, y, z, weight)
    assert model.result_.smoothed_objective == pytest.approx(best, rel=1e-7)
    assert model.result_.iterations <= 5
    assert np.all(np.diff(model.result_.history) <= 1e-12 * abs(best))


@pytest.mark.parametrize("smoothing", [0.5, 1e-4])
@pytest.mark.parametrize("case", ["l1", "bounds"])
def test_other_terms_are_left_to_newton_steps_and_a_cone_program(case, smoothing):
    X, y, z, weight = records()
    l1 = (lambda theta: 2.0 * cp.sum(cp.abs(theta))) if case == "l1" else None
    base = declared(LOSSES["pinball"], smoothing, l1, nonneg=case == "bounds")
    model = strat.lrsm(base, graph_of("chain"), solver=strat.NewtonCG(tol=1e-8))
    model.fit(X, y, strata=z, sample_weight=weight)
    best = by_cvxpy("pinball", smoothing, graph_of("chain"), X, y, z, weight, l1, nonneg=case == "bounds")
    assert model.result_.smoothed_objective == pytest.approx(best, rel=1e-7)
    assert model.result_.status == "converged" and model.result_.iterations <= 129


@pytest.mark.parametrize("loss", KINKED)
def test_the_prox_of_kinks_is_that_of_the_cone_program(loss):
    X, y, z, weight = records()
    X, y, z, weight = (np.tile(a, (2,) + (1,) * (a.ndim - 1)) for a in (X, y, z, weight))
    y[90:] += 0.5
    program = declared(KINKED[loss], None).loss_program
    prox = program.bind(X, y, strata=z, strata_order=range(8), sample_weight=weight).flat.prox
    assert isinstance(prox, KinkedProx)
    v = np.random.default_rng(3).standard_normal((8, N + 1))
    for t in (1e-3, 1.0, 1e3):
        np.testing.assert_allclose(prox(v, t), prox.rescue(v, t), atol=2e-6)
        unit = np.array([1e3, 1.0, 1e-3, 5.0])  # of other parameters, theta = unit · z
        z_in_units = prox.rescaled(2.0, unit)(v, t)
        np.testing.assert_allclose(z_in_units, prox.rescaled(2.0, unit).rescue(v, t), atol=2e-5)


@pytest.mark.parametrize("loss", ["eps", "three kinks"])
@pytest.mark.parametrize("smoothing", [0.5, 1e-3])
def test_several_smoothed_kinks_a_record_take_few_iterations(loss, smoothing):
    X, y, z, weight = records()
    model = strat.lrsm(declared(KINKED[loss], smoothing), graph_of("chain"), solver=strat.NewtonCG(tol=1e-8))
    model.fit(X, y, strata=z, sample_weight=weight)
    model_by_gradients = strat.lrsm(model.base, model.graph, solver=strat.MAPG(tol=1e-7, max_iter=20000))
    model_by_gradients.fit(X, y, strata=z, sample_weight=weight)
    assert model.result_.iterations <= 5 and model.result_.status == "converged"
    best = model_by_gradients.result_.smoothed_objective
    assert model.result_.smoothed_objective == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("edges", [True, False])
def test_the_interior_point_method_ends_where_its_gap_is_closed(edges):
    """Rounding keeps the gradient above a small tolerance when the slopes have settled: Newton's steps do the rest."""
    rng = np.random.default_rng(1)
    z, steps = rng.integers(60, size=720), rng.standard_normal((60, 6))
    X, truth = rng.standard_normal((720, 6)), np.cumsum(steps, axis=0) / 5
    y = (X * truth[z]).sum(axis=1) + rng.standard_normal(720)
    theta, x, target = cp.Variable(6), cp.Parameter(6), cp.Parameter()
    r, ridge = x @ theta - target, 0.1 * cp.sum_squares(theta)
    base = strat.BaseModel(0.5 * cp.abs(r) + 0.3 * r, ridge, data=(x, target), smoothing=1e-3)
    graph = nx.path_graph(60) if edges else nx.empty_graph(60)
    model = strat.lrsm(base, graph, solver=strat.NewtonCG(tol=1e-8)).fit(X, y, strata=z)
    assert model.result_.status == "converged" and model.result_.iterations <= 8
