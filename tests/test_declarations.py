"""Bad declarations and bad records: the error, when it comes, and what it says."""

import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import strat
from strat.compiler.base_model import BaseModel
from strat.errors import (
    DataError,
    DeclarationError,
    GraphError,
    NoOracleError,
    NotConvexError,
    NotPerRecordError,
    OptionError,
    ShapeError,
    StratError,
)

theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
p, lam = cp.Variable(name="p"), cp.Variable(name="rate")
T = cp.Variable((2, 2), PSD=True, name="T")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
x2 = cp.Parameter((2, 3), name="M")
z = x @ theta + b
r = y - z
X, Y = np.arange(12.0).reshape(4, 3), np.array([1.0, -1.0, 1.0, -1.0])
LOGISTIC = cp.logistic(-y * z)


def base(loss=LOGISTIC, data=(x, y), **options):
    return BaseModel(loss, data=data, **options)


def bind(loss, *arrays, data=(x, y), **options):
    return strat.compile(loss, data=data).bind(*arrays, **options)


def test_every_error_is_a_strat_error_and_a_value_error():
    for kind in (
        DeclarationError,
        NotConvexError,
        NotPerRecordError,
        ShapeError,
        DataError,
        GraphError,
        NoOracleError,
        OptionError,
    ):
        assert issubclass(kind, StratError) and issubclass(kind, ValueError)
        assert getattr(strat, kind.__name__) is kind


# What is declared


DECLARATIONS = [
    (lambda: base("a text"), DeclarationError, "the loss must be a CVXPY expression .* but it is a str"),
    (lambda: base(None), DeclarationError, "the loss must be a CVXPY expression"),
    (lambda: base(True), DeclarationError, "the loss must be a CVXPY expression"),
    (lambda: base(theta >= 0), DeclarationError, "the loss must be a CVXPY expression"),
    (lambda: base(np.array([cp.square(b), y], dtype=object)), DeclarationError, "array of CVXPY expressions"),
    (lambda: base(3.0), DeclarationError, "the loss has no variable in it"),
    (lambda: base(cp.square(y), data=(y,)), DeclarationError, "the loss has no variable in it"),
    (lambda: base(regularizer="l1"), DeclarationError, "the regularizer must be a CVXPY expression"),
    (lambda: base(predict="sign"), DeclarationError, "predict must be a CVXPY expression"),
    (lambda: base(data=(x, "y")), DeclarationError, "data must hold cp.Parameter objects.* a str"),
    (lambda: base(data=(x, theta)), DeclarationError, "data must hold cp.Parameter objects.* a Variable"),
    (lambda: base(data=3), DeclarationError, "data must hold cp.Parameter objects.* an? int"),
    (lambda: base(data=(x, y, y)), DeclarationError, "names the Parameter y twice"),
    (
        lambda: base(data=(x, y, cp.Parameter(name="unused"))),
        DeclarationError,
        "the data Parameter unused is used neither in the loss nor in predict",
    ),
    (
        lambda: strat.compile(cp.square(b), data=(y,)),
        DeclarationError,
        "the data Parameter y does not occur in the expression",
    ),
    (lambda: base(regularizer=y * b), DeclarationError, "the regularizer contains the record data y"),
    (lambda: base(constraints=[b >= y]), DeclarationError, "a constraint contains the record data y"),
    (lambda: base(constraints=[True]), DeclarationError, "constraints must hold CVXPY constraints"),
    (lambda: base(constraints=theta), DeclarationError, "constraints must hold CVXPY constraints"),
    (lambda: base(constraints=[cp.norm(theta) >= 1]), NotConvexError, "the constraint .* is not convex"),
    (
        lambda: base(cp.square(y - x @ theta - cp.Variable(3, name="theta")[0])),
        DeclarationError,
        "two variables have the name 'theta'",
    ),
    (
        lambda: base(cp.square(y - cp.Variable(name="n", integer=True)), data=(y,)),
        DeclarationError,
        "'n' is declared integer",
    ),
    (
        lambda: base(cp.square(y - cp.Variable(name="n", boolean=True)), data=(y,)),
        DeclarationError,
        "'n' is declared boolean",
    ),
    (
        lambda: base(cp.square(cp.abs(y - cp.Variable(name="n", complex=True))), data=(y,)),
        DeclarationError,
        "'n' is declared complex",
    ),
    (
        lambda: base(cp.square(cp.abs(cp.Parameter(name="h", complex=True) - b)), data=(x,)),
        DeclarationError,
        "the Parameter h in the loss is complex",
    ),
    (
        lambda: base(predict=cp.Variable(name="other") * y),
        DeclarationError,
        "predict uses the variable other, which the loss and regularizer do not have",
    ),
    (lambda: base(cp.square(y * theta)), ShapeError, r"the loss must be a scalar, but it has shape \(3,\)"),
    (
        lambda: base(regularizer=theta),
        ShapeError,
        r"the regularizer must be a scalar, but it has shape \(3,\)",
    ),
    (lambda: strat.compile(theta), ShapeError, r"the expression must be a scalar"),
    (
        lambda: base(smoothing=0),
        OptionError,
        "smoothing is the width of the smoothed kink, a positive number",
    ),
    (lambda: base(smoothing=-1.0), OptionError, "not -1.0"),
    (lambda: base(smoothing="auto"), OptionError, "not 'auto'"),
    (lambda: base(smoothing=np.inf), OptionError, "smoothing"),
    (
        lambda: base(couple={"thetta": 1}),
        DeclarationError,
        "couple has the key 'thetta', which is no variable",
    ),
    (lambda: base(couple={p: 1}), DeclarationError, "couple has the key 'p', which is no variable"),
    (lambda: base(couple=(p,)), DeclarationError, "couple holds p, which is no variable"),
    (
        lambda: base(couple={"theta": [1.0, 2.0]}).couple_weights(),
        OptionError,
        r"couple\['theta'\] has shape \(2,\)",
    ),
    (lambda: base(couple={"theta": -1.0}).couple_weights(), OptionError, "must be finite and at least 0"),
    (
        lambda: base(couple={"theta": cp.Parameter(name="c")}).couple_weights(),
        DeclarationError,
        "the Parameter c in couple has no value",
    ),
]


