"""From a scalar form and records to one oracle over all strata, and to the values on each record."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.binder import dense
from strat.compiler.piecewise import kinks_at_zero
from strat.compiler.symbols import DATA
from strat.oracles.quadratic import Quadratic
from strat.oracles.sum import SumOracle
from strat.oracles.tape import Tape
from strat.rules.powers import Square
from strat.rules.text import text

#: Share of a column's squares about its mean below which sums of squares are no gain, and below which it is rounding.
SPREAD, ROUNDING = 1e-4, 1e-14


class Assembly:
    """The parts of Σ_records form, sorted by how they are evaluated.

    The form is a scalar of one record, weighed by `weight` (N,), or of one stratum, where that is None. With `statistics`
    squares may become sums over records.
    """

    def __init__(self, form, binder, weight, statistics=True):
        self.statistics = statistics
        self.binder, self.weight, self.segments = binder, weight, binder.segments
        self.active = None if self.segments is None else self.segments.counts > 0
        variable, _, rest = binder.kinds(form)
        K, N = (1, 1) if self.segments is None else (self.segments.K, max(self.segments.N, 1))
        self.constant, self.linear = np.zeros(K), np.zeros((K, binder.n))
        if rest.any():
            self.constant += self._sums(binder.values(form.where(rest)))[:, 0]
        part = form.where(variable)
        columns = binder.flat(part.column)
        # A few columns at a time: for x @ B @ y there are as many as entries of B, each as long as the data.
        step = max(1, 2**20 // N)
        for first in range(0, len(columns), step):
            terms = np.arange(len(columns))[first : first + step]
            sums = self._sums(binder.terms(part.where(terms)))
            np.add.at(self.linear, (slice(None), columns[terms]), sums)
        self.roots, self.quadratics = {}, []
        for node, terms in binder.atoms_of(form):
            self._add(node, form.at(terms))

    def _sums(self, values):
        """Σ weight × values over each stratum's records: (R, T) values, R = N or 1, to (K, T)."""
        segments, weight = self.segments, self.weight
        if segments is None:
            return np.asarray(values, dtype=float)
        if values.shape[0] == 1 and segments.N != 1:
            return segments.sum(weight[:, None]) * dense(values)
        if sp.issparse(values):
            places = (segments.index, np.arange(segments.N))
            return (sp.csr_array((weight, places), (segments.K, segments.N)) @ values).toarray()
        return segments.sum(values * weight[:, None])

    def _add(self, node, form):
        """One atom of the sum: a quadratic, or a root of the tape with weights."""
        binder, values = self.binder, dense(self.binder.columns(form.coefficient)) * form.scale
        weights = np.zeros((len(values), node.size))
        np.add.at(weights, (slice(None), form.column - node.start), values)
        if not node.has_data:
            self.roots[node] = self._sums(weights)
            return
        weights = weights * self.weight[:, None]
        squares = self.statistics and isinstance(node.rule, Square)
        quadratic = _least_squares(binder.node(node).forms[0], weights) if squares else None
        if quadratic is None:
            self.roots[node] = weights
        else:
            self.quadratics.append(quadratic)

    def parts(self):
        """The oracles whose sum this is."""
        parts = list(self.quadratics)
        if self.linear.any() or self.constant.any() or not (parts or self.roots):
            parts.insert(0, Quadratic(self.constant, self.linear))
        if self.roots:
            weights = {self.binder.node(node): w.reshape(-1, *node.shape) for node, w in self.roots.items()}
            nodes = self.binder.nodes(self.roots)
            parts.append(Tape(nodes, weights, self.segments, self.binder.n, self.active))
        return parts

    def oracle(self, cones=None, parts=None):
        """The sum as one oracle, without a prox; `parts` are the oracles whose sum it is, where they are known."""
        kink = first_kink(self.binder, self.roots)
        curved = all(node.rule.curved for node in self.binder.nodes(self.roots))
        why = f"{text(kink.expression)} is not differentiable" if kink is not None else ""
        whys = dict.fromkeys(("value_and_gradient", "hessian_operator"), why) if why else {}
        return SumOracle(parts or self.parts(), self.binder.n, kink is None, curved, None, whys, cones)


