"""Fits with regularizers and constraints that have no closed prox, against one CVXPY solve of all strata."""

import cvxpy as cp
import numpy as np
import pytest
from compounds import COMPOUNDS, LOSSES, declared, graph, records, stacked

import strat

K = 5
#: Clarabel's tolerances, from the most accurate to those that it always meets.
TOLERANCES = (1e-10, 1e-8, 1e-7)


def optimum(problem):
    """The optimal value, at the smallest tolerance that Clarabel meets."""
    for tolerance in TOLERANCES:
        problem.solve(cp.CLARABEL, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance))
        if problem.status == cp.OPTIMAL:
            break
    assert problem.status == cp.OPTIMAL
    return problem.solution.opt_val


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("row", COMPOUNDS, ids=[row.name for row in COMPOUNDS])
def test_fits_reach_the_optimum_of_the_stacked_problem(row, loss):
    data, g = records(row, loss, K), graph(K)
    problem, V = stacked(row, loss, g, *data)
    best = optimum(problem)
    value = problem.objective.value
    # Outside the domain of a logarithm by rounding, the expression is infinite.
    assert value == pytest.approx(best, rel=1e-6) or np.isinf(value)

    model = strat.lrsm(declared(row, loss), g).fit(*data[:2], strata=data[2])

    assert model.strata_ == list(range(K))
    V.save_value(model.theta_["w"].reshape(K, -1))
    assert max((np.max(c.violation()) for c in problem.constraints), default=0) <= 1e-6
    assert problem.objective.value == pytest.approx(best, rel=1e-6)
    assert model.result_.objective == pytest.approx(problem.objective.value, rel=1e-8)


def test_names_are_unique():
    assert len({row.name for row in COMPOUNDS}) == len(COMPOUNDS) >= 22
