"""Gradient of a held-out loss in every edge weight: against CVXPY with diffcp, cvxpylayers, and a fit.

Least squares and logistic losses, 10 records per stratum, n = 5 or 10 features, on sparse graphs (K = 10, 50, 100) and
complete ones (K = 30, 50). Four problems to compare with:

dpp         one CVXPY expression over all records and edges, with the weights w as its Parameter, as CVXPY's rules for
            Parameters want it: ``cp.sum(cp.multiply(w, cp.sum(cp.square(D @ Theta), axis=1)))``
stacked     the same with the roots of the weights as its Parameter, within the squares: compiles and solves fastest
written     a sum over strata and over edges of ``w[e] * cp.sum_squares(theta_i - theta_j)``, as the paper has it; on
            complete graphs its compilation took 3 GB at 30 strata, 13 GB at 40 and all of 23 GB at 50
layer       the stacked problem as a cvxpylayers layer under JAX

Their tolerances are the defaults. Printed are CPU seconds of the first solution and derivative (compilation included), and
of the second with the same weights; of ``strat.hypergradient`` CPU milliseconds of the first call after the fit ("once"), of
later calls ("again": the held-out records are read and bound, the fit is polished, the adjoint system solved) and of
polishing and adjoint alone ("bound", as in a loop over records already bound); and three ratios: first / once, warm / again,
warm / bound. "gap" is the largest difference of both gradients on the graph's edges relative to the largest entry, "error"
that of ours against central differences of polished solves on a few edges. Derivatives at edges of weight 0 are not
compared: there CVXPY's are wrong. Last, for a logistic model on a grid of 1000 strata, one hypergradient in units of a warm
fit.

Arguments: the largest K compared with CVXPY (100 by default), and how many features (5 and 10 by default).
"""

import sys
import time
import warnings
from itertools import product

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import strat
from strat.model.hypergradient import FittedModel, implicit_gradient
from strat.model.linearization import Linearization
from strat.problem.graph_regularizers import FixedGraph

REPEAT = 9
MOST_WRITTEN = 800  # edges
MOST_DPP = 10_000  # numbers in the edges' differences; at 12,250 its compilation took over four minutes


def model_of(loss, graph, n=10, per_stratum=10, seed=0):
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
    fit = FittedModel(model, "the benchmark")
    held, edges = fit.bound_model.validation(validation, smooth=True), fit.bound_model.edges
    i, j = edges.ends
    worst = 0.0
    for e in np.linspace(0, edges.count - 1, 5).astype(int):
        sides = []
        for h in (-1e-5, 1e-5):
            moved = fit.w.copy()
            moved[e] += h
            problem = fit.bound_model.problem(w0=moved, graph_regularizer=FixedGraph())
            sides.append(held.mean_loss(Linearization(problem, fit.theta, moved).theta))
        worst = max(worst, abs((sides[1] - sides[0]) / 2e-5 - G[i[e], j[e]]))
    return worst / np.abs(G).max()


class Stacked:
    """The LRSM as a CVXPY problem stacked over records and edges, with the roots of the weights as its Parameter."""

    name = "stacked"

    def __init__(self, model, loss):
        fit, strata = FittedModel(model, "the benchmark"), model._training.strata
        (X, Y), K = model._training.arrays, len(model.strata_)
        self.i, self.j = fit.bound_model.edges.ends
        E, N, rows = len(self.i), len(X), np.arange(len(self.i))
        ends = (np.r_[rows, rows], np.r_[self.i, self.j])
        differences = sp.csr_array((np.repeat([1.0, -1.0], E), ends), shape=(E, K))
        chosen = sp.csr_array((np.ones(N), (np.arange(N), strata.index)), shape=(N, K))
        self.theta = cp.Variable((K, X.shape[1]))
        u = cp.sum(cp.multiply(X, chosen @ self.theta), axis=1)
        f = cp.sum_squares(Y - u) if loss == "least squares" else cp.sum(cp.logistic(-cp.multiply(Y, u)))
        pull = self.pull(fit.w, differences @ self.theta)
        self.problem = cp.Problem(cp.Minimize(f + 0.1 * cp.sum_squares(self.theta) + 0.5 * pull))

    def pull(self, w, gaps):
        """Twice the Laplacian term, of differences (E, n)."""
        self.root = cp.Parameter((len(w), 1), nonneg=True, value=np.sqrt(w)[:, None])
        return cp.sum_squares(cp.multiply(self.root @ np.ones((1, gaps.shape[1])), gaps))

    def gradient(self, held):
        """Solve and differentiate."""
        self.problem.solve(requires_grad=True)
        self.theta.gradient = held.mean_loss_and_gradient(self.theta.value)[1]
        self.problem.backward()
        return self.edges()

    def edges(self):
        """The derivative in the weights, after that in their roots."""
        return (self.root.gradient / (2 * self.root.value)).ravel()


