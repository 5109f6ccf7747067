"""ADMM for a given graph and any loss with a prox: copies of the parameters are made to agree."""

import math
from dataclasses import dataclass

import numpy as np

from strat.solvers.algorithm import Algorithm
from strat.solvers.base import Solver
from strat.solvers.newton_system import GraphSystem

RELAXATION = 1.6  # over-relaxation (Boyd et al. 2011, section 3.4.3)
FIRST = 5  # iterations before the penalty is first reconsidered; each later interval is half as long again
UNBALANCED = 2.0  # the penalty is changed where it is wrong by more than this factor
#: A gradient residual above this many times the primal and dual ones means that theta is at an edge of the loss's domain.
AT_EDGE = 1e3
RANGE = 1e8  # the penalty stays within this factor of its first value


@dataclass(kw_only=True, eq=False, repr=False)
class ADMM(Solver):
    """Alternating direction method of multipliers for a given graph, with exact proxes of loss and regularizer.

    It needs no gradient: pinball, absolute, hinge and epsilon-insensitive losses are fitted as they are. Loss,
    regularizer and graph each have a copy of the parameters; the copies are brought to agree. Penalty, relaxation and
    factorisations need no tuning. The returned point is the regularizer's copy, on which bounds, symmetry, cones and
    constraints hold exactly; the history holds the objective there, which may rise between iterations. Columns that
    are far from 0 relative to their spread take many iterations, as proxes cannot centre them.

    The fit has converged when the relative primal and dual residuals and the reported one are at most `tol`. Where the
    loss has a gradient, the reported residual is defined as for every other solver. Where it has none, a subgradient
    takes the gradient's place, and the residual also bounds the gap to the optimum: see Notes.

    Parameters
    ----------
    tol : float
        Relative and absolute tolerance of the residuals; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    Notes
    -----
    For a loss without a gradient, one prox gives a point theta' next to the returned theta and a subgradient g of the
    loss there. ``result_.residual["theta"]`` is the larger of ||theta - prox_r(theta - g - G(W) theta)|| /
    (1 + max(||g||, ||G(W) theta||)) and (loss(theta) - loss(theta') - <g, theta - theta'>) / (1 + abs(objective)).

    References
    ----------
    J. Tuck, S. Barratt and S. Boyd, "A distributed method for fitting Laplacian regularized stratified models",
    Journal of Machine Learning Research, 2021.

    S. Boyd, N. Parikh, E. Chu, B. Peleato and J. Eckstein, "Distributed optimization and statistical learning via the
    alternating direction method of multipliers", Foundations and Trends in Machine Learning, 2011.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> q, y = cp.Variable(name="q"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.maximum(0.9 * (y - q), 0.1 * (q - y)), data=(y,))  # the 0.9 quantile
    >>> model = strat.lrsm(base, strat.graphs.path(2, weight=0.1), solver=strat.ADMM(tol=1e-8))
    >>> model.fit([1.0, 2.0, 3.0, 5.0, 9.0], strata=[0, 0, 0, 1, 1]).theta_["q"].round(3)
    array([6., 9.])
    """

    max_iter: int = 10000
    needs = {"loss": "prox", "regularizer": "prox"}
    ways = {
        "loss": (
            "Write the loss as one function with a known prox, or give the default solver a gradient: smoothing=1e-3 on "
            "the BaseModel rounds the kinks of numbers and of cp.norm(u, 2); for a maximum of several numbers write "
            "d * cp.log_sum_exp(u / d) with a small d"
        )
    }

    learns_graphs = False

    def _algorithm(self, problem, theta, w):
        return Consensus(problem, theta, w)


