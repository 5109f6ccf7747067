"""The default iteration of MAPG: it finds its own steps, and takes a Newton step in theta every few iterations."""

import math
import time

import numpy as np

from strat.oracles.base import Quadratic
from strat.problem.joint_problem import OF_W, JointProblem
from strat.solvers.algorithm import Algorithm, for_given_graph, needs_cones
from strat.solvers.base import Solver
from strat.solvers.metric import EdgeMetric, StrataMetric
from strat.solvers.proximal_newton import RIDGE, ProximalNewton
from strat.solvers.result import Result

DECREASE = 1e-4  # z is accepted if F(z) <= F(x) - DECREASE/2 ||z - y||^2 in the metric of the step
HEAVY = 1e-4  # with more damping of Newton steps, theta does not catch up where it is behind
FAR, LATE = 1e3, 5  # nor after LATE steps with little gain, if the residual of theta is FAR times that of W
LITTLE = 1e-9  # a gain of at most this share of F is little
BEHIND = 30.0  # theta is behind W where its residual is this many times that of W
WORTH = 0.05  # a Newton step pays if it gains at least this share of what the iterations before it gained
RAREST = 40  # most iterations between two Newton steps
STEPS = 3, 7  # least iterations between two Newton steps where theta is behind, and elsewhere
DENSE = 25  # edges per stratum above which a cone program of the whole graph costs more than many proxes
CHEAP = 0.25  # weight in `apart` of iterations whose prox a `Splitting` computes
VIOLATED = 1e-12  # share of F by which rounding error in the constraints may change it (to first order)
TRIALS = 60  # most steps tried from one point
SHORT = 1e-5  # steps in the weights below this share of a Newton step make no progress


