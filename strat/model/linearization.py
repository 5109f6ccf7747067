"""The optimality conditions of a fit, linearised: how the fitted parameters respond to small changes.

At the optimum of an LRSM, theta = prox(theta − t g(theta), t), with g the gradient of losses and Laplacian term and prox
that of the regularizer and the constraints. With J the Jacobian of prox and H the Hessian of losses and Laplacian term, a
change q of the right-hand side moves theta by d, where

    (I − J + t J H) d = q.

Directions with eigenvalue 0 of J are held fixed: there d = q. In the free ones J = (I + t C)⁻¹, C being the regularizer's
curvature. With d_fixed the fixed part of q, the free part of d solves the symmetric positive definite system

    (H + C) d_free = (C + I/t) q_free − H d_fixed.

All computations use the units of a fit (see `Units`): theta = unit · s, and the objective in units of its worth.
"""

from contextlib import suppress
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from strat.errors import ConvergenceWarning, NoOracleError
from strat.oracles.base import hessian_blocks
from strat.oracles.centring import deviations
from strat.solvers.free_directions import FreeDirections, times
from strat.solvers.newton_system import NewtonSystem
from strat.solvers.units import Units

TIGHT = 1e-13  # the polished fit's residual, relative to the terms that balance
NEWTON = 30  # most Newton steps of the polishing
ROUNDS = 2  # rounds by conjugate gradients, and then by a factor
FEW = 4_000_000  # most nonzeros of a matrix that is factored where conjugate gradients are too inaccurate
ACCURATE = 1e-12  # relative residual to reach
LOOSE = 1e-8  # relative residual that deserves a warning
RIDGE = 1e-14  # relative; keeps solutions finite in strata where the Hessian is singular
#: Pivots of a matrix with unit diagonal: rounding error up to SINGULAR, certainly positive above DEFINITE.
SINGULAR, DEFINITE = 1e-12, 1e-8
STRONG = 1e4  # degrees over curvatures above which variances are computed in differences of strata
SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


