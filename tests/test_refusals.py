"""Bad records, hyperparameters and points: the error, and what it says of the record and the way out."""

import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import strat
from strat import DataError, DeclarationError, NotConvexError, OptionError, ShapeError

theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
p, lam = cp.Variable(name="p"), cp.Variable(name="rate")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
r = y - x @ theta - b
X, Y = np.arange(12.0).reshape(4, 3), np.array([1.0, -1.0, 1.0, -1.0])
LOGISTIC = cp.logistic(-y * (x @ theta + b))


def bind(loss, *arrays, data=(x, y), **options):
    return strat.compile(loss, data=data).bind(*arrays, **options)


# Signs of data and hyperparameters


BERNOULLI = -y * cp.log(p) - (1 - y) * cp.log(1 - p)


def test_labels_out_of_range_name_record_and_stratum():
    for values in ([0.0, 0.25, 0.5, 1.0], [1, 1, 1, 1], [True, False] * 2):
        bind(BERNOULLI, values, data=(y,))
    bind(BERNOULLI, [0.0, 1.0, 2.0], data=(y,), sample_weight=[1, 1, 0])
    for loss in (lam - y * cp.log(lam), cp.kl_div(y, lam)):
        with pytest.raises(DataError, match=r"record 1 \(stratum 'b'\) has y = -3"):
            bind(loss, [1.0, -3.0], data=(y,), strata=["a", "b"])
    with pytest.raises(DataError, match=r"1 - y >= 0, but record 2 \(stratum 'CA'\) has y = 2.*\[0, 1\]"):
        bind(BERNOULLI, [0.0, 1.0, 2.0, 1.0], data=(y,), strata=["NY", "NY", "CA", "NY"])
    with pytest.raises(DataError, match=r"record 1 \(stratum \('CA', 2012\)\) has y = -1 \(2 records"):
        bind(BERNOULLI, [0.0, -1.0, -2.0], data=(y,), strata=[("NY", 2012), ("CA", 2012), ("NY", 2012)])


def test_data_outside_the_domain_of_their_own_functions():
    with pytest.raises(DataError, match=r"log\(y\) is undefined .*: record 1 \(stratum 'b'\) has y = -1"):
        bind(cp.square(b - cp.log(y)), [1.0, -1.0], data=(y,), strata=["a", "b"])
    with pytest.raises(DataError, match=r"record 0 .*has y = 0"):
        bind(cp.square(b - 1 / y), [0.0, 1.0], data=(y,))
    with pytest.raises(DataError, match=r"sqrt|power"):
        bind(cp.square(b) * cp.sqrt(y), [0.0, -1.0], data=(y,))


def test_signs_of_hyperparameters():
    gamma = cp.Parameter(name="gamma")
    program = strat.compile(gamma * cp.norm1(theta))
    gamma.value = -2.0
    with pytest.raises(NotConvexError, match="only where gamma >= 0, but gamma = -2"):
        program.bind()
    gamma.value = 2.0
    program.bind()
    ratio = cp.Parameter(name="ratio", value=1.5)
    net = strat.compile(ratio * cp.norm1(theta) + (1 - ratio) * cp.sum_squares(theta))
    with pytest.raises(NotConvexError, match=r"only where 1 - ratio >= 0, but ratio = 1.5"):
        net.bind()
    ratio.value = 0.5
    net.bind()


def test_quadratic_forms_of_data_must_be_semidefinite():
    V = cp.Parameter((3, 3), symmetric=True, name="V")
    program = strat.compile(cp.quad_form(theta, V), data=(V,))
    program.bind(np.stack([np.eye(3), np.ones((3, 3))]))
    with pytest.raises(DataError, match=r"V is positive semidefinite, but record 1"):
        program.bind(np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0])]))


def test_hyperparameters_without_a_value():
    gamma = cp.Parameter(nonneg=True, name="gamma")
    with pytest.raises(DeclarationError, match=r"the Parameter gamma in the loss has no value and is not"):
        bind(gamma * cp.square(r), X, Y)
    with pytest.raises(DeclarationError, match="Set gamma.value"):
        strat.compile(gamma * cp.norm1(theta)).bind()


# Shapes of records


