"""Graph steps against CVXPY with Clarabel, and against graph-structure-learning where it is installed: CPU time, objectives.

CVXPY gets one variable an edge and sparse sums, its fastest form; its time is that of `solve()`, canonicalization
included. Ours is that of the step alone, from given distances, and of `learn_graph`, with its certificate. The objective is
how far ours is above CVXPY's, relative, with tolerances of 1e-9 for Clarabel. LogDet has no such form: it is compared at a
smaller K.
PyGSP in Python has no function for these problems; graph-structure-learning ports that of the GSP toolbox.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/graph_steps.py
"""

import time
import warnings

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

import strat
from strat.problem.edges import AllPairs

REPEATS = 15
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)


def parameters(K, n=10, seed=0):
    """K/25 groups of strata with similar parameters."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(K // 25, 2), n))
    return centres[rng.integers(len(centres), size=K)] + 0.1 * rng.standard_normal((K, n))


def cpu(function, repeats=1):
    """Least CPU seconds of a call, and what it returns."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def condensed(h, theta):
    """The graph step in CVXPY, in one variable an edge."""
    K, c = len(theta), pdist(theta, "sqeuclidean") / 2
    i, j = np.triu_indices(K, 1)
    edge = np.arange(c.size)
    ends = sp.csr_array((np.ones(2 * c.size), (np.r_[i, j], np.r_[edge, edge])), shape=(K, c.size))
    w = cp.Variable(c.size, nonneg=True)
    if isinstance(h, strat.LogDiagonal):
        return cp.Problem(
            cp.Minimize(c @ w - h.lambda1 * cp.sum(cp.log(ends @ w)) + h.lambda2 * cp.sum_squares(w))
        )
    if isinstance(h, strat.TraceConstraint):
        squares = cp.sum_squares(ends @ w) + 2 * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(c @ w + h.lambda2 / 2 * squares), [2 * cp.sum(w) == h.lambda1])
    return cp.Problem(cp.Minimize(c @ w + h.sigma**2 * cp.sum(-cp.entr(w) - w)))


def semidefinite(h, theta):
    """The graph step of LogDet in CVXPY."""
    K, d = len(theta), (theta[:, None] - theta[None]) ** 2
    W = cp.Variable((K, K), symmetric=True)
    return cp.Problem(
        cp.Minimize(h.expression(W) + cp.sum(cp.multiply(d.sum(axis=2), W)) / 4), h.constraints(W)
    )


def row(h, theta, problem):
    """One line: the graph step alone, learn_graph, CVXPY, the ratios, and how far the objectives are apart."""
    edges = AllPairs(len(theta))
    half, graph_oracle = (
        pdist(theta, "sqeuclidean") / 2,
        h._oracle_class(h, edges, edges.zeros()),
    )
    exact = hasattr(graph_oracle, "minimize")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, graph = cpu(lambda: strat.learn_graph(theta, h), REPEATS)
        step = cpu(lambda: graph_oracle.minimize(half), REPEATS)[0] if exact else whole
        theirs, best = cpu(lambda: problem.solve(cp.CLARABEL, **TIGHT))
    apart = (graph.objective - best) / (1 + abs(best))
    name = (
        f"{type(h).__name__:16s} {len(theta):5d} {1e3 * step:9.2f} {1e3 * whole:14.2f} {1e3 * theirs:10.0f}"
    )
    print(
        f"{name} {theirs / step:9.0f}x {theirs / whole:12.0f}x {apart:+12.1e} {graph.residual:10.1e}",
        flush=True,
    )


def against_graph_structure_learning(K, lambda1, lambda2):
    """The primal-dual method of Kalofolias at its default and at a tighter tolerance, for LogDiagonal."""
    try:
        from graph_learn.smooth_learning import gsp_learn_graph_log_degrees
    except ImportError:
        print("graph-structure-learning is not installed: pip install graph-structure-learning")
        return
    theta, h = parameters(K), strat.LogDiagonal(lambda1, lambda2)
    ours, graph = cpu(lambda: strat.learn_graph(theta, h), REPEATS)
    z = pdist(theta, "sqeuclidean")
    for tol, most in ((1e-5, 1000), (1e-9, 10000)):
        seconds, W = cpu(
            lambda tol=tol, most=most: gsp_learn_graph_log_degrees(
                z, 4 * lambda1, 4 * lambda2, maxit=most, tol=tol, edge_tol=0.0
            )
        )
        L = np.diag(W.sum(axis=1)) - W
        value = 0.5 * np.trace(theta.T @ L @ theta) + float(h.expression(W).value)
        apart = (value - graph.objective) / (1 + abs(graph.objective))
        name = f"graph-structure-learning, tol {tol:.0e}, K = {K}"
        print(
            f"{name}: {1e3 * seconds:.0f} ms, {seconds / ours:.0f}x ours, objective {apart:+.1e} above ours",
            flush=True,
        )


def main():
    """Print one row per regularizer and K."""
    print(
        "h                    K   step ms   learn_graph ms   CVXPY ms    ratios: step  learn_graph  objective  residual"
    )
    for K in (100, 300):
        theta = parameters(K)
        for h in (
            strat.LogDiagonal(1.0, 0.1),
            strat.LogDiagonal(5.0, 2e-3),
            strat.TraceConstraint(50.0, 0.1),
            strat.TraceConstraint(500.0, 1.0),
            strat.Entropy(1.0),
        ):
            row(h, theta, condensed(h, theta))
    theta = parameters(30)
    h = strat.LogDet(1.0, 0.3, 0.1, 0.2)
    row(h, theta, semidefinite(h, theta))
    for K in (100, 300):
        against_graph_structure_learning(K, 1.0, 0.1)


if __name__ == "__main__":
    main()
