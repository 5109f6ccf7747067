"""The default algorithm: MAPG that finds its own steps, with a Newton step in theta now and then."""

import math

import numpy as np

from strat.oracles import kernels
from strat.problem.joint_problem import rows_product
from strat.solvers.algorithm import Algorithm
from strat.solvers.metric import EdgeMetric, StrataMetric
from strat.solvers.newton import NewtonStep
from strat.solvers.theta_steps import catch_up

DECREASE = 1e-4  # z is taken if F(z) <= F(x) - DECREASE/2 ||z - y||^2 in the metric of the step
HEAVY = 1e-4  # damping of the Newton steps from which on, where theta lags, NewtonCG takes over
FAR, LATE = 1e3, 5  # as it does after so many Newton steps that gain next to nothing with theta so far behind
LITTLE = 1e-9  # share of F that is next to nothing
BEHIND = 10.0  # a Newton step is due where theta's residual is so many times that of W
TRIALS = 60  # most steps tried from one point


class JointSteps(Algorithm):
    """Monotone accelerated proximal gradient in a diagonal metric, with restarts.

    The metric has one number per stratum (curvature of its loss, measured along the steps, plus its degree) and one
    per edge (curvature of h), so that the prox still separates; each block's steps shrink where the smooth part rises
    above its model. The extrapolated W is clipped at 0. z is taken if it lowers F enough; if not, the step starts
    again from x without momentum (the paper's v, computed only where it is needed). Momentum is dropped where it
    points uphill. Every few iterations one Newton-CG step in theta follows, kept if F falls.
    """

    saved = (
        *("theta_", "w_", "t", "rejected", "theta_estimate", "w_estimate", "trust", "late"),
        *("strata_metric.loss_curvature", "strata_metric.share"),
        *(f"edge_metric.{name}" for name in ("curvature", "inverse", "length", "age", "total", "scale")),
        *(f"newton.{name}" for name in ("interval", "wait", "last", "damping", "shift", "factorizations")),
    )

    def __init__(self, problem, theta, w, tol=1e-6):
        super().__init__(problem, theta, w)
        self.tol = tol
        self.y, self.z = self.new_point(), self.new_point()
        if not problem.learned:  # all points share the one W
            for point in (self.y, self.z):
                point.w, point.degrees = self.x.w, self.x.degrees
        self.theta_, self.w_ = self.x.theta.copy(), self.x.w.copy()  # the iterate before x
        self.arguments_ = self.x.arguments
        self.t, self.rejected = 1.0, 0
        self.strata_metric, self.edge_metric = StrataMetric(problem, self.x), EdgeMetric(problem)
        self.newton = NewtonStep(problem)
        self.theta_estimate, self.w_estimate, self.trust = np.inf, 0.0, 1.0
        self.late = 0  # Newton steps in a row that gained next to nothing

    def step(self):
        """One iteration."""
        t = (1 + math.sqrt(1 + 4 * self.t**2)) / 2
        taken = self.t > 1 and self._extrapolate((self.t - 1) / t) and self._try(self.y)
        if not taken:
            t = 1.0
            taken = self._try(self.differentiate_x())
        self.rejected = 0 if taken else self.rejected + 1
        if taken:
            self.t = 1.0 if self.uphill else max(t, 1.618)
            old = self._move_to_z()
            self.theta_[...], self.arguments_ = old.theta, old.arguments
            if self.problem.learned:
                self.w_, old.w = old.w, self.w_
        behind = not taken or self.theta_estimate > BEHIND * self.w_estimate
        if self.newton.due(behind) and self._newton_step(behind):
            self._move_to_z()
            # The momentum of W goes on.
            self.theta_[...], self.arguments_ = self.x.theta, self.x.arguments
            self.rejected, self.theta_estimate = 0, 0.0
        self.stalled = self.rejected >= 3

    def _newton_step(self, behind):
        """Set z to a Newton step in theta from x; return whether F is lower there."""
        x, z, curvature = self.x, self.z, self.strata_metric.loss_curvature
        if not (behind and (self.newton.damping > HEAVY or self.late >= LATE)):
            found = self.newton.try_from(x, z, curvature)
            gain = x.objective - z.objective if found else 0.0
            far = self.theta_estimate > FAR * self.w_estimate
            self.late = self.late + 1 if far and gain <= LITTLE * abs(x.objective) else 0
            return found
        self.late = 0
        goal = max(self.w_estimate / BEHIND, 0.1 * self.tol)
        found, factorizations = catch_up(x, z, curvature, goal)
        self.extra_factorizations += factorizations
        self.newton.rest(found)
        return found

    def _move_to_z(self):
        """Make z the iterate and return the old one; x is a whole point at all times, as Ctrl-C may come in between."""
        old = self.x
        self.x, self.z, self.differentiated = self.z, old, False
        return old

    def _extrapolate(self, beta):
        x, y = self.x, self.y
        extrapolated(x.theta, self.theta_, beta, out=y.theta)
        if self.problem.learned:
            for chunk in self.problem.edges.chunks:
                extrapolated(x.w[chunk], self.w_[chunk], beta, least=0.0, out=y.w[chunk])
        arguments = tuple(
            _extrapolated(new, old, beta) for new, old in zip(x.arguments, self.arguments_, strict=True)
        )
        return y.evaluate_smooth(gradient=True, arguments=arguments) < np.inf

    def restore(self, state):
        """Go back to a saved state."""
        super().restore(state)
        self.arguments_ = self.problem.arguments(self.theta_)

    def _try(self, y):
        """Set z to a step from y that its model bounds; return whether F(z) is enough below F(x)."""
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
                return False  # more rounding than expected, which no shorter step escapes
            move_theta, move_w = self._shrink(y, z, noise)
        else:
            return False
        z.add_regularizer()
        rounding = bound <= 10 * noise  # F cannot tell such small steps apart: trust the model
        fall = x.objective - z.objective
        if not fall >= (-noise if rounding else DECREASE * bound):
            return False
        z.objective = min(z.objective, x.objective)
        uphill = rows_product(strata.curvature, strata.move, z.theta, x.theta)
        self.uphill = uphill + (metric.uphill if learned else 0.0) < 0
        self._estimate_residual(y)
        if not rounding:
            metric.relax(bound / max(rest, 0.1 * bound + noise))
            strata.relax()
        return True

    def _shrink(self, y, z, noise):
        """Shorten the steps of the block whose own model fails, of both where only their product does; return which."""
        problem, strata, metric = self.problem, self.strata_metric, self.edge_metric
        if not problem.learned:
            strata.tighten()
            return True, False
        edges = problem.edges
        d_slope = edges.energy(z.w, z.degrees, edges.coupling(problem.scaled(y.theta))) - y.laplacian
        w_rest = z.graph - y.graph - (metric.slope - d_slope)
        if w_rest > 0.5 * metric.square + noise:
            metric.shrink(0.5 * metric.square / w_rest)
            return False, True
        theta_rest = edges.energy(y.w, y.degrees, edges.coupling(problem.scaled(strata.move)))
        if theta_rest <= 0.5 * strata.graph_square + noise:  # only the product of both moves is too much
            metric.shrink(0.6)
            strata.tighten()
            return True, True
        strata.tighten()
        return True, False

    def _estimate_residual(self, y):
        """Sizes of both blocks' gradients at y, from the step they made; cheap, and near the residual of x."""
        strata, metric = self.strata_metric, self.edge_metric
        size = 1 + math.sqrt(max(np.vdot(y.loss_gradient, y.loss_gradient), np.vdot(y.product, y.product)))
        self.theta_estimate = math.sqrt(strata.curvature**2 @ strata.squares) / size
        if self.problem.learned:
            self.w_estimate = metric.size / metric.scale

    @property
    def factorizations(self):
        """Cholesky factorisations so far, those of the Newton steps included."""
        return super().factorizations + self.newton.factorizations

    def residual(self, tol):
        """Residual of x where the estimate says that it may be below tol, otherwise None."""
        estimate = max(self.theta_estimate, self.w_estimate)
        if not estimate * self.trust <= tol:
            return None
        residual = self.differentiate_x().residual()
        self.trust = float(np.clip(max(residual.values()) / max(estimate, 1e-300), 0.2, 5.0))
        return residual


def _extrapolated(new, old, beta):
    """new + beta (new - old) of affine images, an array, a list or None: it saves the products with the data."""
    if new is None or isinstance(new, list):
        return None if new is None else [_extrapolated(a, b, beta) for a, b in zip(new, old, strict=True)]
    return extrapolated(new, old, beta, out=np.empty(new.shape))


def extrapolated(new, old, beta, out, least=-math.inf):
    """Set out = max(new + beta (new - old), least), entry by entry."""
    if kernels.compiled and out.size:
        return kernels.compiled.extrapolate(beta, new, old, out, least)
    np.subtract(new, old, out=out)
    out *= beta
    out += new
    return out if least == -math.inf else np.maximum(out, least, out=out)
