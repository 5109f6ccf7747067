"""Red wine, good or bad, by density and sulphates: the paper's experiment with a two-column softmax.

Run ``python examples/wine.py PATH``, or set STRAT_DATA. The folder wine/ in it holds ``records.csv``, ``split.csv``
and ``strata.csv``. The strata are 10 x 10 bins of density and sulphates, the features eight others and a constant.

The paper's joint model starts from W0 = 0 and stops on the way: the row "joint, paper's steps" is its iteration 114.
The row "joint, minimised" goes on to a stationary point of the same objective.
"""

import os
import sys
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd

import strat


def data_folder(name):
    """Return the folder of one data set, or end with a sentence that says where to get it."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STRAT_DATA", ""))
    for folder in (root / name, root):
        if all((folder / file).is_file() for file in ("records.csv", "split.csv", "strata.csv")):
            return folder
    sys.exit(
        f"No data: give the folder that holds {name}/records.csv, split.csv and strata.csv as an argument or in "
        f"STRAT_DATA; they are made from data/{name}.csv of https://github.com/cvxgrp/joint-lrsm."
    )


def read():
    """Return (X, Y, z) of the training and of the test records: features, one-hot labels, strata."""
    folder = data_folder("wine")
    records, bins = pd.read_csv(folder / "records.csv"), pd.read_csv(folder / "strata.csv")
    train = (pd.read_csv(folder / "split.csv").split == "train").to_numpy()
    X = records.drop(columns=["density", "sulphates", "alcohol", "quality"]).to_numpy()
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    X = np.column_stack([X, np.ones(len(X))])
    good = (records.quality == "good").to_numpy()
    Y = np.column_stack([~good, good]).astype(float)
    z = np.array([bins.density_bin, bins.sulphates_bin]).T
    return [(X[part], Y[part], z[part]) for part in (train, ~train)]


def main():
    """Fit the models and print the table."""
    train, test = read()

    Theta = cp.Variable((9, 2), name="Theta")
    x, y = cp.Parameter(9, name="x"), cp.Parameter(2, name="y")  # ONE record
    scores = x @ Theta
    base = strat.BaseModel(
        loss=cp.log_sum_exp(scores) - scores @ y,
        regularizer=0.01 * cp.norm1(Theta),
        data=(x, y),
        predict=scores,
    )
    print(base, end="\n\n")

    graph = strat.graphs.grid(10, 10, weight=(20, 10), name=("density", "sulphates"))
    constants = {"lambda1": 5.0, "lambda2": 2e-3, "eta": 0.1, "mu": 0.2, "scale": 0.0}  # scale 0: W0 = 0
    paper = strat.MAPG(step=(1e-3, 1e-4), max_iter=114, tol=0)
    models = {
        "common": strat.common(base, graph),
        "separate": strat.separate(base, graph),
        "LRSM": strat.lrsm(base, graph),
        "joint, paper's steps": strat.joint(base, graph, solver=paper, **constants),
        "joint, minimised": strat.joint(base, graph, **constants),
    }
    rows = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fixed steps end before any tolerance; notes are printed below
            model.fit(*train[:2], strata=train[2], init="zero")
        wrong = model.predict(test[0], strata=test[2]).argmax(1) != test[1].argmax(1)
        rows[name] = {
            "objective": f"{model.result_.objective:.6f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "train loss": f"{-model.score(*train[:2], strata=train[2]):.4f}",
            "test loss": f"{-model.score(*test[:2], strata=test[2]):.4f}",
            "test error": f"{wrong.mean():.1%}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    print(pd.DataFrame.from_dict(rows, orient="index").to_string())
    print(
        "\nLosses are means over records. Objectives compare where they are the same function: the two joint rows.\n"
        "A lower objective is not a better prediction; which row to trust is for records outside this table to say."
    )
    for name, model in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")


if __name__ == "__main__":
    main()
