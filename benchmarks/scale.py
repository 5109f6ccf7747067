"""Large problems, one row of ``docs/scale.md`` a subcommand: processor and wall-clock seconds, peak memory in GiB.

    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py joint-iteration     LogDet, nearest neighbours, K = 10 000, E = 30 000
    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py joint-fit           joint fit to 1e-5, grid, K = 100 000, n = 5
    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py geometric           given graph, K = 10 000, weights of 500 and 5
    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py million             given grid, K = 1 000 000, two losses
    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py complete            all pairs, one weight, K = 4 000, 8 000 000 edges

``all`` runs every row, and ``million`` each of its losses, in a process of its own. ``--K`` takes another number of strata,
for a quick look. System time is mostly that of pages of memory: a virtual machine may get each from its host.
"""

import argparse
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.spatial import cKDTree

import strat
from strat.graphs.prior_graph import read_graph
from strat.model.bound_model import BoundModel
from strat.problem.edges import EdgeList

RECORDS = 20  # a stratum


@contextmanager
def measured(what):
    """Print the seconds of a block, and the peak memory of the process so far."""
    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - wall
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    peak = after.ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
    print(
        f"{what:44} {user + system:7.2f} s CPU ({system:.2f} system) {wall:7.2f} s wall   peak {peak:.2f} GiB",
        flush=True,
    )


def graph_of(K, i, j, weight=1.0):
    """(labels, W) of edges (i, j) that have one weight."""
    ends = np.r_[i, j], np.r_[j, i]
    return list(range(K)), sp.csr_array((np.full(2 * len(i), weight), ends), shape=(K, K))


def grid(K, weight=1.0):
    """A square grid with about K nodes."""
    side = round(K**0.5)
    place = np.arange(side**2).reshape(side, side)
    i, j = (np.r_[a.ravel(), b.ravel()] for a, b in ((place[:, :-1], place[:-1]), (place[:, 1:], place[1:])))
    return graph_of(side**2, i, j, weight)


def geometric(K, weight, degree=10):
    """Points in the unit square, joined where they are near."""
    place, radius = np.random.default_rng(0).random((K, 2)), (degree / np.pi / K) ** 0.5
    return graph_of(K, *cKDTree(place).query_pairs(radius, output_type="ndarray").T, weight)


def neighbours(K, k=5):
    """Points in the unit square, joined where either is among the other's k nearest."""
    place = np.random.default_rng(0).random((K, 2))
    near = cKDTree(place).query(place, k + 1)[1][:, 1:]
    pairs = np.unique(np.sort(np.c_[np.repeat(np.arange(K), k), near.ravel()], axis=1), axis=0)
    return graph_of(K, *pairs.T)


def declared(loss, n):
    """A ridge model of least squares or logistic regression."""
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    one = cp.logistic(-y * (x @ theta)) if loss == "logistic" else cp.square(x @ theta - y)
    return strat.BaseModel(one, 0.05 * cp.sum_squares(theta), data=(x, y))


