"""Functions of matrices: of their inverses, singular values and eigenvalues.

A function f of the singular values s of M = U diag(s) Vᵀ has the gradient U diag(∇f(s)) Vᵀ; eigenvalues likewise.
"""

import cvxpy as cp
import numpy as np
from scipy.special import entr

from strat.oracles.thresholds import onto_l1_ball
from strat.rules import atoms, forms, rule
from strat.rules.base import Rule, at_point, symmetric
from strat.rules.exponentials import Entr, positive_root
from strat.rules.rows import DotSort, of_largest

#: Eigenvalues below this multiple of the largest may be rounding error.
ROUNDING = 1e-13


@rule(atoms.MatrixFrac)
class MatrixFraction(Rule):
    """tr XᵀP⁻¹X with P positive definite."""

    definite, scale_free = (1,), True
    example = at_point(cp.matrix_frac, u=[1.0, -2.0], S=[[2.0, 0.5], [0.5, 1.0]])

    @classmethod
    def form(cls, walker, e, args):
        x, p = args
        columns = x if len(x.shape) == 2 else x.reshaped((x.size, 1))
        return walker.apply(cls(), [columns, p], (), e)

    def forward(self, args):
        x, p = args
        values, vectors = np.linalg.eigh(symmetric(p))
        definite = values[..., 0] > ROUNDING * values[..., -1]
        safe = np.where(definite[..., None], values, 1.0)  # a finite stand-in where a matrix is not definite
        inverse = (vectors / safe[..., None, :]) @ np.swapaxes(vectors, -1, -2)
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


class _SingularValues(Rule):
    """A norm of the singular values of one matrix; ``of_values`` gives the norm and its gradient in the singular values.

    ``onto(values, radius)`` projects onto a ball of the norm, and ``onto_dual`` onto a ball of the dual norm.
    """

    kinks = "some"

    def forward(self, args):
        left, values, right = np.linalg.svd(args[0], full_matrices=False)
        out, slopes = self.of_values(values)
        return out, (left * slopes[..., None, :]) @ right

    def prox(self, u, step):
        """u less its projection onto a ball of the dual norm (Moreau's decomposition)."""
        return on_singular_values(u, lambda s: s - self.onto_dual(s, step))

    def project(self, u, radius):
        return on_singular_values(u, lambda s: self.onto(s, radius))


@rule(atoms.normNuc)
class NuclearNorm(_SingularValues):
    """Sum of the singular values of a matrix."""

    example = at_point(cp.normNuc, u=[[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]])
    onto = staticmethod(onto_l1_ball)
    onto_dual = staticmethod(lambda values, radius: np.minimum(values, radius[..., None]))
    of_values = staticmethod(lambda values: (values.sum(axis=-1), np.ones_like(values)))


@rule(atoms.sigma_max)
class SpectralNorm(_SingularValues):
    """Largest singular value of a matrix (what ``cp.norm`` of a matrix means)."""

    example = at_point(cp.sigma_max, u=[[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]])
    onto, onto_dual = staticmethod(NuclearNorm.onto_dual), staticmethod(NuclearNorm.onto)
    of_values = staticmethod(lambda values: (values[..., 0], np.eye(1, values.shape[-1])[0]))


class _Eigenvalues(Rule):
    """A function of the eigenvalues, ascending, of one symmetric matrix; ``of_values`` gives the function and its gradient."""

    def forward(self, args):
        values, vectors = np.linalg.eigh(symmetric(args[0]))
        out, slopes = self.of_values(values)
        return out, (vectors * slopes[..., None, :]) @ np.swapaxes(vectors, -1, -2)


@rule(cp.lambda_sum_largest)
class LambdaSumLargest(_Eigenvalues):
    """Sum of the k largest eigenvalues of a symmetric matrix."""

    kinks = "some"

    @classmethod
    def form(cls, walker, e, args):
        weights = of_largest(float(getattr(e, "k", 1)), e.args[0].shape[0])
        return walker.apply(cls(weights=weights), args, e.shape, e)

    example = at_point(
        lambda u: cp.lambda_sum_largest(u, 2), u=[[1.0, -0.5, 0.2], [-0.5, 0.3, 0.0], [0.2, 0.0, -1.0]]
    )

    def prox_eigenvalues(self, values, step):
        return DotSort(weights=self.weights).prox(values[:, None], step[:, None])[:, 0]

    def of_values(self, values):
        weights = np.array(self.weights)
        return values @ weights, weights


@rule(atoms.lambda_max)
class LambdaMax(LambdaSumLargest):
    """Largest eigenvalue of a symmetric matrix."""

    example = at_point(cp.lambda_max, u=[[1.0, -0.5], [-0.5, 0.3]])


@rule(atoms.log_det)
class LogDetRule(_Eigenvalues):
    """log det S of a positive definite S, -inf otherwise: covariance models."""

    definite, scale_free = (0,), True
    example = at_point(lambda S: -cp.log_det(S), S=[[2.0, 0.5], [0.5, 1.0]])
    # z² − uz + step = 0, step < 0, for each eigenvalue u
    prox_eigenvalues = staticmethod(lambda values, step: positive_root(values, -step[:, None]))

    def of_values(self, values):
        positive = values[..., :1] > 0
        safe = np.where(positive, values, 1.0)
        return np.where(positive[..., 0], np.log(safe).sum(axis=-1), -np.inf), 1.0 / safe

    def curve(self, i, args, out, memo, g, tangents):
        return -g[..., None, None] * (memo @ symmetric(tangents[0]) @ memo)


@rule(atoms.von_neumann_entr)
class VonNeumannEntropy(_Eigenvalues):
    """-tr(S log S) of a positive semidefinite S, -inf otherwise; prox by eigenvalues."""

    definite = steep = (0,)
    example = at_point(lambda S: -cp.von_neumann_entr(S), S=[[2.0, 0.5], [0.5, 1.0]])
    prox_eigenvalues = staticmethod(lambda values, step: Entr().prox(values, step[:, None]))

    def of_values(self, values):
        positive = np.maximum(values, np.finfo(float).tiny)  # finite slopes, so that 0 times one is not nan
        return entr(np.maximum(values, 0.0)).sum(axis=-1), -np.log(positive) - 1.0

    def domain(self, args):
        values = np.linalg.eigvalsh(symmetric(args[0]))
        return values[..., 0] >= -ROUNDING * np.abs(values).max(axis=-1)

    def interior(self, args, moving):
        values = np.linalg.eigvalsh(symmetric(args[0]))
        return values[..., 0] > ROUNDING * np.abs(values).max(axis=-1)


def on_singular_values(u, change):
    """Apply a function to the singular values of matrices."""
    left, values, right = np.linalg.svd(u, full_matrices=False)
    return (left * change(values)[..., None, :]) @ right
