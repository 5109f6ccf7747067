"""strat.compare: the numbers of plain fits, in one table, whatever the form of the records."""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from problems import linear
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error

import strat
from strat import DataError, OptionError, ShapeError

RNG = np.random.default_rng(1)
N = 90
Z = [(int(a), "FM"[b]) for a, b in RNG.integers(0, [4, 2], size=(N, 2))]
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -1.0] + np.array([a for a, _ in Z]) + RNG.normal(size=N)
AGE, SEX = strat.graphs.path(range(4), weight=3.0, name="age"), strat.graphs.path(["F", "M"], name="sex")
GRAPH = strat.graphs.product(AGE, SEX)
BASE = linear(ridge=0.1)
MODELS = {"common": strat.common(BASE, GRAPH), "lrsm": strat.lrsm(BASE, GRAPH)}
CUT = 60
TRAIN, TEST = (X[:CUT], Y[:CUT], Z[:CUT]), (X[CUT:], Y[CUT:], Z[CUT:])


def test_the_numbers_are_those_of_plain_fits():
    table = strat.compare(MODELS, train=TRAIN, test=TEST, metrics={"loss": "loss", "mse": mean_squared_error})
    for name, make in (("common", strat.common), ("lrsm", strat.lrsm)):
        alone = make(BASE, GRAPH).fit(*TRAIN[:2], strata=TRAIN[2])
        for part, (x, y, z) in (("train", TRAIN), ("test", TEST)):
            assert np.isclose(table.mean(name, "loss", part)[0], -alone.score(x, y, strata=z))
            mse = mean_squared_error(y, alone.predict(x, strata=z))
            assert np.isclose(table.mean(name, "mse", part)[0], mse)
        run = next(run for run in table.runs if run["model"] == name)
        assert run["objective"] == alone.result_.objective and run["status"] == "converged"
    assert not any(hasattr(model, "theta_") for model in MODELS.values())
    assert table.best() == "lrsm"


def test_weights_count_in_fits_and_metrics():
    weight, metrics = np.repeat([2, 1], [30, N - 30]), {"loss": "loss", "mse": mean_squared_error}
    given = {"train": TRAIN, "test": TRAIN, "sample_weight": (weight[:CUT], weight[:CUT])}
    weighted = strat.compare(MODELS, **given, metrics=metrics)
    part = [*(np.concatenate([array[:30], array]) for array in TRAIN[:2]), Z[:30] + Z[:CUT]]
    split = strat.compare(MODELS, data=(X, Y, Z), sample_weight=weight, splits=[(range(CUT), range(CUT, N))])
    repeated = strat.compare(MODELS, train=part, test=part, metrics=metrics)
    for name in MODELS:
        for metric in metrics:
            assert weighted.mean(name, metric) == pytest.approx(repeated.mean(name, metric))
        assert split.mean(name, part="train") == pytest.approx(weighted.mean(name, part="train"))


def test_repeated_splits_have_seeds_errors_and_paired_differences():
    table = strat.compare(MODELS, data=(X, Y, Z), splits=4, random_state=7)
    assert [run["seed"] for run in table.runs] == [7, 7, 8, 8, 9, 9, 10, 10]
    values = {n: [r["values"]["test", "loss"] for r in table.runs if r["model"] == n] for n in MODELS}
    mean, error = table.mean("lrsm")
    assert np.isclose(mean, np.mean(values["lrsm"]))
    assert np.isclose(error, np.std(values["lrsm"], ddof=1) / 2)
    gaps = np.subtract(values["common"], values["lrsm"])
    assert np.allclose(table.paired("lrsm")["common"], (gaps.mean(), gaps.std(ddof=1) / 2))
    again = strat.compare(MODELS, data=(X, Y, Z), splits=1, random_state=8)
    assert again.mean("lrsm")[0] == values["lrsm"][1]
    assert "4 splits, seeds 7 to 10" in str(table)


@pytest.mark.parametrize("form", ["frame", "declared", "arrays", "pairs", "masks", "splitter"])
def test_records_and_splits_in_any_form(form):
    expected = strat.compare(MODELS, data=(X, Y, Z), splits=strat.StrataKFold(3)).mean("lrsm")
    frame = pd.DataFrame({"age": [a for a, _ in Z], "a": X[:, 0], "sex": [s for _, s in Z], "b": X[:, 1]})
    models, data, splits = MODELS, (X, Y, Z), strat.StrataKFold(3)
    if form == "frame":
        data = (frame, pd.Series(Y, index=range(N, 0, -1)), ["age", "sex"])
    elif form == "declared":
        models = {"lrsm": strat.lrsm(BASE, GRAPH, strata=["age", "sex"])}
        data = (frame, Y)
    elif form == "arrays":
        data = (X.tolist(), list(Y), frame[["age", "sex"]])
    elif form != "splitter":
        splits = list(splits.split(X, groups=Z))
        if form == "masks":
            splits = [tuple(np.isin(np.arange(N), part) for part in pair) for pair in splits]
    assert np.allclose(strat.compare(models, data=data, splits=splits).mean("lrsm"), expected)


def test_strata_without_training_records_are_apart():
    keep = np.array([z != (2, "F") for z in Z])
    pick = lambda k: (X[k], Y[k], [z for z, kept in zip(Z, k, strict=True) if kept])  # noqa: E731
    outside = np.arange(N) % 3 == 0
    table = strat.compare(MODELS, train=pick(keep & ~outside), test=pick(outside | ~keep))
    lonely = pick(~keep)
    alone = strat.lrsm(BASE, GRAPH).fit(*pick(keep & ~outside)[:2], strata=pick(keep & ~outside)[2])
    assert np.isclose(table.mean("lrsm", part="unseen")[0], -alone.score(*lonely[:2], strata=lonely[2]))
    assert f"unseen: {(~keep).sum()} test records in strata without training records" in str(table)
    free = strat.compare({"separate": strat.separate(BASE)}, pick(keep), pick(~keep))
    assert free.runs[0]["error"] is None  # the labels of all records are its strata
    assert "he stratum (2, 'F') has neither records nor edges" in str(free)


