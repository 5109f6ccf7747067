"""Symmetric matrices in LAPACK's rectangular full packed format: the lower triangle as one vector without holes.

It takes half the memory of a square, elementwise operations touch just the triangle, and Cholesky factor and inverse
are as fast as on squares, as the triangle is folded into a rectangle of three blocks (Gustavson, Wasniewski, Dongarra
and Langou, "Rectangular full packed format for Cholesky's algorithm", ACM TOMS 2010).
"""

import numpy as np
from scipy.linalg.blas import dsymm, dsymv, dtrsm
from scipy.linalg.lapack import dpftrf, dpftri, dsfrk, dtfttr, dtrttf

from strat.oracles.base import host


class Packed:
    """The format for K x K matrices: vectors of `size` numbers, with the diagonal at the positions `diagonal`."""

    def __init__(self, K):
        self.K, self.size = K, K * (K + 1) // 2
        self._half, self._odd = (K + 1) // 2, K % 2
        self._rows = K + 1 - self._odd
        self.diagonal = self.positions(np.arange(K), np.arange(K))

    def positions(self, i, j):
        """Positions of the entries (i, j), i >= j."""
        # One rectangle of the columns j < half; the triangle of the later columns lies transposed above them.
        half, odd, rows = self._half, self._odd, self._rows
        return np.where(j < half, j * rows + i + 1 - odd, (i - half + odd) * rows + j - half)

    def pack(self, matrix):
        """The lower triangle of a square array, packed."""
        return dtrttf(matrix, transr="N", uplo="L")[0]

    def square(self, a):
        """Square array, in Fortran order, whose lower triangle is the matrix; the rest is arbitrary."""
        return dtfttr(self.K, a, transr="N", uplo="L")[0]

    def factor(self, a):
        """Replace a by its Cholesky factor; return whether it is positive definite."""
        return not dpftrf(self.K, a, transr="N", uplo="L", overwrite_a=1)[1]

    def invert(self, a):
        """Replace a Cholesky factor by the inverse of the matrix."""
        return dpftri(self.K, a, transr="N", uplo="L", overwrite_a=1)[0]

    def solver(self, a):
        """Function b -> matrix^-1 b for b (K, n), from a Cholesky factor."""
        factor = self.square(a)

        def solve(b):  # b^T times the inverse: no copies to Fortran order and back
            half = dtrsm(1.0, factor, b.T, side=1, lower=1, trans_a=1)
            return dtrsm(1.0, factor, half, side=1, lower=1, overwrite_b=1).T

        return solve

    def operator(self, a):
        """Function x -> the matrix times x, (K,) or (K, n), for many products."""
        square = self.square(a)

        def product(x):
            if x.ndim == 1:
                return dsymv(1.0, square, x, lower=1)
            if x.shape[1] == 1:  # dsymm is slow on one column
                return dsymv(1.0, square, x[:, 0], lower=1)[:, None]
            return dsymm(1.0, square, x.T, side=1, lower=1).T

        return product

    def add_products(self, alpha, theta, beta, a):
        """Replace a by beta a + alpha theta theta^T, theta (K, n)."""
        return dsfrk(
            self.K, theta.shape[1], alpha, theta.T, beta, a, transr="N", uplo="L", trans="T", overwrite_c=1
        )


class DevicePacked(Packed):
    """The format with Cholesky factors and inverses that a device computes."""

    def __init__(self, K, device):
        super().__init__(K)
        self.array, self.linalg = device.array, device.xp.linalg

    def factor(self, a):
        """Replace a by its Cholesky factor; return whether it is positive definite."""
        lower = np.tril(self.square(a))
        try:
            factor = host(self.linalg.cholesky(self.array(lower + np.tril(lower, -1).T)))
        except Exception:  # each library has its own
            return False
        a[...] = self.pack(factor)
        return bool(np.all(factor.diagonal() > 0))

    def invert(self, a):
        """Replace a Cholesky factor L by the inverse of the matrix, L⁻ᵀ L⁻¹."""
        inverse = self.linalg.inv(self.array(np.tril(self.square(a))))
        a[...] = self.pack(host(self.linalg.matmul(self.linalg.matrix_transpose(inverse), inverse)))
        return a
