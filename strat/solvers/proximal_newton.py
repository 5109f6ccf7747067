"""The iteration of NewtonCG: a proximal gradient step, then a Newton step in what it leaves free."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from strat.prox_slope import ProxSlope, probes
from strat.solvers.algorithm import PROJECTION, Algorithm
from strat.solvers.metric import StrataMetric
from strat.solvers.newton_system import NewtonSystem

RIDGE = 1e-10  # least damping, relative; keeps the equations definite where strata have no records
STEEP = 1.0  # most damping
LONG = 1e6  # longest prox step along the path, in units of the plain one
FLAT = 1e-14  # a stratum with less curvature than this share of the metric's has none: it takes a long gradient step
SAFE = 2.0  # the Laplacian is below so many times the degrees
LENGTHS = 0.3 ** np.arange(8)
FORCING = 0.1  # most accurate solution of the first Newton equations, relative
PATIENT = 4  # iterations without progress after which the iteration has stalled


class ProximalNewton(Algorithm):
    """Proximal Newton steps in theta, each stratum (each connected part of the graph) with its own step length.

    p = prox(x - t grad f(x)) with one t for each stratum, short enough that F falls. With u = (x - t grad f(x) - p)/t,
    a subgradient of the regularizer at p, and J the prox's Jacobian there, a direction is free where J moves it, and
    the regularizer's curvature is C = (J^-1 - I)/t. Newton's equations (H + G(w) + C) d = -(grad f(p) + u) over the
    free directions give d. The point at a length a along d is prox(p + a d + s (u + a C d), s) with s long: p + a d
    itself on the same piece of the regularizer, and a kink (a zero of the l1 norm) where the step would cross it. The
    longest of a few lengths at which F is lower than at p is kept, separately for parts that no edge joins.
    """

    saved = (
        *("damping", "size", "idle"),
        *("strata_metric.loss_curvature", "strata_metric.share", "system.shift"),
    )

    def __init__(self, problem, theta, w, tol=1e-6):
        super().__init__(problem, theta, w)
        self.tol = tol
        self.p, self.z = self.new_point(), self.new_point()
        for point in (self.p, self.z):  # all points share the one W
            point.w, point.degrees = self.x.w, self.x.degrees
        self.strata_metric = StrataMetric(problem, self.x)
        self.strata_metric.share = SAFE
        self.system = NewtonSystem(problem, self.x.w, self.x.degrees)
        self.part = self._parts()
        self.parts = int(self.part.max(initial=0)) + 1
        self.blocks = probes(problem.regularizer.prox, problem.n)
        self.damping, self.size, self.idle, self.polished = np.full(self.parts, RIDGE), np.inf, 0, False

    def _parts(self):
        """Number of the connected part that every stratum belongs to."""
        edges, K = self.problem.edges, self.problem.K
        if not self.system.coupled:
            return np.arange(K)
        (i, j), weight = edges.ends, edges.vector(self.x.w)
        kept = weight > 0
        links = sp.coo_array((weight[kept], (i[kept], j[kept])), shape=(K, K))
        return connected_components(links, directed=False)[1]

    def step(self):
        """One iteration."""
        x, p, z = self.differentiate_x(), self.p, self.z
        before, noise = self._values(x), self._noise(x)
        self._gradient_step(x)
        values = self._values(p)
        theta, reached = self._newton_step(values)
        worse = ~(reached <= before + noise)[self.part]
        theta[worse] = x.theta[worse]  # rounding: these parts stay
        z.theta[...] = theta
        self._evaluate(z)
        gain = x.objective - z.objective
        if gain >= -float(noise.sum()):
            z.objective = min(z.objective, x.objective)
            self.x, self.z, self.differentiated = z, x, False
        self.idle = 0 if gain > float(noise.sum()) or self.polished else self.idle + 1
        self.stalled = self.idle >= PATIENT
        self.strata_metric.relax()
        self.strata_metric.share = SAFE

    def _evaluate(self, point):
        """Compute F at a point; return whether it is finite."""
        point.evaluate_theta()
        point.add_laplacian()
        point.add_regularizer()
        return point.objective < np.inf

    def _values(self, point):
        """F of every part, at an evaluated point."""
        own = point.losses + self.problem.regularizer.value(point.theta)
        own = own + 0.5 * np.einsum("kn,kn->k", point.theta, point.product)
        return np.bincount(self.part, own, self.parts)

    def _noise(self, point):
        """Rounding error to expect in F of every part."""
        own = np.abs(point.losses) + 0.02 * point.degrees * np.einsum("kn,kn->k", point.theta, point.theta)
        return 1e-14 * np.bincount(self.part, own, self.parts) + 1e-16 * (1 + abs(point.objective))

    def _gradient_step(self, x):
        """Set p to the prox-gradient step from x, with t for each stratum, and u to the regularizer's slope there."""
        p, metric = self.p, self.strata_metric
        metric.step(x, p)
        p.add_laplacian()
        p.add_regularizer()
        p.differentiate()
        self.t = 1 / metric.curvature
        self.v = x.theta - self.t[:, None] * x.theta_gradient
        self.u = (self.v - p.theta) / self.t[:, None]

    def _newton_step(self, values):
        """The Newton step from p as far as F falls: theta, and F of every part there; `values` is F at p."""
        direction = self._direction()
        theta, reached = self.p.theta.copy(), values.copy()
        self.polished = False
        if direction is None:
            return theta, reached
        noise, waiting = self._noise(self.p), np.ones(self.parts, dtype=bool)
        for length, candidate in self._path(*direction):
            self.z.theta[...] = candidate
            self._evaluate(self.z)
            new = self._values(self.z)
            good = waiting & (new < values - noise)
            alike = waiting & ~good & (np.abs(new - values) <= noise)
            if alike.any():
                nearer = alike & self._nearer(self.z)
                self.polished |= bool(nearer.any())
                good |= nearer
            moved = good[self.part]
            theta[moved], reached[good] = candidate[moved], new[good]
            waiting &= ~good
            if length == 1:
                whole = ~waiting
            if not waiting.any():
                break
        # Lean towards short steps where long ones failed, as along a valley with kinks.
        self.damping = np.clip(self.damping * np.where(whole, 0.1, 30.0), RIDGE, STEEP)
        return theta, reached

    def _direction(self):
        """Newton's direction at p and C times it; None where there is none."""
        p, system, metric = self.p, self.system, self.strata_metric.loss_curvature
        mean = system.measure(p.theta)
        flat = mean <= FLAT * metric
        shift = np.where(flat, 0.01 * metric, mean)
        shift = shift + RIDGE * (shift.mean() + p.degrees.mean()) + 1e-300
        ridge = np.where(flat, shift, self.damping[self.part] * shift)
        slope = ProxSlope(self.problem.regularizer.prox, self.v, self.t, self.blocks)
        b = -slope.into(p.theta_gradient + self.u) * slope.free
        d = system.solve(b, slope, ridge, mean, self._accuracy(b))
        if not np.isfinite(d).all():
            return None
        return slope.back(d), slope.back(slope.curvature * d)

    def _accuracy(self, b):
        """Relative accuracy for Newton's equations: that of the model, so that late steps are exact.

        Eisenstat and Walker (1996), choice 2; a quadratic's model is exact from the start.
        """
        size, last = np.linalg.norm(b), self.size
        self.size = size
        goal = 0.1 * self.tol * self._scale() / max(size, 1e-300)
        if getattr(self.problem.loss, "quadratic", False):
            return goal
        return max(min(FORCING, 0.9 * (size / last) ** 2), min(goal, FORCING))

    def _scale(self):
        """Size of the terms that balance in the residual."""
        return 1 + max(np.linalg.norm(self.p.loss_gradient), np.linalg.norm(self.p.product))

    def _path(self, d, bend):
        """Pairs of a length and the point to try there."""
        p, u, prox = self.p, self.u, self.problem.prox
        far = np.abs(d).max(axis=1) / (np.abs(u).max(axis=1) + 1e-300)
        far = np.clip(far, self.t, LONG * self.t)
        for length in LENGTHS:
            target = p.theta + length * d
            yield length, prox(target + far[:, None] * (u + length * bend), far)
            yield length, prox(target, PROJECTION)

    def _nearer(self, z):
        """Parts in which z is much nearer to stationarity than p, where rounding hides whether F is lower."""
        p = self.p
        z.differentiate()
        return self._distance(z.theta, z.theta_gradient) < 0.5 * self._distance(p.theta, p.theta_gradient)

    def _distance(self, theta, gradient):
        """Size of every part's prox-gradient step, over t."""
        step = (theta - self.problem.prox(theta - self.t[:, None] * gradient, self.t)) / self.t[:, None]
        return np.sqrt(np.bincount(self.part, np.einsum("kn,kn->k", step, step), self.parts))

    @property
    def factorizations(self):
        """Factorisations so far, those of the preconditioner."""
        return super().factorizations + self.system.factorizations
