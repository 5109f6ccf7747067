"""US Senate, Democrat elected or not, by state and year: the paper's table, and one over many splits.

Run ``python examples/senate.py FOLDER``, or set STRAT_DATA. There are no features; every stratum has one record or
none. In the paper's protocol the elections of 2014 and 2016 are held out: predictions for them come through the graph
alone. ``--paper`` adds the paper's joint run, 940 iterations with fixed steps, which takes minutes.

The second part predicts each of the last six elections from all earlier ones, with constants chosen by rolling origins
within those; ``--splits 0`` leaves it out. The joint models there keep the paper's constants.
"""

import argparse
import os
import warnings

import cvxpy as cp
import numpy as np
from over_splits import compare, sign_figures
from paper import classification, senate, senate_graph, table

import strat

COLUMNS = ("error %", "ANLL", "AUC", "F1")


def papers_protocol(y, z, train, graph, with_paper):
    """Fit the paper's models to its split, print its table beside ours, and return the fits."""
    inside, outside = ([z[i] for i in np.flatnonzero(part)] for part in (train, ~train))

    p, outcome = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="y")  # ONE record
    loss = -outcome * cp.log(p) - (1 - outcome) * cp.log(1 - p)
    base = strat.BaseModel(loss=loss, data=(outcome,), predict=p)
    print(base, end="\n\n")

    constants = {"lambda1": 0.2, "lambda2": 2.0, "eta": 1e-3, "mu": 0.1}
    half = {"theta": {"p": np.full(len(graph), 0.5)}}
    models = {  # model and start; p stays at 1/2 in a stratum without records and edges
        "common": (strat.common(base, graph), None),
        "separate": (strat.separate(base, graph), half),
        "LRSM": (strat.lrsm(base, graph), half),
        "joint, minimised": (strat.joint(base, graph, **constants), "zero"),
    }
    if with_paper:
        paper = strat.MAPG(step=(1e-3, 5e-5), max_iter=940, tol=0)
        models["joint, paper's stop"] = (strat.joint(base, graph, solver=paper, **constants), "zero")
    rows = {}
    for name, (model, init) in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes are printed below
            model.fit(y[train], strata=inside, init=init)
            rows[name] = classification(y[~train], model.predict(strata=outside), average="binary")
        rows[name] |= {
            "objective": f"{model.result_.objective:.6f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    table("senate", rows, COLUMNS)
    print(
        "The separate models have no records of the held-out years: their p = 1/2 there is the starting value."
    )
    for name, (model, _) in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")
    return {name: model for name, (model, _) in models.items()}


def tuned(y, z, graph, count):
    """Predict each election from the earlier ones."""
    b, side = cp.Variable(name="b"), cp.Parameter(name="y")
    ridge = cp.Parameter(nonneg=True, name="ridge", value=0.1)
    base = strat.BaseModel(cp.logistic(-side * b), ridge * cp.square(b), data=(side,), predict=b)
    learned = {
        "joint, W0 = graph": (strat.joint(base, graph, lambda1=0.2, lambda2=2.0, eta=1e-3, mu=0.1), {}),
        "joint, W0 = tuned graph": (
            strat.joint(base, graph, lambda1=0.2, lambda2=2.0, eta=1e-3, mu=0.1),
            {"scale": "tuned"},
        ),
    }

    def part(rows):
        return 2 * y[rows] - 1, [z[i] for i in rows]

    pairs = strat.RollingOrigin(count, time=1).split(y, groups=z)
    folds = strat.RollingOrigin(4, time=1)
    compare(((part(a), part(b)) for a, b in pairs), (base,), graph, folds, learned, sign_figures)


def pictures(models, place):
    """Draw the probabilities over states and years, of the LRSM and the joint model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(14, 9), layout="constrained")
    for ax, name in zip(axes, ("LRSM", "joint, minimised"), strict=True):
        strat.plot.parameters(models[name], ax=ax, cmap="RdBu", vmin=0, vmax=1)
        ax.set_title(f"Probability that a Democrat wins: {name}")
    figure.savefig(f"{place}/senate.png", dpi=120, bbox_inches="tight")


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description="US Senate elections by state and year.")
    parser.add_argument(
        "data",
        nargs="?",
        default=os.environ.get("STRAT_DATA", ""),
        help="folder of the data sets (STRAT_DATA)",
    )
    parser.add_argument("--splits", type=int, default=6, help="origins of the second table")
    parser.add_argument("--paper", action="store_true", help="run the paper's fixed steps too")
    parser.add_argument("--pictures", default=None, help="folder for pictures; none are drawn without it")
    options = parser.parse_args()
    records, graph = senate(options.data), senate_graph(options.data)
    models = papers_protocol(records.y, records.z, records.train, graph, options.paper)
    if options.splits:
        tuned(records.y, records.z, graph, options.splits)
    if options.pictures:
        pictures(models, options.pictures)


if __name__ == "__main__":
    main()
