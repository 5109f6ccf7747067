"""Regularizers and constraints without a closed prox: declared for one stratum, and stacked by hand for all in CVXPY.

One table: tests/test_compounds.py fits every row with each loss, benchmarks/compounds.py times it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import cvxpy as cp
import networkx as nx
import numpy as np
import scipy.sparse as sp

import strat

n = 6
RNG = np.random.default_rng(3)
D, B = RNG.normal(size=(4, n)), RNG.normal(size=(12, n))
ROOT = RNG.normal(size=(n, n)) / 2
Q, MEANS = ROOT.T @ ROOT, np.linspace(-0.3, 0.5, n)
UNIFORM = np.full(n, 1 / n)
GROUPS = (slice(0, 3), slice(2, 5), slice(3, 6))
FIRST, SECOND = np.array(list(combinations(range(n), 2))).T


@dataclass
class Compound:
    """One row: expression and constraints of a stratum's w, and those of V, which has one row a stratum."""

    name: str
    one: Callable
    all: Callable
    shape: tuple = (n,)
    psd: bool = False
    #: Whether CVXPY has no form that takes all strata at once.
    loops: bool = False


def rows_of(V, shape):
    """The strata of V one by one, in their shape."""
    return [cp.reshape(V[k], shape, order="C") for k in range(V.shape[0])]


def square_of(V):
    """Strata of nine numbers as 3 x 3 matrices."""
    return cp.reshape(V, (V.shape[0], 3, 3), order="C")


