"""Hypergradients against central differences of whole fits, solved afresh for each weight and hyperparameter."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import strat

K, N, H = 6, 110, 7e-5
TIGHT = strat.NewtonCG(tol=1e-12, max_iter=60)
LABELS = list("abcdef")
LAM = cp.Parameter(nonneg=True, name="lam", value=0.4)


def weights(seed=0):
    """A graph with edges of weight 0: a cycle and a chord."""
    rng = np.random.default_rng(seed)
    W = np.zeros((K, K))
    i, j = np.arange(K), (np.arange(K) + 1) % K
    W[i, j] = rng.uniform(0.5, 3.0, K)
    W[2, 3] = 0.0
    return W + W.T


def graph(W):
    g = nx.Graph()
    g.add_nodes_from(LABELS)
    g.add_weighted_edges_from(
        (LABELS[i], LABELS[j], W[i, j]) for i, j in [(0, 1), (2, 3), *np.argwhere(np.triu(W))]
    )
    return g


def declared(loss, regularizer, **options):
    """A base model, and a function that draws its records."""
    theta = cp.Variable((3, 3) if loss == "softmax" else 3, name="theta")
    b, x = cp.Variable(name="b"), cp.Parameter(3, name="x")
    y = cp.Parameter(3, name="y") if loss == "softmax" else cp.Parameter(name="y")
    u = x @ theta + (0 if loss == "softmax" else b)
    expression = {
        "squared": lambda: cp.square(y - u) / 2,
        "logistic": lambda: cp.logistic(-cp.multiply(y, u)),
        "softmax": lambda: cp.log_sum_exp(u) - y @ u + 0.1 * cp.square(b),
        "poisson": lambda: cp.exp(u) - y * u,
    }[loss]()
    ridge = 0.1 * cp.sum_squares(theta) + 0.05 * cp.square(b)
    r, constraints = {
        "ridge": lambda: (LAM * cp.sum_squares(theta) + 0.05 * cp.square(b), []),
        "l1": lambda: (3 * LAM * cp.norm1(theta) + 0.01 * cp.square(b), []),
        "box": lambda: (ridge, [theta <= LAM / 3, theta >= -LAM]),
        "group": lambda: (
            5 * LAM * cp.norm(theta, "fro" if theta.ndim == 2 else 2) + 0.05 * cp.square(b),
            [],
        ),
    }[regularizer]()
    return strat.BaseModel(expression, r, constraints, data=(x, y), **options)


def records(loss, seed, N=N):
    rng = np.random.default_rng(seed)
    X, z = rng.standard_normal((N, 3)), rng.integers(K - 1, size=N)  # none in the last stratum
    u = 0.7 * X @ np.array([1.0, -0.5, 0.1]) + 0.4 * np.sin(z)
    Y = {
        "squared": lambda: u + rng.standard_normal(N),
        "logistic": lambda: np.where(u + rng.logistic(size=N) > 0, 1.0, -1.0),
        "softmax": lambda: np.eye(3)[np.digitize(u + rng.logistic(size=N), [-0.5, 0.5])],
        "poisson": lambda: rng.poisson(np.exp(u)).astype(float),
    }[loss]()
    return X, Y, [LABELS[k] for k in z]


def fit(model, train, weight=None, init=None, **params):
    model = strat.StratifiedModel.__sklearn_clone__(model).set_params(**params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*train[:-1], strata=train[-1], sample_weight=weight, init=init)


def difference(f, at=0.0):
    """Derivative of f at `at`, from above alone where at = 0."""
    if at == 0:
        h = H / 5
        return (-3 * f(0) + 4 * f(h) - f(2 * h)) / (2 * h)
    return (f(at + H) - f(at - H)) / (2 * H)


class Refit:
    """Validation loss of solved fits nearby."""

    def __init__(self, model, train, validation, weight=None):
        self.model, self.train, self.validation, self.weight = model, train, validation, weight
        self.start = {"theta": model.theta_}

    def loss(self, **params):
        found = fit(self.model, self.train, self.weight, self.start, solver=TIGHT, **params)
        return -found.score(*self.validation[:-1], strata=self.validation[-1])

    def in_edge(self, W, i, j):
        def loss(w):
            moved = W.copy()
            moved[i, j] = moved[j, i] = w
            return self.loss(graph=(LABELS, moved))

        return difference(loss, W[i, j])

    def in_value(self, name, value):
        """Derivative in every entry of a hyperparameter."""
        value = np.array(value, dtype=float)
        out = np.zeros(value.shape)
        for index in np.ndindex(value.shape):

            def loss(v, index=index):
                moved = value.copy()
                moved[index] = v
                return self.loss(**{f"base__{name}": moved})

            out[index] = difference(loss, value[index])
        return out


def close(value, reference, scale, tolerance=1e-6):
    assert np.abs(np.asarray(value) - reference).max() <= tolerance * max(
        np.abs(scale).max(), np.abs(reference).max()
    )


# An edge, one of weight 0, one to the stratum without records, and pairs without an edge.
PAIRS = [(0, 1), (2, 3), (4, 5), (0, 3), (1, 5)]


@pytest.mark.parametrize("regularizer", ["ridge", "l1", "box", "group"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "poisson"])
def test_central_differences_of_solved_fits(loss, regularizer):
    base, train, validation = declared(loss, regularizer), records(loss, 0), records(loss, 1, 50)
    weight = np.random.default_rng(2).integers(3, size=N) / 2
    W = weights()
    model = fit(strat.lrsm(base, graph(W)), train, weight)
    value, gradient = strat.hypergradient(model, validation, wrt=("W0", LAM))
    assert list(gradient) == ["W0", "lam"]
    refit = Refit(fit(model, train, weight, solver=TIGHT), train, validation, weight)
    assert value == pytest.approx(refit.loss(), rel=1e-10)
    slopes = np.array([refit.in_edge(W, *pair) for pair in PAIRS])
    assert np.abs(slopes).max() > 1e-5
    D = gradient["W0"]
    assert np.array_equal(D, D.T) and not D.diagonal().any()
    close([D[pair] for pair in PAIRS], slopes, D)
    close(gradient["lam"], refit.in_value("lam", 0.4), 0.0)


def test_couple_scales_and_hyperparameters_of_every_kind():
    """Several variables, a vector of l1 weights, a hyperparameter in the loss, couple, factors, strata named by column."""
    pd = pytest.importorskip("pandas")
    theta, b = cp.Variable(3, name="theta"), cp.Variable(2, name="b")
    x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
    M = cp.Parameter(nonneg=True, name="M", value=0.8)
    each = cp.Parameter(3, nonneg=True, name="each", value=[0.0, 2.0, 0.7])
    together = cp.Parameter(2, nonneg=True, name="together", value=[0.6, 0.0])
    base = strat.BaseModel(
        M * cp.logistic(-cp.multiply(y, x @ theta + b[0])) + cp.square(b[1] - M * b[0]),
        cp.norm1(cp.multiply(each, theta)) + 0.1 * cp.sum_squares(b) + 0.01 * cp.sum_squares(theta),
        data=(x, y),
        couple={"theta": [1.0, 0.3, 2.0], "b": together},
    )
    rows = strat.graphs.path(["f", "m"], weight=1.5, name="row")
    columns = strat.graphs.path([1, 2, 3], weight=0.7, name="column")
    tied = strat.graphs.product(rows, columns)
    tied.edges[("f", 1), ("m", 1)]["weight"] = 0.0
    labels = list(tied)

    def frames(seed, n):
        X, Y, z = records("logistic", seed, n)
        X = pd.DataFrame(X, columns=["p", "q", "r"])
        k = np.array([LABELS.index(label) for label in z])
        X["row"], X["column"] = ([labels[i][axis] for i in k] for axis in (0, 1))
        return X, Y, ["row", "column"]

    train, validation = frames(0, N), frames(1, 50)
    model = strat.lrsm(base, tied, scale={"row": 1.2})
    model = fit(model, train)
    wrt = ("scale", "M", each, "together")
    value, gradient = strat.hypergradient(model, validation, wrt=wrt)
    assert set(gradient) == {"scale", "M", "each", "together"} and gradient["each"].shape == (3,)
    refit = Refit(fit(model, train, solver=TIGHT), train, validation)
    assert value == pytest.approx(refit.loss(), rel=1e-10)
    for name, at in [("M", 0.8), ("each", each.value), ("together", together.value)]:
        close(gradient[name], refit.in_value(name, at), 0.0)
    for name, at in [("row", 1.2), ("column", 1.0)]:
        slope = difference(lambda s, name=name: refit.loss(**{f"scale__{name}": s}), at)
        assert gradient["scale"][name] == pytest.approx(slope, rel=1e-6)
    assert np.array_equal(each.value, [0.0, 2.0, 0.7])


def test_smoothed_losses_and_what_the_graph_does_not_couple():
    base, train = declared("squared", "l1", couple=()), records("squared", 0)
    model = fit(strat.lrsm(base, graph(weights())), train)
    _, gradient = strat.hypergradient(model, records("squared", 1), wrt=["W0", "lam"])
    assert not gradient["W0"].any() and gradient["lam"] != 0

    theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.abs(y - theta), 0.1 * cp.square(theta), data=(y,), smoothing=2.0)
    Y, z = np.array([0.3, 0.9, -1.0, 2.0, 0.1]), [0, 0, 1, 1, 2]
    model = strat.lrsm(base, strat.graphs.path(3)).fit(Y, strata=z)
    loss, gradient = strat.hypergradient(model, ([0.2, 0.5], [0, 1]), wrt="scale")
    assert loss < -model.score([0.2, 0.5], strata=[0, 1])  # the smoothed loss
    moved = [
        strat.lrsm(base, strat.graphs.path(3), scale=s, solver=TIGHT).fit(Y, strata=z) for s in (1 - H, 1 + H)
    ]
    low, high = (np.mean((m.theta_["theta"][:2] - [0.2, 0.5]) ** 2) / 4 for m in moved)
    assert gradient["scale"]["all"] == pytest.approx((high - low) / (2 * H), rel=1e-6)


def test_what_cvxpy_cannot_differentiate_is_refused():
    pytest.importorskip("diffcp")
    train = records("squared", 0, 20)
    smooth = declared("squared", "ridge", smoothing=1.0)
    with pytest.raises(strat.OptionError, match="the loss as declared, not its smoothing="):
        strat.hypergradient(fit(strat.lrsm(smooth, graph(weights())), train), train, method="cvxpy")
    base = declared("squared", "ridge")
    coupled = strat.BaseModel(base.loss, base.regularizer, data=base.data, couple={"theta": LAM})
    with pytest.raises(strat.OptionError, match="lam multiplies edge weights"):
        strat.hypergradient(fit(strat.lrsm(coupled, graph(weights())), train), train, LAM, method="cvxpy")
