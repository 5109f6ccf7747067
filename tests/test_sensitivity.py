"""Derivatives of the fitted parameters in edge weights, against differences of refits, and the bound of Theorem 1."""

import cvxpy as cp
import numpy as np
import pytest
from fitted_models import LOSSES, K, Refitted, fitted, slopes
from problems import mean

import strat


@pytest.mark.parametrize("regularizer", ["l1", "box", "group"])
@pytest.mark.parametrize("loss", LOSSES)
def test_equals_differences_of_refits(loss, regularizer):
    model, validation = fitted(loss, regularizer)
    edges = [(1, 2), (0, 5), (1, 6)]
    found = strat.sensitivity(model, edges=edges)
    assert list(found) == edges
    size = np.abs(found.derivatives).max()
    quotients = slopes(Refitted(model, validation), model.W_, edges, "theta")
    for (i, j), quotient in zip(edges, quotients, strict=True):
        assert np.allclose(model.base.layout.pack(found[i, j]), quotient, rtol=0, atol=2e-6 * size)
        assert found[i, j]["theta"].shape == model.theta_["theta"].shape


def test_a_star_without_records_in_the_centre():
    # theta_0 = Σ w_k theta_k / Σ w: its derivative is (theta_k - theta_0) / Σ w when the leaves hardly move.
    theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    base = strat.BaseModel(1e6 * cp.square(y - theta), data=(y,))
    model = strat.lrsm(base, strat.graphs.star(range(4), weight=2.0))
    leaves = np.array([1.0, 2.0, 6.0])
    model.fit(leaves, strata=[1, 2, 3])
    found = strat.sensitivity(model)
    for k, value in enumerate(leaves, start=1):
        assert found[0, k]["theta"][0] == pytest.approx((value - leaves.mean()) / 6.0, rel=1e-4)
    assert found.ranking == [(0, 3), (0, 1), (0, 2)]


def test_edges_are_those_of_the_graph_by_default():
    model, _ = fitted("squared", "ridge")
    found = strat.sensitivity(model)
    assert list(found) == [(k, k + 1) for k in range(K - 1)]
    assert np.allclose(found[1, 0]["theta"], found[0, 1]["theta"])
    assert len(strat.sensitivity(model, edges="prior")) == K + 1  # with the two edges of weight 0
    assert (0, 9) not in found
    assert sorted(found.ranking) == list(found)
    assert found.influence[found.pairs.index(found.ranking[0])] == found.influence.max()
    training = model._training
    joint = strat.joint(model.base, model.graph).fit(*training.arrays, strata=training.strata.index)
    assert len(strat.sensitivity(joint)) == np.count_nonzero(np.triu(joint.W_))


def test_it_prints_a_ranking():
    model, _ = fitted("squared", "ridge")
    text = str(strat.sensitivity(model, edges="all"))
    assert text.splitlines()[0].split() == ["edge", "weight", "influence", "most", "moved", "its", "share"]
    assert "… and 18 more" in text
    assert len(strat.sensitivity(model).to_frame()) == K - 1
    path = strat.lrsm(model.base, strat.graphs.path(K), scale=0.0)
    path.fit(*model._training.arrays, strata=model._training.strata.index)
    assert str(strat.sensitivity(path)) == "no edges"


def test_unknown_edges_are_refused():
    model, _ = fitted("squared", "ridge")
    with pytest.raises(strat.GraphError, match="99 is not a node"):
        strat.sensitivity(model, edges=[(0, 99)])


@pytest.mark.parametrize("imbalance", [3.0, 10.0, 100.0])
def test_accurate_fits_are_within_the_bound(imbalance):
    """Fits of a star whose centre has no records, before and after one weight has changed."""
    rng, K, n = np.random.default_rng(int(imbalance)), 6, 3
    base, finite = mean(shape=n, name="theta"), 0
    for _ in range(15):
        leaves = rng.standard_normal((K - 1, n)) * np.r_[imbalance, np.ones(K - 2)][:, None]
        weight = rng.uniform(0.5, 1.5, K - 1)
        true = np.vstack([weight @ leaves / weight.sum(), leaves])
        changed = weight * np.r_[1 + 10 ** rng.uniform(-3, 1), np.ones(K - 2)]
        records = leaves + 1e-3 * rng.standard_normal((K - 1, n))
        models = [strat.lrsm(base, strat.graphs.star(K, weight=1e-3 * w)) for w in (weight, changed)]
        fits = [model.fit(records, strata=np.arange(1, K)).theta_["theta"] for model in models]
        norms = np.linalg.norm(true, axis=1)
        errors = np.max([np.linalg.norm(fit - true, axis=1) / norms for fit in fits], axis=0)
        share, ratio = weight[0] / weight.sum(), norms[1] / np.delete(norms, 1).max()
        bound = strat.sensitivity_bound(share, ratio, delta=errors[1:].max(), delta_center=errors[0])
        assert changed[0] / weight[0] - 1 <= bound
        finite += np.isfinite(bound)
    assert finite


def test_with_exact_leaves_it_is_the_formula_of_the_remark():
    p, A, center = np.array([0.1, 0.3]), np.array([[5.0], [50.0]]), 0.02
    expected = 2 * center / ((1 - p) * (A - 1) - 2 * center) / p
    assert np.allclose(strat.sensitivity_bound(p, A, 0.0, center), expected)
    assert strat.sensitivity_bound(0.1, 5.0, 0.0, 0.02) == pytest.approx(expected[0, 0])
    assert isinstance(strat.sensitivity_bound(0.1, 5.0, 0.0, 0.02), float)


def test_it_is_infinite_where_the_theorem_says_nothing():
    assert strat.sensitivity_bound(0.5, 0.5, 0.0, 0.1) == np.inf
    assert strat.sensitivity_bound(1.0, 5.0, 0.1, 0.1) == np.inf
    assert np.array_equal(np.isinf(strat.sensitivity_bound(0.2, [1.0, 50.0], 0.0, 0.1)), [True, False])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 2.0, 0.0, 0.1), "share is 0.0, but it must be a number above 0 and at most 1"),
        (([0.5, 1.5], 2.0, 0.0, 0.1), r"share is \[0.5, 1.5\]"),
        ((0.1, -2.0, 0.0, 0.1), "ratio is -2"),
        ((0.1, 2.0, -0.1, 0.1), "delta is -0.1"),
        ((0.1, 2.0, 0.0, np.nan), "delta_center is nan, but it must be a number of at least 0"),
        ((0.1, "large", 0.0, 0.1), "ratio is 'large'"),
        (([0.1, 0.2], [1, 2, 3], 0, 0.1), "do not go together"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(strat.OptionError, match=message):
        strat.sensitivity_bound(*arguments)
