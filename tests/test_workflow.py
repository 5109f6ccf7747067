"""What users do around a fit: labels and columns in odd order, failed splits, options set later, parts without records."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array as csr
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

import strat
from strat import graphs

RNG = np.random.default_rng(0)
theta, b = cp.Variable(2, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")
PREDICT = x @ theta + b
BASE = strat.BaseModel(cp.square(y - PREDICT), 0.1 * cp.sum_squares(theta), data=(x, y), predict=PREDICT)
N = 120
X, Z = RNG.normal(size=(N, 2)), RNG.integers(0, 4, N)
Y = X @ [3.0, -3.0] + 2 * Z + RNG.normal(size=N)
GRAPH = graphs.path(4, weight=2.0)
FRAME = pd.DataFrame(X, columns=["u", "v"])


def squared_error(y, p):
    return np.mean((y - p) ** 2)


@pytest.mark.parametrize("label", [lambda k: pd.Timestamp(2020, 1 + k, 1), lambda k: f"2020-0{1 + k}"])
def test_trees_number_unseen_dates_after_those_before(label):
    splits, means = [(np.flatnonzero(Z < 3), np.flatnonzero(Z == 3))], []
    for labels in (list(range(4)), [label(k) for k in range(4)]):
        tree = DecisionTreeRegressor(random_state=0)
        models = {"lrsm": strat.lrsm(BASE, graphs.path(labels)), "tree": tree}
        means.append(strat.compare(models, data=(X, Y, [labels[k] for k in Z]), splits=splits).mean("tree"))
    assert means[0] == means[1]


def test_a_model_that_fails_on_a_split_is_not_the_best():
    low = np.flatnonzero(Z < 2)
    splits = [next(KFold(3).split(X)), (low[9:], low[:9])]
    models = {"small": strat.lrsm(BASE, graphs.path(2)), "all": strat.lrsm(BASE, GRAPH)}
    table = strat.compare(models, data=(X, Y, Z), splits=splits)
    assert table.best() == "all" and "small: means over 1 of 2 splits" in str(table)
    nan = strat.compare(models, data=(X, Y, Z), splits=splits, metrics={"nan": lambda y, p: np.nan})
    assert nan.best() == "small" and np.isnan(nan.mean("all")[0])


def test_metrics_get_targets_in_the_shape_of_their_parameter():
    models, metrics = {"l": strat.lrsm(BASE, GRAPH)}, {"loss": "loss", "mse": squared_error}
    for column in (Y[:, None], pd.DataFrame({"y": Y})):
        table = strat.compare(models, data=(X, column, Z), splits=KFold(3), metrics=metrics)
        assert np.isclose(table.mean("l", "mse")[0], table.mean("l", "loss")[0])


def test_other_models_check_columns_and_take_sparse_records():
    train, test = (FRAME[:80], Y[:80], Z[:80]), (FRAME[["v", "u"]][80:], Y[80:], Z[80:])
    models = {"l": strat.common(BASE), "r": Ridge()}
    assert "v, u" in strat.compare(models, train, test).runs[1]["error"]
    both = strat.blend(strat.lrsm(BASE, GRAPH), Ridge())
    with pytest.raises(Exception, match="not fitted yet"):
        both.predict(FRAME, strata=Z)
    with pytest.raises(strat.ShapeError, match=r"v, u"):
        both.fit(*train[:2], strata=train[2]).predict(test[0], strata=test[2])
    with pytest.raises(strat.OptionError, match="the other model is <class"):
        strat.blend(strat.lrsm(BASE, GRAPH), Ridge)
    dense, sparse = (strat.compare(models, data=(a, Y, Z), splits=2) for a in (X, csr(X)))
    assert np.isclose(dense.mean("r"), sparse.mean("r")).all()


def test_labels_that_are_names_of_columns():
    names = np.array(["north", "south", "west", "east"])
    dummies = pd.get_dummies(pd.Series(names[Z])).astype(float).assign(u=X[:, 0])
    wide = cp.Parameter(5, name="x")
    base = strat.BaseModel(cp.square(y - cp.sum(wide) * b), data=(wide, y), predict=cp.sum(wide) * b)
    model = strat.lrsm(base, graphs.path(names)).fit(dummies, Y, strata=list(names[Z]))
    assert model.theta_["b"] == pytest.approx(model.fit(dummies, Y, strata=names[Z]).theta_["b"])
    with pytest.raises(strat.DataError, match=r"may be labels of the 2 records, or columns"):
        model.predict(dummies[:2], strata=["north", "east"])
    with pytest.raises(strat.DataError, match="has no label"):
        strat.separate(BASE).fit(X, Y, strata=np.ma.masked_array(Z, Z == 1))


def test_graphs_in_frames_have_the_order_of_their_labels():
    labels, order = list("abcd"), [2, 0, 3, 1]
    W = pd.DataFrame(np.diag([1.0, 2.0, 3.0], 1) + np.diag([1.0, 2.0, 3.0], -1), labels, labels)
    z = np.array(labels)[Z]
    fits = [strat.lrsm(BASE, (labels, w)).fit(X, Y, strata=z) for w in (W.to_numpy(), W.iloc[order, order])]
    assert fits[0].theta_["b"] == pytest.approx(fits[1].theta_["b"])
    learned = strat.learn_graph([[0.0], [0.1], [2.0], [1.0]], strat.LogDet(1.0, 1.0, 0.1, 0.1))
    assert strat.lrsm(BASE, learned).fit(X, Y, strata=Z).result_.status == "converged"
    two = graphs.product(graphs.path(2, name="row"), graphs.path(2, name="col"))
    frame = FRAME.assign(row=Z // 2, col=Z % 2)
    with pytest.warns(strat.DataWarning, match=r"in another order.*Pass strata=\['row', 'col'\]"):
        strat.lrsm(BASE, two, strata=["col", "row"]).fit(frame, Y)


def test_what_is_set_after_a_fit_does_not_change_it():
    graph = graphs.path(4, weight=2.0)
    model = strat.lrsm(BASE, graph).fit(X, Y, strata=Z)
    held = RNG.normal(size=(30, 2)), RNG.normal(size=30), Z[:30]
    before = strat.hypergradient(model, held, wrt=["scale"])
    graph.add_edge(0, "new", weight=9.0)
    for change in ({}, {"graph": graphs.path(4, weight=50.0)}, {"scale": 3.0}):
        model.set_params(**change)
        assert strat.hypergradient(model, held, wrt=["scale"]) == before
    with pytest.raises(strat.OptionError, match=r"set it whole: set_params\(solver=strat.NewtonCG"):
        model.set_params(solver__tol=1e-3)


def test_unseen_strata_are_coupled_by_factor():
    full = graphs.product(graphs.path(2, weight=2.0, name="t"), graphs.path(["p", "q"], weight=2.0, name="r"))
    base = strat.BaseModel(BASE.loss, data=(x, y), predict=PREDICT, couple={b: {"t": 1.0, "r": 0.01}})
    z = [(0, "p"), (0, "q"), (1, "p")] * 40
    part = full.copy()
    part.remove_node((1, "q"))
    known = strat.lrsm(base, full).fit(X, Y, strata=z).predict(np.zeros((1, 2)), strata=[(1, "q")])
    new = strat.lrsm(base, part).fit(X, Y, strata=z).predict(np.zeros((1, 2)), strata=[(1, "q")], unseen=full)
    assert new == pytest.approx(known, abs=0.05)


def test_chunks_and_data_go_apart_and_empty_partitions_are_left_out():
    dataframe = pytest.importorskip("dask.dataframe")
    model, whole = strat.lrsm(BASE, GRAPH), [(X, Y, Z)]
    with pytest.raises(strat.OptionError, match="given data beside chunks="):
        model.fit(X, Y, strata=Z, chunks=whole)
    table = dataframe.from_pandas(FRAME.assign(y=Y, z=Z, t=range(N)), npartitions=3)
    table = table[table.t >= 40]
    model.fit(["u", "v"], "y", strata="z", chunks=table)
    assert model.theta_["b"] == pytest.approx(model.fit(X[40:], Y[40:], strata=Z[40:]).theta_["b"], abs=1e-5)
    expected = model.predict(X[40:], strata=Z[40:])
    assert model.predict(table[["u", "v"]], strata=table["z"]).compute() == pytest.approx(expected)


def test_fits_without_a_minimum_from_labels_of_another_loss_end_with_a_result():
    rng, loss = np.random.default_rng(0), cp.logistic(PREDICT) - y * PREDICT
    z, records = rng.integers(3, size=60), rng.normal(size=(60, 2))
    labels = 1 + (records.sum(axis=1) + rng.normal(size=60) > 0)
    base = strat.BaseModel(loss, 0.1 * cp.sum_squares(theta), data=(x, y))
    model = strat.lrsm(base, graphs.path(3, weight=2.0))
    with pytest.warns(strat.DataWarning), pytest.warns(strat.ConvergenceWarning):
        assert model.fit(records, labels, strata=z).result_.status == "max_iter"


def test_processes_give_the_same_comparison_and_the_same_tuned_model():
    models, metrics = {"l": strat.lrsm(BASE, GRAPH), "r": Ridge()}, {"mse": squared_error}
    one, two = (strat.compare(models, data=(X, Y, Z), splits=3, metrics=metrics, n_jobs=n) for n in (1, 2))
    assert [run["values"] for run in one.runs] == [run["values"] for run in two.runs]
    split = (X[:80], Y[:80], Z[:80]), (X[80:], Y[80:], Z[80:])
    options = {"wrt": ["scale", "W0"], "candidates": ["knn"]}
    one, two = (strat.tune(models["l"], *split, **options, n_jobs=n) for n in (1, 2))
    assert (one.choice, one.table[0]) == (two.choice, two.table[0])
    assert one.history == pytest.approx(two.history) and one.gain == pytest.approx(two.gain)
    with pytest.raises(strat.OptionError, match="n_jobs must be a number of processes"):
        strat.compare(models, data=(X, Y, Z), n_jobs=0)


@pytest.mark.parametrize("solver", [strat.MAPG, strat.NewtonCG])
@pytest.mark.parametrize("options", [{}, {"max_iter": 3}])
def test_patience_returns_the_best_iterate_whatever_ends_the_fit(solver, options):
    base = strat.BaseModel(cp.logistic(-y * PREDICT), 1e-2 * cp.sum_squares(theta), data=(x, y))
    labels, seen = np.sign(Y - Y.mean()), []
    held = X[80:], np.where(RNG.random(40) < 0.4, -1, 1) * labels[80:], Z[80:]

    def see(state):
        margin = np.sum(held[0] * state.theta["theta"][held[2]], axis=1) + state.theta["b"][held[2]]
        seen.append(np.logaddexp(0, -held[1] * margin).mean())

    model = strat.separate(base, solver=solver(patience=500, callback=see, **options))
    model.fit(X[:80], labels[:80], strata=Z[:80], validation=held)
    best = min(*seen, np.log(2))  # that of the start
    assert best < seen[-1] and -model.score(*held[:2], strata=held[2]) == pytest.approx(best)
    assert model.result_.status == ("max_iter" if options and len(seen) == 3 else "early_stopped")


def test_predictions_outside_a_domain_are_those_of_cvxpy():
    points = np.array([[-1.0, 0.0], [1.0, 1.0]])
    for predict in (PREDICT**3, cp.hstack([PREDICT, cp.sqrt(PREDICT)]), cp.entr(PREDICT)):
        base = strat.BaseModel(cp.square(y - PREDICT), data=(x, y), predict=predict)
        model = strat.common(base).fit(X, X @ [1.0, 2.0], strata=Z)
        theta.value, b.value = model.theta_["theta"][0], model.theta_["b"][0]
        for point, found in zip(points, model.predict(points, strata=[0, 1]), strict=True):
            x.value = point
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(found, predict.value)
    theta.value = b.value = x.value = None


def test_warm_starts_follow_labels():
    turned = nx.Graph()
    turned.add_nodes_from([2, 0, 3, 1])
    turned.add_edges_from(GRAPH.edges(data=True))
    model = strat.lrsm(BASE, GRAPH, warm_start=True).fit(X, Y, strata=Z)
    again = model.set_params(graph=turned).fit(X, Y, strata=Z).result_
    assert again.history[0] == pytest.approx(again.objective)


@pytest.mark.filterwarnings("ignore:The objective seems")
def test_a_fit_that_ends_before_max_iter_does_not_say_that_it_is_reached():
    model = strat.lrsm(strat.BaseModel(y * b, data=(y,)), graphs.path(2))
    with pytest.warns(strat.ConvergenceWarning, match="the objective has fallen to .* unbounded below"):
        result = model.fit(np.arange(1.0, 5.0), strata=[0, 1, 0, 1]).result_
    assert result.status == "max_iter" and result.iterations < 500
