"""Exponentials, logarithms and entropies: the links of generalised linear models, and barriers."""

import cvxpy as cp
import numpy as np
from scipy.special import entr, kl_div, rel_entr, wrightomega

from strat.oracles.base import namespace
from strat.rules import atoms, rule
from strat.rules.base import Elementwise, Rows, Scalar, at_point


@rule(atoms.logistic)
class Logistic(Elementwise):
    """log(1 + exp(u)), without overflow."""

    portable = True
    example = at_point(lambda u: cp.sum(cp.logistic(u)), u=[-1.0, 0.0, 2.0])

    def forward(self, args):
        (u,), xp = args, namespace(args[0])
        e = xp.exp(-xp.abs(u))
        return xp.clip(u, 0.0, None) + xp.log1p(e), e

    def partial(self, i, args, out, memo):
        return namespace(out).exp(args[0] - out)  # the exponent is <= 0

    def mixed(self, i, j, args, out, memo):
        return memo / (1.0 + memo) ** 2


@rule(atoms.exp)
class Exp(Scalar):
    """exp(u): the Poisson log link."""

    portable = True
    value = staticmethod(lambda u: namespace(u).exp(u))
    slopes = (lambda u, out: out, lambda u, out: out)
    example = at_point(lambda u: cp.sum(cp.exp(u)), u=[-1.0, 0.0, 1.0])

    def prox(self, u, step):
        """z = u − ω(u + log step), ω the Wright omega function; a large ω = step · exp(z) gives z without cancellation."""
        logs = np.log(np.where(step > 0, step, 1.0))
        omega = wrightomega(u + logs)
        z = np.where(omega > 1.0, np.log(np.maximum(omega, 1.0)) - logs, u - omega)
        return np.where(step > 0, z, u)


@rule(atoms.log)
class Log(Scalar):
    """log(u), -inf at 0."""

    intervals, scale_free = {0: (0.0, np.inf)}, True
    value = staticmethod(lambda u: np.log(np.maximum(u, 0.0)))
    slopes = (lambda u, out: 1.0 / u, lambda u, out: -1.0 / u**2)
    example = at_point(lambda u: -cp.sum(cp.log(u)), u=[0.5, 1.0, 2.0])

    # z² − uz + step = 0, step < 0
    prox = staticmethod(lambda u, step: positive_root(u, -step))


@rule(atoms.log1p)
class Log1p(Scalar):
    """log(1 + u), -inf at -1."""

    intervals = {0: (-1.0, np.inf)}
    value = staticmethod(lambda u: np.log1p(np.maximum(u, -1.0)))
    slopes = (lambda u, out: 1.0 / (1.0 + u), lambda u, out: -1.0 / (1.0 + u) ** 2)
    example = at_point(lambda u: -cp.sum(cp.log1p(u)), u=[-0.5, 0.0, 2.0])


@rule(atoms.xexp)
class Xexp(Scalar):
    """u exp(u) for u >= 0."""

    intervals = {0: (0.0, np.inf)}
    closed = (0,)
    value = staticmethod(lambda u: u * np.exp(u))
    slopes = (lambda u, out: (1.0 + u) * np.exp(u), lambda u, out: (2.0 + u) * np.exp(u))
    example = at_point(lambda u: cp.sum(cp.xexp(atoms.nonneg_wrap(u))), u=[0.1, 0.5, 1.0])


@rule(atoms.entr)
class Entr(Scalar):
    """-u log(u), 0 at 0."""

    intervals = {0: (0.0, np.inf)}
    steep = (0,)
    value = staticmethod(entr)
    slopes = (lambda u, out: -np.log(np.maximum(u, 0.0)) - 1.0, lambda u, out: -1.0 / u)
    example = at_point(lambda u: -cp.sum(cp.entr(u)), u=[0.2, 1.0, 2.0])

    def prox(self, u, step):
        """λ ω(u/λ − 1 − log λ) for λ = −step, ω the Wright omega function."""
        size = np.where(step < 0, -step, 1.0)
        return np.where(step < 0, size * wrightomega(u / size - 1.0 - np.log(size)), np.maximum(u, 0.0))


