"""Weights of coefficients by factor of the graph: fits, derivatives and readings are those of the whole problem."""

from itertools import combinations

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from fitted_models import Refitted, derivative, edge_matrix, slopes, slopes_in
from problems import LOSSES, mean, solved

import strat
from strat.errors import GraphError, OptionError
from strat.graphs.prior_graph import read_graph
from strat.model.hypergradient import FittedModel
from strat.solvers import NewtonCG

N = 3
TABLE = {"row": np.array([0.2, 3.0, 0.0]), "column": np.array([4.0, 0.1, 0.7]), None: 0.5}
REGULARIZERS = {
    "ridge": lambda t: 0.1 * cp.sum_squares(t),
    "l1": lambda t: 0.5 * cp.norm1(t) + 0.05 * cp.sum_squares(t),
}


def graph():
    """8 strata: a grid of 2 × 4, one edge without a factor and one of weight 0."""
    made = strat.graphs.grid(2, 4, weight=(1.5, 0.8), name=("row", "column"))
    made.add_edge((0, 0), (1, 2), weight=0.7)
    made.edges[(0, 0), (0, 1)]["weight"] = 0.0
    return made


def records(loss, seed=0, count=12):
    rng = np.random.default_rng(seed)
    z = [node for node in graph() for _ in range(count)]
    X = rng.normal(size=(len(z), N))
    u = X @ [0.6, -0.4, 0.2] + np.array([0.7 * node[1] for node in z]) + rng.normal(size=len(z))
    return X, np.where(u > 1, 1.0, -1.0) if loss == "logistic" else u, z


