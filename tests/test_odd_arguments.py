"""Arguments that are nearly right: each is refused by name, or does what it says."""

import cvxpy as cp
import numpy as np
import pytest

import strat

theta, b = cp.Variable(2, name="theta"), cp.Variable(name="b")
x, y, lam = (
    cp.Parameter(2, name="x"),
    cp.Parameter(name="y"),
    cp.Parameter(nonneg=True, name="lam", value=0.3),
)
RNG = np.random.default_rng(0)
X, Y, Z = RNG.normal(size=(40, 2)), RNG.normal(size=40), np.arange(40) % 4
PATH = strat.graphs.path(4)


def declared(regularizer=None, **options):
    regularizer = lam * cp.sum_squares(theta) if regularizer is None else regularizer
    return strat.BaseModel(cp.square(y - x @ theta - b), regularizer, data=(x, y), **options)


BASE = declared()


@pytest.mark.parametrize("value", ["a", np.ones(3), np.nan])
def test_values_of_hyperparameters_are_numbers_of_their_shape(value):
    with pytest.raises(strat.OptionError, match="base__lam must be"):
        strat.lrsm(BASE, PATH).set_params(base__lam=value)
    assert lam.value == 0.3


def test_hyperparameters_of_one_name_are_refused():
    other = cp.Parameter(nonneg=True, name="lam", value=1.0)
    for options in ({"regularizer": lam * cp.norm1(theta) + other * cp.abs(b)}, {"couple": {b: other}}):
        with pytest.raises(strat.DeclarationError, match="two hyperparameters have the name 'lam'"):
            declared(**options)


def test_couple_is_a_dict_or_a_tuple():
    with pytest.raises(strat.DeclarationError, match="couple must be a dict"):
        declared(couple=2.0)


@pytest.mark.parametrize("option", [{"solver": strat.ADMM}, {"graph_regularizer": strat.LogDet}])
def test_classes_are_no_objects(option):
    with pytest.raises(strat.OptionError, match="must be an object such as"):
        strat.StratifiedModel(BASE, PATH, **option).fit(X, Y, strata=Z)


def test_a_checkpoint_in_no_folder_is_refused_before_the_fit(tmp_path):
    solver = strat.NewtonCG(checkpoint=tmp_path / "none" / "fit.npz", max_iter=0)
    with pytest.raises(strat.OptionError, match="a folder that does not exist"):
        strat.lrsm(BASE, PATH, solver=solver).fit(X, Y, strata=Z)


def test_init_may_give_some_variables_only():
    model = strat.lrsm(BASE, PATH, solver=strat.NewtonCG(max_iter=0))
    with pytest.warns(strat.ConvergenceWarning):
        model.fit(X, Y, strata=Z, init={"theta": {"b": np.arange(4.0)}})
    assert np.array_equal(model.theta_["b"], np.arange(4.0)) and not model.theta_["theta"].any()


def test_random_splits_need_a_seed():
    with pytest.raises(strat.OptionError, match="random_state must be a whole number"):
        strat.compare({"lrsm": strat.lrsm(BASE, PATH)}, data=(X, Y, Z), random_state=None)


def test_a_search_says_that_the_pooled_model_is_left_out(monkeypatch):
    for module in (strat.searching, strat.contenders):
        monkeypatch.setattr(module, "MOST_POOLED", 3)
    found = strat.search(strat.lrsm(BASE, PATH), {"scale": [1.0]}, train=(X, Y, Z), folds=2)
    assert "pooled" not in {row["candidate"] for row in found.table}
    assert any("the pooled model is left out: its complete graph of 4 strata" in note for note in found.notes)
    assert "the pooled model is left out" in str(found)
