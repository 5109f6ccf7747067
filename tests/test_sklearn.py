"""scikit-learn's tools on a StratifiedModel: clones, parameters, pickles, routing, folds and searches."""

import pickle
from functools import cache

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import sklearn
from problems import linear
from scipy.special import expit, logit, softmax
from scipy.stats import norm
from sklearn import ensemble
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import estimator_checks

import strat
from strat.model.baselines import CommonModel

RNG = np.random.default_rng(3)
N = 72
Z = [(int(a), "FM"[b]) for a, b in RNG.integers(0, [3, 2], size=(N, 2))]
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -1.0] + np.array([a for a, _ in Z]) + 0.5 * RNG.normal(size=N)
W = RNG.integers(1, 4, N).astype(float)
AGE, SEX = strat.graphs.path(range(3), weight=3.0, name="age"), strat.graphs.path(["F", "M"], name="sex")
GRAPH = strat.graphs.product(AGE, SEX)
FRAME = pd.DataFrame({"age": [a for a, _ in Z], "u": X[:, 0], "sex": [s for _, s in Z], "v": X[:, 1]})
COLUMNS = ["age", "sex"]
BASE = linear()


def lrsm(**options):
    return strat.lrsm(BASE, GRAPH, strata=COLUMNS, **options)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def by_hand(model, pairs, weight=None):
    """Scores of plain fits."""
    scores = []
    for train, test in pairs:
        own = {} if weight is None else {"sample_weight": weight[train]}
        fitted = clone(model).fit(FRAME.iloc[train], Y[train], **own)
        own = {} if weight is None else {"sample_weight": weight[test]}
        scores.append(fitted.score(FRAME.iloc[test], Y[test], **own))
    return np.array(scores)


def test_clones_share_the_declaration_and_carry_their_own_values():
    model = lrsm(solver=strat.MAPG(tol=1e-7)).set_params(base__ridge=2.0, scale__age=3.0)
    twin = clone(model)
    assert twin.base is model.base and twin.solver is not model.solver
    variables = [{v.name(): v.id for v in e.variables()} for e in (twin.base.loss, twin.base.regularizer)]
    assert variables[0]["theta"] == variables[1]["theta"]
    assert twin.get_params()["base__ridge"] == 2.0 and twin.scale == {"age": 3.0, "sex": 1.0}
    twin.set_params(base__ridge=7.0)
    assert model.get_params()["base__ridge"] == 2.0 and BASE.hyperparameters["ridge"].value == 0.5
    a, b = (m.fit(FRAME, Y) for m in (model, clone(model)))
    assert np.array_equal(a.theta_["theta"], b.theta_["theta"])


def test_nested_parameters_are_set_by_name():
    model = strat.joint(BASE, GRAPH, solver=strat.MAPG())
    model.set_params(graph_regularizer__lambda1=3.0, solver__tol=1e-3, base__ridge=0.1, scale__sex=4.0)
    params = model.get_params()
    expected = {"graph_regularizer__lambda1": 3.0, "solver__tol": 1e-3, "base__ridge": 0.1}
    assert params.items() >= (expected | {"scale__sex": 4.0, "scale__age": 1.0}).items()
    with pytest.raises(strat.OptionError, match="there is no 'shoe'"):
        model.set_params(scale__shoe=1.0)
    with pytest.raises(ValueError, match="lambda9"):
        model.set_params(graph_regularizer__lambda9=1.0)


@pytest.mark.parametrize("make", [strat.lrsm, strat.common])
def test_models_pickle(make):
    model = make(BASE, GRAPH, strata=COLUMNS).set_params(base__ridge=1.5)
    early = pickle.loads(pickle.dumps(model)).fit(FRAME, Y)
    twin = pickle.loads(pickle.dumps(model.fit(FRAME, Y)))
    for one in (early, twin):
        assert np.array_equal(one.predict(FRAME), model.predict(FRAME))
        assert one.get_params()["base__ridge"] == 1.5
    # Its expressions go on sharing their variables.
    again = clone(twin).set_params(base__ridge=9.0).fit(FRAME, Y)
    expected = clone(model).set_params(base__ridge=9.0).fit(FRAME, Y)
    assert np.allclose(again.theta_["theta"], expected.theta_["theta"])