COMPOUNDS = [
    Compound("overlapping groups", lambda w: (3 * sum(cp.norm(w[g], 2) for g in GROUPS), []),
        lambda V: (3 * sum(cp.sum(cp.norm(V[:, g], 2, axis=1)) for g in GROUPS), [])),
    Compound("trend filter", lambda w: (3 * cp.norm1(cp.diff(w, 2)), []),
        lambda V: (3 * cp.sum(cp.abs(cp.diff(V, 2, axis=1))), [])),
    Compound("OSCAR",
        lambda w: (cp.norm1(w) + sum(cp.maximum(*cp.abs(w[[i, j]])) for i in range(n) for j in range(i)), []),
        lambda V: (cp.sum(cp.abs(V)) + cp.sum(cp.maximum(cp.abs(V[:, FIRST]), cp.abs(V[:, SECOND]))), [])),
    Compound("maxima of pairs",
        lambda w: (3 * sum(cp.maximum(w[i] + 0.2, 0.3 - w[i + 1], 0.5) for i in range(n - 1)), []),
        lambda V: (3 * cp.sum(cp.maximum(V[:, :-1] + 0.2, 0.3 - V[:, 1:], 0.5)), [])),
    Compound("larger of two norms", lambda w: (4 * cp.maximum(cp.norm(w, 2), cp.norm1(w) / 2), []),
        lambda V: (4 * cp.sum(cp.maximum(cp.norm(V, 2, axis=1), cp.norm(V, 1, axis=1) / 2)), [])),
    Compound("square of l1", lambda w: (cp.square(cp.norm1(w)), []),
        lambda V: (cp.sum_squares(cp.norm(V, 1, axis=1)), [])),
    Compound("ball and plane", lambda w: (cp.norm1(w), [cp.norm(w, 2) <= 1.2, cp.sum(w) == 0.5]),
        lambda V: (cp.sum(cp.abs(V)), [cp.norm(V, 2, axis=1) <= 1.2, cp.sum(V, axis=1) == 0.5])),
    Compound("monotone and convex",
        lambda w: (0.1 * cp.sum_squares(w), [cp.diff(w) >= 0, cp.diff(w, 2) >= 0]),
        lambda V: (0.1 * cp.sum_squares(V), [cp.diff(V, axis=1) >= 0, cp.diff(V, 2, axis=1) >= 0])),
    Compound("log-sum-exp bound", lambda w: (cp.norm1(w), [cp.log_sum_exp(w) <= 1.9]),
        lambda V: (cp.sum(cp.abs(V)), [cp.log_sum_exp(V, axis=1) <= 1.9])),
    Compound("two log-sum-exp bounds",
        lambda w: (cp.norm1(w), [cp.log_sum_exp(w[:4]) <= 1.6, cp.log_sum_exp(-w[2:]) <= 1.5]),
        lambda V: (cp.sum(cp.abs(V)),
            [cp.log_sum_exp(V[:, :4], axis=1) <= 1.6, cp.log_sum_exp(-V[:, 2:], axis=1) <= 1.5])),
    Compound("entropy on the simplex",
        lambda w: (2 * cp.norm1(cp.diff(w)) - 30 * cp.sum(cp.entr(w)), [cp.sum(w) == 1]),
        lambda V: (2 * cp.sum(cp.abs(cp.diff(V, axis=1))) - 30 * cp.sum(cp.entr(V)),
            [cp.sum(V, axis=1) == 1])),
    Compound("3-norm ball", lambda w: (cp.norm1(w), [cp.norm(w, 3) <= 1]),
        lambda V: (cp.sum(cp.abs(V)), [cp.sum(cp.power(cp.abs(V), 3), axis=1) <= 1])),
    Compound("risk bound", lambda w: (cp.norm1(w), [cp.quad_form(w, Q) + MEANS @ w <= 1]),
        lambda V: (cp.sum(cp.abs(V)), [cp.sum(cp.square(V @ ROOT.T), axis=1) + V @ MEANS <= 1])),
    Compound("largest on the simplex", lambda w: (2 * cp.sum_largest(B @ w, 3), [w >= 0, cp.sum(w) == 1]),
        lambda V: (2 * cp.sum(cp.sum_largest(V @ B.T, 3, axis=1)), [V >= 0, cp.sum(V, axis=1) == 1])),
    Compound("l3 + total variation", lambda w: (4 * cp.norm(w, 3) + cp.tv(w), []),
        lambda V: (4 * sum(cp.norm(V[k], 3) for k in range(V.shape[0])) + cp.sum(cp.abs(cp.diff(V, axis=1))),
            []),
        loops=True),
    Compound("geometric mean bound", lambda w: (cp.sum(w), [cp.geo_mean(w) >= 0.4]),
        lambda V: (cp.sum(V), [cp.geo_mean(V, axis=1) >= 0.4])),
    Compound("CVaR bound", lambda w: (cp.norm1(w), [cp.cvar(B @ w, 0.5) <= 0.6]),
        lambda V: (cp.sum(cp.abs(V)), [cp.sum_largest(V @ B.T, 6, axis=1) / 6 <= 0.6])),
    Compound("nuclear + l1", lambda w: (2 * cp.normNuc(w) + cp.norm1(w), []),
        lambda V: (2 * sum(cp.normNuc(M) for M in rows_of(V, (2, 3))) + cp.sum(cp.abs(V)), []), shape=(2, 3),
        loops=True),
    Compound("exponentials bound", lambda w: (cp.norm1(w), [cp.sum(cp.exp(w)) <= 7]),
        lambda V: (cp.sum(cp.abs(V)), [cp.sum(cp.exp(V), axis=1) <= 7])),
    Compound("Huber of a norm", lambda w: (3 * cp.huber(cp.norm(w, 2), 0.5) + cp.norm1(w), []),
        lambda V: (3 * cp.sum(cp.huber(cp.norm(V, 2, axis=1), 0.5)) + cp.sum(cp.abs(V)), [])),
    Compound("squares over linear", lambda w: (cp.norm1(w), [cp.quad_over_lin(w[:-1], w[-1] + 2) <= 1]),
        lambda V: (cp.sum(cp.abs(V)),
            [cp.quad_over_lin(V[k, :-1], V[k, -1] + 2) <= 1 for k in range(V.shape[0])]),
        loops=True),
    Compound("second-order cone + l1", lambda w: (cp.norm1(w), [cp.norm(D @ w, 2) <= 0.3 * w[0] + 1]),
        lambda V: (cp.sum(cp.abs(V)), [cp.norm(V @ D.T, 2, axis=1) <= 0.3 * V[:, 0] + 1])),
    Compound("semidefinite + l1", lambda w: (cp.norm1(w), [cp.trace(w) == 1]), lambda V: (cp.sum(cp.abs(V)),
            [cp.PSD(square_of(V)), V[:, [1, 2, 5]] == V[:, [3, 6, 7]], V[:, 0] + V[:, 4] + V[:, 8] == 1]),
        shape=(3, 3), psd=True),
    Compound("log-sum-exp + l1", lambda w: (4 * cp.log_sum_exp(D @ w) + cp.norm1(w), []),
        lambda V: (4 * cp.sum(cp.log_sum_exp(V @ D.T, axis=1)) + cp.sum(cp.abs(V)), [])),
    Compound("logistic losses bound", lambda w: (cp.norm1(w), [cp.sum(cp.logistic(B @ w)) <= 10]),
        lambda V: (cp.sum(cp.abs(V)), [cp.sum(cp.logistic(V @ B.T), axis=1) <= 10])),
    Compound("relative entropy ball",
        lambda w: (cp.tv(w), [cp.sum(cp.kl_div(w, UNIFORM)) <= 0.1, cp.sum(w) == 1]),
        lambda V: (cp.sum(cp.abs(cp.diff(V, axis=1))),
            [cp.sum(cp.kl_div(V, UNIFORM + np.zeros(V.shape)), axis=1) <= 0.1, cp.sum(V, axis=1) == 1])),
    Compound("inverses bound", lambda w: (cp.norm1(cp.diff(w)), [cp.sum(cp.inv_pos(w)) <= 12]),
        lambda V: (cp.sum(cp.abs(cp.diff(V, axis=1))), [cp.sum(cp.inv_pos(V), axis=1) <= 12])),
    Compound("powers 3/2 and a polyhedron", lambda w: (2 * cp.sum(cp.power(cp.abs(w), 1.5)), [D @ w <= 0.5]),
        lambda V: (2 * cp.sum(cp.power(cp.abs(V), 1.5)), [V @ D.T <= 0.5])),
]  # fmt: skip

