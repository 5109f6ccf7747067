"""Sums of atoms over affine forms bound to records: one forward and one reverse pass over all of them at once."""

import copy
import math
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp

from strat.oracles.base import Oracle, times
from strat.oracles.interior_point import KinkedRows


class Inner:
    """The part of a form that is linear in one atom node's output."""

    def __init__(self, node, component, row, values, m):
        self.node, self.component, self.row, self.values, self.m = node, component, row, values, m
        #: Whether each entry of the form has one term; if not, the matrix (terms, m) that sums the terms of each entry.
        self.each = len(row) == m and np.array_equal(row, np.arange(m))
        self.spread = None if self.each else sp.eye_array(m, format="csr")[row]

    def push(self, out):
        """(R, node size) to (R, m)."""
        terms = out[:, self.component] * self.values
        return terms if self.each else terms @ self.spread

    def pull(self, g):
        """(R, m) to (R, node size)."""
        terms = g[:, self.row] * self.values
        back = np.zeros((len(terms), self.node.size))
        np.add.at(back, (slice(None), self.component), terms)
        return back


class BoundForm:
    """u = A theta + Σ (inner atoms) + offset, of a shape with m entries, rows on records or else on strata.

    `design` is A or None, `inner` a list of Inner, `offset` (R or 1, m), and `segments` the grouping of records or None.
    """

    def __init__(self, shape, design, inner, offset, on_records, segments):
        self.shape, self.design, self.inner = tuple(shape), design, inner
        self.offset = None if not np.any(offset) else offset
        self.on_records, self.segments = on_records, segments
        self.m = int(np.prod(self.shape, dtype=int))

    def _linear(self, theta, outs):
        """A theta + Σ (inner atoms with an output); None where there is neither."""
        u = None if self.design is None else self.design.matvec(theta)
        for part in self.inner:
            if part.node in outs:
                v = outs[part.node].reshape(len(outs[part.node]), part.node.size)
                v = part.push(v[self.segments.index] if self.on_records and not part.node.on_records else v)
                u = v if u is None else u + v
        return u

    def value(self, theta, outs):
        """Value (R, *shape), R possibly 1 where nothing varies."""
        u = self._linear(theta, outs)
        if u is None:
            rows = self.segments.N if self.on_records else len(theta)
            u = np.broadcast_to(0.0 if self.offset is None else self.offset, (rows, self.m))
        elif self.offset is not None:
            u = u + self.offset
        return u.reshape(len(u), *self.shape)

    def tangent(self, v, tangents):
        """Derivative of the value along v and the tangents of the inner atoms; None if there is none."""
        u = self._linear(v, tangents)
        return None if u is None else u.reshape(len(u), *self.shape)

    def pull(self, g, gradient, adjoints):
        """Pull back a gradient g of the value: add it, in place, to theta's `gradient` and the inner atoms' `adjoints`."""
        g = g.reshape(len(g), self.m)
        if self.design is not None:
            gradient += self.design.rmatvec(g)
        for part in self.inner:
            back = part.pull(g)
            if self.on_records and not part.node.on_records:
                back = self.segments.sum(back)
            back = back.reshape(len(back), *part.node.shape)
            known = adjoints.get(part.node)
            adjoints[part.node] = back if known is None else known + back


class BoundNode:
    """An atom, `rule`, with argument `forms`, bound to records; its output has a `shape` on each record or else stratum."""

    def __init__(self, rule, forms, shape, on_records):
        self.rule, self.forms, self.shape, self.on_records = rule, forms, tuple(shape), on_records
        self.size, self.restricted = int(np.prod(self.shape, dtype=int)), rule.restricted
        self.varying = [i for i, f in enumerate(forms) if f.design is not None or f.inner]

    @property
    def single(self):
        """The only varying argument, if an affine form with Gram matrices and the atom's Hessian is cheap; else None."""
        if len(self.varying) != 1 or not (self.rule.separable or hasattr(self.rule, "pair_curvature")):
            return None
        form = self.forms[self.varying[0]]
        known = form.design is not None and form.design.has_gram and not form.inner
        return form if known and (self.rule.separable or hasattr(form.design, "pairs")) else None

    @property
    def chained(self):
        """Whether this is an elementwise atom of one other atom, entry by entry: its Hessian is diagonal if the other's is."""
        forms = [self.forms[i] for i in self.varying]
        alone = len(forms) == 1 and forms[0].design is None and len(forms[0].inner) == 1
        return self.rule.separable and alone and forms[0].inner[0].each

    def moving(self, i, K, n):
        """Mask (R, *shape) of the entries of argument i that can move: those of records whose data are zeros cannot."""
        form = self.forms[i]
        if form.inner:
            return np.ones((1, *form.shape), dtype=bool)
        u = form.design.matvec(np.random.default_rng(0).standard_normal((K, n)))
        return (u != 0).reshape(-1, *form.shape)


