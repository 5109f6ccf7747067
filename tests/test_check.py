"""base.check() and program.check(): the report says what was compared, and a wrong oracle is found."""

import cvxpy as cp
import numpy as np
import pytest

import strat
from strat.rules.exponentials import Logistic

theta, b, p = cp.Variable(3, name="theta"), cp.Variable(name="b"), cp.Variable(name="p")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
z = x @ theta + b


def test_a_model_agrees_with_cvxpy(capsys):
    loss, both = cp.logistic(-y * z), cp.hstack([z, 2 * z])
    base = strat.BaseModel(loss, 0.1 * cp.norm1(theta), [b >= -1], data=(x, y), predict=both)
    report = base.check()
    assert report.ok
    found = {(row.piece.split(":")[0], row.oracle) for row in report.rows}
    of_loss = {("the loss", name) for name in ("value", "gradient", "Hessian product", "prox")}
    others = {("the regularizer", "value"), ("the regularizer", "prox"), ("predict", "value")}
    assert found == of_loss | others
    assert all(row.points > 0 for row in report.rows)
    assert str(report).splitlines()[0].split() == ["piece", "oracle", "largest", "error", "points"]
    assert "logistic" in str(report) and "DIFFERS" not in str(report)
    assert capsys.readouterr() == ("", "")
    assert str(base.check(seed=3)) == str(base.check(seed=3))


CONVEX_FOR_SOME_DATA = [
    *(-y * cp.log(p) - (1 - y) * cp.log(1 - p), p - y * cp.log(p), y * cp.abs(z), -y * cp.square(z)),
    cp.kl_div(y, x @ cp.Variable(3, nonneg=True, name="q")),
    cp.log_det(cp.Variable((2, 2), PSD=True, name="S")) * -cp.abs(y) + y * b,
]


@pytest.mark.parametrize("loss", CONVEX_FOR_SOME_DATA, ids=[str(i) for i in range(len(CONVEX_FOR_SOME_DATA))])
def test_data_are_drawn_that_make_the_loss_convex(loss):
    report = strat.compile(loss, data=loss.parameters()).check()
    assert report.ok and "value" in {row.oracle for row in report.rows}


def test_nothing_of_the_users_changes():
    theta.value, x.value, lam = np.arange(3.0), None, cp.Parameter(nonneg=True, name="lam")
    assert strat.BaseModel(cp.square(y - z), lam * cp.norm(theta, 2), data=(x, y)).check().ok
    np.testing.assert_array_equal(theta.value, np.arange(3.0))
    assert x.value is None and y.value is None and lam.value is None and b.value is None
    theta.value = None


def test_smoothed_losses_are_compared_with_their_own_envelopes():
    report = strat.BaseModel(strat.losses.pinball(y, z, 0.8), data=(x, y), smoothing=0.3).check()
    assert report.ok and "gradient" in {row.oracle for row in report.rows}


def test_a_wrong_derivative_is_found(monkeypatch):
    monkeypatch.setattr(Logistic, "partial", lambda self, i, args, out, memo: 0.5 + 0 * args[0])
    report = strat.compile(cp.logistic(-y * z), data=(x, y)).check()
    assert not report.ok and "DIFFERS" in str(report)
    assert [row.oracle for row in report.rows if not row.ok][0] == "gradient"


def test_a_wrong_value_and_a_wrong_prox_are_found(monkeypatch):
    program = strat.compile(cp.norm1(theta))
    assert program.check().ok
    oracle = program.bind_regularizer()
    right, value = oracle.prox, oracle.value
    oracle.prox = lambda v, t: right(v, 2 * t)
    monkeypatch.setattr(program, "bind_regularizer", lambda given=None: oracle)
    assert [row.oracle for row in program.check().rows if not row.ok] == ["prox"]
    oracle.prox, oracle.value = right, lambda t: 1.01 * value(t)
    assert not program.check().ok


def test_what_no_random_data_fit_is_said():
    report = strat.compile((y - 100) * cp.square(b), data=(y,)).check()
    assert not report.ok and not report.rows
    assert "no random numbers" in str(report)
