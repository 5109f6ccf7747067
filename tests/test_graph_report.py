"""Readings of a graph against what networkx and the matrix-tree theorem say."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from problems import mean
from scipy import sparse

import strat
from strat import graphs


def random_graph(K=25, E=40, seed=3):
    graph, rng = nx.gnm_random_graph(K, E, seed=seed), np.random.default_rng(seed)
    for *_, data in graph.edges(data=True):
        data["weight"] = float(rng.uniform(0.1, 3.0))
    return nx.relabel_nodes(graph, {k: f"s{k}" for k in graph})


def numbers(report):
    names = "density", "degrees", "neighbors", "resistances", "log_forests"
    return {name: getattr(report, name) for name in names} | {"edges": report.edge_resistances}


def test_components_and_degrees_are_those_of_networkx():
    graph = random_graph()
    report = graphs.report(graph)
    assert sorted(map(sorted, report.components)) == sorted(map(sorted, nx.connected_components(graph)))
    assert [len(part) for part in report.components] == sorted(map(len, report.components), reverse=True)
    assert all(s in report.components[c] for s, c in zip(report.strata, report.component, strict=True))
    assert np.allclose(report.degrees, [d for _, d in graph.degree(weight="weight")])
    assert report.neighbors.tolist() == [d for _, d in graph.degree()]
    assert report.density == pytest.approx(nx.density(graph))
    bridges = {frozenset(edge) for edge in nx.bridges(graph)}
    ends = [frozenset(report.strata[k] for k in edge) for edge in report.edge_ends[report.shares > 1 - 1e-9]]
    assert set(ends) == bridges and bridges


def test_resistances_are_those_of_the_pseudoinverse():
    graph = random_graph()
    report = graphs.report(graph)
    pinv = np.linalg.pinv(nx.laplacian_matrix(graph).toarray())
    R = np.diag(pinv)[:, None] + np.diag(pinv) - 2 * pinv
    i, j = report.edge_ends.T
    assert np.allclose(report.edge_resistances, R[i, j], rtol=1e-10)
    for k, component in enumerate(report.component):
        others = (report.component == component) & (np.arange(25) != k)
        expected = R[k, others].mean() if others.any() else np.nan
        assert report.resistances[k] == pytest.approx(expected, rel=1e-10, nan_ok=True)
    # Foster's theorem: a spanning forest has K - m edges.
    assert report.shares.sum() == pytest.approx(25 - len(report.components))


@pytest.mark.parametrize("graph", [random_graph(), random_graph(12, 30, 1), graphs.grid(4, 5, weight=(2, 3))])
def test_forests_weigh_what_the_matrix_tree_theorem_says(graph):
    report = graphs.report(graph)
    trees = [nx.number_of_spanning_trees(graph.subgraph(p), weight="weight") for p in report.components]
    assert report.log_forests == pytest.approx(np.log(trees).sum())
    # For small mu, log det(mu I + G) = m log(mu) + log_forests + sum log(n_i) + O(mu).
    mu, sizes = 1e-7, [len(part) for part in report.components]
    log_det = np.linalg.slogdet(mu * np.eye(len(graph)) + nx.laplacian_matrix(graph).toarray())[1]
    expected = len(sizes) * np.log(mu) + report.log_forests + np.log(sizes).sum()
    assert log_det == pytest.approx(expected, abs=1e-4)


def test_every_kind_of_graph_is_read():
    W = np.random.default_rng(0).random((40, 40)) * (1 - np.eye(40))
    W = W + W.T
    first = numbers(graphs.report(W))
    for other in (sparse.csr_array(W), sparse.coo_matrix(W), (list(range(40)), W), nx.from_numpy_array(W)):
        for name, value in numbers(graphs.report(other)).items():
            assert np.allclose(value, first[name], rtol=1e-10), name
    thin = np.where(W > 1.85, W, 0.0)
    for name, value in numbers(graphs.report(sparse.csr_array(thin))).items():
        assert np.allclose(value, numbers(graphs.report(thin))[name], rtol=1e-10, equal_nan=True), name


def test_weak_strata_are_named():
    graph = graphs.path(6, weight=[1.0, 1.0, 1.0, 1.0, 1e-4])
    graph.add_node("alone")
    report = graphs.report(graph)
    assert report.nearly_isolated == [5, "alone"]
    assert graphs.report(graph, isolated=0.0).nearly_isolated == ["alone"]
    assert report.to_frame().nearly_isolated.tolist() == [False] * 5 + [True] * 2
    assert "nearly isolated  2: 5, 'alone'" in str(report)
    assert "components       2, of 6, 1 strata" in str(report)


def test_a_model_tells_collapse_and_reliance():
    base = mean(shape=2, name="theta")
    labels, records = [("a", 1), ("a", 2), ("b", 1)], np.array([[1.0, 0.0], [1.2, 0.1], [5.0, 2.0]])
    model = strat.lrsm(base, (labels, np.ones((3, 3)) - np.eye(3))).fit(records, strata=labels)
    report = graphs.report(model)
    centre = model.theta_["theta"].mean(axis=0)
    assert np.allclose(report.distances, np.linalg.norm(model.theta_["theta"] - centre, axis=1))
    assert report.spread == pytest.approx(np.median(report.distances) / np.linalg.norm(centre))
    assert not report.collapsed
    assert np.allclose(report.reliance, 2 / (2 + 2))  # degree 2, curvature 2 of one record
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    raw = strat.BaseModel(cp.sum_squares(y - cp.multiply([1e3, 1.0], theta)), data=(y,))
    raw = graphs.report(strat.lrsm(raw, model.graph).fit(records, strata=labels))
    assert np.allclose(raw.reliance, 1 / 4, atol=1e-5)  # the share is 0 in one parameter and 1/2 in the other
    assert report.to_frame().columns.tolist()[-2:] == ["distance", "reliance"]
    assert report.to_frame().index.tolist() == labels
    strong = strat.lrsm(base, (labels, 1e6 * (np.ones((3, 3)) - np.eye(3)))).fit(records, strata=labels)
    assert graphs.report(strong).collapsed and "collapsed to the common model" in str(graphs.report(strong))
    w, x, y = cp.Variable(3, name="w"), cp.Parameter(name="x"), cp.Parameter(name="y")  # slope, intercept, 0
    base = strat.BaseModel(cp.square(y - w[0] * x - w[1]), cp.abs(w[2]), data=(x, y))
    age, z = np.tile(np.arange(20.0, 80.0), 4), np.repeat(np.arange(4), 60)
    for sign, collapsed in ((1 - 2 * (z % 2), False), (1, True)):  # the intercept would decide alone
        income = 9000 + 5 * sign * age + np.sin(7 * age + z)
        with warnings.catch_warnings(record=True, action="always") as found:
            report = graphs.report(strat.joint(base, eta=0.1, mu=1.0).fit(age, income, strata=z))
        assert report.spread <= 0.01 and report.collapsed == collapsed
        assert any(each.category is strat.CollapseWarning for each in found) == collapsed
    plain = graphs.report((labels, np.ones((3, 3)) - np.eye(3)))
    assert plain.collapsed is None and "distance" not in plain.to_frame()


def test_one_stratum_and_no_edges():
    report = graphs.report(np.zeros((1, 1)))
    assert (report.density, report.log_forests, report.nearly_isolated) == (0.0, 0.0, [0])
    assert "weight           none" in str(report)


def test_what_is_no_graph_is_refused():
    with pytest.raises(strat.DataError, match="not fitted"):
        graphs.report(strat.separate(mean()))
    with pytest.raises(strat.GraphError, match="not symmetric"):
        graphs.report(np.array([[0.0, 1.0], [2.0, 0.0]]))
    with pytest.raises(strat.OptionError, match="isolated is 2"):
        graphs.report(np.zeros((2, 2)), isolated=2)