class Tape(Oracle):
    """Σ over records and atoms of weight × atom(affine forms).

    `nodes` are BoundNodes, arguments before the nodes that use them, and `weights`, ``{node: (R or 1, *node.shape)}``, those of
    the nodes that the sum contains. `segments` groups the records, and is None where all rows are strata. `n` is the length of
    a stratum's vector. `active` is a mask (K,) of strata with records: others contribute nothing, whatever their parameters.
    """

    def __init__(self, nodes, weights, segments, n, active=None):
        self.nodes, self.weights, self.segments, self.n, self.active = nodes, weights, segments, n, active
        self.slopes = weights  # the weights in derivatives
        self._steep = {}  # of each node the arguments that must not reach the ends of their intervals
        everywhere = active is None or all(node.on_records for node in nodes)
        self._idle = None if everywhere or active.all() else ~active
        inner = {part.node for node in nodes for form in node.forms for part in form.inner}
        alone = (node.single and (node.rule.separable or node not in inner) for node in nodes)
        if not all(cheap or node.chained for cheap, node in zip(alone, nodes, strict=True)):
            self.hessian = None
        self._inner, affine = inner, not inner
        self.restricted = any(node.restricted for node in nodes)
        self.quadratic = affine and all(node.rule.curvature == "constant" for node in nodes)

    @cached_property
    def sizes(self):
        return self._sizes(scale_free=False)

    @property
    def scale_free(self):
        """Mask (n,) of the coordinates in scale-free functions, which set no scale for them."""
        return self._sizes(scale_free=True) > 0

    def _sizes(self, scale_free):
        nodes = (node for node in self.nodes if (node.rule.scale_free and not node.on_records) == scale_free)
        designs = (form.design for node in nodes for form in node.forms if form.design is not None)
        return np.max([np.zeros(self.n), *(design.sizes() for design in designs)], axis=0)

    @cached_property
    def kinked_rows(self):
        node, *others = self.nodes
        return None if others else KinkedRows.of(node.rule, node.forms[0], self.weights[node])

    def interior(self):
        """The same sum, but +inf also where it is finite without a finite derivative, at an end of an atom's domain.

        An argument of a record that cannot move from such an end, as its data are zeros, adds nothing to derivatives.
        """
        tape, K = copy.copy(self), 1 if self.segments is None else self.segments.K
        tape.slopes, tape._steep = dict(self.weights), {}
        for node in self.nodes:
            moving = {i: node.moving(i, K, self.n) for i in node.rule.steep if i in node.varying}
            if moving:
                tape._steep[node] = moving
            for moves in moving.values():
                if node in self.weights and node.rule.separable and not moves.all():
                    tape.slopes[node] = np.where(moves, tape.slopes[node], 0.0)
        return tape if tape._steep else self

    def limited(self):
        found = []
        for node in self.nodes:
            ends = {i: low for i, (low, _) in node.rule.intervals.items()} | dict.fromkeys(node.rule.definite)
            forms = [(node.forms[i], ends[i]) for i in node.varying if i in ends]
            found += [(form, low) for form, low in forms if not form.inner and form.design.has_gram]
        return found

    def run(self, theta):
        """Forward pass: ``{node: (args, out, memo)}``, ``{node: out}`` and the strata outside the domain."""
        states, outs = {}, {}
        illegal = None
        for node in self.nodes:
            args = [form.value(theta, outs) for form in node.forms]
            states[node] = (args, *node.rule.forward(args))
            outs[node] = states[node][1]
            if not node.restricted:
                continue
            moving = self._steep.get(node)
            legal = node.rule.interior(args, moving) if moving else node.rule.domain(args)
            if legal is not None and not legal.all():
                bad = self.segments.max(~legal) > 0 if node.on_records else ~legal
                bad = bad if self.active is None else bad & self.active
                illegal = bad if illegal is None else illegal | bad
        return states, outs, illegal

    def _total(self, K, outs, illegal, product=np.multiply):
        total = np.zeros(K)
        for node, weight in self.weights.items():
            terms = product(weight, outs[node]).reshape(len(outs[node]), -1)
            terms = np.add.reduce(terms, axis=1) if node.size > 1 else terms[:, 0]
            total += self.segments.sum(terms) if node.on_records else terms
        if illegal is not None:
            total[illegal] = np.inf
        if math.isnan(np.add.reduce(total)):
            if product is np.multiply:
                return self._total(K, outs, illegal, times)
            total[np.isnan(total)] = np.inf
        return total

    def value(self, theta):
        with np.errstate(all="ignore"):
            _, outs, illegal = self.run(theta)
            return self._total(len(theta), outs, illegal)

    def value_and_gradient(self, theta):
        with np.errstate(all="ignore"):
            states, outs, illegal = self.run(theta)
            gradient, _ = self._reverse(theta, states)
            return self._total(len(theta), outs, illegal), gradient

    def _reverse(self, theta, states):
        gradient = np.zeros((len(theta), self.n))
        adjoints = dict(self.slopes)
        for node in reversed(self.nodes):
            args, out, memo = states[node]
            for i in node.varying:
                g = node.rule.pullback(i, args, out, memo, adjoints[node])
                node.forms[i].pull(g, gradient, adjoints)
        return self._of_active(gradient), adjoints

    def _of_active(self, derivative):
        """Derivatives by stratum, with zeros in strata without records, where the atoms may have none."""
        if self._idle is not None:
            derivative[self._idle] = 0.0
        return derivative

    @np.errstate(all="ignore")
    def hessian(self, theta):
        """Hessian blocks (K, n, n), where each atom has a cheap Hessian and one argument, an affine form or such an atom."""
        states, _, _ = self.run(theta)
        adjoints, grams = self._reverse(theta, states)[1] if self._inner else dict(self.slopes), []
        for node in [node for node in adjoints if not node.rule.separable]:
            state, weight = states[node], np.broadcast_to(adjoints.pop(node), states[node][1].shape)
            curvature = partial(node.rule.pair_curvature, *state, weight)
            grams.append(node.single.design.pairs(curvature, node.size))

        def tangent(form, value, tangents):  # each entry moves by itself
            return np.ones_like(value) if form.design is not None else form.tangent(None, tangents)

        def pull(form, g, second):
            if form.design is None:
                form.pull(g, None, second)
            else:
                grams.append(form.design.gram(g.reshape(len(g), -1)))

        self._second(states, adjoints)(tangent, pull)
        return self._of_active(sum(grams[1:], grams[0]))

    @np.errstate(all="ignore")
    def hessian_operator(self, theta):
        """Hessian at theta as a map; values, derivatives and adjoints are computed once."""
        states, _, _ = self.run(theta)
        second = self._second(states, self._reverse(theta, states)[1])

        def product(v):
            result = np.zeros((len(theta), self.n))

            def pull(form, g, pulled):
                form.pull(g, result, pulled)

            with np.errstate(all="ignore"):
                second(lambda form, _, tangents: form.tangent(v, tangents), pull)
            return self._of_active(result)

        return product

    def _second(self, states, adjoints):
        """A function that pulls back the derivatives of the first derivatives along tangents of the arguments."""
        nodes = [node for node in self.nodes if node in adjoints]
        diagonal = {node: _diagonal(node, states[node], adjoints[node]) for node in nodes}

        def along(tangent, pull):
            tangents, second, moved = {}, {}, {}
            for node in nodes:
                found = {i: tangent(node.forms[i], states[node][0][i], tangents) for i in node.varying}
                moved[node] = {i: t for i, t in found.items() if t is not None}
                if node in self._inner:
                    tangents[node] = node.rule.pushforward(*states[node], moved[node])
            for node in reversed(nodes):
                args, out, memo = states[node]
                for i in node.varying:
                    if diagonal[node] is not None:
                        g = times(moved[node][i], diagonal[node])
                    else:
                        g = node.rule.curve(i, args, out, memo, adjoints[node], moved[node])
                    if node in second:
                        g = g + node.rule.pullback(i, args, out, memo, second[node])
                    pull(node.forms[i], g, second)

        return along


def _diagonal(node, state, adjoint):
    """Second derivatives of an elementwise atom in its one varying argument, weighted; None for other atoms."""
    if not node.rule.separable or len(node.varying) != 1:
        return None
    i, (args, out, memo) = node.varying[0], state
    return node.rule.curve(i, args, out, memo, adjoint, {i: np.ones_like(args[i])})
