"""Small fitted models of several losses and regularizers, with records held out, for the tests of derivatives."""

import warnings

import cvxpy as cp
import numpy as np

import strat

LOSSES = ("squared", "logistic", "poisson", "softmax")
REGULARIZERS = ("ridge", "l1", "box", "group")
K, N = 8, 60


def model_and_records(loss, regularizer, couple=None, seed=0, **options):
    """A model on a path with two edges of weight 0, its training and validation records.

    Hyperparameters: ``lam`` in the regularizer (the bound of "box"), ``c`` times the loss.
    """
    rng = np.random.default_rng(seed)
    graph = strat.graphs.path(range(K))
    graph.add_edge(0, 5, weight=0.0)
    graph.add_edge(2, 7, weight=0.0)
    x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
    lam, c = cp.Parameter(nonneg=True, value=0.3, name="lam"), cp.Parameter(nonneg=True, value=1.3, name="c")
    theta, b = cp.Variable(3, name="theta"), cp.Variable(name="b")
    u, small = x @ theta + b, 0.1 * cp.square(b)
    X, z = rng.normal(size=(2 * N, 3)), rng.integers(0, K, 2 * N)
    mean = (X * rng.normal(size=(K, 3))[z]).sum(axis=1)
    if loss == "squared":
        f, Y = c * cp.square(y - u), mean + 0.5 * rng.normal(size=2 * N)
    elif loss == "logistic":
        f, Y = c * cp.logistic(-cp.multiply(y, u)), np.sign(mean + 0.5 * rng.normal(size=2 * N))
    elif loss == "poisson":
        f, Y = c * (cp.exp(u) - y * u), rng.poisson(np.exp(0.5 * mean)).astype(float)
    else:
        theta, y, small = cp.Variable((3, 3), name="theta"), cp.Parameter(3, name="y"), 0
        f, Y = c * (cp.log_sum_exp(x @ theta) - (x @ theta) @ y), np.eye(3)[rng.integers(0, 3, 2 * N)]
    r, constraints = {
        "ridge": (lam * cp.sum_squares(theta), []),
        "l1": (4 * lam * cp.norm1(theta) + 0.05 * cp.sum_squares(theta), []),
        "box": (0.01 * cp.sum_squares(theta), [theta <= lam, theta >= -0.2]),
        "group": (5 * lam * (cp.norm(theta, "fro") if theta.ndim == 2 else cp.norm(theta, 2)), []),
    }[regularizer]
    base = strat.BaseModel(f, r + small, constraints, data=(x, y), couple=couple)
    model = strat.lrsm(base, graph, **options)
    return model, (X[:N], Y[:N], list(z[:N])), (X[N:], Y[N:], list(z[N:]))


def fitted(loss, regularizer, **options):
    """A fitted model and its validation records."""
    model, (X, Y, z), validation = model_and_records(loss, regularizer, **options)
    return model.fit(X, Y, strata=z), validation


class Refitted:
    """The model fitted afresh, to rounding, for other weights and hyperparameters."""

    def __init__(self, model, validation):
        self.model, self.validation, self.training = model, validation, model._training
        self.labels = [model.strata_[k] for k in self.training.strata.index]
        self.own = {key: v for key, v in model.get_params().items() if key.startswith("base__")}

    def fit(self, W, values=None):
        graph = self.model.graph.copy()
        for i, j in zip(*np.triu_indices(len(W), 1), strict=True):
            edge = self.model.strata_[i], self.model.strata_[j]
            if W[i, j] or graph.has_edge(*edge):
                graph.add_edge(*edge, weight=W[i, j])
        model = strat.lrsm(self.model.base, graph, solver=strat.NewtonCG(tol=1e-12, max_iter=60))
        model.set_params(**self.own | {f"base__{name}": v for name, v in (values or {}).items()})
        weight = self.training.weight
        with warnings.catch_warnings(action="ignore"):
            start = {"theta": self.model.theta_}
            return model.fit(*self.training.arrays, strata=self.labels, sample_weight=weight, init=start)

    def theta(self, W, values=None):
        """The fitted parameters (K, n)."""
        return self.model.base.layout.pack(self.fit(W, values).theta_)

    def loss(self, W, values=None):
        """The held-out loss."""
        return -self.fit(W, values).score(*self.validation[:-1], strata=self.validation[-1])


def edge_matrix(i, j):
    """E with ones at [i, j] and [j, i]."""
    E = np.zeros((K, K))
    E[i, j] = E[j, i] = 1.0
    return E


def derivative(f, at=0.0, h=7e-5, one_sided=False):
    """Difference quotient of second order; one_sided: from the right."""
    if one_sided:
        h /= 5
        return (-3 * f(at) + 4 * f(at + h) - f(at + 2 * h)) / (2 * h)
    return (f(at + h) - f(at - h)) / (2 * h)


def slopes(refitted, W, pairs, measure="loss"):
    """Derivatives of the held-out loss, or of theta, in the weights of some pairs."""
    f, found = getattr(refitted, measure), []
    for pair in pairs:
        E = edge_matrix(*pair)
        found.append(derivative(lambda w, E=E: f(W + w * E), one_sided=not W[pair]))
    return found


def slopes_in(refitted, W, name, value):
    """Derivatives of the held-out loss in the entries of a hyperparameter."""
    value = np.array(value, dtype=float)
    unit = np.eye(value.size).reshape(-1, *value.shape)
    found = [
        derivative(lambda s, e=e: refitted.loss(W, {name: value + s * e}), one_sided=not (value * e).any())
        for e in unit
    ]
    return np.reshape(found, value.shape)
