"""The choice among what was tried, "no tuning" included, and the guard: does it beat the start where it did not look?"""

from dataclasses import dataclass

import numpy as np

#: The choice that changes nothing.
START = ("start", 0, 0)


@dataclass
class Guard:
    """What the held-out records say.

    Attributes
    ----------
    choice : (str, int, int)
        Branch, stage and step with the lowest mean held-out loss; `START` for no tuning.
    gain, se : float
        How much lower than the start's the held-out loss is, and the paired standard error over records. The choice is
        that of the other rounds' records.
    improved : bool
        Whether the choice is not the start, and gains more than its standard error.
    """

    choice: tuple
    gain: float
    se: float
    improved: bool


def guard(rounds, in_time=False):
    """Choose, and measure the choice on records that took no part in it.

    Parameters
    ----------
    rounds : list of dict
        For each round its path (a list of Point) by branch; the path's first point of "model" is the start.
    in_time : bool
        Whether the rounds follow one another in time: then the choice that a round measures is that of the rounds before
        it, and the first one measures nothing.

    Returns
    -------
    Guard
        Without gain where fewer than two rounds were finished.
    """
    if len(rounds) < 2:
        return Guard(START, 0.0, np.nan, False)
    choice = best(rounds)
    gaps = []
    for k, one in enumerate(rounds):
        if in_time and k == 0:
            continue
        others = best(rounds[:k] + ([] if in_time else rounds[k + 1 :]))
        gaps.append(losses(one, START) - losses(one, others))
    gap = np.concatenate(gaps)
    if not np.isfinite(gap).all() or len(gap) < 2:
        return Guard(START, 0.0, np.nan, False)
    gain, se = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
    return Guard(choice, gain, se, bool(choice != START and gain > se))


def best(rounds):
    """The choice with the lowest mean loss over the records of some rounds, the earliest of equals."""
    keys = choices(rounds)
    means = [np.concatenate([losses(one, key) for one in rounds]).mean() for key in keys]
    return keys[int(np.argmin(means))]


def choices(rounds):
    """All choices of branch, stage and step that some round reached, the start first."""
    found = {START: None}
    for branch in rounds[0]:
        if all(branch in one for one in rounds):
            steps = {(p.stage, p.step) for one in rounds for p in one[branch]}
            found.update(((branch, *step), None) for step in sorted(steps))
    return list(found)


def losses(one, key):
    """Held-out losses of one round at a choice; a path that ended before stays where it ended."""
    return point(one, key).losses


def point(one, key):
    """The point of one round's path at a choice."""
    branch, stage, step = key
    path = one["model" if branch == "start" else branch]
    return [p for p in path if (p.stage, p.step) <= (stage, step)][-1] if stage or step else path[0]
