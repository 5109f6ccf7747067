"""The estimator: what a user does with a model, and what the model promises in return."""

import copy
import pickle
import re
import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from problems import linear, mean
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import strat

RNG = np.random.default_rng(0)
K, N, D = 6, 120, 3
Z = RNG.integers(0, K, N)
X = RNG.normal(size=(N, D))
TRUE = np.linspace(-1, 1, K)[:, None] * np.ones(D)
Y = np.where(np.einsum("ij,ij->i", X, TRUE[Z]) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
PATH = strat.graphs.path(range(K), weight=2.0)
JOINT = strat.LogDet(lambda1=1.0, lambda2=0.5, eta=0.1, mu=0.5)


def logistic(weight=0.1, **options):
    theta, b = cp.Variable(D, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(D, name="x"), cp.Parameter(name="y")
    u = x @ theta + b
    return strat.BaseModel(cp.logistic(-y * u), weight * cp.norm1(theta), data=(x, y), predict=u, **options)


def joint(**options):
    return strat.StratifiedModel(logistic(), PATH, JOINT, **options).fit(X, Y, strata=Z)


def lrsm(**options):
    return strat.lrsm(logistic(), PATH, **options).fit(X, Y, strata=Z)


def test_the_exported_problem_is_convex_for_cvxpy_whatever_sign_the_data_give():
    p, y, lam = cp.Variable(name="p"), cp.Parameter(name="y"), cp.Parameter(name="lam", value=1.5)
    loss = -y * cp.log(p) - (1 - y) * cp.log(1 - p)
    base = strat.BaseModel(loss, (lam - 1) * cp.abs(p), [(2 - lam) * p <= 0.49, p >= 0.01], data=(y,))
    model = strat.lrsm(base, PATH).fit(np.arange(N) % 3 == 0, strata=Z)
    problem = model.to_cvxpy()
    assert problem.is_dcp() and not problem.parameters()
    assert np.isclose(model.result_.objective, problem.solve(solver=cp.CLARABEL), rtol=1e-6)


def test_predictions_scores_and_losses_are_those_of_the_declaration():
    model = lrsm()
    theta, b = model.theta_["theta"], model.theta_["b"]
    margin = np.einsum("ij,ij->i", X, theta[Z]) + b[Z]
    assert np.allclose(model.predict(X, strata=Z), margin)
    losses = np.logaddexp(0, -Y * margin)
    assert np.allclose(model.losses(X, Y, strata=Z), losses)
    assert np.isclose(model.score(X, Y, strata=Z), -losses.mean())
    weights = RNG.integers(0, 3, N)
    expected = -np.average(losses, weights=weights)
    assert np.isclose(model.score(X, Y, strata=Z, sample_weight=weights), expected)
    assert np.array_equal(model.at(2)["theta"], theta[2]) and "converged" in str(model.result_)


def test_what_cannot_predict_says_so():
    with pytest.raises(NotFittedError):
        strat.lrsm(logistic(), PATH).predict(X, strata=Z)
    mu, y = cp.Variable(name="mu"), cp.Parameter(name="y")
    model = strat.separate(strat.BaseModel(cp.square(y - mu), data=(y,))).fit([1.0], strata=["a"])
    with pytest.raises(strat.DeclarationError, match="declared without predict="):
        model.predict(strata=["a"])


def test_a_frame_of_strata_for_a_model_without_x():
    frame = pd.DataFrame({"k": Z})
    model = strat.separate(mean(), strata="k").fit(frame, Y)
    assert np.allclose(model.theta_["mu"], [Y[k == Z].mean() for k in range(K)])
    assert np.allclose(model.predict(frame.head(3)), model.theta_["mu"][Z[:3]])


def test_unknown_strata_are_named():
    with pytest.raises(strat.GraphError, match="stratum 99 is not a node of the graph; 1 of 120 record"):
        strat.lrsm(logistic(), PATH).fit(X, Y, strata=np.where(np.arange(N) == 3, 99, Z))
    model = lrsm()
    with pytest.raises(strat.GraphError, match="stratum 7"):
        model.predict(X[:1], strata=[7])
    with pytest.raises(strat.GraphError, match="not a stratum of the model"):
        model.at(7)


def test_common_counts_the_regularizer_once_for_each_stratum():
    model = strat.common(mean(2.0), PATH).fit(Y, strata=Z)
    assert np.allclose(model.theta_["mu"], Y.sum() / (N + 2.0 * K))
    once = strat.common(mean(2.0), PATH, regularizer_weight=1).fit(Y, strata=Z)
    assert np.allclose(once.theta_["mu"], Y.sum() / (N + 2.0))
    assert np.allclose(model.predict(strata=["never seen"]), model.theta_["mu"][0])


def test_strata_that_no_edges_join_to_records_are_named(tmp_path):
    mu, shift, y = cp.Variable(name="mu"), cp.Variable(name="shift"), cp.Parameter(name="y")
    declared = [cp.square(y - mu - shift), cp.square(shift), (), (y,), mu]
    base, uncoupled = strat.BaseModel(*declared), strat.BaseModel(*declared, couple={mu: 0})
    islands, four = nx.Graph([("a", "b"), ("c", "d")]), list("abcd")
    areas, years = (strat.graphs.path(list(n), name=name) for n, name in (("ac", "area"), ("12", "year")))
    grid = strat.graphs.product(areas, years)
    for model, labels, which in (
        (strat.lrsm(base, islands), four, "parameters there are"),
        (strat.joint(base, islands, edges="prior"), four, "parameters there are"),
        (strat.lrsm(uncoupled, strat.graphs.path(four)), four, "parameters mu there are"),
        (strat.lrsm(base, grid, scale={"area": 0.0}), list(grid), "parameters there are"),
    ):
        with pytest.warns(strat.DataWarning, match=f"2 strata .*edges that lead to records: the {which}"):
            model.fit([1.0, 2.0], strata=labels[:2])
        assert any(repr(labels[2]) in note and repr(labels[3]) in note for note in model.result_.notes)
        text = f"of 1 of 3 records does not depend .* where the stratum {re.escape(repr(labels[2]))} has"
        with pytest.warns(strat.DataWarning, match=text):
            model.predict(strata=labels[:3])
        with warnings.catch_warnings(action="error"):
            model.predict(strata=labels[:2])
    model.save(tmp_path / "model")
    with pytest.warns(strat.DataWarning, match="does not depend on any data"):
        strat.load(tmp_path / "model", base).predict(strata=labels[3:])


def test_collapse_to_the_common_model_is_said():
    h = strat.LogDet(lambda1=50.0, lambda2=1e-4, eta=0.1, mu=0.2)
    with pytest.warns(strat.CollapseWarning, match="collapsed to the common model"):
        model = strat.StratifiedModel(logistic(), PATH, h).fit(X, Y, strata=Z)
    assert "collapsed" in str(model.result_)


def test_learning_from_no_prior_with_empty_strata_is_warned_of():
    graph = nx.empty_graph(K + 1)
    with pytest.warns(strat.DataWarning, match="W0 = 0"):
        strat.StratifiedModel(logistic(), graph, JOINT).fit(X, Y, strata=Z)


def test_nothing_of_the_users_is_changed():
    graph = PATH.copy()
    before = nx.to_dict_of_dicts(graph.copy())
    x, y, z = X.copy(), Y.copy(), Z.copy()
    base = logistic()
    base.loss.variables()[0].value = np.ones(D)
    strat.StratifiedModel(base, graph, JOINT).fit(x, y, strata=z)
    assert nx.to_dict_of_dicts(graph) == before
    assert np.array_equal(x, X) and np.array_equal(y, Y) and np.array_equal(z, Z)
    assert np.array_equal(base.loss.variables()[0].value, np.ones(D))


def test_hyperparameters_are_read_at_fit_and_can_be_set_on_a_model():
    lam = cp.Parameter(name="lam", nonneg=True)
    model = strat.separate(mean(lam))
    with pytest.raises(strat.DeclarationError, match="lam in the regularizer has no value"):
        model.fit(Y, strata=Z)
    lam.value = 1.0
    assert model.get_params()["base__lam"] == 1.0
    twin = clone(model).set_params(base__lam=5.0)
    assert lam.value == 1.0 and twin.get_params()["base__lam"] == 5.0
    assert clone(twin).get_params()["base__lam"] == 5.0
    counts, sums = np.bincount(Z), np.bincount(Z, weights=Y)
    assert np.allclose(model.fit(Y, strata=Z).theta_["mu"], sums / (counts + 1.0), atol=1e-6)
    assert np.allclose(twin.fit(Y, strata=Z).theta_["mu"], sums / (counts + 5.0), atol=1e-6)
    with pytest.raises(strat.OptionError, match="base__other"):
        model.set_params(base__other=1)


def test_a_fitted_model_keeps_the_values_of_its_fit(tmp_path):
    x, y, u = cp.Parameter(D, name="x"), cp.Parameter(name="y"), cp.Variable(D, name="theta")
    lam, tau = cp.Parameter(nonneg=True, name="lam", value=0.1), cp.Parameter(nonneg=True, value=1.0)
    loss, ridge = tau * cp.square(y - x @ u), lam * cp.sum_squares(u)
    base = strat.BaseModel(loss, ridge, data=(x, y), predict=tau * x @ u)
    model, path = strat.lrsm(base, PATH).fit(X, Y, strata=Z), tmp_path / "fit.npz"

    def numbers():
        loss, gradient = strat.hypergradient(model, (X[:9], Y[:9], Z[:9]), ["W0", lam])
        yield from (model.score(X, Y, strata=Z), model.to_cvxpy().solve(), loss, *gradient.values())
        yield from (model.predict(X[:1], strata=["a"], unseen="common"), strat.sensitivity(model).derivatives)

    before, lam.value, tau.value = [*numbers(), model.save(path)], 3.0, 4.0
    assert all(map(np.allclose, numbers(), before)) and np.isclose(before[1], model.result_.objective)
    assert strat.load(path, base).score(X, Y, strata=Z) == before[0] and lam.value == 3.0
    assert model.set_params(base__lam=7.0).values["lam"] == 0.1 and clone(model).values == {"lam": 7.0}
    assert model.fit(X, Y, strata=Z).values["lam"] == 7.0 and model.score(X, Y, strata=Z) < 2 * before[0]


def test_scales_multiply_the_edges_of_a_factor():
    graph = strat.graphs.grid(3, 2, name=("age", "sex"))
    z = [(k // 2, k % 2) for k in Z]
    scaled = strat.lrsm(mean(), graph, scale={"age": 3.0}).fit(Y, strata=z)
    assert np.array_equal(scaled.W_, nx.to_numpy_array(strat.graphs.grid(3, 2, weight=(3.0, 1.0))))
    with pytest.raises(strat.OptionError, match="height"):
        strat.lrsm(mean(), graph, scale={"height": 3.0}).fit(Y, strata=z)


def test_couple_leaves_variables_out_of_the_distance():
    theta, b, y = cp.Variable(name="theta"), cp.Variable(name="b"), cp.Parameter(2, name="y")
    loss = cp.square(y[0] - theta) + cp.square(y[1] - b)
    data, graph = np.stack([Y, Y], axis=1), strat.graphs.path(range(K), weight=5.0)
    base = strat.BaseModel(loss, data=(y,), couple=(theta,))
    model = strat.lrsm(base, graph, solver=strat.MAPG(tol=1e-9)).fit(data, strata=Z)
    assert np.allclose(model.theta_["b"], [Y[k == Z].mean() for k in range(K)], atol=1e-6)
    coupled = strat.lrsm(mean(), graph, solver=strat.MAPG(tol=1e-9)).fit(Y, strata=Z)
    assert np.allclose(model.theta_["theta"], coupled.theta_["mu"], atol=1e-6)
    half = strat.BaseModel(loss, data=(y,), couple={theta: 0.5, "b": 0})
    model = strat.lrsm(half, graph, scale=2.0, solver=strat.MAPG(tol=1e-9)).fit(data, strata=Z)
    assert np.allclose(model.theta_["theta"], coupled.theta_["mu"], atol=1e-6)


def test_candidate_edges_confine_the_graph():
    model = joint(edges="prior")
    allowed = nx.to_numpy_array(PATH) > 0
    assert not model.W_[~allowed].any() and model.W_[allowed].any()
    some = joint(edges=[(0, 1), (0, 5)])
    assert set(zip(*np.nonzero(some.W_), strict=True)) <= {(0, 1), (1, 0), (0, 5), (5, 0)}
    with pytest.raises(strat.GraphError, match="edges"):
        strat.StratifiedModel(logistic(), None, JOINT, edges="prior").fit(X, Y, strata=Z)


def test_smoothing_reports_the_true_objective_beside_the_smoothed_one():
    theta, x, y = cp.Variable(D, name="theta"), cp.Parameter(D, name="x"), cp.Parameter(name="y")
    r = y - x @ theta
    loss = cp.maximum(0.9 * r, -0.1 * r)
    rough = strat.BaseModel(loss, 0.1 * cp.sum_squares(theta), data=(x, y))
    with pytest.raises(strat.NoOracleError, match="needs the gradient of the loss"):
        strat.lrsm(rough, PATH, solver=strat.MAPG()).fit(X, Y, strata=Z)
    model = strat.lrsm(strat.BaseModel(loss, 0.1 * cp.sum_squares(theta), data=(x, y), smoothing=0.01), PATH)
    model.fit(X, Y, strata=Z)
    assert model.result_.smoothed_objective < model.result_.objective
    assert model.result_.history[-1] == pytest.approx(model.result_.smoothed_objective, rel=1e-9)
    assert -model.score(X, Y, strata=Z) * N == pytest.approx(model.result_.parts["loss"], rel=1e-9)
    optimum = model.to_cvxpy().solve(solver=cp.CLARABEL)
    assert optimum <= model.result_.objective <= optimum + model.result_.smoothing_bound + 1e-6
    assert f"at most {model.result_.smoothing_bound:.3g} above its minimum" in str(model.result_)
    assert 0 < model.result_.smoothing_bound <= 0.9**2 * 0.01 / 2 * N


def test_a_smooth_regularizer_without_a_prox_still_fits():
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    base = strat.BaseModel(cp.sum_squares(y - theta), cp.square(cp.sum_squares(theta)), data=(y,))
    model = strat.lrsm(base, PATH, solver=strat.MAPG(tol=1e-9)).fit(X[:, :2], strata=Z)
    assert np.isclose(model.result_.objective, model.to_cvxpy().solve(solver=cp.CLARABEL), rtol=1e-6)


def test_a_given_start_is_used():
    model = joint()
    again = strat.StratifiedModel(logistic(), PATH, JOINT)
    again.fit(X, Y, strata=Z, init={"theta": model.theta_, "W": model.W_})
    assert again.result_.iterations <= 2
    assert joint(warm_start=True).fit(X, Y, strata=Z).result_.iterations <= 2
    for bad, match in (
        ({"theta": {"gamma": 1}}, "gamma"),
        ({"V": 1}, "'V'"),
        ({"W": np.zeros((2, 2))}, "shape"),
        ("nowhere", "nowhere"),
    ):
        with pytest.raises(strat.OptionError, match=match):
            again.fit(X, Y, strata=Z, init=bad)


def test_validation_stops_early_and_returns_the_best_iterate():
    seen = []
    train, held = slice(0, 80), slice(80, N)
    solver = strat.MAPG(patience=3, tol=0, callback=lambda state: seen.append(state.theta) and False)
    model = strat.separate(logistic(0.0), solver=solver)
    model.fit(X[train], Y[train], strata=Z[train], validation=(X[held], Y[held], Z[held]))
    assert model.result_.status == "early_stopped"
    best = -model.score(X[held], Y[held], strata=Z[held])
    twin = clone(model)
    for theta in seen:
        twin.theta_, twin.strata_, twin._columns = theta, model.strata_, {}
        assert best <= -twin.score(X[held], Y[held], strata=Z[held]) + 1e-12


def test_a_callback_sees_parameters_and_graph_and_may_stop():
    states = []

    def callback(state):
        states.append(state)
        return len(states) == 3

    model = joint(solver=strat.MAPG(callback=callback))
    assert model.result_.status == "interrupted" and model.result_.iterations == 3
    assert states[0].theta["theta"].shape == (K, D) and states[0].W.shape == (K, K)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"base": 3}, strat.OptionError, "BaseModel"),
        ({"n_starts": 0}, strat.OptionError, "n_starts must be"),
        ({"random_state": "a"}, strat.OptionError, "random_state must be"),
        ({"solver": strat.ADMM}, strat.OptionError, "must be an object such as"),
        ({"graph_regularizer": strat.LogDet}, strat.OptionError, "must be an object such as"),
        ({"scale": -1.0}, strat.OptionError, "scale"),
        ({"graph": "map"}, strat.GraphError, "graph"),
        ({"solver": strat.MAPG(tol=-1)}, strat.OptionError, "tol"),
        ({"graph_regularizer": strat.LogDet(1.0, 0.0, 0.1, 0.5)}, strat.OptionError, "lambda2"),
    ],
)
def test_bad_options_are_named(change, error, match):
    options = {"base": logistic(), "graph": PATH, "graph_regularizer": JOINT, **change}
    with pytest.raises(error, match=match):
        strat.StratifiedModel(**options).fit(X, Y, strata=Z)


