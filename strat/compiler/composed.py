"""An increasing function of a convex one beside other pieces, as the square of a norm: the convex one with its slope."""

import numpy as np

from strat.compiler.pieces import affine_matrix, sums_of_atoms
from strat.compiler.rows import NoProx
from strat.compiler.weighted import WeightedSums
from strat.oracles.row_functions import ScalarRows
from strat.rules.base import Elementwise


class Composed(WeightedSums):
    """argmin_z rest(z) + g(f(z)) + ‖z − v‖²/(2t), g smooth and f convex (or concave, where g falls).

    It is the prox of rest + λ f with λ = g'(f(z)), which falls in λ; and λ is at most what it is without f.

    Parameters
    ----------
    component : Component
    node : atom node
        g, elementwise.
    place : int
        Which of its arguments is f.
    sign : float
        −1 where f is concave.

    Raises
    ------
    NoProx
        If the prox of rest + λ f is not known.
    """

    def __init__(self, component, node, place, sign):
        binder, entries = component.binder, component.entries[node]
        parts, slope, offset = sums_of_atoms(binder, node.forms[place])[entries[0]]
        others = [
            binder.evaluator.form(f).reshape(1, -1)[:, entries]
            for i, f in enumerate(node.forms)
            if i != place
        ]
        free = np.full((1, 1), np.inf)
        weight = component.builder.nodes[node][:, entries]
        self.outer, self.sign = ScalarRows(node.rule, others, weight, -free, free, place), sign
        function = [(a, sign * w) for a, w in parts], sign * slope.toarray(), sign * offset
        super().__init__(component, node, [function], [1.0])

    def _slope(self, z, strata):
        """The derivative in the convex function at z; nan outside its domain."""
        outer, u = self.outer.take(strata), self.sign * self.value(0, z)
        low, high = dict(self.outer.rule.intervals).get(self.outer.place, (-np.inf, np.inf))
        return np.where((u >= low) & (u <= high), self.sign * outer.gradient(u[:, None])[:, 0], np.nan)

    def excess(self, v, t, out):
        """What the slope exceeds λ by, λ a part of its largest value."""
        everywhere = np.arange(len(v))
        z = self.prox((np.full(len(v), self.least),), everywhere, v, t)
        largest = np.maximum(self._slope(z, everywhere), self.least)
        largest = np.where(np.isfinite(largest), largest, np.nan)

        def function(part, strata):
            own = largest[strata]
            factor = np.maximum(part * own, self.least)
            out[strata] = z = self.prox((np.where(np.isnan(factor), 0.0, factor),), strata, v, t)
            slope = self._slope(z, strata)
            return slope - part * own, 1e-14 * (slope + part * own)

        return function


def composed(component):
    """``Composed`` of a component with one smooth elementwise function of a sum of atoms; None for others."""
    binder, found = component.binder, []
    for node in component.several:
        varying = [i for i, form in enumerate(node.forms) if not form.is_data]
        simple = isinstance(node.rule, Elementwise) and node.rule.curved and node.rule.kinks == "none"
        if simple and len(varying) == 1 and affine_matrix(binder, node.forms[varying[0]]) is None:
            found.append((node, varying[0]))
    if len(found) != 1 or len(component.entries[found[0][0]]) != 1 or binder.node_has_data(found[0][0]):
        return None
    node, place = found[0]
    argument = node.expression.args[place]
    try:
        block = Composed(component, node, place, 1.0 if argument.is_convex() else -1.0)
    except NoProx:
        return None
    return block if block.quick else None
