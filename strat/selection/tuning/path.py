"""The way from the start to the tuned point, by stages of projected L-BFGS, and the choice among its points."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize

from strat.errors import first_line
from strat.selection.means import mean_and_error
from strat.solvers.progress import logger

#: Relative reduction of a step, and size of the projected gradient of a function of size 1, at which a descent ends.
FTOL, GTOL = 1e-6, 1e-5
#: What a fit raises where it fails.
FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)
#: The choice that changes nothing: branch, stage and step.
START = ("model", 0, 0)


def descend(function, x, lower, upper, accept, max_iter):
    """Minimise a function over a box; return where the descent ended.

    ``function(x)`` returns value and gradient, and must be finite at the start. A later trial at which it raises or is not
    finite is rejected and logged, and the line search shortens its step. ``accept(x)`` is called after each accepted step,
    and returns True to stop.
    """
    free, values = lower < upper, []

    def guarded(x):
        try:
            value, gradient = function(x)
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise ValueError("the loss or its gradient is not finite")
        except FAILURES as error:
            if not values:
                raise
            logger.warning("tune: a trial is rejected (%s)", first_line(error))
            return values[0] + 2 * abs(values[0]) + 1, np.zeros(len(x))
        values.append(value)
        return value, np.where(free, gradient, 0.0)

    def callback(x):
        if accept(x):
            raise StopIteration

    options = {"maxiter": max_iter, "ftol": FTOL, "gtol": GTOL, "maxcor": 20, "maxls": 20}
    options = {"bounds": Bounds(lower, upper), "callback": callback, "options": options}
    return minimize(guarded, x, jac=True, method="L-BFGS-B", **options).x


@dataclass(frozen=True)
class Stage:
    """One descent."""

    name: str  # what moves, for the report
    moves: tuple  # of "scale", "W0" and hyperparameters
    penalty: float = 0.0  # weight of the mean squared change, in units of the start's loss

    @property
    def tunes_edges(self):
        """Whether single edges move, which can overfit: then every step is a choice, otherwise just the end."""
        return "W0" in self.moves


class Point(NamedTuple):
    """One accepted step."""

    x: np.ndarray
    value: float  # mean validation loss without the penalty
    losses: np.ndarray | None = None  # of the records left out


@dataclass
class Walk:
    """Descends stage after stage, each from the end of the one before.

    `left_out` is the objective of records that take no part: a stage of single edges ends where their loss has not
    fallen for `patience` steps in a row, and the walk ends after one that has not lowered it. ``check()`` is called before
    each evaluation and may raise: `points` then has the path so far, by stage and step. The start is step 0 of stage 0,
    and the end of a stage without single edges is its step 1 where records are left out.
    """

    objective: object
    left_out: object
    label: str
    check: object
    max_iter: int  # of a stage
    patience: int

    def run(self, points, stages, until=None):
        """Walk through the stages, or to the stage and step `until`; a stage without single edges goes to its end."""
        self.check()
        points[0, 0] = self._point(self.objective.space.start)
        for number, stage in enumerate(stages):
            before = list(points.values())
            steps = self._descend(points, number, stage, until)
            if until is not None and number >= until[0]:
                return
            if (
                self.left_out is not None
                and stage.tunes_edges
                and min(map(_held_out, steps)) >= min(map(_held_out, before))
            ):
                return  # a weaker pull did not help, a still weaker one will not

    def _point(self, x):
        losses = None if self.left_out is None else self.left_out.losses(x)
        return Point(x, self.objective.mean_loss(x), losses)

    def _descend(self, points, number, stage, until):
        """The points of one stage, with that where it starts."""
        space, unit = self.objective.space, abs(points[0, 0].value) or 1.0
        *_, last = points.values()
        x, steps, moves = last.x, [last], space.active(stage.moves)

        def function(x):
            self.check()
            loss, gradient = self.objective(x)
            distance, slope = space.distance(x, stage.moves)
            return loss / unit + stage.penalty * distance, gradient / unit + stage.penalty * slope

        def accept(x):
            point = self._point(x)
            steps.append(point)
            if self.left_out is None or stage.tunes_edges:
                points[number, len(steps) - 1] = point
            held_out = "" if self.left_out is None else f"  held out {_held_out(point):.6g}"
            text = "tune  %s  %s  step %d  validation loss %.6g%s"
            logger.info(text, self.label, stage.name, len(steps) - 1, point.value, held_out)
            if self.left_out is None:
                return stage.tunes_edges and until == (number, len(steps) - 1)
            since_lowest = len(steps) - 1 - int(np.argmin([*map(_held_out, steps)]))
            return stage.tunes_edges and since_lowest >= self.patience

        bounds = np.where(moves, space.lower, x), np.where(moves, space.upper, x)
        descend(function, x, *bounds, accept, self.max_iter)
        if self.left_out is not None and not stage.tunes_edges:
            points[number, 1] = steps[-1]
        return steps


def _held_out(point):
    return point.losses.mean()


def choose(rounds, in_time=False):
    """The choice by all rounds; and how much lower its loss is than the start's, with the standard error over records.

    A round has the points of each branch by stage and step. The gain is over records that did not choose: in each round,
    of what the other rounds choose. Where rounds follow one another in time (`in_time`), a round measures what the rounds
    before it choose, and the first one measures nothing. Where fewer than two rounds were finished, the choice is the start.
    """
    before, after = [], []
    for k, measuring in enumerate(rounds):
        choosing = rounds[:k] if in_time else rounds[:k] + rounds[k + 1 :]
        if choosing:
            before += losses_of([measuring], START)
            after += losses_of([measuring], best(choosing))
    gain, se = paired_gain(before, after)
    return (best(rounds), gain, se) if np.isfinite(se) else (START, 0.0, np.nan)


def best(rounds):
    """The choice with the lowest mean loss over the records of some rounds, the earliest of equals."""
    return min(choices(rounds), key=lambda key: np.concatenate(losses_of(rounds, key)).mean())


def choices(rounds):
    """All choices that some round reached, of the branches that all rounds began; the start first."""
    branches = [name for name in rounds[0] if all(name in paths for paths in rounds)]
    return [
        (name, *place) for name in branches for place in sorted({p for paths in rounds for p in paths[name]})
    ]


def point_of(paths, key):
    """The point of one round at a choice; a path that ended before stays where it ended."""
    branch, *place = key
    return paths[branch][max(p for p in paths[branch] if p <= tuple(place))]


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
