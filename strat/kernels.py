"""The compiled loops of ``kernels.c``, where a compiler was there when the package was installed.

Each spares several passes of NumPy over memory and the calls around them, which is most of the time where there are few
strata. Who has a use for one asks for ``kernels.compiled``, which is None where nothing was compiled, and has the same
in NumPy beside it; both agree to rounding. Packed matrices are those of `strat.edges.packed.Packed`.
"""

import ctypes
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np

_FLOAT, _NUMBER, _COUNT, _ARRAY = np.dtype(float), ctypes.c_double, ctypes.c_ssize_t, ctypes.c_void_p
_FUNCTIONS = {  # what a function takes, and what it returns
    "degrees": ([_COUNT, _ARRAY, _ARRAY], None),
    "add_ends": ([_COUNT, _ARRAY, _ARRAY], None),
    "projected_step": ([_COUNT, _NUMBER, *[_ARRAY] * 7], None),
    "centre": ([_COUNT, _COUNT, *[_ARRAY] * 3], None),
    "rows_times": ([_COUNT, _COUNT, *[_ARRAY] * 4], None),
    "rows_sum": ([_COUNT, _COUNT, _COUNT, *[_ARRAY] * 4], None),
    "grams": ([_COUNT, _COUNT, _COUNT, *[_ARRAY] * 4], None),
    "band_factor": ([_COUNT, _COUNT, _ARRAY], _COUNT),
    "band_solve": ([_COUNT, _COUNT, _ARRAY, _ARRAY], None),
}


def of_floats(array):
    """The array in the form that the loops take: contiguous, writable, of floats; itself where it is."""
    if array.flags.carray and array.dtype == _FLOAT:
        return array
    return np.require(array, float, ("C", "W"))


class Compiled:
    """The loops of a shared library. Arrays must be as `of_floats` gives them; none may be empty."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        for name, (arguments, result) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, result
            setattr(self, f"_{name}", function)

    def degrees(self, K, w):
        """Row sums (K,) of a packed K x K matrix with zero diagonal."""
        out = np.empty(K)
        self._degrees(K, _at(w), _at(out))
        return out

    def add_ends(self, K, a, g):
        """In place, for a packed matrix: g_ij += a_i + a_j."""
        self._add_ends(K, _at(a), _at(g))
        return g

    def projected_step(self, length, inverse, curvature, gradient, old, current, new):
        """Set new = max(old - length inverse gradient, 0), entry by entry, and measure the move new - old.

        Returns
        -------
        list of four floats
            gradient . move, curvature move . move, the square of curvature move, and curvature move . (new - current).
        """
        sums, arrays = np.empty(4), (inverse, curvature, gradient, old, current, new)
        self._projected_step(new.size, length, *map(_at, arrays), _at(sums))
        return sums.tolist()

    def centre(self, theta):
        """theta (K, n) less the mean of its rows, and half the square of each row of that."""
        out, half_squares = np.empty(theta.shape), np.empty(len(theta))
        self._centre(*theta.shape, _at(theta), _at(out), _at(half_squares))
        return out, half_squares

    def rows_times(self, x, stratum, theta):
        """x_i . theta_k of the rows x (N, p), k = stratum_i: shape (N,)."""
        out = np.empty(len(x))
        self._rows_times(*x.shape, _at(stratum), _at(x), _at(theta), _at(out))
        return out

    def rows_sum(self, x, stratum, g, K):
        """Sum of g_i x_i over the rows of each stratum, shape (K, p)."""
        out = np.empty((K, x.shape[1]))
        self._rows_sum(*x.shape, K, _at(stratum), _at(x), _at(g), _at(out))
        return out

    def grams(self, x, stratum, weight, K):
        """Sum of weight_i x_i x_iᵀ over the rows of each stratum, shape (K, p, p); the strata ascend."""
        p = x.shape[1]
        out = np.empty((K, p, p))
        self._grams(len(x), p, K, _at(stratum), _at(x), _at(weight), _at(out))
        return out

    def band_factor(self, band):
        """In place, the Cholesky factor of a symmetric matrix; return whether it is positive definite.

        Entry (j, d) of `band` (N, width + 1) is that of the matrix, and then of the factor, at d rows below entry (j, j);
        the factor's entries (j, 0) are inverted.
        """
        return not self._band_factor(len(band), band.shape[1] - 1, _at(band))

    def band_solve(self, factor, b):
        """In place, the solution for a right-hand side b of N numbers, from what `band_factor` made."""
        self._band_solve(len(factor), factor.shape[1] - 1, _at(factor), _at(b))
        return b


def _at(array, at=ctypes.byref, of=ctypes.c_char.from_buffer):
    """The address of an array; an error where it is not contiguous. Several times faster than `array.ctypes`."""
    return at(of(array))


def _load():
    """The loops of the library built for this Python, None where there is none."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernels{suffix}")
        if path.exists():
            try:
                return Compiled(path)
            except (OSError, AttributeError):  # of another machine or release
                continue
    return None


compiled = _load()
