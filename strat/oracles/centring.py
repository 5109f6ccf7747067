"""Coordinates in which columns far from 0 do no harm: free parameters, as intercepts, are taken at the columns' means."""

import numpy as np
import scipy.sparse as sp

#: Share of a parameter's curvature left once the free ones follow it, below which it has lost digits that count.
COLLINEAR = 1e-4


class Centring:
    """theta = T s in every stratum, for free parameters F and others J:

        theta_J = s_J,    theta_F = s_F − M_FF⁻¹ M_FJ s_J,

    where M (n, n) is the losses' mean curvature, which does not tie s_F to s_J: for an intercept, the columns are centred at
    their means. The other unknowns of a program of the given size stay.
    """

    def __init__(self, T, free, K, size):
        self.T, self.free, self.K = T, free, K
        unchanged = sp.eye_array(size - K * len(T))
        self.C = sp.block_diag([sp.kron(sp.eye_array(K), T), unchanged], format="csc")

    @classmethod
    def of(cls, M, free, K, size):
        """That for the free parameters, a mask (n,), or None where theta will do."""
        tied, diagonal = M[free][:, ~free], M.diagonal()[~free]
        shift = np.linalg.pinv(M[free][:, free], hermitian=True) @ tied
        if not (diagonal - (tied * shift).sum(axis=0) < COLLINEAR * diagonal).any():
            return None
        T = np.eye(len(M))
        T[np.ix_(free, ~free)] = -shift
        return cls(T, free, K, size)

    @property
    def inverse(self):
        """T⁻¹."""
        return 2 * np.eye(len(self.T)) - self.T

    def metric(self, M):
        """Curvatures (n, n) of theta that are those of s alone, at most 1."""
        size = np.einsum("ia,ij,ja->a", self.T, M, self.T) / M.diagonal().max()
        return (self.inverse.T * size) @ self.inverse

    def moved(self, P, q, A):
        """A program's matrices in s, P with its upper triangle alone."""
        P = self.C.T @ (P + sp.triu(P, 1).T) @ self.C
        return sp.csc_array(sp.triu(P)), self.C.T @ q, sp.csc_array(A @ self.C)

    def split(self, laplacian):
        """(the Laplacian without the free parameters, √w (theta_i − theta_j) of those along the edges as a matrix times s).

        In s the free parameters' Laplacian is huge, as they are 0 at a point far from the records.
        """
        free = np.tile(self.free, self.K)
        edges = sp.coo_array(sp.diags_array(free * 1.0) @ sp.triu(laplacian, 1))
        (i, j), root = edges.coords, np.sqrt(np.maximum(-edges.data, 0.0))
        row = np.tile(np.arange(len(root)), 2)
        ends = np.concatenate([root, -root]), (row, np.concatenate([i, j]))
        differences = sp.csr_array(ends, shape=(len(root), self.C.shape[0])) @ self.C
        return sp.diags_array(~free * 1.0) @ laplacian, differences
