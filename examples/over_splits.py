"""Compare models over many splits, with constants chosen on the training records alone.

In every split, the constants of each model are chosen by cross-validation on the training records, the model is fitted to all of
them, and then evaluated on the test records. The LRSM has one weight for each factor of the graph and a ridge, chosen by
``strat.search``. The models that learn the graph use that ridge; lambda1 and lambda2 (or the scale of the prior graph) are
chosen from a grid around the paper's constants.

A free intercept suits coupled models but not separate ones: in a stratum whose few labels are equal it grows without bound.
The separate models are therefore also fitted with a ridge on the intercept.
"""

import sys
import time
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, train_test_split

import strat

RIDGES = np.logspace(-4, 2, 7)
FEW = 3  # folds for the models that learn the graph, whose fits take longer


def linear(loss, features, smoothing=None):
    """Declare a linear model with a ridge, once with a free intercept and once with the ridge on it too.

    Parameters
    ----------
    loss : callable
        ``loss(y, u)``, an expression of the label and of ``u = x @ theta + b``.
    features : int
        Length of x.
    smoothing : float, optional
        Width of smoothed kinks, as of `strat.BaseModel`.

    Returns
    -------
    tuple
        Two of `strat.BaseModel`.
    """
    theta, b = cp.Variable(features, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(features, name="x"), cp.Parameter(name="y")  # ONE record
    ridge = cp.Parameter(nonneg=True, name="ridge", value=1.0)
    u = x @ theta + b
    squares = cp.sum_squares(theta), cp.sum_squares(theta) + cp.square(b)
    return tuple(
        strat.BaseModel(loss(y, u), ridge * s, data=(x, y), predict=u, smoothing=smoothing) for s in squares
    )


def models_of_split(bases, graph, train, folds, learned, seed):
    """Choose the constants of every model on `train` and fit it.

    Parameters
    ----------
    bases : tuple of BaseModel
        With a hyperparameter Parameter "ridge"; the second one, if any, for another row of separate models.
    graph : networkx.Graph
        The expert graph, a product.
    train : tuple
        ``(*data, strata)``.
    folds : int or splitter
        For the cross-validation.
    learned : dict
        ``{name: (model, grid)}`` of models that learn W; "tuned" as a grid's scale stands for the LRSM's choice.
    seed : int
        Of the folds.

    Returns
    -------
    dict
        ``{name: fitted model}``.
    """
    base, *penalised = bases
    search = {"train": train, "folds": folds, "random_state": seed}
    simple = {"common": strat.common(base, graph), "separate": strat.separate(base, graph)}
    simple["LRSM"] = strat.lrsm(base, graph)
    if penalised:
        simple["separate, ridge on b"] = strat.separate(penalised[0], graph)
    found = strat.search(simple, **search)
    choices = {row["candidate"]: row["constants"] for row in found.table if row["error"] is None}
    models = {}
    for name in ("LRSM, one scale", *simple):
        models[name] = clone(simple[name.removesuffix(", one scale")]).set_params(**choices[name])
    expert = strat.lrsm(base, graph)
    models["LRSM, given weights"] = best_of_grid(expert, {"base__ridge": RIDGES}, train, folds, seed)
    for name, (model, grid) in learned.items():
        model = clone(model).set_params(base__ridge=choices["LRSM"]["base__ridge"])
        if grid.get("scale") == "tuned":
            model.set_params(**{key: v for key, v in choices["LRSM"].items() if key.startswith("scale")})
        values = {key: value for key, value in grid.items() if key != "scale"}
        models[name] = best_of_grid(model, values, train, folds, seed)
    return {name: model.fit(*train[:-1], strata=train[-1]) for name, model in models.items()}


def best_of_grid(model, grid, train, folds, seed):
    """Return the model with the constants of a grid that have the lowest cross-validated loss."""
    tried = [clone(model).set_params(**constants) for constants in ParameterGrid(grid)]
    if len(tried) == 1:
        return tried[0]
    *data, z = train
    splitter = strat.StrataKFold(min(folds, FEW), random_state=seed) if isinstance(folds, int) else folds
    pairs = list(splitter.split(z, groups=z))

    def loss(candidate):
        losses = []
        for rows, out in pairs:
            fitted = clone(candidate).fit(*(d[rows] for d in data), strata=[z[i] for i in rows])
            losses.append(fitted.losses(*(d[out] for d in data), strata=[z[i] for i in out]))
        return np.concatenate(losses).mean()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about joint fits that collapse
        return min(tried, key=loss)


def random_splits(records, labels, count, share=0.2):
    """Yield (train, test) of `count` random splits, each ``(X, labels, strata)``, `share` of the records in test."""
    for seed in range(count):
        train, test = train_test_split(np.arange(len(labels)), test_size=share, random_state=seed)
        yield tuple((X, labels[rows], z) for rows in (train, test) for X, z in [records.part(rows, train)])


def sign_figures(model, test):
    """Return log-loss and share of errors of a model whose prediction is a margin, for labels 1 and -1."""
    *data, z = test
    margin = model.predict(*data[:-1], strata=z)
    return {
        "ANLL": -model.score(*data, strata=z),
        "error %": 100 * np.mean((margin > 0) != (data[-1] > 0)),
    }


def compare(splits, bases, graph, folds, learned, figures):
    """Print the mean and standard error over splits of every figure of every model, and differences to the LRSM.

    Parameters
    ----------
    splits : iterable
        Of pairs (train, test), each ``(*data, strata)``.
    bases, graph, folds, learned
        As `models_of_split` takes them.
    figures : callable
        ``figures(model, test)`` gives a dict of numbers; the first one orders the table.
    """
    rows, started = {}, time.perf_counter()
    for seed, (train, test) in enumerate(splits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = models_of_split(bases, graph, train, folds, learned, seed)
            for name, model in models.items():
                rows.setdefault(name, []).append(figures(model, test))
        print(f"split {seed}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    first = next(iter(rows["LRSM"][0]))
    reference = np.array([figure[first] for figure in rows["LRSM"]])
    order = sorted(rows, key=lambda name: np.mean([figure[first] for figure in rows[name]]))
    table = {}
    for name in order:
        frame = pd.DataFrame(rows[name])
        table[name] = {column: _mean(frame[column]) for column in frame}
        table[name][f"{first}, to LRSM"] = "" if name == "LRSM" else _mean(frame[first] - reference, sign="+")
    count = len(reference)
    print(f"Mean ± standard error over {count} splits, constants chosen on each training part:")
    print(pd.DataFrame.from_dict(table, orient="index").to_string(), end="\n\n")


def _mean(values, sign=""):
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():{sign}.4f} ± {error:.4f}"
