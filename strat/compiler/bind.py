"""From a scalar form and records to one oracle over all strata."""

import numpy as np

from strat.compiler.smoothing import kinks_at_zero
from strat.compiler.statistics import least_squares, stratum_sums
from strat.compiler.symbols import AtomNode
from strat.oracles.quadratic import Quadratic
from strat.oracles.sum import SumOracle
from strat.oracles.tape import Tape
from strat.rules.powers import Square
from strat.rules.text import text


class Assembly:
    """The parts of Σ_records form, sorted by how they are evaluated.

    Parameters
    ----------
    form : Form
        Scalar, of one record (or, without records, of one stratum).
    binder : Binder
    weight : (N,) ndarray or None
        Weights of the records; None without records.
    statistics : bool
        Whether squares may become sums over records.
    """

    def __init__(self, form, binder, weight, statistics=True):
        self.statistics = statistics
        self.binder, self.weight, self.segments = binder, weight, binder.segments
        self.active = None if self.segments is None else self.segments.counts > 0
        evaluator = binder.evaluator
        variable, _, rest = binder.kinds(form)
        n, K = binder.n, 1 if self.segments is None else self.segments.K
        self.constant = np.zeros(K)
        self.linear = np.zeros((K, n))
        if rest.any():
            self.constant += self._sums(evaluator.form(form.where(rest)))[:, 0]
        if variable.any():
            part = form.where(variable)
            columns = binder.flat(part.column)
            # A few columns at a time: for x @ B @ y there are as many as entries of B, each as long as the data.
            step = max(1, 2**20 // (1 if self.segments is None else max(self.segments.N, 1)))
            for first in range(0, len(columns), step):
                terms = np.arange(first, min(first + step, len(columns)))
                sums = self._sums(evaluator.terms(part.where(terms)))
                np.add.at(self.linear, (slice(None), columns[terms]), sums)
        self.roots, self.quadratics = {}, []
        for node, terms in binder.atoms_of(form):
            self._add(node, form, terms)

    def _sums(self, values):
        return stratum_sums(values, self.weight, self.segments)

    def _add(self, node, form, terms):
        """One atom of the sum: a quadratic, or a root of the tape with weights."""
        binder = self.binder
        values = binder.evaluator.columns(form.coefficient[terms])
        values = (values.toarray() if hasattr(values, "toarray") else values) * form.scale[terms]
        weights = np.zeros((len(values), node.size))
        np.add.at(weights, (slice(None), form.column[terms] - node.start), values)
        if not binder.node_has_data(node):
            self.roots[node] = self._sums(weights)
            return
        bound = binder.node(node)
        weights = weights * self.weight[:, None]
        squares = self.statistics and isinstance(node.rule, Square)
        if squares and bound.forms[0].design is not None and not bound.forms[0].inner:
            quadratic = least_squares(bound.forms[0], weights)
            if quadratic is not None:
                self.quadratics.append(quadratic)
                return
        self.roots[node] = weights

    @property
    def kinked(self):
        """The first atom that is not differentiable, or None."""
        return first_kink(self.binder, self.roots)

    def parts(self):
        """The oracles whose sum this is."""
        parts = list(self.quadratics)
        if self.linear.any() or self.constant.any() or not (parts or self.roots):
            parts.insert(0, Quadratic(self.constant, self.linear))
        if self.roots:
            parts.append(self.tape())
        return parts

    def tape(self):
        """The tape of all atoms that are no quadratics."""
        weights = {self.binder.node(node): w.reshape(-1, *node.shape) for node, w in self.roots.items()}
        return Tape(self.binder.nodes(self.roots), weights, self.segments, self.binder.n, self.active)

    def oracle(self, prox=None, reason="", cones=None):
        """The sum as one oracle."""
        kink = self.kinked
        curved = all(node.rule.curved for node in self.binder.nodes(self.roots))
        why = {"prox": reason} if reason else {}
        if kink is not None:
            why["value_and_gradient"] = why["hessian_operator"] = (
                f"{text(kink.expression)} is not differentiable"
            )
        return SumOracle(self.parts(), self.binder.n, kink is None, curved, prox, why, cones)


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
            alone = _is_scaled_atom(binder, form)
            for inner, _ in binder.atoms_of(form):
                stack.append((inner, node.rule.flat_at_zero and alone))
    return None


def _is_scaled_atom(binder, form):
    """Whether each row of a form is a number times one atom's entry."""
    if not np.array_equal(form.row, np.arange(form.size)):
        return False
    owners = binder.symbols.owner(form.column) if form.column.all() else None
    return owners is not None and all(
        isinstance(binder.symbols.nodes[o], AtomNode) for o in np.unique(owners)
    )
