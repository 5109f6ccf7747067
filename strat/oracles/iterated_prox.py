"""Proxes without a closed form, for all strata at once: by Newton's method, and by one cone program."""

from functools import cache, cached_property

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.base import Rescaled, hessian_blocks, symmetric
from strat.oracles.central_points import off_edges
from strat.oracles.cone_program import ConeProgram
from strat.oracles.splitting import Splitting

MOST = 100  # steps
EXACT = 1e-9  # error, relative to 1 + size, above which the cone program takes over


class NewtonProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) for a smooth convex f with Hessian products.

    Newton steps with backtracking in each stratum separately, until the gradient is at rounding level. The objective
    is strongly convex with modulus 1/t, so the error in z is at most t times the norm of the remaining gradient.
    `rescue`, a ConeProx or None, takes over in strata where the steps do not converge, as on the steep part of an exponential,
    or where v is outside the domain. With `transposed`, the coordinates of variables' transposes, v's symmetric part counts.
    """

    kind = property(lambda self: "one linear system a stratum" if self.oracle.quadratic else "Newton")

    def __init__(self, oracle, transposed=None, rescue=None):
        self.oracle, self.transposed, self.rescue = oracle, transposed, rescue

    def rescaled(self, weight, unit):
        rescue = self.rescue and self.rescue.rescaled(weight, unit)
        return NewtonProx(Rescaled(self.oracle, weight, unit), self.transposed, rescue)

    def __call__(self, v, t):
        return self.near(v, t, v)

    def near(self, v, t, z):
        """The prox, found from a point z near the solution."""
        v, t = self._symmetric(v), np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))[:, None]
        z = self._newton(v, t, np.array(self._symmetric(z)))
        lost = self._lost(z, v, t)
        if lost.any() and self.rescue is None:
            raise NoOracleError(
                f"the prox was not found by Newton's method in {int(lost.sum())} strata. Check that the data have a "
                f"reasonable scale and that the start is inside the domain, or take a smaller step."
            )
        if lost.any():
            z[lost] = self.rescue.some(np.flatnonzero(lost), v[lost], t[lost, 0])
            z = self._newton(v, t, off_edges(self.oracle, z), lost)  # refined to rounding
        return self._symmetric(z)

    def _newton(self, v, t, z, some=True):
        """Newton steps from z with backtracking; `some` is a mask of the strata that move."""
        last, value = np.full(len(v), np.inf), self._value(z, v, t)
        # Size of the gradients that balance at the solution
        scale = np.maximum(1.0 + np.abs(v).max(axis=1, initial=0.0) / t[:, 0], np.sqrt(v.shape[1]))
        for _ in range(MOST):
            gradient = self._gradient(z, v, t)
            with np.errstate(over="ignore", invalid="ignore"):
                size = np.sqrt((gradient**2).sum(axis=1))
            # Sums over many records have rounding errors: near the end, a stratum moves only while its gradient falls.
            active = (size > 1e-13 * scale) & ~((size <= 1e-9 * scale) & (size >= 0.5 * last))
            active &= np.isfinite(value) & np.isfinite(size) & some
            if not active.any():
                break
            last, hessian = size, np.where(active[:, None, None], self._hessian(z), 0.0)
            broken = ~np.isfinite(hessian).all(axis=(1, 2))
            hessian[broken], active = 0.0, active & ~broken
            gradient = np.where(active[:, None], gradient, 0.0)
            step = -np.linalg.solve(_ridged(hessian, t), gradient[..., None])[..., 0]
            step = self._symmetric(step)  # rounding spoils the symmetry
            slope = (gradient * step).sum(axis=1)
            length, pending = np.where(active, 1.0, 0.0), active.copy()
            slack = 1e-14 * np.maximum(1.0, np.abs(value))
            for _ in range(60):
                new = self._value(z + length[:, None] * step, v, t)
                pending &= ~(new <= value + 0.25 * length * slope + slack)
                if not pending.any():
                    break
                length = np.where(pending, 0.5 * length, length)
            length = np.where(pending, 0.0, length)
            z = z + length[:, None] * step
            value = self._value(z, v, t)
            if not length.any() or np.all(np.abs(length[:, None] * step) <= 1e-15 * (1.0 + np.abs(z))):
                break
        return z

    def _lost(self, z, v, t):
        """Mask of strata where z is not the solution: t times the gradient bounds the error, a Newton step estimates it."""
        enough = EXACT * (1.0 + np.abs(z).max(axis=1, initial=0.0))
        with np.errstate(all="ignore"):
            gradient = self._gradient(z, v, t)
            outside = ~np.isfinite(self.oracle.value(z))
            lost = outside | ~(t[:, 0] * np.sqrt((gradient**2).sum(axis=1)) <= enough)
            if lost.any():
                # Where a function is very steep, rounding error alone leaves large gradients.
                system = _ridged(self._hessian(z), t)
                finite = np.isfinite(system).all(axis=(1, 2)) & np.isfinite(gradient).all(axis=1)
                known = lost & ~outside & finite
                step = np.linalg.solve(system[known], gradient[known][..., None])[..., 0]
                lost[known] = ~(np.abs(step).max(axis=1, initial=0.0) <= enough[known])
        return lost

    def _gradient(self, z, v, t):
        return self._symmetric(self.oracle.value_and_gradient(z)[1] + (z - v) / t)

    def _symmetric(self, v):
        return symmetric(v, self.transposed)

    def _hessian(self, z):
        return self._symmetric(np.array(hessian_blocks(self.oracle, z)))

    def _value(self, z, v, t):
        return self.oracle.value(z) + 0.5 * ((z - v) ** 2 / t).sum(axis=1)


def _ridged(hessian, t):
    """The Hessian plus 1/t and a ridge of rounding size, so that a singular Hessian that dwarfs 1/t is still invertible."""
    ridge = 1.0 / t[:, 0] + 1e-15 * np.trace(hessian, axis1=1, axis2=2)
    return hessian + np.eye(hessian.shape[1]) * ridge[:, None, None]


class Start:
    """The warm start of a fit's next prox, if the prox is iterative; each prox updates it."""

    state = np.zeros(1)


class ConeProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, all strata at once: by `Splitting`, or in one call of Clarabel.

    ``cones()`` gives the list of `Cones` whose sum f is; it is called when the prox is first needed. `what` is f's name for
    messages, and `restricted` says whether there are constraints other than its domain. `box`, (low, high), are bounds of z
    that f implies; a solver satisfies them up to rounding, and this prox exactly.
    """

    kind = "a cone program for each stratum, all at once"
    costly = True  # solvers with many proxes per iteration are a poor choice

    def __init__(self, cones, what, box=None, restricted=True):
        self.cones, self.what, self.box, self.restricted = cones, what, box, restricted

    def rescaled(self, weight, unit):
        box = self.box and tuple(end / unit for end in self.box)
        cones = cache(lambda: [function.scaled(weight).in_units(unit) for function in self.cones()])
        return ConeProx(cones, self.what, box, self.restricted)

    def __call__(self, v, t, start=None):
        t, start = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v)), start or Start()
        if len(v) > 1 and self.alike and (v == v[0]).all() and (t == t[0]).all():  # as at a first point
            return np.repeat(self._solved(self.cones(), v[:1], t[:1]), len(v), axis=0)
        if self.splitting is None:
            return self._solved(self.cones(), v, t)
        z, left, start.state = self.splitting(v, t, start.state)
        if len(left):
            z[left] = self.some(left, v[left], t[left])
        return self._inside(z)

    @cached_property
    def alike(self):
        """Whether f is the same in all strata."""
        return all(f.strata is None and len(f.c) == 1 for f in self.cones())

    @cached_property
    def splitting(self):
        """The `Splitting`, or None where it does not apply."""
        return Splitting.of(self.cones()) if self.alike else None

    def _solved(self, functions, v, t):
        # t f(z) + ½ ‖z − v‖² has the same minimiser, with a curvature of 1 whatever t.
        program = ConeProgram(*v.shape, functions, what=f"the prox of {self.what}", flat=0.0)
        return self._inside(program.solve(np.ones(v.shape), -v, t, refined=True).theta)

    def _inside(self, z):
        for function in self.cones():
            z = function.inside(z)
        return z if self.box is None else np.clip(z, *self.box)

    def some(self, strata, v, t):
        """The prox for some strata, by Clarabel; v and t (k,) have only the rows of these."""
        return self._solved([f.take(strata) for f in self.cones()], v, t)
