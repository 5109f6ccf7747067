"""Bad records, hyperparameters and points: the error, and what it says of the record and the way out."""

import re
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import strat
from strat import DataError, DeclarationError, NotConvexError, OptionError, ShapeError
from strat.records.labels import as_frame

theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
p, lam = cp.Variable(name="p"), cp.Variable(name="rate")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
r = y - x @ theta - b
X, Y = np.arange(12.0).reshape(4, 3), np.array([1.0, -1.0, 1.0, -1.0])
LOGISTIC = cp.logistic(-y * (x @ theta + b))


def bind(loss, *arrays, data=(x, y), **options):
    return strat.compile(loss, data=data).bind(*arrays, **options)


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


FRAME = pd.DataFrame(X, columns=["u", "v", "w"])
ORACLE = bind(cp.square(r), X, Y, strata=["a", "a", "b", "b"])
GOOD, LAZY = {"theta": np.zeros((2, 3)), "b": np.zeros(2)}, SimpleNamespace(collect_schema=None)


def read(*arrays, **options):
    return lambda: bind(LOGISTIC, *arrays, **options)


def at(point):
    return lambda: ORACLE.value(point)


def weigh(*weights):
    return read(X, Y, sample_weight=weights)


def of_objects(*values):
    return read(X, np.array(values, dtype=object))


#: What errors say, and what they say it of: records, weights, points and steps.
REFUSED = {
    ShapeError: {
        r"x was declared with shape \(3,\).* have shape \(N, 3\).* shape \(4, 2\)": read(X[:, :2], Y),
        "y has 3 records, but x has 4": read(X, Y[:3]),
        r"x was declared .* has shape \(3,\). If it is one record, pass x\[None\]": read(X[0] - 0.5, Y),
        r"y was declared with shape \(\).* has shape \(4, 2\)": read(X, np.ones((4, 2))),
        r"y was declared with shape \(\).* has shape \(1, 4\)": read(X, np.ones((1, 4))),
        r"y was declared with shape \(\).* has shape \(4, 1, 1\)": read(X, np.ones((4, 1, 1))),
        r"y was declared with shape \(\).* has shape \(\). If it is one record, pass \[y\]": read(X, 1.0),
        r"x was declared .* has shape \(4, 3, 1, 1\)": read(X[..., None, None], Y),
        "x is ragged": read([[1, 2, 3], [1, 2]], [1, 2]),
        r"the matrix has shape \(4, 2\)": read(sp.csr_array(X[:, :2]), Y),
        r"sample_weight has shape \(3,\), but .* the 4 records": weigh(1, 1, 1),
        r"sample_weight has shape \(1, 4\), but it must hold one number for each of": weigh([1, 1, 1, 1]),
        "sample_weight is ragged": weigh([1], [1, 2], [1], [1]),
        r"there are 2 variables \(theta, b\); give a dict": at(np.zeros((2, 3))),
        "no value was given for the variable 'b'": at({"theta": np.zeros((2, 3))}),
        r"\['b'\] has shape \(2, 1\), but the variable has shape \(\)": at(GOOD | {"b": np.zeros((2, 1))}),
        "expected": at(GOOD | {"b": np.zeros(3)}),
        r"theta\['theta'\] has shape \(3,\)": at(GOOD | {"theta": np.zeros(3)}),
        "theta has 3 strata .* bound to 2": at({"theta": np.zeros((3, 3)), "b": np.zeros(3)}),
        r"t has shape \(3,\); give one number, or 2: one per stratum": lambda: ORACLE.prox(GOOD, np.ones(3)),
    },
    DataError: {
        r"needs 2 data arguments \(x, y\), but 1 was given": read(X),
        r"needs 2 data arguments \(x, y\), but 3 were given": read(X, Y, Y),
        r"needs 2 data arguments \(x, y\), but 0 were given": read(),
        "x holds None": read(None, Y),
        r"a SimpleNamespace has not been computed. .* collect\(\)": lambda: as_frame(LAZY),
        "y holds None in record 1": read(X, [1.0, None, 1.0, 1.0]),
        "y holds .*'a'.* in record 0; records must be real numbers": read(X, ["a", "b", "a", "b"]),
        "y holds 'b' in record 1": of_objects(1.0, "b", 1.0, 1.0),
        "y holds .*j.* in record 0; records must be real numbers": read(X, Y + 1j),
        "y holds 1j in record 1": of_objects(1, 1j, 1, 1),
        "y holds {} in record 0": of_objects({}, {}, {}, {}),
        "y holds {} in record 2; records must be real numbers": read(X, [1.0, 2.0, {}, 1.0]),
        "y holds .*2020": read(X, np.array(["2020-01-01"] * 4, dtype="datetime64[D]")),
        "x has NaN in column 1 of record 1": read(np.where(X == 4, np.nan, X), Y),
        r"x has NaN in column 1 of record 1\.": read(sp.csr_array(np.where(X == 4, np.nan, X)), Y),
        r"x has NaN in column 2 of record 1 \(3 records are affected\)": read(np.where(X > 4, np.nan, X), Y),
        "x has NaN in column 'v' of record 1": read(FRAME.replace(4.0, np.nan), Y),
        r"x has NaN in column 'v' of record 1\.": read(FRAME.astype("Float64").replace(4.0, pd.NA), Y),
        "x has an infinite value in column 2 of record 1": read(np.where(X == 5, np.inf, X), Y),
        "y has NaN in record 1": read(X, [1.0, np.nan, 1.0, 1.0]),
        "x holds complex128": read(sp.csr_array(X * 1j), Y),
        "x holds 'a' in record 0": read(pd.DataFrame({"u": ["a"] * 4, "v": Y, "w": Y}), Y),
        "no records": read(np.zeros((0, 3)), np.zeros(0)),
        "all weights in sample_weight are zero": weigh(0, 0, 0, 0),
        "sample_weight is -1 in record 1; weights must be at least 0": weigh(1, -1, 1, 1),
        "sample_weight has NaN in record 1": weigh(1, np.nan, 1, 1),
        "sample_weight has NaN in record 0": weigh(np.nan, 0, 1, 1),
        "sample_weight holds 'a'": weigh("a", "a", "a", "a"),
        "sample_weight holds None in record 1": weigh(1, None, 1, 1),
        r"theta\['b'\] holds something that is no real number": at(GOOD | {"b": ["u", "v"]}),
        r"theta\['b'\] holds something": at(GOOD | {"b": np.zeros(2) + 1j}),
        r"theta\['b'\] holds NaN": at(GOOD | {"b": [np.nan, 0.0]}),
    },
    OptionError: {
        "'c' is not a variable of the model; its variables are theta, b": at(GOOD | {"c": 1.0}),
        **{
            re.escape(f"t must be positive and finite, but it is {t}"): lambda t=t: ORACLE.prox(GOOD, t)
            for t in (0.0, -1.0, np.nan, np.inf, np.array([1.0, 0.0]), "long")
        },
    },
}
ROWS = [(error, text, call) for error, rows in REFUSED.items() for text, call in rows.items()]


@pytest.mark.parametrize(("error", "text", "call"), ROWS, ids=[text for _, text, _ in ROWS])
@pytest.mark.filterwarnings("error")
def test_what_does_not_fit_the_declaration(error, text, call):
    with pytest.raises(error, match=text):
        call()


def test_frames_series_lists_integers_and_columns_for_numbers_are_read_by_position():
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
        *((X, column) for column in (Y[:, None], pd.DataFrame({"y": Y}), sp.csr_array(Y[:, None]))),
    ):
        np.testing.assert_array_equal(bind(cp.square(r), *arrays).value(point), expected)


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
