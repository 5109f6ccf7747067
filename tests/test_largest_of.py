"""The larger of convex functions: its prox against CVXPY, the derivative of that, and rows that are orthogonal."""

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.compiler.larger import Larger
from strat.oracles import kernels
from strat.oracles.bracketing import decreasing_root
from strat.oracles.largest_of import LargestOf, threshold
from strat.oracles.prox_orthogonal import OrthogonalRows
from strat.oracles.prox_rows import RowsProx

n, K = 6, 5
w, M = cp.Variable(n, name="w"), cp.Variable((2, 3), name="M")
D = np.random.default_rng(3).normal(size=(4, n))
STEPS = np.array([0.05, 0.4, 1.0, 4.0, 30.0])
#: The larger of two: a root for each stratum, of weighted sums.
LARGER = {
    "two norms": (cp.maximum(cp.norm(w, 2), cp.norm1(w) / 2), []),
    "a norm and a bound": (cp.pos(cp.norm(w, 2) - 1) + 0.1 * cp.norm1(w), []),
    "of a map": (cp.maximum(cp.norm1(D @ w - 0.3), 2 * cp.norm(w, 2)), []),
    "smaller of concave": (-2 * cp.minimum(3 - cp.norm1(w), w[0] - cp.norm(w[1:], 2)), []),
    "on a simplex": (cp.maximum(cp.norm(w, 2), cp.norm(w - 1, 2) / 3), [w >= 0, cp.sum(w) == 1]),
    "beside a largest entry": (cp.maximum(cp.norm1(w), cp.norm(D @ w, 2)) + cp.norm_inf(w), []),
    "of other variables than others": (
        cp.maximum(cp.norm(M, "fro"), cp.norm(w[:2], 2)) + 0.2 * cp.sum_squares(w) + 2 * M[0, 0],
        [w >= -0.5],
    ),
    "with a domain": (-cp.minimum(cp.sum(cp.entr(w)), 3 - cp.norm1(w)), []),
    "with a kink at 0": (cp.maximum(cp.sum(cp.logistic(w)) + cp.norm1(w), cp.sum_squares(w)), []),
}
LARGEST = {
    "three norms that overlap": (
        cp.max(cp.hstack([cp.norm(w[:3], 2), cp.norm1(w[2:5]), cp.norm_inf(w[3:])])),
        [],
    ),
    "square, linear, constant": (cp.maximum(cp.sum_squares(w) / 4, cp.sum(w), 1 + w[0], 0.5), [w >= -1]),
    "of maps": (cp.maximum(cp.norm1(D @ w - 0.3), 2 * cp.norm(w, 2), cp.norm_inf(D @ w)), []),
    "smallest of concave": (-2 * cp.minimum(3 - cp.norm1(w), w[0] - cp.norm(w[1:], 2), w[1]), []),
    "several entries": (cp.sum(cp.maximum(cp.norm(M, 2, axis=0), cp.norm1(M[0]))), []),
    "three on a simplex": (
        cp.maximum(cp.norm(w, 2), cp.norm(w - 1, 2) / 3, cp.norm1(w - 0.3)),
        [w >= 0, cp.sum(w) == 1],
    ),
    "two of them": (cp.pos(cp.norm(w, 2) - 1) + cp.maximum(cp.norm1(w), w[0] + w[1]), []),
    "maxima in a maximum": (cp.maximum(cp.norm(w, 2), 2 * cp.maximum(cp.norm1(w) / 4, 0.5) + w[0]), []),
}
ORTHOGONAL = {
    "largest column sum": cp.norm(M, 1),
    "largest norm of a column": cp.max(cp.norm(M, 2, axis=0)) + 0.3 * cp.sum_squares(M) + cp.sum(M[0]),
    "one row": 2 * cp.abs(D[0] @ w - 1),
    "norm of a rotation": cp.norm(np.linalg.qr(D.T)[0].T @ w, 2),
    "slices": cp.maximum(cp.norm(w[:2], 2), cp.maximum(cp.norm1(w[2:]), 1)),
}


def points(program):
    rng = np.random.default_rng(0)
    return {v.name(): 2 * rng.normal(size=(K, *v.shape)) for v in program.variables}


