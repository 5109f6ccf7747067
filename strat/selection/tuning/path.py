"""The way from the start to the tuned point: stages of descent with an ever weaker pull towards the start."""

from dataclasses import dataclass, replace

import numpy as np

from strat.selection.tuning.descent import descend, logger


@dataclass(frozen=True)
class Stage:
    """One descent."""

    name: str  # what moves, for the report
    moves: tuple  # of "scale", "W0" and hyperparameters
    penalty: float = 0.0  # weight of the mean squared change, in units of the start's loss

    @property
    def many(self):
        """Whether so much moves that it may go too far: then every step is a choice, otherwise just the end."""
        return "W0" in self.moves


@dataclass(frozen=True)
class Point:
    """One accepted step; the start is step 0 of stage 0. In a round, the end of a stage with few variables is step 1."""

    stage: int
    step: int
    x: np.ndarray
    value: float  # mean validation loss without the penalty
    losses: np.ndarray | None  # of the records that judge

    @property
    def held_out(self):
        """Mean loss of the records that judge."""
        return self.losses.mean()


class Walk:
    """Descends stage after stage, each from the end of the one before.

    `judge` is the objective of records that take no part: a stage ends where their loss has not fallen for `patience` steps
    in a row, and the walk ends after a stage of single edges that has not lowered it. A stage has at most `max_iter`
    steps. ``check()`` is called before each evaluation and may raise: `points` then has the path so far.
    """

    def __init__(self, objective, judge=None, *, max_iter, patience, check, label):
        self.objective, self.judge, self.space = objective, judge, objective.space
        self.max_iter, self.patience, self.check, self.label = max_iter, patience, check, label
        self.points = []

    def run(self, stages, until=None):
        """Walk through the stages, or to the stage and step `until`; a stage with few variables goes to its end."""
        self.check()
        self.points.append(self._point(0, 0, self.space.start))
        for number, stage in enumerate(stages):
            before = list(self.points)
            lowest = self._descend(number, stage, until)
            if until is not None and number >= until[0]:
                return
            if self.judge is not None and stage.many and lowest >= min(p.held_out for p in before):
                return  # a weaker pull did not help, a still weaker one will not

    def _point(self, number, step, x):
        losses = None if self.judge is None else self.judge.losses(x)
        return Point(number, step, x, self.objective.mean_loss(x), losses)

    def _descend(self, number, stage, until):
        """Descend one stage; return the lowest held-out loss on its way, None without a judge."""
        x, unit = self.points[-1].x, abs(self.points[0].value) or 1.0
        mask = self.space.active(stage.moves)
        bounds = np.where(mask, self.space.lower, x), np.where(mask, self.space.upper, x)
        steps = [self.points[-1]]

        def function(x):
            self.check()
            loss, gradient = self.objective(x)
            distance, slope = self.space.distance(x, stage.moves)
            return loss / unit + stage.penalty * distance, gradient / unit + stage.penalty * slope

        def accept(x):
            point = self._point(number, len(steps), x)
            steps.append(point)
            if self.judge is None or stage.many:
                self.points.append(point)
            judged = "" if self.judge is None else f"  held out {point.held_out:.6g}"
            text = "tune  %s  %s  step %d  validation loss %.6g%s"
            logger.info(text, self.label, stage.name, point.step, point.value, judged)
            if self.judge is None:
                return stage.many and until == (number, point.step)
            since_lowest = len(steps) - 1 - int(np.argmin([p.held_out for p in steps]))
            return stage.many and since_lowest >= self.patience

        descend(function, x, bounds, accept, self.max_iter)
        if self.judge is None:
            return None
        if not stage.many:
            self.points.append(replace(steps[-1], stage=number, step=1))
        return min(p.held_out for p in steps)