class Linearization:
    """The linearised optimality conditions of an LRSM at its optimum.

    `theta` (K, n) is a fit of a JointProblem with a fixed graph for the weights w; with `polish`, Newton steps first improve
    it up to rounding. `residual` is its distance from stationarity, relative to the terms that balance, and `hessian`
    H + C on the free directions, in the units of `units`.
    """

    _argument = property(lambda self: self._theta - self._t[:, None] * self._gradient)  # of the prox

    def __init__(self, problem, theta, w, polish=True):
        if not problem.loss.has("hessian_operator"):
            raise NoOracleError(
                f"derivatives and standard errors of a fit need second derivatives of the loss, but "
                f"{problem.loss.missing('hessian_operator')}. Smooth it: smoothing= on the BaseModel."
            )
        theta = np.array(theta, dtype=float)
        self.problem, self.w, self.degrees = problem, w, problem.edges.degrees(w)
        self.units = Units(problem, theta)
        self._problem, self._theta = self.units.problem, self.units.inside(theta)
        self._newton = NewtonSystem(self._problem, w, self.degrees)
        self._evaluate()
        step = self._linearize()
        if polish:
            self._polish(step)
        self.theta = self.units.outside(self._theta)

    def solve(self, b):
        """Solve (H + C) v = b, (K, n) or (m, K, n), over the free directions; v is 0 in the others.

        It warns with a ConvergenceWarning if the matrix is singular or the residual large.
        """
        unit = self.units.unit
        return unit * self.hessian.solve(unit * b) / self.units.worth

    def change(self, problem, v, b):
        """⟨b, d⟩ to first order, where d is the change of theta from this problem to a nearby one, and v = solve(b)."""
        gradient = problem.loss.value_and_gradient(self.theta)[1]
        gradient = gradient + problem.laplacians(self.w, self.degrees).times(self.theta)
        prox = self.units.regularizer(problem.regularizer).prox
        fixed, right = self._split(prox(self._argument, self._t) - self._theta)
        unit, worth = self.units.unit, self.units.worth
        return float(np.vdot(unit * b, fixed) + worth * np.vdot(v / unit, right) - np.vdot(v, gradient))

    def _split(self, q):
        """d_fixed, and the right-hand side of the free system."""
        free = self.hessian.free
        q_free = free.project(q)
        fixed = q - q_free
        right = times(free.curvature, q_free) + q_free / self._t[:, None] - self.hessian.times(fixed)
        return fixed, free.project(right)

    def _evaluate(self):
        """Take the gradient at theta; return whether it is finite."""
        value, of_loss = self._problem.loss.value_and_gradient(self._theta)
        of_laplacian = self._newton.laplacians.times(self._theta)
        self._gradient = of_loss + of_laplacian
        self._size = 1 + max(np.linalg.norm(of_loss), np.linalg.norm(of_laplacian))
        return bool(np.isfinite(value).all() and np.isfinite(of_loss).all())

    def _prox_step(self):
        """The prox-gradient step from theta; sets the residual."""
        step = self._problem.prox(self._argument, self._t) - self._theta
        self.residual = float(np.linalg.norm(step / self._t[:, None]) / self._size)
        return step

    def _linearize(self):
        """Take the Hessian and the prox's Jacobian at theta; return the prox-gradient step."""
        blocks = hessian_blocks(self._problem.loss, self._theta)
        mean = np.maximum(np.einsum("kaa->k", blocks) / blocks.shape[1], 0.0)
        mean = mean + self._newton.laplacians.degrees.mean(axis=1)
        self._t = 1 / np.maximum(mean, 1e-3 * mean.mean() + 1e-12)
        step = self._prox_step()
        free = FreeDirections.of(self._problem.regularizer.prox, self._argument, self._t)
        free.settle()
        self.hessian = ReducedHessian(self._newton, blocks, free)
        return step

    @np.errstate(all="ignore")
    def _polish(self, step):
        """Newton steps, each shortened until the residual falls; `step` is the prox-gradient step at theta."""
        for _ in range(NEWTON):
            if self.residual <= TIGHT:
                return
            theta, residual = self._theta, self.residual
            fixed, b = self._split(step)
            tolerance = max(1e-10, min(1e-2, 1e-14 / residual))
            newton = fixed + self.hessian.solve(b, tolerance, warn=False)
            for length in (1.0, 0.5, 0.25, 0.1, 0.02):
                self._theta = theta + length * newton
                if self._evaluate():
                    step = self._prox_step()
                    if self.residual < residual:
                        break
            else:
                self._theta, self.residual = theta, residual
                self._evaluate()
                return
            near = np.linalg.norm(length * newton) <= 1e-10 * (1e-10 + np.linalg.norm(self._theta))
            if near or (self._problem.loss.quadratic and self.residual <= TIGHT):
                return  # the linearisation before the step is still accurate
            step = self._linearize()


