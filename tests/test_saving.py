"""Saved models: what is loaded is what was saved, files of earlier versions load, and strange ones are refused."""

import datetime
import json
import pickle
import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from problems import mean

import strat

Y = np.array([[0.0, 1.0], [0.2, 1.1], [0.4, 0.8], [2.0, -1.0]])
Z = [("F", 0), ("F", 1), ("M", 0), ("M", 1)]
GRAPH = strat.graphs.product(strat.graphs.path(["F", "M"], name="sex"), strat.graphs.path(2, name="age"))
JOINT = strat.LogDet(0.5, 0.5, 0.1, 0.5)
LEARN = strat.joint, strat.log_diagonal, strat.trace_constraint, strat.entropy
KINDS = [(strat.lrsm, solver) for solver in (strat.NewtonCG, strat.MAPG, strat.ADMM, strat.Cone)]
KINDS += [(strat.common, None), (strat.separate, None)]
KINDS += [(make, strat.AlternatingMinimization) for make in LEARN]
ATTRIBUTES = [
    *({name: True} for name in ("nonneg", "nonpos", "pos", "neg", "symmetric", "PSD", "NSD", "diag")),
    {"sparsity": [(0, 1), (0, 1)]},
    {"bounds": [-1.0, 1.0]},
]


def declared(regularizer=cp.sum_squares):
    theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    lam = cp.Parameter(nonneg=True, name="lam", value=0.5)
    return strat.BaseModel(cp.sum_squares(y - theta), lam * regularizer(theta), data=(y,), predict=theta)


BASE = declared()

#: What an earlier version wrote for a joint model (arrays rounded below), and what differs for a common one.
DECLARATION = (
    "BaseModel: variables theta (2,); 2 numbers per stratum; data y (2,)\n"
    "role         weight  piece                        rule    argument                          oracles\n"
    "loss         1       quad_over_lin(y - theta, 1)  Square  record data, 2 rows, Gram matrix  value gradient hvp prox\n"
    "regularizer  lam     quad_over_lin(theta, 1)      Square  no data, 2 entries                value gradient hvp prox\n"
    "loss's prox  one linear system a stratum\n"
    "regularizer's prox  closed form\n"
    "predict  theta"
)
META = json.loads(r"""
{"format": 1, "class": "StratifiedModel",
"variables": {"theta": [2]},
"strata": [{"tuple": ["F", 0]}, {"tuple": ["F", 1]}, {"tuple": ["M", 0]}, {"tuple": ["M", 1]}],
"graph": [{"tuple": ["F", 0]}, {"tuple": ["F", 1]}, {"tuple": ["M", 0]}, {"tuple": ["M", 1]}], "factors": ["sex",
"age"], "graph_regularizer": {"class": "LogDet", "params": {"eta": 0.1, "lambda1": 0.5, "lambda2": 0.5, "mu": 0.5}},
"solver": {"class": "MAPG", "params": {"max_iter": 3, "patience": null, "step": [0.1, 0.1], "time_limit": null,
"tol": 1e-06, "verbose": false}}, "options": {"scale": {"sex": 2.0, "age": 1.0}, "n_starts": 1, "warm_start": false,
"random_state": 0}, "edges": "all", "strata_columns": null, "regularizer_weight": null, "columns": {},
"result": {"status": "max_iter", "iterations": 3, "objective": 3.3325033536548, "parts": {"loss": 3.3687053296346914,
"regularizer": 0.2772642600536006, "laplacian": 0.8994070882326042, "graph": -1.2128733242660963},
"residual": {"theta": 0.1929836601559814, "W": 0.18926207122504146},
"history": [6.850488437503963, 4.53485412987219, 3.7727169265678784, 3.3325033536548],
"seconds": 0.014939961999971274, "factorizations": 10, "init": "default", "starts": [{"init": "default",
"objective": 3.3325033536548, "status": "max_iter"}], "notes": [], "smoothed_objective": null,
"history_seconds": [0.0005628249996334489, 0.001391287999922497, 0.0022, 0.0029]}}
""")
META["declaration"] = DECLARATION
COMMON = {"class": "CommonModel", "regularizer_weight": 2.0, "solver": None}
COMMON["graph_regularizer"] = {"class": "FixedGraph", "params": {}}
THETA = [[0.0595, 0.4462], [0.2340, 0.3491], [0.2219, 0.3276], [0.7256, -0.2160]]
WEIGHTS = [[0.0, 1.03, 2.01, 0.01], [1.03, 0.0, 0.03, 1.99], [2.01, 0.03, 0.0, 1.01], [0.01, 1.99, 1.01, 0.0]]


