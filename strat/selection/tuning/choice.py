"""The choice by held-out losses, which may be no tuning, and its gain on records that did not choose."""

from dataclasses import dataclass

import numpy as np

from strat.selection.means import mean_and_error

#: The choice that changes nothing.
START = ("start", 0, 0)


@dataclass
class Choice:
    """What had the lowest mean held-out loss, and how much lower than the start's it is on records that did not choose."""

    key: tuple = START  # branch, stage and step
    gain: float = 0.0
    se: float = np.nan  # paired standard error of the gain over records

    @property
    def improves(self):
        """Whether the choice is not the start, and gains more than its standard error."""
        return bool(self.key != START and self.gain > self.se)


def choose(rounds, in_time=False):
    """Choose by all rounds; in each round, measure what the other rounds choose.

    A round has the points of each branch by name; the first point of "model" is the start. Where rounds follow one another
    in time (`in_time`), a round measures what the rounds before it choose, and the first one measures nothing. Where fewer
    than two rounds were finished, the choice is the start, without gain.
    """
    if len(rounds) < 2:
        return Choice()
    before, after = [], []
    for k, measuring in enumerate(rounds):
        choosing = rounds[:k] if in_time else rounds[:k] + rounds[k + 1 :]
        if choosing:
            before += losses_of([measuring], START)
            after += losses_of([measuring], best(choosing))
    gain, se = paired_gain(before, after)
    return Choice(best(rounds), gain, se) if np.isfinite(se) else Choice()


def best(rounds):
    """The choice with the lowest mean loss over the records of some rounds, the earliest of equals."""
    return min(choices(rounds), key=lambda key: np.concatenate(losses_of(rounds, key)).mean())


def choices(rounds):
    """All choices of branch, stage and step that some round reached, the start first."""
    keys = {START: None}
    for branch in rounds[0]:
        if all(branch in paths for paths in rounds):
            steps = {(p.stage, p.step) for paths in rounds for p in paths[branch]}
            keys.update(((branch, *step), None) for step in sorted(steps))
    return list(keys)


def point_of(paths, key):
    """The point of one round at a choice; a path that ended before stays where it ended."""
    branch, *place = key
    path = paths["model" if branch == "start" else branch]
    return [p for p in path if [p.stage, p.step] <= place][-1] if any(place) else path[0]


def losses_of(rounds, key):
    """Held-out losses at a choice, an array for each round."""
    return [point_of(paths, key).losses for paths in rounds]


def paired_gain(before, after, by_fold=False):
    """How much lower the mean loss is after than before, and the standard error of that, over records or folds.

    Both have an array for each fold. Where there is no standard error, the result is 0 and nan.
    """
    gaps = [a - b for a, b in zip(before, after, strict=True)]
    records = np.concatenate(gaps) if gaps else []
    error = mean_and_error([gap.mean() for gap in gaps] if by_fold else records)[1]
    return (0.0, np.nan) if error is None else (float(records.mean()), error)


def table_row(tried, losses, start=None, step=None, by_fold=False):
    """What was tried: its held-out loss, and its gain over the losses of the start."""
    gain, se = (None, None) if start is None else paired_gain(start, losses, by_fold)
    loss = float(np.concatenate(losses).mean())
    return {"tried": tried, "step": step, "loss": loss, "gain": gain, "gain_se": se}
