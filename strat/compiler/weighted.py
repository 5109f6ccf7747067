"""The prox of a function of functions beside other pieces, by that of weighted sums with the right weights."""

from copy import copy

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.bracketing import decreasing_root
from strat.oracles.tape import Tape


class WeightedSums:
    """argmin_z rest(z) + g(f_1(z), …) + ‖z − v‖²/(2t) as that of rest + Σ λ_i f_i, with one unknown for all λ.

    Parameters
    ----------
    component : Component
    node : atom node
        g, with one entry in the component.
    functions : list of (parts, linear, offset)
        f_1, …, as of ``sums_of_atoms``, convex.
    half : list of float
        Some λ, to see what proxes the sums have.

    Raises
    ------
    NoProx
        If their proxes are not known.
    """

    #: The least part of a λ of a function that is not finite everywhere: with none it would not keep its domain.
    least = 0.0

    def __init__(self, component, node, functions, half):
        builder = component.builder
        self.builder, self.columns, self.binder, self.functions = (
            builder,
            component.columns,
            component.binder,
            functions,
        )
        others = (a for a in component.several + component.single if a is not node)
        self.rest = [(a, builder.nodes[a]) for a in others]
        self.values = [self._tape(parts) for parts, _, _ in functions]
        nodes = self.binder.nodes([a for parts, _, _ in functions for a, _ in parts])
        if any(a.rule.restricted for a in nodes):
            self.least = 1e-13
        self.half = copy(builder)
        one = [np.full(1, part) for part in half]
        self.half.nodes, self.half.q, self.half.active = self._weighted(one, np.zeros(1, dtype=int))
        self.inner = self.half.build(columns=self.columns)[0]
        box = [ends[self.columns] for ends in self.half.domain()]
        self.rescue = None if builder.solver is None else builder.solver(self.columns, None, box)

    @property
    def kind(self):
        """How it is computed."""
        return self.inner.kind if self.inner.iterative else "Newton"

    @property
    def quick(self):
        """Whether the proxes of the sums are, of which it takes some ten."""
        return all(getattr(part, "quick", True) for part in self.inner.blocks)

    def _tape(self, parts):
        """The function of atoms of one sum."""
        if not parts:
            return None
        weights = {self.binder.node(a): w.reshape(1, *a.shape) for a, w in parts}
        return Tape(self.binder.nodes([a for a, _ in parts]), weights, None, self.binder.n)

    def value(self, i, z):
        """f_i at z (K, n)."""
        _, slope, offset = self.functions[i]
        with np.errstate(all="ignore"):
            value = 0.0 if self.values[i] is None else self.values[i].value(z)
        return value + z @ slope[0] + offset

    def _weighted(self, factors, strata):
        """Weights, linear part and active ones of some strata for rest + Σ λ_i f_i, λ_i (K,)."""

        def of(part):
            return part if part is None or len(part) == 1 else part[strata]

        nodes, q = {a: of(w) for a, w in self.rest}, of(self.builder.q)
        for (parts, slope, _), factor in zip(self.functions, factors, strict=True):
            own = factor[:, None]
            q = q + own * slope
            for a, w in parts:
                nodes[a] = nodes.get(a, 0.0) + own * w
        return nodes, q, of(self.builder.active)

    def prox(self, factors, strata, v, t):
        """Of rest + Σ λ_i f_i, on all coordinates of some strata, 0 where the component is not."""
        found = self.half.reweighted(*self._weighted(factors, strata))(v[strata], t[strata])
        z = np.zeros_like(found)  # a prox of some blocks leaves the others open
        z[:, self.columns] = found[:, self.columns]
        return z

    def excess(self, v, t, out):
        """A function of the unknown in [0, 1] and of strata, for ``decreasing_root``, that leaves its points in out."""
        raise NotImplementedError

    def __call__(self, v, t):
        t = np.broadcast_to(np.reshape(np.asarray(t, dtype=float), (-1, 1)), (len(v), 1))
        full, out = np.zeros((2, len(v), self.binder.n))
        full[:, self.columns] = v
        try:
            found = decreasing_root(self.excess(full, t, out), len(v))
        except NoOracleError:
            if self.rescue is None:
                raise
            return self.rescue(v, t[:, 0])
        out, lost = out[:, self.columns], np.flatnonzero(~found)
        if len(lost) and self.rescue is not None:
            out[lost] = self.rescue(v[lost], t[lost, 0])
        elif len(lost):
            raise NoOracleError(
                f"the prox was not found in {len(lost)} strata. Check that the data have a reasonable scale."
            )
        return out
