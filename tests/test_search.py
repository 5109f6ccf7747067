"""strat.search: the table holds cross-validated losses of plain fits, the lowest wins, simple models take part; splitters."""

import cvxpy as cp
import numpy as np
import pandas as pd
import paper_data
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import linear, mean
from sklearn.base import clone
from sklearn.linear_model import Ridge

import strat
from strat import OptionError
from strat.records.sample import Sample
from strat.records.tables import mean_and_error

RNG = np.random.default_rng(2)
N = 160
Z = [(int(a), int(t)) for a, t in RNG.integers(0, [4, 5], size=(N, 2))]
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -1.0] + np.array([0.0, 3.0, -2.0, 1.0])[[a for a, _ in Z]] + 0.7 * RNG.normal(size=N)
PLACE, TIME = strat.graphs.path(range(4), name="place"), strat.graphs.path(range(5), weight=2.0, name="time")
GRAPH = strat.graphs.product(PLACE, TIME)
FOLDS = strat.StrataKFold(3)
EIGHTHS = [(np.arange(N) % 8 != k, np.arange(N) % 8 == k) for k in range(8)]
BASE = linear()


@pytest.fixture(scope="module")
def found():
    return strat.search({"lrsm": strat.lrsm(BASE, GRAPH)}, train=(X, Y, Z), folds=FOLDS)


def cross_validated(model, pairs=None):
    """Losses of held-out records by plain fits, fold after fold."""
    losses = []
    for train, test in pairs or FOLDS.split(X, groups=Z):
        fitted = clone(model).fit(X[train], Y[train], strata=[Z[i] for i in train])
        losses.append(fitted.losses(X[test], Y[test], strata=[Z[i] for i in test]))
    return np.concatenate(losses)


def test_the_table_holds_the_losses_of_plain_fits(found):
    rows = {row["candidate"]: row for row in found.table}
    assert set(rows) == {"lrsm", "lrsm, one scale", "common", "separate", "complete graph"}
    models = dict.fromkeys(rows, strat.lrsm(BASE, GRAPH))
    models |= {"common": strat.common(BASE, GRAPH), "separate": strat.separate(BASE, GRAPH)}
    models["complete graph"] = strat.lrsm(BASE, strat.graphs.complete(list(GRAPH), weight=1 / 19))
    best = cross_validated(clone(models[found.candidate]).set_params(**found.chosen))
    for name, row in rows.items():
        losses = cross_validated(clone(models[name]).set_params(**row["constants"]))
        assert np.isclose(row["mean"], losses.mean(), rtol=1e-3)
        assert np.isclose(row["se"], losses.std(ddof=1) / np.sqrt(N), rtol=1e-2)
        gap = losses - best
        assert np.isclose(row["difference"], gap.mean(), atol=1e-3 * row["mean"])
        assert np.isclose(row["difference_se"], gap.std(ddof=1) / np.sqrt(N), atol=2e-3)


def test_the_lowest_loss_wins_and_more_constants_never_lose(found):
    means = [row["mean"] for row in found.table]
    assert means == sorted(means) and found.table[0]["candidate"] == found.candidate
    by = {row["candidate"]: row["mean"] for row in found.table}
    assert by["lrsm"] <= by["lrsm, one scale"]
    # The places differ without order, the years do not: time is to be shared, place is not.
    assert found.candidate == "lrsm"
    assert found.chosen["scale__time"] > 30 * found.chosen["scale__place"]
    assert set(found.chosen) == {"scale__place", "scale__time", "base__ridge"}


def test_the_best_of_every_kind_is_fitted_to_all_records(found):
    assert found[found.candidate] is found.best
    row = next(row for row in found.table if row["candidate"] == "common")
    expected = strat.common(BASE, GRAPH).set_params(**row["constants"]).fit(X, Y, strata=Z)
    assert np.array_equal(found["common"].theta_["theta"], expected.theta_["theta"])
    with pytest.raises(OptionError, match="'joint' is none of the candidates"):
        found["joint"]


