"""The default search on one random split of the paper's wine and concrete data (K = 100, 3 folds), and a warm refit.

Reads the folders wine/ and concrete/ in STRAT_DATA. Prints the table of each search with its CPU seconds and seconds a fit,
and the test losses of the chosen model, of the paper's weights with the chosen ridge, and of the common model; then
the milliseconds of a refit for a scale and for a ridge 1.5 times as large, from the solution before, as a ratio to
a fresh ``fit``. Takes the number of the split (seed) as argument, 0 by default. With ``--jobs`` it prints instead the
seconds of the wine search (10 folds) with one process and with two, before and after these have been started.
"""

import os
import sys
from pathlib import Path
from time import perf_counter, process_time

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

import strat
from strat.model.fit import Refits

WINE = ["fixed_acidity", "volatile_acidity", "citric_acid", "residual_sugar", "chlorides"]
WINE += ["free_sulfur_dioxide", "total_sulfur_dioxide", "ph"]
CONCRETE = ["cement", "blast_furnace_slag", "water", "superplasticizer", "coarse_aggregate", "fine_aggregate"]


def declaration(n, loss, **options):
    """A linear model with a ridge on the slopes; the intercept is a variable of its own, which nothing penalises."""
    theta, b = cp.Variable(n, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    ridge = cp.Parameter(nonneg=True, value=1.0, name="ridge")
    u = x @ theta + b
    return strat.BaseModel(loss(y, u), ridge * cp.sum_squares(theta), data=(x, y), predict=u, **options)


def wine(root):
    """Declaration, features, labels, strata, names of the factors, the paper's weights."""
    frame, strata = pd.read_csv(root / "wine" / "records.csv"), pd.read_csv(root / "wine" / "strata.csv")
    base = declaration(len(WINE), lambda y, u: cp.logistic(-cp.multiply(y, u)))
    y = np.where(frame.quality == "good", 1.0, -1.0)
    z = strata[["density_bin", "sulphates_bin"]].to_numpy()
    return base, frame[WINE].to_numpy(float), y, z, ("density", "sulphates"), (20.0, 10.0)


def concrete(root):
    """Declaration, features, strengths, strata, names of the factors, the paper's weights."""
    frame = pd.read_csv(root / "concrete" / "records.csv")
    base = declaration(len(CONCRETE), lambda y, u: cp.maximum(0.9 * (y - u), -0.1 * (y - u)), smoothing=0.1)
    z = np.array([pd.cut(frame[name], 10, labels=False) for name in ("age_days", "fly_ash")]).T
    y = frame.compressive_strength_mpa.to_numpy(float)
    return base, frame[CONCRETE].to_numpy(float), y, z, ("age", "fly ash"), (0.5, 0.5)


def run(name, base, X, y, z, names, weights, seed):
    """Search one split and print what came of it."""
    inside, outside = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
    X = (X - X[inside].mean(axis=0)) / X[inside].std(axis=0)
    train, test = ((X[part], y[part], z[part]) for part in (inside, outside))
    paths = [strat.graphs.path(range(10), name=factor) for factor in names]
    graph = strat.graphs.product(*paths)
    started = process_time()
    found = strat.search({"lrsm": strat.lrsm(base, graph)}, train=train, folds=3)
    seconds = process_time() - started
    fits = 3 * sum(row["trials"] for row in found.table)
    print(f"{name}, split {seed}\n{found}")
    print(f"{seconds:.1f} CPU s, {fits} fits on folds, {1e3 * seconds / fits:.0f} ms each")
    best = {row["candidate"]: row["constants"] for row in found.table}
    paper = strat.lrsm(base, graph, scale=dict(zip(names, weights, strict=True)))
    models = {
        "chosen": found.best,
        "the paper's weights": paper.set_params(base__ridge=best["lrsm"]["base__ridge"]),
        "common": strat.common(base, graph).set_params(**best["common"]),
    }
    print(strat.compare(models, train=train, test=test), end="\n\n")
    refit(found.best, train, names)


def refit(model, train, names):
    """Time warm refits against a fresh fit."""
    refits = Refits(model, train[:2], train[2])
    (_, first), ridge = refits.fit(), model.values.get("ridge", 1.0)
    scale = model._scales()
    cases = {
        "another scale": {"scale": {**scale, names[0]: 1.5 * scale[names[0]]}}
        if names[0] in scale
        else {"scale": 1.5},
        "another ridge": {"values": {"ridge": 1.5 * ridge}},
    }
    fresh = seconds_of(lambda: strat.StratifiedModel.fit(model, *train[:2], strata=train[2]))
    print(f"a fresh fit         {1e3 * fresh:6.1f} ms CPU")
    for label, constants in cases.items():
        warm = seconds_of(lambda constants=constants: refits.fit(first.theta, **constants))
        print(f"{label:18}  {1e3 * warm:6.1f} ms CPU, {fresh / warm:.1f} times as fast")
    print()


def processes(base, X, y, z, names, weights):
    """Time a search with one process and with two."""
    model = strat.lrsm(base, strat.graphs.product(*(strat.graphs.path(range(10), name=n) for n in names)))
    train, seconds, chosen = ((X - X.mean(axis=0)) / X.std(axis=0), y, z), [], []
    for n_jobs in (1, 2, 2, 1, 2, 1):
        started = perf_counter()
        found = strat.search({"lrsm": model}, train=train, folds=10, n_jobs=n_jobs)
        seconds.append(perf_counter() - started)
        chosen.append([(row["candidate"], row["mean"], row["constants"]) for row in found.table])
        print(f"n_jobs={n_jobs}  {seconds[-1]:.1f} s")
    one, two = min(seconds[0::5] + seconds[3:4]), min(seconds[2], seconds[4])
    print(
        f"two processes, once started, are {one / two:.2f} times as fast; the same result: {all(c == chosen[0] for c in chosen)}"
    )


def seconds_of(function, times=5):
    """Least CPU seconds of a few calls."""
    seconds = []
    for _ in range(times):
        started = process_time()
        function()
        seconds.append(process_time() - started)
    return min(seconds)


def main():
    """Run both data sets."""
    root = Path(os.environ.get("STRAT_DATA", ""))
    if "--jobs" in sys.argv:
        processes(*wine(root))
        return
    if not (root / "wine" / "records.csv").is_file():
        sys.exit("Set STRAT_DATA to the folder with wine/ and concrete/.")
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for name, read in (("wine", wine), ("concrete", concrete)):
        run(name, *read(root), seed)


if __name__ == "__main__":
    main()
