"""Dask: the engine of a cluster, where records stay on the workers, parameters go out and sums come back; and collections."""

import copy
import warnings
from functools import partial
from itertools import repeat

import numpy as np

from strat.errors import OptionError, type_name
from strat.oracles.clock import Lost
from strat.oracles.shards import added

#: Results that one task adds, and how often a pass is tried where workers that held parameters are lost.
WIDTH, TRIES = 8, 5


def engine_of(engine):
    """The engine that a user's ``engine=`` means."""
    if hasattr(engine, "scheduler_info"):
        return DaskEngine(engine)
    if engine is None or (hasattr(engine, "map") and hasattr(engine, "start")):
        return engine
    raise OptionError(
        f"engine must be a dask.distributed.Client or have the methods map and start, but it is {type_name(engine)}."
    )


class DaskEngine:
    """Chunks as Dask's delayed objects or futures, computed and kept on the workers of a ``dask.distributed.Client``.

    If a worker is lost, the others make its shards again, which costs only time. If the scheduler is lost, a fit ends with
    its best iterate.
    """

    def __init__(self, client):
        self.client, self.placed = client, {}

    def _place(self, chunk):
        """The arguments of a numbered chunk: a future of them if they are delayed, else the value itself."""
        number, value = chunk
        if number not in self.placed:
            delayed = hasattr(value, "__dask_graph__")
            self.placed[number] = self.client.compute(value) if delayed else value
        return self.placed[number]

    def map(self, function, chunks):
        futures = [self.client.submit(_call, function, chunk[0], self._place(chunk)) for chunk in chunks]
        return self.client.gather(futures)

    def start(self, make, chunks, K):
        make = self.client.submit(copy.copy, make, pure=False)
        shards = [self.client.submit(_call, make, chunk[0], self._place(chunk)) for chunk in chunks()]
        self.placed = {}  # the scheduler knows how to make them again
        return DaskSum(self.client, shards, K)


class DaskSum:
    """Sums over shards that workers keep; the workers add the results of a few shards at a time, by a tree in their order."""

    def __init__(self, client, shards, K):
        self.client, self.shards, self.K = client, shards, K

    def sum(self, task, *arrays):
        from distributed import CancelledError, KilledWorker

        left = TRIES
        while True:
            try:
                return self._sum(task, arrays)
            except Exception as error:
                if self.client.status != "running":
                    raise Lost("the Dask scheduler is lost") from error
                left -= 1
                if not left or not isinstance(error, (CancelledError, KilledWorker)):
                    raise

    def _sum(self, task, arrays):
        submit = partial(self.client.submit, pure=False)
        # A task that returns the parameters, unlike data sent to workers, is run again if its worker is lost.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            sent = submit(copy.copy, arrays)
        sums = [submit(lambda shard, arrays: shard(task, *arrays), shard, sent) for shard in self.shards]
        while len(sums) > 1:
            groups = [sums[first : first + WIDTH] for first in range(0, len(sums), WIDTH)]
            sums = [submit(_added, group) for group in groups]
        return added([sums[0].result()], self.K)


def _call(function, number, chunk):
    return function((number, chunk))


def _added(results):
    """The sums over pairs of strata and arrays, as one such pair."""
    strata = np.unique(np.concatenate([own for own, _ in results]))
    placed = [(np.searchsorted(strata, own), parts) for own, parts in results]
    return strata, added(placed, len(strata))


def of_shards(data, strata, weight):
    """The partitions of Dask collections as delayed tuples, or None without collections; every partition gets column names."""
    given = [argument for argument in (*data, strata, weight) if hasattr(argument, "__dask_graph__")]
    if not given:
        return None
    from dask import delayed

    def parts(argument):
        if hasattr(argument, "rechunk") and argument.ndim > 1:
            argument = argument.rechunk(dict.fromkeys(range(1, argument.ndim), -1))
        # Arguments from one collection share their tasks only if they are not optimised separately.
        return np.ravel(argument.to_delayed(optimize_graph=False)).tolist()

    columns = [parts(a) if hasattr(a, "to_delayed") else repeat(a) for a in (*data, strata, weight)]
    counts = {len(column) for column in columns if isinstance(column, list)}
    if len(counts) > 1:
        raise OptionError(
            f"the Dask arguments have {' and '.join(map(str, sorted(counts)))} partitions; they must be of the same records: "
            f"take them from one collection, or repartition."
        )
    return [delayed(tuple)(list(part)) for part in zip(*columns, strict=False)]


def by_partition(model, method, parameters, shape, data, strata, unseen=None, weight=None):
    """``model.method`` of Dask collections as a dask.array of shape (N, *shape); None if no argument is a collection."""
    parts = of_shards(data, strata, weight)
    if parts is None:
        return None
    from dask import array, delayed

    if isinstance(unseen, str) and unseen == "common" and not model.shared:
        model._common_of()  # computed from the records of the fit, and cached
    light = copy.copy(model)
    light._training = None  # the records of the fit are not sent to workers
    call, light = delayed(_called), delayed(light)
    found = (call(light, method, part, len(parameters), shape, unseen) for part in parts)
    return array.concatenate([array.from_delayed(part, (np.nan, *shape), float) for part in found])


def _called(model, method, part, count, shape, unseen):
    *_, strata, weight = part
    if np.shape(part[0])[:1] == (0,):  # as after a filter
        return np.empty((0, *shape))
    options = {"sample_weight": weight, "unseen": unseen}
    options = {name: value for name, value in options.items() if value is not None}
    return getattr(model, method)(*part[:count], strata=strata, **options)