def records(loss, K, n):
    """Records of strata whose parameters change at 50 places."""
    rng = np.random.default_rng(0)
    truth, z = rng.standard_normal((50, n)), np.repeat(np.arange(K), RECORDS)
    X = rng.standard_normal((len(z), n))
    cuts = RECORDS * (np.arange(51) * K // 50)
    u = np.concatenate([X[a:b] @ t for a, b, t in zip(cuts[:-1], cuts[1:], truth, strict=True)])
    if loss == "logistic":
        return X, np.where(rng.random(len(z)) < 1 / (1 + np.exp(-u)), 1.0, -1.0), z
    return X, u + 0.5 * rng.standard_normal(len(z)), z


def joint(graph, loss, n, tol):
    """A joint model on the graph's own edges, and its records."""
    constants = {"lambda1": 1.0, "lambda2": 0.3, "eta": 0.1, "mu": 0.2}
    model = strat.joint(declared(loss, n), graph, edges="prior", solver=strat.MAPG(tol=tol), **constants)
    return model, records(loss, len(graph[0]), n)


def joint_iteration(K):
    """Iterations of the default solver; the log det and the inverse against dense ones at K = 1000."""
    K = K or 10_000
    model, (X, Y, z) = joint(neighbours(K), "least squares", 10, 1e-6)
    problem = BoundModel(model, (X, Y), z).problem()
    algorithm = model.solver._algorithm(problem, np.zeros((problem.K, problem.n)), problem.w0)
    for _ in range(3):
        algorithm.step()
    done, start = 20, time.process_time()
    for _ in range(done):
        algorithm.step()
        algorithm.residual(1e-6)
    each = (time.process_time() - start) / done
    print(f"K = {K:,}, E = {problem.edges.count:,}: {1e3 * each:.1f} ms CPU an iteration", flush=True)
    small = read_graph(neighbours(1000))
    edges = EdgeList(small.K, small.i, small.j)
    w = np.random.default_rng(0).random(edges.count)
    start = time.process_time()
    ours = edges.factor(w, edges.degrees(w) + 0.2)
    diagonal, entries = ours.inverse()
    sparse, start = time.process_time() - start, time.process_time()
    factor = dpotrf(np.diag(edges.degrees(w)) - edges.matrix(w) + 0.2 * np.eye(edges.K), lower=1)[0]
    S = dpotri(factor, lower=1)[0]
    dense = time.process_time() - start
    error = max(
        abs(ours.log_det - 2 * np.log(np.diag(factor)).sum()),
        abs(diagonal - np.diag(S)).max(),
        abs(entries - S[small.j, small.i]).max(),
    )
    print(
        f"K = 1,000: largest difference from LAPACK {error:.1e}; LAPACK takes {dense / sparse:.0f} times as long"
    )


def joint_fit(K):
    """A joint fit to a residual of 1e-5."""
    model, (X, Y, z) = joint(grid(K or 100_000), "least squares", 5, 1e-5)
    with measured(f"joint fit, grid, K = {len(model.graph[0]):,}, n = 5"):
        model.fit(X, Y, strata=z)
    print(model.result_)


def geometric_graph(K):
    """Logistic regression on a geometric graph, strongly and weakly coupled."""
    data = records("logistic", K or 10_000, 10)
    for weight in (500.0, 5.0):
        model = strat.lrsm(declared("logistic", 10), geometric(K or 10_000, weight))
        with measured(f"logistic, geometric graph, weights {weight:g}"):
            model.fit(*data[:2], strata=data[2])


def million(loss, K):
    """A given grid."""
    graph = grid(K or 1_000_000, 5.0)
    data, model = records(loss, len(graph[0]), 10), strat.lrsm(declared(loss, 10), graph)
    with measured(f"{loss}, grid, K = {len(graph[0]):,}, n = 10"):
        model.fit(*data[:2], strata=data[2])
    print(f"    {model.result_.iterations} iterations, {len(data[2]):,} records", flush=True)


def complete(K):
    """A complete graph with one weight, and the same graph once networkx has listed its edges."""
    K = K or 4000
    data, model = records("least squares", K, 10), strat.lrsm(declared("least squares", 10), None)
    with measured(f"complete graph, K = {K:,}"):
        model.graph = strat.graphs.complete(K)
    with measured("    least squares, n = 10"):
        model.fit(*data[:2], strata=data[2])
    with measured("    its edges are listed"):
        model.graph.number_of_edges()
    with measured("    least squares, n = 10"):
        model.fit(*data[:2], strata=data[2])


ROWS = {
    "complete": complete,
    "joint-iteration": joint_iteration,
    "joint-fit": joint_fit,
    "geometric": geometric_graph,
    "million-least-squares": partial(million, "least squares"),
    "million-logistic": partial(million, "logistic"),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", choices=[*ROWS, "million", "all"])
    parser.add_argument("--K", type=int)
    given = parser.parse_args()
    names = [name for name in ROWS if given.row == "all" or name.startswith(given.row)]
    if len(names) == 1:
        ROWS[names[0]](given.K)
    for name in names if len(names) > 1 else ():
        print(f"\n{name}", flush=True)
        size = [] if given.K is None else ["--K", str(given.K)]
        subprocess.run([sys.executable, __file__, name, *size], check=True)