class ReducedHessian:
    """A = Qᵀ (H + C + G(w) ⊗ diag(couple)) Q for one linearisation of a fit.

    H = diag(blocks) holds the Hessian of each stratum's loss, C the regularizer's curvature, G(w) is the graph's Laplacian and Q
    an orthonormal basis of the directions that are `free` in the regularizer's prox. The NewtonSystem of the problem and its
    weights may serve several linearisations, together with its preconditioner.
    """

    def __init__(self, newton, blocks, free):
        self.free, self._newton, self._laplacians, self._blocks = free, newton, newton.laplacians, blocks
        curvature = self.free.curvature
        full = curvature if curvature.ndim == 3 else curvature[:, :, None] * np.eye(blocks.shape[1])
        self._curved = blocks + full
        diagonal = np.einsum("kaa->ka", self._curved) + self._laplacians.degrees
        self._size = diagonal.mean(axis=1)  # of each stratum's own block, (K,)

    @cached_property
    def _system(self):
        """The Newton equations, set to this linearisation."""
        self._newton.take(self._blocks)
        self._newton.set(self.free, np.where(self._size > 0, 0.0, RIDGE * self._size.mean()), RIDGE)
        return self._newton

    def times(self, d):
        """(H + C + G(w) ⊗ diag(couple)) d for d (K, n), not restricted to the free directions."""
        return times(self._curved, d) + self._laplacians.operator(d)

    @cached_property
    def basis(self):
        """Q, sparse, (K n, M): the free coordinates, or the free eigenvectors of the prox's Jacobian."""
        if self.free.mask is not None:
            return sp.eye_array(self.free.mask.size, format="csc")[:, self.free.mask.ravel()]
        vectors = np.where(np.abs(self.free.vectors) > 1e-9, self.free.vectors, 0.0)
        return sp.csc_array(block_diagonal(vectors))[:, self.free.free.ravel()]

    @cached_property
    def matrix(self):
        """A, sparse, (M, M)."""
        A = self.basis.T @ (block_diagonal(self._curved) + self._laplacians.matrix()) @ self.basis
        return sp.csr_array((A + A.T) / 2)

    def deviations(self):
        """(B, Bᵀ A B) for B = Q G, theta = G s: s holds one stratum of each connected part, and the others' differences from it.

        Strong edges, which act on the differences alone, then hide nothing. Without them, or with fixed directions, G = I.
        """
        curved = np.einsum("kaa->ka", self._curved).mean(axis=0)
        if not (self.free.all and np.any(self._laplacians.degrees.mean(axis=0) > STRONG * curved)):
            return self.basis, self.matrix
        L = self._laplacians.matrix()
        G, D = deviations(L, np.ones(self._laplacians.n, dtype=bool))
        A = G.T @ block_diagonal(self._curved) @ G + D @ L @ D
        return G, sp.csr_array((A + A.T) / 2)

    def solve(self, b, tolerance=ACCURATE, warn=True):
        """Q A⁻¹ Qᵀ b for b (K, n) or (m, K, n), with warnings where A is singular or the residual large."""
        out, worst = np.zeros_like(b), 0.0
        for x, right in zip(*(a.reshape(-1, *b.shape[-2:]) for a in (out, b)), strict=True):
            rest = right = self.free.project(right)
            size = residual = np.linalg.norm(right)
            for step in range(2 * ROUNDS):
                if residual <= 10 * tolerance * size or (step >= ROUNDS and self.matrix.nnz > FEW):
                    break
                solve = self._system.solve if step < ROUNDS else self._direct
                change = solve(rest, self.free, tolerance * size)
                if not np.isfinite(change).all():
                    continue
                x += change
                rest = right - self.free.project(self.times(x))
                residual = np.linalg.norm(rest)
            worst = max(worst, residual / (size or 1.0))
        if not (warn and b.size):
            return out
        if self.singular.any():
            ConvergenceWarning.warn(
                f"the Hessian at the fit is singular for {int(self.singular.sum())} of {len(self.singular)} strata: "
                f"their parameters are not determined by records, regularizer and graph, so that derivatives with "
                f"respect to them mean nothing. Add a small ridge to the regularizer, or connect the strata."
            )
        elif not worst <= LOOSE:
            ConvergenceWarning.warn(
                f"the linear system for the derivatives was not solved accurately: its relative residual is "
                f"{worst:.1e}. The Hessian at the fit is nearly singular; a small ridge in the regularizer helps."
            )
        return out

    @cached_property
    def _direct(self):
        """Q A⁻¹ Qᵀ by a sparse factor."""
        diagonal = self.matrix.diagonal()
        ridge = RIDGE * np.maximum(diagonal + diagonal.mean(), 1e-200)
        factor = splu(sp.csc_array(self.matrix + sp.diags_array(ridge)), **SYMMETRIC)
        return lambda b, *_: (self.basis @ factor.solve(self.basis.T @ b.ravel())).reshape(b.shape)

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
        with suppress(np.linalg.LinAlgError):
            factors = np.linalg.cholesky(blocks * scale[:, :, None] * scale[:, None, :])
            if (np.einsum("kaa->ka", factors) ** 2 > DEFINITE).all():  # as in most models
                return np.zeros(K, dtype=bool)
        component = self._laplacians.components.ravel()
        merge = sp.csr_array((np.ones(K * n), (component, np.arange(K * n))))
        total = merge @ block_diagonal(np.nan_to_num(blocks, posinf=0.0, neginf=0.0)) @ merge.T
        diagonal = total.diagonal()
        scale = sp.diags_array(1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)))
        scaled = sp.csc_array(scale @ total @ scale + RIDGE * sp.eye_array(len(diagonal)))
        factor = splu(scaled, **SYMMETRIC)
        part = connected_components(total, directed=False)[1]
        singular = np.isin(part, part[~(factor.U.diagonal()[factor.perm_c] > SINGULAR)])
        return singular[component].reshape(K, n).any(axis=1)


def block_diagonal(blocks):
    starts = np.arange(len(blocks) + 1)
    return sp.bsr_array((blocks, starts[:-1], starts)).tocsr()