def declared(loss="squares", regularizer="ridge", couple=None):
    """A linear model whose intercept has a weight by factor, too."""
    theta, b = cp.Variable(N, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(N, name="x"), cp.Parameter(name="y")
    couple = {"theta": TABLE, "b": {"row": 2.0}} if couple is None else couple
    penalty = REGULARIZERS[regularizer](theta) + 0.05 * cp.square(b)
    return strat.BaseModel(LOSSES[loss][1](y, x @ theta + b), penalty, data=(x, y), couple=couple)


def fitted(loss="squares", regularizer="ridge", solver=None, couple=None, **options):
    model = strat.lrsm(declared(loss, regularizer, couple), graph(), solver=solver, **options)
    X, y, z = records(loss)
    return model.fit(X, y, strata=z)


def weight_of(u, v, attributes, scale):
    """Weights (4,) of the coefficients on an edge, from the declaration by hand."""
    factor = attributes.get("factor")
    b = 2.0 if factor == "row" else 1.0
    return scale.get(factor, 1.0) * attributes["weight"] * np.append(np.ones(N) * TABLE[factor], b)


def whole(loss, regularizer, scale):
    """theta (K, 4) and the minimum of the whole problem, by CVXPY."""
    nodes, (X, y, z) = list(graph()), records(loss)
    theta = cp.Variable((len(nodes), N + 1))
    place = np.array([nodes.index(label) for label in z])
    chosen = sp.csr_array((np.ones(len(z)), (np.arange(len(z)), place)), shape=(len(z), len(nodes)))
    u = cp.sum(cp.multiply(np.column_stack([X, np.ones(len(z))]), chosen @ theta), axis=1)
    total = cp.sum(LOSSES[loss][1](y, u))
    for k in range(len(nodes)):
        total += REGULARIZERS[regularizer](theta[k, :N]) + 0.05 * cp.square(theta[k, N])
    for a, c, attributes in graph().edges(data=True):
        weight = weight_of(a, c, attributes, scale)
        total += 0.5 * weight @ cp.square(theta[nodes.index(a)] - theta[nodes.index(c)])
    minimum = solved(cp.Problem(cp.Minimize(total)))
    return theta.value, minimum


@pytest.mark.parametrize(
    ("loss", "regularizer", "solver"),
    [
        ("squares", "ridge", strat.NewtonCG(tol=1e-10)),
        ("logistic", "l1", strat.NewtonCG(tol=1e-10)),
        ("logistic", "ridge", strat.MAPG(tol=1e-9)),
        ("pinball", "ridge", strat.ADMM(tol=1e-8)),
        ("squares", "l1", strat.ADMM(tol=1e-8)),
    ],
)
def test_fits_equal_the_whole_problem(loss, regularizer, solver):
    scale = {"row": 2.0, "column": 0.5}
    theta, value = whole(loss, regularizer, scale)
    model = fitted(loss, regularizer, solver, scale=scale)
    assert model.result_.objective == pytest.approx(value, rel=1e-6)
    found = np.column_stack([model.theta_["theta"], model.theta_["b"]])
    np.testing.assert_allclose(found, theta, atol=1e-3 if loss == "pinball" else 1e-4)
    assert model.result_.residual["theta"] < 1e-7
    W = model.W_.toarray() if sp.issparse(model.W_) else model.W_
    assert W[0, 4] == 3.0 and W[1, 2] == 0.4  # the graph's own, times the scales


def test_equal_weights_by_factor_are_one_weight():
    same = np.array([0.5, 0.0, 2.0])
    table = fitted(couple={"theta": dict.fromkeys(("row", "column", None), same)})
    plain = fitted(couple={"theta": same})
    np.testing.assert_allclose(table.theta_["theta"], plain.theta_["theta"], atol=1e-7)


@pytest.mark.parametrize(("loss", "regularizer"), [("squares", "ridge"), ("logistic", "l1")])
def test_derivatives_equal_differences_of_refits(loss, regularizer):
    p = cp.Parameter(N, nonneg=True, name="p", value=[0.4, 1.0, 2.0])
    couple = {"theta": {"row": p, "column": TABLE["column"]}, "b": {"row": 2.0}}
    model = fitted(loss, regularizer, couple=couple, scale={"row": 2.0})
    validation = records(loss, seed=1)
    value, gradient = strat.hypergradient(model, validation, wrt=("W0", "scale", "p"))
    refitted, W = Refitted(model, validation), np.asarray(model.W_)
    assert value == pytest.approx(refitted.loss(W), rel=1e-9)
    size = np.abs(gradient["W0"]).max()
    pairs = [(0, 4), (1, 2), (0, 1), (0, 6), (3, 5)]  # row, column, column of weight 0, no factor, no edge
    found = [gradient["W0"][pair] for pair in pairs]
    np.testing.assert_allclose(found, slopes(refitted, W, pairs), atol=1e-6 * size, rtol=1e-6)
    rows = sum(W[k, k + 4] * edge_matrix(k, k + 4) for k in range(4))
    slope = derivative(lambda s: refitted.loss(W + s * rows)) / 2.0
    assert gradient["scale"]["row"] == pytest.approx(slope, rel=1e-5)
    np.testing.assert_allclose(gradient["p"], slopes_in(refitted, W, "p", p.value), rtol=1e-5, atol=1e-9)


def test_standard_errors_are_those_of_the_whole_hessian():
    model = fitted("squares")
    nodes, (X, _, z) = list(graph()), records("squares")
    H = np.zeros((8, N + 1, 8, N + 1))
    for k, node in enumerate(nodes):
        rows = np.column_stack([X, np.ones(len(z))])[[label == node for label in z]]
        H[k, :, k, :] += 2 * rows.T @ rows + np.diag([0.2] * N + [0.1])
    for a, c, attributes in graph().edges(data=True):
        i, j, w = nodes.index(a), nodes.index(c), np.diag(weight_of(a, c, attributes, {}))
        H[i, :, i, :] += w
        H[j, :, j, :] += w
        H[i, :, j, :] -= w
        H[j, :, i, :] -= w
    variance = np.linalg.inv(H.reshape(8 * (N + 1), -1)).diagonal().reshape(8, N + 1)
    errors = strat.standard_errors(model)
    np.testing.assert_allclose(errors["theta"], np.sqrt(variance[:, :N]), rtol=1e-8)
    np.testing.assert_allclose(errors["b"], np.sqrt(variance[:, N]), rtol=1e-8)


def test_what_some_factor_alone_couples_may_be_undetermined():
    """An intercept that only the columns couple, in strata of which a whole column has no record."""
    base = mean(shape=2, name="b", couple={"b": {"row": [1.0, 0.0], "column": [0.0, 1.0]}})
    made = strat.graphs.grid(2, 3, name=("row", "column"))
    nodes = [node for node in made if node != (0, 0)]
    model = strat.lrsm(base, made)
    values = np.random.default_rng(0).normal(size=(5, 2))
    model.fit(values, strata=nodes)
    # Neighbours along a row and along a column determine both numbers.
    strat.hypergradient(model, (values, nodes))
    nodes = [node for node in made if node[0] == 1]
    with pytest.warns(strat.DataWarning, match="3 strata .* have neither records nor edges"):
        model.fit(values[:3], strata=nodes)
    with pytest.warns(strat.ConvergenceWarning, match="singular for 3 of 6 strata"):
        strat.hypergradient(model, (values[:3], nodes))


def test_a_large_grid_is_solved_to_its_optimum():
    made = strat.graphs.grid(25, 24, weight=(20.0, 20.0), name=("row", "column"))
    theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    couple = {theta: {"row": [30.0, 0.1], "column": [0.1, 30.0]}}
    loss, ridge = cp.logistic(-y * (x @ theta)), 0.01 * cp.sum_squares(theta)
    base = strat.BaseModel(loss, ridge, data=(x, y), couple=couple)
    rng, z = np.random.default_rng(0), list(made) * 2
    X = rng.normal(size=(len(z), 2))
    Y = np.where((X * np.array(z) / 10 - 1).sum(axis=1) + rng.logistic(size=len(z)) > 0, 1.0, -1.0)
    model = strat.lrsm(base, made, solver=NewtonCG(tol=1e-9)).fit(X, Y, strata=z)
    assert model.result_.status == "converged" and model.result_.residual["theta"] < 1e-9
    rows = model.theta_["theta"].reshape(25, 24, 2)
    # Smooth from row to row.
    assert np.abs(np.diff(rows[:, :, 0], axis=0)).max() < 0.1 * np.ptp(rows[:, :, 0])
    assert FittedModel(model, "a test").linearized().residual < 1e-11


@pytest.mark.parametrize("solver", [strat.MAPG(tol=1e-9), strat.AlternatingMinimization(tol=1e-9)])
@pytest.mark.parametrize("edges", ["all", "prior"])
def test_learned_weights_take_the_distance_of_their_factor(solver, edges):
    model = strat.entropy(declared(), graph(), sigma=0.7, edges=edges, solver=solver)
    X, y, z = records("squares")
    model.fit(X, y, strata=z)
    theta = np.column_stack([model.theta_["theta"], model.theta_["b"]])
    expected = np.zeros((8, 8))
    for i, j in combinations(range(8), 2):
        u, v = model.strata_[i], model.strata_[j]
        if edges == "all" or graph().has_edge(u, v):
            factor = graph().edges[u, v].get("factor") if graph().has_edge(u, v) else None
            couple = np.append(np.ones(N) * TABLE.get(factor, 1.0), 2.0 if factor == "row" else 1.0)
            distance = couple @ (theta[i] - theta[j]) ** 2
            expected[i, j] = expected[j, i] = np.exp(-distance / (2 * 0.7**2))
    assert np.allclose(model.W_, expected, atol=1e-6)
    parts = model.result_.parts
    given = model.to_cvxpy().solve(solver=cp.CLARABEL)  # the best theta for this W
    assert given == pytest.approx(sum(parts.values()) - parts["graph"], rel=1e-6)


def test_what_weights_by_factor_exclude_is_refused_by_name():
    X, y, z = records("squares")
    typo = declared(couple={"theta": {"rows": 2.0}})
    with pytest.raises(OptionError, match="couple: 'rows' is not a factor of the graph.*'row'"):
        strat.lrsm(typo, graph()).fit(X, y, strata=z)
    with pytest.raises(OptionError, match="which has no factors"):
        strat.lrsm(declared(), strat.graphs.complete(list(graph()))).fit(X, y, strata=z)
    both = nx.MultiGraph()
    both.add_nodes_from(graph())
    both.add_edge((0, 0), (0, 1), factor="row", weight=1.0)
    both.add_edge((0, 1), (0, 0), factor="column", weight=1.0)
    with pytest.raises(GraphError, match=r"the edge \(0, 0\) – \(0, 1\) belongs to several factors"):
        strat.lrsm(declared(), both).fit(X, y, strata=z)
    with pytest.raises(OptionError, match="no one distance between strata"):
        strat.graphs.from_parameters(fitted(), "knn")
    bad = declared(couple={"theta": {"row": [1.0, 2.0]}})
    with pytest.raises(OptionError, match=r"couple\['theta'\]\['row'\] must be .*shape \(3,\), not"):
        strat.lrsm(bad, graph()).fit(X, y, strata=z)


def test_models_without_edges_and_searches_take_the_declaration():
    X, y, z = records("squares")
    base = declared()
    for model in (make(base, on) for make in (strat.common, strat.separate) for on in (None, graph())):
        assert model.fit(X, y, strata=z).theta_["b"].shape == (8,)
    found = strat.search(strat.lrsm(base, graph()), train=(X, y, z), folds=3)
    assert np.isfinite(found.best.score(X, y, strata=z))
    # Its edges weigh nothing.
    whole = strat.common(base, strat.graphs.complete(list(graph()))).fit(X, y, strata=z)
    assert whole.to_cvxpy().solve() == pytest.approx(whole.result_.objective, rel=1e-5)
    assert strat.standard_errors(whole)["b"].shape == (8,)
    assert strat.graphs.report(fitted()).reliance.shape == (8,)
    assert read_graph(graph()).factor_on([0, 0, 0, 2], [4, 1, 6, 5])[0].tolist() == [0, 1, -1, -1]


def test_a_search_and_a_tuning_of_the_weights():
    p = cp.Parameter(nonneg=True, name="p", value=1.0)
    base = declared(couple={"b": {"column": p}})
    assert set(base.hyperparameters) == {"p"}
    model = strat.lrsm(base, graph())
    data = records("squares"), records("squares", seed=1)
    tuned = strat.tune(model, *data, wrt=["scale", p])
    # Candidates have no factor, and take none from the graph's own edges.
    wide = strat.tune(fitted(), *data, wrt=["W0"], edges="two-hop", max_iter=2)
    assert wide.W0.number_of_edges() >= graph().number_of_edges() and wide.status == "finished"
    assert tuned.parameters["p"] >= 0 and set(tuned.parameters["scale"]) == {"row", "column"}
