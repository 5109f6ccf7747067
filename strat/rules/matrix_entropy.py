"""The entropy of a matrix."""

import cvxpy as cp
import numpy as np
from scipy.special import entr

from strat.rules import atoms, rule
from strat.rules.base import Rule
from strat.rules.exponentials import Entr
from strat.rules.matrices import symmetric

#: Eigenvalues that rounding alone has made negative, in multiples of the largest.
ROUNDING = 1e-13


@rule(atoms.von_neumann_entr)
class VonNeumannEntropy(Rule):
    """-tr(S log S) of a positive semidefinite S, -inf otherwise; prox by eigenvalues."""

    curved = False
    prox = "closed form"

    @staticmethod
    def example():
        s = cp.Variable((2, 2), symmetric=True, name="S")
        return -cp.von_neumann_entr(s), {"S": [[2.0, 0.5], [0.5, 1.0]]}

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(), [args[0]], (), e)

    def prox_eigenvalues(self, values, step):
        """Those of the entropy of numbers."""
        return Entr().scalar_prox(values, step[:, None])

    def forward(self, args):
        values, vectors = np.linalg.eigh(symmetric(args[0]))
        slopes = (
            -np.log(np.maximum(values, np.finfo(float).tiny)) - 1.0
        )  # finite, so that 0 times it is no nan
        return entr(np.maximum(values, 0.0)).sum(axis=-1), (slopes, vectors)

    def pullback(self, i, args, out, memo, g):
        slopes, vectors = memo
        return g[..., None, None] * ((vectors * slopes[..., None, :]) @ np.swapaxes(vectors, -1, -2))

    def domain(self, args):
        values = np.linalg.eigvalsh(symmetric(args[0]))
        return values[..., 0] >= -ROUNDING * np.abs(values).max(axis=-1)
