"""The prox of functions without a closed form: one cone program for all strata."""

from functools import cache, cached_property

import numpy as np

from strat.oracles.cone_program import ConeProgram
from strat.oracles.splitting import Splitting


class Start:
    """Where the next prox of a fit starts if it is iterative; each prox changes it."""

    state = np.zeros(1)


class ConeProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, all strata at once: by `Splitting`, or in one call of Clarabel.

    ``cones()`` gives the list of `Cones` whose sum f is; it is called when the prox is first needed. `what` is f's name for
    messages, and `restricted` says whether there are constraints beside its domain. `box`, (low, high), are bounds of z that f
    implies, which a solver keeps but for rounding: here they hold exactly.
    """

    kind = "a cone program for each stratum, all at once"
    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, cones, what, box=None, restricted=True):
        self.cones, self.what, self.box, self.restricted = cones, what, box, restricted

    def rescaled(self, weight, unit):
        box = self.box and tuple(end / unit for end in self.box)
        cones = cache(lambda: [function.scaled(weight).in_units(unit) for function in self.cones()])
        return ConeProx(cones, self.what, box, self.restricted)

    def __call__(self, v, t, start=None):
        t, start = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v)), start or Start()
        if len(v) > 1 and self.alike and (v == v[0]).all() and (t == t[0]).all():  # as at a first point
            return np.repeat(self(v[:1], t[:1]), len(v), axis=0)
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
        """The same for some strata, by Clarabel: v and t (k,) have their rows alone."""
        return self._solved([f.take(strata) for f in self.cones()], v, t)
