"""Gradient of a held-out loss in every edge weight: against CVXPY with diffcp, and against a fit.

Prints, for least squares and logistic losses on sparse graphs (K = 10, 50, 100) and a complete one (K = 50), CPU seconds
of CVXPY's first solve with its backward pass (compilation included) and of the second, of ``strat.hypergradient`` from an
existing fit (its binding included) and of the second on the bound problem (polishing and adjoint, as in a loop), and the
ratios of like with like. CVXPY's problem is stacked over records and edges, which compiles and solves faster than terms by
stratum; its tolerances are the defaults. "gap" is the largest difference of both gradients on the graph's edges relative to
the largest entry, "error" that of ours against central differences of polished solves on a few edges. Then, for a
logistic model on a grid of 1000 strata, the time of one hypergradient in units of a warm fit.

Arguments: the largest K compared with CVXPY (100 by default).
"""

import sys
import time
import warnings

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import strat
from strat.fitted import Fitted
from strat.hypergradient import through_the_fit
from strat.linearization import Linearization

n = 10


def model_of(loss, graph, per_stratum=10, seed=0):
    """A fitted model and its held-out records."""
    rng = np.random.default_rng(seed)
    nodes = list(graph)
    K = len(nodes)
    x, y, theta = cp.Parameter(n, name="x"), cp.Parameter(name="y"), cp.Variable(n, name="theta")
    f = cp.square(y - x @ theta) if loss == "least squares" else cp.logistic(-cp.multiply(y, x @ theta))
    base = strat.BaseModel(f, 0.1 * cp.sum_squares(theta), data=(x, y))
    true = rng.normal(size=n) + 0.5 * rng.normal(size=(K, n))

    def records():
        z = np.repeat(np.arange(K), per_stratum)
        X = rng.normal(size=(len(z), n))
        Y = (X * true[z]).sum(axis=1) + rng.normal(size=len(z))
        return X, Y if loss == "least squares" else np.sign(Y), [nodes[k] for k in z]

    X, Y, z = records()
    return strat.lrsm(base, graph).fit(X, Y, strata=z), records()


def timed(f, repeat=1):
    """Result and CPU seconds, the median of several calls."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        out = f()
        times.append(time.process_time() - start)
    return out, float(np.median(times))


def error(model, validation, G):
    """Largest error of G against central differences of polished solves on a few edges, relative to its largest entry."""
    fit = Fitted(model, "the benchmark")
    held, edges = fit.held_out(validation), fit.posed.edges
    i, j = edges.ends
    worst = 0.0
    for e in np.linspace(0, edges.count - 1, 5).astype(int):
        sides = []
        for h in (-1e-5, 1e-5):
            moved = fit.w.copy()
            moved[e] += h
            sides.append(held.mean_loss(Linearization(fit.problem(w=moved), fit.theta, moved).theta))
        worst = max(worst, abs((sides[1] - sides[0]) / 2e-5 - G[i[e], j[e]]))
    return worst / np.abs(G).max()


class Stacked:
    """The LRSM as a CVXPY problem stacked over records and edges, with the roots of the weights as its Parameter."""

    def __init__(self, model, loss):
        fit, strata = Fitted(model, "the benchmark"), model._training.strata
        (X, Y), K = model._training.arrays, len(model.strata_)
        self.i, self.j = fit.posed.edges.ends
        E, N, rows = len(self.i), len(X), np.arange(len(self.i))
        ends = (np.r_[rows, rows], np.r_[self.i, self.j])
        differences = sp.csr_array((np.repeat([1.0, -1.0], E), ends), shape=(E, K))
        chosen = sp.csr_array((np.ones(N), (np.arange(N), strata.index)), shape=(N, K))
        self.theta = cp.Variable((K, n))
        self.root = cp.Parameter((E, 1), nonneg=True, value=np.sqrt(fit.w)[:, None])
        u = cp.sum(cp.multiply(X, chosen @ self.theta), axis=1)
        f = cp.sum_squares(Y - u) if loss == "least squares" else cp.sum(cp.logistic(-cp.multiply(Y, u)))
        pulled = cp.multiply(self.root @ np.ones((1, n)), differences @ self.theta)
        objective = f + 0.1 * cp.sum_squares(self.theta) + 0.5 * cp.sum_squares(pulled)
        self.problem = cp.Problem(cp.Minimize(objective))

    def gradient(self, held):
        """Solve and differentiate."""
        self.problem.solve(requires_grad=True)
        self.theta.gradient = held.mean_loss_and_gradient(self.theta.value)[1]
        self.problem.backward()
        return (self.root.gradient / (2 * self.root.value)).ravel()


def compare(loss, name, graph):
    """One row of the table."""
    model, validation = model_of(loss, graph)
    (_, gradient), ours = timed(lambda: strat.hypergradient(model, validation), 7)
    fit = Fitted(model, "the benchmark")
    held = fit.held_out(validation)
    _, again = timed(lambda: through_the_fit(fit, held, fit.linearized(), ["W0"]), 7)
    problem, build = timed(lambda: Stacked(model, loss))
    _, first = timed(lambda: problem.gradient(held))
    edges, warm = timed(lambda: problem.gradient(held))
    G = gradient["W0"]
    gap = np.abs(G[problem.i, problem.j] - edges).max() / np.abs(G).max()
    print(
        f"{loss:14} {name:12} {len(problem.i):6} {build + first:9.2f} {warm:8.2f} {1e3 * ours:9.1f} {1e3 * again:9.1f} "
        f"{(build + first) / ours:9.0f} {warm / again:8.0f} {gap:9.1e} {error(model, validation, G):9.1e}",
        flush=True,
    )


def against_a_fit(loss, graph):
    """One hypergradient in units of a warm fit."""
    model, validation = model_of(loss, graph)
    X, Y, z = (*model._training.arrays, [model.strata_[k] for k in model._training.strata.index])
    model.warm_start = True
    _, fit = timed(lambda: model.fit(X, Y, strata=z), 5)
    (_, gradient), ours = timed(lambda: strat.hypergradient(model, validation, wrt="scale"), 5)
    _, every = timed(lambda: strat.hypergradient(model, validation), 5)
    print(
        f"{loss}, K = {len(model.strata_)} grid, {len(X)} records: warm fit {1e3 * fit:.0f} ms, hypergradient in the scale "
        f"{1e3 * ours:.0f} ms ({ours / fit:.2f} fits), in all {len(model.strata_)}² weights {1e3 * every:.0f} ms "
        f"({every / fit:.2f} fits)"
    )


def main():
    """Print the table."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    warnings.filterwarnings("ignore", module="cvxpy|diffcp")
    print(
        f"{'loss':14} {'graph':12} {'edges':>6} {'first s':>9} {'warm s':>8} {'ours ms':>9} {'bound ms':>9} "
        f"{'x first':>9} {'x warm':>8} {'gap':>9} {'error':>9}"
    )
    for loss in ("least squares", "logistic"):
        for rows, columns in ((2, 5), (5, 10), (10, 10)):
            if rows * columns <= largest:
                graph = strat.graphs.product(strat.graphs.path(rows), strat.graphs.path(columns))
                compare(loss, f"grid {rows} x {columns}", graph)
        if largest >= 50:
            compare(loss, "complete 50", strat.graphs.complete(50, weight=0.1))
    against_a_fit("logistic", strat.graphs.product(strat.graphs.path(25), strat.graphs.path(40)))


if __name__ == "__main__":
    main()