def write(path, **changes):
    arrays = {"theta/theta": THETA, "W": WEIGHTS, "value/lam": 0.25}
    arrays |= {"graph/i": [0, 0, 1, 2], "graph/j": [1, 2, 3, 3], "graph/edge": [1, 0, 2, 3]}
    arrays |= {"graph/weight": np.ones(4), "graph/factor": [0, 1, 0, 1]}
    np.savez_compressed(path, meta=np.array(json.dumps({**META, **changes})), **arrays)
    return path


@pytest.mark.parametrize("changes", [{}, COMMON], ids=["joint", "common"])
def test_a_file_of_an_earlier_version_is_loaded(tmp_path, changes):
    path = write(tmp_path / "model.npz", **changes)
    with warnings.catch_warnings(action="error"):
        model = strat.load(path, BASE)
    assert model.strata_ == Z and np.array_equal(model.W_, WEIGHTS)
    assert model.get_params()["base__lam"] == 0.25 and model.scale == {"sex": 2.0, "age": 1.0}
    assert model.result_.objective == 3.3325033536548 and model.result_.parts == META["result"]["parts"]
    assert np.array_equal(model.predict(strata=Z), np.array(THETA)[[0] * 4 if changes else [0, 1, 2, 3]])
    twin = strat.common(BASE, GRAPH, 2.0) if changes else strat.joint(BASE, GRAPH, JOINT)
    assert type(model) is type(twin) and repr(model.graph_regularizer) == repr(twin.graph_regularizer)
    assert {frozenset(edge) for edge in model.graph.edges} == {frozenset(edge) for edge in GRAPH.edges}
    if changes:
        assert model.regularizer_weight == 2.0
    else:
        assert model.solver.step == (0.1, 0.1)
        with pytest.warns(strat.ConvergenceWarning):
            again = model.fit(Y, strata=Z)
        assert np.isclose(again.result_.objective, 3.3325033536548, rtol=1e-9)
    fit = strat.load(path)
    assert fit.declaration == META["declaration"] and "base=base" in str(fit).splitlines()[0]


@pytest.mark.parametrize(("make", "solver"), KINDS)
def test_what_is_loaded_is_what_was_saved(tmp_path, make, solver):
    solver = None if solver is None else solver(tol=1e-5)
    model = make(BASE, GRAPH, solver=solver)
    model.set_params(base__lam=0.1, scale__age=2.0).fit(Y, strata=Z)
    path = tmp_path / "model.npz"
    model.save(path)
    loaded = strat.load(path, base=BASE)
    assert repr(loaded.graph_regularizer) == repr(model.graph_regularizer)
    assert type(loaded) is type(model) and type(loaded.solver) is type(solver)
    assert loaded.get_params().items() >= {"base__lam": 0.1, "scale__age": 2.0}.items()
    assert loaded.result_.history_seconds == model.result_.history_seconds
    assert np.array_equal(loaded.predict(strata=Z), model.predict(strata=Z))
    assert np.array_equal(loaded.W_, model.W_) and loaded.result_.objective == model.result_.objective
    assert loaded.fit(Y, strata=Z).result_.objective == pytest.approx(model.result_.objective)
    with pytest.raises(strat.OptionError, match="was fitted with the variables"):
        strat.load(path, base=mean())


def test_a_fit_loaded_without_its_declaration_is_for_reading(tmp_path):
    model = strat.lrsm(BASE, GRAPH).fit(Y, strata=Z)
    model.save(tmp_path / "fit")
    record = strat.load(tmp_path / "fit")
    assert record.strata_ == model.strata_ and np.array_equal(record.theta_["theta"], model.theta_["theta"])
    assert "Square" in record.declaration
    with pytest.raises(AttributeError, match=r"has no predict; give it: strat.load\(path, base=base\)"):
        record.predict(strata=Z)
    assert pickle.loads(pickle.dumps(record)).strata_ == model.strata_