class JointSteps(Algorithm):
    """Monotone accelerated proximal gradient in a diagonal metric, with restarts.

    The metric has one number per stratum (the curvature of its loss, measured along the steps, plus its degree) and one
    per edge (the curvature of h), so that the prox still separates. The steps of a block shrink where the smooth part
    rises above its model. The extrapolated W is clipped at 0. z is accepted if it lowers F enough; if not, the step is
    taken from x without momentum (the point v of the paper, computed only where it is needed). Momentum is dropped
    where it points uphill. Every few iterations one proximal Newton step in theta follows for the current W; it is
    accepted if it lowers F, and is tried more rarely where it gains little. Where the prox is a cone program there are no
    Newton steps, and `apart` counts how often theta was far behind W when one would have been due.
    """

    saved = (
        *("theta_", "w_", "t", "rejected", "theta_estimate", "w_estimate", "trust"),
        *("interval", "wait", "last", "damping", "fresh", "late", "apart"),
        *(f"strata_metric.{name}" for name in ("loss_curvature", "share", "start.state")),
        *(f"edge_metric.{name}" for name in ("curvature", "inverse", "length", "age", "total", "scale")),
    )

    def __init__(self, problem, theta, w, tol=1e-6):
        super().__init__(problem, theta, w)
        self.tol = tol
        self.y, self.z = self.new_point(), self.new_point()
        self.theta_, self.w_ = self.x.theta.copy(), self.x.w.copy()  # the iterate before x
        self.t, self.rejected = 1.0, 0
        self.strata_metric, self.edge_metric = StrataMetric(problem, self.x), EdgeMetric(problem)
        self.theta_estimate, self.w_estimate, self.trust = np.inf, 0.0, 1.0
        # Newton steps: iterations between two, iterations until the next, F after the last, and their own memory
        self.by_cones = needs_cones(problem)
        self.shortest, self.often = STEPS if problem.learned else (1, 1)
        self.interval, self.wait, self.last = self.often, 1, -np.inf
        self.damping, self.fresh, self.late, self.apart = np.full(problem.K, RIDGE), True, 0, 0

    def step(self):
        t = (1 + math.sqrt(1 + 4 * self.t**2)) / 2
        y = self.y
        taken = self.t > 1 and self._extrapolate((self.t - 1) / t) and self._try(y)
        if not taken:
            t, y = 1.0, self.differentiate_x()
            taken = self._try(y)
        self.rejected = 0 if taken else self.rejected + 1
        if taken:
            self.t = 1.0 if self.uphill else max(t, 1.618)
            # x is a consistent point at all times, as Ctrl-C may interrupt anywhere.
            self.x, self.z, self.differentiated = self.z, self.x, False
            self.theta_[...] = self.z.theta
            if self.problem.learned:
                self.w_, self.z.w = self.z.w, self.w_
        # theta is further from stationarity than W
        behind = not taken or self.theta_estimate > BEHIND * self.w_estimate
        self.wait -= 1
        due = self.wait <= 0 or (behind and self.interval - self.wait >= self.shortest)
        if due and self.by_cones:
            weight = 1.0 if self.problem.regularizer.prox.splitting is None else CHEAP
            self.apart, self.wait = self.apart + behind * weight, self.often
        elif due and self.problem.loss.has("hessian_operator") and self._newton_step(behind):
            self.x, self.z, self.differentiated = self.z, self.x, False
            # The momentum of theta is dropped, and that of W is kept.
            self.theta_[...] = self.x.theta
            self.rejected, self.theta_estimate = 0, 0.0
        self.stalled = self.rejected >= 3

    def _newton_step(self, behind):
        """Set z to a proximal Newton step in theta from x, with the same W; return whether F is lower there.

        `apart` counts the iterations in which theta stays `behind` W although steps are damped or gain little.
        """
        x, before = self.x, self.x.objective
        self.apart += behind and (self.damping.max() > HEAVY or self.late >= LATE)
        accuracy, curvature = max(self.w_estimate / BEHIND, 0.1 * self.tol), self.strata_metric.loss_curvature
        fixed = for_given_graph(self.problem, x.w)
        newton = ProximalNewton(fixed, x, x.w, accuracy, curvature, one_length=True)
        newton.damping, newton.fresh = self.damping, self.fresh
        start = newton.x.objective
        newton.step()
        self.damping, self.fresh = newton.damping, newton.fresh
        self.extra_factorizations += newton.factorizations
        better = newton.x.objective < start or newton.polished
        lower = better and self._move_theta(newton.x)
        gain = before - self.z.objective if lower else 0.0
        far = self.theta_estimate > FAR * self.w_estimate and gain <= LITTLE * abs(before)
        self.late = self.late + 1 if far else 0
        worth = gain > WORTH * (self.last - before) and gain > 1e-13 * abs(before)
        self.interval = self.wait = self.often if worth else min(2 * self.interval, RAREST)
        self.last = before - gain
        return lower

    def _move_theta(self, point):
        """Set z to the theta of a point and the W that it shares with x; return whether F is no higher there."""
        x, z, lower = self.x, self.z, False
        swap_graphs(x, z)
        try:
            z.take(point)
            lower = z.objective <= x.objective + min(x.noise, z.noise)
            z.objective = min(z.objective, x.objective)
        finally:  # x is a consistent point again, also after Ctrl-C
            if not lower:
                swap_graphs(x, z)
        return lower

    def _extrapolate(self, beta):
        x, y = self.x, self.y
        y.theta[...] = x.theta + beta * (x.theta - self.theta_)
        if self.problem.learned:
            np.maximum(x.w + beta * (x.w - self.w_), 0.0, out=y.w)
        return y.evaluate_smooth(gradient=True) < np.inf

    def _try(self, y):
        """Set z to a step from y on which the model bounds F; return whether F(z) is sufficiently below F(x)."""
        x, z, learned = self.x, self.z, self.problem.learned
        strata, metric = self.strata_metric, self.edge_metric
        if learned:
            metric.refresh(y)
        move_theta, move_w, w_square, w_slope = True, learned, 0.0, 0.0
        for _ in range(TRIALS):
            if move_theta:
                strata.step(y, z)
            if move_w:
                metric.step(x, y, z)
                if not z.evaluate_w():
                    metric.shrink(0.0)
                    move_theta = False
                    continue
                w_square, w_slope = metric.square, metric.slope
            z.add_laplacian()
            rest = z.smooth - y.smooth - float(np.vdot(y.theta_gradient, strata.move)) - w_slope
            noise = z.noise
            bound = 0.5 * (strata.square + w_square)
            if rest <= bound + noise:
                break
            if bound <= noise and np.isfinite(rest):
                return False  # rounding is larger than its estimate, and a shorter step does not help
            move_theta, move_w = self._shrink(y, z, noise)
        else:
            return False
        z.add_regularizer()
        blur = noise + VIOLATED * abs(z.smooth) * self.by_cones
        fall = x.objective - z.objective
        # Rounding hides how F changes over a very small step: trust the model.
        if not fall >= (-blur if bound <= 10 * blur else DECREASE * bound):
            return False
        z.objective = min(z.objective, x.objective)
        uphill = float(strata.curvature @ np.vecdot(strata.move, z.theta - x.theta))
        self.uphill = uphill + (metric.uphill if learned else 0.0) < 0
        # An estimate of the residual of x by the sizes of the steps from y, at almost no cost.
        self.theta_estimate = math.sqrt(strata.curvature**2 @ strata.squares) / y.size
        if learned:
            self.w_estimate = metric.size / metric.scale
        if bound > 10 * noise:
            metric.relax(bound / max(rest, 0.1 * bound + noise))
            strata.relax()
        elif metric.length < SHORT:  # steps that are too short to be measured may be longer
            metric.relax(4.0)
        return True

    def _shrink(self, y, z, noise):
        """Shorten the steps of the block whose model fails, of both if only their interaction does; return which."""
        strata, metric, both = self.strata_metric, self.edge_metric, False
        if self.problem.learned:
            w_rest = z.graph - y.graph - (metric.slope - z.laplacians.energy(y.theta) + y.laplacian)
            if w_rest > 0.5 * metric.square + noise:
                metric.shrink(0.5 * metric.square / w_rest)
                return False, True
            # The model allows the Laplacian half of `graph_square`. If theta's move needs less, the interaction is at fault.
            both = y.laplacians.energy(strata.move) <= 0.5 * strata.graph_square + noise
        if both:
            metric.shrink(0.6)
        strata.share *= 1.3
        return True, both

    def residual(self, tol):
        """Residual of x if by the estimate it may be below tol, otherwise None."""
        estimate = max(self.theta_estimate, self.w_estimate)
        if not estimate * self.trust <= tol:
            return None
        residual = self.differentiate_x().residual()
        if residual["theta"] > tol >= residual["W"]:
            self.wait, self.late = 0, LATE  # the estimate misses much of theta's residual
        self.trust = float(np.clip(max(residual.values()) / max(estimate, 1e-300), 0.2, 5.0))
        return residual


