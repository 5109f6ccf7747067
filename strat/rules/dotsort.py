"""Weighted sums of sorted entries."""

import cvxpy as cp
import numpy as np

from strat.errors import NoOracleError
from strat.oracles.prox_chains import path_prox
from strat.rules import atoms, rule
from strat.rules.base import Rows, at_point
from strat.rules.text import text


@rule(atoms.dotsort)
class DotSort(Rows):
    """Sum of the sorted entries of u times sorted weights; prox by isotonic regression of the sorted entries.

    Parameters
    ----------
    weights : tuple of float
        Ascending.
    """

    kinks = "some"
    invariance = "ordered"

    def __init__(self, weights):
        self.weights = weights

    example = at_point(lambda u: cp.dotsort(u, [2.0, 1.0, -0.5]), u=[0.3, -1.0, 2.5, 1.0])

    @classmethod
    def form(cls, walker, e, args):
        u, weights = args[0], e.args[1]
        if weights.parameters():
            raise NoOracleError(
                f"the weights of {text(e)} are Parameters; there is a rule for constant weights only. Give numbers, "
                f"or write the function as a sum of sum_largest times Parameters."
            )
        padded = np.zeros(u.size)
        padded[: weights.size] = np.asarray(weights.value, dtype=float).reshape(-1)
        rule_ = cls(tuple(np.sort(padded).tolist()))
        return walker.apply(rule_, [u.reshaped((1, u.size))], (1,), e).reshaped(())

    def prox(self, u, step):
        """z keeps the order of u: the increasing sequence nearest to the sorted u − step × weights."""
        order = np.argsort(u, axis=-1, kind="stable")
        target = np.take_along_axis(u, order, axis=-1) - step[..., None] * np.array(self.weights)
        flat = target.reshape(-1, target.shape[-1])
        free, never = np.zeros((1, flat.shape[1] - 1)), np.full((1, flat.shape[1] - 1), np.inf)
        z = path_prox(flat, np.ones((1, 1)), free, never).reshape(target.shape)
        out = np.empty_like(u)
        np.put_along_axis(out, order, z, axis=-1)
        return out

    def forward(self, args):
        order = np.argsort(args[0], axis=-1, kind="stable")
        weights = np.empty(args[0].shape)
        np.put_along_axis(weights, order, np.broadcast_to(self.weights, weights.shape), axis=-1)
        return (weights * args[0]).sum(axis=-1), weights
