"""The shapes of CVXPY's trees that the compiler relies on; a release that changes one fails here, in plain words."""

import cvxpy as cp
import numpy as np
import pytest

from strat.rules import atoms
from strat.rules.text import text

u, v, s = cp.Variable(3, name="u"), cp.Variable(name="v"), cp.Parameter(3, name="s")
U, S = cp.Variable((2, 3), name="U"), cp.Variable((2, 2), symmetric=True, name="S")

ROOTS = [
    ("cp.norm(u, 2)", cp.norm(u, 2), atoms.Pnorm),
    ("cp.norm2(u)", cp.norm2(u), atoms.Pnorm),
    ("cp.norm(u, 1)", cp.norm(u, 1), atoms.norm1),
    ("cp.norm(u, 'inf')", cp.norm(u, "inf"), atoms.norm_inf),
    ("cp.norm(v) of a scalar", cp.norm(v), atoms.norm1),
    ("cp.norm(v, 3) of a scalar", cp.norm(v, 3), atoms.norm1),
    ("cp.pnorm(u, 3)", cp.pnorm(u, 3), atoms.Pnorm),
    ("cp.norm(U, 'fro')", cp.norm(U, "fro"), atoms.Pnorm),
    ("cp.norm(U, 2, axis=1)", cp.norm(U, 2, axis=1), atoms.Pnorm),
    ("cp.norm(U) of a matrix", cp.norm(U), atoms.sigma_max),
    ("cp.norm(U, 'nuc')", cp.norm(U, "nuc"), atoms.normNuc),
    ("cp.square(u)", cp.square(u), atoms.Power),
    ("u**2", u**2, atoms.Power),
    ("cp.power(u, 1.5)", cp.power(u, 1.5), atoms.Power),
    ("cp.sqrt(v)", cp.sqrt(v), atoms.Power),
    ("cp.inv_pos(v)", cp.inv_pos(v), atoms.Power),
    ("cp.sum_squares(u)", cp.sum_squares(u), atoms.quad_over_lin),
    ("cp.quad_form(u, P)", cp.quad_form(u, np.eye(3)), atoms.QuadForm),
    ("u.T @ P @ u", u.T @ np.eye(3) @ u, atoms.QuadForm),
    ("cp.matrix_frac(u, S)", cp.matrix_frac(u[:2], S), atoms.MatrixFrac),
    ("cp.geo_mean(u)", cp.geo_mean(u), atoms.GeoMean),
    ("cp.tr_inv(S)", cp.tr_inv(S), atoms.tr_inv),
    ("cp.log_det(S)", cp.log_det(S), atoms.log_det),
    ("cp.huber(u)", cp.huber(u), atoms.huber),
    ("cp.pos(u)", cp.pos(u), atoms.maximum),
    ("cp.maximum(u, 0)", cp.maximum(u, 0), atoms.maximum),
    ("cp.neg(u)", cp.neg(u), atoms.NegExpression),
    ("cp.abs(u)", cp.abs(u), atoms.abs),
    ("cp.logistic(u)", cp.logistic(u), atoms.logistic),
    ("cp.log_sum_exp(u)", cp.log_sum_exp(u), atoms.log_sum_exp),
    ("cp.kl_div(1, v)", cp.kl_div(1, v), atoms.kl_div),
    ("cp.entr(v)", cp.entr(v), atoms.entr),
    ("cp.tv(u)", cp.tv(u), atoms.norm1),
    ("cp.cvar(u, 0.5)", cp.cvar(u, 0.5).args[0], atoms.Expression),
    ("cp.mixed_norm(U, 2, 1)", cp.mixed_norm(U, 2, 1), atoms.norm1),
    ("cp.sum_largest(u, 2)", cp.sum_largest(u, 2), atoms.sum_largest),
    ("u + 1", u + 1, atoms.AddExpression),
    ("-u", -u, atoms.NegExpression),
    ("cp.multiply(s, u)", cp.multiply(s, u), atoms.multiply),
    ("s @ u", s @ u, atoms.MulExpression),
    ("u / 2", u / 2, atoms.DivExpression),
    ("cp.sum(u)", cp.sum(u), atoms.Sum),
    ("cp.mean(u)", cp.mean(u), atoms.DivExpression),
    ("cp.cumsum(u)", cp.cumsum(u), atoms.cumsum),
    ("cp.kron(S, S constant)", cp.kron(np.eye(2), S), atoms.kron),
    ("cp.convolve(1, u)", cp.convolve(np.ones(2), u), atoms.convolve),
    ("u[0]", u[0], atoms.SELECTIONS),
    ("u[[0, 1]]", u[[0, 1]], atoms.SELECTIONS),
    ("cp.hstack", cp.hstack([u, v]), atoms.SELECTIONS),
    ("cp.vstack", cp.vstack([u, u]), atoms.SELECTIONS),
    ("cp.bmat", cp.bmat([[U], [U]]), atoms.SELECTIONS),
    ("cp.reshape", cp.reshape(u, (3, 1), order="C"), atoms.SELECTIONS),
    ("U.T", U.T, atoms.SELECTIONS),
    ("cp.diag(u)", cp.diag(u), atoms.SELECTIONS),
    ("cp.diag(S)", cp.diag(S), atoms.SELECTIONS),
    ("cp.upper_tri(S)", cp.upper_tri(S), atoms.SELECTIONS),
    ("cp.psd_wrap(S)", cp.psd_wrap(S), atoms.SELECTIONS),
    ("u >= 0", u >= 0, atoms.Inequality),
    ("u == 0", u == 0, atoms.Equality),
    ("S >> 0", S >> 0, atoms.PSD),
    ("a constraint", u >= 0, atoms.Constraint),
]