@pytest.mark.parametrize("scale", [{"place": 1e-3, "time": 1e2}, {"place": 50.0, "time": 1e-4}, 1e4])
def test_the_users_weights_do_not_matter(found, scale):
    again = strat.search({"lrsm": strat.lrsm(BASE, GRAPH, scale=scale)}, train=(X, Y, Z), folds=FOLDS)
    for row in again.table:
        same = next(r for r in found.table if r["candidate"] == row["candidate"])
        assert row["mean"] == pytest.approx(same["mean"], rel=1e-6)
        assert row["constants"] == pytest.approx(same["constants"], rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_reaches_the_lowest_loss_of_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    place = rng.normal(size=4) * rng.choice([0.1, 2.0])
    time = np.cumsum(rng.normal(size=5)) * rng.choice([0.05, 1.0])
    y = X @ [1.0, -1.0] + [place[a] + time[t] for a, t in Z] + rng.normal(size=N)
    model, train = strat.lrsm(BASE, GRAPH, scale=10.0 ** rng.integers(-4, 4)), (X, y, Z)
    found = strat.search({"lrsm": model}, train=train, folds=FOLDS)
    values = 10.0 ** np.arange(-3, 4)
    grid = {"scale__place": values, "scale__time": values, "base__ridge": [0.1, 1.0, 10.0]}
    best = next(row for row in strat.search({"lrsm": model}, grid, train=train, folds=FOLDS).table)
    assert found.table[0]["mean"] <= best["mean"] * 1.01


def test_a_time_limit_keeps_the_best_so_far(monkeypatch):
    monkeypatch.setattr("strat.oracles.clock.time.time", iter(np.arange(0.0, 1e4)).__next__)
    found = strat.search(strat.lrsm(BASE, GRAPH), train=(X, Y, Z), folds=FOLDS, time_limit=100)
    assert any(note.startswith("out of time: ") for note in found.notes)
    assert sum(row["trials"] for row in found.table) < 40 and hasattr(found.best, "theta_")
    with pytest.raises(OptionError, match="ended before a single choice"):
        strat.search(strat.lrsm(BASE, GRAPH), train=(X, Y, Z), folds=FOLDS, time_limit=1)


def test_a_search_reports_its_steps(caplog):
    train = X, Y, [a for a, _ in Z]
    strat.search(strat.lrsm(BASE, PLACE), train=train, folds=2, verbose=True, max_trials=9)
    lines = [record.message for record in caplog.records]
    assert any(line.startswith("search  model  ") and "lowest held-out loss" in line for line in lines)


def test_folds_of_infinite_loss_are_named():
    theta, x = cp.Variable(name="theta"), cp.Parameter(name="x")
    base = strat.BaseModel(x * theta - cp.log(x * theta), 0.1 * cp.square(theta + 1), data=(x,))
    x, z, folds = np.array([1.0, 2.0, 3.0, 1.0]), [0, 0, 0, 1], [([0, 1, 3], [2]), ([0, 1, 2], [3])]
    found = strat.search({"model": strat.separate(base)}, train=(x, z), folds=folds)
    assert found.candidate in ("common", "complete graph")
    assert "model: the held-out loss of fold 2 of 2 is infinite" in found.notes


def test_a_scale_of_0_is_no_constant_to_search():
    alone = strat.lrsm(BASE, GRAPH, scale={"place": 0.0, "time": 1.0})
    models = {"separate": strat.separate(BASE, GRAPH), "time alone": alone}
    table = strat.search(models, train=(X, Y, Z), folds=FOLDS, max_trials=20).table
    constants = {row["candidate"]: set(row["constants"]) for row in table}
    assert constants["separate"] == {"base__ridge"}
    assert constants["time alone"] == {"scale__time", "base__ridge"}
    assert set(constants) == {"separate", "time alone", "common", "complete graph"}


def test_a_grid_is_searched_exhaustively():
    model = strat.lrsm(BASE, GRAPH)
    grid = {"scale__place": [0.1, 1.0], "base__ridge": [0.1, 1.0, 10.0]}
    found = strat.search({"m": model}, grid, train=(X, Y, Z), folds=FOLDS, tol=1e-7)
    rows = [row for row in found.table if row["candidate"] == "m"]
    assert len(rows) == 6
    for row in rows:
        losses = cross_validated(clone(model).set_params(**row["constants"]))
        assert np.isclose(row["mean"], losses.mean(), rtol=1e-6)
    common = [row for row in found.table if row["candidate"] == "common"]
    alone = strat.common(BASE, GRAPH)
    expected = {r: cross_validated(alone.set_params(base__ridge=r)).mean() for r in (0.1, 1, 10)}
    assert common[0]["constants"] == {"base__ridge": min(expected, key=expected.get)}
    assert np.isclose(common[0]["mean"], min(expected.values()), rtol=1e-6)


def test_a_learned_graph_is_searched_by_bare_names():
    models = {"joint": strat.joint(BASE, GRAPH, lambda2=0.5), "lrsm": strat.lrsm(BASE, GRAPH)}
    found = strat.search(models, {"lambda1": [0.5, 2.0]}, train=(X, Y, Z), folds=FOLDS)
    joint = [row["constants"] for row in found.table if row["candidate"] == "joint"]
    assert sorted(c["graph_regularizer__lambda1"] for c in joint) == [0.5, 2.0]
    assert [row["constants"] for row in found.table if row["candidate"] == "lrsm"] == [{}]


def test_without_a_grid_a_learned_graph_gets_its_constants():
    models, train = {"joint": strat.joint(mean(), PLACE)}, (Y, [a for a, _ in Z])
    table = strat.search(models, train=train, folds=2, max_trials=8).table
    row = next(r for r in table if r["candidate"] == "joint")
    lambdas = {f"graph_regularizer__{name}" for name in ("lambda1", "lambda2")}
    assert set(row["constants"]) == {"scale__place", *lambdas} and row["trials"] == 8


def test_rolling_folds_and_columns_of_a_frame():
    frame = pd.DataFrame({"place": [a for a, _ in Z], "time": [t for _, t in Z], "u": X[:, 0], "v": X[:, 1]})
    rolling = strat.RollingOrigin(2, time=1)
    model, grid = strat.lrsm(BASE, GRAPH), {"scale__time": [1.0, 10.0]}
    found = strat.search(model, grid, train=(frame, Y, ["place", "time"]), folds=rolling)
    pairs = list(rolling.split(X, groups=Z))
    assert found.records == sum(len(test) for _, test in pairs) and found.folds == 2
    for row in found.table:
        if row["candidate"] == "model":
            losses = cross_validated(clone(model).set_params(**row["constants"]), pairs)
            assert np.isclose(row["mean"], losses.mean(), rtol=1e-3)


def test_a_model_without_a_graph_has_the_strata_of_all_records():
    z = ["only once", *("ab"[a % 2] for a, _ in Z[1:])]
    found = strat.search(strat.separate(BASE), {"base__ridge": [1.0]}, train=(X, Y, z), folds=3)
    assert sorted(row["candidate"] for row in found.table) == ["common", "complete graph", "model"]
    assert all(row["error"] is None for row in found.table)


def test_declarations_that_differ_in_couple_alone_share_the_models_without_edges():
    theta, b = cp.Variable(2, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")

    def declared(couple=None, factor=1.0):
        loss = cp.square(y - [factor, 1.0] @ cp.multiply(x, theta) - b)  # made anew for each
        base = strat.BaseModel(loss, cp.sum_squares(theta), data=(x, y), couple=couple)
        return strat.lrsm(base, GRAPH, scale=0.1)

    models, grid = {"both": declared(), "slopes": declared({b: 0.0})}, {"scale": [0.1]}
    found = strat.search(models, grid, train=(X, Y, Z), folds=2)
    rows = {row["candidate"]: row["mean"] for row in found.table}
    assert rows.keys() == {*models, "common", "separate", "both: complete graph", "slopes: complete graph"}
    assert rows["both: complete graph"] != rows["slopes: complete graph"]
    found = strat.search({**models, "other": declared(factor=2.0)}, grid, train=(X, Y, Z), folds=2)
    assert {"both: common", "other: common"} <= {row["candidate"] for row in found.table}


def test_a_candidate_that_fails_is_a_row_unless_all_do():
    models = {"small": strat.lrsm(BASE, PLACE), "lrsm": strat.lrsm(BASE, GRAPH)}
    found = strat.search(models, {"base__ridge": [1.0]}, train=(X, Y, Z), folds=2)
    assert found.table[-1]["candidate"] == "small" and "GraphError" in found.table[-1]["error"]
    assert "failed  small: GraphError" in str(found) and "(fold 1 of 2)" in found.table[-1]["error"]
    with pytest.raises(strat.GraphError, match="is not a node of the graph"):
        strat.search(strat.lrsm(BASE, PLACE), {"base__ridge": [1.0]}, train=(X, Y, Z))


def test_the_table_prints_and_converts(found):
    lines = str(found).splitlines()
    assert lines[0].split()[0] == "candidate" and lines[1].startswith("lrsm ")
    assert f"{N} held-out records of 3 folds" in lines[-1]
    frame = found.to_frame()
    assert list(frame["candidate"]) == [row["candidate"] for row in found.table]
    assert np.isclose(frame["scale__time"][0], found.chosen["scale__time"])
    assert found.to_markdown().count("\n") == len(found.table) + 1


@pytest.mark.parametrize(
    ("grid", "options", "words"),
    [
        ({"scale__age": [1]}, {}, "no model has a constant 'scale__age'; known are scale, "),
        ({"scale__time": 3}, {}, "must be a list of values to try, not 3"),
        ({}, {}, "grid must be a dict"),
        (None, {"tol": 0}, "tol must be"),
        (None, {"max_trials": 0}, "max_trials must be"),
        (None, {"n_jobs": 0}, "n_jobs must be"),
        (None, {"time_limit": -1}, "time_limit must be"),
        (None, {"sample_weight": np.arange(N) % 8 > 0, "folds": EIGHTHS}, "is 0 for all records that a fold"),
    ],
)
def test_wrong_arguments_raise(grid, options, words):
    with pytest.raises(OptionError, match=words):
        strat.search(strat.lrsm(BASE, GRAPH), grid, **{"train": (X, Y, Z), **options})


def weighed_search(sample_weight, index, grid):
    """A search over records that may be repeated, with folds that keep copies of one record together."""
    pairs = [(index % 3 != k, index % 3 == k) for k in range(3)]
    models = {"lrsm": strat.lrsm(BASE, GRAPH)}
    train = (X[index], Y[index], [Z[i] for i in index])
    return strat.search(models, grid, train=train, sample_weight=sample_weight, folds=pairs, tol=1e-8)


def test_weights_count_records_in_fits_and_means():
    weight = np.random.default_rng(5).integers(0, 4, N)
    grid, index = {"scale": [0.1, 1.0]}, np.arange(N)
    found = weighed_search(weight, index, grid)
    again = weighed_search(None, np.repeat(index, weight), grid)  # as many copies as the weight says
    kept = ([row for row in s.table if row["candidate"] != "complete graph"] for s in (found, again))
    rows, copies = ({(row["candidate"], *row["constants"].values()): row for row in table} for table in kept)
    assert found.chosen == again.chosen and rows.keys() == copies.keys()
    for key, row in rows.items():
        assert row["mean"] == pytest.approx(copies[key]["mean"], rel=1e-6)
        assert row["difference"] == pytest.approx(copies[key]["difference"], abs=1e-6)
    np.testing.assert_allclose(found.best.theta_["theta"], again.best.theta_["theta"], rtol=1e-5, atol=1e-6)
    plainly = clone(found.best).fit(X, Y, strata=Z, sample_weight=weight)
    assert np.array_equal(found.best.theta_["theta"], plainly.theta_["theta"])
    equal = clone(found.best).fit(X, Y, strata=Z)
    assert not np.allclose(equal.theta_["theta"], plainly.theta_["theta"], rtol=1e-3)


def test_the_standard_error_of_a_weighted_mean():
    losses = np.random.default_rng(0).random(30)
    mean, se = mean_and_error(losses, np.full(30, 7.0))
    assert mean == pytest.approx(losses.mean()) and se == pytest.approx(losses.std(ddof=1) / np.sqrt(30))
    assert mean_and_error(losses[:1], np.ones(1)) == (losses[0], None)
    mean, se = mean_and_error(np.array([1.0, 4.0]), np.array([3.0, 1.0]))
    assert mean == 1.75 and se == pytest.approx(np.sqrt(2 * ((0.75 * 0.75) ** 2 + (0.25 * 2.25) ** 2)))


@pytest.mark.slow
def test_processes_change_nothing():
    models = {"lrsm": strat.lrsm(BASE, GRAPH), "ridge": Ridge()}
    one, two = (strat.search(models, train=(X, Y, Z), folds=FOLDS, n_jobs=n) for n in (1, 2))
    assert [{**row, "seconds": 0} for row in one.table] == [{**row, "seconds": 0} for row in two.table]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wine", "concrete", "election"])
def test_on_real_records_the_users_weights_do_not_matter(name):
    if name == "election":
        y, z, _ = paper_data.election()
        data, graph, folds, other = (y,), paper_data.election_graph(), strat.RollingOrigin(3, time=1), 0.01
        b, t = cp.Variable(name="b"), cp.Parameter(name="t")
        ridge = cp.Parameter(nonneg=True, value=0.1, name="ridge")
        base = strat.BaseModel(cp.logistic(b) - t * b, ridge * cp.square(b), data=(t,))
    else:
        X, y, z, _ = getattr(paper_data, name)()
        data, graph, folds, other = (X, y), paper_data.wine_graph(), 3, 1e3
        data = (X, y[:, 1] * 2 - 1) if name == "wine" else data
        n = X.shape[1]
        theta, x, t = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="t")
        loss = strat.losses.logistic if name == "wine" else strat.losses.squared
        ridge = cp.Parameter(nonneg=True, value=1.0, name="ridge")
        base = strat.BaseModel(loss(t, x @ theta), ridge * cp.sum_squares(theta), data=(x, t))
    first, *others = strat.lrsm(base, graph)._scales()
    means = []
    for scale in ({}, {first: other} | dict.fromkeys(others, 1 / other)):
        model = strat.lrsm(base, graph, scale=scale)
        found = strat.search({"lrsm": model}, train=(*data, z), folds=folds, max_trials=80)
        means.append(next(row["mean"] for row in found.table if row["candidate"] == "lrsm"))
    assert max(means) - min(means) <= 1e-2 * min(means)


@given(st.lists(st.integers(0, 5), min_size=8, max_size=60), st.integers(2, 6), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_stratum_of_two_records_or_more_stays_in_every_training_part(labels, n, seed):
    z, held = np.array(labels), []
    for train, test in strat.StrataKFold(n, random_state=seed).split(z, groups=z):
        for k in set(labels):
            count = (z == k).sum()
            assert count // n <= (z[test] == k).sum() <= -(-count // n)
            assert count < 2 or (z[train] == k).any()
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(z)))
        held.append(test)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(len(z)))
    sizes = [len(test) for test in held]
    assert max(sizes) - min(sizes) <= 1


