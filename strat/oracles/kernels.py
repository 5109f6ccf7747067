"""The compiled loops of ``_loops.c``, if a compiler was present when the package was installed.

Callers test ``kernels.compiled``, which is None where nothing was compiled, and have a version in NumPy beside it; the two
agree to rounding.
"""

from contextlib import suppress
from importlib import import_module

import numpy as np


def of_floats(array):
    """The array in the form that the loops take: contiguous, of floats."""
    return np.ascontiguousarray(array, dtype=float)


class Compiled:
    """The loops of the module `strat.oracles._loops`. Arrays that are written to must be contiguous, of floats."""

    def __init__(self, loops):
        missing = [name for name in vars(Compiled) if name[0] != "_" and not hasattr(loops, name)]
        if missing:
            raise ImportError(f"strat.oracles._loops is of another release, without {missing[0]}")
        self._loops = loops

    def rows_times(self, x, stratum, theta):
        """x_i . theta_k of the rows x (N, p), k = stratum_i: shape (N,)."""
        out = np.empty(len(x))
        self._loops.rows_times(*x.shape, len(theta), stratum, x, of_floats(theta), out)
        return out

    def rows_sum(self, x, stratum, g, K):
        """Sum of g_i x_i over the rows of each stratum, shape (K, p)."""
        out = np.empty((K, x.shape[1]))
        self._loops.rows_sum(*x.shape, K, stratum, x, of_floats(g), out)
        return out

    def grams(self, x, stratum, weight, K):
        """Sum of weight_i x_i x_iᵀ over the rows of each stratum, shape (K, p, p); the strata ascend."""
        out = np.empty((K, x.shape[1], x.shape[1]))
        self._loops.grams(*x.shape, K, stratum, x, of_floats(weight), out)
        return out

    def paths(self, v, curvature, up, down):
        """The result (P, L) of `strat.oracles.prox_groups.path_prox` for v (P, L) and the other terms."""
        (P, L), slopes = v.shape, np.stack([up, down])
        out = np.empty(P * L + 8 * L + 6)  # the result and the workspace
        self._loops.paths(P, L, up.shape[1], of_floats(v), of_floats(curvature), of_floats(slopes), out)
        return out[: P * L].reshape(P, L)

    def add_to_pairs(self, theta, a, out):
        """In place: out_e += a_i + a_j + ||theta_i - theta_j||² for all pairs e = (i, j), i < j."""
        self._loops.add_to_pairs(theta.shape[1], len(a), 0, of_floats(theta.T), of_floats(a), a, out)
        return out


compiled = None
with suppress(ImportError):  # not compiled, or not for this Python
    compiled = Compiled(import_module("strat.oracles._loops"))
