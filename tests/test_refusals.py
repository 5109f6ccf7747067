"""Wrong declarations as people write them: refused by name, with the reason and what to write instead."""

import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize
from cvxpy.transforms.suppfunc import SuppFunc

import strat
from strat import (
    BaseModel,
    DataError,
    DeclarationError,
    NotConvexError,
    NotPerRecordError,
    ShapeError,
    compile,
)

theta, b, W = cp.Variable(3, name="theta"), cp.Variable(name="b"), cp.Variable((3, 2), name="W")
S, s = cp.Variable((3, 3), symmetric=True, name="S"), cp.Variable(pos=True, name="s")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
column = cp.Parameter((3, 1), name="column")
r = y - x @ theta - b
one = cp.hstack([r])


def model(loss=None, data=(x, y), **options):
    return BaseModel(cp.square(r) if loss is None else loss, data=data, **options)


OVER_RECORDS = {
    "sum of the largest entries": [
        cp.cvar(one, 0.9),
        cp.sum_largest(cp.square(one), 3) / 3,
        -cp.sum_smallest(one, 1),
    ],
    "maximum": [cp.max(cp.abs(r)), cp.norm_inf(r), 2 * cp.max(cp.square(r)) + cp.norm1(theta), cp.ptp(one)],
    "log-sum-exp": [
        cp.log_sum_exp(cp.square(r)),
        cp.sum(cp.log_sum_exp(cp.reshape(r, (1, 1), order="C"), axis=1)),
    ],
    "variance or standard deviation": [cp.var(one), cp.std(one)],
    "running total or maximum": [cp.sum(cp.cummax(one))],
    "geometric mean": [-cp.geo_mean(one)],
    "weighted sum of sorted entries": [cp.dotsort(one, np.array([1.0]))],
    "harmonic or other mean": [-cp.harmonic_mean(one), -cp.pnorm(one, 0.5)],
}


def test_functions_of_functions_name_what_to_write_instead():
    v = cp.Variable(3)
    support = SuppFunc(v, [cp.norm(v) <= 1])
    partial = partial_optimize(cp.Problem(cp.Minimize(cp.norm1(theta - v))), opt_vars=[v])
    for regularizer, way in (
        (cp.perspective(cp.square(b), s), r"cp\.quad_over_lin\(u, s\) for squares"),
        (support(theta), r"Write the support function itself"),
        (partial, r"Declare the variables that partial_optimize minimises over"),
    ):
        with pytest.raises(strat.NoOracleError, match=f"there is no rule for the atom .*{way}"):
            model(regularizer=regularizer)


@pytest.mark.parametrize("word", OVER_RECORDS)
def test_functions_of_all_records_are_refused(word):
    for loss in OVER_RECORDS[word]:
        with pytest.raises(
            NotPerRecordError, match=rf"takes the {word} of one number.* ONE record .*cp\.huber"
        ):
            model(loss)


L = np.diag([1.0, -1.0, 1.0])
NOT_CONVEX = [
    (cp.log(1 + cp.exp(-r)), r"log\(1 \+ exp\(.*cp\.logistic"),
    (-cp.log(1 / (1 + cp.exp(-r))), r"1 / \(1 \+ exp\(.*a logistic loss is cp\.logistic"),
    (cp.log(cp.sum(cp.exp(x @ W))) + b * y, r"cp\.log_sum_exp\(z\) for log\(sum\(exp"),
    (r * r, r"cp\.square\(u\) for u \* u"),
    (cp.square(y - x @ W @ W.T @ theta), r"A product of two expressions of the variables"),
    (1 / s + y * s + x @ theta, r"cp\.inv_pos"),
    (cp.sqrt(cp.sum_squares(x - theta)) + y * b, r"cp\.norm\(u, 2\)"),
    (cp.square(cp.abs(r) - 0.1), r"cp\.square\(cp\.pos\(u\)\)"),
    (cp.minimum(cp.square(r), 1), r"minimum\(.*smaller of convex functions.*cp\.huber"),
    (1 - cp.exp(-cp.square(r)), r"exp\(-.*convex where its arguments are"),
    (cp.abs(cp.square(r) - 1), r"Absolute values and norms are convex where"),
    (cp.norm(cp.hstack([cp.square(r) - 1, b])), r"Absolute values and norms are convex where"),
    (-cp.log(cp.square(r)), r"A logarithm is concave"),
    (cp.ceil(r), r"ceil\(.*quasiconvex"),
    (cp.sign(r), r"sign\(.*quasiconvex"),
    (cp.length(theta) + cp.square(r), r"length\(.*quasiconvex"),
    (cp.norm(theta) / s + cp.square(r), r"cp\.quad_over_lin"),
    (cp.prod(x - theta) + y * b, r"Prod\(.*table of rules"),
    (cp.square(r) + cp.quad_form(theta, L), r"it has the eigenvalue -1.*psd_wrap"),
    (cp.square(r) + cp.quad_form(theta, cp.psd_wrap(L)), r"psd_wrap\(.*it has the eigenvalue -1"),
    (-cp.square(r), "is concave.*a loss is minimised"),
]


