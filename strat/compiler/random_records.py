"""Random records and points for which a declaration is convex and finite."""

import warnings
from itertools import product

import numpy as np
import scipy.sparse as sp

from strat.errors import StratError
from strat.records.strata import Strata

N = 8
#: The strata of the records.
INDEX = np.array([0, 0, 0, 1, 1, 1, 1, 2])

SIGNS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "zero or one": lambda rng, shape: rng.integers(0, 2, size=shape).astype(float),
    "positive": lambda rng, shape: rng.uniform(0.2, 2, size=shape),
    "signs": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
    "counts": lambda rng, shape: rng.poisson(2.0, size=shape).astype(float),
    "unit interval": lambda rng, shape: rng.uniform(0.1, 0.9, size=shape),
    "negative": lambda rng, shape: -rng.uniform(0.2, 2, size=shape),
    "semidefinite": lambda rng, shape: _semidefinite(rng, shape),
}
_TRIES = 300


class Records:
    """Arrays of records, all of weight 1, and their strata."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.strata = Strata([0, 1, 2], INDEX)
        self.weight = np.ones(N)


def random_records(program, rng, given):
    """(Records, flat oracle) of the first kinds of random data that the program accepts; (None, None) if none is.

    Parameters
    ----------
    program : Program
    rng : numpy Generator
    given : dict
        Values of hyperparameters by name.
    """
    if not program.data:
        try:
            return None, program.bind_regularizer(given)
        except StratError:
            return None, None
    for kinds in _choices(len(program.data), rng):
        arrays = []
        for p, kind in zip(program.data, kinds, strict=True):
            array = SIGNS[kind](rng, (N, *p.shape))
            arrays.append(np.stack([np.asarray(p.project(a), dtype=float).reshape(p.shape) for a in array]))
        records = Records(arrays)
        try:
            oracle = program.bind_records(arrays, records.strata, records.weight, given, prox=True)
        except StratError:
            continue
        if random_points(program, oracle, rng, 3) is not None:
            return records, oracle
    return None, None


def random_points(program, oracle, rng, K):
    """Points (K, n) at which the oracle is finite, or None."""
    theta, found = np.zeros((K, program.layout.n)), np.zeros(K, dtype=bool)
    for kinds in _choices(len(program.variables), rng):
        point = {}
        for v, kind in zip(program.variables, kinds, strict=True):
            values = SIGNS[kind](rng, (K, *v.shape))
            point[v.name()] = np.stack([_inside(v, x) for x in values])
        packed = program.layout.pack(point)
        fine = np.isfinite(oracle.value(packed)) & ~found
        # Away from the boundary of the domain, where differences have no meaning.
        for shift in (-1e-3, 1e-3):
            fine &= np.isfinite(oracle.value(packed + shift))
        theta[fine] = packed[fine]
        found |= fine
        if found.all():
            return theta
    return None


def _inside(variable, value):
    """A value with the variable's attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # CVXPY's about sparse values, which it makes itself
        value = variable.project(value)
    value = value.toarray() if sp.issparse(value) else value  # of diagonal matrices
    return np.asarray(value, dtype=float).reshape(variable.shape)


def _choices(count, rng):
    """Kinds for each of count leaves: all the same first, then all combinations in random order, a few hundred."""
    names = list(SIGNS)
    for name in names:
        yield (name,) * count
    if len(names) ** count <= _TRIES:
        yield from rng.permuted(np.array(list(product(names, repeat=count))), axis=0)
        return
    for _ in range(_TRIES):
        yield tuple(names[i] for i in rng.integers(len(names), size=count))


def _semidefinite(rng, shape):
    """Semidefinite where the shape is that of square matrices, else positive."""
    if len(shape) < 3 or shape[-1] != shape[-2]:
        return rng.uniform(0.2, 2, size=shape)
    root = rng.normal(size=shape)
    return root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(shape[-1])
