"""Small fitted models of several losses and regularizers, with records held out, for the tests of derivatives."""

import cvxpy as cp
import numpy as np

import strat
from strat.derivatives.fitted_model import FittedModel
from strat.derivatives.linearization import Linearization
from strat.problem.edges import EdgeList

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


class Polished:
    """Fits of a model for other weights and hyperparameters, solved to rounding from its own fit."""

    def __init__(self, model, validation):
        self.fitted = FittedModel(model, "a test", EdgeList(K, *np.triu_indices(K, 1)))
        self.held = self.fitted.held_out(validation)

    def theta(self, W, values=None):
        """The fitted parameters (K, n)."""
        w = self.fitted.bound_model.edges.from_matrix(W)
        found = Linearization(self.fitted.problem(values, w), self.fitted.theta, w)
        assert found.residual < 1e-11
        return found.theta

    def loss(self, W, values=None):
        """The held-out loss."""
        return self.held.mean_loss(self.theta(W, values), values)


def edge_matrix(i, j):
    """E with ones at [i, j] and [j, i]."""
    E = np.zeros((K, K))
    E[i, j] = E[j, i] = 1.0
    return E


def derivative(f, at=0.0, h=1e-5, one_sided=False):
    """Difference quotient of second order; one_sided: from the right."""
    if one_sided:
        return (-3 * f(at) + 4 * f(at + h) - f(at + 2 * h)) / (2 * h)
    return (f(at + h) - f(at - h)) / (2 * h)
