"""A bound on a sum of functions beside other pieces: the sum with the multiplier that makes it hold with equality."""

from copy import copy

import numpy as np

from strat.compiler.rows import NoProx
from strat.compiler.weighted import WeightedSums

#: Largest multiplier, in multiples of 1/t.
LARGEST = 1e12
#: What a function exceeds a bound by, in multiples of the bound's size, where it cannot be as small.
NEVER = 1e-9


class Bounded(WeightedSums):
    """argmin_z rest(z) + ‖z − v‖²/(2t) subject to f(z) <= 0.

    It is the prox of rest + λ f with the least λ >= 0 at which the bound holds, and f there falls in λ.

    Parameters
    ----------
    component : Component
        With one level set or ball among its pieces.
    function : (parts, linear, offset)
        f.

    Raises
    ------
    NoProx
        If the prox of rest + λ f is not known.
    """

    def __init__(self, component, function):
        component.builder = builder = copy(component.builder)
        builder.sets = copy(builder.sets)
        builder.sets.levels = _without(builder.sets.levels, component.levels)
        builder.sets.balls = _without(builder.sets.balls, component.balls)
        super().__init__(component, None, [function], [1.0])

    def excess(self, v, t, out):
        """f at a multiplier, which rises from 0 to the largest."""

        def function(part, strata):
            level = part / (1.0 + 1.0 / LARGEST - part) / t[strata, 0]
            out[strata] = z = self.prox((np.maximum(level, self.least),), strata, v, t)
            value = self.value(0, z)
            size = 1.0 + np.abs(self.functions[0][2])
            # At the end it holds, but for rounding where the bound is the least that the function can be; or never.
            end = np.where(value <= NEVER * size, value - NEVER * size, np.nan)
            return np.where(part == 1.0, end, value), 1e-15 * size

        return function


def _without(parts, some):
    return [part for part in parts if not any(part is other for other in some)]


def bounded(component, closed=True):
    """``Bounded`` of a component with one bound, where proxes of the weighted sum are closed forms, or at least quick."""
    sets = [([(node, weight)], None, radius) for node, weight, radius, _ in component.balls]
    sets += [(level.parts, level.linear, level.radius) for level in component.levels]
    if len(sets) != 1:
        return None
    (parts, linear, radius) = sets[0]
    slope = np.zeros((1, component.builder.n)) if linear is None else linear.toarray()
    try:
        block = Bounded(copy(component), (parts, slope, -radius))
    except NoProx:
        return None
    return block if (block.inner.kind == "closed form" if closed else block.quick) else None
