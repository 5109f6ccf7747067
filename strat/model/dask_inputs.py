"""Predictions and losses of Dask collections, partition by partition."""

import copy

import numpy as np

from strat.oracles.dask_engine import of_shards


def by_partition(model, method, parameters, shape, data, strata):
    """``model.method`` of Dask collections as a dask.array of shape (N, *shape); None where the arguments are none."""
    parts = of_shards(data, strata, None)
    if parts is None:
        return None
    from dask import array, delayed

    call, light = delayed(_called), delayed(_light(model))
    of_parts = [call(light, method, part, len(parameters)) for part in parts]
    return array.concatenate([array.from_delayed(part, (np.nan, *shape), float) for part in of_parts])


def score(model, parameters, data, strata, weight):
    """Minus the mean loss of Dask collections; None where the arguments are none."""
    parts = of_shards(data, strata, weight)
    if parts is None:
        return None
    from dask import compute, delayed

    call, light = delayed(_sums), delayed(_light(model))
    sums = np.sum(compute(*(call(light, part, len(parameters)) for part in parts)), axis=0)
    return -float(sums[0] / sums[1])


def _light(model):
    """The model without the records of its fit."""
    light = copy.copy(model)
    light._training = None
    return light


def _called(model, method, part, count):
    return getattr(model, method)(*part[:count], strata=part[count])


def _sums(model, part, count):
    losses, weight = _called(model, "losses", part, count), part[count + 1]
    weight = np.ones(len(losses)) if weight is None else np.asarray(weight, dtype=float)
    return float(losses[weight > 0] @ weight[weight > 0]), float(weight.sum())
