"""Red wine, good or bad, by density and sulphates: the paper's table, and one over many splits.

Run ``python examples/wine.py FOLDER``, or set STRAT_DATA. The strata are 10 x 10 bins of density and sulphates;
there are eight features. ``--splits 10`` is the default and takes minutes; ``--splits 0`` leaves that part out.

The paper's protocol is a two-column softmax on one split. The paper's joint model starts from W0 = 0 and is not minimised: the
row "joint, paper's stop" is its iterate 114, and "joint, minimised" continues to a stationary point of the same objective.
The paper does not give the constants of Log-Diagonal and Tr-Constraint; here they are chosen by cross-validation on the
training part.
"""

import warnings

import cvxpy as cp
import numpy as np
from over_splits import best_of_grid, compare, linear, random_splits, sign_figures
from paper import arguments, classification, table, wine

import strat

COLUMNS = ("error %", "ANLL", "AUC", "F1")
LOG_DIAGONAL = {"graph_regularizer__lambda1": [1.0, 10.0, 100.0], "graph_regularizer__lambda2": [0.02, 2.0]}
TRACE = {"graph_regularizer__lambda1": [300.0, 3000.0, 30000.0], "graph_regularizer__lambda2": [1e-2, 1.0]}


def papers_protocol(records):
    """Fit the paper's models to its split, print its table beside ours, and return the fits."""
    train, test = records.train, ~records.train
    (X, z), (X_test, z_test) = (records.part(part, train, constant=True) for part in (train, test))
    Y = np.column_stack([1 - records.y, records.y])[train]

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
        "log-diagonal": best_of_grid(
            strat.log_diagonal(base, graph, lambda1=1, lambda2=1), LOG_DIAGONAL, (X, Y, z), 3, 0
        ),
        "trace constraint": best_of_grid(
            strat.trace_constraint(base, graph, lambda1=1, lambda2=1), TRACE, (X, Y, z), 3, 0
        ),
        "joint, paper's stop": strat.joint(base, graph, solver=paper, **constants),
        "joint, minimised": strat.joint(base, graph, **constants),
    }
    rows = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes are printed below
            model.fit(X, Y, strata=z, init="zero")
            margin = model.predict(X_test, strata=z_test) @ [-1, 1]
        rows[name] = classification(records.y[test], 1 / (1 + np.exp(-margin)))
        rows[name] |= {
            "objective": f"{model.result_.objective:.6f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    table("wine", rows, COLUMNS)
    for name, model in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")
    return models


def tuned(records, count):
    """Compare logistic models with a ridge and a free intercept over random splits."""
    bases = linear(lambda y, u: cp.logistic(-y * u), 8)
    base = bases[0]
    graph = strat.graphs.grid(10, 10, weight=(20, 10), name=("density", "sulphates"))
    grid = {"graph_regularizer__lambda1": [0.5, 5.0], "graph_regularizer__lambda2": [2e-3, 0.2, 20.0]}
    joint = strat.joint(base, graph, lambda1=5.0, lambda2=2e-3, eta=0.1, mu=0.2)
    learned = {
        "joint, W0 = 0": (joint.set_params(scale=0.0), grid),
        "joint, W0 = tuned graph": (
            strat.joint(base, graph, lambda1=5.0, lambda2=2e-3, eta=0.1, mu=0.2),
            {"scale": "tuned", **grid},
        ),
        "log-diagonal": (strat.log_diagonal(base, graph, lambda1=1, lambda2=1), LOG_DIAGONAL),
        "trace constraint": (strat.trace_constraint(base, graph, lambda1=1, lambda2=1), TRACE),
    }

    compare(random_splits(records, 2 * records.y - 1, count), bases, graph, 5, learned, sign_figures)


def pictures(models, place):
    """Draw the weights, the coefficients and the objective of the joint model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    strat.plot.weights(models["joint, paper's stop"], ax=axes[0])
    strat.plot.parameters(models["joint, paper's stop"], "Theta", index=(1, 1), ax=axes[1])
    strat.plot.history({k: m for k, m in models.items() if k.startswith("joint")}, ax=axes[2])
    figure.savefig(f"{place}/wine.png", dpi=120, bbox_inches="tight")


def main():
    """Print both tables."""
    options = arguments("Red wine, good or bad, by density and sulphates.", splits=10)
    records = wine(options.data)
    models = papers_protocol(records)
    if options.splits:
        tuned(records, options.splits)
    if options.pictures:
        pictures(models, options.pictures)


if __name__ == "__main__":
    main()
