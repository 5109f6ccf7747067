"""Oracles written by hand, so that solvers are tested without the compiler, and the paper's data."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp


class Oracle:
    """A sum over records of a function of x @ theta_k, theta_k (p, m) raveled; X as one block-CSR matrix."""

    m = 1

    def __init__(self, X, y, stratum, K):
        X = np.asarray(X, dtype=float)
        N, p = X.shape
        order = np.argsort(stratum, kind="stable")
        self.X, self.y, self.stratum = X[order], np.asarray(y)[order], np.asarray(stratum)[order]
        self.K, self.p, self.n = K, p, p * self.m
        columns = (self.stratum[:, None] * p + np.arange(p)).ravel()
        self.A = sp.csr_array((self.X.ravel(), columns, np.arange(0, N * p + 1, p)), (N, K * p))
        self.AT = self.A.T
        self.ends = np.searchsorted(self.stratum, np.arange(K + 1))

    def has(self, name):
        return hasattr(self, name)

    def _u(self, theta):
        return self.A @ theta.reshape(self.K * self.p, self.m)

    def _sum(self, records):
        total = np.concatenate([[0.0], np.cumsum(records)])
        return total[self.ends[1:]] - total[self.ends[:-1]]

    def _back(self, c):
        return (self.AT @ c).reshape(self.K, self.n)

    def value(self, theta):
        return np.bincount(self.stratum, self.f(self._u(theta)), self.K)

    def value_and_gradient(self, theta):
        u = self._u(theta)
        return np.bincount(self.stratum, self.f(u), self.K), self._back(self.df(u))

    def hessian_operator(self, theta):
        d2 = self.d2f(self._u(theta))
        return lambda v: self._back(d2(self._u(v)))


class Softmax(Oracle):
    """log_sum_exp(x @ Theta) - (x @ Theta)[y], Theta (p, 2)."""

    m = 2

    def f(self, u):
        a = u[:, 0] - u[:, 1]
        return np.logaddexp(0, np.where(self.y == 0, -a, a))

    def df(self, u):
        q = _sigmoid(u[:, 0] - u[:, 1]) - (self.y == 0)
        return np.stack([q, -q], axis=1)

    def d2f(self, u):
        q = _sigmoid(u[:, 0] - u[:, 1])
        h = q * (1 - q)

        def product(v):
            s = h * (v[:, 0] - v[:, 1])
            return np.stack([s, -s], axis=1)

        return product


class Logistic(Oracle):
    def f(self, u):
        m = -self.y * u[:, 0]
        return np.log1p(np.exp(-np.abs(m))) + np.maximum(m, 0)

    def df(self, u):
        return (-self.y * _sigmoid(-self.y * u[:, 0]))[:, None]

    def d2f(self, u):
        q = _sigmoid(u[:, 0])
        return lambda v: (q * (1 - q))[:, None] * v


class LeastSquares(Oracle):
    def f(self, u):
        return 0.5 * (u[:, 0] - self.y) ** 2

    def df(self, u):
        return u - self.y[:, None]

    def d2f(self, u):
        return lambda v: v


class Bernoulli(Oracle):
    """-y log p - (1-y) log(1-p), p = theta."""

    def __init__(self, y, stratum, K):
        super().__init__(np.ones((len(y), 1)), y, stratum, K)

    def f(self, u):
        p = u[:, 0]
        with np.errstate(all="ignore"):
            value = -np.where(self.y > 0, self.y * np.log(p), 0) - np.where(
                self.y < 1, (1 - self.y) * np.log1p(-p), 0
            )
        return np.where((p >= 0) & (p <= 1), value, np.inf)

    def df(self, u):
        p = u[:, 0]
        with np.errstate(all="ignore"):
            return (-np.where(self.y > 0, self.y / p, 0) + np.where(self.y < 1, (1 - self.y) / (1 - p), 0))[
                :, None
            ]

    def d2f(self, u):
        p = u[:, 0]
        h = np.where(self.y > 0, self.y / p**2, 0) + np.where(self.y < 1, (1 - self.y) / (1 - p) ** 2, 0)
        return lambda v: h[:, None] * v


class Regularizer:
    def has(self, name):
        return hasattr(self, name)

    def value(self, theta):
        return np.zeros(len(theta))


class Zero(Regularizer):
    def prox(self, v, t):
        return v.copy()


class Norm1(Regularizer):
    def __init__(self, weight):
        self.weight = weight

    def value(self, theta):
        return self.weight * np.abs(theta).sum(axis=1)

    def prox(self, v, t):
        t = self.weight * np.asarray(t, dtype=float)
        t = t[:, None] if t.ndim else t
        return v - np.clip(v, -t, t)


class Ridge(Regularizer):
    def __init__(self, weight):
        self.weight = weight

    def value(self, theta):
        return self.weight / 2 * (theta**2).sum(axis=1)

    def prox(self, v, t):
        t = np.asarray(t, dtype=float)
        return v / (1 + self.weight * (t[:, None] if t.ndim else t))


class Box(Regularizer):
    def __init__(self, low, high):
        self.low, self.high = low, high

    def prox(self, v, t):
        return np.clip(v, self.low, self.high)


def _sigmoid(a):
    e = np.exp(-np.abs(a))
    return np.where(a >= 0, 1.0, e) / (1 + e)


def data_folder(name):
    """Folder of one of the paper's data sets under $STRAT_DATA, or skip."""
    folder = Path(os.environ.get("STRAT_DATA", "")) / name
    if not os.environ.get("STRAT_DATA") or not folder.is_dir():
        pytest.skip("STRAT_DATA does not name the folder with the paper's data")
    return folder


