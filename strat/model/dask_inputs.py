"""Predictions and losses of Dask collections, partition by partition."""

import copy

import numpy as np

from strat.oracles.dask_engine import of_shards


def by_partition(model, method, parameters, shape, data, strata, weight=None):
    """``model.method`` of Dask collections as a dask.array of shape (N, *shape); None where the arguments are none."""
    parts = of_shards(data, strata, weight)
    if parts is None:
        return None
    from dask import array, delayed

    light = copy.copy(model)
    light._training = None  # the records of its fit stay here
    call, light = delayed(_called), delayed(light)
    found = (call(light, method, part, len(parameters)) for part in parts)
    return array.concatenate([array.from_delayed(part, (np.nan, *shape), float) for part in found])


def _called(model, method, part, count):
    *_, strata, weight = part
    weighted = {} if weight is None else {"sample_weight": weight}
    return getattr(model, method)(*part[:count], strata=strata, **weighted)
