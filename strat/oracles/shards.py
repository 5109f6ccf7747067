"""A loss whose records lie in shards: in memory, on disk or on other machines.

    f_k(theta) = sum over shards s of f_sk(theta)

`Shards` is the loss oracle that a `JointProblem` takes. Only its engine knows where the chunks of records are, and how sums
over them are formed. An engine is an object with two methods:

* ``map(function, chunks)``: the results of ``function(chunk)``, in order;
* ``start(make, chunks, K)``: an object whose ``sum(task, *arrays)`` is the sum of ``make(chunk)(task, *arrays)`` over the
  chunks that the function ``chunks()`` returns, for arrays with a row for each of K strata. ``make(chunk)`` is a `Shard`, to
  be kept where the records are; a call returns its strata and a tuple of arrays with a row for each, and `added` sums such
  pairs. The sums must not depend on how the work is distributed, and are formed in the order of the shards.

`Local` is the engine of this process; `strat.oracles.dask_engine` has one for a cluster.
"""

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from weakref import ref

import numpy as np

from strat.errors import DataError
from strat.oracles.base import Oracle, Quadratic

BLOCKS = 2**24  # count of numbers in Hessian blocks up to which they are kept for products


class Shard:
    """Some records, as an oracle in the parameters of the strata, in ascending order, to which they belong."""

    def __init__(self, strata, oracle, counts):
        self.strata, self.oracle, self.counts = strata, oracle, counts

    def __call__(self, task, *arrays):
        """The strata, and ``task(self, *rows)`` for these strata's rows of the arrays (K, …)."""
        return self.strata, task(self, *(array[self.strata] for array in arrays)) if len(self.strata) else ()


def evaluate(shard, theta, curved=False):
    """Values (K,), counts of records (K,) and gradients (K, n), if they exist; if `curved`, also Hessian blocks (K, n, n)."""
    oracle = shard.oracle
    if not oracle.has("value_and_gradient"):
        return oracle.value(theta), shard.counts
    value, gradient = oracle.value_and_gradient(theta)
    return value, shard.counts, gradient, *([oracle.hessian(theta)] if curved else [])


def products(shard, theta, v):
    """The Hessian's product with v."""
    return (shard.oracle.hessian_operator(theta)(v),)


class Shards(Oracle):
    """A sum over shards, formed by an engine.

    One pass over the records gives value and gradient, and at the first point, and as long as a solver asks for them at every
    point, the Hessian's blocks as well; the sums at the last few points are kept. `engine` has a method ``sum``, and `like` is
    the oracle of some records, whose capabilities all shards have.
    """

    def __init__(self, engine, K, like):
        self.engine, self.K, self.n = engine, K, like.n
        self.quadratic, self.sizes, self._like = like.quadratic, like.sizes, like
        self._few, self._counts = K * self.n**2 <= BLOCKS, None
        self._points, self._curved = deque(maxlen=6 if self._few else 3), self._few and like.has("hessian")
        for name in ("value_and_gradient", "hessian_operator", "hessian"):
            if not like.has(name):
                setattr(self, name, None)

    def missing(self, name):
        if name in ("prox", "cones"):
            return "records in chunks or on a device are read by methods that follow gradients alone, as NewtonCG and MAPG do"
        return self._like.missing(name)

    def _at(self, theta, curved=False):
        for point, sums in self._points:
            if np.array_equal(point, theta) and (len(sums) == 4 or not curved):
                self._curved = self._curved or curved
                return sums
        # A solver that took the Hessian at the last point is expected to take it at the next.
        curved, self._curved = curved or self._curved, curved
        if curved and not self._few:
            self._points.clear()
        sums = self.engine.sum(partial(evaluate, curved=curved), theta)
        if sums is None:
            raise DataError("no chunk has a record of positive weight, so there is nothing to fit.")
        for array in sums if self._few else sums[:3]:
            array.flags.writeable = False
        self._counts = sums[1]
        self._points.appendleft((theta.copy(), sums))
        return sums

    def counts(self):
        """The number (K,) of each stratum's records."""
        if self._counts is None:
            self._at(np.zeros((self.K, self.n)))
        return self._counts

    def value(self, theta):
        return self._at(theta)[0].copy()

    def value_and_gradient(self, theta):
        """Values (K,) and gradients (K, n), which are read-only."""
        sums = self._at(theta)
        return sums[0].copy(), sums[2]

    def hessian(self, theta):
        """The Hessian's blocks (K, n, n), which are not kept where they are large."""
        blocks = self._at(theta, True)[3]
        if not self._few:
            self._points.clear()
        return blocks

    def hessian_operator(self, theta):
        """The Hessian as a map: by its blocks, or by a pass over the records for each product where they are too many."""
        if self.hessian is not None and self._few:
            blocks = self.hessian(theta)
            return lambda v: np.matmul(blocks, v[..., None])[..., 0]
        theta = theta.copy()
        return lambda v: self.engine.sum(products, theta, v)[0]

    def statistics(self, centre):
        """The sum of quadratics as one, from a single pass, for a centre (n,) near the minimisers."""
        centre = np.broadcast_to(centre, (self.K, self.n))
        value, _, gradient, blocks = self._at(centre, True)
        self._points.clear()
        self.engine = None  # the records are not needed any more
        return Quadratic(value, gradient, blocks, centre, self.sizes)


def cores():
    """The cores that this process may use: no more than OMP_NUM_THREADS, which joblib sets for its processes."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, max(int(given), 1)) if given.isdigit() else free


def in_order(function, items):
    """``function(item)`` of each item, in the order of the items, by as many threads as there are cores, this one included."""
    threads = cores()
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        results = deque()
        for item in items:
            if sum(not result.done() for result in results) < threads:
                results.append(pool.submit(function, item))
            else:
                results.append(Future())
                results[-1].set_result(function(item))
            while results and (results[0].done() or len(results) > 2 * threads):  # results must not pile up
                yield results.popleft().result()
        for result in results:
            yield result.result()


class Local:
    """The engine of this process, whose threads share the chunks."""

    map = staticmethod(in_order)

    def start(self, make, chunks, K):
        """The sum over ``make(chunk)`` for the chunks that a function `chunks` returns, made anew in each pass."""
        return LocalSum(lambda: (partial(make, chunk) for chunk in chunks()), K)


class LocalSum:
    """Sums over shards in this process, added in their order; ``shards()`` gives functions, each of which gives a `Shard`."""

    def __init__(self, shards, K):
        self.shards, self.K = shards, K
        self._memory, self._lent = np.zeros(0), lambda: None

    def sum(self, task, *arrays):
        return added(in_order(lambda make: make()(task, *arrays), self.shards()), self.K, self._zeros)

    def _zeros(self, shape):
        """Zeros; blocks reuse memory of earlier blocks that are no longer referenced: new memory costs as much as the sums."""
        if len(shape) < 3:
            return np.zeros(shape)
        if self._lent() is None and self._memory.shape == shape:
            self._memory.fill(0.0)
        else:
            self._memory = np.zeros(shape)
        out = np.asarray(memoryview(self._memory))  # the base of all views, which keep it alive
        self._lent = ref(out)
        return out


def added(results, K, zeros=np.zeros):
    """The sums over K strata of pairs (strata, arrays with a row for each)."""
    totals = None
    for strata, parts in results:
        if not len(strata):
            continue
        if totals is None:
            totals = tuple(zeros((K, *part.shape[1:])) for part in parts)
        for total, part in zip(totals, parts, strict=True):
            neighbours = strata[-1] - strata[0] + 1 == len(strata)
            total[slice(strata[0], strata[-1] + 1) if neighbours else strata] += part
    return totals
