"""Time of a complete joint iteration against its LAPACK floor of 2 potrf + 1 potri, with one BLAS thread.

With the compiled loops, where there are any, and with NumPy alone.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/joint_iteration.py
"""

import time
from unittest.mock import patch

import cvxpy as cp
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from threadpoolctl import threadpool_limits

import strat
from strat.oracles import kernels
from strat.problem.edges import AllPairs, DenseFactor
from strat.problem.joint_problem import JointProblem
from strat.records.strata import Strata


def synthetic(K, n=10, seed=0):
    """K/25 clusters of parameters, 13 records per stratum on average (as in the wine data), logistic loss, l1."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(K // 25, 2), n))
    truth = centres[rng.integers(len(centres), size=K)] + 0.1 * rng.standard_normal((K, n))
    z = np.repeat(np.arange(K), rng.geometric(1 / 14, size=K) - 1)
    X = rng.standard_normal((z.size, n))
    Y = np.where(rng.random(z.size) < 1 / (1 + np.exp(-np.einsum("ij,ij->i", X, truth[z]))), 1.0, -1.0)
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-y * (x @ theta)), 0.1 * cp.norm1(theta), data=(x, y))
    loss = base.loss_program.bind_records([X, Y], Strata(list(range(K)), z), np.ones(z.size))
    edges = AllPairs(K)
    return JointProblem(
        loss,
        base.regularizer_program.bind_regularizer(),
        strat.LogDet(5.0, 0.3, 0.1, 0.2),
        edges,
        edges.zeros(),
    )


class Floor:
    """CPU time of 2 potrf + 1 potri, taken between iterations so that both meet the same caches."""

    def __init__(self, K):
        A = np.random.default_rng(0).standard_normal((K, K))
        self.matrix = np.asfortranarray(A @ A.T + K * np.eye(K))
        self.work, self.seconds = [self.matrix.copy(order="F") for _ in range(2)], []

    def measure(self):
        for a in self.work:
            np.copyto(a, self.matrix)
        start = time.process_time()
        for a in self.work:
            dpotrf(a, lower=1, clean=0, overwrite_a=1)
        dpotri(self.work[0], lower=1, overwrite_c=1)
        self.seconds.append(time.process_time() - start)


def iterations(K, most, repeats):
    """Mean CPU seconds of an iteration of the default solver and of its floor, and the work of an iteration.

    All repeats make the same iterates. The least time that each iteration took is its cost without the disturbance by
    other work on the machine; the mean over the iterations holds the rare costly ones too.
    """
    problem = synthetic(K)
    runs = [one_run(problem, most) for _ in range(repeats)]
    seconds, floor = (np.mean(np.min([run[i] for run in runs], axis=0)) for i in range(2))
    return seconds, floor, *runs[0][2:]


def one_run(problem, most):
    """CPU seconds of each iteration and of each floor, potrf and potri an iteration, and the number of iterations."""
    floor = Floor(problem.K)
    algorithm = strat.MAPG()._algorithm(problem, np.zeros((problem.K, problem.n)), problem.w0)
    for _ in range(5):
        algorithm.step()
    before, seconds = algorithm.factorizations, []
    with patch.object(DenseFactor, "inverse", autospec=True, side_effect=DenseFactor.inverse) as invert:
        for _ in range(most):
            start = time.process_time()
            algorithm.step()
            residual = algorithm.residual(1e-6)
            seconds.append(time.process_time() - start)
            floor.measure()
            if residual is not None and max(residual.values()) <= 1e-6:
                break
    done = len(seconds)
    work = (algorithm.factorizations - before) / done, invert.call_count / done
    return seconds, floor.seconds, *work, done


def main():
    """Print one row per K and kind of loops."""
    print("   loops     K   floor ms   iteration ms   ratio   potrf   potri   iterations")
    kinds = ({"compiled": kernels.compiled} if kernels.compiled else {}) | {"NumPy": None}
    with threadpool_limits(1, user_api="blas"):
        for K, most, repeats in ((100, 300, 15), (300, 100, 5), (1000, 40, 2)):
            for name, kernels.compiled in kinds.items():
                seconds, floor, potrf, potri, done = iterations(K, most, repeats)
                row = f"{name:>8} {K:5d} {1e3 * floor:10.3f} {1e3 * seconds:14.3f} {seconds / floor:7.2f}"
                print(f"{row} {potrf:7.2f} {potri:7.2f} {done:12d}", flush=True)


if __name__ == "__main__":
    main()
