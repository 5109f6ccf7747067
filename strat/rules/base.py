"""What a rule is: one nonlinear atom with its values and derivatives, on many records at once.

Arrays carry the records (or strata) on their leading axis.
"""

import math
from functools import reduce

import cvxpy as cp
import numpy as np

from strat.oracles.base import times
from strat.rules import atoms, forms


class Rule:
    """Base class of rules.

    Every rule has ``forward(args)``, which returns its output and a memo for the other methods, and ``example``, the atom
    in its simplest form with a point inside its domain (see `at_point`). Each further method that a rule defines is a
    capability. Constants of the atom, such as an exponent, are attributes.

    * ``pullback(i, args, out, memo, g)``: a gradient g of the output, mapped to one of argument i.
    * ``pushforward(args, out, memo, tangents)``: tangents {i: t} of the arguments, mapped to one of the output.
    * ``curve(i, args, out, memo, g, tangents)``: the derivative of the pullback along the tangents. These three give
      the gradients and Hessian products of any composition.
    * ``pair_curvature(args, out, memo, g, r, s)``: second derivatives of each row's output in its entries r and s,
      times g; with it, blocks of the Hessian are cheap.
    * ``prox(u, step)``: argmin_z step · f(z) + ½‖z − u‖², u (K, groups, *shape) and step (K, groups) with the sign of
      the weight. For elementwise functions: entry by entry, with data arguments after the step.
    * ``prox_eigenvalues(values, step)``: the same for the eigenvalues (K, d) of a symmetric argument, step (K,).
    * ``project(u, radius)``: the nearest point to u with f(z) <= radius, radius (K, groups).
    """

    #: Where the output is not differentiable inside the domain: nowhere ("none"), where it is 0 ("zero"), or elsewhere
    #: too ("some").
    kinks = "none"
    #: Second derivatives: "constant", "continuous", or with "jumps".
    curvature = "continuous"
    #: Whether the derivative vanishes at 0, so that a kink of the argument at 0 disappears.
    flat_at_zero = False
    #: {argument: closed interval} outside which its entries are illegal.
    intervals = {}
    #: Arguments that must be positive definite.
    definite = ()
    #: Arguments whose interval has an end where the function is finite but its derivative is not.
    steep = ()
    #: Arguments whose interval has a finite end that belongs to the domain, with a finite slope: a minimum may lie there.
    closed = ()
    #: Whether f(c u) is f(u) plus a constant, or is c f(u) and occurs with such functions: without data, f sets no scale for u.
    scale_free = False
    #: With what other terms the prox and the projection combine (see `GroupBlock`): "absolute" where the function grows in
    #: every |u|, "ordered" where it is symmetric, so that prox and projection keep the order of the entries.
    invariance = None
    #: Whether each output entry depends on one entry of each argument.
    separable = False
    #: Whether values and derivatives of an elementwise function take arrays of any library of the array API standard.
    portable = False
    #: The rule's name in printed programs.
    name = property(lambda self: type(self).__name__)
    #: Equal for rules that compute the same function.
    key = property(lambda self: (self.name, *sorted(self.__dict__.items())))
    #: Whether some arguments are illegal.
    restricted = property(
        lambda self: bool(self.intervals or self.definite) or type(self).domain is not Rule.domain
    )
    #: Whether second derivatives are available.
    curved = property(lambda self: hasattr(self, "mixed" if isinstance(self, Elementwise) else "curve"))

    def __init__(self, **constants):
        self.__dict__.update(constants)

    @classmethod
    def form(cls, walker, e, args):
        """Form of the atom ``e`` over the forms of its arguments."""
        return walker.apply(cls(), args, e.shape, e)

    def pullback(self, i, args, out, memo, g):
        """The default, where the memo is the gradient of each output entry in the only argument."""
        return g[(..., *[None] * (memo.ndim - g.ndim))] * memo

    def pushforward(self, args, out, memo, tangents):
        """The default: Σ ⟨gradient, tangent⟩ over the part of the arguments that an output entry depends on."""
        ones = np.ones_like(out)
        parts = [times(t, self.pullback(i, args, out, memo, ones)) for i, t in tangents.items()]
        return sum(part.reshape(*out.shape, -1).sum(axis=-1) for part in parts)

    def kinks_of(self, forms_):
        """``kinks`` for arguments of these forms."""
        return self.kinks

    def domain(self, args):
        """Mask of the records whose arguments are legal; None if all arguments are."""
        ends = ((args[i], low, high) for i, (low, high) in self.intervals.items())
        inside = [((u >= low) & (u <= high)).reshape(len(u), -1).all(axis=1) for u, low, high in ends]
        inside += [np.linalg.eigvalsh(symmetric(args[i]))[..., 0] > 0 for i in self.definite]
        return np.broadcast_to(reduce(np.logical_and, inside), max(map(len, args))) if inside else None

    def interior(self, args, moving):
        """`domain` without ends where derivatives are infinite; `moving` {argument: mask} are the entries that can move."""
        legal = self.domain(args)
        for i, moves in moving.items():
            low, high = self.intervals[i]
            inside = ((args[i] > low) & (args[i] < high)) | ~moves
            legal = legal & inside.reshape(len(inside), -1).all(axis=1)
        return legal


