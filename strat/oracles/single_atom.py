"""A sum over one atom of one affine form, legal everywhere: the common loss or penalty, in few array operations."""

import math

import numpy as np


class SingleAtom:
    """Σ over rows of weight × atom(A theta + offset), with the values and derivatives of a `Tape`.

    Small problems spend more time on the calls around the arrays than on the arrays, so that this sum has a path of
    its own; `of` tells whether a tape is one.
    """

    @classmethod
    def of(cls, nodes, weights, segments):
        """The sum as a SingleAtom, or None if it is more than that."""
        if len(nodes) != 1 or len(weights) != 1 or len(nodes[0].forms) != 1:
            return None
        (node,), ((summed, weight),) = nodes, weights.items()
        form = node.forms[0]
        if summed is not node or node.rule.restricted or form.design is None or form.inner:
            return None
        if not (weight.all() and np.isfinite(weight).all()):  # 0 · inf needs the tape's care
            return None
        return cls(node, form, weight, segments)

    def __init__(self, node, form, weight, segments):
        self.rule, self.design, self.offset, self.shape = node.rule, form.design, form.offset, form.shape
        self.segments = segments if node.on_records else None
        self.weight = weight
        self._unit = bool(np.all(weight == 1.0))
        self._row = weight.reshape(-1) if len(weight) == 1 and weight.size > 1 else None

    def arguments(self, theta):
        """The atom's arguments, affine in theta."""
        u = self.design.matvec(theta)
        if self.offset is not None:
            u = u + self.offset
        return u.reshape(-1, *self.shape)

    def _forward(self, theta, u=None):
        u = self.arguments(theta) if u is None else u
        return ([u], *self.rule.forward([u]))

    def _total(self, out):
        if self._row is not None:
            total = out.reshape(len(out), -1) @ self._row
        else:
            total = out if self._unit else out * self.weight
            if total.ndim > 1 or self.segments is None:
                total = total.reshape(len(total), -1).sum(axis=1)
        if self.segments is not None:
            total = self.segments.sum(total)
        if not math.isfinite(total @ total):
            total[np.isnan(total)] = np.inf
        return total

    def _back(self, g):
        return self.design.rmatvec(g.reshape(-1, self.design.m))

    def _weights(self, out):
        return self.weight if len(self.weight) == len(out) else np.broadcast_to(self.weight, out.shape)

    def value(self, theta, arguments=None):
        """Sum of each stratum."""
        if self.rule.quiet:  # entering and leaving np.errstate is a tenth of the time of small problems
            return self._total(self._forward(theta, arguments)[1])
        with np.errstate(all="ignore"):
            return self._total(self._forward(theta, arguments)[1])

    def value_and_gradient(self, theta, arguments=None):
        """Sum of each stratum, and its gradient."""
        if self.rule.quiet:
            return self._value_and_gradient(theta, arguments)
        with np.errstate(all="ignore"):
            return self._value_and_gradient(theta, arguments)

    def _value_and_gradient(self, theta, arguments):
        args, out, memo = self._forward(theta, arguments)
        if self.rule.separable:
            g = self.rule.partial(0, args, out, memo)
            g = g if self._unit else g * self.weight
        else:
            g = self.rule.pullback(0, args, out, memo, self._weights(out))
        return self._total(out), self._back(g)

    def hessian_operator(self, theta):
        """Hessian at theta as a map."""
        state = self._forward(theta)
        args, weight, curve = state[0], self._weights(state[1]), self.rule.curve

        def tangent(v):
            return self.design.matvec(v).reshape(args[0].shape)

        if not self.rule.separable:
            return lambda v: self._back(curve(0, *state, weight, {0: tangent(v)}))
        diagonal = curve(0, *state, weight, {0: np.ones_like(args[0])})
        return lambda v: self._back(diagonal * tangent(v))
