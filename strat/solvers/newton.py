"""A Newton-CG step in theta for fixed W, through the prox alone."""

import numpy as np

from .algorithm import PROJECTION

_RIDGE = 1e-10


class NewtonStep:
    """One semismooth Newton step on theta - prox(theta - t grad f(theta)) = 0, every few iterations.

    The prox is differentiated numerically, coordinate by coordinate: where it moves with its argument (slope J > 0) the
    coordinate is free and (1/J - 1)/t is the regularizer's curvature; where it does not, the coordinate takes its prox
    value (a zero of the l1 norm, an active bound). The free coordinates solve (H + G(w) + curvature) d = -gradient by
    conjugate gradients, preconditioned by one factorisation of G(w) plus each stratum's mean curvature. The point is
    kept if F falls; how often the step is tried follows how much it gained.
    """

    def __init__(self, problem):
        self.problem = problem
        self.usable = problem.loss.has("hessian_operator")
        self.interval = self.shortest = 5 if problem.learned else 1
        self.wait, self.factorizations = 1, 0
        self.gained, self.start = 0.0, None

    def due(self, behind):
        """Whether the step is to be tried now; `behind`: theta is further from stationarity than W."""
        self.wait -= 1
        return self.usable and (self.wait <= 0 or (behind and self.interval - self.wait >= self.shortest))

    def try_from(self, x, z):
        """Set z to the Newton step from x, same w; return whether F(z) < F(x)."""
        between = 0.0 if self.start is None else self.start - x.F
        found = self._search(x, z)
        gain = x.F - z.F if found else 0.0
        worth = gain > 0.2 * between and gain > 1e-13 * abs(x.F)
        self.interval = self.shortest if worth else min(2 * self.interval, 40)
        self.wait = self.interval
        self.start = z.F if found else x.F
        return found

    def _search(self, x, z):
        problem = self.problem
        gradient = problem.loss.value_and_gradient(x.theta)[1] + x.product
        direction = self._direction(x, gradient)
        if direction is None:
            return False
        _swap_graph(x, z)
        length = 1.0
        for _ in range(8):
            z.theta[...] = problem.prox(x.theta + length * direction, PROJECTION)
            if z.evaluate_theta():
                z.combine()
                if z.F < x.F:
                    return True
            length *= 0.3
        _swap_graph(x, z)
        return False

    def _direction(self, x, gradient):
        problem, theta = self.problem, x.theta
        product = problem.loss.hessian_operator(theta)
        mean = _mean_curvature(product, theta.shape)
        shift = mean + _RIDGE * (mean.mean() + x.degrees.mean()) + 1e-300
        t = 1 / (shift + x.degrees)
        v = theta - t[:, None] * gradient
        p = problem.prox(v, t)
        e = 1e-7 * (1e-3 + np.abs(v))
        slope = np.clip((problem.prox(v + e, t) - problem.prox(v - e, t)) / (2 * e), 0.0, 1.0)
        free = slope > 1e-6
        curvature = np.where(free, (1 / np.where(free, slope, 1.0) - 1) / t[:, None], 0.0)
        curvature[curvature * t[:, None] < 1e-6] = 0.0
        d = np.where(free, 0.0, p - theta)
        residual = (theta - p) / np.where(free, slope, 1.0) / t[:, None]

        def hessian(u):
            return product(u) + problem.laplacian(x.w, u, x.degrees) + (curvature + shift[:, None] * 1e-9) * u

        b = np.where(free, -residual - hessian(d), 0.0)
        if not np.isfinite(b).all():
            return None
        couple = 1.0 if problem.couple is None else problem.couple
        try:
            solve = problem.edges.solver(x.w, shift)
        except (np.linalg.LinAlgError, RuntimeError):
            return None
        self.factorizations += 1
        return d + conjugate_gradients(lambda u: free * hessian(u), lambda u: free * solve(u), b, 0.03, 60)


def _swap_graph(a, b):
    """Exchange what two points know about w, factorisation included."""
    for name in ("w", "degrees", "graph", "graph_slot"):
        mine, other = getattr(a, name), getattr(b, name)
        setattr(a, name, other)
        setattr(b, name, mine)


def conjugate_gradients(product, precondition, b, tolerance, most):
    """Approximate solution of the symmetric positive definite system product(x) = b, b (K, n)."""
    x, r = np.zeros_like(b), b.copy()
    q = precondition(r)
    p, rho = q, float(np.vdot(r, q))
    first = rho
    for _ in range(most):
        if not rho > tolerance**2 * first:
            break
        Ap = product(p)
        curvature = float(np.vdot(p, Ap))
        if not curvature > 0:
            break
        x += rho / curvature * p
        r -= rho / curvature * Ap
        q = precondition(r)
        rho, old = float(np.vdot(r, q)), rho
        p = q + rho / old * p
    return x


def _mean_curvature(product, shape):
    """Mean diagonal of every stratum's Hessian, estimated by two products with vectors of signs."""
    index = np.arange(shape[0] * shape[1])
    signs = [np.where((index * a >> 7) & 1, 1.0, -1.0).reshape(shape) for a in (2654435761, 40503)]
    return np.maximum(np.mean([np.mean(s * product(s), axis=1) for s in signs], axis=0), 0.0)
