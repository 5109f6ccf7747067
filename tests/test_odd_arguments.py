"""Arguments that are nearly right: each is refused by name, or does what it says."""

from functools import partial

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingRegressor

import strat
from strat import DataError, DataWarning, GraphError, OptionError, ShapeError

theta, b = cp.Variable(2, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")
lam = cp.Parameter(nonneg=True, name="lam", value=0.3)
RNG = np.random.default_rng(0)
X, Y, Z = RNG.normal(size=(40, 2)), RNG.normal(size=40), np.arange(40) % 4
PATH = strat.graphs.path(4)
LOG_DET = strat.LogDet(1.0, 1.0, 0.1, 1.0)
MARGIN, MASK, WHERE = x @ theta + b, cp.Parameter(name="mask", nonneg=True), np.where(Y > 0, 1.0, -1.0)
RIDGE = cp.sum_squares(theta) + cp.square(b)


def declared(regularizer=None, **options):
    regularizer = lam * cp.sum_squares(theta) if regularizer is None else regularizer
    return strat.BaseModel(cp.square(y - x @ theta - b), regularizer, data=(x, y), **options)


BASE, XYZ = declared(), (X, Y, Z)
lrsm = partial(strat.lrsm, BASE, PATH)


def test_init_may_give_some_variables_only():
    model = lrsm(solver=strat.NewtonCG(max_iter=0))
    with pytest.warns(strat.ConvergenceWarning):
        model.fit(X, Y, strata=Z, init={"theta": {"b": np.arange(4.0)}})
    assert np.array_equal(model.theta_["b"], np.arange(4.0)) and not model.theta_["theta"].any()


def test_a_search_says_that_the_complete_graph_is_left_out(monkeypatch):
    for module in ("search", "candidates"):
        monkeypatch.setattr(f"strat.selection.{module}.MOST_COMPLETE", 3)
    found = strat.search(lrsm(), {"scale": [1.0]}, train=XYZ, folds=2)
    assert "complete graph" not in {row["candidate"] for row in found.table}
    assert any("the complete graph is left out: with 4 strata" in note for note in found.notes)
    assert "the complete graph is left out" in str(found)


def fitted(model=None, data=(X, Y), z=Z, **options):
    return (model or lrsm()).fit(*data, strata=z, **options)


FRAME = pd.DataFrame({"remainder__sex": ["f", "m"] * 20, "u": X[:, 0], "v": X[:, 1]})
NAMED = FRAME.rename(columns={"remainder__sex": "sex"})
NARROW = NAMED[["sex", "u"]]
SEXES = strat.graphs.path(["f", "m"])
OTHER = cp.Parameter(nonneg=True, name="lam", value=1.0)
COEF, ONE_HOT = cp.Variable((2, 3), name="scores"), cp.Parameter(3, name="one_hot")
LRSM, NOWHERE = {"lrsm": lrsm()}, strat.NewtonCG(checkpoint="none/fit.npz")
EMPTY = strat.BaseModel(b - y * cp.log(b), constraints=[b <= -1], data=(y,))
SOFTMAX = strat.BaseModel(strat.losses.softmax(ONE_HOT, x @ COEF), cp.sum_squares(COEF), data=(x, ONE_HOT))


def of_sexes(frame, z=None, **options):
    return lambda: fitted(strat.lrsm(BASE, SEXES, **options), (frame, Y), z)


def from_weights(W):
    return strat.joint(BASE, PATH).fit(X, Y, strata=Z, init={"W": W})


#: What errors say, and what they say it of.
REFUSED = {
    DataError: {
        "fit needs 2 data arguments .*strata=": lambda: lrsm().fit(*XYZ),
        "no strata were given": lambda: fitted(z=None),
        "validation must hold the data arguments": lambda: fitted(validation=(X, Z)),
        "too large to compute with, in column 0 of record 0": lambda: fitted(data=(X * 1e80, Y)),
        "too large to compute with": lambda: fitted(data=(sp.csr_array(X * 1e80), Y)),
        "x has NaN in column . of record": lambda: fitted(data=(np.ma.masked_array(X, X > 1), Y)),
        "no column 'sex', only remainder__sex, u, v. Did you mean 'remainder__sex'": of_sexes(
            FRAME, strata="sex"
        ),
        r"'sex', but .* not a DataFrame.*by number, such as strata=\[0, 1\].*bags": lambda: BaggingRegressor(
            strat.lrsm(BASE, SEXES, strata="sex"), 2
        ).fit(NAMED, Y),
        "X has no column 'sex', only": of_sexes(FRAME, ["sex", "u"]),
        "x holds 'f' in record 0, column 'sex'.*Name the column in strata=": of_sexes(NARROW, NAMED["sex"]),
        r"the column 'sex', .* is needed as a feature too.*cp.Parameter\(1, name='x'\)": of_sexes(
            NARROW, "sex"
        ),
    },
    ShapeError: {
        r"sample_weight has shape \(\), but .* the 40 records": lambda: fitted(sample_weight=2.0),
        r"2 labels, but there are 40 records.*list\(zip\(\*strata\)\)": lambda: fitted(z=(Z, Z)),
        r"one-hot rows: np.eye\(3\)\[one_hot\]": lambda: fitted(strat.separate(SOFTMAX), (X, Z % 3)),
    },
    GraphError: {
        "not a matrix of numbers": lambda: fitted(strat.lrsm(BASE, (np.eye(4), list("abcd")))),
        "a dict is not a graph": lambda: fitted(strat.lrsm(BASE, {})),
        r'init\["W"\]: W is not symmetric': lambda: from_weights(np.triu(np.ones((4, 4)), 1)),
        r'init\["W"\]: edge \(0, 1\) has the weight nan': lambda: from_weights(np.full((4, 4), np.nan)),
        r'init\["W"\]: edge \(0, 1\) has the weight -1, which is': lambda: from_weights(np.eye(4) - 1),
        r'init\["W"\]: .* not a matrix of numbers': lambda: from_weights(np.full((4, 4), "a")),
    },
    OptionError: {
        r'init\["W"\] has shape \(\)': lambda: from_weights("half"),
        r'init\["W"\] is a graph, but it must be a matrix': lambda: from_weights(PATH),
        "wrt has Variable.*nor a hyperparameter": lambda: strat.hypergradient(fitted(), XYZ, (theta,)),
        r"returns for this model, .*\(4, 2\).*not {}": lambda: fitted().coefficients(errors={}),
        r"returns for this model, .*not {'theta'": lambda: fitted().coefficients({"theta": X, "b": Y}),
        "folds must be a whole number of at least 2, not 1": lambda: strat.search(lrsm(), train=XYZ, folds=1),
        "relax the constraints: no parameters": lambda: strat.separate(EMPTY).fit(np.ones(40), strata=Z),
        "base__lam must be": lambda: lrsm().set_params(base__lam="a"),
        "base__lam must be finite": lambda: lrsm().set_params(base__lam=np.ones(3)),
        "base__lam must": lambda: lrsm().set_params(base__lam=np.nan),
        "a folder that does not exist": lambda: fitted(lrsm(solver=NOWHERE)),
        "random_state must be a whole number": lambda: strat.compare(LRSM, data=XYZ, random_state=None),
        "given mu beside graph_regularizer=LogDet": lambda: strat.joint(BASE, PATH, LOG_DET, mu=0.5),
        "lambda1 is a constant of a model that learns its graph.*joint.*scale=": lambda: lrsm(lambda1=1.0),
        "eta is a constant of a model that learns": lambda: strat.separate(BASE, eta=0.1),
        "sigma is a constant of a model that learns": lambda: strat.common(BASE, sigma=0.1),
        r"Entropy\(sigma=1.0\) has no constant lambda1": lambda: strat.entropy(BASE, PATH, lambda1=0.1),
    },
    strat.DeclarationError: {
        "hyperparameters have the name 'lam'": lambda: declared(lam * cp.norm1(theta) + OTHER * cp.abs(b)),
        "two hyperparameters have the name": lambda: declared(couple={b: OTHER}),
        "couple must be a dict": lambda: declared(couple=2.0),
    },
}
ROWS = [(error, text, call) for error, rows in REFUSED.items() for text, call in rows.items()]


@pytest.mark.parametrize(("error", "text", "call"), ROWS, ids=[text for _, text, _ in ROWS])
def test_what_was_meant_is_said(error, text, call):
    with pytest.raises(error, match=text):
        call()
    assert lam.value == 0.3


@pytest.mark.filterwarnings("error")
def test_pandas_rows_in_another_order_are_warned_of():
    frame, target, strata = pd.DataFrame(X), pd.Series(Y), pd.Series(Z)
    expected = fitted(data=(frame, target), z=strata).theta_["b"]
    fitted(data=(frame, target.set_axis(range(5, 45))), z=strata)  # another index altogether
    text = r"strata has the index of x in another order.*strata.loc\[x.index\]"
    with pytest.warns(DataWarning, match=text):
        moved = fitted(data=(frame, target), z=strata[::-1]).theta_["b"]
    assert not np.allclose(moved, expected)
    with pytest.warns(DataWarning, match="y has the index of x in another order"):
        fitted(data=(frame, target[::-1]))


@pytest.mark.parametrize(
    "make",
    [
        strat.common,
        strat.separate,
        lambda base: strat.lrsm(base, PATH, solver=strat.NewtonCG(max_iter=30)),
        lambda base: strat.joint(base, PATH, solver=strat.MAPG(max_iter=100)),
    ],
)
@pytest.mark.filterwarnings("ignore:NewtonCG|MAPG", "ignore::strat.CollapseWarning")
def test_an_objective_without_a_minimum_is_said_to_have_none(make):
    with pytest.warns(strat.ConvergenceWarning, match="seems unbounded below"):
        model = make(strat.BaseModel(b - y, data=(y,))).fit(Y[:8], strata=Z[:8])
    assert any("are doubled" in note for note in model.result_.notes)


def test_steps_that_are_too_long_return_the_best_iterate():
    model = strat.joint(BASE, PATH, solver=strat.MAPG(step=(1e3, 1e3)))
    with pytest.warns(strat.ConvergenceWarning, match="the steps are too long.*, or leave step out"):
        fitted(model)
    result = model.result_
    assert result.status == "max_iter" and np.isclose(result.objective, np.nanmin(result.history))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("loss", "made_for", "fine", "wrong"),
    [
        (strat.losses.logistic(y, MARGIN), "the labels -1 and 1", WHERE, [(WHERE + 1) / 2, (WHERE + 3) / 2]),
        (strat.losses.hinge(y, MARGIN), "the labels -1 and 1", WHERE, [(WHERE + 1) / 2, (WHERE + 3) / 2]),
        (strat.losses.squared_hinge(y, MARGIN), "the labels -1 and 1", WHERE, [(WHERE + 1) / 2]),
        (strat.losses.exponential(y, MARGIN), "the labels -1 and 1", WHERE, [(WHERE + 3) / 2]),
        (cp.logistic(MARGIN) - y * MARGIN, "labels 0 and 1", (WHERE + 1) / 2, [WHERE, (WHERE + 3) / 2]),
        (cp.logistic(MARGIN) - 0.5 * (1 + y) * MARGIN, "labels -1 and 1", WHERE, [(WHERE + 3) / 2]),
        (strat.losses.poisson(y, MARGIN), "counts of at least 0", WHERE + 3, [WHERE, np.round(4 * Y)]),
        (strat.losses.squared(y, MARGIN), "", Y, []),
    ],
)
def test_labels_in_other_codes_than_the_loss_is_made_for_are_warned_of(loss, made_for, fine, wrong):
    model = strat.separate(strat.BaseModel(loss, RIDGE, data=(x, y)))
    model.fit(X, fine, strata=Z)
    any_label = np.r_[2 * fine.min(), fine[1:]]  # of a record of weight 0
    model.fit(X, any_label, strata=Z, sample_weight=np.arange(40) > 0)
    for labels in wrong:
        with pytest.warns(DataWarning, match=f"y is .*the loss is one for {made_for}") as found:
            model.fit(X, labels, strata=Z)
        recoded = str(found[0].message).rpartition("Pass ")[2].split(". Or ")[0].rstrip(".")
        if len(np.unique(labels)) == 2:
            assert f"y is {labels.min():g} or {labels.max():g}" in str(found[0].message)
            assert (eval(recoded, {"np": np, "y": labels}) == np.where(Y > 0, 1, min(fine.min(), 0))).all()