FRAME = pd.DataFrame(X, columns=["u", "v", "w"])
ARRAYS = [
    (
        (X[:, :2], Y),
        ShapeError,
        r"x was declared with shape \(3,\).* must have shape \(N, 3\).* has shape \(4, 2\)",
    ),
    ((X, Y[:3]), ShapeError, "y has 3 records, but x has 4"),
    ((X[0], Y), ShapeError, r"x was declared .* has shape \(3,\)"),
    ((X, np.ones((4, 2))), ShapeError, r"y was declared with shape \(\).* has shape \(4, 2\)"),
    ((X, np.ones((1, 4))), ShapeError, r"y was declared with shape \(\).* has shape \(1, 4\)"),
    ((X, np.ones((4, 1, 1))), ShapeError, r"y was declared"),
    ((X, 1.0), ShapeError, r"y was declared with shape \(\)"),
    ((X[..., None, None], Y), ShapeError, "x was declared"),
    (([[1, 2, 3], [1, 2]], [1, 2]), ShapeError, "x is ragged"),
    ((sp.csr_array(X[:, :2]), Y), ShapeError, r"the matrix has shape \(4, 2\)"),
    ((X,), DataError, r"needs 2 data arguments \(x, y\), but 1 was given"),
    ((X, Y, Y), DataError, r"needs 2 data arguments \(x, y\), but 3 were given"),
    ((), DataError, r"needs 2 data arguments \(x, y\), but 0 were given"),
    ((None, Y), DataError, "x holds None"),
    ((X, [1.0, None, 1.0, 1.0]), DataError, "y holds None in record 1"),
    ((X, ["a", "b", "a", "b"]), DataError, "y holds .*'a'.* in record 0; records must be real numbers"),
    ((X, np.array([1.0, "b", 1.0, 1.0], dtype=object)), DataError, "y holds 'b' in record 1"),
    ((X, Y + 1j), DataError, "y holds .* in record 0; records must be real numbers"),
    ((X, np.array([1, 1j, 1, 1], dtype=object)), DataError, "y holds 1j in record 1"),
    ((X, np.array([{}] * 4, dtype=object)), DataError, "y holds .* no numbers|y holds {}"),
    ((X, np.array(["2020-01-01"] * 4, dtype="datetime64[D]")), DataError, "y holds .*2020"),
    ((np.where(X == 4, np.nan, X), Y), DataError, "x has NaN in column 1 of record 1"),
    ((np.where(X == 5, np.inf, X), Y), DataError, "x has an infinite value in column 2 of record 1"),
    (
        (np.where(X > 4, np.nan, X), Y),
        DataError,
        r"x has NaN in column 2 of record 1 \(3 records are affected\)",
    ),
    ((X, [1.0, np.nan, 1.0, 1.0]), DataError, "y has NaN in record 1"),
    ((sp.csr_array(np.where(X == 4, np.nan, X)), Y), DataError, "x has NaN in column 1 of record 1"),
    ((sp.csr_array(X * 1j), Y), DataError, "x holds complex128"),
    ((FRAME.replace(4.0, np.nan), Y), DataError, "x has NaN in column 'v' of record 1"),
    (
        (FRAME.astype("Float64").replace(4.0, pd.NA), Y),
        DataError,
        "x has NaN in column 'v' of record 1",
    ),
    ((X, [1.0, 2.0, {}, 1.0]), DataError, "y holds {} in record 2; records must be real numbers"),
    ((pd.DataFrame({"u": ["a"] * 4, "v": Y, "w": Y}), Y), DataError, "x holds 'a' in record 0"),
    ((np.zeros((0, 3)), np.zeros(0)), DataError, "no records"),
]


@pytest.mark.parametrize(("arrays", "kind", "text"), ARRAYS)
def test_records(arrays, kind, text):
    with pytest.raises(kind, match=text):
        bind(LOGISTIC, *arrays)


def test_a_column_for_a_number_is_squeezed_once():
    one, other = bind(cp.square(r), X, Y[:, None]), bind(cp.square(r), X, Y)
    point = {"theta": np.ones((1, 3)), "b": np.zeros(1)}
    np.testing.assert_array_equal(one.value(point), other.value(point))
    assert np.array_equal(bind(cp.square(r), X, pd.DataFrame({"y": Y})).value(point), other.value(point))
    assert np.array_equal(bind(cp.square(r), X, sp.csr_array(Y[:, None])).value(point), other.value(point))


def test_frames_series_lists_and_integers_are_read_by_position():
    point = {"theta": np.ones((1, 3)), "b": np.zeros(1)}
    expected = bind(cp.square(r), X, Y).value(point)
    frame = pd.DataFrame(X, index=[3, 1, 0, 2], columns=list("cab"))
    for arrays in (
        (frame, pd.Series(Y, index=[9, 8, 7, 6])),
        (X.tolist(), Y.tolist()),
        (X.astype(int), Y.astype(np.int8)),
        (np.asfortranarray(X), Y[::-1][::-1]),
        (X.astype(object), Y.astype(object)),
        (frame.astype("Int64"), pd.Series(Y, dtype="Float64")),
    ):
        np.testing.assert_array_equal(bind(cp.square(r), *arrays).value(point), expected)


