"""The Newton equations of a given graph: curvature of losses and regularizer, and the graph's Laplacian."""

import numpy as np

from strat.solvers.newton import _mean_curvature

BLOCKS = 2**24  # numbers up to which the Hessians' blocks are formed
DIRECT = 100  # most numbers a stratum for which strata that nothing couples are solved directly
SPREAD = 16.0  # coordinates whose curvatures differ by less share one factorisation
SIMILAR = 0.5  # a factorisation serves while the shift changes by less than this share
MOST = 200  # conjugate gradient steps


class NewtonSystem:
    """(H + ridge + G(w) diag(couple) + C) d = b over the free directions, C the regularizer's curvature there.

    Parameters
    ----------
    problem : JointProblem
        With a fixed graph.
    w : edge array
    degrees : (K,) ndarray
    """

    def __init__(self, problem, w, degrees):
        self.problem, self.w, self.degrees = problem, w, degrees
        self.K, self.n = problem.K, problem.n
        self.couple = np.ones(self.n) if problem.couple is None else problem.couple
        self.coupled = bool(degrees.any() and self.couple.any())
        self.shift, self.factorizations, self._factors = np.zeros((0, 0)), 0, []

    def measure(self, theta):
        """Take the losses' Hessian at theta; return every stratum's mean curvature (K,)."""
        loss, fits = self.problem.loss, self.K * self.n**2 <= BLOCKS
        self._operator = self.blocks = None
        if fits and loss.has("hessian") and (self.coupled or self.n <= DIRECT):
            self.blocks = np.asarray(loss.hessian(theta))
        else:
            self._operator = loss.hessian_operator(theta)
            if fits and not self.coupled and self.n <= DIRECT:
                units = (np.broadcast_to(e, theta.shape) for e in np.eye(self.n))
                self.blocks = np.stack([self._operator(e) for e in units], axis=2)
        if self.blocks is not None:
            return np.maximum(np.einsum("kaa->k", self.blocks) / self.n, 0.0)
        return _mean_curvature(self._operator, theta.shape)

    def hessian(self, v):
        """The losses' Hessian times v, (K, n)."""
        if self._operator is not None:
            return self._operator(v)
        return np.matmul(self.blocks, v[..., None])[..., 0]

    def solve(self, b, slope, ridge, mean, tolerance):
        """Solution in the coordinates of `slope`, 0 off the free directions.

        Parameters
        ----------
        b : (K, n) ndarray
            Right-hand side in those coordinates, 0 off the free directions.
        slope : ProxSlope
            The free directions, and C.
        ridge, mean : (K,) ndarray
            What is added to the Hessian, and its mean curvature.
        tolerance : float
            Relative residual, in the norm of the preconditioner.
        """
        if self.coupled or self.blocks is None:
            return self._iterate(b, slope, ridge, mean, tolerance)
        return self._direct(b, slope, ridge)

    def _iterate(self, b, slope, ridge, mean, tolerance):
        laplacian, degrees, w = self.problem.laplacian, self.degrees, self.w
        diagonal = ridge[:, None] + slope.curvature

        def product(a):
            d = slope.back(a)
            out = self.hessian(d)
            if self.coupled:
                out = out + laplacian(w, d, degrees)
            out = slope.into(out) + diagonal * a
            out *= slope.free
            return out

        precondition = self._preconditioner(slope, ridge, mean)
        return conjugate_gradients(product, precondition, b, tolerance, MOST)

    def _direct(self, b, slope, ridge):
        """Solution stratum by stratum."""
        U, free, n = slope.U, slope.free, self.n
        matrix = self.blocks if U is None else U.swapaxes(1, 2) @ self.blocks @ U
        matrix = matrix * (free[:, :, None] & free[:, None, :])
        size = np.einsum("kaa->k", matrix) / n + 1e-300
        diagonal = np.where(free, ridge[:, None] + slope.curvature + 1e-14 * size[:, None], size[:, None])
        matrix = matrix + diagonal[:, :, None] * np.eye(n)
        try:
            return np.linalg.solve(matrix, b[..., None])[..., 0]
        except np.linalg.LinAlgError:
            return np.full_like(b, np.nan)

    def _preconditioner(self, slope, ridge, mean):
        """Approximate inverse over the free directions: the graph's Laplacian plus a diagonal."""
        if slope.U is None:
            own = mean[:, None] if self.blocks is None else np.einsum("kaa->ka", self.blocks)
            own = np.where(slope.free, own + slope.curvature, mean[:, None])
        else:
            count = np.maximum(slope.free.sum(axis=1), 1)
            own = (mean + np.where(slope.free, slope.curvature, 0.0).sum(axis=1) / count)[:, None]
        own = np.broadcast_to(np.maximum(own, 0.0) + ridge[:, None], (self.K, self.n))
        if not self.coupled:
            scale = own if slope.U is None else own.mean(axis=1, keepdims=True)
            return lambda r: r / scale
        solve = self._factorise(own)
        return lambda r: slope.free * slope.into(solve(slope.back(r)))

    def _factorise(self, own):
        """Function that solves with p_c G(w) + diag(s_c) for coordinates c of like coupling p_c and curvature s_c."""
        groups = self._groups(own)
        shift = np.stack([own[:, columns].mean(axis=1) for columns in groups], axis=1)
        same = [list(columns) for columns in groups] == [list(columns) for columns, _ in self._factors]
        if not (same and np.all(np.abs(shift - self.shift) <= SIMILAR * self.shift)):
            self.shift, self._factors = shift, []
            for columns, s in zip(groups, shift.T, strict=True):
                p = self.couple[columns].max()
                self._factors.append((columns, self._factor(s, p)))
        factors = self._factors

        def solve(r):
            if len(factors) == 1:
                return factors[0][1](r)
            out = np.empty_like(r)
            for columns, factor in factors:
                out[:, columns] = factor(r[:, columns])
            return out

        return solve

    def _factor(self, shift, p):
        if p == 0:
            return lambda r: r / shift[:, None]
        self.factorizations += 1
        factor = self.problem.edges.solver(self.w, shift / p)
        return factor if p == 1 else lambda r: factor(r) / p

    def _groups(self, own):
        """Coordinates that share a factorisation: those of like coupling and curvature."""
        size = np.log(np.maximum(own.mean(axis=0), 1e-300) / max(own.mean(), 1e-300)) / np.log(SPREAD)
        # Coordinates differ by less than SPREAD within a group, which starts at its flattest member.
        order, groups = np.lexsort((size, self.couple)), []
        for c in order:
            alike = (
                groups and self.couple[groups[-1][0]] == self.couple[c] and size[c] - size[groups[-1][0]] < 1
            )
            groups[-1].append(c) if alike else groups.append([c])
        return [np.sort(np.array(columns)) for columns in groups]


def conjugate_gradients(product, precondition, b, tolerance, most):
    """Approximate solution of product(x) = b, symmetric positive definite, b (K, n).

    Stops where the residual, in the norm of the preconditioner, has fallen to `tolerance` times the first.
    """
    x, r = np.zeros_like(b), b.copy()
    q = precondition(r)
    p, rho = q.copy(), float(np.vdot(r, q))
    goal = tolerance**2 * rho
    for _ in range(most):
        if not rho > goal:
            break
        Ap = product(p)
        curvature = float(np.vdot(p, Ap))
        if not (curvature > 0 and np.isfinite(curvature)):
            break
        step = rho / curvature
        x += step * p
        Ap *= step
        r -= Ap
        q = precondition(r)
        rho, old = float(np.vdot(r, q)), rho
        p *= rho / old
        p += q
    return x
