"""Random convex CVXPY expressions: losses of one record and regularizers, with data that they are convex for."""

import warnings

import cvxpy as cp
import numpy as np
import scipy.sparse as sp


def assert_every(check, first, count, share):
    """All seeds are tried and each failure is reported; of more than a share, what is made is not refused."""
    failures, compiled = [], 0
    for seed in range(first, first + count):
        try:
            compiled += check(seed)
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {str(error).strip()[:300]}")
    assert not failures, "\n".join(failures)
    assert compiled > share * count


class Maker:
    """One random declaration: variables, data Parameters, hyperparameters and their values.

    Parameters
    ----------
    seed : int
        Everything follows from it.
    with_data : bool
        Whether the expression is a loss.
    """

    def __init__(self, seed, with_data):
        self.rng = rng = np.random.default_rng(seed)
        self.with_data = with_data
        self.K, self.N = 3, 5
        self.w, self.b = cp.Variable(3, name="w"), cp.Variable(name="b")
        self.q = cp.Variable(3, nonneg=True, name="q")
        self.V, self.S = cp.Variable((2, 3), name="V"), cp.Variable((2, 2), PSD=True, name="S")
        self.D = cp.Variable((2, 2), diag=True, name="D")
        self.T = cp.Variable((2, 2), symmetric=True, name="T")
        self.r = cp.Variable(2, bounds=[-1, 2], name="r")
        self.x, self.A = cp.Parameter(3, name="x"), cp.Parameter((2, 3), name="A")
        self.y, self.s = cp.Parameter(name="y"), cp.Parameter(name="s")
        self.M = cp.Parameter(nonneg=True, value=rng.uniform(0.2, 2), name="M")
        self.lam = cp.Parameter(value=rng.uniform(0.2, 2), name="lam")
        self.h = cp.Parameter(3, value=rng.normal(size=3), name="h")
        self.arrays = {
            "x": rng.normal(size=(self.N, 3)),
            "A": rng.normal(size=(self.N, 2, 3)) * (rng.random((self.N, 2, 3)) < 0.7),
            "y": rng.choice(
                [rng.normal(size=self.N), rng.choice([-1.0, 1.0], size=self.N), np.zeros(self.N)]
            ),
            "s": rng.choice([rng.uniform(0, 2, size=self.N), rng.integers(0, 2, size=self.N).astype(float)]),
        }
        self.index = np.array([0, 0, 0, 0, 2])
        variables = self.w, self.b, self.q, self.V, self.S, self.D, self.T, self.r
        self.theta = {v.name(): rng.normal(size=(self.K, *v.shape)) for v in variables}
        self.theta["q"] = np.abs(self.theta["q"]) + 0.1
        self.theta["S"] = self.theta["S"] @ np.swapaxes(self.theta["S"], 1, 2) + 0.2 * np.eye(2)
        self.theta["D"] *= np.eye(2)
        self.theta["T"] = self.theta["T"] + np.swapaxes(self.theta["T"], 1, 2)
        self.theta["r"] = np.clip(self.theta["r"], -0.9, 1.9)

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def numbers(self, *shape):
        """A dense or sparse constant."""
        value = np.round(self.rng.normal(size=shape), 3) * (self.rng.random(shape) < 0.8)
        return sp.csr_array(value) if len(shape) == 2 and self.rng.random() < 0.2 else value

    def number(self):
        """A random positive constant."""
        return round(float(self.rng.uniform(0.2, 2)), 3)

    def factor(self):
        """A scalar without variables and without a sign."""
        options = [self.number(), -self.number(), self.lam, self.h[1]]
        more = [self.y, self.s, self.x[0], self.y * self.s] if self.with_data else []
        return self.pick(options + more)

    def positive(self):
        """A scalar without variables that is never negative for the data."""
        options = [self.number(), self.lam, 2 - self.number() / 2, cp.square(self.h[0])]
        more = [
            self.s, 2 - self.s, self.s * self.lam, cp.square(self.y), cp.abs(self.x[1]), cp.exp(self.y),
            self.s / 3,
        ]  # fmt: skip
        return self.pick([*options, *more] if self.with_data else options)

    def scalar(self):
        """An affine scalar."""
        w, b, V, q, S = self.w, self.b, self.V, self.q, self.S
        options = [
            lambda: w @ self.numbers(3) + b, lambda: self.factor() * b + w[self.rng.integers(3)],
            lambda: cp.sum(cp.multiply(self.numbers(2, 3), V)) - 0.3, lambda: self.h @ w + self.factor(),
            lambda: q[0] - q[2] + b, lambda: cp.trace(S @ self.numbers(2, 2)) + w[0],
            lambda: self.vector()[0] + self.factor(), lambda: cp.sum(self.vector()) / 3,
            lambda: cp.mean(V) + S[0, 1], lambda: cp.trace(self.D) - self.T[0, 1],
            lambda: self.r @ self.numbers(2) + b,
        ]  # fmt: skip
        data = [
            lambda: self.x @ w + b, lambda: self.y - self.x @ w - b, lambda: 1 - self.y * (self.x @ w),
            lambda: self.s * (w @ self.x) - self.y, lambda: (self.A @ w)[self.rng.integers(2)],
            lambda: cp.sum(cp.multiply(self.A, V)) + self.y, lambda: self.x @ q - self.s,
            lambda: cp.hstack([self.x, 1]) @ cp.hstack([w, b]), lambda: cp.trace(self.A @ V.T) - b,
            lambda: (self.y * self.x) @ w / (1 + cp.square(self.y)),
        ]  # fmt: skip
        return self.pick(options + 2 * data if self.with_data else options)()

    def vector(self):
        """An affine vector."""
        w, b, V, q, S = self.w, self.b, self.V, self.q, self.S
        options = [
            lambda: w, lambda: w - self.h, lambda: self.numbers(4, 3) @ w + b,
            lambda: cp.diff(cp.hstack([w, b])), lambda: cp.cumsum(w) - 1, lambda: V[self.rng.integers(2)] + w,
            lambda: cp.vec(V, order=self.pick("CF")), lambda: cp.sum(V, axis=int(self.rng.integers(2))) - 0.1,
            lambda: cp.hstack([w[1:], q[::-1]]), lambda: cp.multiply(self.numbers(3), w) + q,
            lambda: V @ self.numbers(3, 2) @ np.ones(2) + 0.2, lambda: cp.diag(S) - b,
            lambda: cp.vec(cp.kron(np.array([[1.0], [-0.5]]), cp.reshape(w, (1, 3), order="C")), order="C"),
            lambda: cp.convolve(self.numbers(2), w), lambda: w[[0, 0, 2]] + self.factor(),
            lambda: cp.upper_tri(cp.reshape(self.numbers(9, 3) @ w, (3, 3), order="C")), lambda: -w / 0.7,
            lambda: self.r - cp.diag(self.D), lambda: self.T @ self.numbers(2) + self.r,
        ]  # fmt: skip
        data = [
            lambda: self.A @ w + b, lambda: self.x @ V.T - self.y, lambda: V @ self.x,
            lambda: cp.multiply(self.x, w) + self.s, lambda: self.y * w - self.x, lambda: self.x * b - w,
            lambda: self.A.T @ (V @ self.x), lambda: cp.hstack([self.x @ w, self.y * b, b]),
            lambda: cp.vec(self.A - V, order=self.pick("CF")), lambda: self.A @ q - cp.abs(self.y),
            lambda: S @ self.A[:, 0] - 1, lambda: self.A[0] / (1 + self.s) - w,
        ]  # fmt: skip
        return self.pick(options + 2 * data if self.with_data else options)()

    def matrix(self):
        """An affine matrix."""
        V, w = self.V, self.w
        options = [
            lambda: V, lambda: V - self.numbers(2, 3), lambda: self.numbers(2, 2) @ V,
            lambda: V + cp.vstack([w, w]), lambda: self.T + self.D - self.number() * self.S,
        ]  # fmt: skip
        data = [
            lambda: V - self.A, lambda: cp.multiply(self.A, V), lambda: self.D @ self.A + self.s,
            lambda: cp.outer(self.x[:2], np.ones(3)) + V,
        ]  # fmt: skip
        return self.pick(options + 2 * data if self.with_data else options)()

    def safe(self):
        """An affine scalar that is positive at the points, or nearly always."""
        q = self.q
        return self.pick([lambda: q[0] + 0.1, lambda: q @ [1, 0.5, 2], lambda: cp.trace(self.S) + q[1]])()

    def convex(self, depth):
        """A convex scalar."""
        plain = depth <= 0 or self.rng.random() < 0.3
        return self.pick(self.simple() if plain else self.simple() + 2 * self.nested(depth))()

    def simple(self):
        """Convex functions of affine expressions."""
        u, v, M, z = self.scalar, self.vector, self.matrix, self.safe
        return [
            lambda: cp.abs(u()), lambda: cp.square(u()), lambda: cp.huber(u(), self.pick([self.number(), self.M])),
            lambda: cp.logistic(u()), lambda: cp.exp(0.3 * u()), lambda: cp.pos(u()), lambda: cp.neg(u()),
            lambda: cp.power(cp.abs(u()), self.pick([1.5, 3, 1.2])), lambda: cp.power(u(), self.pick([4, 2, 6])),
            lambda: cp.maximum(u(), u(), 0.1), lambda: cp.maximum(0.8 * u(), -0.2 * u()), lambda: -cp.minimum(u(), u()),
            lambda: cp.norm(v(), 2), lambda: cp.norm1(v()), lambda: cp.norm_inf(v()), lambda: cp.pnorm(v(), 3),
            lambda: cp.sum_squares(v()), lambda: cp.sum(cp.huber(v(), 0.4)), lambda: cp.sum(cp.logistic(v())),
            lambda: cp.log_sum_exp(v()), lambda: cp.max(v()), lambda: -cp.min(v()), lambda: cp.sum_largest(v(), 2),
            lambda: cp.sum(cp.abs(v())), lambda: cp.sum(cp.pos(v())), lambda: cp.tv(v()),
            lambda: cp.sum(cp.maximum(v(), 0.3)), lambda: cp.sum(cp.entr(self.q)) * -1, lambda: -cp.log(z()),
            lambda: -cp.sqrt(z()), lambda: cp.inv_pos(z()), lambda: cp.power(z(), -0.5), lambda: cp.power(z(), 1.5),
            lambda: -cp.entr(z()), lambda: cp.kl_div(z(), z() + 0.2), lambda: cp.rel_entr(self.positive(), z()),
            lambda: cp.kl_div(self.positive(), z()), lambda: -cp.log1p(z()), lambda: cp.xexp(0.3 * self.q[1]),
            lambda: cp.quad_over_lin(v(), z()), lambda: cp.quad_over_lin(v(), self.number()),
            lambda: cp.quad_form(self.w - self.h, self.psd(3)), lambda: -cp.geo_mean(self.q),
            lambda: cp.quad_form(cp.hstack([u(), u()]), self.psd(2)), lambda: -cp.log_det(self.S + 0.1 * np.eye(2)),
            lambda: cp.norm(M(), "fro"), lambda: cp.norm(M(), "nuc"), lambda: cp.sigma_max(M()),
            lambda: cp.mixed_norm(M(), 2, 1), lambda: cp.sum(cp.norm(M(), 2, axis=self.pick([0, 1]))),
            lambda: cp.sum(cp.max(M(), axis=self.pick([0, 1]))), lambda: cp.sum(cp.log_sum_exp(M(), axis=1)),
            lambda: cp.sum_squares(M()), lambda: cp.lambda_max(self.S), lambda: cp.tr_inv(self.S + 0.1 * np.eye(2)),
            lambda: cp.matrix_frac(self.w[:2], self.S + 0.3 * np.eye(2)), lambda: -cp.harmonic_mean(self.q),
            lambda: u() + 0.1 * cp.square(self.b), lambda: cp.sum(cp.quad_over_lin(M(), 2.0, axis=0)),
        ]  # fmt: skip

    def nested(self, depth):
        """Convex functions of convex ones."""
        c = lambda: self.convex(depth - 1)  # noqa: E731
        return [
            lambda: c() + c(), lambda: self.positive() * c(), lambda: c() * self.positive() + self.scalar(),
            lambda: cp.pos(c() - self.number()), lambda: cp.logistic(0.3 * c()), lambda: cp.exp(0.1 * c()),
            lambda: cp.maximum(c(), c()), lambda: cp.log_sum_exp(cp.hstack([c(), 0, c()])),
            lambda: cp.square(cp.pos(c())), lambda: cp.power(cp.pos(c()), 1.5), lambda: cp.huber(cp.pos(c()), 0.7),
            lambda: cp.norm(cp.hstack([cp.pos(c()), cp.abs(self.scalar())]), 2),
            lambda: cp.sum_squares(cp.pos(cp.hstack([c(), self.b]))), lambda: cp.sum_squares(cp.pos(cp.hstack([c(), c()]))),
            lambda: cp.max(cp.hstack([c(), c(), 0])), lambda: c() / self.number(), lambda: sum([c(), c(), self.scalar()]),
            lambda: cp.sum(cp.hstack([c(), self.positive() * c()])), lambda: -cp.minimum(-c(), 0.2),
            lambda: np.array([0.5, 2.0]) @ cp.hstack([c(), c()]), lambda: cp.quad_over_lin(cp.pos(c()), self.safe()),
            lambda: cp.sum_largest(cp.hstack([c(), c(), c()]), 2), lambda: cp.norm(cp.norm(self.matrix(), 2, axis=1), 1),
            lambda: cp.abs(cp.norm(self.vector(), 2)), lambda: cp.square(cp.norm(self.vector(), 2)),
            lambda: self.number() * cp.pos(c()) + cp.norm1(self.vector()) + cp.norm(self.vector(), 2) / self.number(),
            lambda: cp.huber(cp.norm(self.vector(), 2), self.number()), lambda: cp.norm1(cp.cumsum(self.vector())),
            lambda: cp.maximum(self.scalar(), cp.norm(self.vector(), 2), self.scalar()),
            lambda: cp.inv_pos(self.safe()) + cp.norm1(self.vector()),
            lambda: cp.quad_over_lin(self.vector(), cp.power(self.safe(), 0.7)),
            lambda: cp.norm(self.matrix(), "nuc") + self.scalar(), lambda: cp.power(self.safe(), -self.number()),
            lambda: cp.inv_pos(cp.sqrt(self.safe())), lambda: -cp.log(cp.sqrt(self.safe()) + self.positive() + 0.1),
        ]  # fmt: skip

    def psd(self, n):
        root = self.numbers(n, n)
        root = root.toarray() if sp.issparse(root) else root
        return root @ root.T

    def expression(self):
        """A convex scalar with at least one variable, and with data if it is a loss."""
        with warnings.catch_warnings(action="ignore"):
            while True:
                e = self.convex(int(self.rng.integers(0, 3)))
                if not isinstance(e, cp.Expression) or not e.variables():
                    continue
                if self.with_data and not self.data_of(e):
                    more = [self.y * self.b, cp.square(self.y - self.x @ self.w), self.s * cp.abs(self.b)]
                    e = e + self.pick(more)
                return e

    def data_of(self, e):
        return tuple(p for p in e.parameters() if p.name() in self.arrays)

    def constraints(self, variables):
        """Up to two constraints that the first stratum's point satisfies."""
        found = []
        for _ in range(self.rng.integers(3)):
            v = self.pick(variables)
            at = self.theta[v.name()][0]
            a = self.numbers(*v.shape)
            a = a.toarray() if sp.issparse(a) else a
            options = [
                lambda v, at, a: cp.norm(cp.vec(v, order="F"), 2) <= 1.1 * np.linalg.norm(at) + 0.1,
                lambda v, at, a: cp.sum(cp.multiply(a, v)) <= np.sum(a * at) + 0.1,
                lambda v, at, a: cp.sum(v) == np.sum(at),
                lambda v, at, a: v <= np.max(at) + 0.1,
                lambda v, at, a: cp.sum(cp.abs(v - at)) <= self.number(),
                lambda v, at, a: cp.sum(cp.exp(v)) <= np.sum(np.exp(at)) + 0.1,
                lambda v, at, a: cp.max(v) - cp.min(v) <= np.ptp(at) + 0.1,
            ]
            found.append(self.pick(options)(v, at, a))
        return found
