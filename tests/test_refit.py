"""Warm-started refits: each is the fit that a fresh model would make, and binds only what has changed."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone

import strat
from strat.model.fit import Refits
from strat.records.sample import Sample

RNG = np.random.default_rng(0)
N = 150
X, Z = RNG.normal(size=(N, 3)), [(int(a), int(b)) for a, b in RNG.integers(0, [4, 3], size=(N, 2))]
Y = np.sign(X @ [1.0, -1.0, 0.5] + 0.3 * np.array([a - b for a, b in Z]) + RNG.normal(size=N))
GRAPH = strat.graphs.grid(range(4), range(3), weight=(2.0, 1.0), name=("age", "dose"))


def declaration(**options):
    theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
    ridge, steep = cp.Parameter(nonneg=True, value=0.1, name="ridge"), cp.Parameter(value=1.0, name="steep")
    margin = x @ theta + b
    loss = cp.logistic(-y * steep * margin)
    return strat.BaseModel(loss, ridge * cp.sum_squares(theta), data=(x, y), predict=margin, **options)


def fresh(model, **params):
    return clone(model).set_params(**params).fit(X, Y, strata=Z)


@pytest.mark.parametrize("kind", ["lrsm", "joint", "common", "separate"])
def test_a_refit_is_the_fit_of_a_fresh_model(kind):
    options = {"lambda2": 0.5} if kind == "joint" else {}
    model = getattr(strat, kind)(declaration(), GRAPH, solver=strat.MAPG(tol=1e-9), **options)
    refits = Refits(model, (X, Y), Z)
    _, first = refits.fit()
    assert np.isclose(first.objective, fresh(model).result_.objective, rtol=1e-10)
    _, warm = refits.fit(first.theta, values={"ridge": 0.4, "steep": 2.0})
    alone = fresh(model, base__ridge=0.4, base__steep=2.0)
    assert np.isclose(warm.objective, alone.result_.objective, rtol=1e-8)
    if kind in ("lrsm", "joint"):
        _, scaled = refits.fit(first.theta, first.w, scale={"age": 3.0, "dose": 0.2})
        alone = fresh(model, scale__age=3.0, scale__dose=0.2)
        assert np.isclose(scaled.objective, alone.result_.objective, rtol=1e-8)
    if kind == "joint":
        h = clone(model.graph_regularizer).set_params(lambda1=2.0)
        _, other = refits.fit(first.theta, first.w, graph_regularizer=h)
        alone = fresh(model, graph_regularizer__lambda1=2.0)
        assert np.isclose(other.objective, alone.result_.objective, rtol=1e-8)
    assert not hasattr(model, "theta_")


@pytest.mark.parametrize("make", [strat.lrsm, strat.common])
def test_held_out_losses_are_those_of_a_fitted_model(make):
    model = make(declaration(smoothing=None), GRAPH)
    keep = np.arange(N) % 3 > 0
    inside, outside = ([z for z, k in zip(Z, keep == b, strict=True) if k] for b in (True, False))
    refits = Refits(model, (X[keep], Y[keep]), inside)
    part = Sample([model], (X[~keep], Y[~keep], outside), "validation").part()
    held, theta = refits.bound_model.held_out(part), refits.fit()[1].theta
    fitted = clone(model).fit(X[keep], Y[keep], strata=inside)
    losses = fitted.losses(X[~keep], Y[~keep], strata=outside)
    assert np.allclose(held.losses(theta), losses)
    assert np.isclose(held.mean_loss(theta), losses.mean())
    weight = np.arange(len(losses))
    weighted = refits.bound_model.held_out(part, weight)
    assert np.isclose(weighted.mean_loss(theta), np.average(losses, weights=weight))
    fitted._fit_values["steep"] = 2.0
    expected = fitted.losses(X[~keep], Y[~keep], strata=outside).mean()
    assert np.isclose(held.mean_loss(theta, {"steep": 2.0}), expected)


def test_a_warm_start_of_a_given_graph_takes_its_new_scale():
    model = strat.lrsm(declaration(), GRAPH, warm_start=True).fit(X, Y, strata=Z)
    model.set_params(scale__age=50.0).fit(X, Y, strata=Z)
    cold = strat.lrsm(declaration(), GRAPH, scale={"age": 50.0, "dose": 1.0}).fit(X, Y, strata=Z)
    assert np.isclose(model.result_.objective, cold.result_.objective, rtol=1e-6)
    assert np.array_equal(model.W_, cold.W_)