@pytest.mark.parametrize(("declare", "kind", "text"), DECLARATIONS)
def test_declarations(declare, kind, text):
    with pytest.raises(kind, match=text):
        declare()


CONVEX = [
    (cp.log(1 + cp.exp(-y * z)), "neither convex nor concave.*cp.logistic"),
    (-cp.log(1 / (1 + cp.exp(-y * z))), "neither convex nor concave.*logistic"),
    (cp.log(cp.sum(cp.exp(x2 @ theta))), "cp.log_sum_exp"),
    (cp.sqrt(cp.sum_squares(r)), r"cp.norm\(u, 2\)"),
    (cp.square(y - theta[0] * theta[1]), "A product of two expressions of the variables"),
    (cp.log(b + y), "is concave"),
    (cp.sqrt(x @ theta) + y, "is concave"),
    (cp.square(y) / b, "cp.quad_over_lin"),
    (-cp.square(r), "is concave"),
    (cp.square(cp.square(r) - 1), "neither convex nor concave"),
    (cp.trace(T.T @ np.eye(2) @ T) + y * b, "quad_form"),
]


@pytest.mark.parametrize(("loss", "text"), CONVEX)
def test_what_no_data_make_convex(loss, text):
    data = [d for d in (x, y, x2) if d.id in {q.id for q in loss.parameters()}]
    with pytest.raises(NotConvexError, match=r"(?s)the loss is not convex in.*" + text):
        BaseModel(loss, data=data)


def test_regularizers_must_be_convex():
    with pytest.raises(NotConvexError, match="the regularizer is not convex"):
        base(regularizer=cp.sqrt(b))


COUPLING = [
    cp.max(r),
    cp.max(cp.abs(r)),
    cp.max(cp.hstack([r])),
    cp.norm_inf(r),
    cp.norm_inf(cp.hstack([r])),
    cp.sum_largest(cp.abs(r), 1),
    cp.sum_largest(cp.hstack([cp.square(r)]), 1),
    cp.log_sum_exp(z - y),
    cp.log_sum_exp(cp.hstack([z - y])),
    cp.cvar(cp.hstack([cp.abs(r)]), 0.6),
    cp.square(cp.max(cp.square(r))) + cp.sum_squares(theta),
    -cp.min(-cp.square(r)),
    cp.std(r),
    cp.std(cp.hstack([r])),
    cp.var(cp.hstack([r])),
    cp.tv(cp.hstack([r])) + cp.square(b),
    cp.sum(cp.cummax(cp.hstack([r]))),
    cp.sum(cp.square(cp.cumsum(cp.hstack([r])))),
]


