"""Absolute values, maxima and minima."""

from functools import reduce

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import onto_l1_ball
from strat.rules import atoms, forms, rule
from strat.rules.base import Elementwise, Rule, at_point


@rule(atoms.abs)
class Abs(Elementwise):
    """|u|; prox is soft thresholding."""

    kinks = "zero"
    invariance = "absolute"
    value = staticmethod(np.abs)
    example = at_point(lambda u: cp.sum(cp.abs(u)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        return absolute(walker, e, args[0])

    def project(self, u, radius):
        """Onto a ball of the 1-norm: the sum of the entries' absolute values is at most the radius."""
        return onto_l1_ball(u, radius)

    def partial(self, i, args, out, memo):
        return np.sign(args[0])

    def mixed(self, i, j, args, out, memo):
        return 0.0


def absolute(walker, e, u):
    """Form of |u|: u itself where it is an atom that is never negative, such as a norm in a sum of norms."""
    argument = e.args[0]
    if argument.is_nonneg() and not argument.is_affine():
        return u
    return walker.apply(Abs(), [u], u.shape, e)


@rule(atoms.norm1)
class Norm1(Rule):
    """Σ|u|: the sum of absolute values, also by rows."""

    kinks = "some"
    example = at_point(cp.norm1, u=[[0.3, -1.0], [2.0, 0.1]])

    @classmethod
    def form(cls, walker, e, args):
        return walker.sum(absolute(walker, e, args[0]), e.shape, atoms.axis_of(e))


@rule(atoms.maximum)
class Maximum(Elementwise):
    """max(u, v, …): pos, pinball, hinge."""

    kinks = "some"
    example = at_point(lambda u: cp.sum(cp.maximum(0.9 * u, -0.1 * u)), u=[0.3, -1.0, 2.0])

    def kinks_of(self, forms_):
        """Those of a positive part, max(u, 0), are where it is 0."""
        return "zero" if len(forms_) == 2 and any(not len(f.row) for f in forms_) else "some"

    def value(self, *args):
        return reduce(np.maximum, args)

    def partial(self, i, args, out, memo):
        first = np.argmax(np.stack(np.broadcast_arrays(*args)), axis=0)
        return (first == i).astype(float)

    def mixed(self, i, j, args, out, memo):
        return 0.0


@rule(atoms.minimum)
class Minimum(Maximum):
    """min(u, v, …), concave, as in ``cp.neg``: minus the largest of the negated arguments."""

    example = at_point(lambda u: -cp.sum(cp.minimum(u, 0)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        negated = [forms.broadcast(a, e.shape).scaled(-1.0) for a in args]
        return walker.apply(Maximum(), negated, e.shape, e).scaled(-1.0)
