"""Wrong declarations as people write them: refused by name, with the reason and what to write instead."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize
from cvxpy.transforms.suppfunc import SuppFunc

import strat
from strat import BaseModel, DeclarationError, NotPerRecordError, compile, losses

P, V = cp.Parameter, cp.Variable
theta, b, W = V(3, name="theta"), V(name="b"), V((3, 2), name="W")
S, s, p = V((3, 3), symmetric=True, name="S"), V(pos=True, name="s"), V(name="p")
x, y, column, x2 = P(3, name="x"), P(name="y"), P((3, 1), name="column"), P((2, 3), name="M")
r = y - x @ theta - b
one = cp.hstack([r])


def model(loss=None, data=(x, y), **options):
    return BaseModel(cp.square(r) if loss is None else loss, data=data, **options)


def weights(**couple):
    return model(couple=couple).couple_weights()


def test_every_error_is_a_strat_error_and_a_value_error():
    names = "Declaration NotConvex NotPerRecord Shape Data Graph NoOracle Option"
    for kind in (getattr(strat, f"{name}Error") for name in names.split()):
        assert issubclass(kind, strat.StratError) and issubclass(kind, ValueError)


#: What each error says, by its kind, and a declaration that it is about.
WRONG = {
    DeclarationError: {
        "the loss must be a CVXPY expression .* it is a str": lambda: model("a text"),
        "the loss must be a CVXPY expression .* it is a NoneType": lambda: BaseModel(None),
        "the loss must be a CVXPY expression .* it is a bool": lambda: model(True),
        "it is a Minimize": lambda: model(cp.Minimize(cp.square(r))),
        "it is a Problem": lambda: model(cp.Problem(cp.Minimize(cp.square(r)))),
        "it is a function": lambda: model(lambda x, y: 0),
        "must be a CVXPY expression": lambda: model(cp.square),
        "the loss must be .* it is a list": lambda: model([cp.square(r)]),
        "the loss must be .* it is an Inequality": lambda: model(theta >= 0),
        "the regularizer must be a CVXPY expression": lambda: model(regularizer="l1"),
        "the regularizer must be .* it is a list": lambda: model(regularizer=[cp.norm1(theta)]),
        "predict must be a CVXPY expression": lambda: model(predict="sign"),
        "array of CVXPY expressions.*np.dot": lambda: model(np.dot(np.ones(3), theta)),
        r"array of CVXPY expressions.*cp\.sum": lambda: model(np.array([cp.square(r), b])),
        "is a NumPy or pandas array of CVXPY expressions": lambda: model(np.array(cp.square(r))),
        "operation with a Series": lambda: model(pd.Series([1.0, 2, 3]) - theta),
        "the loss has no variable in it": lambda: model(3.0),
        "the loss has no variable in it: power": lambda: model(cp.square(y), (y,)),
        "the loss holds NaN": lambda: model(cp.square(r) + np.nan),
        "the regularizer holds NaN": lambda: model(regularizer=np.nan),
        "the regularizer holds an infinite number": lambda: model(regularizer=np.inf * cp.norm1(theta)),
        "the Parameter h in the loss is complex": lambda: model(cp.abs(P(name="h", complex=True) - b), (x,)),
        "data must hold cp.Parameter objects.* a str": lambda: model(data=(x, "y")),
        "data must hold cp.Parameter objects.* a Variable": lambda: model(data=(x, theta)),
        "data must hold cp.Parameter objects.* an ndarray": lambda: model(data=(np.ones(3), y)),
        "data must hold cp.Parameter objects.* an int": lambda: model(data=3),
        "data must hold cp.Parameter objects.* a multiply": lambda: model(data=(2 * x, y)),
        "data must hold cp.Parameter": lambda: model(data="x"),
        "data must hold cp.Parameter objects": lambda: model(data=None),
        "names the Parameter y twice": lambda: model(data=(x, y, y)),
        "names the Parameter y twice; each": lambda: model(cp.square(y - P(name="y") * b), (y, P(name="y"))),
        "w is used neither in the loss nor in predict": lambda: model(data=(x, y, P(name="w"))),
        "y does not occur in the expression": lambda: compile(cp.square(b), data=(y,)),
        "hyperparameter has the name 'y' of a data Parameter": lambda: model(regularizer=P(name="y") * b),
        "the regularizer contains the record data y": lambda: model(regularizer=y * b),
        "predict uses the variable other, which": lambda: model(predict=V(name="other") * y),
        "two variables have the name 'theta'": lambda: model(cp.square(r - V(3, name="theta")[0])),
        "two variables have the name 'b'": lambda: model(constraints=[V(name="b") >= 0]),
        "'n' is declared integer": lambda: model(cp.square(y - V(name="n", integer=True)), (y,)),
        "'n' is declared boolean": lambda: model(cp.square(y - V(name="n", boolean=True)), (y,)),
        "'n' is declared complex": lambda: model(cp.square(cp.abs(y - V(name="n", complex=True))), (y,)),
        "'n' is declared integer; only": lambda: model(cp.sum_squares(x - V(3, integer=[0], name="n")), (x,)),
        "'n' is declared integer; only real": lambda: model(constraints=[V(integer=True, name="n") >= b]),
        "couple has the key 'thetta', which is not a variable": lambda: model(couple={"thetta": 1}),
        "couple has the key 'p', which is not a variable": lambda: model(couple={p: 1}),
        "couple holds p, which is not a variable": lambda: model(couple=(p,)),
        "the Parameter c in couple has no value": lambda: weights(theta=P(name="c")),
        "a constraint contains the record data y": lambda: model(constraints=[b >= y]),
        "constraints must hold .* comparison without a variable": lambda: model(constraints=[1 >= 0]),
        "constraints must hold .* compare it, with >=": lambda: model(constraints=theta),
        "constraints must hold .* give an empty list": lambda: model(constraints=None),
        "constraints must hold .* not 'b >= 0'": lambda: model(constraints="b >= 0"),
        "constraints must hold .* one flat list": lambda: model(constraints={"a": b >= 0}),
        "one flat list": lambda: model(constraints=[[b >= 0]]),
        "makes a variable discrete": lambda: model(constraints=[cp.FiniteSet(b, [1, 2])]),
        "holds NaN: nan": lambda: model(constraints=[b <= np.nan]),
        "has no variable in it and does not hold": lambda: model(constraints=[cp.Constant(1) <= 0]),
        "y of losses.logistic must be a CVXPY expression.* a str": lambda: losses.logistic("y", b),
        "losses.logistic must be .* a NoneType": lambda: losses.logistic(None, b),
        "needs a symmetric S: .*PSD=True": lambda: losses.gaussian(x, V((3, 3))),
    },
    strat.ShapeError: {
        r"the loss must be a scalar, but it has shape \(3,\).*cp\.sum": lambda: model(cp.square(y * theta)),
        r"the regularizer must be a scalar.*cp\.sum": lambda: model(regularizer=cp.abs(theta)),
        "the expression must be a scalar": lambda: compile(theta),
        r"shapes \(3,\) and \(3, 1\) to \(3, 3\)": lambda: model(cp.sum_squares(theta - column), (column,)),
        r"\(3,\) and \(3, 1\).*cp\.vec": lambda: model(cp.sum(cp.abs(cp.multiply(theta, column))), (column,)),
        r"\(3,\) and \(3, 1\)": lambda: model(cp.sum(cp.abs(theta / column)), (column,)),
        r" \(3,\) and \(3, 1\)": lambda: model(cp.sum(cp.maximum(theta, column)), (column,)),
        "a constraint combines": lambda: model(constraints=[theta >= np.zeros((3, 1))]),
        r"losses.squared needs y and z of one shape.*\(3,\).*\(2,\)": lambda: losses.squared(x, V(2)),
        r"losses.absolute .*\(3, 1\).*\(3,\)": lambda: losses.absolute(column, several),
        "losses.huber .* of one shape": lambda: losses.huber(y, several),
        "losses.epsilon_insensitive .* of one shape": lambda: losses.epsilon_insensitive(x, b),
        "losses.pinball .* of one shape": lambda: losses.pinball(x, V(2)),
        r"losses.logistic is of one number.*sum\(losses": lambda: losses.logistic(labels, several),
        "z must be a scalar": lambda: losses.hinge(y, several),
        "n must be a scalar": lambda: losses.poisson(labels, b),
        "p must be a scalar": lambda: losses.bernoulli(y, theta),
        r"losses.softmax needs vectors of one.*\(3,\).*\(2,\)": lambda: losses.softmax(labels, x @ W),
        r"onehot of shape \(\)": lambda: losses.softmax(y, x @ W),
        "losses.gaussian needs vectors": lambda: losses.gaussian(y, S),
        r"needs S of shape \(2, 2\)": lambda: losses.gaussian(P(2), S),
        r"m of shape \(\)": lambda: losses.gaussian_with_mean(x, S, b),
    },
    strat.NotConvexError: {
        "constraint .* is not convex.*convex <= concave": lambda: model(constraints=[cp.norm(theta) >= 1]),
        "affine == affine": lambda: model(constraints=[cp.norm(theta) == 1]),
        "the regularizer is not convex": lambda: model(regularizer=cp.sqrt(b)),
        "neither convex nor concave.*square root": lambda: model(cp.power(cp.abs(b) + 1, y), (y,)),
    },
    strat.OptionError: {
        "smoothing is the width of the smoothed kink, a positive number": lambda: model(smoothing=0),
        "smoothing .* not -1.0": lambda: model(smoothing=-1.0),
        "smoothing .* not 'auto'": lambda: model(smoothing="auto"),
        "smoothing .* not inf": lambda: model(smoothing=np.inf),
        r"couple\['theta'\] must be .* shape \(3,\), not \[1": lambda: weights(theta=[1.0, 2.0]),
        r"couple\['theta'\] must be a number, .*not 'weak'": lambda: weights(theta="weak"),
        r"couple\['theta'\] .*, not Variable": lambda: model(couple={theta: b}).couple_weights(),
        "must be finite and at least 0": lambda: weights(theta=-1.0),
        "tau of losses.pinball must be a number between 0 and 1": lambda: losses.pinball(y, b, 1.5),
        "but it is 'high'": lambda: losses.pinball(y, b, "high"),
        "M of losses.huber must be a number at least 0": lambda: losses.huber(y, b, -1),
        "nonneg=True": lambda: losses.huber(y, b, P(value=1.0)),
        "at least 0": lambda: losses.epsilon_insensitive(y, b, np.nan),
    },
    strat.NoOracleError: {
        r"no rule for the atom perspective .* cp\.quad_over_lin\(u, s\) for squares": lambda: model(
            regularizer=cp.perspective(cp.square(b), s)
        ),
        "no rule for the atom SuppFuncAtom .*Write the support function itself": lambda: model(
            regularizer=SuppFunc(V(3), [])(theta)
        ),
        "Declare the variables that partial_optimize minimises over": lambda: model(regularizer=partial()),
        r"the weights of dotsort\(.*\) are Parameters.*Give numbers": lambda: model(
            regularizer=cp.dotsort(theta, P(3, value=[3.0, 2.0, 1.0]))
        ),
    },
}
labels, several = P(3, name="labels"), x @ V((3, 3), name="B")
ROWS = [(kind, text, declare) for kind, rows in WRONG.items() for text, declare in rows.items()]


def partial():
    v = V(3)
    return partial_optimize(cp.Problem(cp.Minimize(cp.norm1(theta - v))), opt_vars=[v])


@pytest.mark.parametrize(("kind", "text", "declare"), ROWS, ids=[text for _, text, _ in ROWS])
def test_wrong_declarations_say_what_is_wrong(kind, text, declare):
    with pytest.raises(kind, match=f"(?s){text}"):
        declare()


OVER_RECORDS = {
    "sum of the largest entries": [
        *(cp.cvar(one, 0.9), cp.sum_largest(cp.square(one), 3) / 3, -cp.sum_smallest(one, 1)),
        cp.sum_largest(cp.abs(r), 1),
    ],
    "maximum": [
        *(cp.max(cp.abs(r)), cp.norm_inf(r), cp.norm_inf(one), cp.ptp(one)),
        2 * cp.max(cp.square(r)) + cp.norm1(theta),
    ],
    "minimum": [-cp.min(-cp.square(r))],
    "log-sum-exp": [cp.log_sum_exp(cp.square(r)), cp.sum(cp.log_sum_exp(cp.vstack([r]), axis=1))],
    "variance or standard deviation": [cp.var(one), cp.std(one), cp.std(r)],
    "total variation or difference": [cp.tv(one) + cp.square(b)],
    "running total or maximum": [cp.sum(cp.cummax(one)), cp.sum(cp.square(cp.cumsum(one)))],
    "geometric mean": [-cp.geo_mean(one)],
    "weighted sum of sorted entries": [cp.dotsort(one, np.array([1.0]))],
    "harmonic or other mean": [-cp.harmonic_mean(one), -cp.pnorm(one, 0.5)],
}


@pytest.mark.parametrize("word", OVER_RECORDS)
def test_functions_of_all_records_are_refused(word):
    for loss in OVER_RECORDS[word]:
        for declare in (model, lambda e: compile(e, data=(x, y))):
            with pytest.raises(NotPerRecordError, match=rf"the {word} of one number.* ONE record .*huber"):
                declare(loss)


def test_functions_within_a_record_are_allowed():
    u = x2 @ theta
    for loss in (cp.max(u), cp.norm_inf(u), cp.log_sum_exp(u), cp.sum_largest(u, 2)):
        BaseModel(loss, data=(x2,))
    model(regularizer=cp.max(theta) + cp.norm_inf(b) + cp.log_sum_exp(b))


def test_columns_that_are_meant_so_are_broadcast():
    B, wide = V((3, 4), name="B"), P((4, 1), name="wide")
    model(cp.sum_squares(cp.vec(wide, order="C") - x @ B), (x, wide))
    model(cp.sum_squares(cp.reshape(x @ B, (1, 4), order="C") - wide), (x, wide))


L = np.diag([1.0, -1.0, 1.0])
NOT_CONVEX = [
    (cp.log(1 + cp.exp(-r)), r"log\(1 \+ exp\(.*cp\.logistic"),
    (-cp.log(1 / (1 + cp.exp(-r))), r"1 / \(1 \+ exp\(.*a logistic loss is cp\.logistic"),
    (cp.log(cp.sum(cp.exp(x @ W))) + b * y, r"cp\.log_sum_exp\(z\) for log\(sum\(exp"),
    (r * r, r"cp\.square\(u\) for u \* u"),
    (cp.square(y - x @ W @ W.T @ theta), r"A product of two expressions of the variables"),
    (cp.trace(S.T @ np.eye(3) @ S) + y * b + x @ theta, "quad_form"),
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
    (-cp.square(r), "is concave.*Minus it is convex: a loss is minimised"),
    (cp.log(b) + r, "is concave.*Minus it is convex"),
    (cp.entr(b) + r, "is concave.*Minus it is convex"),
    (cp.minimum(b, y) + r, "is concave.*Minus it is convex"),
    (cp.sum_smallest(theta, 2) + r, "is concave.*Minus it is convex"),
]


@pytest.mark.parametrize(("loss", "text"), NOT_CONVEX, ids=range(len(NOT_CONVEX)))
def test_what_is_not_convex_has_a_replacement(loss, text):
    with pytest.raises(strat.NotConvexError, match=rf"(?s)the loss is not convex.*{text}"):
        model(loss)


def test_messages_hold_no_matrices():
    """An error shows the expression with its functions' public names and without arrays of numbers."""
    with pytest.raises(strat.NotConvexError) as caught:
        model(cp.sqrt(cp.sum_squares(np.ones((50, 3)) @ theta - y)))
    assert len(str(caught.value)) < 600 and "PowerApprox" not in str(caught.value)