@pytest.mark.parametrize("loss", COUPLING)
def test_functions_of_all_records_are_refused(loss):
    for make in (lambda: BaseModel(loss, data=(x, y)), lambda: strat.compile(loss, data=(x, y))):
        with pytest.raises(NotPerRecordError, match="of one number.*The loss is that of ONE record"):
            make()


def test_functions_within_a_record_are_allowed():
    for loss in (
        cp.max(x2 @ theta),
        cp.norm_inf(x2 @ theta),
        cp.log_sum_exp(x2 @ theta),
        cp.sum_largest(x2 @ theta, 2),
    ):
        BaseModel(loss, data=(x2,))
    BaseModel(cp.square(r), cp.max(theta) + cp.norm_inf(b) + cp.log_sum_exp(b), data=(x, y))


def test_a_vector_and_a_column_are_not_broadcast():
    B, column = cp.Variable((3, 4), name="B"), cp.Parameter((4, 1), name="column")
    for loss in (
        cp.sum_squares(column - x @ B),
        cp.sum(cp.maximum(column, x @ B)),
        cp.sum(cp.abs(cp.multiply(column, x @ B))),
    ):
        with pytest.raises(ShapeError, match=r"combines shapes \(4,\) and \(4, 1\) to \(4, 4\)"):
            BaseModel(loss, data=(x, column))
    wide = cp.Variable((4, 1), name="wide")
    with pytest.raises(ShapeError, match="a constraint combines"):
        BaseModel(cp.sum_squares(x @ B), constraints=[wide <= B[0]], data=(x,))
    BaseModel(cp.sum_squares(cp.vec(column, order="C") - x @ B), data=(x, column))
    BaseModel(cp.sum_squares(cp.reshape(x @ B, (1, 4), order="C") - column), data=(x, column))  # meant so


MEANINGS = [
    (lambda: cp.norm(cp.Variable((3, 4), name="B"), 1), "largest column sum"),
    (lambda: cp.norm(cp.Variable((3, 4), name="B"), "inf"), "largest row sum"),
    (lambda: cp.norm(cp.Variable((3, 4), name="B")), "spectral norm"),
    (lambda: cp.tv(cp.Variable((4, 1), name="B")) + b**2, "sums? over no entries"),
    (lambda: cp.tv(cp.Variable((1, 4), name="B")) + b**2, "sums? over no entries"),
    (lambda: cp.power(b, 3) + cp.power(theta[0], 3), "hidden domain >= 0"),
    (lambda: cp.sum(theta**1.5), "hidden domain >= 0"),
]


@pytest.mark.parametrize(("make", "text"), MEANINGS)
def test_what_often_means_something_else_is_said_once(make, text):
    for declare in (lambda: strat.compile(make()), lambda: base(regularizer=make())):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            declare()
        assert [w.category for w in caught] == [strat.DataWarning]
        assert caught[0].filename == __file__
        with pytest.warns(strat.DataWarning, match=text):
            declare()


def test_what_is_clear_is_not_warned_of():
    q = cp.Variable(3, nonneg=True, name="q")
    B = cp.Variable((3, 4), name="B")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for e in (
            cp.sum(q**3),
            cp.sum(cp.abs(theta) ** 3),
            b**4,
            cp.norm(B, "fro"),
            cp.norm1(B),
            cp.tv(theta),
        ):
            strat.compile(e)


def test_cvxpys_own_warnings_are_neither_swallowed_nor_repeated():
    B = cp.Variable((3, 4), name="B")
    with pytest.warns(FutureWarning, match="order"):
        flat = cp.reshape(B, (12,)) + cp.vec(B)
    loss = cp.sum_squares(flat - y) + cp.sum_squares(x @ B) * y**2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = BaseModel(loss, cp.norm1(flat), data=(x, y))
        model.loss_program.bind(X, Y)
        model.regularizer_program.bind()
    assert not caught


