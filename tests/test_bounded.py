"""Bounds on sums of functions whose weighted prox is known: against CVXPY."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.compiler.bounded import Bounded

n = 6
w, y, M = cp.Variable(n, name="w"), cp.Variable(name="y"), cp.Variable((3, 2), name="M")
STEPS = np.array([0.01, 0.5, 3.0, 100.0])
CASES = {
    "two norms": (0 * w[0], [cp.norm1(w) + cp.norm(w, 2) <= 2]),
    "nothing is left": (0 * w[0], [cp.norm1(w) + cp.norm(w, 2) <= 0]),
    "norm and squares": (0 * w[0], [cp.norm1(w) + cp.sum_squares(w) <= 3]),
    "huber": (0.3 * cp.sum_squares(w), [cp.sum(cp.huber(w)) <= 1]),
    "linear part in a box": (0 * w[0], [cp.norm1(w) + w[0] - w[1] <= 1, w >= -0.3]),
    "fused lasso bounds a norm": (cp.norm1(w), [cp.tv(w) + cp.norm1(w) <= 1.5]),
    "groups": (cp.norm(w[:2], 2), [cp.norm(w[:2], 2) + cp.norm(w[2:], 2) <= 1]),
    "beside another variable": (cp.abs(y - 1) + cp.sum_squares(M), [cp.tv(w) <= 1]),
    "slack": (cp.norm1(w), [cp.norm1(w) + cp.norm(w, 2) <= 1e4]),
}


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("name", CASES)
def test_proxes_are_cvxpys(name, scale):
    expression, constraints = CASES[name]
    program = strat.compile(expression, constraints=constraints)
    oracle, rng = pickle.loads(pickle.dumps(program.bind())), np.random.default_rng(0)
    v = {x.name(): scale * rng.normal(size=(4, *x.shape)) for x in program.variables}
    assert any(isinstance(block, Bounded) for block in oracle.flat.prox.blocks)
    z = oracle.prox(v, STEPS)
    reference = prox_by_cvxpy(expression, program.variables, v, STEPS, constraints)
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, constraints, 1e-6)


def test_a_bound_that_cannot_hold_is_said_to_be_the_trouble():
    program = strat.compile(cp.norm1(w), constraints=[cp.norm1(w) + cp.sum_squares(w - 1) <= 0.5])
    with pytest.raises(strat.NoOracleError, match="constraints can be satisfied"):
        program.bind().prox({"w": np.zeros((1, n))}, 1.0)


def test_bounds_on_the_largest_entry_beside_absolute_values():
    """The absolute values act first: what shrinks afterwards would lead inside."""
    f, limits = 0.3 * cp.norm1(w), [w >= -0.5, cp.max(w) <= 0.4, cp.sum_largest(w, 2) <= 0.7]
    for some in (limits[:2], limits[::2]):
        program = strat.compile(f, constraints=some)
        v = {"w": 1.5 * np.random.default_rng(0).normal(size=(4, n))}
        oracle = program.bind()
        reference = prox_by_cvxpy(f, program.variables, v, STEPS, some)
        assert_same_prox(oracle, program.variables, oracle.prox(v, STEPS), v, STEPS, reference, some, 1e-6)
