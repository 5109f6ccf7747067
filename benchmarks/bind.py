"""Time and memory of binding 100,000 records of 20 numbers in 1,000 strata.

Prints, for a logistic and a least-squares loss, from an array and from a DataFrame (where pandas is there), the seconds
of ``bind``, the ratio to copying the data once, and the peak memory that tracemalloc saw in a second run, also as a
multiple of the data's own size. The last line is the time of reading as many labels that are tuples.
"""

import tracemalloc
from time import perf_counter

import cvxpy as cp
import numpy as np

import strat
from strat.records.strata import Strata

N, n, K = 100_000, 20, 1000


def measured(program, X, y, z):
    """Seconds of the fastest of three binds, and the peak bytes of another."""
    times = []
    for _ in range(3):
        start = perf_counter()
        program.bind(X, y, strata=z)
        times.append(perf_counter() - start)
    tracemalloc.start()
    program.bind(X, y, strata=z)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return min(times), peak


def main():
    """Run both losses on both kinds of input."""
    rng = np.random.default_rng(0)
    X, y, z = rng.normal(size=(N, n)), rng.choice([-1.0, 1.0], N), rng.integers(0, K, N)
    start = perf_counter()
    X.copy()
    copy = perf_counter() - start
    inputs = {"array": X}
    try:
        import pandas as pd

        inputs["DataFrame"] = pd.DataFrame(X)
    except ImportError:
        pass
    theta = cp.Variable(n, name="theta")
    x_, y_ = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    losses = {"logistic": cp.logistic(-y_ * (x_ @ theta)), "least squares": cp.square(y_ - x_ @ theta)}
    for name, loss in losses.items():
        program = strat.compile(loss, data=(x_, y_))
        for kind, given in inputs.items():
            seconds, peak = measured(program, given, y, z)
            print(
                f"{name}, {kind}: {seconds:.3f} s ({seconds / copy:.0f} copies of X), "
                f"peak {peak / 1e6:.0f} MB ({peak / X.nbytes:.1f} times X)"
            )
    labels = list(zip((z // 20).tolist(), (z % 20).tolist(), strict=True))
    start = perf_counter()
    Strata.read(labels)
    print(f"labels, tuples: {perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
