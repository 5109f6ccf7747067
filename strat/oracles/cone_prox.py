"""The prox of functions without a closed form: one cone program for all strata."""

import threading
from functools import cache

import numpy as np

from strat.oracles.cone_program import ConeProgram


class _OfThread(threading.local):
    """The program of a thread, and its last call: fits in several threads share a prox."""

    program = last = None


class ConeProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, all strata in one call of Clarabel.

    Parameters
    ----------
    cones : callable
        ``cones()`` gives the list of `Cones` whose sum f is; it is called when the prox is first needed.
    what : str
        What f is, for messages.
    box : (low, high), optional
        Bounds of z that f implies, which a solver keeps but for rounding: here they hold exactly.
    restricted : bool
        Whether there are constraints, beside the domain of f.
    """

    kind = "one cone program of all strata, by Clarabel"
    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, cones, what, box=None, restricted=True):
        self.cones, self.what, self.box, self.restricted = cones, what, box, restricted
        self._own = _OfThread()

    def rescaled(self, weight, unit):
        """The prox of weight × f(unit · z)."""
        box = self.box and tuple(end / unit for end in self.box)
        cones = cache(lambda: [function.scaled(weight).in_units(unit) for function in self.cones()])
        return ConeProx(cones, self.what, box, self.restricted)

    def __getstate__(self):
        return {**self.__dict__, "_own": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _own=_OfThread())

    def __call__(self, v, t):
        K, n = v.shape
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), K)
        if K > 1 and self._alike(v, t):
            return np.tile(self(v[:1], t[:1]), (K, 1))
        if self._own.program is None or self._own.program.K != K:
            self._write(K, n)
        return self._solved(self._own.program, v, t)

    def next(self, v, t):
        """The same in a sequence of calls: solved for the distance from the last one, where that is near."""
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        if self._own.last is None and self._alike(v, t):
            return self(v, t)
        if self._own.last is None or self._own.last[0].shape != v.shape:
            self._write(*v.shape)
            z = self._solved(self._own.program, v, t, np.inf)
        else:
            # Had the slope (v - z)/t stayed, z would have moved no further than this.
            before, step, z = self._own.last
            distance = np.abs(v - before).max() + np.abs((t / step - 1.0)[:, None] * (before - z)).max()
            z = self._solved(self._own.program, v, t, distance)
        self._own.last = v.copy(), t.copy(), z
        return z

    def _solved(self, program, v, t, distance=None):
        # t f(z) + ½ ‖z − v‖² has the same minimiser, with a curvature of 1 whatever t.
        z = program.solve(np.ones(v.shape), -v, t, refined=True, distance=distance).theta
        for function in self.cones():
            z = function.inside(z)
        return z if self.box is None else np.clip(z, *self.box)

    def _write(self, K, n):
        self._own.program, self._own.last = (
            ConeProgram(K, n, self.cones(), what=f"the prox of {self.what}"),
            None,
        )

    @property
    def memory(self):
        """Arrays of the last call, from which the next one starts; none at first."""
        last = None if self._own.last is None else self._own.program.last
        return [] if last is None else [*self._own.last, *last]

    def remember(self, memory):
        """Take up the memory of another run."""
        self._own.last = None
        if self._own.program is not None:
            self._own.program.last = None
        if memory:
            self._write(*memory[0].shape)
            self._own.last, self._own.program.last = tuple(memory[:3]), (memory[3], float(memory[4]))

    def _alike(self, v, t):
        """Whether all strata have the same prox."""
        same = np.ptp(v, axis=0).max(initial=0.0) == 0 == np.ptp(t)
        return same and all(f.strata is None and len(f.c) == 1 for f in self.cones())

    def some(self, strata, v, t):
        """The same for some strata: v and t have their rows alone."""
        program = ConeProgram(len(strata), v.shape[1], [f.take(strata) for f in self.cones()])
        return self._solved(program, v, np.broadcast_to(np.reshape(t, -1), len(v)))
