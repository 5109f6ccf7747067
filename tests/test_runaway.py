"""Fits whose objective has no minimum are said to have none, and others are not."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

import strat

RNG = np.random.default_rng(0)
N = 120
Z, DUMMY = RNG.integers(0, 4, N), (RNG.random(N) < 0.2) * 1.0
LABEL, COUNT = (RNG.random(N) < 0.5) * 1.0, RNG.poisson(2, N) * 1.0
CERTAIN = np.where(DUMMY > 0, 1.0, LABEL)
PATH, PAIRS = strat.graphs.path(4), nx.Graph([(0, 1), (2, 3)])

u, b = cp.Variable(name="u"), cp.Variable(name="b")
x, y = cp.Parameter(name="x"), cp.Parameter(name="y")
m = u * x + b
LOGISTIC, POISSON = cp.logistic(m) - y * m, cp.exp(m) - y * m
SIGNS = cp.multiply(2 * y - 1, m)


def declared(loss, regularizer=0, **options):
    return strat.BaseModel(loss, regularizer, data=(x, y), **options)


def warned(model, labels, strata=Z, **options):
    """The warning that a fit to the dummy has no minimum, or None."""
    with warnings.catch_warnings(record=True, action="always") as found:
        model.fit(DUMMY, labels, strata=strata, **options)
    texts = [str(w.message) for w in found if w.category is strat.ConvergenceWarning]
    return next((text for text in texts if "has no minimum" in text), None)


@pytest.mark.parametrize("loss", [LOGISTIC, POISSON])
def test_joined_strata_whose_labels_are_all_alike_are_named(loss):
    labels = np.where(Z < 2, LABEL if loss is LOGISTIC else COUNT, 0.0)
    for graph in (PAIRS, nx.empty_graph(4)):
        text = warned(strat.lrsm(declared(loss), graph), labels)
        assert "b of 2, 3 grow without bound (up to 1" in text and "ridge" in text
    assert warned(strat.lrsm(declared(loss), PATH), labels) is None


@pytest.mark.parametrize(
    "make",
    [
        strat.common,
        strat.separate,
        lambda base: strat.lrsm(base, PATH),
        lambda base: strat.joint(base, PATH),
        lambda base: strat.lrsm(base, PATH, solver=strat.MAPG()),
        lambda base: strat.lrsm(base, PATH, solver=strat.Cone()),
        lambda base: strat.lrsm(base, PATH, solver=strat.NewtonCG(tol=1e-3)),
        lambda base: strat.joint(base, PATH, solver=strat.AlternatingMinimization()),
    ],
)
def test_one_coefficient_that_a_dummy_separates_is_named(make):
    model = make(declared(LOGISTIC))
    assert "keeps falling as u" in warned(model, CERTAIN)
    with pytest.warns(strat.DataWarning, match="parameters in 4 strata .* have infinite standard errors"):
        errors = strat.standard_errors(model)
    assert np.isinf(errors["u"]).all() and np.isfinite(errors["b"]).all()
    assert warned(make(declared(LOGISTIC)), LABEL) is None
    assert "keeps falling as u" in warned(make(declared(POISSON)), np.where(DUMMY > 0, 0.0, COUNT))


@pytest.mark.parametrize(
    ("base", "runs"),
    [
        (declared(cp.exp(-SIGNS)), True),
        (declared(cp.logistic(-SIGNS)), True),
        (declared(cp.square(cp.logistic(-SIGNS))), True),
        (declared(LOGISTIC, 0.1 * cp.square(b)), True),
        (declared(LOGISTIC, couple={u: 0}), True),
        (declared(LOGISTIC, constraints=[u >= -1]), True),
        (declared(LOGISTIC, constraints=[u <= 50]), False),
        (declared(LOGISTIC, 1e-3 * cp.abs(u)), False),
        (declared(LOGISTIC, 1e-3 * cp.logistic(u)), False),
        (declared(LOGISTIC, 1e-4 * cp.square(u)), False),
        (declared(cp.square(cp.pos(1 - SIGNS))), False),  # reaches its minimum
        (declared(cp.huber(y - m)), False),
    ],
)
def test_what_holds_a_coefficient_is_seen(base, runs):
    text = warned(strat.lrsm(base, PATH), CERTAIN)
    assert ("as u of" in text) if runs else text is None
    # Without the records that speak against it, everything is separated.
    assert bool(warned(strat.lrsm(base, PATH), LABEL, sample_weight=(DUMMY == 0) | (LABEL > 0))) == runs


@pytest.mark.filterwarnings("error")
def test_a_class_that_never_occurs_runs_away():
    scores, one_hot = cp.Variable(3, name="scores"), cp.Parameter(3, name="one_hot")
    model = strat.common(strat.BaseModel(strat.losses.softmax(one_hot, scores), data=(one_hot,)))
    with pytest.warns(strat.ConvergenceWarning, match="has no minimum.*scores"):
        model.fit(np.eye(3)[Z % 2], strata=Z)
    model.fit(np.eye(3)[Z % 3], strata=Z)


@pytest.mark.parametrize("seed", range(12))
def test_runaway_fits_are_those_with_a_direction_of_recession(seed, recwarn):
    rng = np.random.default_rng(seed)
    K, n, N = int(rng.integers(1, 4)), 2, int(rng.integers(10, 30))
    z, X = rng.integers(0, K, N), rng.choice([0.0, 0.0, 1.0, 2.0, -1.0], size=(N, n))
    graph = nx.gnp_random_graph(K, 0.5, seed=seed)
    theta, features = cp.Variable(n, name="theta"), cp.Parameter(n, name="features")
    margin, counts = features @ theta, rng.poisson(0.7, N) * 1.0
    model = strat.lrsm(strat.BaseModel(cp.exp(margin) - y * margin, data=(features, y)), graph)
    model.fit(X, counts, strata=z)
    # Along d no margin grows, those of positive counts stay, d is the same in joined strata, and some margin falls.
    rows = np.zeros((N, K, n))
    rows[np.arange(N), z] = X
    joined = [np.kron(np.eye(K)[i] - np.eye(K)[j], np.eye(n)) for i, j in graph.edges]
    rows, fixed = rows.reshape(N, K * n), np.vstack([rows.reshape(N, K * n)[counts > 0], *joined])
    limits = {"A_ub": rows, "b_ub": np.zeros(N), "A_eq": fixed, "b_eq": np.zeros(len(fixed))}
    best = linprog(rows.sum(axis=0), bounds=(-1, 1), **limits).fun
    assert any("has no minimum" in str(w.message) for w in recwarn) == (best < -1e-6)


def test_a_search_says_that_its_winner_runs_away():
    with pytest.warns(strat.ConvergenceWarning, match="has no minimum"):
        model = strat.lrsm(declared(LOGISTIC), PATH)
        found = strat.search(model, {"scale": [1.0]}, train=(DUMMY, CERTAIN, Z), folds=2)
    assert any("keeps falling as u" in note for note in found.notes)
