"""Prox of a smooth function by Newton's method, all strata at once."""

import numpy as np

from strat.errors import NoOracleError

CHORD_STEPS = 15  # most steps with one Hessian
EXACT, CLOSE = (
    1e-9,
    1e-6,
)  # error (relative to 1 + size) above which another method is tried, and which is no solution
NARROWER, WIDENINGS, FEW = (
    4.0,
    40,
    30,
)  # how much narrower kinks become on a path, how often wider, and steps to know


class NewtonProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) for a smooth convex f with Hessian products.

    Newton steps with backtracking in each stratum by itself, until the gradient is at rounding level. The objective
    is strongly convex with modulus 1/t, so the error in z is at most t times the norm of the gradient that is left.

    Parameters
    ----------
    oracle : Oracle
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables: v is replaced by its symmetric part.
    start : callable or None
        Another prox, less accurate, whose result is polished: where v may lie outside the function's domain.
    rescue : callable or None
        Another prox, slower, for strata where the steps do not lead to the end: far out on an exponential.
        It takes all strata, or, where it has ``some``, those alone, and then its result is polished.
    columns : (n,) int ndarray or None
        The coordinates that it acts on, where it is a block.
    active : (K,) bool ndarray or None
        Strata with records; of the others nothing but the domain counts, where ``start`` leads.
    """

    def __init__(
        self, oracle, transposed=None, start=None, max_iter=100, rescue=None, columns=None, active=None
    ):
        self.oracle, self.transposed, self.start, self.max_iter = oracle, transposed, start, max_iter
        self.rescue, self.columns, self.active = rescue, columns, active

    @property
    def kind(self):
        """How it is computed."""
        if self.start is not None:
            return f"{self.start.kind}, then Newton"
        return "one linear system a stratum" if getattr(self.oracle, "quadratic", False) else "Newton"

    def __call__(self, v, t):
        v, t = self._symmetric(v), self._steps(v, t)
        first, value = self._first(v, t)
        z = self._rescued(self._newton(v, t, first, value), v, t)
        return self._symmetric(z if self.active is None else np.where(self.active[:, None], z, first))

    def near(self, v, t, z):
        """The same where a point z near the solution is known: a few steps with one Hessian."""
        v, t = self._symmetric(v), self._steps(v, t)
        first, scale = z, self._scale(v, t)
        hessian = self._hessian(z, np.eye(v.shape[1]))
        system = self._ridged(hessian, t)
        inverse = np.linalg.inv(system) if np.isfinite(system).all() else None
        last = np.full(len(v), 1e100)
        for _ in range(CHORD_STEPS if inverse is not None else 0):
            gradient = self._symmetric(self.oracle.value_and_gradient(z)[1] + (z - v) / t)
            size = np.linalg.norm(gradient, axis=1)
            open_ = ~((size <= 1e-13 * scale) | ((size <= 1e-11 * scale) & (size >= 0.5 * last)))
            if not open_.any():
                return z
            if (open_ & ~(size <= 0.5 * last)).any():
                break
            z, last = (
                z - np.where(open_, 1.0, 0.0)[:, None] * np.matmul(inverse, gradient[..., None])[..., 0],
                size,
            )
        value = self._value(first, v, t)
        return (
            self._rescued(self._newton(v, t, first, value), v, t) if np.isfinite(value).all() else self(v, t)
        )

    @staticmethod
    def _steps(v, t):
        return np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))[:, None]

    @staticmethod
    def _scale(v, t):
        """Size of the gradients that balance."""
        return np.maximum(1.0 + np.abs(v).max(axis=1, initial=0.0) / t[:, 0], np.sqrt(v.shape[1]))

    def _newton(self, v, t, z, value, steps=None):
        """Newton steps from z with backtracking."""
        K, n = v.shape
        eye, scale = np.eye(n), self._scale(v, t)
        last = np.full(K, np.inf)
        for _ in range(steps or self.max_iter):
            _, gradient = self.oracle.value_and_gradient(z)
            gradient = self._symmetric(gradient + (z - v) / t)
            with np.errstate(over="ignore"):
                size = np.sqrt((gradient**2).sum(axis=1))
            # Sums over many records leave rounding errors: near the end a gradient must still fall to go on.
            active = (size > 1e-13 * scale) & ~((size <= 1e-9 * scale) & (size >= 0.5 * last))
            active &= np.isfinite(value) & np.isfinite(size)
            if not active.any():
                break
            last = size
            hessian = np.where(active[:, None, None], self._hessian(z, eye), 0.0)
            broken = ~np.isfinite(hessian).all(axis=(1, 2))
            hessian[broken], active = 0.0, active & ~broken
            gradient = np.where(active[:, None], gradient, 0.0)
            step = -np.linalg.solve(self._ridged(hessian, t), gradient[..., None])[..., 0]
            step = self._symmetric(step)  # which rounding spoils
            slope = (gradient * step).sum(axis=1)
            length, pending = np.where(active, 1.0, 0.0), active.copy()
            for _ in range(60):
                trial = z + length[:, None] * step
                new = self._value(trial, v, t)
                slack = 1e-14 * np.maximum(1.0, np.abs(value))
                pending &= ~(new <= value + 0.25 * length * slope + slack)
                if not pending.any():
                    break
                length = np.where(pending, 0.5 * length, length)
            length = np.where(pending, 0.0, length)
            moved = length > 0
            z = z + length[:, None] * step
            value = self._value(z, v, t)
            if not moved.any() or np.all(np.abs(length[:, None] * step) <= 1e-15 * (1.0 + np.abs(z))):
                break
        return z

    def _symmetric(self, v):
        return v if self.transposed is None else 0.5 * (v + v[:, self.transposed])

    def _rescued(self, z, v, t):
        """z, with the strata that are not at the end by the other method; an error where there is none."""
        if self.rescue is None and self.start is not None:
            return z
        lost = self._lost(z, v, t, EXACT)
        if lost.any() and self.start is None:
            z = np.where(lost[:, None], self._continued(v, t, lost), z)
            lost = self._lost(z, v, t, EXACT)
        if not lost.any():
            return z
        if hasattr(self.rescue, "some"):
            return self._polished(z, v, t, np.flatnonzero(lost))
        try:
            if self.rescue is not None:
                return np.where(lost[:, None], self.rescue(v, t[:, 0]), z)
        except NoOracleError:
            if self._lost(z, v, t, CLOSE).any():
                raise
        lost = self._lost(z, v, t, CLOSE)
        if lost.any():
            raise NoOracleError(
                f"the prox was not found by Newton's method in {int(lost.sum())} strata. Check that the data have a "
                f"reasonable scale, or take a smaller step."
            )
        return z

    def _lost(self, z, v, t, tolerance):
        """Where z is not the solution: t times the gradient bounds its distance, and a Newton step estimates it."""
        enough = tolerance * (1.0 + np.abs(z).max(axis=1, initial=0.0))
        with np.errstate(all="ignore"):
            gradient = self._symmetric(self.oracle.value_and_gradient(z)[1] + (z - v) / t)
            lost = ~(t[:, 0] * np.sqrt((gradient**2).sum(axis=1)) <= enough)
            lost = lost if self.active is None else lost & self.active
            if lost.any():
                # Far out on a steep function rounding alone leaves large gradients.
                system = self._ridged(self._hessian(z, np.eye(v.shape[1])), t)
                known = lost & np.isfinite(system).all(axis=(1, 2)) & np.isfinite(gradient).all(axis=1)
                step = np.linalg.solve(system[known], gradient[known][..., None])[..., 0]
                lost[known] = ~(np.abs(step).max(axis=1, initial=0.0) <= enough[known])
        return lost

    def _continued(self, v, t, lost):
        """Newton steps along a path of smoother functions c f(z/c), c falling to 1.

        The prox of such a function at v with step t is c times that of f at v/c with step t/c. With a large c all
        kinks are wide; from each solution to the next Newton's method has few steps to go.
        """
        z, c, wide = v.copy(), np.ones((len(v), 1)), lost.copy()
        for _ in range(WIDENINGS):
            c[wide] *= NARROWER
            value = np.where(wide, self._value(v / c, v / c, t / c), np.inf)  # the others stay
            trial = self._newton(v / c, t / c, v / c, value, FEW)
            solved = wide & ~self._lost(trial, v / c, t / c, CLOSE)
            z[solved], wide = trial[solved], wide & ~solved
            if not wide.any():
                break
        while (mine := lost & ~wide & (c[:, 0] > 1)).any():
            z[mine], c[mine] = z[mine] * NARROWER, c[mine] / NARROWER
            value = np.where(mine, self._value(z, v / c, t / c), np.inf)
            z = self._newton(v / c, t / c, z, value)
        return z

    def _polished(self, z, v, t, lost):
        """z, with the lost strata by the solver, and then as exactly as Newton's steps make them."""
        z[lost] = self.rescue.some(lost, v[lost], t[lost, 0])
        z, value = self._inside(z, v, t)
        others = np.ones(len(z), dtype=bool)
        others[lost] = False
        value[others] = np.inf  # they stay
        return self._newton(v, t, z, value)

    def _first(self, v, t):
        """Where to start, and the objective there."""
        z = v.copy() if self.start is None else self.start(v, t[:, 0])
        if self.start is not None:
            return self._inside(z, v, t)
        value = self._value(z, v, t)
        outside = ~np.isfinite(value)
        if outside.any() and self.rescue is None:
            raise NoOracleError(
                f"the prox starts outside the domain of the function in {outside.sum()} strata, and no point inside is "
                f"known. Start nearer to the domain, or constrain the variables to it."
            )
        return z, value

    def _inside(self, z, v, t):
        """z and the objective there, without the rounding that alone keeps it out of the domain; most domains end at 0."""
        value = self._value(z, v, t)
        outside = ~np.isfinite(value)
        if outside.any():
            z = np.where(outside[:, None] & (np.abs(z) < 1e-7 * (1.0 + np.abs(v))), 0.0, z)
            value = self._value(z, v, t)
        return z, value

    def _hessian(self, z, eye):
        if self.oracle.has("hessian"):
            hessian = np.array(self.oracle.hessian(z))
        else:
            operator = self.oracle.hessian_operator(z)
            hessian = np.stack([operator(np.broadcast_to(e, z.shape)) for e in eye], axis=2)
        p = self.transposed
        return (
            hessian
            if p is None
            else 0.25 * (hessian + hessian[:, p] + hessian[:, :, p] + hessian[:, p][:, :, p])
        )

    @staticmethod
    def _ridged(hessian, t):
        """The Hessian with that of the distance, and a ridge of rounding size, so that one that dwarfs 1/t is invertible."""
        ridge = 1.0 / t[:, 0] + 1e-15 * np.trace(hessian, axis1=1, axis2=2)
        return hessian + np.eye(hessian.shape[1]) * ridge[:, None, None]

    def _value(self, z, v, t):
        return self.oracle.value(z) + 0.5 * ((z - v) ** 2 / t).sum(axis=1)