def test_the_graph_is_a_matrix_when_it_is_asked_for():
    base = mean()
    model = strat.lrsm(base, strat.graphs.path(["a", "b", "c"], weight=2.0))
    assert not hasattr(model, "W_")
    with pytest.raises(AttributeError, match="not fitted"):
        model.W_  # noqa: B018
    model.fit([1.0, 2.0, 4.0], strata=["a", "b", "c"])
    twin = pickle.loads(pickle.dumps(model))
    expected = [[0, 2, 0], [2, 0, 2], [0, 2, 0]]
    assert np.array_equal(model.W_, expected) and np.array_equal(twin.W_, expected)
    assert model.W_ is model.W_
    model.W_[0, 1] = 5.0
    assert model.W_[0, 1] == 5.0 and "W_" in vars(model)
    assert np.array_equal(strat.common(base).fit([1.0, 2.0], strata=[0, 1]).W_, np.zeros((2, 2)))


def test_a_deep_copy_of_a_fitted_model_predicts_as_it_does():
    model = strat.lrsm(linear(n=D), PATH).fit(X, Y, strata=Z)
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin.predict(X, strata=Z), model.predict(X, strata=Z))
    np.testing.assert_allclose(twin.fit(X, Y, strata=Z).theta_["theta"], model.theta_["theta"], atol=1e-12)
