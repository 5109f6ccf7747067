"""The matrix diag(degrees + shift) - A(w) at one point: its log det, and the entries of its inverse on the edges."""

import numpy as np

from strat.oracles.memory import check_memory

POINTS = 3  # of which a fit holds the matrices


class PackedInverse:
    """In a dense packed matrix: first the Cholesky factor, then the inverse.

    Attributes
    ----------
    diagonal : (K,) ndarray
        Of the inverse, after `invert`.
    entries : edge array
        The inverse's entries at the edges.
    """

    def __init__(self, edges):
        check_memory("a dense inverse over the strata", POINTS * 8.0 * edges.packed.size, "give fewer edges")
        self.edges, self._matrix = edges, np.zeros(edges.packed.size)

    def log_det(self, w, shift, degrees):
        """Factorise, and return the log det; None where the matrix is not positive definite."""
        return self.edges.log_det(w, shift, degrees, self._matrix)

    def invert(self):
        """Take the inverse of the matrix that was factorised."""
        self.edges.packed.invert(self._matrix)
        self.diagonal = self._matrix[self.edges.packed.diagonal]
        self.entries = self.edges.entries(self._matrix)


class SparseInverse:
    """The same by a sparse Cholesky factor, which takes no memory for pairs that neither it nor the edges have."""

    def __init__(self, analysis):
        check_memory("the sparse factors of this graph", POINTS * analysis.bytes)
        self.analysis = analysis

    def log_det(self, w, shift, degrees):
        """Factorise, and return the log det; None where the matrix is not positive definite."""
        try:
            self._factor = self.analysis.factor(degrees + shift, -w)
        except np.linalg.LinAlgError:
            return None
        return self._factor.log_det

    def invert(self):
        """Take the inverse of the matrix that was factorised."""
        self.diagonal, self.entries = self._factor.inverse()
        self._factor = None
