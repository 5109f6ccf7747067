"""Gradient of a held-out loss in every edge weight: against CVXPY with diffcp, and against a fit.

Prints, for least squares and logistic losses on sparse graphs (K = 10, 50, 100) and a complete one (K = 50), CPU seconds
of CVXPY's first and second solve with its backward pass, of ``strat.hypergradient`` (from an existing fit, its binding
and polishing included), their ratios, and the largest difference of both gradients on edges of positive weight, relative
to the largest entry. Then, for a logistic model on a grid of 1000 strata, the time of one hypergradient in units of a
warm fit. "error" is that of ours against central differences of polished solves on a few edges.

Arguments: the largest K compared with CVXPY (100 by default); complete graphs take CVXPY minutes.
"""

import sys
import time
import warnings

import cvxpy as cp
import numpy as np

import strat
from strat.differentiated_problem import DifferentiatedProblem
from strat.fitted import Fitted
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


def compare(loss, name, graph):
    """One row of the table."""
    model, validation = model_of(loss, graph)
    (_, gradient), ours = timed(lambda: strat.hypergradient(model, validation), 5)
    problem, build = timed(lambda: DifferentiatedProblem(model))
    held = Fitted(model, "the benchmark").held_out(validation)

    def theirs():
        theta = problem.solve()
        return problem.backward(held.mean_loss_and_gradient(theta)[1])[0]

    _, first = timed(theirs)
    edges, warm = timed(theirs)
    G = gradient["W0"]
    gap = np.abs(G[problem.i, problem.j] - edges).max() / np.abs(G).max()
    print(
        f"{loss:14} {name:18} {len(problem.i):6} {build + first:9.2f} {warm:9.2f} {1e3 * ours:9.1f} "
        f"{(build + first) / ours:9.0f} {warm / ours:9.0f} {gap:9.1e} {error(model, validation, G):9.1e}",
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
        f"{'loss':14} {'graph':18} {'edges':>6} {'first s':>9} {'warm s':>9} {'ours ms':>9} {'x first':>9} {'x warm':>9} "
        f"{'gap':>9} {'error':>9}"
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
