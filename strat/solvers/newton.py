"""A Newton-CG step in theta for fixed W, through the prox alone."""

import numpy as np

from strat.solvers.algorithm import PROJECTION

RIDGE = 1e-10  # least damping, relative; keeps the model strictly convex where strata have no records
LONG = 1e6  # longest prox step along the path, in units of the plain one
FLAT = 1e-14  # a stratum with less curvature than this share of the metric's has none: its step is a long gradient step
TRUSTED = 1e-9  # largest relative rounding error of F with which a point may be judged
BLOCK = 100  # most numbers a stratum for which strata that nothing couples are solved directly
WORTH = 0.05  # a Newton step is worth its cost if it gains this share of what the steps before gained


class NewtonStep:
    """A proximal Newton step in theta, every few iterations: how often follows how much it gains.

    The prox is differentiated numerically, coordinate by coordinate: where it moves with its argument (slope
    J > 0) the coordinate is free and (1/J - 1)/t is the regularizer's curvature; where it does not, the
    coordinate takes its prox value (a zero of the l1 norm, an active bound). The Newton equations of the free
    coordinates are solved by conjugate gradients, preconditioned by one factorisation of G(w) plus each
    stratum's mean curvature. The point at a length along the step is prox(point + s r', s), r' the
    regularizer's slope, s long: it is the point itself on the same piece of the regularizer, and a kink (a zero
    of the l1 norm) where the step would cross it. A point is kept if F falls.
    """

    def __init__(self, problem):
        self.problem = problem
        self.usable = problem.loss.has("hessian_operator")
        self.interval = self.shortest = 3 if problem.learned else 1
        self.wait, self.factorizations = 1, 0
        self.last, self.damping, self.shift, self._solver = -np.inf, RIDGE, np.zeros(0), None

    def due(self, behind):
        """Whether the step is to be tried now; `behind`: theta is further from stationarity than W."""
        self.wait -= 1
        return self.usable and (self.wait <= 0 or (behind and self.interval - self.wait >= self.shortest))

    def try_from(self, x, z, metric):
        """Set z to the Newton step from x, same w; return whether F(z) < F(x).

        `metric` is the curvature that every stratum's loss has shown; second derivatives may vanish (Huber's loss).
        """
        self._metric = metric
        between = self.last - x.objective  # what the steps since the last try gained
        found = self._search(x, z)
        gain = x.objective - z.objective if found else 0.0
        worth = gain > WORTH * between and gain > 1e-13 * abs(x.objective)
        self.interval = self.shortest if worth else min(2 * self.interval, 40)
        self.wait = self.interval
        self.last = z.objective if found else x.objective
        return found

    def rest(self, found):
        """Wait, after steps that another method took in its place; it begins anew if they lowered F."""
        self.damping = RIDGE if found else self.damping
        self.interval = self.wait = self.shortest if found else min(2 * self.interval, 40)

    def _search(self, x, z):
        path = self._path(x)
        if path is None:
            return False
        found = False
        swap_graph(x, z)
        try:
            for length in 0.3 ** np.arange(8):
                if any(self._improves(candidate, x, z) for candidate in path(length)):
                    found = True
                    break
        finally:  # x is whole again, also after Ctrl-C
            if not found:
                swap_graph(x, z)
        self._damp(length if found else 0.0)
        return found

    def _improves(self, theta, x, z):
        """Whether F is lower at theta; where rounding hides that, whether theta is nearer to stationarity."""
        z.theta[...] = theta
        if not z.evaluate_theta():
            return False
        z.add_laplacian()
        z.add_regularizer()
        if z.noise > TRUSTED * (1 + abs(x.objective)):
            return False
        if x.objective - z.objective > z.noise:
            return True
        if not z.objective <= x.objective + z.noise:
            return False
        z.objective = min(z.objective, x.objective)
        gradient = self.problem.loss.value_and_gradient(z.theta, *z.arguments)[1] + z.product
        return self._distance(z.theta, gradient, self._t) < 0.5 * self._distance(
            x.theta, self._gradient, self._t
        )

    def _distance(self, theta, gradient, t):
        """Size of the prox-gradient step with step t, over t."""
        step = theta - self.problem.prox(theta - t[:, None] * gradient, t)
        return np.linalg.norm(step / t[:, None])

    def _damp(self, length):
        """Lean towards short steps where long ones failed, as along a valley with kinks."""
        self.damping = float(np.clip(self.damping * (0.1 if length == 1 else 30.0), RIDGE, 1.0))

    def _path(self, x):
        """Function of a length that gives the points to try at that length; None where there is no step."""
        problem, theta, prox = self.problem, x.theta, self.problem.prox
        gradient = problem.loss.value_and_gradient(theta, *x.arguments)[1] + x.product
        product = problem.loss.hessian_operator(theta)
        mean = _mean_curvature(product, theta.shape)
        flat = mean <= FLAT * self._metric
        shift = np.where(flat, 0.01 * self._metric, mean)
        shift = shift + RIDGE * (shift.mean() + x.degrees.mean()) + 1e-300
        coupled = x.degrees.any() or theta.shape[1] > BLOCK
        precondition = self._preconditioner(x.w, shift) if coupled else None
        if coupled and precondition is None:
            return None
        t = 1 / (shift + x.degrees)
        self._gradient, self._t = gradient, t
        v = theta - t[:, None] * gradient
        p = prox(v, t)
        curvature, free = self._slope(v, t)
        jump = np.where(free, 0.0, p - theta)
        # The regularizer's slope: at p by the prox's optimality, at the free coordinates of theta by its curvature.
        slope = (v - p) / t[:, None] + curvature * np.where(free, theta - p, 0.0)

        ridge = np.where(flat, shift, self.damping * shift)
        laplacian = problem.laplacians(x.w, x.degrees).operator

        def hessian(u, diagonal):
            result = diagonal * u
            result += product(u)
            result += laplacian(u)
            result *= free
            return result

        diagonal = ridge[:, None] + curvature
        b = -(free * (gradient + slope) + hessian(jump, ridge[:, None]))
        if coupled:
            d = conjugate_gradients(lambda u: hessian(u, diagonal), lambda u: free * precondition(u), b)
        else:
            d = solve_blocks(lambda u: hessian(u, diagonal), free, b)
        if not np.isfinite(d).all():
            return None
        far = np.abs(d).max(axis=1) / (np.abs(slope).max(axis=1) + 1e-300)
        far = np.clip(far, t, LONG * t)

        def path(length):
            step = length * d
            target = theta + jump + step
            yield prox(target + far[:, None] * (slope + curvature * step), far)
            yield prox(target, PROJECTION)

        return path

    def _slope(self, v, t):
        """The regularizer's curvature seen by the prox at v, and which coordinates are free."""
        prox = self.problem.prox
        e = 1e-7 * (1e-3 + np.abs(v))
        slope = (prox(v + e, t) - prox(v - e, t)) / (2 * e)
        free = slope > 1e-6
        curvature = np.where(free, 1 / np.clip(slope, 1e-6, 1.0) - 1, 0.0)
        curvature[curvature < 1e-6] = 0.0
        return curvature / t[:, None], free

    def _preconditioner(self, w, shift):
        """Solve with G(w) + diag(shift); for a fixed graph the last factorisation serves while the shift is similar."""
        similar = self.shift.size and np.all(np.abs(shift - self.shift) <= 0.5 * self.shift)
        if self.problem.learned or not similar:
            self.factorizations += 1
            self.shift, self._solver = shift, None
        if self._solver is None:  # after a restart only the shift is known
            try:
                self._solver = self.problem.edges.solver(w, self.shift)
            except (np.linalg.LinAlgError, RuntimeError):
                return None
        return self._solver


