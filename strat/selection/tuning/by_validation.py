"""Tuning by held-out loss: rounds that choose and measure, and a last descent on all held-out records."""

import warnings
from collections import Counter
from functools import partial

import numpy as np
from sklearn.base import clone

from strat.errors import ConvergenceWarning
from strat.graphs.reading import read_graph
from strat.model.fit import fit_within
from strat.problem.edges import EdgeList
from strat.selection.tuning.arguments import (
    check_scale,
    checked_names,
    checked_penalties,
    groups_of,
    with_candidate_edges,
)
from strat.selection.tuning.candidate_graphs import learned_graph, named_candidates
from strat.selection.tuning.choice import START, choices, choose, losses_of, point_of, table_row
from strat.selection.tuning.descent import FAILURES, logger
from strat.selection.tuning.objective import Branch
from strat.selection.tuning.path import Stage, Walk
from strat.selection.tuning.result import Tuned, as_networkx, changes
from strat.selection.tuning.space import Space

#: Share of the time limit for the rounds; the rest is for the last descent.
FOR_ROUNDS = 0.7


def _branches(model, rounds, notes, *, wrt, edges, tie, penalty, candidates):
    """What to tune by name, and the graphs to tune by name, "model" for the model's own."""
    names = checked_names(model, wrt, edges, tie)
    penalties = checked_penalties(penalty, names if rounds.rounds else ())
    candidates = named_candidates(candidates)
    prior = read_graph(model.graph)
    check_scale(prior, names, model.scale)
    others = [name for name in names if name not in ("W0", "scale")]
    scaling = Stage("scale", ("scale", *others))
    if "W0" in names:

        def parameters():
            part = rounds.learned_from
            return fit_within(clone(model), part.data, part.strata)._flat()

        wide, varied = with_candidate_edges(prior, edges, parameters)
        # The scales stay free, so that the penalty holds on to the ratios of the start's weights, not to their size.
        moves = tuple(dict.fromkeys(["scale", *names]))
        stages = [scaling, *(Stage("edges", moves, penalty) for penalty in penalties)]
    else:
        wide, varied = prior, None
        stages = [Stage(", ".join(names), tuple(names), penalty) for penalty in penalties]
    group = None if tie is None else groups_of(model.graph, wide, tie)
    common = (
        tie is not None and "scale" not in names
    )  # factors' multipliers would change the ratios of tied edges
    space = Space(model, wide, names, varied, group, common=common)
    branches = {"model": Branch(model, rounds, stages, lambda part: space, notes)}

    def scaled_space(candidate, part):
        graph = learned_graph(candidate, model, prior, part)
        return Space(model, graph, ["scale", *others], np.zeros(len(graph.i), dtype=bool), scale=1.0)

    for name, candidate in candidates.items():
        branches[name] = Branch(model, rounds, [scaling], partial(scaled_space, candidate), notes)
    return names, branches


def tune_by_validation(model, rounds, everything, clock, steps, **options):
    """Tune on some records, and keep the start where those left out see no gain; the result is fitted to everything.

    Where there are no rounds, nothing is left out, and the lowest mean loss is the result. `steps` has the options
    ``max_iter`` and ``patience`` of every descent.
    """
    notes = Counter()
    names, branches = _branches(model, rounds, notes, **options)
    start = branches["model"].objective(rounds.pairs)
    x, name = start.space.start, "model"
    history = [start.mean_loss(x)]
    paths = _walk_rounds(rounds, branches, clock, steps)
    choice = choose(paths, rounds.in_time)
    keys = [choice.key] if choice.improves else []
    if not rounds.rounds:
        keys = [(name, len(branch.stages) - 1, np.inf) for name, branch in branches.items()]
    improved = False
    for key in keys:
        tuned_x, values = _walk_to(key, rounds, branches, paths, clock, steps)
        if values and values[-1] < history[-1]:
            improved, choice.key, x, name, history = True, key, tuned_x, key[0], [history[0], *values]
    branch = branches[name]
    end = branch.objective(rounds.pairs)
    space = branch.fits(rounds.learned_from).space
    w, values = space.at(x)
    W0, scales = as_networkx(model.graph, space.prior, w), space.scales(x)
    tuned = clone(model)
    if improved:
        tuned.set_params(**{f"base__{name}": value for name, value in values.items()})
        scale = scales if space.prior.factors else scales["all"]
        scaled = "W0" not in names and branch is branches["model"]
        if scaled and np.allclose(space.prior.weights(scale), w, rtol=1e-12):
            tuned.set_params(scale=scale)
        else:
            tuned.set_params(graph=W0, scale=1.0)
    tuned.fit(*everything.data, strata=everything.strata)
    if notes:
        text, count = notes.most_common(1)[0]
        warnings.warn(
            f"tune: {count} evaluations came with a warning: {text}", ConvergenceWarning, stacklevel=3
        )
    parameters = {**values, "scale": scales}
    if "W0" in names:
        graph = read_graph(W0)
        parameters["W0"] = EdgeList(graph.K, graph.i, graph.j).matrix(graph.weights())
    return Tuned(
        model=tuned,
        W0=W0,
        parameters={name: parameters[name] for name in names},
        improved=improved,
        gain=choice.gain,
        gain_se=choice.se,
        choice=_described(choice.key, branches),
        history=history,
        folds=[
            {"records": int(old.count), "before": old.mean_loss(start.space.start), "after": new.mean_loss(x)}
            for old, new in zip(start.terms, end.terms, strict=True)
        ],
        table=_table(paths, branches),
        changes=changes(model, W0),
    )