class Elementwise(Rule):
    """An entrywise function: the output and every argument have the same shape.

    It has ``value(*args)`` and, unless it occurs in predictions only, ``partial(i, args, out, memo)``, the derivative in
    argument i, and ``mixed(i, j, args, out, memo)``, the second derivative in arguments i and j.
    """

    separable = True

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(), [forms.broadcast(a, e.shape) for a in args], e.shape, e)

    def forward(self, args):
        return self.value(*args), None

    def pullback(self, i, args, out, memo, g):
        return times(g, self.partial(i, args, out, memo))

    def curve(self, i, args, out, memo, g, tangents):
        return times(g, sum(times(t, self.mixed(i, j, args, out, memo)) for j, t in tangents.items()))


class Scalar(Elementwise):
    """A function of one number: ``value(u)``, and ``slopes``, its derivative and the next as functions of u and the value."""

    def partial(self, i, args, out, memo):
        return self.slopes[0](args[0], out)

    def mixed(self, i, j, args, out, memo):
        return self.slopes[1](args[0], out)


class Chained(Elementwise):
    """outer(factor · inner(args)) of two elementwise rules, where `outer` is a function of one number."""

    def __init__(self, outer, inner, factor):
        self.outer, self.inner, self.factor = outer, inner, factor

    def forward(self, args):
        inner = self.inner.forward(args)
        v = [self.factor * inner[0]]
        out, memo = self.outer.forward(v)
        return out, (inner, (v, out, memo))

    def partial(self, i, args, out, memo):
        inner, outer = memo
        return self.outer.partial(0, *outer) * (self.factor * self.inner.partial(i, args, *inner))

    def mixed(self, i, j, args, out, memo):
        inner, outer = memo
        first = self.factor * self.inner.partial(i, args, *inner)
        bend = self.outer.partial(0, *outer) * self.factor * self.inner.mixed(i, j, args, *inner)
        return self.outer.mixed(0, 0, *outer) * first**2 + bend


class Rows(Rule):
    """A function of each row of its first argument: shape (groups, length) to (groups,)."""

    @classmethod
    def constants(cls, e, length):
        """The attributes of the rule, by name, for rows of the given length."""
        return {}

    @classmethod
    def form(cls, walker, e, args):
        rows = grouped(args[0], atoms.axis_of(e))
        rule = cls(**cls.constants(e, rows.shape[1]))
        return walker.apply(rule, [rows], rows.shape[:1], e).reshaped(e.shape)


def at_point(expression, **point):
    """The ``example`` of a rule, which returns ``(expression, {variable: point})``; variables are symmetric where points are."""

    def example():
        variables = []
        for name, value in point.items():
            value = np.asarray(value)
            symmetric = value.ndim == 2 and np.array_equal(value, value.T)
            variables.append(cp.Variable(value.shape, name=name, symmetric=symmetric))
        return expression(*variables), point

    return staticmethod(example)


def grouped(form, axis):
    """The form as (groups, length): the kept axes are flattened into the first, the reduced axes into the second."""
    if axis is None:
        return form.reshaped((1, form.size))
    kept = [d for d in range(len(form.shape)) if d not in axis]
    shape = (math.prod(form.shape[d] for d in some) for some in (kept, axis))
    return forms.take(form, form.positions.transpose(*kept, *axis).reshape(*shape))


def symmetric(s):
    """The symmetric part of matrices, on which alone functions of symmetric matrices depend."""
    return 0.5 * (s + np.swapaxes(s, -1, -2))
