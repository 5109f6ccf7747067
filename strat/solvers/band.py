"""A banded Cholesky factor of G(w) diag(couple) + blocks, for chains and other narrow graphs."""

import numpy as np
from scipy.linalg.lapack import dpbtrf, dpbtrs

CHEAP = 1000  # width**2 n up to which the factor beats conjugate gradients
LARGEST = 2**25  # entries of a factor


class BandFactor:
    """Cholesky factors of matrices over strata and coordinates, with the strata in an order that keeps neighbours near.

    Coordinate c of the stratum in place p is row p n + c. Where neighbours are at most `width` places apart, the
    bandwidth is width n: that of a chain is n, and its factor costs no more than the strata's blocks.

    Parameters
    ----------
    edges : AllPairs or EdgeList
    w : edge array
    couple : (n,) or (E, n) ndarray
        Weight of every coordinate's Laplacian, on all edges or on each.
    """

    def __init__(self, edges, w, couple):
        self.place, self.width = edges.band
        i, j = edges.ends
        a, b = self.place[i], self.place[j]
        self.low, self.apart = np.minimum(a, b), np.abs(a - b)
        self.high = self.low + self.apart
        self.entries = -edges.vector(w)[:, None] * couple
        self.K, self.n = edges.K, couple.shape[-1]

    @staticmethod
    def cheap(edges, n):
        """Whether a factor costs less than conjugate gradients do."""
        if edges.count**2 * n > CHEAP * edges.K**2:  # no order could do
            return False
        width = edges.band[1]
        return width > 0 and width**2 * n <= CHEAP and edges.K * n * (width * n + 1) <= LARGEST

    def factor(self, blocks, diagonal, mask):
        """Function r -> solution, (K, n) to (K, n); None where the matrix is not positive definite.

        Parameters
        ----------
        blocks : (K, n, n) ndarray
            Diagonal blocks, already restricted to the free coordinates.
        diagonal : (K, n) ndarray
            What to add to their diagonals: the degrees.
        mask : (K, n) bool ndarray or None
            The free coordinates; None where all are.
        """
        K, n, place = self.K, self.n, self.place
        band = np.zeros((K, n, self.width * n + 1))  # band[p, c, d]: entry at d rows below the diagonal
        for c in range(n):
            band[place, c, : n - c] = blocks[:, c:, c]
        band[place, :, 0] += diagonal
        entries = self.entries
        if mask is not None:
            free = np.empty_like(mask)
            free[place] = mask
            entries = entries * (free[self.low] & free[self.high])
        band[self.low[:, None], np.arange(n), self.apart[:, None] * n] = entries
        factor, info = dpbtrf(band.reshape(K * n, -1).T, lower=1, overwrite_ab=1)
        if info:
            return None

        def solve(r):
            b = np.empty((K, n))
            b[place] = r
            return dpbtrs(factor, b.reshape(-1), lower=1, overwrite_b=1)[0].reshape(K, n)[place]

        return solve
