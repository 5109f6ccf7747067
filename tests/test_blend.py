"""strat.blend and rows of scikit-learn: predictions on the scale of the loss, weights, the guard."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from problems import linear
from scipy.optimize import nnls
from scipy.special import logit
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

import strat

RNG = np.random.default_rng(0)
N, K = 240, 4
Z = [(int(a), "FM"[b]) for a, b in RNG.integers(0, [K, 2], size=(N, 2))]
X = RNG.normal(size=(N, 2))
MEAN = X @ [1.0, -0.5] + np.array([0.5 * a for a, _ in Z]) + np.abs(X[:, 0])
Y = MEAN + RNG.normal(size=N)
SIGN = np.where(RNG.random(N) < 1 / (1 + np.exp(-MEAN)), 1.0, -1.0)
COUNT = RNG.poisson(np.exp(0.3 * MEAN)).astype(float)
GRAPH = strat.graphs.grid(K, ["F", "M"], name=("age", "sex"))
INSIDE, OUTSIDE = np.arange(160), np.arange(160, N)


def lrsm(loss, **options):
    return strat.lrsm(linear(loss, ridge=0.1, **options), GRAPH)


def parts(y):
    return [(X[rows], y[rows], [Z[i] for i in rows]) for rows in (INSIDE, OUTSIDE)]


def one_hot(rows):
    values = [[a == k for k in range(K)] + [s == "F", s == "M"] for a, s in (Z[i] for i in rows)]
    return np.hstack([X[rows], np.array(values, dtype=float)])


def ordinal(rows):
    return np.hstack([X[rows], [[a, s == "M"] for a, s in (Z[i] for i in rows)]])


def compared(loss, estimator, y, **options):
    train, test = parts(y)
    return strat.compare({"own": lrsm(loss, **options), "other": estimator}, train=train, test=test)


def squares(m, X, y):
    return mean_squared_error(y, m.predict(X))


def log_losses(m, X, y):
    return log_loss(y, m.predict_proba(X))


def poisson_losses(m, X, y):
    return np.mean(m.predict(X) - y * np.log(m.predict(X)))


FOREST, TREE = RandomForestRegressor(9, random_state=0), DecisionTreeRegressor(max_depth=3)
MEASURED = [
    (strat.losses.squared, Ridge(), one_hot, Y, squares),
    (strat.losses.squared, FOREST, ordinal, Y, squares),
    (strat.losses.absolute, TREE, ordinal, Y, lambda m, X, y: np.abs(y - m.predict(X)).mean()),
    (strat.losses.logistic, LogisticRegression(), one_hot, SIGN, log_losses),
    (lambda y, u: cp.logistic(u) - y * u, LogisticRegression(), one_hot, (SIGN + 1) / 2, log_losses),
    (strat.losses.poisson, PoissonRegressor(), one_hot, COUNT, poisson_losses),
    (strat.losses.hinge, LinearSVC(), one_hot, SIGN, lambda m, X, y: 2 * np.mean(m.predict(X) != y)),
]


@pytest.mark.parametrize(("loss", "estimator", "features", "y", "expected"), MEASURED)
def test_other_models_are_measured_by_the_loss(loss, estimator, features, y, expected):
    table = compared(loss, estimator, y)
    alone = estimator.fit(features(INSIDE), y[INSIDE])
    assert table.mean("other")[0] == pytest.approx(expected(alone, features(OUTSIDE), y[OUTSIDE]), rel=1e-6)
    assert table.runs[1]["status"] == "fitted" and np.isfinite(table.paired("own")["other"][0])


def test_a_probability_of_0_counts_as_one_among_the_training_records():
    table = compared(strat.losses.logistic, RandomForestClassifier(3, random_state=0), SIGN)
    forest = RandomForestClassifier(3, random_state=0).fit(ordinal(INSIDE), SIGN[INSIDE])
    p, n = forest.predict_proba(ordinal(OUTSIDE))[:, 1], len(INSIDE)
    p = np.where((p == 0) | (p == 1), (n * p + (SIGN[INSIDE] > 0).mean()) / (n + 1), p)
    assert np.isin([0, 1], forest.predict_proba(ordinal(OUTSIDE))).all()
    assert table.mean("other")[0] == pytest.approx(np.logaddexp(0, -SIGN[OUTSIDE] * logit(p)).mean())


def not_of_prediction(y, u):
    return cp.square(y - u) + 0.1 * cp.norm1(u.variables()[0])


REFUSED = [
    (strat.losses.logistic, LinearSVC(), SIGN, "with predict_proba, such as CalibratedClassifierCV"),
    (strat.losses.logistic, LinearRegression(), SIGN, "A loss of labels needs a classifier"),
    (strat.losses.poisson, DummyRegressor(strategy="constant", constant=-1.0), COUNT, "rates a model"),
    (strat.losses.squared, LogisticRegression(), Y, "must have two values, but it has 160"),
    (not_of_prediction, Ridge(), Y, "function of predict and the data, but"),
]


@pytest.mark.parametrize(("loss", "estimator", "y", "words"), REFUSED)
def test_predictions_without_a_meaning_are_refused(loss, estimator, y, words):
    assert words in compared(loss, estimator, y).runs[1]["error"]


def test_a_search_takes_other_models():
    train, _ = parts(Y)
    models = {"lrsm": lrsm(strat.losses.squared), "ridge": Ridge(), "tree": TREE}
    folds = strat.StrataKFold(3)
    found = strat.search(models, {"scale": [1.0]}, train=train, folds=folds)
    row = next(row for row in found.table if row["candidate"] == "ridge")
    pairs = folds.split(train[0], groups=train[2])
    losses = [(Y[b] - Ridge().fit(one_hot(a), Y[a]).predict(one_hot(b))) ** 2 for a, b in pairs]
    assert row["mean"] == pytest.approx(np.concatenate(losses).mean())
    assert len(found["tree"].losses(*train[:2], strata=train[2])) == 160


def test_a_blend_averages_margins_of_models_fitted_to_all_records():
    (x, y, z), (x_new, y_new, z_new) = parts(SIGN)
    model, other = lrsm(strat.losses.logistic), LogisticRegression()
    both = strat.blend(model, other, guard=False).fit(x, y, strata=z)
    margins = [model.fit(x, y, strata=z).predict(x_new, strata=z_new)]
    margins.append(other.fit(one_hot(INSIDE), y).decision_function(one_hot(OUTSIDE)))
    np.testing.assert_allclose(both.predict(x_new, strata=z_new), np.mean(margins, axis=0), atol=1e-6)
    expected = np.logaddexp(0, -y_new * np.mean(margins, axis=0))
    np.testing.assert_allclose(both.losses(x_new, y_new, strata=z_new), expected, atol=1e-6)
    assert both.score(x_new, y_new, strata=z_new) == pytest.approx(-expected.mean(), rel=1e-5)


def test_a_stack_has_the_weights_of_least_squares_of_at_least_0():
    train, (x_new, y_new, z_new) = parts(Y)
    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    models = lrsm(strat.losses.squared), tree, DummyRegressor(strategy="constant", constant=-9)
    folds = strat.StrataKFold(3)
    stack = strat.blend(*models, weights="stack", folds=folds).fit(*train[:2], strata=train[2])
    held, U = [], []
    for a, b in folds.split(train[0], groups=train[2]):
        labels = [train[2][i] for i in a], [train[2][i] for i in b]
        own = models[0].fit(train[0][a], train[1][a], strata=labels[0]).predict(train[0][b], strata=labels[1])
        U.append(np.c_[own, tree.fit(ordinal(a), Y[a]).predict(ordinal(b)), np.full(len(b), -9.0)])
        held.append(train[1][b])
    np.testing.assert_allclose(stack.weights_, nnls(np.concatenate(U), np.concatenate(held))[0], atol=1e-3)
    table = strat.compare({"lrsm": models[0], "tree": tree, "stack": stack}, train=train, test=parts(Y)[1])
    assert table.best() == "stack"


def test_a_blend_reads_strata_from_columns_and_is_a_row_of_a_search():
    (x, y, z), _ = parts(Y)
    frame = pd.DataFrame({"age": [a for a, _ in z], "u": x[:, 0], "sex": [s for _, s in z], "v": x[:, 1]})
    plain, declared = (lrsm(strat.losses.squared).set_params(strata=s) for s in (None, ["age", "sex"]))
    both = strat.blend(declared, TREE, folds=2, guard=False)
    expected = strat.blend(plain, TREE, folds=2, guard=False).fit(x, y, strata=z).predict(x, strata=z)
    np.testing.assert_allclose(both.fit(frame, y).predict(frame), expected, atol=1e-8)
    found = strat.search({"lrsm": declared, "blend": both}, {"scale": [1.0]}, train=(frame, y), folds=2)
    assert {"lrsm", "blend"} <= {row["candidate"] for row in found.table if row["error"] is None}


def test_the_guard_keeps_the_better_single_model():
    (x, y, z), _ = parts(Y)
    bad = DummyRegressor(strategy="constant", constant=50.0)
    kept = strat.blend(lrsm(strat.losses.squared), bad).fit(x, y, strata=z)
    assert kept.weights_.tolist() == [1.0, 0.0] and kept.losses_["blend"] > kept.losses_[0]
    free = strat.blend(lrsm(strat.losses.squared), bad, guard=False).fit(x, y, strata=z)
    assert free.weights_.tolist() == [0.5, 0.5]


def test_wrong_arguments_raise():
    own, ridge = lrsm(strat.losses.squared), Ridge()
    for arguments, weights, words in (
        ((ridge, ridge), "stack", "needs a StratifiedModel first, not a Ridge"),
        ((own,), "stack", "needs another model"),
        ((own, ridge), "best", "weights is 'best'"),
    ):
        with pytest.raises(strat.OptionError, match=words):
            strat.blend(*arguments, weights=weights)
