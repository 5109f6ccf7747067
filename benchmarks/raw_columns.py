"""Fits of compositions of elementwise atoms on raw and on standardised columns, with and without blocks of the Hessian.

Run: python benchmarks/raw_columns.py
"""

import time
import warnings
from unittest.mock import patch

import cvxpy as cp
import numpy as np

import strat
from strat.oracles.tape import BoundNode

theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
u = x @ theta + b
LOSSES = {
    "squared hinge": strat.losses.squared_hinge(y, u),
    "expectile": 0.9 * cp.square(cp.pos(y - u)) + 0.1 * cp.square(cp.neg(y - u)),
    "insensitive": cp.square(cp.pos(cp.abs(y - u) - 0.3)),
}


def fitted(loss, X, Y, z):
    """CPU seconds and iterations of a fit, of at most 40 Newton steps."""
    solver = strat.NewtonCG(max_iter=40)
    model = strat.lrsm(strat.BaseModel(loss, data=(x, y)), strat.graphs.path(36), solver=solver)
    start = time.process_time()
    with warnings.catch_warnings(action="ignore", category=strat.ConvergenceWarning):
        result = model.fit(X, Y, strata=z).result_
    return time.process_time() - start, result


def main():
    """Print one row for each loss and kind of columns."""
    rng = np.random.default_rng(2)
    z = rng.choice(36, 3000, p=rng.dirichlet(np.full(36, 0.4)))
    raw = np.column_stack(
        [rng.normal(62, 11, 3000), rng.normal(27, 4, 3000), np.exp(rng.normal(4.4, 0.3, 3000))]
    )
    Y = np.where(rng.random(3000) < 1 / (1 + np.exp(-(raw[:, 0] - 62) / 11)), 1.0, -1.0)
    print("loss            columns         blocks, s         products alone, s          ratio")
    for name, loss in LOSSES.items():
        for kind, X in {"raw": raw, "standardised": (raw - raw.mean(axis=0)) / raw.std(axis=0)}.items():
            seconds, result = fitted(loss, X, Y, z)
            with patch.object(BoundNode, "chained", False):
                slow, other = fitted(loss, X, Y, z)
            row = f"{name:16}{kind:14}{seconds:6.2f}, {result.iterations} {result.status:12}"
            print(f"{row}{slow:9.2f}, {other.iterations} {other.status:12}{slow / seconds:6.1f}", flush=True)


if __name__ == "__main__":
    main()
