"""Random convex expressions against CVXPY: nothing crashes, nothing differs, and what is refused says why.

STRAT_RANDOM=20000 runs that many instead of 500; STRAT_SEED moves the start.
"""

import os

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_derivatives, assert_same_prox, directions, prox_by_cvxpy, saved, values_at
from random_expressions import Maker, assert_every

import strat

COUNT, FIRST = int(os.environ.get("STRAT_RANDOM", 500)), int(os.environ.get("STRAT_SEED", 0))
CHUNK = 25
STEPS = np.array([0.1, 1.0, 10.0])


def declared(seed):
    """A maker, its expression and its program, or the package's refusal."""
    made = Maker(seed, with_data=seed % 5 < 3)
    expression = made.expression()
    program = strat.compile(expression, data=made.data_of(expression))
    arrays = [made.arrays[p.name()] for p in program.data]
    options = {"strata": made.index, "strata_order": range(made.K)} if arrays else {}
    return made, expression, program, program.bind(*arrays, **options), arrays


def check(seed):
    """Compare one random expression with CVXPY; True if it was compiled, False if it was refused."""
    try:
        made, expression, program, oracle, arrays = declared(seed)
    except strat.StratError as error:
        assert len(str(error)) > 40
        return False
    point = {v.name(): made.theta[v.name()] for v in program.variables}
    value = oracle.value(point)
    wanted = values_at(expression, program.variables, point, program.data, arrays, made.index)
    assert not np.isnan(value).any()
    inside = np.isfinite(wanted) & np.isfinite(value)
    np.testing.assert_allclose(value[inside], wanted[inside], rtol=1e-9, atol=1e-9)
    for k in np.flatnonzero(~inside):
        agree = np.isfinite(value[k]) == np.isfinite(wanted[k])
        assert agree or outside(made, expression, program, arrays, point, k)
    if oracle.flat.has("value_and_gradient"):
        assert_derivatives(oracle, program.variables, point, made.rng, second=False)
    if seed % 10 in (0, 5, 8) and oracle.flat.has("prox"):
        check_prox(made, expression, program, oracle, arrays)
    return True


def outside(made, expression, program, arrays, point, k):
    """Whether stratum k's point violates the domain, which CVXPY's own value does not always say."""
    rows = np.flatnonzero(made.index == k) if program.data else [None]
    for i in rows:
        leaves = {v: point[v.name()][k] for v in program.variables}
        leaves |= {p: a[i] for p, a in zip(program.data, arrays, strict=True)}
        saved(leaves.items())
        bad = any(np.max(c.violation()) > 0 for c in expression.domain)
        saved((leaf, None) for leaf in leaves)
        if bad:
            return True
    return False


def check_prox(made, expression, program, oracle, arrays):
    v = directions(program.variables, 3, made.rng)
    for part in v.values():
        part[1] = 0.0
    try:
        z = oracle.prox(v, STEPS)
    except strat.StratError as error:
        assert len(str(error)) > 40
        return
    try:
        given = (), program.data, arrays, made.index
        reference = prox_by_cvxpy(expression, program.variables, v, STEPS, *given)
    except cp.error.SolverError:
        reference = None
    # A cone solver is right in the objective; where that is flat, less so in the point.
    gap = 1e-7 if "cone program" in oracle.flat.prox.kind else 1e-11
    assert_same_prox(oracle, program.variables, z, v, STEPS, reference, (), 2e-5, 1e-7, gap)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
@pytest.mark.filterwarnings("ignore::strat.DataWarning")
def test_random_expressions_are_cvxpys(first):
    assert_every(check, first, CHUNK, 0.6)
