"""Random records and points for which a declaration is convex and finite."""

import warnings

import numpy as np
import scipy.sparse as sp

from strat.errors import StratError
from strat.records.strata import Strata

#: The strata of the records, which all have weight 1.
INDEX = np.array([0, 0, 0, 1, 1, 1, 1, 2])
GROUPED = Strata([0, 1, 2], INDEX), np.ones(len(INDEX))
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
TRIES = 600


def random_records(program, rng, given):
    """(arrays, flat oracle) of the first random data that the program accepts, or (None, None); `given` are hyperparameters."""
    for arrays in _draws(program.data, rng, len(INDEX)):
        try:
            if not program.data:
                return [], program.bind_regularizer(given)
            oracle = program.bind_records(arrays, *GROUPED, given, prox=True)
        except StratError:
            continue
        if random_points(program, oracle, rng, 3) is not None:
            return arrays, oracle
    return None, None


def random_points(program, oracle, rng, K):
    """Points (K, n) at which the oracle is finite, or None."""
    theta, found = np.zeros((K, program.layout.n)), np.zeros(K, dtype=bool)
    names = [v.name() for v in program.variables]
    for drawn in _draws(program.variables, rng, K):
        packed = program.layout.pack(dict(zip(names, drawn, strict=True)))
        # Away from the boundary of the domain, where differences have no meaning.
        near = [np.isfinite(oracle.value(packed + shift)) for shift in (0.0, -1e-3, 1e-3)]
        fine = ~found & np.all(near, axis=0)
        theta[fine] = packed[fine]
        found |= fine
        if found.all():
            return theta
    return None


def _draws(leaves, rng, count):
    """Values (count, *shape) of each leaf: of one kind for all first, then of kinds at random."""
    names = list(KINDS)
    for i in range(len(names) + TRIES * (len(leaves) > 1)):
        kinds = rng.choice(names, len(leaves)) if i >= len(names) else [names[i]] * len(leaves)
        values = [KINDS[kind](rng, (count, *leaf.shape)) for leaf, kind in zip(leaves, kinds, strict=True)]
        yield [np.stack([_inside(x, v) for v in value]) for x, value in zip(leaves, values, strict=True)]


def _inside(leaf, value):
    """A value with the leaf's attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # CVXPY's about sparse values, which it makes itself
        value = leaf.project(value)
    value = value.toarray() if sp.issparse(value) else value  # of diagonal matrices
    return np.asarray(value, dtype=float).reshape(leaf.shape)


def _semidefinite(rng, shape):
    """Semidefinite where the shape is that of square matrices, else positive."""
    if len(shape) < 3 or shape[-1] != shape[-2]:
        return rng.uniform(0.2, 2, size=shape)
    root = rng.normal(size=shape)
    return root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(shape[-1])
