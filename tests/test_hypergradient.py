"""Derivatives through a fit: against differences of polished solves, and against CVXPY's own."""

import warnings
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from fitted_models import (
    LOSSES,
    REGULARIZERS,
    K,
    N,
    Refitted,
    derivative,
    edge_matrix,
    fitted,
    model_and_records,
    slopes,
    slopes_in,
)
from problems import mean

import strat
from strat import DataError, OptionError
from strat.model.hypergradient import FittedModel

EDGES = [(0, 1), (3, 4), (0, 5), (2, 7), (1, 6)]  # with a weight, of weight 0, no edge at all


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_equals_differences_of_refits(loss, regularizer):
    model, train, validation = model_and_records(loss, regularizer)
    model.fit(*train[:2], strata=train[2], sample_weight=np.random.default_rng(2).integers(3, size=N) / 2)
    value, gradient = strat.hypergradient(model, validation, wrt=("W0", "lam", "c"))
    refitted, W, D = Refitted(model, validation), model.W_, gradient["W0"]
    assert list(gradient) == ["W0", "lam", "c"] and np.array_equal(D, D.T) and not D.diagonal().any()
    assert value == pytest.approx(refitted.loss(W), rel=1e-9)
    np.testing.assert_allclose([D[e] for e in EDGES], slopes(refitted, W, EDGES), atol=1e-6 * np.abs(D).max())
    for name in ("lam", "c"):
        known = model.base.hyperparameters[name].value
        assert gradient[name] == pytest.approx(slopes_in(refitted, W, name, known), rel=1e-5, abs=1e-9)


def test_couple_scales_and_hyperparameters_of_every_kind():
    """Several variables, a vector of l1 weights, a hyperparameter in the loss, couple, factors, strata named by column."""
    theta, b = cp.Variable(3, name="theta"), cp.Variable(2, name="b")
    x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
    M = cp.Parameter(nonneg=True, name="M", value=0.8)
    each = cp.Parameter(3, nonneg=True, name="each", value=[0.0, 2.0, 0.7])
    together = cp.Parameter(2, nonneg=True, name="together", value=[0.6, 0.0])
    loss = M * cp.logistic(-cp.multiply(y, x @ theta + b[0])) + cp.square(b[1] - M * b[0])
    penalty = cp.norm1(cp.multiply(each, theta)) + 0.1 * cp.sum_squares(b) + 0.01 * cp.sum_squares(theta)
    base = strat.BaseModel(loss, penalty, data=(x, y), couple={"theta": [1.0, 0.3, 2.0], "b": together})
    rows = strat.graphs.path(["f", "m"], weight=1.5, name="row")
    tied = strat.graphs.product(rows, strat.graphs.path([1, 2, 3, 4], weight=0.7, name="column"))
    tied.edges[("f", 1), ("m", 1)]["weight"] = 0.0
    rng, z = np.random.default_rng(0), list(tied) * 15
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("pqr"))
    signs = np.where(frame["p"] + 0.3 * rng.logistic(size=120) > 0, 1.0, -1.0)
    frame["row"], frame["column"] = ([label[axis] for label in z] for axis in (0, 1))
    half = np.arange(120) < 70
    validation = frame[~half], signs[~half], ["row", "column"]
    model = strat.lrsm(base, tied, scale={"row": 1.2}).fit(frame[half], signs[half], strata=["row", "column"])
    value, gradient = strat.hypergradient(model, validation, wrt=("scale", "M", each, "together"))
    refitted, W = Refitted(model, validation), model.W_
    assert value == pytest.approx(refitted.loss(W), rel=1e-9)
    for name, at in [("M", 0.8), ("each", each.value), ("together", together.value)]:
        assert gradient[name] == pytest.approx(slopes_in(refitted, W, name, at), rel=1e-5, abs=1e-7)
    labels = list(tied)
    for name in ("row", "column"):
        edges = [(u, v) for u, v, factor in tied.edges(data="factor") if factor == name]
        own = W * sum(edge_matrix(labels.index(u), labels.index(v)) for u, v in edges)
        slope = derivative(lambda s, own=own: refitted.loss(W + s * own)) / {"row": 1.2, "column": 1.0}[name]
        assert gradient["scale"][name] == pytest.approx(slope, rel=1e-5)
    assert np.array_equal(each.value, [0.0, 2.0, 0.7])