def wine():
    """The paper's wine problem: two-column softmax, l1, W0 = 0."""
    import pandas as pd

    from strat.problem.edges import AllPairs
    from strat.problem.graph_regularizers import LogDet
    from strat.problem.joint_problem import JointProblem

    folder = data_folder("wine")
    records, split = pd.read_csv(folder / "records.csv"), pd.read_csv(folder / "split.csv")
    strata = pd.read_csv(folder / "strata.csv")
    train = split.sort_values("row")["split"].to_numpy() == "train"
    stratum = strata.sort_values("row")["stratum"].to_numpy()[train]
    X = records.drop(columns=["density", "sulphates", "alcohol", "quality"]).to_numpy(float)[train]
    X = (X - X.mean(0)) / X.std(0)
    X = np.c_[X, np.ones(len(X))]
    y = (records["quality"].to_numpy()[train] == "good").astype(int)
    edges = AllPairs(100)
    h = LogDet(5.0, 2e-3, 0.1, 0.2)
    return JointProblem(Softmax(X, y, stratum, 100), Norm1(0.01), h, edges, edges.zeros())


def election():
    """The paper's senate problem: Bernoulli rates in a box, W0 = states x years."""
    import pandas as pd

    from strat.problem.edges import AllPairs
    from strat.problem.graph_regularizers import LogDet
    from strat.problem.joint_problem import JointProblem

    folder = data_folder("election")
    records, split = pd.read_csv(folder / "records.csv"), pd.read_csv(folder / "split.csv")
    strata = pd.read_csv(folder / "strata.csv").sort_values("row")
    states = pd.read_csv(folder / "states.csv").sort_values("index")["state"].tolist()
    train = split.sort_values("row")["split"].to_numpy() == "train"
    y = records["democrat"].to_numpy(float)[train]
    W0 = np.zeros((50, 21, 50, 21))
    years = np.arange(21)
    for a, b in pd.read_csv(folder / "state_neighbors.csv").to_numpy():
        a, b = states.index(a), states.index(b)
        W0[a, years, b, years] = W0[b, years, a, years] = 1.0
    for s in range(50):
        W0[s, years[1:], s, years[:-1]] = W0[s, years[:-1], s, years[1:]] = 4.0
    edges = AllPairs(1050)
    w0 = edges.from_matrix(W0.reshape(1050, 1050))
    loss = Bernoulli(y, strata["stratum"].to_numpy()[train], 1050)
    return JointProblem(loss, Box(1e-5, 1 - 1e-5), LogDet(0.2, 2.0, 1e-3, 0.1), edges, w0)
