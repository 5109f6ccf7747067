"""The reduced Hessian of an LRSM: curvature plus Laplacian over the directions in which the fit can move."""

import warnings
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from strat.errors import ConvergenceWarning
from strat.solvers.free_directions import FreeDirections, times

DENSE = 4000  # unknowns up to which a dense factor is made where conjugate gradients are slow
SEVERAL = 4  # right-hand sides that share a dense factor from the first
ROUNDS = 2  # of conjugate gradients, and of the dense factor
ACCURATE = 1e-12  # relative residual to reach
LOOSE = 1e-8  # relative residual that deserves a warning
RIDGE = 1e-14  # relative; keeps solutions finite in strata where the Hessian is singular
SINGULAR, DEFINITE = (
    1e-12,
    1e-8,
)  # pivots of a matrix with unit diagonal: rounding below, positive beyond doubt above


class ReducedHessian:
    """A = Qᵀ (H + C + G(w) ⊗ diag(couple)) Q for one linearisation of a fit.

    H = diag(blocks) holds the Hessian of each stratum's loss, C the regularizer's curvature, G(w) is the graph's
    Laplacian and Q an orthonormal basis of the free directions. C and Q follow from `slope`, the Jacobian of the
    regularizer's prox. The NewtonSystem, of the problem and its weights, may serve several linearisations, and with it
    the preconditioner.
    """

    def __init__(self, newton, laplacians, blocks, slope):
        self.slope, self.free = slope, FreeDirections(slope)
        self._newton, self._laplacians, self._blocks = newton, laplacians, blocks
        curvature = self.free.curvature
        full = curvature if curvature.ndim == 3 else curvature[:, :, None] * np.eye(blocks.shape[1])
        self._curved = blocks + full

    @cached_property
    def _size(self):
        """Mean diagonal of each stratum's own block, (K,)."""
        return (np.einsum("kaa->ka", self._curved) + self._laplacians.degrees).mean(axis=1)

    @cached_property
    def _system(self):
        """The Newton equations, set to this linearisation."""
        self._newton.take(self._blocks)
        self._newton.set(self.free, RIDGE * (self._size + self._size.mean()))
        return self._newton

    def times(self, d):
        """(H + C + G(w) ⊗ diag(couple)) d for d (K, n), not restricted to the free directions."""
        return times(self._curved, d) + self._laplacians.operator(d)

    @cached_property
    def basis(self):
        """Q, sparse, (K n, M): the free coordinates, or the free eigenvectors of the prox's Jacobian."""
        if self.free.mask is not None:
            return sp.eye_array(self.free.mask.size, format="csc")[:, self.free.mask.ravel()]
        vectors = np.where(np.abs(self.slope.U) > 1e-9, self.slope.U, 0.0)
        return sp.csc_array(block_diagonal(vectors))[:, self.slope.free.ravel()]

    @cached_property
    def matrix(self):
        """A, sparse, (M, M)."""
        A = self.basis.T @ (block_diagonal(self._curved) + self._laplacians.matrix()) @ self.basis
        return sp.csr_array((A + A.T) / 2)

    def solve(self, b, tolerance=ACCURATE, warn=True):
        """Q A⁻¹ Qᵀ b for b (K, n) or (m, K, n), with warnings where A is singular or the residual large."""
        right = b[None] if b.ndim == 2 else b
        small = self.basis.shape[1] <= DENSE
        steps = [self._direct] * ROUNDS if small else []
        if not small or len(right) <= SEVERAL:
            steps = [self._iterate] * ROUNDS + steps
        solutions = [self._solve(self.free.project(each), tolerance, steps) for each in right]
        if warn and solutions:
            self._warn(np.max([residual for _, residual in solutions]))
        return np.array([x for x, _ in solutions]).reshape(b.shape)

    def _solve(self, b, tolerance, steps):
        """One solution, and the norm of its residual relative to that of b."""
        x, rest, size = np.zeros_like(b), b, np.linalg.norm(b)
        if size == 0:
            return x, 0.0
        for step in steps:
            change = step(rest, tolerance * size)
            x = x + change if np.isfinite(change).all() else x
            rest = b - self.free.project(self.times(x))
            residual = np.linalg.norm(rest) / size
            if residual <= 10 * tolerance:
                break
        return x, residual

    def _iterate(self, b, tolerance):
        return self._system.solve(b, self.free, tolerance)

    def _direct(self, b, tolerance):
        factor, scale = self._factor
        y = cho_solve(factor, scale * (self.basis.T @ b.ravel()), check_finite=False)
        return (self.basis @ (scale * y)).reshape(b.shape)

    @cached_property
    def _factor(self):
        """Dense Cholesky factor of A scaled to a unit diagonal, and the scale."""
        A = self.matrix.toarray()
        scale = 1 / np.sqrt(np.maximum(A.diagonal(), RIDGE * A.diagonal().max(initial=1e-300)))
        A *= scale[:, None] * scale
        try:
            return cho_factor(A, check_finite=False), scale
        except np.linalg.LinAlgError:
            A.flat[:: len(A) + 1] += 1e-10
            return cho_factor(A, check_finite=False), scale

    def _warn(self, residual):
        if self.singular.any():
            text = (
                f"the Hessian at the fit is singular for {int(self.singular.sum())} of {len(self.singular)} strata: "
                f"their parameters are not determined by records, regularizer and graph, so that derivatives with "
                f"respect to them mean nothing. Add a small ridge to the regularizer, or connect the strata."
            )
        elif not residual <= LOOSE:
            text = (
                f"the linear system for the derivatives was not solved accurately: its relative residual is "
                f"{residual:.1e}. The Hessian at the fit is nearly singular; a small ridge in the regularizer helps."
            )
        else:
            return
        warnings.warn(text, ConvergenceWarning, stacklevel=6)

    @cached_property
    def singular(self):
        """Strata with parameters that nothing determines, as a (K,) mask.

        Curvature and Laplacian are positive semidefinite, so that a null vector of their sum has no curvature in any
        stratum and is constant over the components of each coordinate's graph. The sum of the blocks over these components
        is therefore singular exactly where the whole matrix is, and far smaller.
        """
        blocks = self.free.restricted(self._curved, 1 + self._size)  # definite on directions held fixed
        K, n = blocks.shape[:2]
        scale = 1 / np.sqrt(np.maximum(np.einsum("kaa->ka", blocks), 1e-300))
        try:
            factors = np.linalg.cholesky(blocks * scale[:, :, None] * scale[:, None, :])
            if (np.einsum("kaa->ka", factors) ** 2 > DEFINITE).all():  # as in most models
                return np.zeros(K, dtype=bool)
        except np.linalg.LinAlgError:
            pass
        component = self._laplacians.components.ravel()
        merge = sp.csr_array((np.ones(K * n), (component, np.arange(K * n))))
        total = merge @ block_diagonal(np.nan_to_num(blocks, posinf=0.0, neginf=0.0)) @ merge.T
        diagonal = total.diagonal()
        scale = sp.diags_array(1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)))
        scaled = sp.csc_array(scale @ total @ scale + RIDGE * sp.eye_array(len(diagonal)))
        symmetric = {
            "permc_spec": "MMD_AT_PLUS_A",
            "diag_pivot_thresh": 0.0,
            "options": {"SymmetricMode": True},
        }
        factor = splu(scaled, **symmetric)
        part = connected_components(total, directed=False)[1]
        singular = np.isin(part, part[~(factor.U.diagonal()[factor.perm_c] > SINGULAR)])
        return singular[component].reshape(K, n).any(axis=1)


def block_diagonal(blocks):
    """The block-diagonal csr_array of blocks (K, n, n)."""
    K, n = blocks.shape[:2]
    columns = np.broadcast_to((np.arange(K) * n)[:, None, None] + np.arange(n), blocks.shape)
    starts = np.arange(0, K * n * n + 1, n)
    return sp.csr_array((blocks.reshape(-1), columns.reshape(-1), starts), shape=(K * n, K * n))