@pytest.mark.parametrize(("spelling", "node", "kind"), ROOTS, ids=[name for name, _, _ in ROOTS])
def test_roots(spelling, node, kind):
    names = kind.__name__ if isinstance(kind, type) else "one of strat.rules.atoms.SELECTIONS"
    assert isinstance(node, kind), (
        f"{spelling} is now a {type(node).__name__}, which is no {names}: teach strat.rules.atoms its new class."
    )


READINGS = [
    ("the axis of cp.sum(U, axis=1)", atoms.axis_of(cp.sum(U, axis=1)), (1,)),
    ("the axis of cp.sum(U)", atoms.axis_of(cp.sum(U)), None),
    ("the axis of cp.norm(U, 2, axis=-1)", atoms.axis_of(cp.norm(U, 2, axis=-1)), (1,)),
    ("the axis of cp.log_sum_exp(U, axis=0)", atoms.axis_of(cp.log_sum_exp(U, axis=0)), (0,)),
    ("the exponent of cp.power(u, 1.5)", atoms.exponent(cp.power(u, 1.5)), 1.5),
    ("the exponent of cp.sqrt(v)", atoms.exponent(cp.sqrt(v)), 0.5),
    ("the order of cp.pnorm(u, 3)", atoms.exponent(cp.pnorm(u, 3)), 3.0),
    ("the order of cp.norm(U, 'fro')", atoms.exponent(cp.norm(U, "fro")), 2.0),
    ("the threshold of cp.huber(u, 0.7)", float(cp.huber(u, 0.7).M.value), 0.7),
    ("the count of cp.sum_largest(u, 2)", float(cp.sum_largest(u, 2).k), 2.0),
    ("the positions of u[::-1]", u[::-1].numeric([np.arange(3)]).tolist(), [2, 1, 0]),
    (
        "the positions of cp.reshape(U, (6,), order='F')",
        cp.reshape(U, (6,), order="F").numeric([np.arange(6).reshape(2, 3)]).tolist(),
        [0, 3, 1, 4, 2, 5],
    ),
    ("the arguments of cp.quad_over_lin(u, v)", [a.id for a in cp.quad_over_lin(u, v).args], [u.id, v.id]),
    ("the arguments of cp.kl_div(v, 1)", cp.kl_div(v, 1).args[0].id, v.id),
    ("the weights of geo_mean", atoms.geometric_weights(cp.geo_mean(u, [1, 0, 3])).tolist(), [0.25, 0, 0.75]),
    ("the bounds of a variable", cp.Variable(bounds=[0, 1]).attributes["bounds"], [0, 1]),
    ("the PSD attribute", bool(cp.Variable((2, 2), PSD=True).attributes["PSD"]), True),
    ("the expression of u <= 1", float((v <= 1).expr.args[-1].value), -1.0),
]


@pytest.mark.parametrize(("what", "read", "expected"), READINGS, ids=[name for name, _, _ in READINGS])
def test_readings(what, read, expected):
    assert read == expected, f"{what} reads {read} instead of {expected}: mend strat.rules.atoms."


TEXTS = [
    (cp.square(u[0]), "power(u[0], 2)"),
    (cp.norm(u, 2), "norm(u, 2)"),
    (cp.sum_squares(u), "quad_over_lin(u, 1)"),
    (cp.sum(u), "sum(u"),
    (v - 1, "v - 1"),
    (np.ones((30, 3)) @ u, "[…] @ u"),
    (cp.quad_form(u, np.eye(3)), "quad_form(u, […])"),
]


@pytest.mark.parametrize(("expression", "expected"), TEXTS)
def test_texts(expression, expected):
    assert text(expression).startswith(expected)


def test_promotion_and_copies():
    """Scalars are promoted by nodes of their own, and a node can be built again on other arguments."""
    e = u + v
    assert all(a.shape == e.shape for a in e.args)
    assert cp.huber(u, 0.7).copy([v]).M.value == 0.7
    assert cp.power(u, 3).copy([v]).is_convex()