class Written(Stacked):
    """The LRSM as sums over strata and edges, with the weights as its Parameter."""

    name = "written"

    def __init__(self, model, loss):
        fit, strata = FittedModel(model, "the benchmark"), model._training.strata
        (X, Y), K = model._training.arrays, len(model.strata_)
        self.i, self.j = fit.bound_model.edges.ends
        if len(self.i) > MOST_WRITTEN:
            raise Skipped(f"more than {MOST_WRITTEN} edges take too much memory to compile")
        self.thetas = [cp.Variable(X.shape[1]) for _ in range(K)]
        self.w = cp.Parameter(len(self.i), nonneg=True, value=fit.w)
        objective = 0
        for k, theta in enumerate(self.thetas):
            mine = strata.index == k
            u = X[mine] @ theta
            f = (
                cp.sum_squares(Y[mine] - u)
                if loss == "least squares"
                else cp.sum(cp.logistic(-cp.multiply(Y[mine], u)))
            )
            objective += f + 0.1 * cp.sum_squares(theta)
        for e, (i, j) in enumerate(zip(self.i, self.j, strict=True)):
            objective += 0.5 * self.w[e] * cp.sum_squares(self.thetas[i] - self.thetas[j])
        self.problem = cp.Problem(cp.Minimize(objective))

    def gradient(self, held):
        """Solve and differentiate."""
        self.problem.solve(requires_grad=True)
        b = held.mean_loss_and_gradient(np.array([theta.value for theta in self.thetas]))[1]
        for theta, direction in zip(self.thetas, b, strict=True):
            theta.gradient = direction
        self.problem.backward()
        return self.w.gradient


class DPP(Stacked):
    """The stacked LRSM with the weights themselves as its Parameter."""

    name = "dpp"

    def pull(self, w, gaps):
        """Twice the Laplacian term, of differences (E, n)."""
        if gaps.size > MOST_DPP:
            raise Skipped(f"more than {MOST_DPP} differences take minutes to compile")
        self.w = cp.Parameter(len(w), nonneg=True, value=w)
        return cp.sum(cp.multiply(self.w, cp.sum(cp.square(gaps), axis=1)))

    def edges(self):
        """The derivative in the weights."""
        return self.w.gradient


class Layer(Stacked):
    """The stacked problem as a layer of cvxpylayers."""

    name = "layer"

    def __init__(self, model, loss):
        try:
            import jax
            from cvxpylayers.jax import CvxpyLayer
        except ImportError as error:
            raise Skipped(f"needs cvxpylayers and jax ({error})") from error
        jax.config.update("jax_enable_x64", True)
        super().__init__(model, loss)
        layer = CvxpyLayer(self.problem, parameters=[self.root], variables=[self.theta])
        self.solve_and_pull = lambda root: jax.vjp(lambda r: layer(r)[0], root)

    def gradient(self, held):
        """Solve and differentiate."""
        theta, pull = self.solve_and_pull(self.root.value)
        (root,) = pull(held.mean_loss_and_gradient(np.asarray(theta))[1])
        return (np.asarray(root) / (2 * self.root.value)).ravel()


class Skipped(Exception):
    """Why a competitor does not run."""


def compare(loss, name, graph, n):
    """The rows of one graph."""
    model, validation = model_of(loss, graph, n)
    fit = FittedModel(model, "the benchmark")
    held = fit.bound_model.validation(validation, smooth=True)

    def again():
        return strat.hypergradient(model, validation)

    def bound():
        return implicit_gradient(fit, held, fit.linearized(), ["W0"])

    (_, gradient), once = timed(again)
    calls, loops = timed(again, REPEAT)[1], timed(bound, REPEAT)[1]
    G = gradient["W0"]
    for Competitor in (DPP, Stacked, Written, Layer):
        start = f"{loss:14} {name:12} {n:2} {len(fit.w):6} {Competitor.name:8}"
        try:
            problem, build = timed(lambda: Competitor(model, loss))  # noqa: B023
        except Skipped as reason:
            print(f"{start} skipped: {reason}", flush=True)
            continue
        _, first = timed(lambda: problem.gradient(held))  # noqa: B023
        edges, warm = timed(lambda: problem.gradient(held), 3)  # noqa: B023
        gap = np.abs(G[problem.i, problem.j] - edges).max() / np.abs(G).max()
        # Measured on both sides of the competitor, so that both see the same machine.
        calls, loops = 0.5 * (calls + timed(again, REPEAT)[1]), 0.5 * (loops + timed(bound, REPEAT)[1])
        first += build
        print(
            f"{start} {first:8.2f} {warm:7.2f} {1e3 * once:7.1f} {1e3 * calls:7.1f} {1e3 * loops:7.1f} "
            f"{first / once:8.0f} {warm / calls:8.0f} {warm / loops:8.0f} {gap:8.1e} {error(model, validation, G):8.1e}",
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
    features = [int(n) for n in sys.argv[2:]] or [5, 10]
    warnings.filterwarnings("ignore", module="cvxpy|diffcp|cvxpylayers")
    print(
        f"{'loss':14} {'graph':12} {'n':>2} {'edges':>6} {'against':8} {'first s':>8} {'warm s':>7} {'once ms':>7} {'again':>7} "
        f"{'bound':>7} {'f/once':>8} {'w/again':>8} {'w/bound':>8} {'gap':>8} {'error':>8}"
    )
    for loss, n in product(("least squares", "logistic"), features):
        for rows, columns in ((2, 5), (5, 10), (10, 10)):
            if rows * columns <= largest:
                graph = strat.graphs.product(strat.graphs.path(rows), strat.graphs.path(columns))
                compare(loss, f"grid {rows} x {columns}", graph, n)
        for K in (30, 50):
            if largest >= K:
                compare(loss, f"complete {K}", strat.graphs.complete(K, weight=0.1), n)
    against_a_fit("logistic", strat.graphs.product(strat.graphs.path(25), strat.graphs.path(40)))


if __name__ == "__main__":
    main()
