"""Increasing functions of convex ones: their prox against CVXPY."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.compiler.composed import Composed

n = 6
w, V, M = cp.Variable(n, name="w"), cp.Variable((2, 3), name="V"), cp.Variable((3, 2), name="M")
STEPS = np.array([0.1, 0.7, 3.0, 20.0])
CASES = {
    "square of a norm": (cp.square(cp.norm1(w)), []),
    "exclusive lasso": (cp.sum(cp.square(cp.norm(V, 1, axis=1))), []),
    "exponential": (2 * cp.exp(cp.norm(w, 2) - 1), []),
    "cube and a norm": (cp.power(cp.norm(w, 2), 3) + 0.1 * cp.norm1(w), []),
    "huber in a box": (cp.huber(cp.norm1(w)), [w >= -1]),
    "logistic on a plane": (cp.logistic(cp.norm1(w) - 1), [cp.sum(w) == 1]),
    "barrier": (-cp.log(3 - cp.norm1(w)), []),
    "reciprocal": (cp.inv_pos(5 - cp.norm(w, 2) + 0.1 * w[0]), []),
    "reciprocal of a root": (cp.inv_pos(cp.sqrt(cp.sum(w) - 1)), []),
    "largest": (cp.square(cp.sum_largest(cp.abs(w), 3)), []),
    "singular values": (cp.square(cp.normNuc(M)) + cp.sum_squares(M), []),
}


@pytest.mark.parametrize("name", CASES)
def test_proxes_are_cvxpys(name):
    expression, constraints = CASES[name]
    program = strat.compile(expression, constraints=constraints)
    oracle, rng = pickle.loads(pickle.dumps(program.bind())), np.random.default_rng(0)
    v = {x.name(): 1.5 * rng.normal(size=(4, *x.shape)) for x in program.variables}
    assert any(isinstance(block, Composed) for block in oracle.flat.prox.blocks)
    z = oracle.prox(v, STEPS)
    reference = prox_by_cvxpy(expression, program.variables, v, STEPS, constraints)
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, constraints, 1e-6)
    for key, value in oracle.prox({key: value[2:3] for key, value in v.items()}, 3.0).items():
        np.testing.assert_allclose(value[0], z[key][2], atol=1e-7)


def test_domains_of_functions_of_functions_are_kept():
    x = cp.Variable(name="x")
    expression = -cp.log(4 - cp.square(x - 1)) + 0.1 * cp.exp(x)
    program = strat.compile(expression)
    v = {"x": np.array([-3.0, 0.5, 2.8, 5.0])}
    oracle = program.bind()
    z = oracle.prox(v, STEPS)
    assert np.isfinite(oracle.value(z)).all()
    reference = prox_by_cvxpy(expression, program.variables, v, STEPS, [])
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, [], 1e-6)
