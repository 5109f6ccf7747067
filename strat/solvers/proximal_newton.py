"""NewtonCG: a proximal Newton method for a given graph."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strat.solvers.algorithm import Algorithm, needs_cones
from strat.solvers.base import Solver
from strat.solvers.cone import ConeNewton
from strat.solvers.free_directions import FreeDirections, times
from strat.solvers.metric import StrataMetric
from strat.solvers.newton_system import NewtonSystem, among_kinks, kinks_of


@dataclass(kw_only=True, eq=False, repr=False)
class NewtonCG(Solver):
    """Proximal Newton method in theta for a given graph: the fast solver of the Laplacian regularised stratified model.

    Every iteration takes a proximal gradient step, which settles what the regularizer and the constraints hold fixed (zeros of
    an l1 norm, active bounds, groups), and then a Newton step in the free directions; with a ridge alone there is nothing to
    settle, and the iteration is only the Newton step. The Newton equations are solved by conjugate gradients, preconditioned
    by a sparse factor of the graph's Laplacian plus the strata's mean curvature, or by the strata's blocks where edges are weak;
    on a chain or another narrow graph by one banded factor; strata without edges are solved directly. The objective never rises.
    Least squares without a nonsmooth regularizer takes one or two steps; for smoothed kinks (pinball, hinge) with a quadratic
    regularizer, the first Newton step is an interior-point fit. Where the regularizer has no prox in closed form, every step
    is a cone program, as in ``Cone``.

    Parameters
    ----------
    tol : float
        Stop when the residual in theta is at most tol; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    References
    ----------
    J. D. Lee, Y. Sun and M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM
    Journal on Optimization, 2014. S. Mehrotra, "On the implementation of a primal-dual interior point method", the same
    journal, 1992.

    Examples
    --------
    >>> from strat.solvers import NewtonCG
    >>> NewtonCG(tol=1e-8)
    NewtonCG(tol=1e-08)
    """

    max_iter: int = 500
    follows_edges = True
    needs = {"loss": "hessian_operator", "regularizer": "prox"}
    learns_graphs = False

    def _algorithm(self, problem, theta, w, way=None):
        if way or needs_cones(problem):
            return ConeNewton(problem, theta, w, way)
        return ProximalNewton(problem, theta, w, self.tol)


RIDGE = 1e-13  # least damping, relative, which counts as none
MOST_DAMPING = 1.0
LONGEST = 1e6  # longest prox step along the path, relative to that of the prox-gradient step
FLAT = 1e-14  # a stratum with less curvature, relative to the metric, takes a long gradient step instead
SAFE = 2.0  # the Laplacian is at most this many times the degrees
LENGTHS = 0.3 ** np.arange(14)
CROSSED = 1e-4  # a step meets a kink where a long prox changes it by more than this share
FORCING = 0.1  # largest relative residual of the Newton equations
JOINT_FORCING = 0.03  # the same within the joint iteration, where Newton steps are rare
REDUCED = 0.1  # a step without a gradient step before it leaves at most this share of the gradient,
SUFFICIENT = 0.3  # or lowers F by this share of its slope along the step (a quadratic falls by one half)
EXACT = 1e-10  # share by which a quadratic's fall may differ from its model's
IDLE = 4  # iterations without a gain after which the method has stalled


class ProximalNewton(Algorithm):
    """Proximal Newton steps in theta, each stratum (each connected part of the graph) with its own step length.

    p = prox(x - t grad f(x)) with one t for each stratum, short enough that F falls. With u = (x - t grad f(x) - p)/t, a
    subgradient of the regularizer at p, and J the prox's Jacobian there, a direction is free where J moves it, and the
    regularizer's curvature is C = (J^-1 - I)/t. Newton's equations (H + G(w) + C) d = -(grad f(p) + u) over the free directions
    give d. The point at a length a along d is prox(p + a d + s (u + a C d), s) with s long: p + a d itself on the same piece of
    the regularizer, and a kink (a zero of the l1 norm) where the step would cross it. The longest of a few lengths at which F
    is lower than at p is accepted, separately for parts that no edge joins unless `one_length` is set.

    Where the regularizer is a ridge no gradient step comes first: Newton's equations at x give the step, which is
    accepted as a whole if F falls as they predict.
    """

    saved = (
        *("damping", "size", "idle", "fresh", "plain"),
        *("strata_metric.loss_curvature", "strata_metric.share", "system.preconditioner.shift"),
    )

    def __init__(self, problem, theta, w, tol=1e-6, curvature=None, one_length=False):
        super().__init__(problem, theta, w, gradient=True)
        self.tol, self.one_length, self.forcing = tol, one_length, JOINT_FORCING if one_length else FORCING
        self.p, self.z = self.new_point(), self.new_point()
        self.system = NewtonSystem(problem, self.x.w, self.x.degrees, once=one_length)
        self.fresh, self._curvature = True, curvature
        self.quadratic = getattr(problem.loss, "quadratic", False)
        self.bend = getattr(problem.regularizer.prox, "diagonal", None)
        self.plain = self.bend is not None and (self.quadratic or not kinks_of(self.system))
        self.damping, self.size, self._slope = np.full(problem.K, RIDGE), np.inf, None
        self.idle, self.polished = 0, False

    @cached_property
    def strata_metric(self):
        """How far each stratum may move in a gradient step."""
        curvature = self.system.bound(self.x.theta) if self._curvature is None else self._curvature
        metric = StrataMetric(self.problem, self.x, curvature)
        metric.share = SAFE
        return metric

    @cached_property
    def part(self):
        """The number of the connected part that each stratum belongs to; one part where there is one step length."""
        if self.one_length:
            return np.zeros(self.problem.K, dtype=np.intp)
        return self.problem.edges.components(self.x.w * self.system.coupled)[1]

    def step(self):
        x, z = self.differentiate_x(), self.z
        if self.plain and self._plain_step(x):
            return
        self.differentiate_x()
        self.plain = self.plain and self.quadratic  # after a failure the steps below do better
        before, noise = self._values(x), self._noise(x)
        # The prox-gradient step from x to p, with t for each stratum, and u, the regularizer's slope there.
        p, metric = self.p, self.strata_metric
        metric.step(x, p)
        p.add_laplacian()
        p.add_regularizer()
        p.differentiate()
        self.t = 1 / metric.curvature
        self.v = x.theta - self.t[:, None] * x.theta_gradient
        # The slope of a ridge is computed directly: in raw units, rounding would spoil the difference.
        ridge = self.bend is not None
        self.u = self.problem.regularizer_slope(p.theta) if ridge else (self.v - p.theta) / self.t[:, None]
        theta, reached = self._newton_step(self._values(p))
        worse = ~(reached <= before + noise)[self.part]
        theta[worse] = x.theta[worse]  # these parts rose, by rounding, and stay where they were
        if not np.array_equal(z.theta, theta):  # as a rule z is the last point tried
            z.theta[...] = theta
            z.move_theta()
        gain = x.objective - z.objective
        if gain >= -float(noise.sum()):
            z.objective = min(z.objective, x.objective)
            self.x, self.z, self.differentiated = z, x, False
        self.idle = 0 if gain > float(noise.sum()) else self.idle + (0.1 if self.polished else 1.0)
        self.stalled = self.idle >= IDLE
        metric.relax()
        metric.share = SAFE

    def _plain_step(self, x):
        """Take Newton's step from x where nothing has a kink, if F falls as its model says; return whether it did."""
        z, slope, system = self.z, self.problem.regularizer_slope, self.system
        b = x.theta_gradient + slope(x.theta) if self._slope is None else self._slope
        np.negative(b, out=b)
        accuracy, self._slope = self._accuracy(b, x, True), None
        x.forget()  # z is usually the next x, and the system needs the memory
        self.differentiated = False
        free = FreeDirections.everywhere(*x.theta.shape, self.bend)
        system.set(free, self._ridge(x, 0.0))
        z.theta = None
        d = z.theta = system.solve(b, free, accuracy, checked=False)
        system.release()
        if not np.isfinite(d).all():
            return False
        promised = float(np.vdot(b, d))
        d += x.theta
        gain = x.objective - z.evaluate(gradient=True).objective
        if not gain >= -x.noise:
            return False
        left = z.theta_gradient + slope(z.theta)
        foreseen = 0.5 * promised
        self.exact = self.quadratic and abs(gain - foreseen) <= EXACT * foreseen + x.noise
        nearer = np.linalg.norm(left) <= REDUCED * np.linalg.norm(b)
        enough = self.exact and system.strong if self.quadratic else gain >= SUFFICIENT * promised
        if not (nearer or enough):
            return False
        z.objective = min(z.objective, x.objective)
        self.x, self.z, self.fresh, self.idle, self.differentiated = z, x, False, 0, True
        self._slope = left
        return True

    def _values(self, point):
        """F of every part, at an evaluated point."""
        if not self.part.any():
            return np.array([point.objective])
        strata = point.losses + self.problem.regularizer_values(point.theta)
        return np.bincount(self.part, strata + point.energies)

    def _noise(self, point):
        """Rounding error to expect in F of every part, including that of affine images whose terms cancel."""
        theta = self.problem.scaled(self.problem.centred(point.theta))
        strata = np.abs(point.losses) + 0.02 * point.degrees * np.vecdot(theta, theta)
        strata += 0.1 * np.sqrt(self.strata_metric.loss_curvature * np.vecdot(point.theta, point.theta))
        return 1e-14 * np.bincount(self.part, strata) + 1e-16 * (1 + abs(point.objective))

    def _newton_step(self, values):
        """Newton step from p, as long as F falls: returns theta and F of every part there; `values` is F at p."""
        theta, reached = self.p.theta.copy(), values.copy()
        self.polished = self.exact = False
        if self.fresh and (kinks := kinks_of(self.system)):
            beyond = among_kinks(self.system, *kinks, self.p, 0.5 * self.tol * self.p.size)
            beyond = self.problem.project(beyond)
            good, new = self._lower(beyond, values, self._noise(self.p))
            theta[good[self.part]], reached[good] = beyond[good[self.part]], new[good]
            self.fresh, self.exact = False, bool(good.all())
            return theta, reached
        direction = self._direction()
        if direction is None:
            return theta, reached
        noise = self._noise(self.p)
        waiting = np.ones(len(noise), dtype=bool)
        for length in LENGTHS:
            lowered = np.zeros(len(noise), dtype=bool)
            for candidate in self._points(length, *direction):
                good, new = self._lower(candidate, values, noise)
                good &= waiting & ~(lowered & (new >= reached))
                theta[good[self.part]], reached[good] = candidate[good[self.part]], new[good]
                lowered |= good
            waiting &= ~lowered & (self.promised > noise)  # rounding hides whether shorter steps are better
            if length == 1:
                whole = ~waiting
            if not waiting.any():
                break
        self.exact = bool(whole.all()) and self.quadratic
        # Damp more where the whole step failed, such as along a valley with kinks.
        self.damping = np.clip(self.damping * np.where(whole, 0.1, 30.0)[self.part], RIDGE, MOST_DAMPING)
        return theta, reached

    def _lower(self, theta, values, noise):
        """Parts in which F is lower at theta than at p, where it is `values`, and F of every part at theta."""
        z = self.z
        z.theta[...] = theta
        z.move_theta()
        new = self._values(z)
        good = new < values - noise
        alike = ~good & (np.abs(new - values) <= noise)
        if alike.any():  # rounding hides which is lower, but one may be much nearer to stationarity
            nearer = alike & (self._distance(z.differentiate()) < 0.5 * self._distance(self.p))
            self.polished |= bool(nearer.any())
            good |= nearer
        return good, new

    def _direction(self):
        """Newton's direction at p and C times it; None where there is none."""
        p, system, ridge = self.p, self.system, self._ridge(self.p, self.strata_metric.loss_curvature)
        free = FreeDirections.of(self.problem.regularizer.prox, self.v, self.t)
        self.fresh = False
        system.set(free, ridge)
        b = -(p.theta_gradient + self.u)
        accuracy = self._accuracy(free.project(b), p, free.all)
        d = system.solve(b, free, accuracy)
        system.release()
        if not np.isfinite(d).all():
            return None
        self.promised = np.bincount(self.part, np.einsum("kn,kn->k", b, d))
        return d, times(free.curvature, d)

    def _ridge(self, point, metric):
        """Let the system take the Hessian at a point; return the ridge (K,) to add, a share of its mean curvature."""
        mean = self.system.measure(point.theta)
        flat = mean <= FLAT * metric
        return np.where(flat, 0.01 * metric, (self.damping - RIDGE) * mean)

    def _accuracy(self, b, point, smooth):
        """Residual allowed in Newton's equations: about the error of their model (Eisenstat and Walker 1996, choice 2)."""
        size, last = np.linalg.norm(b), self.size
        self.size = size
        forcing = min(self.forcing, 0.9 * (size / last) ** 2) if last < np.inf else self.forcing
        exact = self.quadratic and smooth
        goal = (0.003 if exact else 0.1) * self.tol * point.size
        return goal if exact else max(forcing * size, min(goal, self.forcing * size))

    def _points(self, length, d, bend):
        """The points to try at a length: one that stops at kinks, if any are in the way, and one that crosses them."""
        target = self.p.theta + length * d
        far = np.abs(d).max(axis=1) / (np.abs(self.u).max(axis=1) + 1e-300)
        far = np.clip(far, self.t, LONGEST * self.t)
        bent = self.problem.prox(target + far[:, None] * (self.u + length * bend), far)
        straight = self.problem.project(target)
        longest = length * np.abs(d).max(axis=1, keepdims=True)
        crossed = (np.abs(bent - target) > CROSSED * longest).any(axis=1, keepdims=True)
        if crossed.any():
            yield np.where(crossed, bent, straight)
        yield straight

    def _distance(self, point):
        """Size of every part's prox-gradient step, over t."""
        t, theta = self.t[:, None], point.theta
        step = (theta - self.problem.prox(theta - t * point.theta_gradient, self.t)) / t
        return np.sqrt(np.bincount(self.part, np.einsum("kn,kn->k", step, step)))
