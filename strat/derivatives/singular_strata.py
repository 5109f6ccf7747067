"""Which strata have parameters that neither records nor regularizer nor graph determine."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

SINGULAR = 1e-12  # pivots of a matrix with unit diagonal below this are zero up to rounding
DEFINITE = 1e-8  # larger ones are positive beyond doubt


def singular_strata(blocks, laplacians):
    """The strata, as a mask (K,), in which block-diagonal curvature plus Laplacian is singular.

    Both terms are positive semidefinite, so that a null vector of the sum has no curvature in any stratum and is constant
    over the components of each coordinate's graph. The sum of the blocks over these components is therefore singular
    exactly where the whole matrix is, and far smaller. `blocks` (K, n, n) must be definite on directions held fixed.
    """
    K, n = blocks.shape[:2]
    if _surely_definite(blocks):  # as in most models
        return np.zeros(K, dtype=bool)
    component = laplacians.components.ravel()
    merge = sp.csr_array((np.ones(K * n), (component, np.arange(K * n))))
    total = merge @ block_diagonal(np.nan_to_num(blocks, posinf=0.0, neginf=0.0)) @ merge.T
    diagonal = total.diagonal()
    scale = sp.diags_array(1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)))
    scaled = scale @ total @ scale + 1e-14 * sp.eye_array(len(diagonal))
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    factor = splu(sp.csc_array(scaled), **symmetric)
    pivots = factor.U.diagonal()[factor.perm_c]
    part = connected_components(total, directed=False)[1]
    singular = np.isin(part, part[~(pivots > SINGULAR)])
    return singular[component].reshape(K, n).any(axis=1)


def block_diagonal(blocks):
    """The block-diagonal csr_array of blocks (K, n, n)."""
    K, n = blocks.shape[:2]
    columns = np.broadcast_to((np.arange(K) * n)[:, None, None] + np.arange(n), blocks.shape)
    starts = np.arange(0, K * n * n + 1, n)
    return sp.csr_array((blocks.reshape(-1), columns.reshape(-1), starts), shape=(K * n, K * n))


def _surely_definite(blocks):
    """Whether every block alone is positive definite by far."""
    scale = 1 / np.sqrt(np.maximum(np.einsum("kaa->ka", blocks), 1e-300))
    try:
        factor = np.linalg.cholesky(blocks * scale[:, :, None] * scale[:, None, :])
    except np.linalg.LinAlgError:
        return False
    return bool((np.einsum("kaa->ka", factor) ** 2 > DEFINITE).all())
