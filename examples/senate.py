"""US Senate, Democrat elected or not, by state and year: the paper's Bernoulli experiment without features.

Run ``python examples/senate.py PATH``, or set STRAT_DATA. The folder election/ in it holds ``records.csv``,
``split.csv``, ``states.csv`` and ``state_neighbors.csv``. The elections of 2014 and 2016 are held out: their strata
have no record, and what the models say about them comes through the graph alone.

``--paper`` adds the paper's run: 940 iterations of fixed steps, which take minutes.
"""

import os
import sys
import warnings
from pathlib import Path

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd

import strat

FILES = ("records", "split", "states", "state_neighbors")


def data_folder(name):
    """Return the folder of one data set, or end with a sentence that says where to get it."""
    given = [argument for argument in sys.argv[1:] if argument != "--paper"]
    root = Path(given[0] if given else os.environ.get("STRAT_DATA", ""))
    for folder in (root / name, root):
        if all((folder / f"{file}.csv").is_file() for file in FILES):
            return folder
    sys.exit(
        f"No data: give the folder that holds {name}/records.csv, split.csv, states.csv and state_neighbors.csv as an "
        f"argument or in STRAT_DATA; they are made from the data/ folder of https://github.com/cvxgrp/joint-lrsm."
    )


def read():
    """Return (y, z) of the training and of the test records, and the graph over states and years."""
    folder = data_folder("election")
    records = pd.read_csv(folder / "records.csv")
    train = (pd.read_csv(folder / "split.csv").split == "train").to_numpy()
    y, z = records.democrat.to_numpy(float), records[["state", "year"]]
    states = nx.Graph(name="state")
    states.add_nodes_from(pd.read_csv(folder / "states.csv").state)
    states.add_edges_from(pd.read_csv(folder / "state_neighbors.csv").to_numpy().tolist(), weight=1.0)
    graph = strat.graphs.product(states, strat.graphs.path(range(1976, 2017, 2), weight=4, name="year"))
    return [(y[part], list(z[part].itertuples(index=False, name=None))) for part in (train, ~train)], graph


def main():
    """Fit the models and print the table."""
    (train, test), graph = read()

    p, y = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="y")  # ONE record
    base = strat.BaseModel(loss=-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,), predict=p)
    print(base, end="\n\n")

    constants = {"lambda1": 0.2, "lambda2": 2.0, "eta": 1e-3, "mu": 0.1}
    half = {"theta": {"p": np.full(len(graph), 0.5)}}
    models = {  # model and start; p = 1/2 stays where a stratum has neither record nor edge
        "common": (strat.common(base, graph), None),
        "separate": (strat.separate(base, graph), half),
        "LRSM": (strat.lrsm(base, graph), half),
        "joint, minimised": (strat.joint(base, graph, **constants), "zero"),
    }
    if "--paper" in sys.argv:
        paper = strat.MAPG(step=(1e-3, 5e-5), max_iter=940, tol=0)
        models["joint, paper's steps"] = (strat.joint(base, graph, solver=paper, **constants), "zero")
    rows = {}
    for name, (model, init) in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fixed steps end before any tolerance; notes are printed below
            model.fit(train[0], strata=train[1], init=init)
        wrong = (model.predict(strata=test[1]) > 0.5) != (test[0] == 1)
        rows[name] = {
            "objective": f"{model.result_.objective:.6f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "train loss": f"{-model.score(train[0], strata=train[1]):.4f}",
            "test loss": f"{-model.score(test[0], strata=test[1]):.4f}",
            "test error": f"{wrong.mean():.1%}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    print(pd.DataFrame.from_dict(rows, orient="index").to_string())
    print(
        "\nLosses are means over records. Objectives compare where they are the same function, in joint rows.\n"
        "Separate knows nothing of the held-out years: its p = 1/2 there is the starting value."
    )
    for name, (model, _) in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")


if __name__ == "__main__":
    main()
