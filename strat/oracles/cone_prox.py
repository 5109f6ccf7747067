"""The prox of functions without a closed form: one cone program for all strata."""

import numpy as np

from strat.oracles.cone_program import ConeProgram


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
        self.cones, self.what, self.box, self.restricted, self._program = cones, what, box, restricted, None

    def __getstate__(self):
        return {**self.__dict__, "_program": None}

    def __call__(self, v, t):
        K, n = v.shape
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), K)
        if K > 1 and np.ptp(v, axis=0).max(initial=0.0) == 0 == np.ptp(t) and self._alike:
            return np.tile(self(v[:1], t[:1]), (K, 1))
        program = self._program
        if program is None or program.K != K:
            program = self._program = ConeProgram(K, n, self.cones(), what=f"the prox of {self.what}")
        # t f(z) + ½ ‖z − v‖² has the same minimiser, with a curvature of 1 whatever t.
        z = program.solve(np.ones((K, n)), -v, t, refined=True).theta
        return self._inside(z)

    @property
    def _alike(self):
        """Whether f is the same in all strata."""
        return all(f.strata is None and len(f.c) == 1 for f in self.cones())

    def some(self, strata, v, t):
        """The same for some strata: v and t have their rows alone."""
        program = ConeProgram(len(strata), v.shape[1], [f.take(strata) for f in self.cones()])
        z = program.solve(
            np.ones(v.shape), -v, np.broadcast_to(np.reshape(t, -1), len(v)), refined=True
        ).theta
        return self._inside(z)

    def _inside(self, z):
        for function in self.cones():
            z = function.inside(z)
        return z if self.box is None else np.clip(z, *self.box)
