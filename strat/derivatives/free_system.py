"""Linear systems with the Hessian of an LRSM over its free directions: block-diagonal curvature plus graph Laplacian."""

import math
import warnings
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components

from strat.errors import ConvergenceWarning

SMALL, LARGE = 300, 4000  # unknowns up to which a dense factor comes first, and is made at all
PATIENCE = 150  # iterations that one preconditioner gets
ACCURATE = 1e-12  # relative residual asked for
LOOSE = 1e-8  # relative residual that is worth a warning
NEAR = 0.01  # relative change of the blocks below which their inverses still precondition
SINGULAR = 1e-12  # smallest eigenvalue of a scaled block that passes
STRONG = 2.0  # degrees over curvature from which the Laplacian is the better preconditioner


class FreeSystem:
    """(H + G(w) ⊗ diag(couple) + curvature) v = b over the free directions of each stratum.

    Conjugate gradients with the strata's blocks as preconditioner, the Laplacian plus mean curvature where the graph is
    strong; where they are slow, a dense factor for small systems, and the other preconditioner for large ones.

    Parameters
    ----------
    problem : JointProblem
    w : edge array
    degrees : (K,) ndarray
    blocks : (K, n, n) ndarray
        Hessians of the losses.
    slope : ProxSlope
        Free directions and the regularizer's curvature.
    last : FreeSystem, optional
        The system at a point nearby, whose preconditioner serves again where the blocks are almost the same.
    """

    def __init__(self, problem, w, degrees, blocks, slope, last=None):
        self.problem, self.w, self.degrees, self.slope, self.blocks = problem, w, degrees, slope, blocks
        self.K, self.n = blocks.shape[:2]
        self.laplacians = problem.laplacians(w, degrees)
        self.graph = self.laplacians.degrees
        self.free = slope.free
        self._pull = self._neighbours()
        U = slope.U
        inner = blocks if U is None else U.swapaxes(1, 2) @ blocks @ U
        inner = inner * (self.free[:, :, None] & self.free[:, None, :])
        self._diagonal(inner, slope.curvature)
        self.inner = inner  # the free part of curvature, in the directions U
        if self.singular.any():  # keeps the solution finite; `solve` warns
            size = np.einsum("kaa->ka", inner).max(initial=0.0) + degrees.max(initial=0.0) + 1e-12
            self._diagonal(inner, 1e-10 * size * (self.singular[:, None] & self.free))
        self.count = int(self.free.sum())
        if last is not None and "_inverse" in last.__dict__ and self._is_near(last):
            self._inverse = last._inverse

    def _is_near(self, other):
        """Whether the blocks differ by less than a hundredth of their size."""
        if not (self.slope.U is None and other.slope.U is None and np.array_equal(self.free, other.free)):
            return False
        size = np.einsum("kaa->k", self.inner) / self.n + self.graph.mean(axis=1)
        return bool((np.abs(self.inner - other.inner).max(axis=(1, 2)) <= NEAR * size).all())

    @staticmethod
    def _diagonal(matrices, values):
        """Add values (K, n) to the diagonals, in place."""
        np.einsum("kaa->ka", matrices)[...] += values

    def hessian(self, d):
        """Hessian of losses and Laplacian term times d, (K, n)."""
        return np.matmul(self.blocks, d[..., None])[..., 0] + self._laplacian(d)

    def _laplacian(self, d):
        """G(w) d, weighted by couple."""
        product = self.graph * d
        product -= self._pull(d)
        return product

    def _neighbours(self):
        """Function d -> the part of G(w) d, weighted by couple, off the diagonal, negated; its matrix is made once."""
        edges, couple = self.problem.edges, self.problem.couple
        if not self.laplacians.alike:
            matrix = sp.diags_array(self.graph.reshape(-1), format="csr") - self.laplacians.matrix()
            return lambda d: (matrix @ d.reshape(-1)).reshape(d.shape)
        full = 2 * edges.count > 0.3 * self.K**2
        matrix = edges.to_matrix(self.w) if full else edges.to_sparse(self.w)
        return matrix.__matmul__ if couple is None else lambda d: (matrix @ d) * couple

    def solve(self, b, tolerance=ACCURATE, warn=True):
        """Solution of the shape of b, (K, n) or (m, K, n); 0 in the pinned directions."""
        if warn:
            self._warn_if_singular()
        if b.ndim == 2:
            x, residual = self._one(b, tolerance)
        else:
            if self.count <= LARGE and len(b) > 4:
                self._factor  # noqa: B018 (many right-hand sides are worth the factor)
            found = [self._one(each, tolerance) for each in b]
            x, residual = np.array([x for x, _ in found]), max([r for _, r in found], default=0.0)
        if warn and not residual <= LOOSE and not self.singular.any():
            warnings.warn(
                f"the linear system for the derivatives was not solved accurately: its relative residual is "
                f"{residual:.1e}. The Hessian at the fit is nearly singular; a small ridge in the regularizer helps.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return x

    def _one(self, b, tolerance):
        b = np.where(self.free, self.slope.into(b), 0.0)
        size = np.linalg.norm(b)
        if size == 0:
            return np.zeros_like(b), 0.0
        x = None
        if "_factor" not in self.__dict__ and self.count > SMALL:
            ways = [self._block_solve, self._graph_solve]
            first, second = ways[::-1] if self._strong else ways
            x, residual = conjugate_gradients(self._product, first, b, tolerance)
            if residual > 10 * tolerance and self.count > LARGE:
                x, residual = conjugate_gradients(self._product, second, b, tolerance, x)
        if (x is None or residual > 10 * tolerance) and self.count <= LARGE:
            x = self._direct(b)
            x += self._direct(b - self._product(x))
            residual = np.linalg.norm(b - self._product(x)) / size
        return self.slope.back(x), residual

    def _product(self, a):
        """The matrix times a, both in the directions U."""
        if self.slope.U is not None:
            out = np.matmul(self.inner, a[..., None])[..., 0]
            out += self.slope.into(self._laplacian(self.slope.back(a)))
            return out * self.free
        out = (self._sparse_own @ a.reshape(-1)).reshape(a.shape)
        out -= self._pull(a)
        return out if self._all_free else out * self.free

    @cached_property
    def _sparse_own(self):
        """The diagonal blocks as one matrix: fewer calls than a product of small matrices."""
        return block_diagonal(self._own)

    @cached_property
    def _all_free(self):
        return bool(self.free.all())

    @cached_property
    def _own(self):
        """The diagonal blocks of the matrix, in the directions U; 1 on the diagonal of pinned directions."""
        own = self.inner.copy()
        graph, U = self.graph, self.slope.U
        if U is None:
            self._diagonal(own, graph * self.free)
        else:
            own += (
                (U.swapaxes(1, 2) * graph[:, None, :]) @ U * (self.free[:, :, None] & self.free[:, None, :])
            )
        self._diagonal(own, np.where(self.free, 0.0, 1.0))
        return own

    @cached_property
    def _inverse(self):
        own = self._own.copy()
        self._diagonal(own, 1e-13 * np.abs(np.einsum("kaa->ka", own)).mean(axis=1, keepdims=True) + 1e-300)
        return block_diagonal(np.linalg.inv(own))

    def _block_solve(self, r):
        return (self._inverse @ r.reshape(-1)).reshape(r.shape)

    @cached_property
    def _strong(self):
        """Whether the graph weighs more than the curvature of most strata, alike in all coordinates."""
        couple = self.laplacians.couple
        alike = self.laplacians.alike and couple.min() > 0.5 * couple.max()
        own = np.maximum(np.einsum("kaa->k", self.inner) / self.n, 0.0)
        return bool(alike and np.median(self.degrees) * couple.mean() > STRONG * np.median(own))

    @cached_property
    def _graph(self):
        mean = np.maximum(np.einsum("kaa->k", self.inner) / self.n, 0.0)
        return self.problem.edges.solver(self.w, mean + 1e-8 * (mean.mean() + self.degrees.mean()) + 1e-300)

    def _graph_solve(self, r):
        return self.free * self.slope.into(self._graph(self.slope.back(r)))

    @cached_property
    def _factor(self):
        """Dense Cholesky factor over the free unknowns; None where there is none."""
        K, n = self.K, self.n
        matrix = np.zeros((K, n, K, n))
        laplacians = self.laplacians
        shared = self.problem.edges.dense_laplacian(self.w) if laplacians.alike else None
        for c in range(n):
            matrix[:, c, :, c] = laplacians.dense(c) if shared is None else shared * laplacians.couple[c]
        U = self.slope.U
        if U is not None:
            matrix = np.matmul(U.swapaxes(1, 2), matrix.reshape(K, n, K * n)).reshape(K * n, K, n)
            matrix = np.matmul(matrix.transpose(1, 0, 2), U).transpose(1, 0, 2).reshape(K, n, K, n)
        own = np.arange(K)
        matrix[own, :, own, :] += self.inner
        flat = self.free.reshape(-1)
        matrix = matrix.reshape(K * n, K * n)
        matrix = matrix if flat.all() else matrix[np.ix_(flat, flat)]
        scale = 1 / np.sqrt(np.maximum(matrix.diagonal(), 1e-300))
        matrix = matrix * scale[:, None] * scale
        try:
            return cho_factor(matrix, overwrite_a=True, check_finite=False), scale
        except np.linalg.LinAlgError:
            matrix.flat[:: len(matrix) + 1] += 1e-10
            return cho_factor(matrix, overwrite_a=True, check_finite=False), scale

    def _direct(self, b):
        factor, scale = self._factor
        x = np.zeros_like(b)
        x[self.free] = scale * cho_solve(factor, scale * b[self.free], check_finite=False)
        return x

    @cached_property
    def singular(self):
        """Strata of a component in which the matrix is singular, as a (K,) mask.

        A null vector has no curvature in any stratum and is equal, in the coupled coordinates, across a component of
        the graph: the sum of the strata's blocks over a component shows it, after the uncoupled coordinates are
        eliminated and pinned directions are barred.
        """
        if self._definite():
            return np.zeros(self.K, dtype=bool)
        U, scale = self.slope.U, np.abs(np.einsum("kaa->ka", self.inner)).max(initial=0.0) or 1.0
        matrix = self.inner.copy()
        self._diagonal(matrix, np.where(self.free, 0.0, scale))
        if U is not None:
            matrix = U @ matrix @ U.swapaxes(1, 2)
        loose = ~self.graph.any(axis=0)
        bad = np.zeros(self.K, dtype=bool)
        if loose.any():
            tight = ~loose
            own = matrix[:, loose][:, :, loose]
            bad |= _degenerate(own)
            size = np.einsum("kaa->k", own) / own.shape[1]
            own = own + (1e-14 * size + 1e-300)[:, None, None] * np.eye(own.shape[1])
            cross = matrix[:, tight][:, :, loose]
            matrix = matrix[:, tight][:, :, tight] - cross @ np.linalg.solve(own, cross.swapaxes(1, 2))
        if matrix.shape[1]:
            bad |= self._over_components(matrix, np.flatnonzero(~loose))
        return bad

    def _over_components(self, matrix, coordinates):
        """Where the sums of the strata's blocks over the components of the coordinates' graphs are singular, (K,)."""
        kind = self.laplacians.kind[coordinates]
        kinds, first = np.unique(kind, return_index=True)
        labels = {k: self._components(coordinates[c]) for k, c in zip(kinds, first, strict=True)}
        if len(kinds) == 1:
            label = labels[kinds[0]]
            total = np.zeros((label.max() + 1, *matrix.shape[1:]))
            np.add.at(total, label, matrix)
            return _degenerate(total)[label]
        label = np.stack([labels[k] for k in kind], axis=1)
        label += np.r_[0, np.cumsum(label.max(axis=0) + 1)[:-1]]  # every coordinate has components of its own
        flat = label.reshape(-1)
        sums = sp.csr_array((np.ones(flat.size), (flat, np.arange(flat.size))))
        total = (sums @ block_diagonal(matrix) @ sums.T).tocsr()
        count, part = connected_components(total, directed=False)
        bad = np.zeros(count, dtype=bool)
        for p in range(count):
            own = np.flatnonzero(part == p)
            if len(own) <= LARGE // 4:
                bad[p] = _degenerate(total[own][:, own].toarray()[None])[0]
        return bad[part[label]].any(axis=1)

    def _components(self, c):
        """Component (K,) of every stratum in the graph of coordinate c."""
        i, j = self.problem.edges.ends
        used = self.problem.edges.vector(self.laplacians.graph(c)[0]) > 0
        links = sp.coo_array((np.ones(used.sum()), (i[used], j[used])), shape=(self.K, self.K))
        return connected_components(links, directed=False)[1]

    def _definite(self):
        """Whether every stratum's own curvature is positive definite by far, a quick answer."""
        diagonal = np.einsum("kaa->ka", self.inner) + ~self.free
        if not (diagonal > 0).all():
            return False
        scale = 1 / np.sqrt(diagonal)
        matrix = self.inner * scale[:, :, None] * scale[:, None, :]
        self._diagonal(matrix, 1.0 * ~self.free)
        try:
            return bool((np.einsum("kaa->ka", np.linalg.cholesky(matrix)) > 1e-4).all())
        except np.linalg.LinAlgError:
            return False

    def _warn_if_singular(self):
        if self.singular.any():
            warnings.warn(
                f"the Hessian at the fit is singular for {int(self.singular.sum())} of {self.K} strata: their parameters "
                f"are not determined by records, regularizer and graph, so that derivatives with respect to them mean "
                f"nothing. Add a small ridge to the regularizer, or connect the strata.",
                ConvergenceWarning,
                stacklevel=6,
            )


def block_diagonal(blocks):
    """The block-diagonal csr_array of blocks (K, n, n)."""
    K, n = blocks.shape[:2]
    indices = np.broadcast_to((np.arange(K) * n)[:, None, None] + np.arange(n), blocks.shape).reshape(-1)
    return sp.csr_array((blocks.reshape(-1), indices, np.arange(0, K * n * n + 1, n)), shape=(K * n, K * n))


def _degenerate(matrices):
    """Which of the symmetric matrices (m, n, n) are singular to rounding, each scaled to a unit diagonal."""
    diagonal = np.einsum("kaa->ka", matrices)
    bad = ~(diagonal > 1e-300).all(axis=1) | ~np.isfinite(matrices).all(axis=(1, 2))
    scale = np.where(bad[:, None], 1.0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)))
    scaled = np.where(bad[:, None, None], 0.0, matrices) * scale[:, :, None] * scale[:, None, :]
    return bad | (np.linalg.eigvalsh(scaled)[:, 0] < SINGULAR)


def conjugate_gradients(product, precondition, b, tolerance, x=None, most=PATIENCE):
    """Solution of product(x) = b and its relative residual; all of b's shape."""

    def apply(f, a):
        return f(a.reshape(b.shape)).reshape(-1)

    flat = b.reshape(-1)
    size = math.sqrt(flat @ flat)
    x = np.zeros_like(flat) if x is None else x.reshape(-1).copy()
    r = flat - apply(product, x) if x.any() else flat.copy()
    q = apply(precondition, r)
    p, rho, step = q.copy(), r @ q, np.empty_like(r)
    for _ in range(most):
        if math.sqrt(r @ r) <= tolerance * size:
            break
        Ap = apply(product, p)
        curvature = p @ Ap
        if not (curvature > 0 and math.isfinite(curvature)):
            break
        x += np.multiply(p, rho / curvature, out=step)
        r -= np.multiply(Ap, rho / curvature, out=step)
        q = apply(precondition, r)
        rho, old = r @ q, rho
        p *= rho / old
        p += q
    r = flat - apply(product, x)
    return x.reshape(b.shape), math.sqrt(r @ r) / size
