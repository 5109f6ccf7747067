"""Standard errors: the strata's own blocks of the inverse, against a dense inverse and against solving for columns.

``python benchmarks/standard_errors.py`` prints processor seconds and their ratio to ours, all measured in this one run, and
the largest relative difference of the variances.
"""

import time

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

import strat
from strat.oracles.sparse_cholesky import inverse_entries

CASES = [("path", (300,), 10), ("grid", (10, 30), 10), ("grid", (20, 50), 5), ("grid", (40, 50), 2)]
CHUNK = 500  # right-hand sides at a time


def system(shape, n, rng):
    """The Hessian of a least-squares model on a path or grid."""
    graph = strat.graphs.path(*shape) if len(shape) == 1 else strat.graphs.grid(*shape)
    K = len(graph)
    X = rng.standard_normal((K, 2 * n, n))
    degrees = np.array([degree for _, degree in graph.degree()], dtype=float)
    place = {label: k for k, label in enumerate(graph)}
    i, j = np.array([(place[u], place[v]) for u, v in graph.edges]).T
    W = sp.csr_array((np.ones(2 * len(i)), (np.r_[i, j], np.r_[j, i])), shape=(K, K))
    A = sp.block_diag(list(X.transpose(0, 2, 1) @ X)) + sp.kron(sp.diags_array(degrees) - W, np.eye(n))
    return sp.csc_array(A)


def own(A):
    """Variances by selected inversion."""
    everything = np.arange(A.shape[0])
    return inverse_entries(A, everything, everything)[1]


def dense(A):
    """Variances by a dense inverse."""
    return np.diag(np.linalg.inv(A.toarray()))


def columns(A):
    """Variances by a sparse factorisation and one solve a column."""
    solve, M = splu(A, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve, A.shape[0]
    found = []
    for first in range(0, M, CHUNK):
        chunk = np.arange(first, min(first + CHUNK, M))
        unit = np.zeros((M, len(chunk)))
        unit[chunk, chunk - first] = 1.0
        found.append(solve(unit)[chunk, chunk - first])
    return np.concatenate(found)


def timed(method, A):
    """The variances and the processor seconds they took."""
    start = time.process_time()
    found = method(A)
    return found, time.process_time() - start


def main():
    """Print the table."""
    print(
        f"{'graph':16}{'numbers':>8}{'ours':>9}{'dense':>9}{'ratio':>7}{'columns':>9}{'ratio':>7}{'difference':>12}"
    )
    for name, shape, n in CASES:
        A = system(shape, n, np.random.default_rng(0))
        ours, seconds = timed(own, A)
        others = [timed(method, A) for method in (dense, columns)]
        difference = max(np.abs(found / ours - 1).max() for found, _ in others)
        cells = "".join(f"{t:9.2f}{t / seconds:7.1f}" for _, t in others)
        title = f"{name} {' x '.join(map(str, shape))}"
        print(f"{title:16}{A.shape[0]:8,}{seconds:9.3f}{cells}{difference:12.1e}")


if __name__ == "__main__":
    main()
