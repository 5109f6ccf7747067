"""Odd input of what reads fitted models and graphs: derivatives, errors, kernels, reports, plots, graph learning."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import strat

theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
BASE = strat.BaseModel(cp.square(y - x @ theta), 0.1 * cp.sum_squares(theta), data=(x, y))


def records(labels, n=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(size=n), [labels[i % len(labels)] for i in range(n)]


def fitted(graph, labels=None):
    X, Y, z = records(list(graph) if labels is None else labels)
    return strat.lrsm(BASE, graph).fit(X, Y, strata=z)


MODEL = fitted(strat.graphs.path(["a", "b", "c"]))
VALIDATION = records(["a", "b", "c"], seed=1)
SEPARATE = strat.separate(BASE).fit(*VALIDATION[:2], strata=VALIDATION[2])
COMMON = strat.common(BASE).fit(*VALIDATION[:2], strata=VALIDATION[2])


def test_validation_records_are_checked():
    X, Y, z = VALIDATION
    for given in (None, 5, {"x": 1, "y": 2, "strata": 3}, X):
        with pytest.raises(strat.DataError, match=r"validation must be a tuple \(\*data, strata\), not a"):
            strat.hypergradient(MODEL, given)
    for wrt in (None, 5):
        with pytest.raises(strat.OptionError, match="wrt is .*, but it is"):
            strat.hypergradient(MODEL, VALIDATION, wrt=wrt)
    bad = X.copy()
    bad[3, 1] = np.nan
    for given, error, match in (
        ((bad, Y, z), strat.DataError, "x has NaN in column 1 of record 3"),
        ((X, Y[:-1], z), strat.ShapeError, "y has 11 records, but the strata have 12"),
        ((X, Y, z[:-1]), strat.ShapeError, "the strata have 11 labels"),
        ((X, Y, ["q"] * 12), strat.GraphError, "stratum 'q' is not a node"),
        ((X[:0], Y[:0], []), strat.DataError, "no records"),
    ):
        with pytest.raises(error, match=match):
            strat.hypergradient(MODEL, given)


READINGS = {
    "hypergradient": lambda model: strat.hypergradient(model, VALIDATION),
    "sensitivity": strat.sensitivity,
    "standard_errors": strat.standard_errors,
    "covariances": strat.covariances,
}


@pytest.mark.parametrize("name", READINGS)
def test_what_is_no_fitted_model_is_refused(name):
    for given in (None, BASE, 3.0):
        with pytest.raises(strat.OptionError, match=f"{name} needs a fitted StratifiedModel, not a"):
            READINGS[name](given)
    with pytest.raises(Exception, match="not fitted"):
        READINGS[name](strat.lrsm(BASE, strat.graphs.path(3)))


def test_a_common_model_has_no_graph_to_follow():
    for name in ("hypergradient", "sensitivity"):
        with pytest.raises(strat.OptionError, match=f"{name} follows the graph"):
            READINGS[name](COMMON)
    assert strat.standard_errors(COMMON)["theta"].shape == (3, 2)
    assert np.isfinite(strat.hypergradient(SEPARATE, VALIDATION)[1]["W0"]).all()
    assert len(strat.sensitivity(SEPARATE)) == 0


ISLANDS = nx.Graph([("a", "b"), ("c", "d", {"weight": 2.0})])
ISLANDS.add_node("e")


@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        (strat.graphs.path(1), 0),
        (strat.graphs.path(["a", "b"]), 1),
        (strat.graphs.path(3, weight=0.0), 0),
        (ISLANDS, 2),
        (strat.graphs.grid(["f", "m"], 3, name=("sex", "age")), 7),
    ],
)
@pytest.mark.filterwarnings("error")
def test_small_and_broken_graphs_are_read_without_ado(graph, edges):
    K = len(graph)
    model = fitted(graph)
    loss, gradient = strat.hypergradient(model, records(list(graph), seed=1), wrt=("W0", "scale"))
    errors = strat.standard_errors(model)["theta"]
    joined = strat.graphs.from_parameters(model)
    assert np.isfinite(loss) and np.isfinite(gradient["W0"]).all() and gradient["W0"].shape == (K, K)
    found = strat.sensitivity(model)
    assert len(found) == edges and all(np.isfinite(found[e]["theta"]).all() for e in found)
    total = sum(gradient["scale"].values())
    slopes = [gradient["W0"][i, j] * model.W_[i, j] for i, j in np.argwhere(np.triu(model.W_))]
    assert total == pytest.approx(sum(slopes), abs=1e-12)
    assert np.isfinite(errors).all() and list(joined) == list(graph)
    report = strat.graphs.report(model)
    assert len(report.edge_weights) == edges and str(report)


def test_an_edge_that_was_not_asked_for():
    found = strat.sensitivity(MODEL)
    assert ("b", "a") in found and ("a", "z") not in found and 5 not in found and "ab" not in found
    assert found.get(("q", "r")) is None
    for edge in (("a", "z"), "a", 5):
        with pytest.raises(KeyError, match="no derivative in the edge .* was asked for"):
            found[edge]


def test_learn_graph_reads_the_labels_of_a_frame():
    pd = pytest.importorskip("pandas")
    rows, h = np.array([[0.0, 1.0], [0.2, 1.0], [3.0, -1.0]]), strat.LogDet(1.0, 1.0, 0.1, 0.1)
    plain = strat.learn_graph(rows, h)
    named = strat.learn_graph(pd.DataFrame(rows, index=["a", "b", "c"]), h)
    assert named.labels == ["a", "b", "c"] and np.array_equal(named.W, plain.W)
    graph = strat.graphs.path(["c", "a", "b"])
    turned = strat.learn_graph(pd.DataFrame(rows, index=["a", "b", "c"]), h, graph)
    assert np.array_equal(turned.W, strat.learn_graph(rows[[2, 0, 1]], h, graph).W)
    assert np.array_equal(*(strat.learn_graph(r, h, graph).W for r in (rows, pd.DataFrame(rows))))
    with pytest.raises(strat.GraphError, match="no row for 'c', a node of the graph; its index has"):
        strat.learn_graph(pd.DataFrame(rows, index=["a", "b", "z"]), h, graph)
    with pytest.raises(strat.GraphError, match="has no nodes"):
        strat.learn_graph(np.zeros((0, 2)), h)
    pairs = pd.MultiIndex.from_product([["f"], [1, 2, 3]])
    assert strat.learn_graph(pd.DataFrame(rows, index=pairs), h).labels == [("f", 1), ("f", 2), ("f", 3)]


@pytest.mark.filterwarnings("error")
def test_constraints_that_hold_a_fit_back_do_not_make_it_unbounded():
    X, _, z = records(["a", "b", "c"])
    for limits in ([theta <= 0.1, theta >= -0.1], [cp.sum(theta) == 0.5], [cp.norm(theta, 1) <= 0.2]):
        base = strat.BaseModel(cp.square(y - x @ theta), 0.01 * cp.sum_squares(theta), limits, data=(x, y))
        strat.lrsm(base, strat.graphs.path(["a", "b", "c"])).fit(X, X @ [3.0, 5.0], strata=z)
