"""Functions of each row of entries: maxima and minima, cumulative maxima, sums of sorted entries."""

import cvxpy as cp
import numpy as np

from strat.errors import NoOracleError
from strat.oracles.prox_groups import path_prox
from strat.oracles.thresholds import excess_level
from strat.rules import atoms, forms, rule, text
from strat.rules.base import Rows, Rule, at_point, grouped
from strat.rules.piecewise import Abs


@rule(atoms.max)
class Max(Rows):
    """Largest entry of each row."""

    kinks = "some"
    invariance = "ordered"
    example = at_point(cp.max, u=[0.3, -1.0, 2.0])

    def prox(self, u, step):
        """The largest entries are cut to a common level."""
        return np.minimum(u, excess_level(u, step)[..., None])

    @classmethod
    def form(cls, walker, e, args):
        rows = grouped(args[0], atoms.axis_of(e))
        largest = walker.apply(Max(), [rows], rows.shape[:1], e) if rows.shape[1] > 1 else rows
        return largest.reshaped(e.shape)

    def forward(self, args):
        (u,) = args
        weights = 1.0 * (np.arange(u.shape[-1]) == u.argmax(axis=-1)[..., None])
        return (weights * u).sum(axis=-1), weights


@rule(atoms.cummax)
class CumulativeMax(Rule):
    """Largest entry so far, along an axis: each output is the maximum of a row of the entries up to its place."""

    example = at_point(lambda u: cp.sum(cp.cummax(u)), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        (u,), axis = args, e.axis
        if axis is None:
            u, axis = u.reshaped((u.size,)), 0
        places = np.moveaxis(u.positions, axis, -1)
        length = places.shape[-1]
        # All rows have one length: later entries are replaced by the last entry that counts.
        so_far = np.minimum(np.arange(length)[None, :], np.arange(length)[:, None])
        rows = np.moveaxis(places[..., so_far], -2, axis).reshape(-1, length)
        return walker.apply(Max(), [forms.take(u, rows)], (len(rows),), e).reshaped(e.shape)


@rule(atoms.min)
class Min(Max):
    """Smallest entry of each row, concave: minus the largest of the negated entries."""

    example = at_point(lambda u: -cp.min(u), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        return super().form(walker, e, [args[0].scaled(-1.0)]).scaled(-1.0)


@rule(atoms.norm_inf)
class NormInf(Max):
    """Largest absolute value of each row."""

    example = at_point(cp.norm_inf, u=[0.3, -1.0, 2.5])

    @classmethod
    def form(cls, walker, e, args):
        return super().form(walker, e, [walker.apply(Abs(), args, args[0].shape, e)])


@rule(atoms.dotsort)
class DotSort(Rows):
    """Sum of the sorted entries of u times ascending weights, a tuple; prox by isotonic regression of the sorted entries."""

    kinks = "some"
    invariance = "ordered"
    example = at_point(lambda u: cp.dotsort(u, [2.0, 1.0, -0.5]), u=[0.3, -1.0, 2.5, 1.0])

    @classmethod
    def constants(cls, e, length):
        weights = e.args[1]
        if weights.parameters():
            raise NoOracleError(
                f"the weights of {text(e)} are Parameters; there is a rule for constant weights only. Give numbers, "
                f"or write the function as a sum of sum_largest times Parameters."
            )
        padded = np.zeros(length)
        padded[: weights.size] = np.asarray(weights.value, dtype=float).reshape(-1)
        return {"weights": tuple(np.sort(padded).tolist())}

    def prox(self, u, step):
        """z keeps the order of u: sorted, it is the increasing sequence nearest to the sorted u less step × weights."""
        order = np.argsort(u, axis=-1, kind="stable")
        target = np.take_along_axis(u, order, axis=-1) - step[..., None] * np.array(self.weights)
        flat = target.reshape(-1, target.shape[-1])
        free = np.zeros((len(flat), flat.shape[1] - 1))
        z = path_prox(flat, np.ones(flat.shape), free, free + np.inf).reshape(target.shape)
        out = np.empty_like(u)
        np.put_along_axis(out, order, z, axis=-1)
        return out

    def forward(self, args):
        order = np.argsort(args[0], axis=-1, kind="stable")
        weights = np.empty(args[0].shape)
        np.put_along_axis(weights, order, np.broadcast_to(self.weights, weights.shape), axis=-1)
        return (weights * args[0]).sum(axis=-1), weights


@rule(atoms.sum_largest)
class SumLargest(DotSort):
    """Sum of the k largest entries of each row (k may be fractional)."""

    example = at_point(lambda u: cp.sum_largest(u, 2), u=[0.3, -1.0, 2.5, 1.0])

    @classmethod
    def constants(cls, e, length):
        return {"weights": of_largest(float(e.k), length)}


def of_largest(k, n):
    """Weights of n ascending numbers in the sum of the k largest, k possibly fractional."""
    return tuple(np.clip(k - np.arange(n), 0.0, 1.0)[::-1].tolist())
