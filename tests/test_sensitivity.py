"""Derivatives of the fitted parameters in edge weights: against differences of refits."""

import cvxpy as cp
import numpy as np
import pytest
from fitted_models import LOSSES, K, Refitted, fitted, slopes

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
