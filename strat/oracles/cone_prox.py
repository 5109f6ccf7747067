"""The prox of functions without a closed form: one cone program for all strata."""

import threading
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.cone_program import ConeProgram
from strat.oracles.splitting import Splitting

#: How often ADMM may take longer than Clarabel before it is given up.
MISSES = 5


@dataclass
class Start:
    """Where the next prox of a fit starts if it is iterative; each prox changes it."""

    state: np.ndarray = field(default_factory=lambda: np.zeros(1))
    misses: int = 0  # how often ADMM took long
    rough: bool = False  # whether a rough prox by Clarabel will do


class ConeProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, all strata in one call of Clarabel.

    ``cones()`` gives the list of `Cones` whose sum f is; it is called when the prox is first needed. `what` is f's name for
    messages, and `restricted` says whether there are constraints beside its domain. `box`, (low, high), are bounds of z that f
    implies, which a solver keeps but for rounding: here they hold exactly. A `rough` prox is right to the root of the gap.
    """

    kind = "one cone program of all strata, by Clarabel"
    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, cones, what, box=None, restricted=True):
        self.cones, self.what, self.box, self.restricted = cones, what, box, restricted
        self._own = threading.local()  # the program: fits in several threads share a prox

    def rescaled(self, weight, unit):
        """The prox of weight × f(unit · z)."""
        box = self.box and tuple(end / unit for end in self.box)
        cones = cache(lambda: [function.scaled(weight).in_units(unit) for function in self.cones()])
        return ConeProx(cones, self.what, box, self.restricted)

    def __getstate__(self):
        return {**self.__dict__, "_own": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _own=threading.local())

    def __call__(self, v, t, start=None):
        K, n = v.shape
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), K)
        if K > 1 and self._alike(v, t):
            return np.tile(self(v[:1], t[:1]), (K, 1))
        start = start or Start(misses=MISSES)
        if self.splits(start):
            return self._split(v, t, start)
        program = getattr(self._own, "program", None)
        if program is None or program.K != K:
            program = self._own.program = self._program(K, n, self.cones())
        try:
            return self._solved(program, v, t, start.rough)
        except NoOracleError:  # rounding may end the program of a few strata
            if self.splitting is None:
                raise
        return self._split(v, t, Start())

    def splits(self, start):
        """Whether ADMM computes the next prox."""
        return start.misses < MISSES and self.splitting is not None

    @cached_property
    def splitting(self):
        """The ADMM, or None where it does not apply."""
        return Splitting.of(self.cones())

    def _split(self, v, t, start):
        z, left, start.state, long = self.splitting(v, t, start.state)
        start.misses += long
        if len(left):
            z[left] = self.some(left, v[left], t[left])
        return self._inside(z)

    def _program(self, K, n, functions):
        return ConeProgram(K, n, functions, what=f"the prox of {self.what}", flat=0.0)

    def _solved(self, program, v, t, rough=False):
        # t f(z) + ½ ‖z − v‖² has the same minimiser, with a curvature of 1 whatever t.
        return self._inside(program.solve(np.ones(v.shape), -v, t, refined=not rough).theta)

    def _inside(self, z):
        for function in self.cones():
            z = function.inside(z)
        return z if self.box is None else np.clip(z, *self.box)

    def _alike(self, v, t):
        """Whether all strata have the same prox."""
        same = np.ptp(v, axis=0).max(initial=0.0) == 0 == np.ptp(t)
        return same and all(f.strata is None and len(f.c) == 1 for f in self.cones())

    def some(self, strata, v, t):
        """The same for some strata: v and t have their rows alone."""
        program = self._program(*v.shape, [f.take(strata) for f in self.cones()])
        return self._solved(program, v, np.broadcast_to(np.reshape(t, -1), len(v)))