def test_rows_that_are_no_classes_are_warned_of():
    for labels in (2 * np.eye(3)[Z % 3] - 1, np.eye(3)[Z % 3] + 1):
        with pytest.warns(DataWarning, match=r"rows of zeros with a single 1, but one_hot.*Pass np.eye\(3\)"):
            strat.separate(SOFTMAX).fit(X, labels, strata=Z)
    scores = cp.Parameter(4, name="wide") @ cp.Variable((4, 3)) + cp.Variable(3)
    data, loss = (*scores.parameters(), ONE_HOT), strat.losses.softmax(ONE_HOT, scores)
    program = strat.BaseModel(loss, cp.sum_squares(scores.variables()[0]), data=data).loss_program
    assert strat.compiler.label_codes.label_codes(program, {}, [X, X]) == {1: "one-hot"}


@pytest.mark.filterwarnings("error")
def test_other_numbers_than_labels_are_not_taken_for_labels():
    codes, dummy = (WHERE + 1) / 2, cp.Parameter(name="dummy")
    slope = cp.Variable(name="slope")
    for loss in (cp.square(y - MARGIN), cp.abs(y - MARGIN), cp.logistic(MARGIN) - y * MARGIN):
        fitted(strat.lrsm(strat.BaseModel(loss, RIDGE, data=(x, y)), PATH), (X, codes))
    base = strat.BaseModel(MASK * cp.square(y - MARGIN), RIDGE, data=(x, y, MASK))
    fitted(strat.lrsm(base, PATH), (X, Y, codes))
    m = slope * dummy  # without an intercept the dummy multiplies the prediction, as a label does
    for loss in (cp.logistic(m) - y * m, cp.exp(m) - y * m, cp.logistic(-y * m)):
        label = WHERE if "-y" in str(loss)[:12] else codes
        fitted(strat.lrsm(strat.BaseModel(loss, cp.square(slope), data=(dummy, y)), PATH), (codes, label))


