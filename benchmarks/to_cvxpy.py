"""Time of `to_cvxpy` and of CVXPY's compilation, against the same with the losses of all records written one by one.

Run: python benchmarks/to_cvxpy.py
"""

import time
import warnings
from unittest.mock import patch

import cvxpy as cp
import numpy as np

import strat

theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
r = y - x @ theta - b
LOSSES = {
    "square": cp.square(r),
    "expectile": 0.8 * cp.square(cp.pos(r)) + 0.2 * cp.square(cp.neg(r)),
    "logistic": cp.logistic(-y * (x @ theta + b)),
    "pinball": strat.losses.pinball(y, x @ theta + b, 0.9),
}


def compiled(model):
    """CPU seconds until the data for Clarabel are there, and the objective at the parameters of the fit."""
    start = time.process_time()
    problem = model.to_cvxpy()
    problem.get_problem_data(cp.CLARABEL)
    seconds = time.process_time() - start
    for v in problem.variables():
        name, _, label = v.name().rstrip("]").partition("[")
        v.save_value(model.at(int(label))[name])
    return seconds, float(problem.objective.value)


def main():
    """Print one row for each loss and number of records."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    print("loss        records   one vector, s   one by one, s   ratio   difference of the objectives")
    for name, loss in LOSSES.items():
        for N in (200, 1000):
            X, Y = rng.standard_normal((N, 3)), np.sign(rng.standard_normal(N))
            model = strat.lrsm(strat.BaseModel(loss, data=(x, y)), strat.graphs.cycle(range(12)))
            model.fit(X, Y, strata=np.arange(N) % 12)
            seconds, value = compiled(model)
            with patch("strat.model.fitted.stacked", return_value=None):
                alone, expected = compiled(model)
            row = f"{name:12}{N:7}{seconds:16.3f}{alone:16.2f}{alone / seconds:8.1f}"
            print(f"{row}{abs(value - expected) / abs(expected):15.0e}", flush=True)


if __name__ == "__main__":
    main()