class Own(strat.LogDet):
    """A graph regularizer of a user's own."""


class Slow(strat.NewtonCG):
    """A solver of a user's own."""


def test_classes_that_are_not_strats_own_are_refused_by_name(tmp_path):
    path = tmp_path / "model.npz"
    for options, text in (
        ({"graph_regularizer": Own(0.5, 0.5, 0.1, 0.5)}, "the graph regularizer Own, which is none of strat"),
        ({"solver": Slow()}, "the solver Slow, which is none of strat"),
    ):
        strat.StratifiedModel(BASE, GRAPH, **options).fit(Y, strata=Z).save(path)
        with pytest.raises(strat.OptionError, match=text):
            strat.load(path, BASE)
        assert strat.load(path).strata_ == Z
    for name in ("Solver", "StratifiedModel", "load", "__doc__"):
        write(path, graph_regularizer={"class": name, "params": {}})
        with pytest.raises(strat.OptionError, match=f"the graph regularizer {name}"):
            strat.load(path, BASE)


def test_loading_with_another_declaration_is_warned_of(tmp_path):
    path = tmp_path / "model.npz"
    strat.lrsm(BASE, GRAPH).fit(Y, strata=Z).save(path)
    with warnings.catch_warnings(action="error"):
        strat.load(path, declared())
    with pytest.warns(strat.DataWarning, match="fitted with another declaration than base"):
        strat.load(path, declared(cp.norm1))


def test_labels_of_many_kinds_are_kept(tmp_path):
    day = datetime.date(2020, 1, 2)
    labels = ["a", 1, 2.5, day, datetime.datetime(2020, 1, 2, 3), (day, ("b", 2)), frozenset({1, 2}), b"\x00"]
    labels += [pd.Period("2020-03", "M"), pd.Period("2020Q1", "Q-NOV"), pd.Interval(0, 1.5, "left")]
    labels += [pd.Interval(pd.Timestamp(day), pd.Timestamp("2021"), "both"), ("c", pd.Interval(0, 1))]
    strat.lrsm(BASE, nx.path_graph(labels)).fit(Y, strata=labels[:4]).save(tmp_path / "model.npz")
    loaded = strat.load(tmp_path / "model.npz", BASE)
    assert loaded.strata_ == labels and list(map(type, loaded.strata_)) == list(map(type, labels))
    with pytest.raises(strat.OptionError, match="cannot be stored; use numbers, text, dates"):
        strat.separate(BASE).fit(Y[:1], strata=[1 + 2j]).save(tmp_path / "model.npz")


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda a: next(iter(a)))
def test_variables_of_every_attribute_are_declared_checked_fitted_and_saved(attribute, tmp_path):
    M, x = cp.Variable((2, 2), name="M", **attribute), cp.Parameter(2, name="x")
    base = strat.BaseModel(cp.sum_squares(np.ones(2) - M @ x), 0.1 * cp.sum_squares(M), data=(x,))
    assert "M (2, 2)" in str(base) and base.check().ok
    X = np.random.default_rng(0).normal(size=(8, 2))
    model = strat.lrsm(base, strat.graphs.path(2)).fit(X, strata=[0, 1] * 4)
    assert model.result_.objective == pytest.approx(model.to_cvxpy().solve(solver=cp.CLARABEL), abs=1e-5)
    model.save(tmp_path / "model.npz")
    assert np.array_equal(strat.load(tmp_path / "model.npz", base=base).theta_["M"], model.theta_["M"])


def test_a_model_with_strata_by_position_is_saved(tmp_path):
    theta, x, y = cp.Variable(name="theta"), cp.Parameter(1, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - x[0] * theta), data=(x, y), predict=x[0] * theta)
    rows = np.array([[0.0, 1.0], [1.0, 2.0]])
    model = strat.separate(base, strata=0).fit(rows, [1.0, 4.0])
    model.save(tmp_path / "model.npz")
    loaded = strat.load(tmp_path / "model.npz", base)
    assert loaded.strata == 0 and np.array_equal(loaded.predict(rows), model.predict(rows))