def test_different_losses_are_ranked_with_a_warning(recwarn):
    (_, y), u = BASE.data, BASE.predict
    losses = {"free": cp.sum_squares(y - u), "pinball": strat.losses.pinball(y, u, 0.5)}
    free, kinked = ({k: strat.common(strat.BaseModel(e, data=BASE.data))} for k, e in losses.items())
    assert strat.compare(MODELS | free, TRAIN, TEST) and not recwarn
    with pytest.warns(strat.DataWarning, match="'common', 'lrsm', 'free' – 'pinball' do. Give a metric"):
        strat.compare(MODELS | free | kinked, TRAIN, TEST)


def test_a_model_that_fails_is_a_row():
    table = strat.compare({"small": strat.lrsm(BASE, AGE), **MODELS}, data=(X, Y, Z), splits=2)
    assert table.best() == "lrsm" and table.mean("small") == (None, None)
    frame = table.to_frame().set_index("model")
    assert frame.loc["small", "status"] == "failed"
    assert frame.loc["small", "error"].startswith("GraphError: stratum (")
    assert "failed  small: GraphError" in str(table)
    bad = strat.compare(MODELS, data=(X, Y, Z), splits=2, metrics={"bad": lambda y, p: 1 / 0})
    assert "ZeroDivisionError" in bad.runs[0]["error"]


def test_several_data_arguments_and_a_prediction_without_the_first():
    mu, w, y = cp.Variable(name="mu"), cp.Parameter(name="w", nonneg=True), cp.Parameter(name="y")
    base = strat.BaseModel(w * cp.square(y - mu), data=(w, y), predict=mu)
    models, metrics = {"m": strat.lrsm(base, GRAPH)}, {"mse": mean_squared_error, "loss": "loss"}
    table = strat.compare(models, data=(np.ones(N), Y, Z), splits=2, metrics=metrics)
    assert np.allclose(table.mean("m", "mse"), table.mean("m", "loss"))


def test_tables_are_aligned_and_plots_drawn():
    table = strat.compare(MODELS, data=(X, Y, Z), splits=3)
    lines = str(table).splitlines()[:3]
    assert lines[0].split()[:3] == ["model", "test", "loss"] and "±" in lines[1]
    assert lines[1].index("converged") == lines[2].index("converged")
    rows = table.to_markdown().splitlines()
    assert len(rows) == 4 and {row.count("|") for row in rows} == {rows[0].count("|")}
    frame = table.to_frame()
    assert list(frame["model"]) == list(MODELS)
    assert np.isclose(frame["test loss"][1], table.mean("lrsm")[0])
    ax = table.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == list(MODELS)
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"models": {}}, OptionError, "with at least one model"),
        ({"models": {"a": 3}}, OptionError, "the model 'a' is an int"),
        ({}, OptionError, "either train= and test=, or data="),
        ({"train": TRAIN}, OptionError, "train= and test= go together"),
        ({"train": TRAIN, "test": TEST, "sample_weight": np.ones(N)}, OptionError, "must be a pair"),
        ({"data": X}, DataError, "data must be a tuple"),
        ({"data": (X, Y)}, DataError, r"data must hold the data arguments \(x, y\) and then the strata"),
        ({"data": (X, Y[:5], Z)}, ShapeError, "data: y has 5 records, but the strata have 90"),
        ({"data": (X, Y, Z), "metrics": {"a": 3}}, OptionError, "metric 'a' must be"),
        ({"data": (X, Y, Z), "splits": 0}, OptionError, "splits must be a whole number"),
        ({"data": (X, Y, Z), "splits": []}, OptionError, "folds must be a number, a splitter, or pairs"),
        ({"data": (X, Y, Z), "splits": "ab"}, OptionError, "pairs of positions"),
        ({"data": (X, Y, Z), "splits": [([0, 1], [1, 2])]}, OptionError, "must be disjoint"),
        ({"data": (X, Y, Z), "splits": [([0, 1], [900])]}, OptionError, "whole numbers from 0 to 89"),
        ({"data": (X, Y, Z), "test_size": 2}, OptionError, "a share between 0 and 1"),
    ],
)
def test_wrong_arguments_raise(arguments, error, words):
    with pytest.raises(error, match=words):
        strat.compare(**{"models": MODELS, **arguments})


def test_a_factor_is_time_where_labels_are_no_tuples():
    z, models = [a for a, _ in Z], {"lrsm": strat.lrsm(BASE, AGE), "other": LinearRegression()}
    named, plain = (
        strat.compare(models, data=(X, Y, z), splits=strat.RollingOrigin(2, time=time))
        for time in ("age", None)
    )
    assert all(named.mean(name) == plain.mean(name) for name in models)


def test_labels_that_are_no_tuples_are_features_of_other_models():
    x, y, b = cp.Parameter(name="x"), cp.Parameter(name="y"), cp.Variable(name="b")
    base = strat.BaseModel(cp.square(x * b - y), data=(x, y), predict=x * b)
    labels, u = np.array(list("abc" * 20)), np.random.default_rng(0).normal(size=60)
    records = u, u + 10.0 * (labels == "b"), labels
    models = {"common": strat.common(base), "linear": LinearRegression()}
    table = strat.compare(models, train=records, test=records).to_frame()
    assert table.set_index("model").loc["linear", "test loss"] < 0.1  # of 100/3
