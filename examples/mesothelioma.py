"""Diagnosis of 324 patients by sex and age: the paper's table, and one over many splits.

Run ``python examples/mesothelioma.py FOLDER``, or set STRAT_DATA. The strata are two sexes times the ages 19 to 85;
there are 46 features. ``--splits 10`` is the default and takes minutes; ``--splits 0`` leaves that part out.

The paper does not give the ridge of its common and separate models; here it is that of the LRSM. The test part has 33
records, so one record is three percent, and the models differ in only a few of them.
"""

import warnings

import cvxpy as cp
import numpy as np
from over_splits import compare, linear, random_splits, sign_figures
from paper import arguments, classification, mesothelioma, mesothelioma_graph, table

import strat

COLUMNS = ("error %", "ANLL", "AUC", "F1")


def papers_protocol(records):
    """Fit the paper's models to its split, print its table beside ours, and return the fits."""
    train, test = records.train, ~records.train
    (X, z), (X_test, z_test) = (records.part(part, train, constant=True) for part in (train, test))
    Y = np.column_stack([1 - records.y, records.y])[train]

    Theta = cp.Variable((47, 2), name="Theta")
    x, y = cp.Parameter(47, name="x"), cp.Parameter(2, name="y")  # ONE record
    ridge = cp.Parameter(nonneg=True, name="ridge", value=0.3)
    scores = x @ Theta
    base = strat.BaseModel(
        loss=cp.log_sum_exp(scores) - scores @ y,
        regularizer=ridge / 2 * cp.sum_squares(Theta),
        data=(x, y),
        predict=scores,
    )
    print(base, end="\n\n")

    graph = mesothelioma_graph()
    constants = {"lambda1": 100.0, "lambda2": 12.0, "eta": 0.1, "mu": 20.0}
    models = {
        "common": strat.common(base, graph),
        "separate": strat.separate(base, graph),
        "LRSM": strat.lrsm(base, graph),
        "joint, minimised": strat.joint(base, graph, **constants).set_params(base__ridge=0.2),
    }
    rows = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes are printed below
            model.fit(X, Y, strata=z)
            margin = model.predict(X_test, strata=z_test) @ [-1, 1]
        rows[name] = classification(records.y[test], 1 / (1 + np.exp(-margin)))
        rows[name] |= {
            "objective": f"{model.result_.objective:.6f}",
            "residual": f"{max(model.result_.residual.values()):.0e}",
            "seconds": f"{model.result_.seconds:.2f}",
        }
    table("mesothelioma", rows, COLUMNS)
    for name, model in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")
    return models


def tuned(records, count):
    """Compare logistic models with a ridge and a free intercept over random splits."""
    bases = linear(lambda y, u: cp.logistic(-y * u), 46)
    base = bases[0]
    graph = mesothelioma_graph()
    grid = {"graph_regularizer__lambda1": [1.0, 100.0], "graph_regularizer__lambda2": [0.12, 12.0]}
    learned = {
        "joint, W0 = graph": (strat.joint(base, graph, lambda1=100.0, lambda2=12.0, eta=0.1, mu=20.0), grid),
        "joint, W0 = tuned graph": (
            strat.joint(base, graph, lambda1=100.0, lambda2=12.0, eta=0.1, mu=20.0),
            {"scale": "tuned", **grid},
        ),
    }

    compare(random_splits(records, 2 * records.y - 1, count), bases, graph, 5, learned, sign_figures)


def pictures(models, place):
    """Draw how the joint model changed the weights."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(13, 5.5), layout="constrained")
    strat.plot.weights(models["joint, minimised"], ax=axes[0])
    strat.plot.weights(models["joint, minimised"], prior=True, ax=axes[1])
    figure.savefig(f"{place}/mesothelioma.png", dpi=120, bbox_inches="tight")


def main():
    """Print both tables."""
    options = arguments("Diagnosis of mesothelioma by sex and age.", splits=10)
    records = mesothelioma(options.data)
    models = papers_protocol(records)
    if options.splits:
        tuned(records, options.splits)
    if options.pictures:
        pictures(models, options.pictures)


if __name__ == "__main__":
    main()
