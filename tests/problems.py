"""Models of every kind of loss and regularizer on small graphs, and each as one CVXPY problem written by hand."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np

import strat
from strat.model.bound_model import BoundModel

TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
K, N, P = 10, 90, 3
GIVEN = strat.FixedGraph()

#: The target and the loss of (y, u = x @ theta), of one record or of each row.
LOSSES = {
    "squares": ("real", lambda y, u: cp.square(y - u)),
    "huber": ("real", lambda y, u: cp.huber(y - u, 0.5)),
    "logistic": ("sign", lambda y, u: cp.logistic(-cp.multiply(y, u))),
    "poisson": ("count", lambda y, u: cp.exp(u) - cp.multiply(y, u)),
    "softmax": ("class", lambda y, u: cp.log_sum_exp(u, u.ndim - 1) - cp.sum(cp.multiply(y, u), u.ndim - 1)),
    "pinball": ("real", lambda y, u: cp.maximum(0.9 * (y - u), -0.1 * (y - u))),
    "absolute": ("real", lambda y, u: cp.abs(y - u)),
    "insensitive": ("real", lambda y, u: cp.pos(cp.abs(y - u) - 0.3)),
    "hinge": ("sign", lambda y, u: cp.pos(1 - cp.multiply(y, u))),
}
KINKED = ("pinball", "absolute", "insensitive", "hinge")
#: Regularizer and constraints of the parameters t of a stratum.
REGULARIZERS = {
    "ridge": (lambda t: 0.3 * cp.sum_squares(t), lambda t: []),
    "l1": (lambda t: 0.8 * cp.norm1(t), lambda t: []),
    "group": (lambda t: 1.5 * cp.norm2(t[:2].flatten(order="C")) + 0.1 * cp.sum_squares(t), lambda t: []),
    "box": (lambda t: 0, lambda t: [t <= 0.4, t >= -0.2]),
    "nonneg": (lambda t: 0.05 * cp.sum_squares(t), lambda t: [t >= 0]),
    "simplex": (lambda t: 0, lambda t: [t >= 0, cp.sum(t) == 1]),
    "l1 ball": (lambda t: 0, lambda t: [cp.norm1(t) <= 0.7]),
}


def graph(name="mixed", weight=1.0):
    """Nodes 0 to 9; "mixed" has a path, a pair, an edge of weight 0 and a node alone."""
    edges = {
        "chain": [(k, k + 1) for k in range(K - 1)],
        "grid": [(k, k + 1) for k in range(K - 1) if k % 5 < 4] + [(k, k + 5) for k in range(5)],
        "random": nx.gnm_random_graph(K, 20, seed=3).edges,
        "mixed": [(0, 1), (1, 2), (2, 3), (3, 4), (7, 8), (8, 9)],
    }[name]
    found = nx.empty_graph(K)
    found.add_edges_from((i, j, {"weight": weight * (1 + (i + j) % 3)}) for i, j in edges)
    if name == "mixed":
        found.add_edge(5, 7, weight=0.0)
    return found


def records(loss, seed=0):
    """X, targets, strata (none in 3 and 9) and weights, one of them 0."""
    rng = np.random.default_rng(seed)
    z, X = rng.choice([0, 1, 2, 4, 5, 6, 7, 8], size=N), rng.standard_normal((N, P))
    weight = rng.random(N) + 0.2
    weight[3] = 0.0
    y = X @ [1.0, -1.0, 0.5] + 0.2 * z * X[:, 0] + rng.standard_normal(N)
    targets = {"real": y, "sign": np.sign(y), "count": rng.poisson(np.exp(np.clip(y, -3, 2))).astype(float)}
    targets["class"] = np.eye(3)[rng.integers(3, size=N)]
    return X, targets[LOSSES[loss][0]], z, weight


def shape(loss):
    return (P, 3) if loss == "softmax" else (P,)


def declared(loss, regularizer="ridge", couple=None, **options):
    theta, x = cp.Variable(shape(loss), name="theta"), cp.Parameter(P, name="x")
    y = cp.Parameter(shape(loss)[1:], name="y")
    r, constraints = REGULARIZERS[regularizer]
    couple = None if couple is None else {theta: couple}
    f = LOSSES[loss][1](y, x @ theta)
    return strat.BaseModel(f, r(theta), constraints(theta), data=(x, y), couple=couple, **options)


def linear(loss=strat.losses.squared, n=2, ridge=0.5, **options):
    """A linear model with an intercept; the hyperparameter `ridge` weighs the other coefficients' squares."""
    theta, b = cp.Variable(n, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    u, weight = x @ theta + b, cp.Parameter(nonneg=True, value=ridge, name="ridge")
    return strat.BaseModel(loss(y, u), weight * cp.sum_squares(theta), data=(x, y), predict=u, **options)


def mean(ridge=0, shape=(), name="mu", **options):
    """The mean of the labels of a stratum, which are numbers or arrays."""
    mu, y = cp.Variable(shape, name=name), cp.Parameter(shape, name="y")
    square = cp.sum_squares if shape else cp.square
    return strat.BaseModel(square(y - mu), ridge * square(mu), data=(y,), predict=mu, **options)


def fitted(model, X, y, z, weight=None, **options):
    """The fitted model, without warnings of strata alone and of fits that were stopped."""
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        warnings.simplefilter("ignore", strat.ConvergenceWarning)
        return model.fit(X, y, strata=z, sample_weight=weight, **options)


def solved(problem):
    """Optimal value; Clarabel may say that it does not reach the accuracy asked for."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return problem.solve(solver=cp.CLARABEL, **TIGHT)


def optimum(loss, regularizer, graph, X, y, z, weight, couple=None):
    """Minimum of the whole problem."""
    thetas = [cp.Variable(shape(loss)) for _ in graph]
    total, rows = 0, []
    for k, t in enumerate(thetas):
        mine = np.asarray(z) == k
        if mine.any():
            total += weight[mine] @ LOSSES[loss][1](y[mine], X[mine] @ t)
        total += REGULARIZERS[regularizer][0](t)
        rows += REGULARIZERS[regularizer][1](t)
    couple = np.ones(shape(loss)) if couple is None else couple
    for i, j, w in graph.edges(data="weight"):
        total += w / 2 * cp.sum(cp.multiply(couple, cp.square(thetas[i] - thetas[j])))
    return solved(cp.Problem(cp.Minimize(total), rows))


def problem(loss="logistic", regularizer="l1", h=None, on=None, couple=None, **options):
    """What a solver sees: the joint problem of the records and a graph."""
    X, y, z, weight = records(loss)
    model = strat.StratifiedModel(declared(loss, regularizer, couple), on or graph(), h or GIVEN, **options)
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        return BoundModel(model, (X, y), z, weight).problem()


def solve(p, solver, **options):
    """The solver's result from the prox at 0."""
    with warnings.catch_warnings(action="ignore", category=strat.ConvergenceWarning):
        return solver._run(p, p.prox(np.zeros((p.K, p.n)), 1.0), p.w0, **options)