def _least_squares(form, weights):
    """Σ weights × (form)² over records as one quadratic for each stratum; None where that is no gain.

    The form is affine, with rows on records, and weights are (N, m).
    """
    design, segments = form.design, form.segments
    if design is None or form.inner:
        return None
    K, n = segments.K, design.n
    if K * n * n > max(design.nnz, segments.N) or design.m > 64 or not design.dense:
        return None
    hessian = 2.0 * design.gram(weights)
    total = np.maximum(segments.sum(weights.sum(axis=1)), 1e-300)
    square = np.einsum("kaa->ka", hessian)
    left = square - 2.0 * design.rmatvec(weights) ** 2 / total[:, None]
    if np.any((left > ROUNDING * square) & (left < SPREAD * square)):
        return None  # a column is so far from 0 for its spread that the sums lose digits

    def residual_sums(theta):
        residual = form.value(theta, {}).reshape(-1, form.m)
        return segments.sum((weights * residual**2).sum(axis=1)), 2.0 * design.rmatvec(weights * residual)

    # At the minimiser of a slightly regularized problem the residuals are small, and so is what cancels.
    ridge = 1e-9 * np.trace(hessian, axis1=1, axis2=2) / n + 1e-300
    _, slope = residual_sums(np.zeros((K, n)))
    centre = -np.linalg.solve(hessian + ridge[:, None, None] * np.eye(n), slope[..., None])[..., 0]
    centre[~np.isfinite(centre)] = 0.0
    c, g = residual_sums(centre)
    return Quadratic(c, g, hessian, centre, design.sizes())


def first_kink(binder, roots):
    """The first node at which the sum over the roots is not differentiable, or None.

    A kink where the output is 0 disappears below an atom that is flat there, such as the square of a positive part.
    """
    seen, stack = set(), [(node, False) for node in roots]
    while stack:
        node, flattened = stack.pop()
        if (node, flattened) in seen:
            continue
        seen.add((node, flattened))
        if flattened and kinks_at_zero(binder, node):
            continue
        kink = node.rule.kinks_of(node.forms)
        if kink == "some" or (kink == "zero" and not flattened):
            return node
        for form in node.forms:
            # Each row of the form is a number times one atom's entry.
            alone = np.array_equal(form.row, np.arange(form.size)) and binder.kinds(form)[1].all()
            for inner, _ in binder.atoms_of(form):
                stack.append((inner, node.rule.flat_at_zero and alone))
    return None


class Evaluation:
    """Values of any shape on each record, as a function of theta (K, n): losses and predictions.

    The form is of one record, and `order` gives the record at each of the binder's positions.
    """

    def __init__(self, form, binder, order):
        self.order, self.segments, self.shape = order, binder.segments, form.shape
        self.on_records = bool(binder.has_data(form) or binder.symbols.depends(form.column) & DATA)
        self.bound = binder.form(form, self.on_records)
        nodes = binder.nodes([node for node, _ in binder.atoms_of(form)])
        self.tape = Tape(nodes, {}, self.segments, binder.n)

    def __call__(self, theta):
        """(N, *shape) values in the records' order; +inf outside the domain of an atom."""
        with np.errstate(all="ignore"):
            states, outs, _ = self.tape.run(theta)
            value = self.bound.value(theta, outs)
        value = np.where(np.isnan(value), np.inf, value)
        for node, (args, _, _) in states.items():
            legal = node.rule.domain(args)
            if legal is not None and not legal.all():
                bad = ~legal
                if self.on_records and not node.on_records:
                    bad = bad[self.segments.index]
                value[np.broadcast_to(bad, len(value))] = np.inf
        if not self.on_records:
            value = value[self.segments.index]
        out = np.empty((len(self.order), *self.shape))
        out[self.order] = value
        return out
