"""Sums of atoms over affine forms: one forward and one reverse pass over all records at once."""

import copy
from functools import cached_property, partial

import numpy as np

from strat.oracles.base import Oracle
from strat.oracles.central_points import Limited
from strat.oracles.kinked_rows import KinkedRows
from strat.oracles.single_atom import SingleAtom


class BoundNode:
    """An atom with its argument forms bound to records.

    Parameters
    ----------
    rule : Rule
        The atom.
    forms : list of BoundForm
        Its arguments.
    shape : tuple
        Shape of its output.
    on_records : bool
        Whether its rows are records; otherwise they are strata.
    """

    def __init__(self, rule, forms, shape, on_records):
        self.rule, self.forms, self.shape, self.on_records = rule, forms, tuple(shape), on_records
        self.size = int(np.prod(self.shape, dtype=int))
        self.varying = [i for i, f in enumerate(forms) if f.design is not None or f.inner]

    @property
    def single(self):
        """The argument of an atom of one affine form with dense coefficients whose Hessian is cheap; None for others."""
        if len(self.varying) != 1 or not (self.rule.separable or self.rule.has("pair_curvature")):
            return None
        form = self.forms[self.varying[0]]
        known = form.design is not None and form.design.dense and not form.inner
        return form if known and (self.rule.separable or hasattr(form.design, "pairs")) else None

    def moving(self, i, K, n):
        """Which entries (R, *shape) of argument i can move: those of records whose data are zeros cannot."""
        form = self.forms[i]
        if form.inner:
            return np.ones((1, *form.shape), dtype=bool)
        u = form.design.matvec(np.random.default_rng(0).standard_normal((K, n)))
        return (u != 0).reshape(-1, *form.shape)

    def forward(self, theta, outs):
        """Arguments, output and memo."""
        args = [f.value(theta, outs) for f in self.forms]
        out, memo = self.rule.forward(args)
        return args, out, memo