CONCAVE = [cp.log(b) + y * b, cp.entr(b) + y * b, cp.minimum(b, y), cp.sum_smallest(theta, 2) + y * b]


@pytest.mark.parametrize("loss", CONCAVE)
def test_concave_losses_are_told_about_the_sign(loss):
    with pytest.raises(NotConvexError, match="(?s)is concave.*Minus it is convex"):
        BaseModel(loss, data=(y,))


def test_norms_of_a_number_are_absolute_values():
    for loss in (
        cp.norm(r),
        cp.norm(r, 1),
        cp.norm(r, 2),
        cp.norm1(r),
        cp.pnorm(r, 3),
        cp.norm(cp.hstack([r]), 2),
    ):
        np.testing.assert_allclose(
            bind(loss, X, Y).value({"theta": np.zeros((1, 3)), "b": np.zeros(1)}), [4.0]
        )


def test_a_variable_only_in_the_regularizer_or_constraints_is_allowed():
    other = cp.Variable(name="other")
    model = base(regularizer=cp.square(other - b), constraints=[p >= 0])
    assert set(model.variables) == {"theta", "b", "other", "p"}


def test_atoms_without_a_rule_are_named():
    with pytest.raises(NoOracleError, match="there is no rule for the atom perspective in"):
        base(regularizer=cp.perspective(cp.sum_squares(theta), cp.Variable(nonneg=True, name="s")))
    weights = cp.Parameter(3, value=[3.0, 2.0, 1.0])
    with pytest.raises(NoOracleError, match=r"the weights of dotsort\(.*\) are Parameters.*Give numbers"):
        base(regularizer=cp.dotsort(theta, weights))


def test_exponents_must_not_be_data():
    with pytest.raises(StratError):
        base(cp.power(cp.abs(b) + 1, y), data=(y,))


# Signs of data and hyperparameters


BERNOULLI = -y * cp.log(p) - (1 - y) * cp.log(1 - p)


@pytest.mark.parametrize(
    "values", [[0, 1, 1, 0], [0.0, 0.25, 0.5, 1.0], [1, 1, 1, 1], [0, 0, 0, 0], [True, False] * 2]
)
def test_bernoulli_takes_labels_between_zero_and_one(values):
    bind(BERNOULLI, values, data=(y,))


def test_a_label_of_two_names_record_and_stratum():
    with pytest.raises(DataError, match=r"1 - y >= 0, but record 2 \(stratum 'CA'\) has y = 2.*\[0, 1\]"):
        bind(BERNOULLI, [0.0, 1.0, 2.0, 1.0], data=(y,), strata=["NY", "NY", "CA", "NY"])
    with pytest.raises(
        DataError, match=r"record 1 \(stratum \('CA', 2012\)\) has y = -1 \(2 records are affected\)"
    ):
        bind(BERNOULLI, [0.0, -1.0, -2.0], data=(y,), strata=[("NY", 2012), ("CA", 2012), ("NY", 2012)])


def test_negative_counts():
    with pytest.raises(DataError, match=r"record 1 \(stratum 'b'\) has y = -3"):
        bind(lam - y * cp.log(lam), [1.0, -3.0], data=(y,), strata=["a", "b"])
    with pytest.raises(
        DataError, match=r"kl_div.* needs y at least 0, but record 1 \(stratum 'b'\) has y = -3"
    ):
        bind(cp.kl_div(y, lam), [1.0, -3.0], data=(y,), strata=["a", "b"])


def test_records_of_weight_zero_have_no_sign():
    bind(BERNOULLI, [0.0, 1.0, 2.0], data=(y,), sample_weight=[1, 1, 0])


def test_data_outside_the_domain_of_their_own_functions():
    with pytest.raises(
        DataError, match=r"log\(y\) is undefined or infinite: record 1 \(stratum 'b'\) has y = -1"
    ):
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
    with pytest.raises(
        DeclarationError, match=r"the Parameter gamma in the loss has no value and is not among data"
    ):
        bind(gamma * cp.square(r), X, Y)
    with pytest.raises(DeclarationError, match="Set gamma.value"):
        strat.compile(gamma * cp.norm1(theta)).bind()


