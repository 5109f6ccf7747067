"""Random records and points for which a declaration is convex and finite."""

import warnings
from itertools import product

import numpy as np
import scipy.sparse as sp

from strat.errors import StratError
from strat.records.strata import Strata

#: The strata of the records.
INDEX = np.array([0, 0, 0, 1, 1, 1, 1, 2])
KINDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "zero or one": lambda rng, shape: rng.integers(0, 2, size=shape).astype(float),
    "positive": lambda rng, shape: rng.uniform(0.2, 2, size=shape),
    "signs": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
    "counts": lambda rng, shape: rng.poisson(2.0, size=shape).astype(float),
    "unit interval": lambda rng, shape: rng.uniform(0.1, 0.9, size=shape),
    "negative": lambda rng, shape: -rng.uniform(0.2, 2, size=shape),
    "semidefinite": lambda rng, shape: _semidefinite(rng, shape),
}
TRIES = 300


class Records:
    """Arrays of records, all of weight 1, and their strata."""

    def __init__(self, arrays):
        self.arrays, self.strata, self.weight = arrays, Strata([0, 1, 2], INDEX), np.ones(len(INDEX))


def random_records(program, rng, given):
    """(Records, flat oracle) of the first kinds of random data that the program accepts; (None, None) if none is.

    `given` are values of hyperparameters by name.
    """
    if not program.data:
        try:
            return None, program.bind_regularizer(given)
        except StratError:
            return None, None
    for drawn in _draws(program.data, rng, len(INDEX)):
        records = Records(drawn)
        try:
            oracle = program.bind_records(drawn, records.strata, records.weight, given, prox=True)
        except StratError:
            continue
        if random_points(program, oracle, rng, 3) is not None:
            return records, oracle
    return None, None


def random_points(program, oracle, rng, K):
    """Points (K, n) at which the oracle is finite, or None."""
    theta, found = np.zeros((K, program.layout.n)), np.zeros(K, dtype=bool)
    for drawn in _draws(program.variables, rng, K):
        packed = program.layout.pack(
            {v.name(): value for v, value in zip(program.variables, drawn, strict=True)}
        )
        # Away from the boundary of the domain, where differences have no meaning.
        fine = ~found & np.all(
            [np.isfinite(oracle.value(packed + shift)) for shift in (0.0, -1e-3, 1e-3)], axis=0
        )
        theta[fine] = packed[fine]
        found |= fine
        if found.all():
            return theta
    return None


def _draws(leaves, rng, count):
    """Values (count, *shape) of each leaf: of one kind for all first, then all combinations in random order, some hundred."""
    for kinds in _choices(len(leaves), rng):
        values = [KINDS[kind](rng, (count, *leaf.shape)) for leaf, kind in zip(leaves, kinds, strict=True)]
        yield [np.stack([_inside(x, v) for v in value]) for x, value in zip(leaves, values, strict=True)]


def _inside(leaf, value):
    """A value with the leaf's attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # CVXPY's about sparse values, which it makes itself
        value = leaf.project(value)
    value = value.toarray() if sp.issparse(value) else value  # of diagonal matrices
    return np.asarray(value, dtype=float).reshape(leaf.shape)


def _choices(count, rng):
    names = list(KINDS)
    for name in names:
        yield (name,) * count
    if len(names) ** count <= TRIES:
        yield from rng.permuted(np.array(list(product(names, repeat=count))), axis=0)
        return
    for _ in range(TRIES):
        yield tuple(names[i] for i in rng.integers(len(names), size=count))


def _semidefinite(rng, shape):
    """Semidefinite where the shape is that of square matrices, else positive."""
    if len(shape) < 3 or shape[-1] != shape[-2]:
        return rng.uniform(0.2, 2, size=shape)
    root = rng.normal(size=shape)
    return root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(shape[-1])