@pytest.mark.parametrize("name", [*LARGER, *LARGEST])
def test_proxes_are_cvxpys(name):
    expression, constraints = (LARGER | LARGEST)[name]
    program = strat.compile(expression, constraints=constraints)
    oracle, v = program.bind(), points(program)
    z = oracle.prox(v, STEPS)
    (block,) = (b for b in oracle.flat.prox.blocks if isinstance(b, (RowsProx, Larger)))
    assert isinstance(block, Larger if name in LARGER and kernels.compiled else (RowsProx, Larger))
    reference = prox_by_cvxpy(expression, program.variables, v, STEPS, constraints)
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, constraints, 1e-6)
    one = oracle.prox({key: value[:1] for key, value in v.items()}, STEPS[0])
    for key in z:
        np.testing.assert_allclose(one[key][0], z[key][0], atol=1e-9)


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_orthogonal_rows_carry_over_the_prox(name):
    expression = ORTHOGONAL[name]
    program = strat.compile(expression)
    oracle, v = program.bind(), points(program)
    assert any(isinstance(block, OrthogonalRows) for block in oracle.flat.prox.blocks)
    z = oracle.prox(v, STEPS)
    reference = prox_by_cvxpy(expression, program.variables, v, STEPS, [])
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, [], 1e-7)


@pytest.mark.parametrize("name", LARGEST)
def test_curvature_is_the_derivative(name):
    expression, constraints = LARGEST[name]
    prox = strat.compile(expression, constraints=constraints).bind().flat.prox
    rng, rate = np.random.default_rng(1), np.full(60, 0.7)
    for term in prox.blocks[0].terms:
        if not isinstance(term.functions, LargestOf):
            continue
        z = 2 * rng.normal(size=(60, n))

        def gradient(z, term=term):
            u = term.design.matvec(z) + term.offset
            sigma = np.broadcast_to(term.penalties(rate), u.shape)
            s, memo = term.functions.prox(u, 1 / sigma)
            return term.design.rmatvec(sigma * (u - s)), s, memo

        _, s, memo = gradient(z)
        curvature, d = term.curvature(s, memo, rate), 1e-6 * rng.normal(size=z.shape)
        change = (gradient(z + d)[0] - gradient(z - d)[0]) / 2
        error = np.abs(np.matmul(curvature, d[..., None])[..., 0] - change).max(axis=1)
        assert np.median(error) < 1e-14
        assert np.mean(error > 1e-11) <= 0.05  # points at kinks


def test_a_threshold_shares_the_total_out():
    rng = np.random.default_rng(0)
    value, fall = rng.normal(size=(50, 4)), rng.uniform(0, 2, size=(50, 4))
    fall[:10, 0] = 0.0
    level, total = rng.uniform(size=(50, 4)), rng.uniform(0.1, 2, size=50)
    for least in (-np.inf, 0.8):
        new, top = threshold(value, fall, level, total, least)
        model = value - fall * (new - level)
        free = (top > least) & (fall[:, 0] > 0)
        assert (new >= 0).all()
        assert (model <= top[:, None] + 1e-9).all()
        np.testing.assert_allclose(
            model[new > 1e-9], np.broadcast_to(top[:, None], new.shape)[new > 1e-9], atol=1e-9
        )
        np.testing.assert_allclose(new.sum(axis=1)[free], total[free], rtol=1e-12)
        assert (new.sum(axis=1) <= total * (1 + 1e-12)).all()


def test_weights_and_steps():
    v, f = points(strat.compile(LARGER["two norms"][0]))["w"], LARGER["two norms"][0]
    one, three, none = (strat.compile(weight * f).bind().flat.prox for weight in (1.0, 3.0, 0.0))
    np.testing.assert_allclose(one(v, 3.0), three(v, 1.0), atol=1e-10)
    np.testing.assert_allclose(none(v, 1.0), v, atol=1e-12)


def test_roots_of_decreasing_functions():
    places = np.array([-0.5, 0.0, 1e-9, 1e-30, 0.2, 0.5, 0.999999, 1.0, 1.7])
    for shape in (
        lambda d: -d,
        lambda d: -np.sign(d) * d**2,
        lambda d: -np.sign(d),
        lambda d: 1e3 * np.expm1(-d),
    ):
        last = np.full(len(places), np.nan)

        def function(x, which, shape=shape, last=last):
            last[which] = x
            return shape(x - places[which]), np.full(len(which), 1e-15)

        assert decreasing_root(function, len(places)).all()
        np.testing.assert_allclose(last, np.clip(places, 0, 1), atol=1e-7)
