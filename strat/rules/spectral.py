"""Functions of singular values and of eigenvalues.

Their gradient comes from the decomposition: with f the function of the values s and M = U diag(s) Vᵀ, it is U diag(∇f(s)) Vᵀ.
"""

import cvxpy as cp
import numpy as np
from scipy.special import entr

from strat.oracles.thresholds import excess_level, onto_l1_ball, shrunk_largest
from strat.rules import atoms, rule
from strat.rules.base import ROUNDING, Rule, at_point, symmetric
from strat.rules.exponentials import Entr, positive_root


class _SingularValues(Rule):
    """A function of the singular values of one matrix; ``of_values`` gives the function and its gradient in them."""

    kinks = "some"

    def forward(self, args):
        left, values, right = np.linalg.svd(args[0], full_matrices=False)
        out, slopes = self.of_values(values)
        return out, (left * slopes[..., None, :]) @ right


@rule(atoms.normNuc)
class NuclearNorm(_SingularValues):
    """Sum of the singular values of a matrix."""

    example = at_point(cp.normNuc, u=[[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]])

    def prox(self, u, step):
        """Soft thresholding of the singular values."""
        return on_singular_values(u, lambda s: np.maximum(s - step[..., None], 0.0))

    def project(self, u, radius):
        """Projection of the singular values on a simplex."""
        return on_singular_values(u, lambda s: onto_l1_ball(s, radius))

    def of_values(self, values):
        return values.sum(axis=-1), np.ones_like(values)


@rule(atoms.sigma_max)
class SpectralNorm(_SingularValues):
    """Largest singular value of a matrix (what ``cp.norm`` of a matrix means)."""

    example = at_point(cp.sigma_max, u=[[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]])

    def prox(self, u, step):
        """The largest singular values are cut to one level."""
        return on_singular_values(
            u, lambda s: np.minimum(s, np.maximum(excess_level(s, step), 0.0)[..., None])
        )

    def project(self, u, radius):
        """Singular values cut at the radius."""
        return on_singular_values(u, lambda s: np.minimum(s, radius[..., None]))

    def of_values(self, values):
        return values[..., 0], np.eye(1, values.shape[-1])[0]


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

    def __init__(self, k):
        self.k = k

    @classmethod
    def of(cls, e):
        return cls(float(e.k))

    example = at_point(
        lambda u: cp.lambda_sum_largest(u, 2), u=[[1.0, -0.5, 0.2], [-0.5, 0.3, 0.0], [0.2, 0.0, -1.0]]
    )

    def prox_eigenvalues(self, values, step):
        """The prox of the sum of the k largest entries."""
        return shrunk_largest(values, step, self.k)

    def of_values(self, values):
        weights = np.clip(self.k - np.arange(values.shape[-1]), 0.0, 1.0)[::-1]
        return values @ weights, weights


@rule(atoms.lambda_max)
class LambdaMax(LambdaSumLargest):
    """Largest eigenvalue of a symmetric matrix."""

    @classmethod
    def of(cls, e):
        return cls(1)

    example = at_point(cp.lambda_max, u=[[1.0, -0.5], [-0.5, 0.3]])


@rule(atoms.log_det)
class LogDetRule(_Eigenvalues):
    """log det S of a positive definite S, -inf otherwise: covariance models."""

    definite = (0,)
    example = at_point(lambda S: -cp.log_det(S), S=[[2.0, 0.5], [0.5, 1.0]])

    def prox_eigenvalues(self, values, step):
        """The positive root of z² − uz + step = 0, step < 0, for each eigenvalue u."""
        return positive_root(values, -step[:, None])

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

    def prox_eigenvalues(self, values, step):
        """The prox of the entropy of each eigenvalue."""
        return Entr().prox(values, step[:, None])

    def of_values(self, values):
        slopes = (
            -np.log(np.maximum(values, np.finfo(float).tiny)) - 1.0
        )  # finite, so that 0 times it is not nan
        return entr(np.maximum(values, 0.0)).sum(axis=-1), slopes

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
