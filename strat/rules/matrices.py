"""Functions of matrices."""

import cvxpy as cp
import numpy as np

from strat.rules import atoms, forms, rule
from strat.rules.base import ROUNDING, Rule, at_point, symmetric


@rule(atoms.MatrixFrac)
class MatrixFraction(Rule):
    """tr XᵀP⁻¹X with P positive definite."""

    definite = (1,)
    example = at_point(cp.matrix_frac, u=[1.0, -2.0], S=[[2.0, 0.5], [0.5, 1.0]])

    @classmethod
    def form(cls, walker, e, args):
        x, p = args
        columns = x if len(x.shape) == 2 else x.reshaped((x.size, 1))
        return walker.apply(cls(), [columns, p], (), e)

    def forward(self, args):
        x, p = args
        definite, inverse = inverted(p)
        solved = inverse @ x
        return np.where(definite, (x * solved).sum(axis=(-2, -1)), np.inf), (solved, inverse)

    def pullback(self, i, args, out, memo, g):
        solved, _ = memo
        slope = 2.0 * solved if i == 0 else -solved @ np.swapaxes(solved, -1, -2)
        return g[..., None, None] * slope

    def curve(self, i, args, out, memo, g, tangents):
        solved, inverse = memo
        moved = tangents.get(0, 0.0) - (symmetric(tangents[1]) @ solved if 1 in tangents else 0.0)
        turned = inverse @ moved
        half = turned @ np.swapaxes(solved, -1, -2)
        return g[..., None, None] * (2.0 * turned if i == 0 else -(half + np.swapaxes(half, -1, -2)))


@rule(atoms.tr_inv)
class TraceInverse(MatrixFraction):
    """tr S⁻¹ of a positive definite matrix, +inf otherwise."""

    example = at_point(cp.tr_inv, S=[[2.0, 0.5], [0.5, 1.0]])

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(), [forms.constant(np.eye(len(args[0].positions))), args[0]], (), e)


def inverted(s):
    """Whether matrices are positive definite beyond rounding, and their inverses, a finite stand-in where they are not."""
    values, vectors = np.linalg.eigh(symmetric(s))
    definite = values[..., 0] > ROUNDING * values[..., -1]
    safe = np.where(definite[..., None], values, 1.0)
    return definite, (vectors / safe[..., None, :]) @ np.swapaxes(vectors, -1, -2)
