"""The way from the start to the tuned point: stages of descent with an ever weaker pull towards the start."""

from dataclasses import dataclass

import numpy as np

from strat.selection.tuning.descent import descend, logger


@dataclass(frozen=True)
class Stage:
    """One descent.

    Attributes
    ----------
    name : str
        What moves, for the report.
    moves : tuple of str
        "scale", "W0", hyperparameters.
    penalty : float
        Weight of the mean squared change, in units of the start's loss.
    """

    name: str
    moves: tuple
    penalty: float = 0.0

    @property
    def many(self):
        """Whether so much moves that it may go too far: then every step is a choice, otherwise just the end."""
        return "W0" in self.moves


@dataclass(frozen=True)
class Point:
    """One accepted step.

    Attributes
    ----------
    stage, step : int
        Where on the way; the start is step 0 of stage 0. In a round, the end of a stage with few variables is step 1.
    x : ndarray
        The variables.
    value : float
        Mean validation loss without the penalty.
    losses : ndarray or None
        Losses of the records that judge.
    """

    stage: int
    step: int
    x: np.ndarray
    value: float
    losses: np.ndarray | None


def walk(path, objective, stages, *, judge=None, until=None, max_iter, patience, check, label):
    """Descend stage after stage, each from the end of the one before.

    Parameters
    ----------
    path : list
        Takes the points, so that they are there when the walk is cut short.
    objective : Objective
        What is minimised, plus the stage's penalty.
    stages : list of Stage
        The stages.
    judge : Objective, optional
        Records that do not take part: a stage ends where their loss has not fallen for `patience` steps in a row, the
        walk after a stage with single edges that brought it no lower than it was.
    until : (int, int), optional
        The stage and step to stop at; a stage with few variables goes to its end.
    max_iter, patience : int
        Most steps of a stage; see `judge`.
    check : callable
        Called before each evaluation; may raise.
    label : str
        For the log.
    """
    space = objective.tasks[0].space
    values = {}

    def measured(x):
        check()
        found = objective(x)
        values.clear()  # the point accepted next is the one evaluated last
        values[x.tobytes()] = found[0]
        return found

    x = space.start
    first, _ = measured(x)
    path.append(Point(0, 0, x, first, None if judge is None else judge.losses(x)))
    unit = abs(first) or 1.0
    for number, stage in enumerate(stages):
        mask = space.active(stage.moves)
        bounds = np.where(mask, space.lower, x), np.where(mask, space.upper, x)
        lowest = np.inf if judge is None else min(p.losses.mean() for p in path)
        watch = {"best": np.inf if judge is None else path[-1].losses.mean(), "stale": 0, "step": 0}

        def function(x, stage=stage):
            loss, gradient = measured(x)
            distance, slope = space.distance(x, stage.moves)
            return loss / unit + stage.penalty * distance, gradient / unit + stage.penalty * slope

        def accept(x, number=number, stage=stage, watch=watch):
            watch["step"] += 1
            key = x.tobytes()
            value = values[key] if key in values else objective(x)[0]
            losses = None if judge is None else judge.losses(x)
            if judge is None or stage.many:
                path.append(Point(number, watch["step"], x, value, losses))
            logger.info(
                "tune  %s  %s  step %d  validation loss %.6g%s",
                label,
                stage.name,
                watch["step"],
                value,
                "" if judge is None else f"  held out {losses.mean():.6g}",
            )
            if until == (number, watch["step"]) and stage.many:
                return True
            if judge is not None and stage.many:
                falls = losses.mean() < watch["best"]
                watch["stale"] = 0 if falls else watch["stale"] + 1
                watch["best"] = min(watch["best"], losses.mean())
            return watch["stale"] >= patience

        x = descend(function, x, bounds, accept, max_iter)
        if judge is not None and not stage.many:
            path.append(Point(number, 1, x, values.get(x.tobytes(), np.nan), judge.losses(x)))
        if until is not None and number >= until[0]:
            return
        if judge is not None and stage.many and watch["best"] >= lowest:
            return  # a weaker pull did not help, a still weaker one will not
