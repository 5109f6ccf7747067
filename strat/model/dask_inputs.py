"""Predictions and losses of Dask collections, partition by partition."""

import copy
from functools import partial

import numpy as np

from strat.oracles.dask_engine import of_shards


def by_partition(model, method, parameters, shape, data, strata):
    """``model.method`` of Dask collections as a dask.array of shape (N, *shape); None where the arguments are none."""
    parts = _parts(partial(_called, method), model, parameters, data, strata)
    if parts is None:
        return None
    from dask import array

    return array.concatenate([array.from_delayed(part, (np.nan, *shape), float) for part in parts])


def score(model, parameters, data, strata, weight):
    """Minus the mean loss of Dask collections; None where the arguments are none."""
    parts = _parts(_sums, model, parameters, data, strata, weight)
    if parts is None:
        return None
    from dask import compute

    total, weights = np.sum(compute(*parts), axis=0)
    return -float(total / weights)


def _parts(function, model, parameters, data, strata, weight=None):
    """``function(model, arguments, number of data arguments)`` of each partition, to be computed later."""
    parts = of_shards(data, strata, weight)
    if parts is None:
        return None
    from dask import delayed

    light = copy.copy(model)
    light._training = None  # the records of its fit stay here
    call, light = delayed(function), delayed(light)
    return [call(light, part, len(parameters)) for part in parts]


def _called(method, model, part, count):
    return getattr(model, method)(*part[:count], strata=part[count])


def _sums(model, part, count):
    losses, weight = _called("losses", model, part, count), part[count + 1]
    weight = np.ones(len(losses)) if weight is None else np.asarray(weight, dtype=float)
    return float(losses[weight > 0] @ weight[weight > 0]), float(weight.sum())