# Shapes of records


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
    ((sp.csr_array(X[:, :2]), Y), ShapeError, r"the sparse matrix has shape \(4, 2\)"),
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
    (
        (pd.DataFrame(X, columns=["u", "v", "w"]).replace(4.0, np.nan), Y),
        DataError,
        "x has NaN in column 'v' of record 1",
    ),
    (
        (pd.DataFrame(X, columns=["u", "v", "w"]).astype("Float64").replace(4.0, pd.NA), Y),
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
    np.testing.assert_array_equal(
        bind(cp.square(r), X, pd.DataFrame({"y": Y})).value(point), other.value(point)
    )
    np.testing.assert_array_equal(
        bind(cp.square(r), X, sp.csr_array(Y[:, None])).value(point), other.value(point)
    )


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


def test_a_declaration_never_broadcasts_a_column():
    """CVXPY turns (3,) + (3, 1) into (3, 3): its sum is not the loss anyone meant."""
    column = cp.Variable((3, 1), name="column")
    with pytest.raises((ShapeError, ValueError)):
        base(cp.square(x - column), data=(x,))


WEIGHTS = [
    ([0, 0, 0, 0], DataError, "all weights in sample_weight are zero"),
    ([1, -1, 1, 1], DataError, "sample_weight is -1 in record 1; weights must be at least 0"),
    ([1, np.nan, 1, 1], DataError, "sample_weight has NaN"),
    ([1, 1, 1], ShapeError, "sample_weight has 3 entries, but there are 4 records"),
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


def test_nan_in_a_record_of_weight_zero_is_an_error():
    with pytest.raises(DataError, match="y has NaN"):
        bind(LOGISTIC, X, [np.nan, 1, 1, 1], sample_weight=[0, 1, 1, 1])


def test_strata():
    with pytest.raises(GraphError, match="stratum 'c' is not a node"):
        bind(LOGISTIC, X, Y, strata=["a", "b", "c", "a"], strata_order=["a", "b"])
    with pytest.raises(ShapeError, match="strata"):
        bind(LOGISTIC, X, Y, strata=["a", "b"])
    with pytest.raises(DataError, match="strata"):
        bind(LOGISTIC, X, Y, strata=["a", np.nan, "b", "a"])


# Parameters of oracles


ORACLE = bind(cp.square(r), X, Y, strata=["a", "a", "b", "b"])
GOOD = {"theta": np.zeros((2, 3)), "b": np.zeros(2)}


POINTS = [
    (np.zeros((2, 3)), ShapeError, r"there are 2 variables \(theta, b\); give a dict"),
    ({"theta": np.zeros((2, 3))}, ShapeError, "no value was given for the variable 'b'"),
    (GOOD | {"c": 1.0}, OptionError, "'c' is no variable of the model; its variables are theta, b"),
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
    with pytest.raises(ShapeError, match=r"t has shape \(3,\); give one number, or one for each of 2 strata"):
        ORACLE.prox(GOOD, np.ones(3))
    with pytest.raises((ShapeError, OptionError), match="t "):
        ORACLE.prox(GOOD, "long")


def test_kinks_have_no_gradient():
    for loss in (cp.abs(r), cp.pos(1 - y * z), cp.maximum(0.9 * r, -0.1 * r)):
        oracle = bind(loss, X, Y)
        with pytest.raises(
            NoOracleError, match="there is no gradient of the loss: .* is not differentiable.*smoothing="
        ):
            oracle.gradient({"theta": np.zeros((1, 3)), "b": np.zeros(1)})


def test_a_prox_without_a_closed_form_is_announced():
    program = strat.compile(cp.log_sum_exp(cp.hstack([cp.norm(theta, 3), 1])))
    assert (
        "prox  one cone program of all strata, by Clarabel, so that a given graph is fitted by strat.Cone() (pieces share theta"
        in str(program)
    )
    assert "prox  closed form" in str(strat.compile(cp.norm1(theta)))


def test_messages_hold_no_matrices():
    """An error shows the expression with its functions' public names and without arrays of numbers."""
    with pytest.raises(NotConvexError) as caught:
        base(cp.sqrt(cp.sum_squares(np.ones((50, 3)) @ theta - y)))
    assert len(str(caught.value)) < 600 and "PowerApprox" not in str(caught.value)