class Tape(Oracle):
    """Σ over records and atoms of weight × atom(affine forms).

    Parameters
    ----------
    nodes : list of BoundNode
        In an order in which arguments come first.
    weights : dict
        ``{node: (R, *node.shape)}`` weights of the nodes that the sum contains; R is the node's number of rows,
        or 1.
    segments : Segments or None
        The grouping of records; None where all rows are strata.
    n : int
        Scalars in a stratum.
    active : (K,) bool ndarray or None
        Strata that have records: others contribute nothing, whatever their parameters.
    """

    def __init__(self, nodes, weights, segments, n, active=None):
        self.nodes, self.weights, self.segments, self.n, self.active = nodes, weights, segments, n, active
        self.slopes = weights  # in derivatives
        self._steep = {}  # of each node the arguments that keep off the ends of their intervals
        self._single_atom = SingleAtom.of(nodes, weights, segments)
        self._plain = {node for node, weight in weights.items() if np.all(weight == 1.0)}
        if not all(node in weights and node.single is not None for node in nodes):
            self.hessian = None
        self.quadratic = all(
            node.rule.curvature == "constant" and not any(f.inner for f in node.forms) for node in nodes
        )

    @cached_property
    def sizes(self):
        """The sizes of the coordinates' coefficients."""
        designs = [form.design for node in self.nodes for form in node.forms if form.design is not None]
        return np.max([design.sizes() for design in designs], axis=0, initial=0.0)

    @cached_property
    def kinked_rows(self):
        """The rows where this is a sum of smoothed functions with one kink each; None where it is not."""
        return None if self._single_atom is None else KinkedRows.of(self._single_atom)

    def take(self, strata):
        """The function of some strata, where rows are strata."""
        weights = {node: w if len(w) == 1 else w[strata] for node, w in self.weights.items()}
        active = None if self.active is None else self.active[strata]
        return Tape(self.nodes, weights, self.segments, self.n, active)

    def interior(self):
        """The same sum, and +inf too where it is finite but has no finite derivative, at an end of an atom's domain.

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
        """The arguments of atoms with a domain that are functions of affine forms, entry by entry (see `Limited`)."""
        found = []
        for node in self.nodes:
            for i in node.varying:
                rule, along = node.rule, node.forms[i].along()
                if along is not None and i in rule.definite and not node.forms[i].inner:
                    found.append(Limited(*along, None))
                elif along is not None and i in rule.intervals:
                    found.append(Limited(*along, rule.intervals[i][0]))
        return found

    def run(self, theta):
        """Forward pass: ``{node: (args, out, memo)}``, ``{node: out}`` and the strata outside the domain."""
        states, outs = {}, {}
        illegal = None
        for node in self.nodes:
            states[node] = state = node.forward(theta, outs)
            outs[node] = state[1]
            moving = self._steep.get(node)
            legal = node.rule.interior(state[0], moving) if moving else node.rule.domain(state[0])
            if legal is not None and not legal.all():
                bad = self.segments.any(~legal) if node.on_records else ~legal
                bad = bad if self.active is None else bad & self.active
                illegal = bad if illegal is None else illegal | bad
        return states, outs, illegal

    def _total(self, K, outs, illegal):
        total = np.zeros(K)
        for node, weight in self.weights.items():
            terms = outs[node] if node in self._plain else _weighted(weight, outs[node])
            terms = terms.reshape(len(terms), -1).sum(axis=1) if terms.ndim > 1 else terms
            total += self.segments.sum(terms) if node.on_records else terms
        if illegal is not None:
            total[illegal] = np.inf
        if np.isnan(total.sum()):
            total[np.isnan(total)] = np.inf
        return total

    def arguments(self, theta):
        """Affine images of theta for the methods below, where they take them."""
        return None if self._single_atom is None else self._single_atom.arguments(theta)

    def value(self, theta, arguments=None):
        """Sum of each stratum."""
        if self._single_atom is not None:
            return self._single_atom.value(theta, arguments)
        with np.errstate(all="ignore"):
            _, outs, illegal = self.run(theta)
            return self._total(len(theta), outs, illegal)

    def value_and_gradient(self, theta, arguments=None):
        """Sum of each stratum, and its gradient."""
        if self._single_atom is not None:
            return self._single_atom.value_and_gradient(theta, arguments)
        with np.errstate(all="ignore"):
            states, outs, illegal = self.run(theta)
            gradient, _ = self._reverse(theta, states)
            return self._total(len(theta), outs, illegal), gradient

    def _reverse(self, theta, states):
        gradient = np.zeros((len(theta), self.n))
        adjoints = dict(self.slopes)
        for node in reversed(self.nodes):
            if node not in adjoints:
                continue
            args, out, memo = states[node]
            g = adjoints[node]
            if len(g) != len(out):
                adjoints[node] = g = np.broadcast_to(g, out.shape)
            for i in node.varying:
                node.forms[i].pull(node.rule.pullback(i, args, out, memo, g), gradient, adjoints)
        return self._of_active(gradient), adjoints

    def _of_active(self, derivative):
        """Derivatives by stratum, with zeros in strata without records, where the atoms may have none."""
        if self.active is not None and not self.active.all():
            derivative[~self.active] = 0.0
        return derivative

    @np.errstate(all="ignore")
    def hessian(self, theta):
        """Blocks of the Hessian (K, n, n), where every atom's own is cheap and its argument one affine form."""
        states, _, _ = self.run(theta)
        grams = []
        for node, weight in self.slopes.items():
            state, design = states[node], node.single.design
            weight = np.broadcast_to(weight, state[1].shape)
            if node.rule.separable:
                grams.append(design.gram(_diagonal(node, state, weight).reshape(len(weight), -1)))
            else:
                grams.append(design.pairs(partial(node.rule.pair_curvature, *state, weight), node.size))
        return self._of_active(sum(grams[1:], grams[0]))

    @np.errstate(all="ignore")
    def hessian_operator(self, theta):
        """Hessian at theta as a map; values, derivatives and adjoints are computed once."""
        if self._single_atom is not None:
            return self._single_atom.hessian_operator(theta)
        states, _, _ = self.run(theta)
        _, adjoints = self._reverse(theta, states)
        nodes = [node for node in self.nodes if node in adjoints]
        inner = {part.node for node in nodes for form in node.forms for part in form.inner}
        diagonal = {
            node: h for node in nodes if (h := _diagonal(node, states[node], adjoints[node])) is not None
        }

        def product(v):
            result, tangents, second, moved = np.zeros((len(theta), self.n)), {}, {}, {}
            with np.errstate(all="ignore"):
                for node in nodes:
                    found = {i: node.forms[i].tangent(v, tangents) for i in node.varying}
                    moved[node] = {i: t for i, t in found.items() if t is not None}
                    if node in inner:
                        tangents[node] = node.rule.pushforward(*states[node], moved[node])
                for node in reversed(nodes):
                    args, out, memo = states[node]
                    for i in node.varying:
                        if node in diagonal:
                            g = _weighted(moved[node][i], diagonal[node])
                        else:
                            g = node.rule.curve(i, args, out, memo, adjoints[node], moved[node])
                        if node in second:
                            g = g + node.rule.pullback(i, args, out, memo, second[node])
                        node.forms[i].pull(g, result, second)
            return self._of_active(result)

        return product


def _weighted(weight, out):
    """weight × out, with 0 · inf = 0."""
    product = weight * out
    if not np.isfinite(product.sum()) and not np.isfinite(product).all():
        product = np.where((weight == 0) | (out == 0), 0.0, product)
    return product


def _diagonal(node, state, adjoint):
    """Second derivatives of an elementwise atom in its one varying argument, weighted; None for other atoms."""
    if not node.rule.separable or len(node.varying) != 1:
        return None
    i, (args, out, memo) = node.varying[0], state
    return node.rule.curve(i, args, out, memo, adjoint, {i: np.ones_like(args[i])})
