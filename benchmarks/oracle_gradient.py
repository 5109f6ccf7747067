"""The compiled gradient of a logistic loss beside two other ways to the same numbers.

Prints, for N records of n numbers in K strata, milliseconds of the compiled value and gradient, and how many times as
long the others take in the same run: "einsum" gathers theta for every record, multiplies by einsum and sums with
reduceat; "CVXPY value" is one ``.value`` of the stacked expression over all records, without any gradient.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from time import perf_counter

import cvxpy as cp
import numpy as np

import strat

SIZES = [(10_000, 10, 100), (100_000, 20, 1000)]


def milliseconds(function, repeats):
    """Median time of a call."""
    function()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return 1e3 * float(np.median(times))


def einsum_form(X, y, z, K):
    """Value and gradient with theta gathered for every record; records sorted by stratum, none of them empty."""
    starts = np.searchsorted(z, np.arange(K))

    def value_and_gradient(theta):
        margin = y * np.einsum("ij,ij->i", X, theta[z])
        e = np.exp(-np.abs(margin))
        loss = np.maximum(-margin, 0.0) + np.log1p(e)
        slope = -y * np.where(margin >= 0, e, 1.0) / (1.0 + e)
        return np.add.reduceat(loss, starts), np.add.reduceat(slope[:, None] * X, starts, axis=0)

    return value_and_gradient


def stacked_value(X, y, z, K):
    """CVXPY's value of the whole sum, as one expression of all strata's parameters."""
    theta = cp.Variable((K, X.shape[1]))
    margin = cp.sum(cp.multiply(X, theta[z]), axis=1)
    loss = cp.sum(cp.logistic(-cp.multiply(y, margin)))

    def value(point):
        theta.value = point
        return loss.value

    return value


def main():
    """Run all sizes."""
    rng = np.random.default_rng(0)
    for N, n, K in SIZES:
        X, y = rng.normal(size=(N, n)), rng.choice([-1.0, 1.0], N)
        z = np.sort(np.concatenate([np.arange(K), rng.integers(0, K, N - K)]))
        point = 0.1 * rng.normal(size=(K, n))
        theta = cp.Variable(n, name="theta")
        x_, y_ = cp.Parameter(n, name="x"), cp.Parameter(name="y")
        program = strat.compile(cp.logistic(-y_ * (x_ @ theta)), data=(x_, y_))
        compiled = program.bind(X, y, strata=z).flat.value_and_gradient
        einsum, stacked = einsum_form(X, y, z, K), stacked_value(X, y, z, K)
        for ours, theirs in zip(compiled(point), einsum(point), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(compiled(point)[0].sum(), stacked(point), rtol=1e-9)
        base = milliseconds(lambda f=compiled, at=point: f(at), 30)
        others = (
            milliseconds(lambda f=einsum, at=point: f(at), 30),
            milliseconds(lambda f=stacked, at=point: f(at), 5),
        )
        print(
            f"N = {N:,}, n = {n}, K = {K:,}: compiled {base:.2f} ms; "
            f"einsum {others[0] / base:.2f} times as long, CVXPY value {others[1] / base:.1f} times as long"
        )


if __name__ == "__main__":
    main()