class _Relative(Elementwise):
    """Relative entropies of two arguments, the first of which is usually data."""

    shift = 0.0
    intervals = {0: (0.0, np.inf), 1: (0.0, np.inf)}
    steep = (0,)

    def prox(self, u, step, y):
        """In the first argument: λ ω(u/λ − (1 − shift) + log(y/λ)), λ the step and ω the Wright omega function."""
        size = np.where(step > 0, step, 1.0)
        with np.errstate(divide="ignore"):
            at = u / size - 1.0 + self.shift + np.log(y) - np.log(size)
        return np.where(step > 0, size * wrightomega(at), np.maximum(u, 0.0))

    def partial(self, i, args, out, memo):
        x, y = args
        ratio = np.where(x == 0, 0.0, x / y)  # also at y = 0: a count of 0 has no logarithmic term
        return self.shift - ratio if i == 1 else np.log(ratio) + 1.0 - self.shift

    def mixed(self, i, j, args, out, memo):
        x, y = args
        if i == j:
            return np.where(x == 0, 0.0, x / y**2) if i == 1 else 1.0 / x
        return -1.0 / y


@rule(atoms.kl_div)
class KlDiv(_Relative):
    """x log(x / y) - x + y, y where x = 0: Poisson and Bernoulli rates."""

    shift, value = 1.0, staticmethod(kl_div)
    example = at_point(lambda u: cp.sum(cp.kl_div(np.array([0.0, 1.0, 3.0]), u)), u=[0.5, 1.0, 2.0])


@rule(atoms.rel_entr)
class RelEntr(_Relative):
    """x log(x / y), 0 where x = 0."""

    value = staticmethod(rel_entr)
    example = at_point(lambda u: cp.sum(cp.rel_entr(np.array([0.0, 1.0, 3.0]), u)), u=[0.5, 1.0, 2.0])


@rule(atoms.log_sum_exp)
class LogSumExp(Rows):
    """log Σ exp(u_j) of each row, without overflow: the softmax loss."""

    portable = True
    example = at_point(lambda u: cp.sum(cp.log_sum_exp(u, axis=1)), u=[[0.0, 1.0, -1.0], [2.0, 0.5, 0.0]])

    def forward(self, args):
        (u,), xp = args, namespace(args[0])
        top = _along_rows(xp.maximum, u)
        top = xp.where(xp.isfinite(top), top, 0.0)
        e = u - top[..., None]
        e = np.exp(e, out=e) if xp is np else xp.exp(e)
        total = _along_rows(xp.add, e)
        return top + xp.log(total), e / total[..., None]

    def pair_curvature(self, args, out, memo, g, r, s):
        """The Hessian is diag(p) − p pᵀ, p_j = exp(u_j) / Σ exp(u)."""
        return g * memo[..., r] * (float(r == s) - memo[..., s])

    def curve(self, i, args, out, memo, g, tangents):
        weighted = memo * tangents[0]
        return g[..., None] * (weighted - memo * namespace(memo).sum(weighted, axis=-1, keepdims=True))


def _along_rows(ufunc, u):
    """ufunc.reduce over the last axis; column by column where rows are short, which is several times faster."""
    if u.shape[-1] > 8 and isinstance(u, np.ndarray):
        return ufunc.reduce(u, axis=-1)
    out = u[..., 0]
    for j in range(1, u.shape[-1]):
        out = ufunc(out, u[..., j])
    return out


def positive_root(u, c):
    """The root z >= 0 of z² − uz − c = 0, c >= 0, without cancellation."""
    root = np.sqrt(u * u + 4.0 * c)
    return np.where(u > 0, 0.5 * (u + root), 2.0 * c / np.where(root - u > 0, root - u, 1.0))