def _walk_rounds(rounds, branches, clock, steps):
    """The path of every branch in every round that was begun, as far as it went."""
    paths, check = [], partial(clock.check, FOR_ROUNDS)
    with clock.interruptible():
        for number, (tuning, left_out) in enumerate(rounds.rounds, start=1):
            paths.append({})
            for name, branch in branches.items():
                try:
                    objective, apart = branch.objective(tuning), branch.objective(left_out)
                    label = f"round {number} of {len(rounds.rounds)}  {name}"
                    walk = Walk(objective, apart, check=check, label=label, **steps)
                    paths[-1][name] = walk.points
                    walk.run(branch.stages)
                except FAILURES as error:
                    if name == "model":
                        raise
                    paths[-1].pop(name, None)  # one candidate's failure is no choice
                    text = "tune: the candidate %s failed (%s: %s)"
                    logger.warning(text, name, type(error).__name__, error)
    paths = [{name: path for name, path in walked.items() if path} for walked in paths]
    return [walked for walked in paths if "model" in walked]


def _walk_to(key, rounds, branches, paths, clock, steps):
    """Where all held-out records lead, and the mean loss after each accepted step.

    Where there is no time, it is the mean of where the rounds were.
    """
    name, *until = key
    branch = branches[name]
    objective = branch.objective(rounds.pairs)
    walk = Walk(objective, check=clock.check, label="all records", **steps)
    if clock.status != "interrupted":
        with clock.interruptible():
            walk.run(branch.stages, tuple(until))
    points = walk.points
    if len(points) > 1 or (points and clock.status == "finished"):
        first = 1 if name == "model" else 0  # the history has the start already
        return points[-1].x, [point.value for point in points[first:]]
    if not paths:
        return None, []
    x = np.mean([point_of(walked, key).x for walked in paths], axis=0)
    return x, [objective.mean_loss(x)]


def _table(paths, branches):
    """One row for the start and for each stage at its best step."""
    if not paths:
        return []
    start, best = losses_of(paths, START), {}
    for key in choices(paths)[1:]:
        mean = np.concatenate(losses_of(paths, key)).mean()
        if key[2] and (key[:2] not in best or mean < best[key[:2]][0]):
            best[key[:2]] = mean, key
    rows = [table_row("start", start)]
    for _, key in best.values():
        step = key[2] if branches[key[0]].stages[key[1]].tunes_edges else None
        tried = _described(key, branches, with_step=False)
        rows.append(table_row(tried, losses_of(paths, key), start, step))
    return rows


def _described(key, branches, with_step=True):
    """A choice in words."""
    branch, number, step = key
    if key == START:
        return "no tuning"
    stage = branches[branch].stages[number]
    text = stage.name if branch == "model" else f"{branch}, {stage.name}"
    text += f", penalty {stage.penalty:g}" if stage.penalty else ""
    return f"{text}, step {step}" if with_step and stage.tunes_edges and np.isfinite(step) else text
