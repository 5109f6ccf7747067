"""Norms of matrices: functions of singular values and eigenvalues."""

import cvxpy as cp
import numpy as np

from strat.oracles.thresholds import excess_level, onto_l1_ball, shrunk_largest, shrunk_maximum
from strat.rules import atoms, rule
from strat.rules.base import Rule


class _Spectral(Rule):
    """A function of one matrix, not differentiable everywhere; a subgradient comes from the decomposition."""

    kinks = "some"
    curved = False

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(), [args[0]], (), e)

    def pullback(self, i, args, out, memo, g):
        return g[..., None, None] * memo


@rule(atoms.normNuc)
class NuclearNorm(_Spectral):
    """Sum of the singular values of a matrix."""

    prox = "closed form"

    @staticmethod
    def example():
        u = cp.Variable((2, 3), name="u")
        return cp.normNuc(u), {"u": [[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]]}

    def prox_rows(self, u, step):
        """Soft thresholding of the singular values."""
        if np.all(step >= 0.01 * np.sqrt((u * u).sum(axis=(-2, -1)))):
            return _soft(u, step)
        return on_singular_values(u, lambda s: np.maximum(s - step[..., None], 0.0))

    def project_rows(self, u, radius):
        """Singular values onto a simplex."""
        return on_singular_values(u, lambda s: onto_l1_ball(s, radius))

    def forward(self, args):
        left, values, right = np.linalg.svd(args[0], full_matrices=False)
        return values.sum(axis=-1), left @ right


@rule(atoms.sigma_max)
class SpectralNorm(_Spectral):
    """Largest singular value of a matrix (what ``cp.norm`` of a matrix means)."""

    prox = "closed form"

    @staticmethod
    def example():
        u = cp.Variable((2, 3), name="u")
        return cp.sigma_max(u), {"u": [[1.0, -0.5, 2.0], [0.3, 1.0, 0.1]]}

    def prox_rows(self, u, step):
        """The largest singular values are cut to one level."""
        return on_singular_values(
            u, lambda s: np.minimum(s, np.maximum(excess_level(s, step), 0.0)[..., None])
        )

    def project_rows(self, u, radius):
        """Singular values cut at the radius."""
        return on_singular_values(u, lambda s: np.minimum(s, radius[..., None]))

    def forward(self, args):
        left, values, right = np.linalg.svd(args[0], full_matrices=False)
        return values[..., 0], left[..., :, :1] * right[..., :1, :]


@rule(atoms.lambda_max)
class LambdaMax(_Spectral):
    """Largest eigenvalue of a symmetric matrix."""

    prox = "closed form"

    @staticmethod
    def example():
        u = cp.Variable((2, 2), symmetric=True, name="u")
        return cp.lambda_max(u), {"u": [[1.0, -0.5], [-0.5, 0.3]]}

    def prox_eigenvalues(self, values, step):
        """The largest eigenvalues are cut to one level."""
        return shrunk_maximum(values, step)

    def forward(self, args):
        values, vectors = np.linalg.eigh(0.5 * (args[0] + np.swapaxes(args[0], -1, -2)))
        top = vectors[..., :, -1:]
        return values[..., -1], top * np.swapaxes(top, -1, -2)


@rule(cp.lambda_sum_largest)
class LambdaSumLargest(_Spectral):
    """Sum of the k largest eigenvalues of a symmetric matrix."""

    prox = "closed form"

    def __init__(self, k):
        self.k = k

    @staticmethod
    def example():
        u = cp.Variable((3, 3), symmetric=True, name="u")
        return cp.lambda_sum_largest(u, 2), {"u": [[1.0, -0.5, 0.2], [-0.5, 0.3, 0.0], [0.2, 0.0, -1.0]]}

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(float(e.k)), [args[0]], (), e)

    def prox_eigenvalues(self, values, step):
        """Those of the sum of the largest entries."""
        return shrunk_largest(values, step, self.k)

    def forward(self, args):
        values, vectors = np.linalg.eigh(0.5 * (args[0] + np.swapaxes(args[0], -1, -2)))
        weights = np.clip(self.k - np.arange(values.shape[-1]), 0.0, 1.0)[::-1]
        return values @ weights, (vectors * weights) @ np.swapaxes(vectors, -1, -2)


def on_singular_values(u, change):
    """Matrices with their singular values changed."""
    left, values, right = np.linalg.svd(u, full_matrices=False)
    return (left * change(values)[..., None, :]) @ right


def _soft(u, step):
    """Soft thresholding from the eigenvectors of uuᵀ or uᵀu: twice as fast, and exact where all small values vanish."""
    if u.shape[-2] > u.shape[-1]:
        return np.swapaxes(_soft(np.swapaxes(u, -1, -2), step), -1, -2)
    squares, left = np.linalg.eigh(u @ np.swapaxes(u, -1, -2))
    size = np.sqrt(np.maximum(squares, 0.0))
    kept = np.maximum(1.0 - step[..., None] / np.where(size > 0, size, np.inf), 0.0)
    return (left * np.where(size > 0, kept, 0.0)[..., None, :]) @ (np.swapaxes(left, -1, -2) @ u)