def test_grid_search_with_strata_in_columns():
    folds = strat.StrataKFold(3, strata=COLUMNS)
    grid = {"scale__age": [0.1, 10.0], "base__ridge": [0.1, 10.0]}
    found = GridSearchCV(lrsm(), grid, cv=folds).fit(FRAME, Y)
    for params, score in zip(found.cv_results_["params"], found.cv_results_["mean_test_score"], strict=True):
        assert np.isclose(score, by_hand(lrsm().set_params(**params), folds.split(FRAME)).mean())
    assert np.isclose(found.score(FRAME, Y), found.best_estimator_.score(FRAME, Y))
    other = GridSearchCV(lrsm(), {"scale__sex": [0.1, 1.0]}, cv=folds, scoring="neg_mean_squared_error")
    assert other.fit(FRAME, Y).best_score_ < 0


def test_a_grid_over_a_graph_regularizer_and_a_solver():
    model = strat.joint(BASE, GRAPH, strata=COLUMNS, solver=strat.MAPG(), lambda2=0.5)
    grid = {"graph_regularizer__lambda1": [0.1, 1.0], "solver__tol": [1e-4]}
    found = GridSearchCV(model, grid, cv=strat.StrataKFold(2, strata=COLUMNS)).fit(FRAME, Y)
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_cross_validation_with_rolling_origins_and_plain_folds():
    # The strata of the last age have no training records.
    rolling = strat.RollingOrigin(1, time=0, strata=COLUMNS)
    assert np.allclose(cross_val_score(lrsm(), FRAME, Y, cv=rolling), by_hand(lrsm(), rolling.split(FRAME)))
    both = cross_validate(lrsm(), FRAME, Y, cv=KFold(3), return_train_score=True, return_estimator=True)
    assert np.allclose(both["test_score"], by_hand(lrsm(), KFold(3).split(FRAME)))
    assert (both["train_score"] > both["test_score"].min()).all() and len(both["estimator"]) == 3


def test_routing_brings_strata_and_weights_to_fit_and_score(routing):
    model = strat.lrsm(BASE, GRAPH)
    model.set_fit_request(strata=True, sample_weight=True).set_score_request(strata=True, sample_weight=True)
    folds = strat.StrataKFold(3)
    params = {"strata": Z, "sample_weight": W, "groups": Z}
    scores = cross_val_score(model, X, Y, cv=folds, params=params)
    pairs = list(folds.split(X, groups=Z))
    assert np.allclose(scores, by_hand(lrsm(), pairs, W))
    grid = GridSearchCV(model, {"scale__age": [0.1, 10.0]}, cv=folds).fit(X, Y, **params)
    expected = [by_hand(lrsm(scale={"age": s, "sex": 1.0}), pairs, W).mean() for s in (0.1, 10.0)]
    assert np.allclose(grid.cv_results_["mean_test_score"], expected)
    given = {"strata": Z, "sample_weight": W}
    assert np.isclose(grid.score(X, Y, **given), grid.best_estimator_.score(X, Y, **given))
    ignored = clone(model).set_fit_request(strata=True, sample_weight=False)
    ignored.set_score_request(strata=True, sample_weight=False)
    plain = cross_val_score(ignored, X, Y, cv=folds, params={"strata": Z, "groups": Z})
    assert np.allclose(plain, by_hand(lrsm(), pairs))