def test_a_large_matrix_that_rounding_makes_indefinite_is_wrapped():
    A = np.random.default_rng(0).normal(size=(40, 30))
    gram = A @ A.T  # rank 30, with eigenvalues of -1e-14
    assert np.linalg.eigvalsh(gram)[0] < 0
    compile(cp.quad_form(V(40, name="u"), cp.psd_wrap(gram))).bind()


def test_a_constraint_on_hyperparameters_alone_is_judged_by_their_values():
    low, high = P(name="low", value=2.0), P(name="high", value=1.0)
    program = compile(cp.square(b), constraints=[low <= high, b >= low])
    with pytest.raises(DeclarationError, match=r"low <= high has no variable .* low = 2\.0, high = 1\.0"):
        program.bind()
    high.value = 3.0
    np.testing.assert_allclose(program.bind().prox(np.zeros(2), 1.0), 2.0)


def test_constraints_come_in_any_collection():
    many = ([theta[i] >= 1 for i in range(3)], (theta[i] >= 1 for i in range(3)))
    for constraints in (*many, set(many[0]), np.array(many[0], dtype=object), theta >= 1):
        z = compile(cp.sum_squares(theta), constraints=constraints).bind().prox(np.zeros((2, 3)), 1.0)
        np.testing.assert_allclose(z, 1.0)


