"""The larger of two functions beside other pieces: the prox of a weighted sum of both, with weights that make them equal."""

from copy import copy

import numpy as np

from strat.compiler.alternatives import alternatives
from strat.compiler.rows import NoProx
from strat.errors import NoOracleError
from strat.oracles.bracketing import decreasing_root
from strat.oracles.tape import Tape
from strat.rules.piecewise import Minimum

#: The least share of a function that is not finite everywhere.
LEAST = 1e-13


class Larger:
    """argmin_z rest(z) + weight × max(f_1(z), f_2(z)) + ‖z − v‖²/(2t).

    With the right λ in [0, 1] it is the prox of rest + weight × (λ f_1 + (1 − λ) f_2), and f_1 − f_2 there falls in λ: a
    root for each stratum, or an end where one function is the larger one even without weight.

    Parameters
    ----------
    component : Component
        With one maximum of two functions among its pieces.
    node : atom node
        That maximum.
    choices : list of two (parts, linear, offset)
        What it is of, as of ``sums_of_atoms``.

    Raises
    ------
    NoProx
        If the prox of the weighted sum is not known.
    """

    def __init__(self, component, node, choices):
        self.builder, self.columns = component.builder, component.columns
        self.binder, sign = component.binder, -1.0 if isinstance(node.rule, Minimum) else 1.0
        weight = sign * self.builder.nodes[node][:, component.entries[node]]
        self.choices = [
            ([(a, sign * w) for a, w in parts], sign * slope.toarray(), sign * offset)
            for parts, slope, offset in choices
        ]
        self.rest = [
            (a, self.builder.nodes[a]) for a in component.several + component.single if a is not node
        ]
        self.weight, self.values = weight, [self._tape(parts) for parts, _, _ in self.choices]
        solver = self.builder.solver
        self.rescue = None if solver is None else solver(self.columns, None)
        nodes = [a for parts, _, _ in self.choices for a, _ in parts]
        # With no weight at all a function would not keep its domain.
        self.least = LEAST if any(a.rule.restricted for a in self.binder.nodes(nodes)) else 0.0
        nodes, q, active = self._weighted(np.array([0.5]), np.zeros(1, dtype=int))
        self.half = copy(self.builder)
        self.half.nodes, self.half.q, self.half.active = nodes, q, active
        self.inner = self.half.build(columns=self.columns)[0]

    @property
    def kind(self):
        """How it is computed."""
        return self.inner.kind if self.inner.iterative else "Newton"

    def _tape(self, parts):
        """The function of atoms of one choice."""
        if not parts:
            return None
        weights = {self.binder.node(a): w.reshape(1, *a.shape) for a, w in parts}
        return Tape(self.binder.nodes([a for a, _ in parts]), weights, None, self.binder.n)

    def _value(self, i, z):
        """f_i at z (K, n)."""
        _, slope, offset = self.choices[i]
        with np.errstate(all="ignore"):
            value = 0.0 if self.values[i] is None else self.values[i].value(z)
        return value + z @ slope[0] + offset

    def _weighted(self, share, strata):
        """Weights, linear part and active ones of some strata for rest + weight × (share f_1 + (1 − share) f_2)."""

        def of(part):
            return part if part is None or len(part) == 1 else part[strata]

        share = np.clip(share, self.least, 1.0 - self.least)
        nodes, q = {a: of(w) for a, w in self.rest}, of(self.builder.q)
        for (parts, slope, _), part in zip(self.choices, (share, 1.0 - share), strict=True):
            own = of(self.weight) * part[:, None]
            q = q + own * slope
            for a, w in parts:
                nodes[a] = nodes.get(a, 0.0) + own * w
        return nodes, q, of(self.builder.active)

    def __call__(self, v, t):
        t = np.broadcast_to(np.reshape(np.asarray(t, dtype=float), (-1, 1)), (len(v), 1))
        full, out = np.zeros((2, len(v), self.binder.n))
        full[:, self.columns] = v

        def excess(share, strata):
            z = self.half.reweighted(*self._weighted(share, strata))(full[strata], t[strata])
            out[strata] = z
            first, second = self._value(0, z), self._value(1, z)
            return first - second, 1e-14 * (1.0 + np.abs(np.where(np.isfinite(second), second, 0.0)))

        try:
            found = decreasing_root(excess, len(v))
        except NoOracleError:
            if self.rescue is None:
                raise
            return self.rescue(v, t[:, 0])
        out = out[:, self.columns]
        lost = np.flatnonzero(~found)
        if len(lost) and self.rescue is not None:
            out[lost] = self.rescue(v[lost], t[lost, 0])
        elif len(lost):
            raise NoOracleError(
                f"the prox was not found in {len(lost)} strata. Check that the data have a reasonable scale."
            )
        return out


def larger(component):
    """``Larger`` of a component with one maximum of two functions, not both linear; None for others.

    It takes some ten proxes of weighted sums, so that these have to be quick.
    """
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
    return block if all(getattr(part, "quick", True) for part in block.inner.blocks) else None