def swap_graphs(a, b):
    """Exchange the attributes of two points that depend on W, including the factorisation."""
    of_a, of_b = ({name: vars(point)[name] for name in OF_W} for point in (a, b))
    vars(a).update(of_b)
    vars(b).update(of_a)


def graph_step(problem, theta, w=None, tol=1e-6, max_iter=1000):
    """Minimise 1/2 sum_e w_e d_e(theta) + h(w) over the weights, from w or W0, to a W residual of `tol`; return a Result."""
    given, h = Quadratic(np.zeros(1), np.zeros((1, problem.n))), problem.graph_regularizer
    given.prox, given.hessian_operator = lambda v, t, start: theta.copy(), None  # theta does not move
    given.prox.costly = True  # so that it is called once, for all strata
    fixed = JointProblem(given, given, h, problem.edges, problem.w0, problem.couple, problem.outside)
    if not hasattr(problem.graph_oracle(), "minimize"):
        return GraphSteps(tol=tol, max_iter=max_iter)._run(fixed, theta, problem.w0 if w is None else w)
    started = time.perf_counter()
    w, iterations = problem.graph_oracle().minimize(problem.half_distances(theta))
    point = fixed.point(theta, w).differentiate()
    residual = {"theta": 0.0, "W": point.w_residual()}
    status, parts = "converged" if residual["W"] <= tol else "max_iter", fixed.parts(theta, w)
    found = point.objective, parts, residual, [point.objective], time.perf_counter() - started, iterations
    return Result(status, iterations, *found, theta=theta, w=w)


class GraphSteps(Solver):
    """The steps of ``MAPG`` in W alone."""

    needs = {"regularizer": "prox"}

    def _algorithm(self, problem, theta, w):
        return JointSteps(problem, theta, w, self.tol)
