"""Does tuning find the true graph? A grid of 10 x 10 strata with 4 true regions, 6 records per stratum, all weights 1.

Least squares and logistic loss with a ridge, the grid (180 edges) and the complete graph (4950), validation sets as large as
the training set, 200 test records per stratum. For each seed, all models fitted to the training set alone: the test loss of the
start, of the best uniform scale and of the true graph (edges within regions) at its best scale, both chosen on the validation
set, and of the graph that ``strat.tune`` finds; how much of the gap between the last two it closes; the start's loss
again where the guard kept it. Ends with means, the lowest share of the gap and the largest loss relative to the start.

    python benchmarks/recovery.py [squares|logistic] [grid|complete] [seeds]
"""

import sys
from time import process_time

import cvxpy as cp
import networkx as nx
import numpy as np

import strat

SIDE, N, RECORDS, TEST = 10, 9, 6, 200
NODES = [(a, b) for a in range(SIDE) for b in range(SIDE)]
SCALES = np.geomspace(1e-3, 1e3, 25)


def declaration(kind):
    """Loss with a small ridge."""
    theta, x, y = cp.Variable(N, name="theta"), cp.Parameter(N, name="x"), cp.Parameter(name="y")
    loss = cp.square(y - x @ theta) if kind == "squares" else cp.logistic(-cp.multiply(y, x @ theta))
    return strat.BaseModel(loss, 0.1 * cp.sum_squares(theta), data=(x, y))


def region(node):
    """The quadrant of a stratum."""
    return 2 * (node[0] >= SIDE // 2) + (node[1] >= SIDE // 2)


def records(kind, theta, count, rng):
    """(X, y, strata), `count` records per stratum."""
    z = [node for node in NODES for _ in range(count)]
    X = rng.normal(size=(len(z), N))
    u = np.einsum("ij,ij->i", X, theta[[region(node) for node in z]])
    if kind == "squares":
        return X, u + 0.75 * rng.normal(size=len(z)), z
    return X, np.where(rng.random(len(z)) < 1 / (1 + np.exp(-u)), 1.0, -1.0), z


def graphs(kind):
    """The start, all weights 1, and its edges within regions."""
    start = nx.Graph()
    start.add_nodes_from(NODES)
    edges = nx.grid_2d_graph(SIDE, SIDE).edges if kind == "grid" else nx.complete_graph(NODES).edges
    start.add_edges_from(edges, weight=1.0)
    true = start.copy()
    true.remove_edges_from([(u, v) for u, v in edges if region(u) != region(v)])
    return start, true


def best_scale(base, graph, train, validation, test):
    """Test loss at the scale with the lowest validation loss."""
    found = []
    for scale in SCALES:
        model = strat.lrsm(base, graph, scale=scale).fit(*train[:2], strata=train[2])
        found.append((-model.score(*validation[:2], strata=validation[2]), model))
    return loss(min(found, key=lambda pair: pair[0])[1], test)


def loss(model, test):
    """Mean test loss."""
    return -model.score(*test[:2], strata=test[2])


def main(kind="squares", shape="grid", seeds="5"):
    """Print one line a seed, and their summary."""
    base, (start, true), rows = declaration(kind), graphs(shape), []
    print(f"{kind}, {shape} ({start.number_of_edges()} edges)")
    for seed in range(int(seeds)):
        rng = np.random.default_rng(seed)
        theta = rng.normal(size=(4, N))
        train, validation, test = (records(kind, theta, count, rng) for count in (RECORDS, RECORDS, TEST))
        first = loss(strat.lrsm(base, start).fit(*train[:2], strata=train[2]), test)
        uniform, ideal = (best_scale(base, graph, train, validation, test) for graph in (start, true))
        begun = process_time()
        tuned = strat.tune(strat.lrsm(base, start), train, validation, wrt=["W0"])
        seconds = process_time() - begun
        now = loss(strat.lrsm(base, tuned.W0).fit(*train[:2], strata=train[2]), test)
        share = (uniform - now) / (uniform - ideal)
        rows.append((share, now / first))
        print(
            f"seed {seed}  start {first:.4f}  uniform {uniform:.4f}  true {ideal:.4f}  tuned {now:.4f}  closes {share:.1%}"
            f"  of the start {now / first:.3f}  gain {tuned.gain:.3f} ± {tuned.gain_se:.3f} ({tuned.choice})"
            f"  {seconds:.1f} CPU s",
            flush=True,
        )
    shares, ratios = zip(*rows, strict=True)
    print(
        f"closes {np.mean(shares):.1%} of the gap on average, {min(shares):.1%} at least; at most {max(ratios):.4f} times "
        f"the start's loss"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
