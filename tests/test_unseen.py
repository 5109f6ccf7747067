"""Predictions for strata that are not nodes: the common model, or the mean of the neighbours."""

import numpy as np
import pytest
from problems import mean

import strat
from strat import graphs

BASE = mean(0.1)
RNG = np.random.default_rng(0)


def fitted(graph):
    labels = list(graph) * 3
    return strat.lrsm(BASE, graph).fit(RNG.standard_normal(len(labels)), strata=labels)


def test_unseen_strata_are_an_error_unless_told_otherwise():
    model = fitted(graphs.path(4))
    with pytest.raises(strat.GraphError, match="stratum 9 is not a node"):
        model.predict(strata=[0, 9])
    with pytest.raises(strat.OptionError, match="unseen='mean' is not known"):
        model.predict(strata=[0, 9], unseen="mean")
    for unseen in ("graph", "common"):
        assert np.array_equal(model.predict(strata=[2, 0], unseen=unseen), model.predict(strata=[2, 0]))


def test_the_common_model_predicts_for_unseen_strata(tmp_path):
    y, z = RNG.standard_normal(12), list("abcd") * 3
    model = strat.joint(BASE, graphs.path(list("abcd"))).fit(y, strata=z)
    common = strat.common(BASE).fit(y, strata=z).theta_["mu"][0]
    found = model.predict(strata=["b", "new", 3], unseen="common")
    assert np.allclose(found, [model.at("b")["mu"], common, common], atol=1e-7)
    y = y + 1  # a new fit has a new common model
    again = model.fit(y, strata=z).predict(strata=["new"], unseen="common")
    assert np.allclose(again, strat.common(BASE).fit(y, strata=z).predict(strata=["new"]), atol=1e-7)
    model.save(tmp_path / "model.npz")
    with pytest.raises(strat.OptionError, match="needs the records of the fit"):
        strat.load(tmp_path / "model.npz", BASE).predict(strata=["new"], unseen="common")


def test_neighbours_predict_where_edges_are_given():
    model = fitted(graphs.path(4))
    larger = graphs.path(4)
    larger.add_weighted_edges_from([("x", 0, 1.0), ("x", 3, 3.0), ("y", "x", 2.0), ("far", "off", 1.0)])
    theta = model.theta_["mu"]
    mean = (theta[0] + 3 * theta[3]) / 4  # y hangs on x alone, so that both have the mean of 0 and 3
    for unseen in (larger, "graph"):
        found = model.set_params(graph=larger).predict(strata=["y", "x", 1], unseen=unseen)
        assert np.allclose(found, [mean, mean, theta[1]])
    with pytest.raises(strat.GraphError, match=r"no edge leads from 'far' to a stratum.*unseen=\"common\""):
        model.predict(strata=["far"], unseen="graph")
    with pytest.raises(strat.GraphError, match="no edge leads"):
        strat.separate(BASE).fit([1.0], strata=["a"]).predict(strata=["b"], unseen="graph")


def test_edges_along_coordinates_hold_for_labels_that_the_graph_lacks():
    years = graphs.path([2000, 2004, 2008], weight=3.0, name="year")
    graph = graphs.product(graphs.complete(["A", "B", "C"], name="place"), years)
    graph.remove_node(("B", 2004))
    model = strat.lrsm(BASE, graph, scale={"place": 2.0}).fit(RNG.standard_normal(8), strata=list(graph))
    at = {label: model.at(label)["mu"] for label in graph}
    hole = [("A", 2004, 2.0), ("C", 2004, 2.0), ("B", 2000, 3.0), ("B", 2008, 3.0)]
    expected = sum(w * at[a, year] for a, year, w in hole) / 10
    found = model.predict(strata=[("B", 2004), ("A", 2012), ("A", 2016), ("C", 2006)], unseen="graph")
    assert np.allclose(found, [expected, at["A", 2008], at["A", 2008], (at["C", 2004] + at["C", 2008]) / 2])
    with pytest.raises(strat.GraphError, match="no edge leads from"):
        model.predict(strata=[("D", 2004)], unseen="graph")
    line = fitted(graphs.path(range(2000, 2004)))
    assert line.predict(strata=[2010], unseen="graph") == line.at(2003)["mu"]
