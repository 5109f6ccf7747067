"""Pieces that each know their prox, together: derivatives of proxes against differences, the dual method against CVXPY."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.oracles.group_terms import GroupFunctions, SpectralFunctions
from strat.rules.dotsort import DotSort
from strat.rules.largest import Max, Min, NormInf, SumLargest
from strat.rules.matrices import LogDetRule, TraceInverse
from strat.rules.matrix_entropy import VonNeumannEntropy
from strat.rules.piecewise import Abs, Norm2
from strat.rules.power_norms import Pnorm
from strat.rules.powers import QuadOverLin, Square
from strat.rules.spectral import LambdaMax, LambdaSumLargest, NuclearNorm, SpectralNorm

RNG = np.random.default_rng(5)
FUNCTIONS = {
    "norm2": (Norm2(), (5,), 1.0),
    "norm3": (Pnorm(3.0), (5,), 1.0),
    "norm1.5": (Pnorm(1.5), (5,), 1.0),
    "norm2.7": (Pnorm(2.7), (5,), 1.0),
    "max": (Max(), (5,), 1.0),
    "min": (Min(), (5,), -1.0),
    "norm_inf": (NormInf(), (5,), 1.0),
    "sum_largest": (SumLargest(2.0), (5,), 1.0),
    "sum_largest, fractional": (SumLargest(2.5), (5,), 1.0),
    "dotsort": (DotSort((-0.5, 0.0, 0.0, 1.0, 2.0)), (5,), 1.0),
    "quad_over_lin": (QuadOverLin(), (4,), 1.0),
    "nuclear, wide": (NuclearNorm(), (2, 4), 1.0),
    "nuclear, tall": (NuclearNorm(), (3, 2), 1.0),
    "spectral": (SpectralNorm(), (3, 4), 1.0),
    "spectral, square": (SpectralNorm(), (3, 3), 1.0),
    "l1 ball": (Abs(), (5,), None),
    "l2 ball": (Norm2(), (5,), None),
    "squares": (Square(), (5,), None),
    "l3 ball": (Pnorm(3.0), (5,), None),
    "l1.2 ball": (Pnorm(1.2), (5,), None),
    "box": (NormInf(), (5,), None),
    "half space of the largest": (Max(), (5,), None),
    "nuclear ball": (NuclearNorm(), (3, 4), None),
    "spectral ball": (SpectralNorm(), (3, 2), None),
}
EIGENVALUES = {
    "log_det": (LogDetRule(), -1.0),
    "tr_inv": (TraceInverse(), 1.0),
    "von_neumann_entr": (VonNeumannEntropy(), -1.0),
    "lambda_max": (LambdaMax(), 1.0),
    "lambda_sum_largest": (LambdaSumLargest(2.0), 1.0),
    "cone": (None, None),
}


def agrees_with_differences(functions, u, step=0.7, h=1e-6):
    """The derivative of the prox against central differences, at random points (where it is differentiable)."""
    K, m = u.shape
    steps = np.full((K, 1), step)
    s = functions.point(u, steps)
    slopes = functions.slopes(s, u, steps)
    L = slopes.shape[-1]
    ours = np.zeros((K, m, m))
    for g in range(functions.groups):
        ours[:, g * L : (g + 1) * L, g * L : (g + 1) * L] = slopes[:, g]
    for i in range(m):
        e = np.zeros(m)
        e[i] = h
        if isinstance(functions, SpectralFunctions):  # the argument is symmetric
            d = functions.shape[0]
            e = 0.5 * (e + e.reshape(d, d).T.reshape(-1))
        change = (functions.point(u + e, steps) - functions.point(u - e, steps)) / (2 * h)
        np.testing.assert_allclose(ours @ (e / h), change, atol=2e-6)
    np.testing.assert_allclose(slopes, np.swapaxes(slopes, -1, -2), atol=1e-12)
    values = np.linalg.eigvalsh(slopes)
    assert values.min() > -1e-10
    assert values.max() < 1 + 1e-10


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("size", [0.2, 2.0, 20.0])
def test_derivatives_of_proxes(name, size):
    rule, shape, weight = FUNCTIONS[name]
    groups, L = 2, int(np.prod(shape))
    some = None if weight is None else weight * np.array([[1.0, 0.6]])
    functions = GroupFunctions(rule, groups, shape, some, None if some is not None else 1.5)
    agrees_with_differences(functions, size * RNG.normal(size=(6, groups * L)))


@pytest.mark.parametrize("name", ["max", "sum_largest"])
def test_derivatives_of_proxes_of_absolute_values(name):
    rule, shape, _ = FUNCTIONS[name]
    functions = GroupFunctions(rule, 2, shape, np.ones((1, 2)), absolute=True)
    agrees_with_differences(functions, 2.0 * RNG.normal(size=(6, 10)))


@pytest.mark.parametrize("name", EIGENVALUES)
@pytest.mark.parametrize("size", [0.2, 5.0])
def test_derivatives_of_functions_of_eigenvalues(name, size):
    rule, weight = EIGENVALUES[name]
    u = RNG.normal(size=(6, 3, 3))
    u = size * (u + np.swapaxes(u, 1, 2))
    radius = 1.0 if rule is None else None
    functions = SpectralFunctions(rule, 1, (3, 3), None if rule is None else np.array([[weight]]), radius)
    agrees_with_differences(functions, u.reshape(6, 9))


w, M = cp.Variable(6, name="w"), cp.Variable((3, 4), name="M")
P, Y = cp.Variable((3, 3), PSD=True, name="P"), cp.Variable((3, 3), symmetric=True, name="Y")
D = RNG.normal(size=(4, 6))
B = RNG.normal(size=(3, 3))
TOGETHER = {
    "l2 and l-infinity": (cp.norm(w, 2) + cp.norm_inf(w),),
    "total variation and l2 on a simplex": (cp.tv(w) + cp.norm(w, 2), w >= 0, cp.sum(w) == 1),
    "overlapping groups": (cp.norm(w[:4], 2) + 0.5 * cp.norm(w[2:], 2),),
    "sorted weights and total variation": (cp.dotsort(w, [2, 1, 0.5, 0, 0, -1]) + cp.tv(w),),
    "sorted weights of absolute values": (cp.dotsort(cp.abs(w), [2, 1, 1, 0.5, 0, 0]) + cp.norm(w, 2),),
    "length of a map": (cp.norm(D @ w - 1, 2) + cp.norm1(w),),
    "largest of a map": (cp.max(D @ w - 0.3) - cp.min(w),),
    "sum of largest and quadratic": (cp.sum_largest(w, 2) + cp.sum_squares(D @ w),),
    "largest sizes and total variation": (cp.sum_largest(cp.abs(w), 3) + cp.tv(w),),
    "largest size of a map": (cp.max(cp.abs(D @ w)) + 0.2 * cp.norm(w, 2),),
    "balls and a half space": (cp.norm1(w), cp.norm(w, 2) <= 1, w[0] + w[1] <= 0.3),
    "weighted l1 ball and a plane": (0, cp.norm1(cp.multiply([1, 2, 1, 3, 1, 1], w)) <= 2, cp.sum(w) == 0.5),
    "ellipsoid": (cp.norm1(w), cp.quad_form(w, cp.psd_wrap(D.T @ D)) <= 1),
    "ball of a map": (cp.norm_inf(w), cp.sum_squares(D @ w - 0.2) <= 2, w <= 1),
    "log-sum-exp and l1": (cp.log_sum_exp(w) + cp.norm1(w),),
    "log-sum-exp on a simplex": (cp.log_sum_exp(3 * w), w >= 0, cp.sum(w) == 1),
    "perspective and l1": (cp.quad_over_lin(w[:3], w[3] + w[4]) + cp.norm1(w),),
    "nuclear and l1": (cp.normNuc(M) + 0.5 * cp.norm1(M),),
    "nuclear and box": (cp.normNuc(M), M >= 0, M <= 1),
    "spectral and rows": (cp.sigma_max(M) + cp.sum(cp.norm(M, 2, axis=1)),),
    "spectral ball and columns": (cp.norm1(M), cp.sigma_max(M) <= 1, cp.sum(M, axis=0) == 0),
    "graphical lasso": (-cp.log_det(P) + 0.3 * cp.norm1(cp.multiply(1 - np.eye(3), P)),),
    "square of an entry and a cone": (cp.square(P[0, 1] + P[0, 0] - 1),),
    "densities": (-cp.von_neumann_entr(P) + cp.norm1(P), cp.trace(P) == 1),
    "correlations": (cp.norm1(P), cp.diag(P) == 1),
    "eigenvalues and l1": (cp.lambda_max(Y) + cp.norm1(Y),),
    "eigenvalues of a map": (cp.lambda_sum_largest(B @ Y @ B.T - np.eye(3), 2) + cp.trace(Y) ** 2,),
    "inverse and l1": (cp.tr_inv(P) + cp.norm1(P), cp.trace(P) <= 4),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_pieces_together(name):
    expression, *constraints = TOGETHER[name]
    program = strat.compile(expression, constraints=constraints)
    oracle = pickle.loads(pickle.dumps(program.bind()))
    assert "dual method" in oracle.flat.prox.kind
    (x,) = program.variables
    steps = np.array([0.1, 1.0, 10.0, 1.0, 0.3])
    v = 2 * RNG.normal(size=(5, *x.shape))
    v[3] = 0.0
    v = 0.5 * (v + np.swapaxes(v, 1, 2)) if x.is_symmetric() and x.ndim == 2 else v
    z = oracle.prox({x.name(): v}, steps)
    reference = prox_by_cvxpy(program.expression, program.variables, {x.name(): v}, steps, constraints)
    assert_same_prox(oracle, program.variables, z, {x.name(): v}, steps, reference, constraints, 1e-6, 1e-8)
    alone = oracle.prox({x.name(): v[1:2]}, 1.0)[x.name()]
    np.testing.assert_allclose(alone[0], z[x.name()][1], atol=1e-8)


def test_rounding_does_not_carry_a_prox_out_of_the_domain():
    program = strat.compile(cp.quad_over_lin(w[:3], w[3] + w[4]) + cp.norm1(w))
    oracle, v = program.bind(), 2 * np.random.default_rng(0).normal(size=(400, 6))
    z = oracle.prox(v, 1.0)
    assert np.mean(z[:, 3] + z[:, 4] < 1e-9) > 0.1  # many lie on its boundary
    assert np.isfinite(oracle.value(z)).all()
