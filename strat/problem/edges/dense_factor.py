"""Cholesky factors of dense matrices over the strata, computed by LAPACK or on a device.

Lower triangles are vectors without holes, in LAPACK's rectangular full packed format: they take half the memory of squares,
and inverses up to two thirds of the time (Gustavson, Wasniewski, Dongarra and Langou, "Rectangular full packed format for
Cholesky's algorithm", ACM TOMS 2010).
"""

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpftrf, dpftri, dtfttr, dtrttf

from strat.oracles.base import host

FORMAT = {"transr": "N", "uplo": "L"}


def positions(K, i, j):
    """Positions of the entries (i, j), i >= j: the triangle of the columns j >= half lies transposed above the others."""
    half, odd = (K + 1) // 2, K % 2
    rows = K + 1 - odd
    return np.where(j < half, j * rows + i + 1 - odd, (i - half + odd) * rows + j - half)


class DenseFactor:
    """The Cholesky factor of the matrix with a `diagonal` (K,) and -w on the edges, and its `log_det`.

    A LinAlgError says that the matrix is not positive definite. The factor takes the memory of an `old` one.
    """

    def __init__(self, edges, diagonal, w, old=None):
        self.edges, K = edges, edges.K
        self.packed = np.zeros(K * (K + 1) // 2) if old is None else old.packed
        if not edges.all_pairs:
            self.packed.fill(0.0)
        self.packed[edges.places] = -w
        self.packed[edges.diagonal] = diagonal
        if self._fails_on_device() if edges.device else dpftrf(K, self.packed, **FORMAT, overwrite_a=1)[1]:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        self.log_det = 2 * float(np.log(self.packed[edges.diagonal]).sum())

    def _square(self):
        return np.tril(dtfttr(self.edges.K, self.packed, **FORMAT)[0])

    def _fails_on_device(self):
        lower, device = self._square(), self.edges.device
        try:
            factor = host(device.xp.linalg.cholesky(device.array(lower + np.tril(lower, -1).T)))
        except Exception:  # each library has its own
            return True
        self.packed[...] = dtrttf(factor, **FORMAT)[0]
        return not np.all(factor.diagonal() > 0)

    def inverse(self):
        """The diagonal (K,) of the inverse, and its entries on the edges; the factor is lost."""
        edges, device = self.edges, self.edges.device
        if device is None:
            dpftri(edges.K, self.packed, **FORMAT, overwrite_a=1)
        else:  # L⁻ᵀ L⁻¹
            half = device.xp.linalg.inv(device.array(self._square()))
            inverse = host(device.xp.linalg.matmul(device.xp.linalg.matrix_transpose(half), half))
            self.packed[...] = dtrttf(inverse, **FORMAT)[0]
        return self.packed[edges.diagonal], self.packed.take(edges.places)

    @property
    def solve(self):
        """Function b -> matrix⁻¹ b for b (K, n), as bᵀ times the inverse: without copies to Fortran order and back."""
        lower = dtfttr(self.edges.K, self.packed, **FORMAT)[0]

        def solve(b):
            half = dtrsm(1.0, lower, b.T, side=1, lower=1, trans_a=1)
            return dtrsm(1.0, lower, half, side=1, lower=1, overwrite_b=1).T

        return solve
