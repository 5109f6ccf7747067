"""Coordinates in which columns far from 0 do no harm: free parameters, such as intercepts, are taken at the columns' means."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

#: Share of a parameter's curvature that remains once the free parameters adapt to it, below which rounding error hides it.
COLLINEAR = 1e-2


class Centring:
    """theta = T s in every stratum, for free parameters F and others J:

        theta_J = s_J,    theta_F = s_F − M_FF⁻¹ M_FJ s_J,

    where M (n, n) is the losses' mean curvature. In s, M does not couple s_F and s_J: for an intercept, the columns are
    centred at their means. `free` is the mask (n,) of F, and `left` the least share of M_jj that remains in s_j, over J.
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
        """Curvatures (n, n) in theta that are diagonal in s: those of M there, scaled to at most 1."""
        size = np.einsum("ia,ij,ja->a", self.T, M, self.T) / M.diagonal().max()
        return (self.inverse.T * size) @ self.inverse


def moved(move, P, q, A, C):
    """P, by its upper triangle, q and A of a program in s, where theta = move · s, and C @ move."""
    move = sp.block_diag([move, sp.eye_array(len(q) - move.shape[0])], format="csc")
    P = move.T @ (P + sp.triu(P, 1).T) @ move
    return sp.csc_array(sp.triu(P)), move.T @ q, sp.csc_array(A @ move), C @ move


def deviations(laplacian, apart):
    """(G, D): theta = G s, where s holds theta at the first stratum of each connected part, and other strata's differences.

    The diagonal D is 0 at the first strata, so that D L D is the Laplacian in s. Only parameters in the mask `apart` change.
    """
    apart = np.tile(apart, laplacian.shape[0] // len(apart))
    label = connected_components(sp.diags_array(apart * 1.0) @ laplacian)[1]
    first = np.unique(label, return_index=True)[1][label]
    other = first != np.arange(len(first))
    G = sp.eye_array(len(first), format="csr")[first] + sp.diags_array(other * 1.0)
    return G, sp.diags_array((other | ~apart) * 1.0)


def split(laplacian, apart):
    """(Laplacian of the parameters not in the mask `apart` (n,), D with a row per edge, Dᵀ D the Laplacian of the others)."""
    if not apart.any():
        return laplacian, None
    apart = np.tile(apart, laplacian.shape[0] // len(apart))
    edges = sp.coo_array(sp.diags_array(apart * 1.0) @ sp.triu(laplacian, 1))
    (i, j), root = edges.coords, np.sqrt(np.maximum(-edges.data, 0.0))
    row = np.tile(np.arange(len(root)), 2)
    entries = np.concatenate([root, -root]), (row, np.concatenate([i, j]))
    return sp.diags_array(~apart * 1.0) @ laplacian, sp.csr_array(entries, shape=(len(root), len(apart)))


def free_parameters(functions, n):
    """The mask (n,) of parameters that occur in none of the `functions`, the Cones of a stratum."""
    free = np.ones(n, dtype=bool)
    for f in functions:
        used = np.concatenate([f.A.columns, f.P.columns, f.P.rows, np.flatnonzero(f.c.any(axis=0))])
        free[used[used < n].astype(int)] = False
    return free