def test_a_fold_without_a_stratum_still_predicts_for_it():
    keep = np.array([z != (2, "M") for z in Z])
    assert np.isfinite(lrsm().fit(FRAME[keep], Y[keep]).predict(FRAME[~keep])).all()
    lonely = strat.separate(BASE, strata=COLUMNS).fit(FRAME[keep], Y[keep])
    with pytest.raises(strat.GraphError, match="no graph, so its strata are the labels seen at fit"):
        lonely.predict(FRAME[~keep])
    with pytest.warns(strat.DataWarning, match="neither records nor edges"):
        lonely = strat.separate(BASE, GRAPH, strata=COLUMNS).fit(FRAME[keep], Y[keep])
    assert np.allclose(lonely.at((2, "M"))["theta"], 0, atol=1e-6)
    common = strat.common(BASE, strata=COLUMNS).fit(FRAME[keep], Y[keep])
    assert np.isfinite(common.predict(FRAME[~keep])).all()


@pytest.mark.parametrize("labels", [[a for a, _ in Z], "group"])
def test_declared_columns_are_dropped_where_other_strata_are_given(labels):
    frame = FRAME.drop(columns="sex").assign(group=[a for a, _ in Z])
    frame = frame if labels == "group" else frame.drop(columns="group")
    plain = strat.lrsm(BASE, AGE).fit(frame[["u", "v"]], Y, strata=FRAME["age"])
    frame["age"] = 7  # no stratum
    model = strat.lrsm(BASE, AGE, strata="age").fit(frame, Y, strata=labels)
    np.testing.assert_allclose(model.theta_["theta"], plain.theta_["theta"], atol=1e-8)
    found = model.predict(frame, strata=labels)
    np.testing.assert_allclose(found, plain.predict(frame[["u", "v"]], strata=FRAME["age"]), atol=1e-8)


@cache
def declared(n, kind):
    losses = {"regressor": strat.losses.squared, "classifier": lambda y, u: cp.logistic(u) - y * u}
    return linear(losses[kind], n)


class ForAnyWidth(CommonModel):
    """The checks' tables have all widths, and no strata: one model for the columns but the last, which holds labels."""

    graph, solver, scale, edges, strata = None, None, 1.0, "all", -1
    graph_regularizer, n_starts, warm_start, random_state = strat.FixedGraph(), 1, False, 0
    regularizer_weight = 1.0
    _width, _kind = 2, "regressor"

    def __init__(self):
        pass

    @property
    def base(self):
        return declared(self._width - 1, self._kind)

    def fit(self, X, y=None, sample_weight=None):
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) == 2 and shape[1] > 1:
            self._width = shape[1]
        return super().fit(X, *(() if y is None else (y,)), sample_weight=sample_weight)


class ForLabels(ForAnyWidth):
    """The same for labels 0 and 1."""

    _kind = "classifier"


#: Checks that want scikit-learn's words, where the error is raised in the package's own.
OWN_WORDS = ("n_features_in_after_fitting", "complex_data", "estimators_empty_data_messages")
OWN_WORDS += ("fit2d_1feature", "fit2d_predict1d", "requires_y_none")
A_NUMBER = "predict is the margin that is declared, not a label"
FREE = "labels are numbers, and others than the loss is made for are a warning"
EXPECTED = {f"check_{name}": "the error has the package's own words" for name in OWN_WORDS} | {
    "check_fit_score_takes_y": "fit and score take any number of data arguments, of which y is one",
    "check_supervised_y_2d": "a column of numbers is read as numbers without a warning",
}
OF_KIND = {
    ForAnyWidth: {"check_regressors_train": "score is minus the mean loss, not a share of variance"},
    ForLabels: {
        "check_classifiers_train": A_NUMBER,
        "check_classifiers_one_label": A_NUMBER,
        "check_classifiers_classes": FREE,
        "check_classifiers_regression_target": FREE,
        "check_classifier_not_supporting_multiclass": FREE,
    },
}


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(kind):
    expected = EXPECTED | OF_KIND[kind]
    results = estimator_checks.check_estimator(kind(), expected_failed_checks=expected, on_fail=None)
    status = {s: {r["check_name"] for r in results if r["status"] == s} for s in ("failed", "xfail")}
    assert status["failed"] == set() and status["xfail"] == set(expected)
    assert sum(r["status"] == "passed" for r in results) > 40


