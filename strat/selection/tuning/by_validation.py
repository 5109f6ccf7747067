"""Tuning by held-out loss: rounds that choose and measure, and a last descent on all held-out records."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sklearn.base import clone

from strat.errors import ConvergenceWarning, DataError, first_line
from strat.records.sample import Sample
from strat.records.splitters import StrataKFold
from strat.selection.tuning.branches import as_networkx, branches_of
from strat.selection.tuning.path import FAILURES, START, best, choices, choose, losses_of, table_row, walk
from strat.selection.tuning.result import Tuned
from strat.solvers.progress import logger

ROUNDS = 3  # rounds, each of which leaves out its own records
FOR_ROUNDS = 0.7  # share of the time limit for the rounds; the rest is for the last descent


@dataclass
class Rounds:
    """Pairs of positions (training records, held-out records), and which of them each round tunes on and leaves out."""

    train: Sample  # has the training records
    held_out: Sample  # has the held-out records: the same, or validation records
    pairs: list  # one for each fold
    in_time: bool  # whether the folds, and so the rounds, follow one another in time
    rounds: list  # for each round the pairs that it tunes on, and the pairs that it leaves out

    def parts(self, pairs):
        """Training records and held-out records of some pairs."""
        return [(self.train.part(a), self.held_out.part(b)) for a, b in pairs]

    @property
    def learned_from(self):
        """The records from which the graph of a candidate is learned in the end."""
        return self.train.part(self.pairs[0][0] if len(self.pairs) == 1 else None)


def rounds_of(train, validation, folds, random_state, guard=True):
    """Rounds that split a validation set, or the folds of the training records; none without a guard."""
    if validation is None:
        pairs = train.splits(folds, random_state)
        order = in_order_of_time(pairs)
        pairs = pairs if order is None else [pairs[k] for k in order]
    else:
        pairs, order = [(np.arange(len(train)), np.arange(len(validation)))], None
    held_out, count, rounds = train if validation is None else validation, min(ROUNDS, len(pairs)), []
    if guard and len(pairs) == 1:
        # Each round leaves out a third of the held-out records.
        inside, held = pairs[0]
        if len(held) < 2:
            raise DataError(
                f"{held_out.where} holds out {len(held)} records, but tuning needs two at least: one tunes, one judges."
            )
        splits = StrataKFold(min(ROUNDS, len(held)), random_state=random_state)
        splits = splits.split(np.zeros(len(held)), groups=held_out.part(held).labels)
        rounds = [([(inside, held[a])], [(inside, held[b])]) for a, b in splits]
    elif guard and order is not None:
        # Each tunes on one origin more and leaves out the next; later records take no part.
        if len(pairs) < 3:
            raise DataError(
                f"the folds follow one another in time, and tuning needs three at least: one tunes, one says how far to go, one "
                f"judges; there are {len(pairs)}. Give more origins, or a single one, whose held-out records are split."
            )
        rounds = [(pairs[:k], [pairs[k]]) for k in range(1, len(pairs))][-ROUNDS:]
    elif guard:
        # Each leaves out a third of the folds, and the records that they hold out from all other folds.
        for number in range(count):
            left_out = pairs[number::count]
            hidden = np.unique(np.concatenate([held for _, held in left_out]))
            others = [pair for k, pair in enumerate(pairs) if k % count != number]
            tuning = [(np.setdiff1d(a, hidden), np.setdiff1d(b, hidden)) for a, b in others]
            rounds.append(([(a, b) for a, b in tuning if len(a) and len(b)], left_out))
        if not all(tuning for tuning, _ in rounds):
            raise DataError(
                "the folds hold out the same records, so that none is left to judge; give folds whose held-out records "
                "differ, or a single one, whose held-out records are then split."
            )
    return Rounds(train, held_out, pairs, order is not None, rounds)


def in_order_of_time(pairs):
    """The order in which folds follow one another in time; None where they do not.

    No fold trains on records that it or a later one holds out, some fold does on an earlier one's, and none is held out twice.
    """
    held = [np.unique(b) for _, b in pairs]
    uses = np.array([[np.isin(b, a, assume_unique=True).any() for b in held] for a, _ in pairs])
    # The later a fold, the more of the others' held-out records it trains on.
    order = np.argsort(uses.sum(axis=1), kind="stable")
    uses = uses[np.ix_(order, order)]
    twice = len(np.unique(np.concatenate(held))) < sum(map(len, held))
    return order if uses.any() and not np.triu(uses).any() and not twice else None


def tune_by_validation(model, rounds, everything, clock, steps, **options):
    """Tune on some records, and keep the start where those left out see no gain; the result is fitted to everything."""
    notes = Counter()
    names, branches = branches_of(model, rounds, notes, **options)
    start = branches["model"].objective(rounds.pairs)
    x, branch = start.space.start, branches["model"]
    before, history = start.mean_losses(x), [start.mean_loss(x)]
    paths = _walk_rounds(rounds, branches, clock, steps)
    choice, gain, gain_se = choose(paths, rounds.in_time)
    keys = [choice] if choice != START and gain > gain_se else []
    if not rounds.rounds:
        keys = [(name, len(each.stages) - 1, np.inf) for name, each in branches.items()]
    improved = False
    for key in keys if clock.status != "interrupted" else ():
        name, number, step = key
        stages, objective, points = branches[name].stages, branches[name].objective(rounds.pairs), {}
        last = replace(stages[number], most=step) if stages[number].tunes_edges else stages[number]
        with clock.interruptible():
            walk(points, [*stages[:number], last], objective, None, "all records", clock.check, **steps)
        values = [point.value for point in points.values()]
        if values and values[-1] < history[-1]:
            improved, choice, branch = True, key, branches[name]
            *_, (x, _, _) = points.values()
            history = [history[0], *values[name == "model" :]]  # which has the start already
    after = branch.objective(rounds.pairs).mean_losses(x) if improved else before
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


def _walk_rounds(rounds, branches, clock, steps):
    """The path of every branch in every round that was begun, as far as it went."""
    paths, check = [], partial(clock.check, FOR_ROUNDS)
    with clock.interruptible():
        for number, (tuning, left_out) in enumerate(rounds.rounds, start=1):
            paths.append({})
            for name, branch in branches.items():
                path = paths[-1][name] = {}
                label = f"round {number} of {len(rounds.rounds)}  {name}"
                try:
                    objectives = branch.objective(tuning), branch.objective(left_out)
                    walk(path, branch.stages, *objectives, label, check, **steps)
                except FAILURES as error:
                    if name == "model":
                        raise
                    path.clear()  # one candidate's failure is no choice
                    logger.warning("tune: the candidate %s failed (%s)", name, first_line(error))
    paths = [{name: path for name, path in walked.items() if path} for walked in paths]
    return [walked for walked in paths if "model" in walked]


def _table(paths, branches):
    """One row for the start and for each stage at its best step."""
    if not paths:
        return []
    start, keys = losses_of(paths, START), [key for key in choices(paths) if key[2]]
    rows = [table_row("start", start)]
    for place in dict.fromkeys(key[:2] for key in keys):
        key = best(paths, [key for key in keys if key[:2] == place])
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
