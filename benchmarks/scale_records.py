"""Many records: seconds, peak memory and ratios, one row a call.

    python benchmarks/scale_records.py ROW [--records N]

Rows: ``streamed`` (least squares and logistic from a memory map of float32), ``memory`` (logistic from float64 in memory),
``threads`` (Hessian and gradient by one thread and by two), ``ceiling`` (by one process and by two), ``dask`` (logistic on two
workers of a local cluster, with the sum of their work beside that of one process), ``driver`` (what parameters and sums cost on
their way) and ``imports``.
Records have 20 numbers and belong to 1,000 strata.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time, thread_time

import cvxpy as cp
import numpy as np

import strat

K, n, BLOCK = 1000, 20, 2**17


def declared(kind):
    """A base model with the loss of a kind."""
    theta, b = cp.Variable(n, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    margin = x @ theta + b
    loss = cp.square(y - margin) if kind == "least squares" else cp.logistic(-cp.multiply(y, margin))
    return strat.BaseModel(loss, 0.01 * cp.sum_squares(theta), data=(x, y), predict=margin)


def model_of(kind):
    """A model on a path of strata."""
    return strat.lrsm(declared(kind), strat.graphs.path(K, weight=20.0))


def blocks(N, kind, seed=0, ascending=False):
    """Blocks (X, y, z) of N random records; strata ascend over all of them where they are to."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n) / 4 + np.cumsum(rng.standard_normal((K, n)), axis=0) / 300
    for first in range(0, N, BLOCK):
        size = min(BLOCK, N - first)
        X = rng.standard_normal((size, n), dtype=np.float32)
        z = (first + np.arange(size)) * K // N if ascending else rng.integers(0, K, size)
        margin = np.vecdot(X, theta[z])
        noise = rng.standard_normal(size) if kind == "least squares" else rng.logistic(size=size)
        y = margin + noise
        yield X, (y if kind == "least squares" else np.sign(y)).astype(np.float32), z.astype(np.int32)


def filled(N, kind, make, **options):
    """Arrays that ``make(name, dtype, shape)`` gives, filled with records."""
    X, y, z = make("x", np.float32, (N, n)), make("y", np.float32, (N,)), make("z", np.int32, (N,))
    for i, block in enumerate(blocks(N, kind, **options)):
        for array, part in zip((X, y, z), block, strict=True):
            array[i * BLOCK : i * BLOCK + len(part)] = part
    return X, y, z


def fitted(model, data, name, size, **options):
    """Fit, and print seconds, peak memory of the process, and what the fit added to it, over the size of the data."""
    before, start, work = _peak(), perf_counter(), process_time()
    model.fit(*data, **options)
    seconds, work, peak = perf_counter() - start, process_time() - work, _peak()
    print(
        f"{name}: {seconds:.2f} s ({work:.2f} s of all cores), objective {model.result_.objective:.10g}, "
        f"{model.result_.iterations} iterations; peak {peak / 1e9:.2f} GB, of which the fit added "
        f"{(peak - before) / 1e9:.2f} GB; float64 records are {size / 1e9:.2f} GB"
    )
    return model


def streamed(N):
    """Fits from memory maps, written by another process: least squares in one pass, logistic in one for each point."""
    for kind in ("least squares", "logistic"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, __file__, "write", kind, folder, "--records", str(N)], check=True)
            X, y, z = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in "xyz")
            fitted(model_of(kind), (X, y), f"{kind}, N = {N:.0e}, float32 memory map", 8 * X.size, strata=z)


def write(N, kind, folder):
    """Write records of a kind to a folder."""

    def make(name, dtype, shape):
        return np.lib.format.open_memmap(Path(folder) / f"{name}.npy", "w+", dtype, shape)

    filled(N, kind, make)


def memory(N):
    """A logistic fit of float64 records in memory, sorted by stratum."""
    X, y, z = filled(N, "logistic", lambda _, dtype, shape: np.empty(shape, _double(dtype)), ascending=True)
    fitted(model_of("logistic"), (X, y), f"logistic, N = {N:.0e}, float64", X.nbytes, strata=z)


def threads(N):
    """Value and gradient, and Hessian blocks with them, by one thread and by two; the fastest of twenty."""
    from strat.oracles import shards

    loss, theta = _pieces(N), np.full((K, n + 1), 0.1)
    for name, curved in (("gradient", False), ("Hessian", True)):
        best, same = {1: np.inf, 2: np.inf}, []
        for _ in range(20):
            for count in best:
                shards.cores = lambda count=count: count
                start = perf_counter()
                same.append(loss.engine.sum(partial(shards.evaluate, curved=curved), theta))
                best[count] = min(best[count], perf_counter() - start)
        equal = all(np.array_equal(a, b) for sums in same for a, b in zip(sums, same[0], strict=True))
        print(
            f"logistic {name}, N = {N:.0e}: {best[1]:.3f} s by one thread, {best[2]:.3f} s by two, "
            f"{best[1] / best[2]:.2f} times as fast, {'the same' if equal else 'OTHER'} bits (load {os.getloadavg()[0]:.1f})"
        )