def of_labels(loss, m=()):
    """A stratified model of one or m scores."""
    theta, x, y = cp.Variable((2, *m), name="theta"), cp.Parameter(2, name="x"), cp.Parameter(m, name="y")
    base = strat.BaseModel(loss(y, x @ theta), 0.1 * cp.sum_squares(theta), data=(x, y), predict=x @ theta)
    return strat.lrsm(base, GRAPH, strata=COLUMNS)


@pytest.mark.parametrize(
    ("loss", "labels", "probability"),
    [
        (strat.losses.logistic, [-1, 1], expit),
        (lambda y, u: cp.logistic(u) - y * u, [0, 1], expit),
        (lambda y, u: -cp.log_normcdf(y * u), [-1, 1], norm.cdf),
        (strat.losses.hinge, [-1, 1], None),
    ],
)
def test_classes_have_probabilities_and_decisions(loss, labels, probability):
    y = np.where(Y > 0, labels[1], labels[0])
    model = of_labels(loss).fit(FRAME, y)
    u, decision = model.predict(FRAME), model.decision_function(FRAME)
    assert is_classifier(model) and not is_regressor(model)
    assert list(model.classes_) == labels and np.array_equal(decision > 0, u > 0)
    assert hasattr(model, "predict_proba") == (probability is not None)
    if probability is not None:
        assert np.allclose(model.predict_proba(FRAME), np.stack([probability(-u), probability(u)], axis=1))
        assert np.allclose(decision, logit(probability(u)))
        scored = cross_val_score(model, FRAME, y, scoring="neg_log_loss", cv=3)
        assert np.allclose(scored, cross_val_score(model, FRAME, y, cv=3))
    ranked = cross_val_score(model, FRAME, y, scoring="roc_auc", cv=KFold(2))
    margins = [clone(model).fit(FRAME.iloc[a], y[a]).predict(FRAME.iloc[b]) for a, b in KFold(2).split(Y)]
    pairs = zip(KFold(2).split(Y), margins, strict=True)
    assert np.allclose(ranked, [roc_auc_score(y[b], margin) for (_, b), margin in pairs])
    assert CalibratedClassifierCV(model, cv=3).fit(FRAME, y).score(FRAME, y) > 0.8


@pytest.mark.parametrize("count", [3, 7])
def test_rows_with_a_single_one_have_probabilities_and_regressors_none(count):
    labels = np.eye(count)[np.digitize(Y, np.linspace(-1, 1, count - 1))]
    model = of_labels(strat.losses.softmax, (count,)).fit(FRAME, labels)
    assert np.allclose(model.predict_proba(FRAME), softmax(model.predict(FRAME), axis=1))
    assert list(model.classes_) == list(range(count)) and not hasattr(model, "decision_function")
    for loss in (strat.losses.squared, strat.losses.poisson):
        other = of_labels(loss)
        assert is_regressor(other) and not is_classifier(other)
        assert not any(hasattr(other, name) for name in ("classes_", "predict_proba", "decision_function"))


def test_classifiers_work_inside_stacks_and_votes():
    y, model = (Y > 0).astype(int), of_labels(lambda y, u: cp.logistic(u) - y * u)
    features = ColumnTransformer([("one", OneHotEncoder(), COLUMNS)], remainder="passthrough")
    pair = [("own", model), ("linear", make_pipeline(features, LogisticRegression()))]
    vote = ensemble.VotingClassifier(pair, voting="soft").fit(FRAME, y)
    own, linear = (clone(m).fit(FRAME, y).predict_proba(FRAME) for _, m in pair)
    assert np.allclose(vote.predict_proba(FRAME), (own + linear) / 2)
    assert ensemble.StackingClassifier(pair, cv=3).fit(FRAME, y).score(FRAME, y) > 0.8
    with pytest.warns(strat.DataWarning, match="as scikit-learn numbers the classes"):
        ensemble.VotingClassifier([("own", of_labels(strat.losses.hinge))]).fit(FRAME, 2 * y - 1)


