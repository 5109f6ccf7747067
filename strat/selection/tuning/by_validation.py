"""Tuning by held-out loss: in rounds that choose and measure, and then by a descent on all held-out records."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import delayed

from strat.errors import ConvergenceWarning, first_line
from strat.selection.cross_validation import processes
from strat.selection.tuning.branches import as_networkx, branches_of
from strat.selection.tuning.path import FAILURES, START, best, choices, choose, losses_of, table_row, walk
from strat.selection.tuning.result import Tuned
from strat.solvers.progress import logger

LEAST = 1e-5  # the start is kept unless the last descent gains more than this share of the held-out loss
FOR_ROUNDS = 0.7  # share of the time limit for the rounds; the rest is for the last descent


def tune_by_validation(model, rounds, everything, clock, steps, n_jobs, **options):
    """Tune on some records, and keep the start unless the others show a gain; the result is fitted to everything."""
    notes = Counter()
    names, branches = branches_of(model, rounds, **options)
    start = branches["model"].objective(rounds.pairs, notes)
    x, branch = start.space.start, branches["model"]
    before, history = start.mean_losses(x), [start.mean_loss(x)]
    paths = _walk_rounds(rounds, branches, notes, clock, steps, n_jobs)
    choice, gain, gain_se = choose(paths, rounds.in_time)
    keys = [choice] if choice != START and gain > gain_se else []
    if not rounds.rounds:
        keys = [(name, len(each.stages) - 1, np.inf) for name, each in branches.items()]
    improved = False
    for key in keys if clock.status != "interrupted" else ():
        name, number, step = key
        stages, objective, points = branches[name].stages, branches[name].objective(rounds.pairs, notes), {}
        last = replace(stages[number], most=step) if stages[number].tunes_edges else stages[number]
        with clock.interruptible():
            walk(points, [*stages[:number], last], objective, None, "all records", clock.check, **steps)
        values = [point.value for point in points.values()]
        if values and values[-1] < history[-1] - LEAST * abs(history[-1]):
            improved, choice, branch = True, key, branches[name]
            *_, (x, _, _) = points.values()
            history = [history[0], *values[name == "model" :]]  # the model's own path begins at the start
    after = branch.objective(rounds.pairs, notes).mean_losses(x) if improved else before
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
        ConvergenceWarning.warn(f"tune: {count} evaluations came with a warning: {text}")
    parameters = {**values, "scale": scales, "W0": tuned.W_.copy()}
    found = {"improved": improved, "gain": gain, "gain_se": gain_se, "choice": _described(choice, branches)}
    found |= {"history": history, "table": _table(paths, branches)}
    found["folds"] = list(zip(start.counts.tolist(), before, after, strict=True))
    return Tuned(model, tuned, W0, {name: parameters[name] for name in names}, **found)


def _walk_rounds(rounds, branches, notes, clock, steps, n_jobs):
    """The path of every branch in every round that was begun, as far as it went; `notes` counts warnings."""
    found, last = [], len(rounds.rounds)
    jobs = (
        delayed(_walk_round)(branches, *pairs, f"round {number} of {last}", clock, steps)
        for number, pairs in enumerate(rounds.rounds, start=1)
    )
    with clock.interruptible():
        for paths, counts, status in processes(n_jobs)(jobs):
            found.append({name: path for name, path in paths.items() if path})
            notes.update(counts)
            clock.status = clock.status if status == "finished" else status
    return [paths for paths in found if "model" in paths]


def _walk_round(branches, tuning, left_out, label, clock, steps):
    """The path of every branch in a round, counts of warnings, and how it ended."""
    paths, notes, check = {}, Counter(), partial(clock.check, FOR_ROUNDS)
    with clock.interruptible():
        for name, branch in branches.items() if clock.status == "finished" else ():
            path = paths[name] = {}
            try:
                objectives = (branch.objective(pairs, notes) for pairs in (tuning, left_out))
                walk(path, branch.stages, *objectives, f"{label}  {name}", check, **steps)
            except FAILURES as error:
                if name == "model":
                    raise
                path.clear()  # a candidate that failed cannot be chosen
                logger.warning("tune: the candidate %s failed (%s)", name, first_line(error))
    return paths, notes, clock.status


def _table(paths, branches):
    """One row for the start and for each stage at its best step."""
    if not paths:
        return []
    start, keys = losses_of(paths, START), [key for key in choices(paths) if key[2]]
    rows = [table_row("start", start)]
    for place in dict.fromkeys(key[:2] for key in keys):
        key = best(paths, [key for key in keys if key[:2] == place])
        step = key[2] if branches[key[0]].stages[key[1]].tunes_edges else None
        tried = _described((*place, np.inf), branches)
        rows.append(table_row(tried, losses_of(paths, key), start, step))
    return rows


def _described(key, branches):
    """A choice in words; its step is left out where it is the last."""
    branch, number, step = key
    if key == START:
        return "no tuning"
    stage = branches[branch].stages[number]
    text = stage.name if branch == "model" else f"{branch}, {stage.name}"
    text += f", penalty {stage.penalty:g}" if stage.penalty else ""
    return f"{text}, step {step}" if stage.tunes_edges and np.isfinite(step) else text