def test_a_variable_only_in_the_regularizer_or_constraints_is_allowed():
    base = model(regularizer=cp.square(V(name="other") - b), constraints=[p >= 0])
    assert set(base.variables) == {"theta", "b", "other", "p"}


ODD = {
    "is its largest column sum": [cp.norm(W, 1)],
    "is its largest row sum": [cp.norm(W, "inf")],
    "If you wrote cp.norm": [cp.norm(W), cp.sigma_max(W), cp.norm(W) ** 2],
    "a sum over no entries is 0": [cp.tv(V((3, 1), name="c")), cp.tv(V((1, 3), name="c"))],
    "hidden domain >= 0": [
        *(cp.power(b, 3), cp.power(-b, 3), cp.sum(cp.power(theta, 1.5))),
        cp.power(b, 3) + cp.power(theta[0], 3),
    ],
}


@pytest.mark.parametrize("words", ODD)
def test_what_often_means_something_else_is_warned_of_once(words):
    for expression in ODD[words]:
        for declare in (compile, lambda e: model(regularizer=e)):
            with pytest.warns(strat.DataWarning) as caught:
                declare(expression + cp.sum_squares(W))
            assert len(caught) == 1 and words in str(caught[0].message) and caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_what_is_clear_is_not_warned_of():
    q, B = V(3, nonneg=True, name="q"), V((3, 4), name="B")
    for e in (cp.sum(q**3), cp.sum(cp.abs(theta) ** 3), b**4, cp.norm(B, "fro"), cp.norm1(B), cp.tv(theta)):
        compile(e)