def ceiling(N):
    """The same by one process, and by two with half of the records each: what threads could reach; the fastest of ten."""
    spawn, best = get_context("spawn"), {}
    for count in (1, 2):
        barrier, times = spawn.Barrier(count), spawn.Queue()
        workers = [spawn.Process(target=_timed, args=(N // count, barrier, times)) for _ in range(count)]
        for worker in workers:
            worker.start()
        found = np.array([times.get() for _ in workers])  # (count, 2, rounds)
        for worker in workers:
            worker.join()
        best[count] = found.max(axis=0).min(axis=1)
    for name, one, two in zip(("gradient", "Hessian"), best[1], best[2], strict=True):
        text = f"logistic {name}, N = {N:.0e}: {one:.3f} s by one process, {two:.3f} s by two with half each"
        print(f"{text}, {one / two:.2f} times as fast (load {os.getloadavg()[0]:.1f})")


def _timed(N, barrier, times, rounds=10):
    """Put the seconds of gradients and of Hessians, both (rounds,), into a queue; all processes begin each one together."""
    from strat.oracles import shards

    shards.cores = lambda: 1
    loss, theta, found = _pieces(N), np.full((K, n + 1), 0.1), np.empty((2, rounds))
    for curved in (False, True):
        for i in range(-2, rounds):  # the first two are not counted
            barrier.wait()
            start = perf_counter()
            loss.engine.sum(partial(shards.evaluate, curved=curved), theta)
            found[int(curved), i] = perf_counter() - start
    times.put(found)


def _pieces(N):
    """A logistic loss in pieces that are kept."""
    from strat.compiler.sharded import in_pieces
    from strat.records.strata import Strata

    X, y, z = filled(N, "logistic", lambda _, dtype, shape: np.empty(shape, _double(dtype)), ascending=True)
    program, weight = declared("logistic").loss_program, np.broadcast_to(1.0, N)
    return in_pieces(program, [X, y], Strata(list(range(K)), z), weight, {}).parts[0]


def dask(N, shards=8):
    """A logistic fit on two workers, a second one in which a worker is killed, and the same in this process."""
    from dask import config, delayed
    from distributed import Client, LocalCluster

    def chunk(number):
        parts = list(blocks(N // shards, "logistic", seed=number))
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    start, serial = perf_counter(), process_time()
    sources = [partial(chunk, number) for number in range(shards)]
    alone = model_of("logistic").fit(chunks=sources, engine=_Here())
    wall, serial = perf_counter() - start, process_time() - serial
    print(f"logistic, N = {N:.0e}, in this process: {wall:.2f} s, {serial:.2f} s of work", flush=True)
    # Otherwise Dask's workers give every array's memory back to the system, and get it back page by page.
    config.set(
        {f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": 2**25 for name in ("TRIM", "MMAP")}
    )
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(declared, "logistic")  # so that modules are imported
        sources = [delayed(chunk)(number) for number in range(shards)]
        for what in ("two workers", "one of them killed"):
            pids, used = client.run(os.getpid), client.run(process_time)
            model = model_of("logistic")
            model.solver = strat.NewtonCG(
                callback=None if what == "two workers" else partial(_kill, min(pids.values()))
            )
            start, work = perf_counter(), thread_time()
            model.fit(chunks=sources, engine=client)
            seconds, work = perf_counter() - start, thread_time() - work
            now = client.run(process_time)
            workers = sum(now[worker] - used.get(worker, 0.0) for worker in now)
            difference = model.result_.objective / alone.result_.objective - 1
            print(
                f"{what}: {seconds:.2f} s, workers {workers:.2f} s ({workers / serial:.2f} of one process), driver "
                f"{work:.2f} s; the objective differs by {difference:.0e} from that of one process",
                flush=True,
            )


def driver(_):
    """Parameters out to two workers and sums back, without any work: what a byte costs."""
    from distributed import Client, LocalCluster

    from strat.oracles.dask_engine import DaskEngine

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for strata in (1000, 100_000):
            engine = DaskEngine(client).start(_Nothing(strata), lambda: ((i, (i,)) for i in range(2)), strata)
            theta = np.ones((strata, 50))
            seconds = []
            for _ in range(4):
                start, work = perf_counter(), process_time()
                (sums,) = engine.sum(_echo, theta)
                seconds.append((perf_counter() - start, process_time() - work))
            wall, work = min(seconds)
            print(
                f"{theta.nbytes / 1e6:.1f} MB of parameters to each of two workers and as much back: {wall:.3f} s, the driver "
                f"{work:.3f} s, {theta.nbytes * 2 / wall / 1e6:.0f} MB/s; sum {sums[0, 0]:g}"
            )


class _Here:
    """The engine that keeps the shards in this process."""

    def map(self, function, chunks):
        return [function(chunk) for chunk in chunks]

    def start(self, make, chunks, K):
        self.shards, self.K = [make(chunk) for chunk in chunks()], K
        return self

    def sum(self, task, *arrays):
        from strat.oracles.shards import added

        return added((shard(task, *arrays) for shard in self.shards), self.K)


class _Nothing:
    """Makes shards of all strata and no records."""

    def __init__(self, strata):
        self.strata = strata

    def __call__(self, chunk):
        from strat.oracles.shards import Shard

        return Shard(np.arange(self.strata), None, None)


def _echo(shard, theta):
    return (theta,)


def _kill(pid, state):
    if state.iteration == 2:
        os.kill(pid, signal.SIGKILL)


def imports(_):
    """Seconds of ``import strat`` beyond those of ``import cvxpy``, and of a first model; the fastest of three."""
    code = (
        "from time import perf_counter as t; a = t(); import cvxpy; b = t(); import strat; c = t(); strat.lrsm; "
        "print(b - a, c - b, t() - c)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        for _ in range(3)
    ]
    cvxpy, own, first = np.min([[float(part) for part in run.stdout.split()] for run in runs], axis=0)
    print(f"import cvxpy {cvxpy:.2f} s, import strat {own:.3f} s more, its first model {first:.2f} s more")


def _double(dtype):
    return float if dtype == np.float32 else dtype


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


ROWS = {
    "streamed": streamed,
    "memory": memory,
    "threads": threads,
    "ceiling": ceiling,
    "dask": dask,
    "driver": driver,
    "imports": imports,
    "write": write,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--records", type=float, default=1e6)
    given = parser.parse_args()
    ROWS[given.row](int(given.records), *given.rest)
