"""Time of a complete joint iteration against its LAPACK floor of 2 potrf + 1 potri, with one BLAS thread.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/joint_iteration.py
"""

import sys
import time
from pathlib import Path

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from threadpoolctl import threadpool_limits

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]
from handmade import Logistic, Norm1  # noqa: E402

from strat.edges import AllPairs  # noqa: E402
from strat.graph_regularizers import LogDet  # noqa: E402
from strat.problem import JointProblem  # noqa: E402
from strat.solvers import MAPG  # noqa: E402


def synthetic(K, n=10, seed=0):
    """K/25 clusters of parameters, a geometric number of records per stratum (29 in the mean), logistic loss, l1."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(K // 25, 2), n))
    theta = centres[rng.integers(len(centres), size=K)] + 0.1 * rng.standard_normal((K, n))
    counts = rng.geometric(1 / 30, size=K) - 1
    stratum = np.repeat(np.arange(K), counts)
    X = rng.standard_normal((stratum.size, n))
    y = np.where(rng.random(stratum.size) < 1 / (1 + np.exp(-np.einsum("ij,ij->i", X, theta[stratum]))), 1.0, -1.0)
    edges = AllPairs(K)
    return JointProblem(Logistic(X, y, stratum, K), Norm1(0.1), LogDet(5.0, 0.3, 0.1, 0.2), edges, edges.zeros())


def floor(K, repeat):
    """Median CPU seconds of 2 potrf + 1 potri."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((K, K))
    A = np.asfortranarray(A @ A.T + K * np.eye(K))
    work, times = [A.copy(order="F") for _ in range(2)], []
    for _ in range(repeat):
        for a in work:
            np.copyto(a, A)
        start = time.process_time()
        for a in work:
            dpotrf(a, lower=1, clean=0, overwrite_a=1)
        dpotri(work[0], lower=1, overwrite_c=1)
        times.append(time.process_time() - start)
    return float(np.median(times))


def iterations(K, most):
    """Mean CPU seconds, potrf and potri of an iteration of the default solver, after a few to warm up."""
    problem = synthetic(K)
    algorithm = MAPG().algorithm(problem, np.zeros((problem.K, problem.n)), problem.w0)
    for _ in range(5):
        algorithm.step()
    work = algorithm.factorizations, algorithm.inversions
    start, done = time.process_time(), 0
    for _ in range(most):
        algorithm.step()
        done += 1
        residual = algorithm.residual(1e-6)
        if residual is not None and max(residual.values()) <= 1e-6:
            break
    seconds = (time.process_time() - start) / done
    return seconds, (algorithm.factorizations - work[0]) / done, (algorithm.inversions - work[1]) / done, done


def main():
    """Print one row per K."""
    print("    K   floor ms   iteration ms   ratio   potrf   potri   iterations")
    with threadpool_limits(1, user_api="blas"):
        for K, repeat, most in ((100, 301, 300), (300, 51, 100), (1000, 11, 40)):
            base = floor(K, repeat)
            seconds, potrf, potri, done = iterations(K, most)
            row = f"{K:5d} {1e3 * base:10.3f} {1e3 * seconds:14.3f} {seconds / base:7.2f}"
            print(f"{row} {potrf:7.2f} {potri:7.2f} {done:12d}", flush=True)


if __name__ == "__main__":
    main()