def test_smoothed_losses_and_what_the_graph_does_not_couple():
    model, validation = fitted("squared", "l1", couple=())
    _, gradient = strat.hypergradient(model, validation, wrt=["W0", "lam"])
    assert not gradient["W0"].any() and gradient["lam"] != 0
    theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.abs(y - theta), 0.1 * cp.square(theta), data=(y,), smoothing=2.0)
    Y, z, h = np.array([0.3, 0.9, -1.0, 2.0, 0.1]), [0, 0, 1, 1, 2], 7e-5
    tight = strat.NewtonCG(tol=1e-12, max_iter=60)
    model = strat.lrsm(base, strat.graphs.path(3)).fit(Y, strata=z)
    loss, gradient = strat.hypergradient(model, ([0.2, 0.5], [0, 1]), wrt="scale")
    assert loss < -model.score([0.2, 0.5], strata=[0, 1])  # the smoothed loss
    moved = [strat.lrsm(base, model.graph, scale=s, solver=tight).fit(Y, strata=z) for s in (1 - h, 1 + h)]
    low, high = (np.mean((m.theta_["theta"][:2] - [0.2, 0.5]) ** 2) / 4 for m in moved)
    assert gradient["scale"]["all"] == pytest.approx((high - low) / (2 * h), rel=1e-6)


def test_what_cvxpy_cannot_differentiate_is_refused():
    pytest.importorskip("diffcp")
    lam = cp.Parameter(nonneg=True, name="lam", value=0.4)
    for options, match in (
        ({"smoothing": 1.0}, "the loss as declared, not its smoothing="),
        ({"couple": {"mu": lam}}, "lam multiplies edge weights"),
    ):
        model = strat.lrsm(mean(lam, **options), strat.graphs.path(2)).fit([1.0, 2.0], strata=[0, 1])
        with pytest.raises(OptionError, match=match):
            strat.hypergradient(model, ([1.0], [0]), lam, method="cvxpy")


@pytest.mark.parametrize(
    "regularizer, solver", [("l1", strat.MAPG(tol=1e-3)), ("group", strat.ADMM(tol=1e-4))]
)
def test_the_fit_need_not_be_accurate(regularizer, solver):
    rough, validation = fitted("logistic", regularizer, solver=solver)
    tight, _ = fitted("logistic", regularizer, solver=strat.MAPG(tol=1e-10))
    (a, A), (b, B) = (strat.hypergradient(m, validation, ("W0", "lam")) for m in (rough, tight))
    assert a == pytest.approx(b, rel=1e-9)
    assert np.allclose(A["W0"], B["W0"], rtol=0, atol=1e-8 * np.abs(B["W0"]).max())
    assert A["lam"] == pytest.approx(B["lam"], rel=1e-8)


def test_a_learned_graph_is_held_fixed():
    model, (X, Y, z), validation = model_and_records("logistic", "ridge")
    joint = strat.joint(model.base, model.graph, lambda1=0.5).fit(X, Y, strata=z)
    W = joint.W_.copy()
    _, gradient = strat.hypergradient(joint, validation)
    (slope,) = slopes(Refitted(joint, validation), W, [(1, 5)])
    assert gradient["W0"][1, 5] == pytest.approx(slope, rel=1e-5, abs=1e-8)
    assert np.array_equal(joint.W_, W)
    with pytest.raises(OptionError, match="learns W, which is held fixed"):
        strat.hypergradient(joint, validation, wrt="scale")