def test_columns_that_differ_from_those_at_fit_are_named():
    model = strat.lrsm(BASE, SEXES, strata="sex").fit(NAMED, Y)
    for frame, match in (
        (NAMED.assign(extra=1.0), r"x has the column extra, which it did not .*: x\[\['u', 'v'\]\]"),
        (NAMED.drop(columns="v"), "x lacks the column v, which it had at fit"),
        (NAMED.rename(columns={"v": "w"}), "x has the column w, .* and lacks the column v"),
        (NAMED[["sex", "v", "u"]], r"x has the columns v, u, but at fit it had u, v.*: x\[\['u', 'v'\]\]"),
    ):
        with pytest.raises(ShapeError, match=match):
            model.losses(frame, Y)


def test_the_advice_on_directed_graphs_keeps_both_weights():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("b", "a", 1.0), ("a", "b", 0.5)])
    with pytest.raises(strat.GraphError, match="directed") as found:
        strat.lrsm(BASE, graph).fit(X, Y, strata=FRAME["remainder__sex"])
    assert "(list(graph), (A + A.T) / 2)" in str(found.value)
    A = nx.to_scipy_sparse_array(graph)
    model = strat.lrsm(BASE, (list(graph), (A + A.T) / 2)).fit(X, Y, strata=np.where(Z % 2, "a", "b"))
    assert model.strata_ == ["b", "a"] and model.W_[0, 1] == 0.75