@pytest.mark.filterwarnings("error")
def test_cvxpys_own_warnings_are_neither_swallowed_nor_repeated():
    B = V((3, 4), name="B")
    with pytest.warns(FutureWarning, match="order"):
        flat = cp.reshape(B, (12,)) + cp.vec(B)
    base = model(cp.sum_squares(flat - y) + cp.sum_squares(x @ B) * y**2, regularizer=cp.norm1(flat))
    base.loss_program.bind(np.ones((4, 3)), np.ones(4))
    base.regularizer_program.bind()


def test_norms_of_a_number_are_absolute_values():
    for loss in (cp.norm(r), cp.norm(r, 1), cp.norm(r, 2), cp.norm1(r), cp.pnorm(r, 3), cp.norm(one, 2)):
        oracle = compile(loss, data=(x, y)).bind(np.ones((4, 3)), [1.0, -1.0, 1.0, -1.0])
        np.testing.assert_allclose(oracle.value({"theta": np.zeros((1, 3)), "b": np.zeros(1)}), [4.0])


def test_levels_of_several_quantiles_may_be_a_list():
    listed = losses.pinball(y, several, [0.1, 0.5, 0.9])
    values = compile(listed, data=(x, y)).bind(np.ones((1, 3)), [2.0]).value(np.ones((1, 3, 3)))
    np.testing.assert_allclose(values, [0.9 + 0.5 + 0.1])


def test_a_prox_without_a_closed_form_is_announced():
    text = str(compile(cp.log_sum_exp(cp.hstack([cp.norm(theta, 3), 1]))))
    assert "a cone program for each stratum, all at once, so that a given graph is fitted by" in text
    assert "pieces share theta" in text
    assert "prox  closed form" in str(compile(cp.norm1(theta)))
