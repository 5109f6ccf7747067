"""The compiled loops of ``kernels.c``, where a compiler was there when the package was installed.

Each spares several passes of NumPy over memory and the calls around them, which is most of the time where there are few
strata. Who has a use for one asks for ``kernels.compiled``, which is None where nothing was compiled, and has the same
in NumPy beside it; both agree to rounding. Packed matrices are those of `strat.problem.edges.packed.Packed`.
"""

from importlib import import_module

import numpy as np


def of_floats(array):
    """The array in the form that the loops take: contiguous, of floats."""
    return np.require(array, float, "C")


class Compiled:
    """The loops of the module `strat.oracles._loops`. Arrays that are written to must be contiguous, of floats."""

    def __init__(self, loops):
        names = [name for name in vars(Compiled) if name[0] != "_"]
        missing = [name for name in names if not hasattr(loops, name)]
        if missing:
            raise ImportError(f"strat.oracles._loops is of another release, without {missing[0]}")
        loops.use(of_floats)
        self._loops = loops

    def degrees(self, K, w):
        """Row sums (K,) of a packed K x K matrix with zero diagonal."""
        out = np.empty(K)
        self._loops.degrees(K, w, out)
        return out

    def add_ends(self, K, a, g):
        """In place, for a packed matrix: g_ij += a_i + a_j."""
        self._loops.add_ends(K, a, g)
        return g

    def rows_times(self, x, stratum, theta):
        """x_i . theta_k of the rows x (N, p), k = stratum_i: shape (N,)."""
        out = np.empty(len(x))
        self._loops.rows_times(*x.shape, stratum, x, theta, out)
        return out

    def rows_sum(self, x, stratum, g, K):
        """Sum of g_i x_i over the rows of each stratum, shape (K, p)."""
        out = np.empty((K, x.shape[1]))
        self._loops.rows_sum(*x.shape, K, stratum, x, g, out)
        return out

    def sums(self, values, K, stratum=None, weight=None):
        """Sums of the weighted numbers (N, ...) of each stratum, shape (K,); nan counts as inf.

        `stratum` (N,) is None where row k is stratum k, `weight` None or of the shape of values or of one row.
        """
        out, N = np.empty(K), len(values)
        width = values.size // N if N else 0
        stride = 0 if weight is None or len(weight) == 1 else width
        self._loops.sums(N, width, K, stratum, weight, stride, values, out)
        return out

    def soft_threshold(self, v, t, weight):
        """v (K, n) moved towards 0 by t_k weight_kc at most, t a number or (K, 1), weight (n,), (1, n) or (K, n)."""
        out, (K, n) = np.empty(v.shape), v.shape
        self._loops.soft_threshold(K, n, v, t, int(np.size(t) > 1), weight, n * (weight.size > n), out)
        return out

    def logistic(self, u):
        """log(1 + exp(u)) and exp(-|u|), entry by entry."""
        out, e = np.empty(u.shape), np.empty(u.shape)
        self._loops.logistic(u.size, u, out, e)
        return out, e

    def logistic_slope(self, u, e):
        """1 / (1 + exp(-u)) from u and e = exp(-|u|)."""
        out = np.empty(u.shape)
        self._loops.logistic_slope(u.size, u, e, out)
        return out

    def path_prox(self, v, curvature, up, down):
        """Of each row of v (P, L), that of `strat.oracles.prox_chains.path_prox`."""
        (P, L), out = v.shape, np.empty(v.shape)
        rows = [0 if len(part) == 1 else part.shape[1] for part in (curvature, up, down)]
        step = int(curvature.shape[1] > 1)
        self._loops.path_prox(
            P, L, v, curvature, rows[0], step, up, rows[1], down, rows[2], np.empty(8 * L + 6), out
        )
        return out

    def grams(self, x, stratum, weight, K):
        """Sum of weight_i x_i x_iᵀ over the rows of each stratum, shape (K, p, p); the strata ascend."""
        p = x.shape[1]
        out = np.empty((K, p, p))
        self._loops.grams(len(x), p, K, stratum, x, weight, out)
        return out

    def elimination_tree(self, indptr, indices):
        """Of `strat.oracles.sparse_cholesky`: parent and entries of every column of a Cholesky factor."""
        K = len(indptr) - 1
        seen, parent, count = np.empty((3, K), dtype=np.intp)
        self._loops.elimination_tree(K, indptr, indices, seen, parent, count)
        return parent, count


def _load():
    """The compiled loops, None where there are none."""
    try:
        return Compiled(import_module("strat.oracles._loops"))
    except (ImportError, TypeError):  # not compiled, or of another release
        return None


compiled = _load()
