"""The larger of two functions beside other pieces: weighted sums of both, with weights that make them equal."""

import numpy as np

from strat.compiler.alternatives import alternatives
from strat.compiler.rows import NoProx
from strat.compiler.weighted import WeightedSums
from strat.rules.piecewise import Minimum


class Larger(WeightedSums):
    """argmin_z rest(z) + weight × max(f_1(z), f_2(z)) + ‖z − v‖²/(2t).

    With the right λ in [0, 1] it is the prox of rest + weight × (λ f_1 + (1 − λ) f_2), and f_1 − f_2 there falls in λ: a
    root for each stratum, or an end where one function is the larger one even without weight.

    Parameters
    ----------
    component : Component
    node : atom node
        The maximum, or minimum.
    choices : list of two (parts, linear, offset)
        What it is of.

    Raises
    ------
    NoProx
        If the prox of the weighted sum is not known.
    """

    def __init__(self, component, node, choices):
        sign = -1.0 if isinstance(node.rule, Minimum) else 1.0
        self.weight = sign * component.builder.nodes[node][:, component.entries[node]]
        functions = [
            ([(a, sign * w) for a, w in parts], sign * slope.toarray(), sign * offset)
            for parts, slope, offset in choices
        ]
        super().__init__(component, node, functions, [0.5, 0.5])

    def excess(self, v, t, out):
        """f_1 − f_2 at a share λ."""
        weight = np.broadcast_to(self.weight, (len(v), 1))[:, 0]

        def function(share, strata):
            share, own = np.clip(share, self.least, 1.0 - self.least), weight[strata]
            out[strata] = z = self.prox((own * share, own * (1.0 - share)), strata, v, t)
            first, second = self.value(0, z), self.value(1, z)
            return first - second, 1e-14 * (1.0 + np.abs(np.where(np.isfinite(second), second, 0.0)))

        return function


def larger(component):
    """``Larger`` of a component with one maximum of two functions, not both linear; None for others."""
    found = [
        (node, alternatives(component.binder, node, component.entries[node])) for node in component.several
    ]
    found = [(node, choices) for node, choices in found if choices is not None]
    if len(found) != 1 or len(found[0][1]) != 1:
        return None
    node, (choices,) = found[0]
    if len(choices) != 2 or not any(parts for parts, _, _ in choices):
        return None
    try:
        block = Larger(component, node, choices)
    except NoProx:
        return None
    return block if block.quick else None