def test_folds_follow_the_seed():
    z = [0, 1] * 20
    splits = (strat.StrataKFold(4, random_state=s).split(z, groups=z) for s in (0, 0, 1))
    folds = [[test.tolist() for _, test in pairs] for pairs in splits]
    assert folds[0] == folds[1] != folds[2]


def test_strata_may_be_tuples_or_columns_of_x():
    frame = pd.DataFrame({"age": [0, 0, 1, 1] * 4, "sex": ["F", "M"] * 8, "x": range(16)})
    named = [t.tolist() for _, t in strat.StrataKFold(4, strata=["age", "sex"]).split(frame)]
    labels = list(zip(frame.age, frame.sex, strict=True))
    assert named == [t.tolist() for _, t in strat.StrataKFold(4).split(frame, groups=labels)]


def test_origins_roll_forward_and_test_every_point_once():
    z = [(s, t) for t in range(2000, 2010) for s in "ab"]
    years = np.array([t for _, t in z])
    for time in (1, lambda label: label[1]):
        tested = []
        for train, test in strat.RollingOrigin(3, time=time, horizon=2).split(z, groups=z):
            assert years[train].max() < years[test].min()
            assert set(years[train]) == set(range(2000, years[test].min()))
            tested += sorted(set(years[test]))
        assert tested == [2004, 2005, 2006, 2007, 2008, 2009]
    assert set(years[list(strat.RollingOrigin(1).split(years, groups=years))[0][1]]) == {2009}


