"""The compiled loops of ``kernels.c``, where a compiler was there when the package was installed.

Each spares several passes of NumPy over memory and the calls around them, which is most of the time where there are few
strata. Who has a use for one asks for ``kernels.compiled``, which is None where nothing was compiled, and has the same
in NumPy beside it; both agree to rounding. Packed matrices are those of `strat.problem.edges.packed.Packed`. Factors and products
are those of the BLAS and LAPACK that SciPy brings and offers to compiled code.
"""

import math
from importlib import import_module

import numpy as np
from scipy.linalg import cython_blas, cython_lapack


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
        routines = (
            (cython_lapack, "dpftrf"),
            (cython_lapack, "dsfrk"),
            (cython_blas, "dsymm"),
            (cython_blas, "dgemm"),
        )
        loops.use(of_floats, *(module.__pyx_capi__[name] for module, name in routines))
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

    def coupling(self, theta, out):
        """Half the square of each row of theta (K, n) less its mean; minus the products of these rows, packed, to out."""
        centred, half_squares = np.empty(theta.shape), np.empty(len(theta))
        self._loops.coupling(*theta.shape, theta, centred, half_squares, out)
        return half_squares

    def add_half_distances(self, theta, ends, g):
        """In place, for a packed matrix: g_ij += ||theta_i - theta_j||^2 / 2 + ends_i + ends_j."""
        centred, half_squares = np.empty(theta.shape), np.empty(len(theta))
        self._loops.add_half_distances(*theta.shape, theta, ends, centred, half_squares, g)
        return g

    def laplacian(self, w, degrees, theta):
        """degrees_k theta_k less the packed matrix w times theta (K, n)."""
        out = np.empty(theta.shape)
        self._loops.laplacian(*theta.shape, w, degrees, theta, out)
        return out

    def log_det(self, w, degrees, shift, matrix):
        """log det of diag(degrees + shift) - w, and its Cholesky factor to matrix; None if it is not positive definite."""
        value = self._loops.log_det(len(degrees), w, degrees, shift, matrix)
        return None if math.isnan(value) else value

    def log_det_gradient(self, K, lambda1, square, constant, inverse, pull, out):
        """Write 2 lambda1 inverse + square pull to out, and return constant - lambda1 inverse_kk."""
        ends = np.empty(K)
        self._loops.log_det_gradient(K, lambda1, square, constant, inverse, pull, out, ends)
        return ends

    def edge_curvature(self, lambda1, shift, constant, inverse, diagonal, w, out):
        """Write lambda1 rho / (w + shift) + constant to out, rho_ij = S_ii + S_jj - 2 S_ij; return the sum of rho^2."""
        return self._loops.edge_curvature(len(diagonal), lambda1, shift, constant, inverse, diagonal, w, out)

    def extrapolate(self, beta, current, previous, out, least=-math.inf):
        """Set out = max(current + beta (current - previous), least), entry by entry."""
        self._loops.extrapolate(out.size, beta, least, current, previous, out)
        return out

    def gradient_step(self, share, degrees, loss_curvature, theta, gradient, out):
        """Set out = theta - gradient / curvature; return the curvature share degrees + loss_curvature, and 1 / curvature."""
        curvature, inverse = np.empty(len(theta)), np.empty(len(theta))
        arrays = (degrees, loss_curvature, theta, gradient, curvature, inverse, out)
        self._loops.gradient_step(*theta.shape, share, *arrays)
        return curvature, inverse

    def moves(self, old, new, gradient, move):
        """Set move = new - old; return the squares of its rows and their products with those of gradient."""
        squares, slopes = np.empty(len(old)), np.empty(len(old))
        self._loops.moves(*old.shape, old, new, gradient, move, squares, slopes)
        return squares, slopes

    def weighted_product(self, weight, a, b, c=None):
        """Sum over the rows k of weight_k a_k . (b_k - c_k)."""
        return self._loops.weighted_product(*a.shape, weight, a, b, c)

    def follow(self, raised, least, rest, losses, squares, curvature):
        """Curvatures `raised` times those that rest over squares shows, between `least` and 2 times the old ones."""
        out = np.empty(len(curvature))
        self._loops.follow(out.size, raised, least, rest, losses, squares, curvature, out)
        return out

    def projected_step(self, length, inverse, curvature, gradient, old, current, new):
        """Set new = max(old - length inverse gradient, 0), entry by entry, and measure the move new - old.

        Returns
        -------
        list of four floats
            gradient . move, curvature move . move, the square of curvature move, and curvature move . (new - current).
        """
        sums, arrays = np.empty(4), (inverse, curvature, gradient, old, current, new)
        self._loops.projected_step(new.size, length, *arrays, sums)
        return sums.tolist()

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

    def band_factor(self, band):
        """In place, the Cholesky factor of a symmetric matrix; return whether it is positive definite.

        Entry (j, d) of `band` (N, width + 1) is that of the matrix, and then of the factor, at d rows below entry (j, j);
        the factor's entries (j, 0) are inverted.
        """
        return not self._loops.band_factor(len(band), band.shape[1] - 1, band)

    def blocks_times(self, blocks, x):
        """blocks_k x_k of blocks (K, n, n) and x (K, n): shape (K, n)."""
        out = np.empty(x.shape)
        self._loops.blocks_times(*x.shape, blocks, x, out)
        return out

    def invert(self, matrices):
        """In place, the inverses of positive definite matrices (K, n, n); return whether all are definite."""
        return not self._loops.invert(len(matrices), matrices.shape[1], matrices)

    def elimination_tree(self, indptr, indices):
        """Of `strat.oracles.sparse_cholesky`: parent and entries of every column of a Cholesky factor."""
        K = len(indptr) - 1
        seen, parent, count = np.empty((3, K), dtype=np.intp)
        self._loops.elimination_tree(K, indptr, indices, seen, parent, count)
        return parent, count

    def band_solve(self, factor, b):
        """In place, the solution for a right-hand side b of N numbers, from what `band_factor` made."""
        self._loops.band_solve(len(factor), factor.shape[1] - 1, factor, b)
        return b


def _load():
    """The compiled loops, None where there are none."""
    try:
        return Compiled(import_module("strat.oracles._loops"))
    except (ImportError, KeyError, ValueError):  # not compiled, or not for this Python or SciPy
        return None


compiled = _load()
