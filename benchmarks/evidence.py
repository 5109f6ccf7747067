"""Evidence with its gradient: the time of one evaluation, against a cold fit and against the gradient by differences.

Run ``python benchmarks/evidence.py``: logistic models of 8 features and a free intercept on grids, 13 records per stratum,
CPU seconds. The differences are of the same evaluations, two for each weight of the table, so that the ratio is a count of
these. The maximisation is first over products of a number for each axis and one for each coefficient, then over tables.
"""

import time

import cvxpy as cp
import numpy as np

import strat
from strat.graphs.prior_graph import read_graph
from strat.oracles.clock import Clock
from strat.records.sample import Sample
from strat.selection.tuning.by_evidence import PRODUCT, TABLE, maximised
from strat.selection.tuning.evidence import Evidence


def seconds(f, times=3):
    """Return the median CPU time of some calls, and the last result."""
    found = []
    for _ in range(times):
        started = time.process_time()
        result = f()
        found.append(time.process_time() - started)
    return float(np.median(found)), result


def problem(side):
    """Return a model and records on a side × side grid."""
    theta, b = cp.Variable(8, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(8, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-y * (x @ theta + b)), 0.1 * cp.sum_squares(theta), data=(x, y))
    graph = strat.graphs.grid(side, side, name=("row", "column"))
    rng = np.random.default_rng(0)
    z = [node for node in graph for _ in range(13)]
    X = rng.normal(size=(len(z), 8))
    margin = X @ rng.normal(size=8) / 2 + np.array([0.3 * row for row, _ in z]) - 0.15 * side
    return strat.lrsm(base, graph), (X, np.where(margin + rng.logistic(size=len(z)) > 0, 1.0, -1.0), z)


def line(side):
    """Return the line of one size."""
    model, (X, y, z) = problem(side)
    fit, _ = seconds(lambda: model.fit(X, y, strata=z))
    part = Sample([model], (X, y, z), "train").part()
    evidence = Evidence(model, read_graph(model.graph), part)
    near, h, x = 0.01 * np.random.default_rng(1).normal(size=evidence.shape), 1e-4, np.zeros(evidence.shape)
    _, gradient = evidence(x)
    units = np.eye(x.size).reshape(-1, *x.shape)
    one, _ = seconds(lambda: evidence(x + near))

    def differences():
        return np.array([(evidence(x + h * d)[0] - evidence(x - h * d)[0]) / (2 * h) for d in units])

    many, found = seconds(differences, times=1)
    error = np.abs(gradient.ravel() - found).max() / np.abs(gradient).max()

    def whole(*ways):
        evidence.theta = None
        return seconds(lambda: list(maximised(evidence, ways, 2, Clock(None))), times=1)[0]

    product, both = whole(PRODUCT), whole(PRODUCT, TABLE)
    return f"{side**2:6d} {fit:10.3f} {one:13.3f} {many:16.3f} {many / one:9.1f} {product:10.2f} {both:11.2f} {error:9.0e}"


def main():
    """Print a line for each size."""
    print("strata   cold fit   evaluation   by differences   ratio   products   and tables   error")
    for side in (5, 10, 16):
        print(line(side), flush=True)


if __name__ == "__main__":
    main()
