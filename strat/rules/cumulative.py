"""Running maxima."""

import cvxpy as cp
import numpy as np

from strat.rules import atoms, forms, rule
from strat.rules.base import Rule
from strat.rules.largest import Max


@rule(atoms.cummax)
class CumulativeMax(Rule):
    """Largest entry so far, along an axis: the maximum of each row of entries up to there."""

    kinks = "some"

    @staticmethod
    def example():
        u = cp.Variable(3, name="u")
        return cp.sum(cp.cummax(u)), {"u": [0.3, -1.0, 2.0]}

    @classmethod
    def form(cls, walker, e, args):
        (u,), axis = args, e.axis
        if axis is None:
            u, axis = u.reshaped((u.size,)), 0
        places = np.moveaxis(np.arange(u.size).reshape(u.shape), axis, -1)
        length = places.shape[-1]
        # Rows of one length: what comes later is replaced by the last entry that counts.
        so_far = np.minimum(np.arange(length)[None, :], np.arange(length)[:, None])
        rows = np.moveaxis(places[..., so_far], -2, axis).reshape(-1, length)
        return walker.apply(Max(), [forms.take(u, rows)], (len(rows),), e).reshaped(e.shape)