#: Of a target y and a score t, scalars or vectors.
LOSSES = {
    "least squares": lambda y, t: cp.square(y - t),
    "logistic": lambda y, t: cp.logistic(-cp.multiply(y, t)),
    "pinball": lambda y, t: cp.maximum(0.8 * (y - t), -0.2 * (y - t)),
}


def graph(K, weight=1.0):
    """The squarest grid with K nodes 0, ..., K - 1, and edges of random weight."""
    side = max(d for d in range(1, int(K**0.5) + 1) if K % d == 0)
    built = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, K // side))
    drawn = weight * np.random.default_rng(1).uniform(0.5, 5, built.number_of_edges())
    nx.set_edge_attributes(built, dict(zip(built.edges, drawn.tolist(), strict=True)), "weight")
    return built


def records(row, loss, K):
    """20 records a stratum in the mean, of the row's shape: X, Y, strata."""
    rng = np.random.default_rng(1)  # with some seeds, Clarabel ends a logistic row with optimal_inaccurate
    z = rng.integers(K, size=20 * K)
    common = 0.3 + np.cos(np.arange(np.prod(row.shape))).reshape(row.shape)
    truth = (2 if loss == "logistic" else 1) * (common + 0.5 * rng.normal(size=(K, *row.shape)))
    X = rng.normal(size=(len(z), *row.shape))
    Y = np.sum((X * truth[z]).reshape(len(z), -1), axis=1) + 0.5 * rng.normal(size=len(z))
    return X, np.where(Y >= 0, 1.0, -1.0) if loss == "logistic" else Y, z


def declared(row, loss, unit=1.0, size=1.0):
    """The declaration for strat, of w in 1/unit (X is to be divided by unit) and with the objective times size."""
    w, x = cp.Variable(row.shape, name="w", PSD=row.psd), cp.Parameter(row.shape, name="x")
    y = cp.Parameter(name="y")
    expression, constraints = row.one(w if unit == 1 else w / unit)
    score = x @ w if len(row.shape) == 1 else cp.sum(cp.multiply(x, w))
    one = LOSSES[loss](y, score)
    if size != 1:
        one, expression = size * one, size * expression
    return strat.BaseModel(one, expression, constraints, data=(x, y))


def stacked(row, loss, g, X, Y, z):
    """The problem of all strata in CVXPY and its variable (K, n): one sparse product for the records, one for the edges."""
    K, width = g.number_of_nodes(), int(np.prod(row.shape))
    V = cp.Variable((K, width))
    columns = (z[:, None] * width + np.arange(width)).ravel()
    rows = sp.csr_array((X.ravel(), columns, np.arange(0, X.size + 1, width)), shape=(len(X), K * width))
    total, constraints = row.all(V)
    total = total + cp.sum(LOSSES[loss](Y, rows @ cp.vec(V, order="C")))
    weights = np.sqrt([w for _, _, w in g.edges(data="weight")])
    edges = sp.diags_array(weights) @ nx.incidence_matrix(g, oriented=True).T
    return cp.Problem(cp.Minimize(total + 0.5 * cp.sum_squares(edges @ V)), constraints), V
