"""NewtonCG: optima against CVXPY, invariants, options."""

import numpy as np
import pytest
from handmade import Box, LeastSquares, Logistic, Norm1, Ridge

from strat.edges import AllPairs, EdgeList
from strat.errors import OptionError
from strat.graph_regularizers import FixedGraph, LogDet
from strat.problem import JointProblem
from strat.solvers import MAPG, NewtonCG


def problem(loss=Logistic, regularizer=None, h=None, K=8, edges=None, couple=None):
    rng = np.random.default_rng(0)
    stratum = rng.integers(K - 1, size=60)  # the last stratum has no record
    X, y = rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], size=60)
    edges = EdgeList(K, range(K - 1), range(1, K)) if edges is None else edges
    w0 = edges.from_vector(rng.random(edges.count))
    return JointProblem(
        loss(X, y, stratum, K), regularizer or Norm1(0.2), h or FixedGraph(), edges, w0, couple
    )


def solve(p, solver=NewtonCG, **options):
    return solver(**options).run(p, p.prox(np.zeros((p.K, p.n)), 1.0), p.w0)


@pytest.mark.parametrize("couple", [None, np.array([1.0, 0.0, 3.0])])
@pytest.mark.parametrize("loss", [Logistic, LeastSquares])
@pytest.mark.parametrize("regularizer", [Norm1(0.5), Ridge(0.5), Box(-0.3, 0.2)])
@pytest.mark.parametrize("edges", [None, AllPairs(8)])
def test_the_optimum_of_another_method(regularizer, loss, couple, edges):
    p = problem(loss, regularizer, couple=couple, edges=edges)
    result, other = solve(p, tol=1e-9), solve(p, MAPG, tol=1e-9)
    assert result.status == "converged" and max(result.residual.values()) <= 1e-9
    assert result.objective == pytest.approx(other.objective, rel=1e-12)
    if couple is None:  # otherwise the last stratum is not determined
        assert result.theta == pytest.approx(other.theta, abs=1e-7)
    assert np.all(np.diff(result.history) <= 0)


def test_a_learned_graph_is_an_error_that_names_mapg():
    with pytest.raises(
        OptionError, match=r"NewtonCG fits theta for a given graph.*learns W.*strat\.MAPG\(\)"
    ):
        solve(problem(h=LogDet(0.5, 0.2, 0.1, 0.2), edges=AllPairs(8)))