def conjugate_gradients(product, precondition, b, tolerance=0.03, most=60):
    """Approximate solution of the symmetric positive definite system product(x) = b, b (K, n)."""
    x, r = np.zeros_like(b), b.copy()
    q = precondition(r)
    p, rho = q.copy(), float(np.vdot(r, q))
    first = rho
    for _ in range(most):
        if not rho > tolerance**2 * first:
            break
        Ap = product(p)
        curvature = float(np.vdot(p, Ap))
        if not curvature > 0:
            break
        x += rho / curvature * p
        Ap *= rho / curvature
        r -= Ap
        q = precondition(r)
        rho, old = float(np.vdot(r, q)), rho
        p *= rho / old
        p += q
    return x


def solve_blocks(product, free, b):
    """Solution of product(x) = b where strata do not touch, with x = 0 off the free coordinates; b (K, n)."""
    K, n = b.shape
    blocks = np.stack([product(np.broadcast_to(e, (K, n)) * free) for e in np.eye(n)], axis=2)
    size = np.einsum("kaa->k", blocks) / n
    fixed = np.where(free, 1e-14 * size[:, None], 1.0)
    try:
        return np.linalg.solve(blocks + fixed[:, :, None] * np.eye(n), b[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def swap_graph(a, b):
    """Exchange what two points know about w, factorisation included."""
    for name in ("w", "degrees", "graph", "graph_oracle"):
        mine, other = getattr(a, name), getattr(b, name)
        setattr(a, name, other)
        setattr(b, name, mine)


def _mean_curvature(product, shape):
    """Mean diagonal of every stratum's Hessian, estimated by two products with vectors of signs."""
    index = np.arange(shape[0] * shape[1])
    signs = [np.where((index * a >> 7) & 1, 1.0, -1.0).reshape(shape) for a in (2654435761, 40503)]
    return np.maximum(np.mean([np.mean(s * product(s), axis=1) for s in signs], axis=0), 0.0)
