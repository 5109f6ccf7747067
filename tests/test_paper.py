"""The paper's problems: its own iterates with its steps, true optima, and critical points of the default solver."""

import cvxpy as cp
import networkx as nx
import numpy as np
import paper_data
import pytest

import strat

IGNORED = ("ConvergenceWarning", "CollapseWarning", "DataWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::strat.{name}" for name in IGNORED))
WINE_JOINT = strat.LogDet(lambda1=5.0, lambda2=2e-3, eta=0.1, mu=0.2)
ELECTION_JOINT = strat.LogDet(lambda1=0.2, lambda2=2.0, eta=1e-3, mu=0.1)
UNJOINED = nx.create_empty_copy(paper_data.wine_graph())
x, y, theta = cp.Parameter(9, name="x"), cp.Parameter(2, name="y"), cp.Variable((9, 2), name="theta")
WINE = strat.BaseModel(strat.losses.softmax(y, x @ theta), 0.01 * cp.norm1(theta), data=(x, y))
p, won = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="won")
ELECTION = strat.BaseModel(-won * cp.log(p) - (1 - won) * cp.log(1 - p), data=(won,))


@pytest.fixture(scope="module")
def wine():
    X, Y, z, train = paper_data.wine()
    return X[train], Y[train], paper_data.select(z, train)


@pytest.fixture(scope="module")
def election():
    y, z, train = paper_data.election()
    return y[train], paper_data.select(z, train)


def recomputed(theta, W, W0, loss, regularizer, h):
    """The joint objective written out in matrices."""
    L = np.diag(W.sum(axis=1)) - W
    sign, logdet = np.linalg.slogdet(h.mu * np.eye(len(W)) + L)
    pull = 0.5 * (1 - h.eta) * np.sum((W - W0) ** 2) + h.eta * np.abs(W).sum()
    laplacian = 0.5 * np.trace(theta.T @ L @ theta)
    return loss + regularizer + laplacian - h.lambda1 * logdet + h.lambda2 * pull


def softmax_loss(theta, X, Y, strata, labels):
    margin = np.einsum("ij,ijc->ic", X, theta[[labels.index(label) for label in strata]])
    return float(np.sum(np.logaddexp(margin[:, 0], margin[:, 1]) - np.sum(margin * Y, axis=1)))


@pytest.mark.parametrize(("iteration", "objective"), [(114, -558.829460), (215, -889.541757)])
def test_wine_with_the_papers_steps(wine, iteration, objective):
    X, Y, z = wine
    solver = strat.MAPG(step=(1e-3, 1e-4), tol=0, max_iter=iteration)
    model = strat.StratifiedModel(WINE, UNJOINED, WINE_JOINT, solver=solver).fit(X, Y, strata=z, init="zero")
    assert model.result_.objective == pytest.approx(objective, rel=1e-6)
    assert len(model.result_.history) == iteration + 1


def test_wine_from_zero_with_the_default_solver(wine):
    X, Y, z = wine
    model = strat.StratifiedModel(WINE, UNJOINED, WINE_JOINT).fit(X, Y, strata=z, init="zero")
    result = model.result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert result.objective <= -1976 and result.factorizations <= 150
    assert np.all(np.diff(result.history) <= 0)
    theta = model.theta_["theta"]
    loss = softmax_loss(theta, X, Y, z, model.strata_)
    flat, zero = theta.reshape(len(theta), -1), np.zeros_like(model.W_)
    expected = recomputed(flat, model.W_, zero, loss, 0.01 * np.abs(theta).sum(), WINE_JOINT)
    assert result.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "objective", "most"),
    [
        (lambda *on: strat.trace_constraint(*on, lambda1=10, lambda2=0.1), 495.29750, 200),
        (lambda *on: strat.separate(*on, solver=strat.MAPG()), 495.200151418, 60),
    ],
    ids=["trace constraint", "separate"],
)
def test_mapg_on_wine_where_theta_lags(wine, make, objective, most):
    """Strata that hardly anything couples, nearly separable data and kinks: NewtonCG's steps for the present W."""
    X, Y, z = wine
    result = make(WINE, paper_data.wine_graph()).fit(X, Y, strata=z).result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert result.objective <= objective * (1 + 1e-7) and result.iterations <= most
    assert np.all(np.diff(result.history) <= 0)


def test_wine_from_several_starts(wine):
    X, Y, z = wine
    model = strat.StratifiedModel(WINE, UNJOINED, WINE_JOINT, n_starts=5).fit(X, Y, strata=z)
    assert model.result_.objective <= -2069.3 and len(model.result_.starts) == 5


@pytest.mark.parametrize(
    ("make", "optimum"),
    [
        (lambda base: strat.lrsm(base, paper_data.wine_graph()), 691.381464702),
        (lambda base: strat.lrsm(base, paper_data.wine_graph(), solver=strat.ADMM()), 691.381464702),
        (lambda base: strat.separate(base, paper_data.wine_graph()), 495.200151418),
        (lambda base: strat.common(base, paper_data.wine_graph()), 775.074061267),
        (lambda base: strat.common(base, paper_data.wine_graph(), regularizer_weight=1), 772.879207035),
    ],
    ids=["lrsm", "ADMM", "separate", "common", "common, regularizer once"],
)
def test_wine_optima(wine, make, optimum):
    X, Y, z = wine
    assert make(WINE).fit(X, Y, strata=z).result_.objective == pytest.approx(optimum, rel=1e-7)


def test_election_optima(election):
    y, z = election
    graph = paper_data.election_graph()
    lrsm = strat.lrsm(ELECTION, graph).fit(y, strata=z)
    assert lrsm.result_.objective == pytest.approx(293.770630055, rel=1e-7)
    common = strat.common(ELECTION, graph).fit(y, strata=z)
    assert common.result_.objective == pytest.approx(442.69488711, rel=1e-7)


def test_election_with_the_default_solver(election):
    y, z = election
    graph = paper_data.election_graph()
    model = strat.StratifiedModel(ELECTION, graph, ELECTION_JOINT).fit(y, strata=z)
    result = model.result_
    assert result.status == "converged" and max(result.residual.values()) <= 1e-6
    assert result.objective <= -190.5915 and np.all(np.diff(result.history) <= 0)
    p = model.theta_["p"]
    fit = p[[model.strata_.index(label) for label in z]]
    loss = -np.sum(y * np.log(fit) + (1 - y) * np.log(1 - fit))
    expected = recomputed(p[:, None], model.W_, nx.to_numpy_array(graph), loss, 0.0, ELECTION_JOINT)
    assert result.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_election_with_the_papers_steps(election):
    y, z = election
    solver = strat.MAPG(step=(1e-3, 5e-5), tol=0, max_iter=940)
    model = strat.StratifiedModel(ELECTION, paper_data.election_graph(), ELECTION_JOINT, solver=solver)
    assert model.fit(y, strata=z, init="zero").result_.objective == pytest.approx(-190.379369, rel=1e-6)
