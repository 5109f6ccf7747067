"""Strata without records: edges and the regularizer alone determine them; in raw units, the others' losses hide these terms."""

import warnings

import numpy as np

from strat.errors import ConvergenceWarning
from strat.oracles.base import Quadratic
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.problem.laplacians import Laplacians

EXACT = 1e-6  # a prox step of a stratum that moves its parameters by less than this share of their largest values is nothing
TOL = 1e-10  # tolerance of the empty strata's fit
MANY = 2**24  # most numbers in the blocks of its Hessian


def rejoined(problem, result):
    """Theta with the strata that a learned graph joins to no records moved to a neighbour's parameters; None if nothing moves.

    If the first steps leave such strata far behind, their edges are cut early, and then nothing joins them again.
    """
    edges, empty, theta = problem.edges, problem.empty, result.theta.copy()
    component = edges.components(result.w)[1]
    lost = ~np.isin(component, component[~empty])
    if empty.all() or not lost.any():
        return None
    weight, (i, j) = np.tile(problem.w0, 2), np.concatenate([edges.ends, edges.ends[::-1]], axis=1)
    for used in (weight > 0, weight >= 0):  # along the prior graph's edges first, spreading outwards
        while (front := np.flatnonzero(used & lost[i] & ~lost[j])).size:
            # The strongest edge of a stratum comes last, so that it decides.
            front = front[np.argsort(weight[front], kind="stable")]
            theta[i[front]], lost[i[front]] = theta[j[front]], False
    return None if np.array_equal(theta, result.theta) else theta


def fill(problem, result, tol, choose):
    """Minimise F over theta in the strata without records, the others and W being fixed, and update the result.

    minimise over theta_k, k empty:  sum_k r(theta_k) + 1/2 sum_e w_e d_e(theta)

    Without r each is the mean of its neighbours, which convex constraints allow. Otherwise ``choose(loss, learned, regularizer)``
    gives the solver. Nothing is changed if each of them is optimal already given the others, or if W would no longer be.
    """
    theta, w, empty = result.theta, result.w, problem.empty
    if not 0 < empty.sum() * problem.n**2 <= MANY or empty.all():
        return
    inner = _among(problem, theta, w, empty)
    x = inner.point(theta[empty], inner.w0).differentiate()
    given, shift = inner.given, inner.loss.H.diagonal(axis1=1, axis2=2)
    step = 1 / (given.degrees + shift).max(axis=1)
    moved = inner.prox(x.theta - step[:, None] * x.theta_gradient, step) - x.theta
    if (np.abs(moved).max(axis=0) <= EXACT * np.abs(theta).max(axis=0)).all():
        return
    # The minimiser of the edges' terms: every stratum is the mean of its neighbours.
    means, pull = np.empty(shift.shape), -inner.loss.g
    for kind in range(given.kind.max() + 1):
        (alike,) = np.nonzero(given.kind == kind)
        solve = given.solver(alike[0], shift[:, alike[0]])
        means[:, alike] = pull[:, alike] / shift[:, alike] if solve is None else solve(pull[:, alike])
    means = inner.point(inner.project(means), inner.w0)
    best = min(x, means, key=lambda point: point.objective)
    if inner.regularizer_values(best.theta).any():
        solver = choose(inner.loss, False, inner.regularizer).set_params(tol=TOL)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            best = min(best, solver._run(inner, best.theta, inner.w0), key=lambda point: point.objective)
    theta = theta.copy()
    theta[empty] = best.theta
    if problem.learned:
        left = problem.point(theta, w).differentiate_w().w_residual()
        if left > max(tol, result.residual["W"]):
            return
        result.residual["W"] = left
    result.theta, result.parts = theta, problem.parts(theta, w)
    result.objective = sum(result.parts.values())


def _among(problem, theta, w, empty):
    """The problem in the empty strata alone, whose loss is the energy of their edges to the other strata."""
    laplacians, (i, j), place = problem.laplacians(w), problem.edges.ends, np.cumsum(empty) - 1
    within, n = empty[i] & empty[j], problem.n
    couple = laplacians.couple if laplacians.alike else laplacians.couple[within]
    edges, w = EdgeList(int(empty.sum()), place[i[within]], place[j[within]]), w[within]
    # 1/2 sum_j w_kj ||theta_k - theta_j||^2 over the strata j with records, up to a constant.
    degrees = laplacians.degrees[empty] - Laplacians(edges, w, couple).degrees
    slope = laplacians.times(np.where(empty[:, None], 0.0, theta))[empty]
    least = 1e-13 * laplacians.degrees[empty] + 1e-300  # where no edge leads to strata with records
    loss = Quadratic(np.zeros(len(slope)), slope, np.maximum(degrees, least)[:, :, None] * np.eye(n))
    return JointProblem(loss, problem.regularizer, FixedGraph(), edges, w, couple)
