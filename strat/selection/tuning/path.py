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
    def tunes_edges(self):
        """Whether single edges move, which can overfit: then every step is a choice, otherwise just the end."""
        return "W0" in self.moves


@dataclass(frozen=True)
class Point:
    """One accepted step; the start is step 0 of stage 0. In a round, the end of a stage without single edges is step 1."""

    stage: int
    step: int
    x: np.ndarray
    value: float  # mean validation loss without the penalty
    losses: np.ndarray | None  # of the records left out

    @property
    def held_out(self):
        """Mean loss of the records left out."""
        return self.losses.mean()


class Walk:
    """Descends stage after stage, each from the end of the one before.

    `left_out` is the objective of records that take no part: a stage of single edges ends where their loss has not
    fallen for `patience` steps in a row, and the walk ends after one that has not lowered it. A stage has at most `max_iter`
    steps. ``check()`` is called before each evaluation and may raise: `points` then has the path so far.
    """

    def __init__(self, objective, left_out=None, *, max_iter, patience, check, label):
        self.objective, self.left_out, self.space = objective, left_out, objective.space
        self.max_iter, self.patience, self.check, self.label = max_iter, patience, check, label
        self.points = []

    def run(self, stages, until=None):
        """Walk through the stages, or to the stage and step `until`; a stage without single edges goes to its end."""
        self.check()
        self.points.append(self._point(0, 0, self.space.start))
        for number, stage in enumerate(stages):
            before = list(self.points)
            lowest = self._descend(number, stage, until)
            if until is not None and number >= until[0]:
                return
            if self.left_out is not None and stage.tunes_edges and lowest >= min(p.held_out for p in before):
                return  # a weaker pull did not help, a still weaker one will not

    def _point(self, number, step, x):
        losses = None if self.left_out is None else self.left_out.losses(x)
        return Point(number, step, x, self.objective.mean_loss(x), losses)

    def _descend(self, number, stage, until):
        """Descend one stage; return the lowest held-out loss on its way, None without records left out."""
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
            if self.left_out is None or stage.tunes_edges:
                self.points.append(point)
            held_out = "" if self.left_out is None else f"  held out {point.held_out:.6g}"
            text = "tune  %s  %s  step %d  validation loss %.6g%s"
            logger.info(text, self.label, stage.name, point.step, point.value, held_out)
            if self.left_out is None:
                return stage.tunes_edges and until == (number, point.step)
            since_lowest = len(steps) - 1 - int(np.argmin([p.held_out for p in steps]))
            return stage.tunes_edges and since_lowest >= self.patience

        descend(function, x, bounds, accept, self.max_iter)
        if self.left_out is None:
            return None
        if not stage.tunes_edges:
            self.points.append(replace(steps[-1], stage=number, step=1))
        return min(p.held_out for p in steps)
