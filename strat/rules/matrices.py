"""Functions of matrices."""

import cvxpy as cp
import numpy as np

from strat.expressions import atoms
from strat.rules import rule
from strat.rules.base import Rule


@rule(atoms.log_det)
class LogDetRule(Rule):
    """log det S of a positive definite S, -inf otherwise: covariance models."""

    prox = "closed form"

    @staticmethod
    def example():
        s = cp.Variable((2, 2), symmetric=True, name="S")
        return -cp.log_det(s), {"S": [[2.0, 0.5], [0.5, 1.0]]}

    @classmethod
    def form(cls, walker, e, args):
        return walker.apply(cls(), [args[0]], (), e)

    def forward(self, args):
        (s,) = args
        eigenvalues = np.linalg.eigvalsh(0.5 * (s + np.swapaxes(s, -1, -2)))
        positive = eigenvalues[..., 0] > 0
        total = np.log(np.where(eigenvalues > 0, eigenvalues, 1.0)).sum(axis=-1)
        safe = np.where(positive[..., None, None], s, np.eye(s.shape[-1]))
        return np.where(positive, total, -np.inf), np.linalg.inv(safe)

    def pullback(self, i, args, out, memo, g):
        return g[..., None, None] * np.swapaxes(memo, -1, -2)

    def pushforward(self, args, out, memo, tangents):
        return (np.swapaxes(memo, -1, -2) * tangents[0]).sum(axis=(-2, -1))

    def curve(self, i, args, out, memo, g, tangents):
        inverse = np.swapaxes(memo, -1, -2)
        return -g[..., None, None] * inverse @ np.swapaxes(tangents[0], -1, -2) @ inverse

    def domain(self, args):
        eigenvalues = np.linalg.eigvalsh(0.5 * (args[0] + np.swapaxes(args[0], -1, -2)))
        return eigenvalues[..., 0] >= 0
