"""Entropies and relative entropies."""

import cvxpy as cp
import numpy as np
from scipy.special import entr, kl_div, rel_entr, wrightomega

from strat.rules import atoms, rule
from strat.rules.base import Elementwise, Scalar, at_point


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
