"""Coefficients as a table, with the names of features."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import strat
from strat import graphs, plot

RNG = np.random.default_rng(2)
FRAME = pd.DataFrame(RNG.standard_normal((24, 2)), columns=["rooms", "age"])
Y = RNG.standard_normal(24)
GRAPH = graphs.grid(["N", "S"], 3, name=("side", "floor"))
Z = list(GRAPH) * 4


def fitted(loss, theta, graph=GRAPH, X=FRAME, z=Z):
    base = strat.BaseModel(loss, 0.1 * sum(map(cp.sum_squares, theta)), data=(X_, Y_))
    return strat.lrsm(base, graph).fit(X, Y, strata=z)


X_, Y_ = cp.Parameter(2, name="x"), cp.Parameter(name="y")
T, B, M, G = (cp.Variable(s, name=n) for s, n in ((2, "theta"), ((), "b"), ((2, 2), "M"), (2, "gamma")))


def test_columns_are_features_and_rows_strata():
    model = fitted(cp.square(Y_ - X_ @ T - B), (T, B))
    table = model.coefficients()
    assert list(table.columns) == ["rooms", "age", "b"] and table.index.names == ["side", "floor"]
    assert np.array_equal(table.loc[("S", 1), ["rooms", "age"]], model.at(("S", 1))["theta"])
    errors = strat.standard_errors(model, dispersion=2.0)
    both = model.coefficients(errors)
    assert both["estimate"].equals(table) and np.array_equal(both["standard error"]["b"], errors["b"])
    ax = plot.parameters(model, index="age")
    assert ax.get_title() == "theta[age] by side and floor"
    assert np.array_equal(ax.images[0].get_array().ravel(), model.theta_["theta"][:, 1])
    with pytest.raises(strat.OptionError, match="index='ages' is not an entry of theta"):
        plot.parameters(model, index="ages")


@pytest.mark.parametrize(
    ("prediction", "variables", "X", "names"),
    [
        (T @ X_, (T,), FRAME, ["rooms", "age"]),
        (cp.sum(cp.multiply(X_, T)), (T,), FRAME, ["rooms", "age"]),
        (X_ @ T, (T,), FRAME.to_numpy(), ["theta[0]", "theta[1]"]),
        (X_ @ T + X_ @ G, (T, G), FRAME, ["theta[rooms]", "theta[age]", "gamma[rooms]", "gamma[age]"]),
        (cp.sum(M @ X_), (M,), FRAME, ["M[0, rooms]", "M[0, age]", "M[1, rooms]", "M[1, age]"]),
        (cp.sum(X_ @ M + G), (M, G), FRAME, ["M[rooms, 0]", "M[rooms, 1]", "M[age, 0]", "M[age, 1]", "gamma[0]", "gamma[1]"]),
    ],
)  # fmt: skip
def test_names_belong_to_what_multiplies_the_features(prediction, variables, X, names):
    model = fitted(cp.square(Y_ - prediction), variables, graphs.path(["a", "b"]), X, ["a", "b"] * 12)
    table = model.coefficients()
    assert list(table.columns) == names and list(table.index) == ["a", "b"]
    assert np.array_equal(table.to_numpy()[0], np.concatenate([np.ravel(v) for v in model.at("a").values()]))