@pytest.mark.parametrize("strata", [COLUMNS, [0, 2], [-4, -2]])
def test_strata_by_name_or_position_and_the_names_of_features(strata):
    expected = strat.lrsm(BASE, GRAPH).fit(X, Y, strata=Z)
    model = strat.lrsm(BASE, GRAPH, strata=strata).fit(FRAME, Y)
    named = strat.lrsm(BASE, GRAPH).fit(FRAME, Y, strata=COLUMNS)
    for other in (model, named):
        assert other.strata_ == expected.strata_
        assert np.array_equal(other.theta_["theta"], expected.theta_["theta"])
    assert np.allclose(model.predict(FRAME), expected.predict(X, strata=Z))
    assert np.isclose(model.score(FRAME, Y), named.score(FRAME, Y, strata=COLUMNS))
    assert model.n_features_in_ == 4 and list(model.feature_names_in_) == list(FRAME.columns)
    assert expected.n_features_in_ == 2 and not hasattr(expected, "feature_names_in_")
    with pytest.raises(strat.DataError, match=r"the columns \[4\] of X, but X has 4 columns"):
        clone(model).set_params(strata=4).fit(FRAME, Y)
    if strata is not COLUMNS:
        array = FRAME.to_numpy(dtype=object)
        assert np.array_equal(clone(model).fit(array, Y).predict(array), model.predict(FRAME))


@pytest.mark.parametrize("by", ["name", "position"])
def test_models_work_inside_ensembles_and_pipelines(by):
    model = strat.lrsm(BASE, GRAPH, strata=COLUMNS if by == "name" else [0, 2])
    features = ColumnTransformer([("one", OneHotEncoder(), COLUMNS)], remainder="passthrough")
    ridge = make_pipeline(features, Ridge())
    fitted, linear = clone(model).fit(FRAME, Y), clone(ridge).fit(FRAME, Y)
    vote = ensemble.VotingRegressor([("own", model), ("ridge", ridge)]).fit(FRAME, Y)
    assert np.allclose(vote.predict(FRAME), (fitted.predict(FRAME) + linear.predict(FRAME)) / 2)
    folds = KFold(3)
    stack = ensemble.StackingRegressor([("own", model), ("ridge", ridge)], cv=folds).fit(FRAME, Y)
    held = cross_val_predict(model, FRAME, Y, cv=folds)
    by_hand = [clone(model).fit(FRAME.iloc[a], Y[a]).predict(FRAME.iloc[b]) for a, b in folds.split(FRAME)]
    assert np.allclose(held, np.concatenate(by_hand)) and stack.score(FRAME, Y) > 0.5
    scale = ColumnTransformer([("scale", StandardScaler(), ["u", "v"])], remainder="passthrough")
    scale.set_output(transform="pandas").set_params(verbose_feature_names_out=False)
    strata = COLUMNS if by == "name" else [2, 3]
    piped = make_pipeline(scale, strat.lrsm(BASE, GRAPH, strata=strata)).fit(FRAME, Y)
    scaled = (FRAME[["u", "v"]] - FRAME[["u", "v"]].mean()) / FRAME[["u", "v"]].std(ddof=0)
    plain = strat.lrsm(BASE, GRAPH).fit(scaled, Y, strata=Z)
    assert np.allclose(piped.predict(FRAME), plain.predict(scaled, strata=Z))
    if by == "position":  # a bag has arrays
        bag = ensemble.BaggingRegressor(model, 3, random_state=0).fit(FRAME.to_numpy(dtype=object), Y)
        assert bag.score(FRAME.to_numpy(dtype=object), Y) > 0.5
