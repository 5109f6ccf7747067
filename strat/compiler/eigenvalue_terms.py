"""Functions of the eigenvalues of affine matrices, and semidefinite ones: (A, b, functions) of the symmetric part of A z + b."""

import math

import numpy as np
import scipy.sparse as sp

from strat.compiler.pieces import affine_matrix
from strat.oracles.group_terms import SpectralFunctions


def spectral(binder, node, weight):
    """Those of weight × an atom, which sees the symmetric part of its argument; None where that is not affine."""
    affine = affine_matrix(binder, node.forms[0])
    if affine is None:
        return None
    A, b, shape = _symmetric(*affine)
    return A, b, SpectralFunctions(node.rule, 1, shape, weight)


def semidefinite(A, b):
    """Those of A z + b being positive semidefinite."""
    A, b, shape = _symmetric(A, b)
    return A, b, SpectralFunctions(None, 1, shape, radius=1.0)


def largest_at_most(binder, node, level):
    """Those of the largest eigenvalue being at most a level; None where the matrix is not affine."""
    affine = affine_matrix(binder, node.forms[0])
    if affine is None:
        return None
    identity = np.eye(node.forms[0].shape[0]).reshape(-1)
    return semidefinite(-affine[0], level * identity - affine[1])


def cone(places, d, size, kind):
    """Those of a variable d × d in a cone, "PSD" or "NSD", at places among so many coordinates."""
    A = sp.csr_array((np.ones(d * d), (np.arange(d * d), places)), shape=(d * d, size))
    A, b, shape = _symmetric(A, np.zeros(d * d))
    return A, b, SpectralFunctions(None, 1, shape, radius=1.0 if kind == "PSD" else -1.0)


def _symmetric(A, b):
    """(A, b, shape) of the symmetric part."""
    d = math.isqrt(len(b))
    turned = np.arange(d * d).reshape(d, d).T.reshape(-1)
    return sp.csr_array(0.5 * (A + A[turned])), 0.5 * (b + b[turned]), (d, d)