class Consensus(Algorithm):
    """ADMM for a given graph: one copy of the parameters for the loss, one for the regularizer, one for the graph.

    theta = prox_{l/rho}(mean - y/rho), x = prox_{r/rho}(mean - z/rho), (G(w) + 2 rho I) mean = rho (theta + x) + y + z,
    y += rho (theta - mean), z += rho (x - mean), with theta and x over-relaxed. The iterate is x; where the loss is
    infinite there, it is the projection of theta. rho balances the relative primal and dual residuals and is reconsidered
    ever more rarely, so that it settles. Starting y at minus the gradient of the loss, or z at that of the regularizer,
    makes an optimal start a fixed point.
    """

    monotone = False
    saved = ("theta", "mean", "y", "z", "rho", "first_rho", "wait", "interval", "primal", "dual", "started")
    saved += ("start.state",)

    def __init__(self, problem, theta, w):
        super().__init__(problem, theta, w)
        self.system = GraphSystem(problem, w)
        self.theta, self.mean = self.x.theta.copy(), self.x.theta.copy()
        self.started = False
        product = self.x.product
        self.y = self._first_dual(product)
        self.z = product - self.y  # y + z = G(w) mean, as after every iteration
        self.rho = self.first_rho = self._first_rho()
        self.wait = self.interval = FIRST
        self.primal = self.dual = np.inf

    def _first_dual(self, product):
        if self.problem.loss.has("value_and_gradient"):
            gradient = self.problem.loss.value_and_gradient(self.x.theta)[1]
            if np.linalg.norm(gradient) < 1e3 * (1 + np.linalg.norm(product) + self.x.theta.size):
                return -gradient
        if self.problem.regularizer.has("value_and_gradient"):
            return product + self.problem.regularizer_slope(self.x.theta)
        return 0.5 * product

    def _first_rho(self):
        """A first penalty from curvatures: that of the graph and, if known, that of the loss along y."""
        guess = float(np.mean(self.x.laplacians.degrees)) / 2 or 1.0
        loss = self.problem.loss
        if loss.has("hessian_operator") and np.any(self.y):
            along = loss.hessian_operator(self.x.theta)(self.y)
            curvature = float(np.vdot(self.y, along) / np.vdot(self.y, self.y))
            if 0 < curvature < np.inf:  # where an exponential is almost flat, there is next to none
                guess = max(math.sqrt(curvature * max(guess, 0.1 * curvature)), guess / RANGE)
        return guess

    def step(self):
        rho, x = self.rho, self.x
        theta = self._loss_prox(self.mean - self.y / rho, 1 / rho)
        regular = self.problem.prox(self.mean - self.z / rho, 1 / rho, self.start)
        # The iterate is consistent at all times, as Ctrl-C may interrupt anywhere.
        self.theta, x.theta, self.started, self.differentiated = theta, regular, True, False
        first = RELAXATION * theta + (1 - RELAXATION) * self.mean
        second = RELAXATION * regular + (1 - RELAXATION) * self.mean
        mean = self.system.solve(rho * (first + second) + self.y + self.z, rho, self.mean)
        self.y += rho * (first - mean)
        self.z += rho * (second - mean)
        # Relative primal residual (how far the copies disagree) and dual residual (how far their subgradients do not balance).
        floor = math.sqrt(2 * mean.size)
        copies = math.hypot(np.linalg.norm(theta), np.linalg.norm(regular))
        apart = math.hypot(np.linalg.norm(theta - mean), np.linalg.norm(regular - mean))
        self.primal = apart / (floor + max(copies, math.sqrt(2) * np.linalg.norm(mean)))
        moved = rho * math.sqrt(2) * np.linalg.norm(mean - self.mean)
        self.dual = moved / (floor + math.hypot(np.linalg.norm(self.y), np.linalg.norm(self.z)))
        self.mean = mean
        if not x.evaluate().objective < np.inf:  # the loss's own copy is in its domain
            x.theta = self.problem.project(theta)
            x.evaluate()
        self.wait -= 1
        if self.wait <= 0:  # rho is multiplied by the root of the ratio of the residuals
            self.interval += max(self.interval // 2, 1)
            self.wait = self.interval
            factor = math.sqrt((self.primal + 1e-300) / (self.dual + 1e-300))
            if not 1 / UNBALANCED < factor < UNBALANCED:
                rho = rho * min(max(factor, 0.1), 10.0)
                self.rho = min(max(rho, self.first_rho / RANGE), self.first_rho * RANGE)

    def _loss_prox(self, v, t):
        """The loss's prox; where it is iterative, it is warm started from the last one."""
        prox = self.problem.loss.prox
        return prox.near(v, t, self.theta) if self.started and hasattr(prox, "near") else prox(v, t)

    def residual(self, tol):
        """Residual of x, or None where the copies are known not to agree yet."""
        if not tol or max(self.primal, self.dual) > tol:
            return None
        residual = self.certificate(self.x.theta, self.x.w)
        return {**residual, "theta": max(residual["theta"], self.primal, self.dual)}

    def certificate(self, theta, w):
        """The residual that is reported for a point."""
        residual = {"theta": np.inf, "W": 0.0}
        if self.problem.loss.has("value_and_gradient"):
            residual = self.problem.residual(theta, w)
        if residual["theta"] <= AT_EDGE * max(self.primal, self.dual):
            return residual
        # At the edge of the loss's domain the gradient is only one of many subgradients.
        return min(residual, self.subgradient_residual(theta, w), key=lambda one: one["theta"])

    def subgradient_residual(self, theta, w):
        """The residual of `JointProblem.residual` for a given graph, with a subgradient g in the gradient's place.

        The loss's prox at theta - t y, t = 1/rho, gives an exact subgradient g at a nearby point. `gap` is how far the loss
        at theta lies above its linear lower bound with slope g. F(theta) is at most gap + ||r|| ||theta - theta*|| above
        the minimum, where r is the residual step in units of gradients.
        """
        problem, loss = self.problem, self.problem.loss
        nearby = self._loss_prox(theta - self.y / self.rho, 1 / self.rho)
        g = self.rho * (theta - nearby) - self.y
        product = problem.laplacians(w).times(theta)
        step = theta - problem.prox(theta - g - product, 1.0)
        size = 1 + max(np.linalg.norm(g), np.linalg.norm(product))
        gap = float(np.sum(loss.value(theta)) - np.sum(loss.value(nearby)) - np.vdot(g, theta - nearby))
        share = gap / (1 + abs(problem.objective(theta, w)))
        return {"theta": float(max(np.linalg.norm(step) / size, share)), "W": 0.0}