@pytest.mark.parametrize(("loss", "text"), NOT_CONVEX, ids=range(len(NOT_CONVEX)))
def test_what_is_not_convex_has_a_replacement(loss, text):
    with pytest.raises(NotConvexError, match=rf"(?s)not convex.*{text}"):
        model(loss)


def test_a_large_matrix_that_rounding_makes_indefinite_is_wrapped():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 30))
    gram = A @ A.T  # rank 30, with eigenvalues of -1e-14
    assert np.linalg.eigvalsh(gram)[0] < 0
    compile(cp.quad_form(cp.Variable(40, name="u"), cp.psd_wrap(gram))).bind()


P = cp.Parameter
WRONG = {
    "Minimize": (lambda: model(cp.Minimize(cp.square(r))), DeclarationError, "it is a Minimize"),
    "Problem": (lambda: model(cp.Problem(cp.Minimize(cp.square(r)))), DeclarationError, "it is a Problem"),
    "function": (lambda: model(lambda x, y: 0), DeclarationError, "it is a function"),
    "atom": (lambda: model(cp.square), DeclarationError, "must be a CVXPY expression"),
    "list": (lambda: model([cp.square(r)]), DeclarationError, "it is a list"),
    "constraint": (lambda: model(theta >= 0), DeclarationError, "it is an Inequality"),
    "np.dot": (
        lambda: model(np.dot(np.ones(3), theta)),
        DeclarationError,
        "array of CVXPY expressions.*np.dot",
    ),
    "np.array": (lambda: model(np.array([cp.square(r), b])), DeclarationError, r"cp\.sum"),
    "np.array of one": (
        lambda: model(np.array(cp.square(r))),
        DeclarationError,
        "array of CVXPY expressions",
    ),
    "Series": (lambda: model(pd.Series([1.0, 2, 3]) - theta), DeclarationError, "operation with a Series"),
    "number": (lambda: model(3.0), DeclarationError, "no variable in it"),
    "NaN": (lambda: model(cp.square(r) + np.nan), DeclarationError, "the loss holds NaN"),
    "infinite weight": (
        lambda: model(regularizer=np.inf * cp.norm1(theta)),
        DeclarationError,
        "the regularizer holds an infinite number",
    ),
    "NaN regularizer": (lambda: model(regularizer=np.nan), DeclarationError, "the regularizer holds NaN"),
    "list of regularizers": (lambda: model(regularizer=[cp.norm1(theta)]), DeclarationError, "it is a list"),
    "vector": (lambda: model(cp.square(x - theta) * y), ShapeError, r"must be a scalar.*cp\.sum"),
    "vector regularizer": (lambda: model(regularizer=cp.abs(theta)), ShapeError, r"the regularizer.*cp\.sum"),
    "sum": (lambda: model(cp.sum_squares(theta - column), (column,)), ShapeError, r"\(3,\) and \(3, 1\)"),
    "product": (lambda: model(cp.sum(cp.abs(cp.multiply(theta, column))), (column,)), ShapeError, r"cp\.vec"),
    "quotient": (
        lambda: model(cp.sum(cp.abs(theta / column)), (column,)),
        ShapeError,
        r"\(3,\) and \(3, 1\)",
    ),
    "maximum": (
        lambda: model(cp.sum(cp.maximum(theta, column)), (column,)),
        ShapeError,
        r"\(3,\) and \(3, 1\)",
    ),
    "data: array": (lambda: model(data=(np.ones(3), y)), DeclarationError, "an ndarray"),
    "data: expression": (lambda: model(data=(2 * x, y)), DeclarationError, "data must hold cp.Parameter"),
    "data: text": (lambda: model(data="x"), DeclarationError, "data must hold cp.Parameter"),
    "data: None": (lambda: model(data=None), DeclarationError, "data must hold cp.Parameter"),
    "data: unused": (lambda: model(data=(x, y, P(name="w"))), DeclarationError, "w is used neither"),
    "data: one name": (
        lambda: model(cp.square(y - P(name="y") * b), (y, P(name="y"))),
        DeclarationError,
        "names the Parameter y twice",
    ),
    "a hyperparameter of a data name": (
        lambda: model(regularizer=P(nonneg=True, name="y") * cp.norm1(theta)),
        DeclarationError,
        "hyperparameter has the name 'y' of a data Parameter",
    ),
    "integer entries": (
        lambda: model(cp.sum_squares(x - cp.Variable(3, integer=[(0,)], name="n")), (x,)),
        DeclarationError,
        "'n' is declared integer",
    ),
    "integer in a constraint": (
        lambda: model(constraints=[cp.Variable(integer=True, name="n") >= b]),
        DeclarationError,
        "'n' is declared integer",
    ),
    "one name in a constraint": (
        lambda: model(constraints=[cp.Variable(name="b") >= 0]),
        DeclarationError,
        "two variables have the name 'b'",
    ),
    "constraint: bool": (
        lambda: model(constraints=[1 >= 0]),
        DeclarationError,
        "comparison without a variable",
    ),
    "constraint: expression": (lambda: model(constraints=[theta]), DeclarationError, "compare it, with >="),
    "constraint: None": (lambda: model(constraints=None), DeclarationError, "give an empty list"),
    "constraint: text": (lambda: model(constraints="b >= 0"), DeclarationError, "not 'b >= 0'"),
    "constraint: dict": (lambda: model(constraints={"a": b >= 0}), DeclarationError, "one flat list"),
    "constraint: nested": (lambda: model(constraints=[[b >= 0]]), DeclarationError, "one flat list"),
    "constraint: data": (lambda: model(constraints=[x @ theta >= 0]), DeclarationError, "record data x"),
    "constraint: not convex": (
        lambda: model(constraints=[cp.norm(theta) >= 1]),
        NotConvexError,
        "convex <= concave",
    ),
    "constraint: not affine": (
        lambda: model(constraints=[cp.norm(theta) == 1]),
        NotConvexError,
        "affine == affine",
    ),
    "constraint: discrete": (
        lambda: model(constraints=[cp.FiniteSet(b, [1, 2])]),
        DeclarationError,
        "makes a variable discrete",
    ),
    "constraint: NaN": (lambda: model(constraints=[b <= np.nan]), DeclarationError, "holds NaN"),
    "constraint: never": (
        lambda: model(constraints=[cp.Constant(1) <= 0]),
        DeclarationError,
        "has no variable in it and does not hold",
    ),
    "constraint: broadcast": (
        lambda: model(constraints=[theta >= np.zeros((3, 1))]),
        ShapeError,
        r"\(3, 1\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_declarations_say_what_is_wrong(name):
    declare, error, text = WRONG[name]
    with pytest.raises(error, match=f"(?s){text}"):
        declare()


def test_a_constraint_on_hyperparameters_alone_is_judged_by_their_values():
    low, high = P(name="low", value=2.0), P(name="high", value=1.0)
    program = compile(cp.square(b), constraints=[low <= high, b >= low])
    with pytest.raises(
        DeclarationError, match=r"low <= high has no variable in it .* low = 2\.0, high = 1\.0"
    ):
        program.bind()
    high.value = 3.0
    np.testing.assert_allclose(program.bind().prox(np.zeros(2), 1.0), 2.0)


def test_constraints_come_in_any_collection():
    many = ([theta[i] >= 1 for i in range(3)], (theta[i] >= 1 for i in range(3)))
    for constraints in (*many, set(many[0]), np.array(many[0], dtype=object), theta >= 1):
        z = compile(cp.sum_squares(theta), constraints=constraints).bind().prox(np.zeros((2, 3)), 1.0)
        np.testing.assert_allclose(z, 1.0)


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
    n = P(name="n", **{attribute: True})
    program = compile(cp.square(n - b), data=(n,))
    assert program.bind([0.0, 0.0]).value(np.zeros(1)) == 0
    with pytest.raises(
        DataError, match=f"n was declared {attribute}=True.* {words}, but record 1 has {bad:g}"
    ):
        program.bind([0.0, bad])


ODD = {
    "the largest column sum": [cp.norm(W, 1)],
    "is its largest row sum": [cp.norm(W, "inf")],
    "spectral norm": [cp.norm(W), cp.norm(W, 2), cp.norm(W) ** 2],
    "a sum over no entries is 0": [
        cp.tv(cp.Variable((3, 1), name="c")),
        cp.tv(cp.Variable((1, 3), name="c")),
    ],
    "hidden domain": [cp.power(b, 3), b**3, cp.power(-b, 3), cp.sum(cp.power(theta, 1.5))],
}


@pytest.mark.parametrize("words", ODD)
def test_what_often_means_something_else_is_warned_of_once(words):
    for expression in ODD[words]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compile(expression + cp.sum_squares(W))
        words = words.replace("the largest", "is its largest")
        assert [w.category for w in caught] == [strat.DataWarning] and words in str(caught[0].message)


labels, several, scores = cp.Parameter(3, name="labels"), x @ cp.Variable((3, 3), name="B"), x @ W
LOSSES = strat.losses
WRONG_LOSSES = [
    (
        lambda: LOSSES.squared(x, cp.Variable(2)),
        ShapeError,
        r"losses.squared needs y and z of one shape.*\(3,\).*\(2,\)",
    ),
    (lambda: LOSSES.absolute(column, several), ShapeError, r"losses.absolute .*\(3, 1\).*\(3,\)"),
    (lambda: LOSSES.huber(y, several), ShapeError, "losses.huber .* of one shape"),
    (lambda: LOSSES.epsilon_insensitive(x, b), ShapeError, "losses.epsilon_insensitive .* of one shape"),
    (lambda: LOSSES.pinball(x, cp.Variable(2)), ShapeError, "losses.pinball .* of one shape"),
    (
        lambda: LOSSES.logistic(labels, several),
        ShapeError,
        r"losses.logistic is of one number.*sum\(losses.logistic",
    ),
    (lambda: LOSSES.hinge(y, several), ShapeError, "z must be a scalar"),
    (lambda: LOSSES.poisson(labels, b), ShapeError, "n must be a scalar"),
    (lambda: LOSSES.bernoulli(y, theta), ShapeError, "p must be a scalar"),
    (
        lambda: LOSSES.softmax(labels, scores),
        ShapeError,
        r"losses.softmax needs vectors of one length.*\(3,\).*\(2,\)",
    ),
    (lambda: LOSSES.softmax(y, scores), ShapeError, r"onehot of shape \(\)"),
    (lambda: LOSSES.gaussian(y, S), ShapeError, "losses.gaussian needs vectors"),
    (lambda: LOSSES.gaussian(cp.Parameter(2), S), ShapeError, r"needs S of shape \(2, 2\)"),
    (lambda: LOSSES.gaussian(x, cp.Variable((3, 3))), DeclarationError, "needs a symmetric S: .*PSD=True"),
    (lambda: LOSSES.gaussian_with_mean(x, S, b), ShapeError, r"m of shape \(\)"),
    (
        lambda: LOSSES.pinball(y, b, 1.5),
        strat.OptionError,
        "tau of losses.pinball must be a number between 0 and 1",
    ),
    (lambda: LOSSES.pinball(y, b, "high"), strat.OptionError, "but it is 'high'"),
    (lambda: LOSSES.huber(y, b, -1), strat.OptionError, "M of losses.huber must be a number at least 0"),
    (lambda: LOSSES.huber(y, b, cp.Parameter(value=1.0)), strat.OptionError, "nonneg=True"),
    (lambda: LOSSES.epsilon_insensitive(y, b, np.nan), strat.OptionError, "at least 0"),
    (
        lambda: LOSSES.logistic("y", b),
        DeclarationError,
        "y of losses.logistic must be a CVXPY expression.* a str",
    ),
    (lambda: LOSSES.logistic(None, b), DeclarationError, "a NoneType"),
]


@pytest.mark.parametrize(("make", "error", "text"), WRONG_LOSSES, ids=range(len(WRONG_LOSSES)))
def test_losses_by_name_say_what_their_arguments_must_be(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_levels_of_several_quantiles_may_be_a_list():
    listed = LOSSES.pinball(y, several, [0.1, 0.5, 0.9])
    program = compile(listed, data=(x, y))
    values = program.bind(np.ones((1, 3)), [2.0]).value(np.ones((1, 3, 3)))
    np.testing.assert_allclose(
        values, np.maximum(np.array([0.1, 0.5, 0.9]) * -1, -np.array([-0.9, -0.5, -0.1])).sum()
    )
