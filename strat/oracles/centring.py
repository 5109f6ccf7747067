"""Coordinates in which columns far from 0 do no harm: free parameters, as intercepts, are taken at the columns' means."""

import numpy as np
import scipy.sparse as sp

#: Share of a parameter's curvature that is left once the free ones follow it, below which it is lost to rounding.
COLLINEAR = 1e-2


class Centring:
    """theta = T s in every stratum, for free parameters F and others J:

        theta_J = s_J,    theta_F = s_F − M_FF⁻¹ M_FJ s_J,

    where M (n, n) is the losses' mean curvature, which does not tie s_F to s_J: for an intercept, the columns are centred at
    their means. `free` is the mask (n,) of F, and `left` the least share of M_jj, over J, that s_j keeps.
    """

    def __init__(self, M, free):
        tied, diagonal = M[free][:, ~free], M.diagonal()[~free]
        shift = np.linalg.pinv(M[free][:, free], hermitian=True) @ tied
        kept = diagonal - (tied * shift).sum(axis=0)
        self.free, self.left = free, np.min(kept[diagonal > 0] / diagonal[diagonal > 0], initial=1.0)
        self.T = np.eye(len(M))
        self.T[np.ix_(free, ~free)] = -shift
        self.inverse = 2 * np.eye(len(M)) - self.T

    def metric(self, M):
        """Curvatures (n, n) of theta that are those of s alone, at most 1."""
        size = np.einsum("ia,ij,ja->a", self.T, M, self.T) / M.diagonal().max()
        return (self.inverse.T * size) @ self.inverse

    def moved(self, K, P, q, A):
        """The matrices of a program in s, P with its upper triangle alone, and C with x = C of x in s."""
        others = sp.eye_array(len(q) - K * len(self.T))
        C = sp.block_diag([sp.kron(sp.eye_array(K), self.T), others], format="csc")
        P = C.T @ (P + sp.triu(P, 1).T) @ C
        return sp.csc_array(sp.triu(P)), C.T @ q, sp.csc_array(A @ C), C


def split(laplacian, apart):
    """(the Laplacian of the parameters that are not `apart` (n,), D with that of the others as Dᵀ D: a row for each edge)."""
    apart = np.tile(apart, laplacian.shape[0] // len(apart))
    edges = sp.coo_array(sp.diags_array(apart * 1.0) @ sp.triu(laplacian, 1))
    (i, j), root = edges.coords, np.sqrt(np.maximum(-edges.data, 0.0))
    row = np.tile(np.arange(len(root)), 2)
    entries = np.concatenate([root, -root]), (row, np.concatenate([i, j]))
    return sp.diags_array(~apart * 1.0) @ laplacian, sp.csr_array(entries, shape=(len(root), len(apart)))


def free_parameters(functions, n):
    """The mask (n,) of parameters that none of the Cones of a stratum holds."""
    free = np.ones(n, dtype=bool)
    for f in functions:
        used = np.concatenate([f.A.columns, f.P.columns, f.P.rows, np.flatnonzero(f.c.any(axis=0))])
        free[used[used < n].astype(int)] = False
    return free