@pytest.mark.parametrize("regularizer", ["ridge", "l1", "group"])
@pytest.mark.parametrize("iterations_help", [True, False])
def test_the_system_is_solved_on_the_free_directions(regularizer, iterations_help, monkeypatch):
    for scale in (1.0, 1e4):
        model, (X, Y, z), _ = model_and_records("poisson", regularizer, scale=scale)
        hessian = FittedModel(model.fit(X, Y, strata=z), "a test").linearized().hessian
        if not iterations_help:  # so that the sparse factor has to
            monkeypatch.setattr(hessian, "_system", SimpleNamespace(solve=lambda b, free, tolerance: 0 * b))
        assert hessian.free.all == (regularizer != "l1" or scale > 1)
        b = np.random.default_rng(0).normal(size=(2, K, 4))
        for v, right in zip(hessian.solve(b), b, strict=True):
            free = hessian.basis @ (hessian.basis.T @ right.ravel())
            assert np.allclose(hessian.free.project(hessian.times(v)).ravel(), free, atol=1e-7)
            product = hessian.basis @ (hessian.matrix @ (hessian.basis.T @ v.ravel()))
            assert np.allclose(product, free, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_equals_cvxpy_where_that_is_accurate(loss):
    pytest.importorskip("diffcp")
    model, validation = fitted(loss, "l1" if loss == "poisson" else "ridge")
    wrt = ("W0", "scale", "lam", "c")
    ours, theirs = (strat.hypergradient(model, validation, wrt, method=m) for m in ("implicit", "cvxpy"))
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    own = model.W_ > 0  # at edges of weight 0 diffcp is wrong
    size = np.abs(ours[1]["W0"]).max()
    assert np.allclose(ours[1]["W0"][own], theirs[1]["W0"][own], rtol=0, atol=1e-4 * size)
    assert np.isnan(theirs[1]["W0"][0, 7])
    assert ours[1]["scale"]["all"] == pytest.approx(theirs[1]["scale"]["all"], rel=2e-3)
    for name in ("c", "lam"):
        assert ours[1][name] == pytest.approx(theirs[1][name], rel=2e-3)


def test_a_singular_hessian_is_never_silent():
    theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    X = np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]])  # the coefficients' difference is not determined
    graph = strat.graphs.path(3)
    loss = cp.square(y - x @ theta)
    held = (np.eye(3)[:, :2], [1.0, 2.0, 0.0], [0, 1, 2])
    model = strat.lrsm(strat.BaseModel(loss, data=(x, y)), graph).fit(X, [1.0, 2.0, 3.0], strata=[0, 1, 2])
    with pytest.warns(strat.ConvergenceWarning, match="singular for 3 of 3 strata.*ridge"):
        strat.hypergradient(model, held)
    ridge = strat.BaseModel(loss, 1e-3 * cp.sum_squares(theta), data=(x, y))
    model = strat.lrsm(ridge, graph).fit(X, [1.0, 2.0, 3.0], strata=[0, 1, 2])
    with warnings.catch_warnings(action="error"):
        strat.hypergradient(model, held)


def test_a_stratum_without_records_edges_or_regularizer_is_singular():
    graph = strat.graphs.path(2)
    graph.add_node(2)
    model = strat.lrsm(mean(), graph)
    with pytest.warns(strat.DataWarning):
        model.fit([1.0, 2.0], strata=[0, 1])
    with pytest.warns(strat.ConvergenceWarning, match="singular for 1 of 3 strata"):
        strat.hypergradient(model, ([1.0], [2]))


def test_uncoupled_coordinates_need_their_own_curvature():
    theta, b, y = cp.Variable(name="theta"), cp.Variable(name="b"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - theta - b), 0.1 * cp.square(theta), data=(y,), couple=(theta,))
    model = strat.lrsm(base, strat.graphs.path(3))
    with pytest.warns(strat.DataWarning, match="the parameters b there are"):
        model.fit([1.0, 2.0], strata=[0, 1])  # b of stratum 2 is not determined by anything
    with pytest.warns(strat.ConvergenceWarning, match="singular for 3 of 3|singular for 1 of 3"):
        strat.hypergradient(model, ([1.0], [2]))


def test_a_kink_is_said():
    theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    base = strat.BaseModel(0.5 * cp.square(y - theta), cp.abs(theta), data=(y,))
    model = strat.lrsm(base, strat.graphs.path(2, weight=0.0))
    model.fit([1.0, 3.0], strata=[0, 1])  # 1 is the threshold itself
    with pytest.warns(strat.ConvergenceWarning, match="on a kink of the regularizer in 1 strata"):
        strat.hypergradient(model, ([1.0, 2.0], [0, 1]))


def test_options_are_checked(tmp_path):
    model, (X, Y, z), held = model_and_records("squared", "ridge")
    model.fit(X, Y, strata=z).save(tmp_path / "model.npz")
    common = strat.common(model.base).fit(X, Y, strata=z)
    loaded = strat.load(tmp_path / "model.npz", base=model.base)
    lacks_strata = r"validation must hold the data arguments \(x, y\) and then the strata"
    for error, match, given, validation, options in (
        (OptionError, "wrt has 'tau', which is neither .*lam", model, held, {"wrt": ("tau",)}),
        (OptionError, "the Parameter y, which is neither", model, held, {"wrt": model.base.data[1]}),
        (OptionError, "method is 'exact'; it is .implicit. or .cvxpy.", model, held, {"method": "exact"}),
        (DataError, lacks_strata, model, held[:2], {}),
        (OptionError, "a common model share their parameters; use strat.lrsm", common, held, {}),
        (OptionError, "records of the fit, which models that were loaded", loaded, held, {}),
    ):
        with pytest.raises(error, match=match):
            strat.hypergradient(given, validation, **options)