WEIGHTS = [
    ([0, 0, 0, 0], DataError, "all weights in sample_weight are zero"),
    ([1, -1, 1, 1], DataError, "sample_weight is -1 in record 1; weights must be at least 0"),
    ([1, np.nan, 1, 1], DataError, "sample_weight has NaN"),
    ([np.nan, 0, 1, 1], DataError, "sample_weight has NaN"),
    ([1, 1, 1], ShapeError, r"sample_weight has shape \(3,\), but .* the 4 records"),
    (
        [[1, 1, 1, 1]],
        ShapeError,
        r"sample_weight has shape \(1, 4\), but it must hold one number for each of",
    ),
    ([[1], [1, 2], [1], [1]], ShapeError, "sample_weight is ragged"),
    (["a"] * 4, DataError, "sample_weight holds"),
    ([1, None, 1, 1], DataError, "sample_weight holds None in record 1"),
]


@pytest.mark.parametrize(("weight", "kind", "text"), WEIGHTS)
def test_weights(weight, kind, text):
    with pytest.raises(kind, match=text):
        bind(LOGISTIC, X, Y, sample_weight=weight)


# Parameters of oracles


ORACLE = bind(cp.square(r), X, Y, strata=["a", "a", "b", "b"])
GOOD = {"theta": np.zeros((2, 3)), "b": np.zeros(2)}


POINTS = [
    (np.zeros((2, 3)), ShapeError, r"there are 2 variables \(theta, b\); give a dict"),
    ({"theta": np.zeros((2, 3))}, ShapeError, "no value was given for the variable 'b'"),
    (GOOD | {"c": 1.0}, OptionError, "'c' is not a variable of the model; its variables are theta, b"),
    (
        GOOD | {"b": np.zeros((2, 1))},
        ShapeError,
        r"theta\['b'\] has shape \(2, 1\), but the variable has shape \(\)",
    ),
    (GOOD | {"b": np.zeros(3)}, ShapeError, "expected"),
    (GOOD | {"theta": np.zeros(3)}, ShapeError, r"theta\['theta'\] has shape \(3,\)"),
    ({"theta": np.zeros((3, 3)), "b": np.zeros(3)}, ShapeError, "theta has 3 strata .* bound to 2"),
    (GOOD | {"b": ["u", "v"]}, DataError, "b"),
    (GOOD | {"b": np.zeros(2) + 1j}, DataError, "b"),
    (GOOD | {"b": [np.nan, 0.0]}, DataError, "b"),
]


@pytest.mark.parametrize(("point", "kind", "text"), POINTS)
def test_parameters_of_oracles(point, kind, text):
    with pytest.raises(kind, match=text), warnings.catch_warnings():
        warnings.simplefilter("error")
        ORACLE.value(point)


@pytest.mark.parametrize("t", [0.0, -1.0, np.nan, np.inf, np.array([1.0, 0.0])])
def test_steps_must_be_positive(t):
    with pytest.raises(OptionError, match="t must be positive and finite"):
        ORACLE.prox(GOOD, t)


def test_steps_have_one_number_a_stratum():
    with pytest.raises(ShapeError, match=r"t has shape \(3,\); give one number, or 2: one per stratum"):
        ORACLE.prox(GOOD, np.ones(3))
    with pytest.raises((ShapeError, OptionError), match="t "):
        ORACLE.prox(GOOD, "long")


@pytest.mark.parametrize(
    ("attribute", "bad", "words"),
    [
        ("nonneg", -1.0, "at least 0"),
        ("nonpos", 1.0, "at most 0"),
        ("boolean", 0.5, "0 or 1"),
        ("integer", 0.5, "whole numbers"),
    ],
)
def test_records_keep_what_their_parameter_was_declared_to_be(attribute, bad, words):
    n = cp.Parameter(name="n", **{attribute: True})
    program = strat.compile(cp.square(n - b), data=(n,))
    assert program.bind([0.0, 0.0]).value(np.zeros(1)) == 0
    with pytest.raises(DataError, match=f"n was declared {attribute}=True.* {words}, .*record 1 has {bad:g}"):
        program.bind([0.0, bad])