@pytest.mark.parametrize(
    ("splitter", "groups", "error", "words"),
    [
        (strat.StrataKFold(3), None, strat.DataError, "none were given: pass groups="),
        (strat.StrataKFold(1), [0, 1], strat.OptionError, "n_splits must be a whole number of at least 2"),
        (strat.StrataKFold(3), [0, 1], strat.DataError, "cannot be spread over 3 folds"),
        (strat.RollingOrigin(3), [1, 2, 3], strat.DataError, "need more than 3 points in time"),
        (strat.RollingOrigin(1, time=1), [1, 2, 3], strat.OptionError, "not a position in the label 1"),
        (strat.RollingOrigin(1, horizon=0), [1, 2], strat.OptionError, "horizon must be"),
        (strat.RollingOrigin(1), ["a", 1, "b"], strat.DataError, "cannot be put in order"),
    ],
)
def test_refusals(splitter, groups, error, words):
    with pytest.raises(error, match=words):
        list(splitter.split(groups, groups=groups))


def test_time_may_be_a_column_or_a_factor():
    place, year = ["a", "b"] * 6, np.repeat([2000, 2004, 2008], 4)
    frame = pd.DataFrame({"place": place, "year": year, "x": 0.0})
    expected = [t.tolist() for _, t in strat.RollingOrigin(2, time=1).split(frame, groups=["place", "year"])]
    for strata in (["place", "year"], "place"):  # the column of time need not be one of the strata
        found = strat.RollingOrigin(2, time="year").split(frame, groups=strata)
        assert [t.tolist() for _, t in found] == expected
    graph = strat.graphs.grid(["a", "b"], [2000, 2004, 2008], name=("place", "year"))
    labels = list(zip(place, year, strict=True))
    sample = Sample([strat.lrsm(mean(), graph)], (np.arange(12.0), labels), "train")
    assert [test.tolist() for _, test in sample.splits(strat.RollingOrigin(2, time="year"))] == expected
    with pytest.raises(strat.OptionError, match="or a factor of a model's graph"):
        sample.splits(strat.RollingOrigin(2, time="month"))