def test_a_table_is_no_record():
    loss, again = cp.sum_squares(Y - X @ theta - b), cp.Parameter(nonneg=True, name="again")
    table, doubled = strat.BaseModel(loss), strat.BaseModel(again * loss, data=(again,))
    spelling = r"cp.square\(y - x @ theta\).*data=\(x, y\).*fit\(X, Y, strata=…\)"
    with pytest.raises(strat.NotPerRecordError, match=f"no data Parameter.*40 times. .*{spelling}"):
        strat.separate(table).fit(strata=Z)
    with pytest.raises(DataError, match="no data of records.*data="):
        strat.separate(table).fit(X, Y, strata=Z)
    with pytest.warns(DataWarning, match=rf"array of shape \(40,.*long as the 40 records.*{spelling}"):
        strat.separate(doubled).fit(np.ones(40), strata=Z)
    with pytest.raises(strat.DeclarationError, match=r"Parameters y, x in the loss .*data=\(y, x\)"):
        strat.separate(strat.BaseModel(cp.square(y - x @ theta - b))).fit(X, Y, strata=Z)


def test_records_that_are_only_scored_are_checked_like_those_fitted():
    p = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5])
    base = strat.BaseModel(-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,))
    model = strat.lrsm(base, strat.graphs.path(["a", "b"])).fit([0, 1, 1, 0], strata=list("aabb"))
    assert np.isfinite(model.losses([0.0, 1.0, 0.3], strata=list("abb"))).all()
    for score in (model.losses, model.score):
        with pytest.raises(DataError, match=r"record 1 \(stratum 'b'\) has y = 2. Labels of a Bernoulli"):
            score([1, 2], strata=list("ab"))
    assert np.isfinite(model.score([1, 2], strata=list("ab"), sample_weight=[1, 0]))


@pytest.mark.parametrize("h", [strat.LogDet(1.0, 1.0, 0.1, 0.2), strat.Entropy(1.0)])
@pytest.mark.filterwarnings("ignore:The objective seems")
def test_a_joint_fit_that_runs_away_is_stopped_before_numbers_overflow(h):
    base = strat.BaseModel(-y * (x @ theta), data=(x, y))
    with pytest.warns(strat.ConvergenceWarning, match="the objective has fallen to .* seems unbounded"):
        result = strat.StratifiedModel(base, PATH, h).fit(X, Y, strata=Z).result_
    assert result.status == "max_iter" and np.isfinite(result.objective)
    assert not np.isnan(list(result.parts.values())).any()
