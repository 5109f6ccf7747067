"""From the tuned variables to a model refitted to all records, a graph with the user's attributes, and a table."""

import networkx as nx
import numpy as np
from sklearn.base import clone

from strat.graphs.reading import read_graph
from strat.records.sample import joined
from strat.selection.tuning.choice import START, choices, losses
from strat.selection.tuning.result import Tuned

#: Strata up to which W0 among the parameters is an array.
DENSE_STRATA = 2000


def outcome(model, names, split, branches, branch, told, rounds, x, history, sample, others):
    """Make the result.

    Parameters
    ----------
    model : StratifiedModel
        The start.
    names : list of str
        What was tuned.
    split : Split or Folds
        The records.
    branches : dict
        The ways, by name.
    branch : str
        The one that was chosen.
    told : Guard
        The choice.
    rounds : list
        The paths.
    x : ndarray
        The variables of the chosen branch.
    history : list of float
        Mean validation losses.
    sample, others : Sample, Sample or None
        Training and validation records.

    Returns
    -------
    Tuned
        The result.
    """
    before, after = split.whole(branches["model"]), split.whole(branches[branch])
    folds = [
        {"records": int(old.count), "before": old.mean_loss(old.space.start), "after": new.mean_loss(x)}
        for old, new in zip(before.tasks, after.tasks, strict=True)
    ]
    space = branches[branch].space(split.train)
    w, values = space.at(x)
    W0 = as_networkx(model.graph, space.prior, w)
    tuned = clone(model)
    if told.improved:
        tuned.set_params(**{f"base__{name}": value for name, value in values.items()})
        scales = space.scales(x)
        scales = scales if space.prior.factors else scales["all"]
        if (
            "W0" not in names
            and branch == "model"
            and np.allclose(space.prior.weights(scales), w, rtol=1e-12)
        ):
            tuned.set_params(scale=scales)
        else:
            tuned.set_params(graph=W0, scale=1.0)
    everything = sample if others is None else joined(sample, others, [model])
    tuned.fit(*everything.data, strata=everything.strata)
    parameters = {}
    for name in names:
        if name == "W0":
            prior = read_graph(W0)
            parameters[name] = prior.matrix() if prior.K > DENSE_STRATA else prior.matrix().toarray()
        elif name == "scale":
            parameters[name] = space.scales(x)
        else:
            parameters[name] = values[name]
    return Tuned(
        model=tuned,
        W0=W0,
        parameters=parameters,
        improved=told.improved,
        gain=told.gain,
        gain_se=told.se,
        choice=_described(told.choice, branches),
        history=history,
        folds=folds,
        table=table(rounds, branches),
        changes=changes(model, W0),
    )


def as_networkx(graph, prior, w):
    """A networkx graph with weights w, with the nodes and attributes of the user's; new edges of weight 0 are left out."""
    old = graph if isinstance(graph, nx.Graph) else read_graph(graph).to_networkx()
    nodes = dict(zip(read_graph(old).labels, old, strict=True))
    new = nx.Graph(**old.graph)
    new.add_nodes_from(old.nodes(data=True))
    for i, j, weight in zip(prior.i.tolist(), prior.j.tolist(), w.tolist(), strict=True):
        u, v = nodes[prior.labels[i]], nodes[prior.labels[j]]
        known = old.has_edge(u, v)
        if weight > 0 or known:
            attributes = old.get_edge_data(u, v) if known else {}
            attributes = next(iter(attributes.values())) if known and old.is_multigraph() else attributes
            new.add_edge(u, v, **{**attributes, "weight": weight})
    return new


def table(rounds, branches):
    """One row for each stage: the held-out loss at its best step, and how much lower than the start's, with its s.e."""
    if not rounds:
        return []
    first = np.concatenate([losses(one, START) for one in rounds])
    rows = [{"tried": "start", "step": None, "loss": float(first.mean()), "gain": None, "gain_se": None}]
    best = {}
    for key in choices(rounds):
        if key[2]:
            mean = np.concatenate([losses(one, key) for one in rounds]).mean()
            if key[:2] not in best or mean < best[key[:2]][0]:
                best[key[:2]] = (mean, key)
    for mean, key in best.values():
        gap = first - np.concatenate([losses(one, key) for one in rounds])
        se = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 and np.isfinite(gap).all() else None
        rows.append(
            {
                "tried": _described(key, branches, step=False),
                "step": key[2] if branches[key[0]].stages[key[1]].many else None,
                "loss": float(mean),
                "gain": float(gap.mean()),
                "gain_se": se,
            }
        )
    return rows


def _described(key, branches, step=True):
    branch, number, count = key
    if branch == "start":
        return "no tuning"
    stage = branches[branch].stages[number]
    text = stage.name if branch == "model" else f"{branch}, {stage.name}"
    text += f", penalty {stage.penalty:g}" if stage.penalty else ""
    return f"{text}, step {count}" if step and stage.many else text


def changes(model, W0):
    """Edges as (u, v, before, after)."""
    prior, new = read_graph(model.graph), read_graph(W0)
    old = dict(
        zip(zip(prior.i.tolist(), prior.j.tolist(), strict=True), prior.weights(model.scale), strict=True)
    )
    nodes = list(W0)
    ends = zip(new.i.tolist(), new.j.tolist(), new.weights().tolist(), strict=True)
    return [(nodes[i], nodes[j], float(old.get((i, j), 0.0)), weight) for i, j, weight in ends]
