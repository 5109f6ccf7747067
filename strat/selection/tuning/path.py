"""Tuning by held-out loss: the function to minimise, the stages of its descent, and the choice among their points."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize
from sklearn.base import clone

from strat.errors import ConvergenceWarning, DataError, NoOracleError, first_line
from strat.model.fit import Refits
from strat.model.hypergradient import derivatives, over_edges
from strat.model.linearization import Linearization
from strat.records.tables import mean_and_error
from strat.solvers import NewtonCG
from strat.solvers.progress import logger

#: Relative reduction by a step, and projected gradient (of a function of size 1), at which a descent ends.
FTOL, GTOL = 1e-6, 1e-5
FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)  # what a fit raises where it fails
START = ("model", 0, 0)  # the choice that changes nothing: branch, stage and step


def descend(function, x, lower, upper, max_iter, callback=None):
    """Minimise ``function(x)`` → (value, gradient), finite at the start, over a box; return where the descent ended.

    A trial at which the function raises or is not finite is rejected and logged, and the line search shortens its step.
    ``callback(x)`` is called after each accepted step, and may stop the descent by a StopIteration.
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

    options = {"maxiter": max_iter, "ftol": FTOL, "gtol": GTOL, "maxcor": 20, "maxls": 20}
    options = {"bounds": Bounds(lower, upper), "callback": callback, "options": options}
    return minimize(guarded, x, jac=True, method="L-BFGS-B", **options).x


class InnerFits:
    """Polished fits of a model to one part of a Sample at any x of a Space, each warm started from the last."""

    def __init__(self, model, space, part):
        model = clone(model).set_params(graph=space.prior, scale=1.0, solver=NewtonCG())
        self.refits = Refits(model, part.data, part.strata)
        self.space, self.key, self.last = space, None, None
        w, values = space.at(space.start)
        loss = self.refits.bound_model.problem(w0=w, values=values).loss
        if not loss.has("hessian_operator"):
            raise NoOracleError(
                f"tune needs derivatives of the fit, but {loss.missing('hessian_operator')}. Smooth it: smoothing= on "
                f"the BaseModel; strat.search chooses constants without derivatives."
            )

    def at(self, x):
        """The linearised optimality conditions at the fit; the last is kept, as an accepted step was just evaluated."""
        if self.key != x.tobytes():
            w, values = self.space.at(x)
            problem, result = self.refits.fit(theta=self.last and self.last.theta, w0=w, values=values)
            fit = Linearization(problem, result.theta, w)
            if not np.isfinite(fit.theta).all() or not np.isfinite(fit.residual):
                raise np.linalg.LinAlgError("the fit is not finite")
            self.key, self.last = x.tobytes(), fit
        return self.last

    def value_and_gradient(self, x, held):
        """Mean loss of records held out, and its gradient in x."""
        fit = self.at(x)
        loss, b = held.mean_loss_and_gradient(fit.theta)
        v = fit.solve(b)
        edges, slopes = over_edges(fit.problem.couple, fit.theta, v, *fit.problem.edges.ends), {}
        w, values = self.space.at(x)

        def change(moved):
            return fit.change(self.refits.bound_model.problem(w0=w, values=values | moved), v, b)

        for name, value in values.items():
            slopes[name] = derivatives(change, held.base.hyperparameters[name], value)
        return loss, self.space.back(x, edges, slopes)


class Objective:
    """The mean loss of all held-out records of several folds, with the model's own hyperparameters, and its gradient.

    The loss is smoothed where the declaration says so; `notes` counts texts of warnings.
    """

    def __init__(self, folds, notes):
        self.folds = [(f, f.refits.bound_model.held_out(part, smooth=True)) for f, part in folds]
        self.counts = np.array([len(part) for _, part in folds])
        self.space, self.notes = folds[0][0].space, notes

    def __call__(self, x):
        """Mean loss and gradient at x."""
        each = self._of_each(lambda fits, held: fits.value_and_gradient(x, held))
        losses, gradients = zip(*each, strict=True)
        return np.average(losses, weights=self.counts), np.average(gradients, axis=0, weights=self.counts)

    def mean_losses(self, x):
        """Mean loss at x of each fold."""
        return self._of_each(lambda fits, held: held.mean_loss_and_gradient(fits.at(x).theta)[0])

    def mean_loss(self, x):
        return float(np.average(self.mean_losses(x), weights=self.counts))

    def losses(self, x):
        """Loss of each record, +inf where the fit of its fold fails."""

        def losses(fits, held):
            try:
                return held.losses(fits.at(x).theta)
            except FAILURES:
                return np.full(len(held.records.arrays[-1]), np.inf)

        return np.concatenate(self._of_each(losses))

    def _of_each(self, evaluate):
        with warnings.catch_warnings(record=True, action="always") as caught:
            values = [evaluate(*fold) for fold in self.folds]
        self.notes.update({str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)})
        return values


@dataclass(frozen=True)
class Stage:
    """One descent."""

    name: str  # what moves, for the report
    moves: tuple  # of "scale", "W0" and hyperparameters
    penalty: float = 0.0  # weight of the mean squared change, in units of the start's loss
    most: float = np.inf  # most steps
    #: Whether single edges move, which can overfit: then every step is a choice, otherwise only the end.
    tunes_edges = property(lambda self: "W0" in self.moves)


class Point(NamedTuple):
    """One accepted step."""

    x: np.ndarray
    value: float  # mean validation loss without the penalty
    losses: np.ndarray | None = None  # of the records left out
    #: Their mean; nan where there are none.
    held_out = property(lambda self: np.nan if self.losses is None else self.losses.mean())


def walk(points, stages, objective, left_out, label, check, *, max_iter, patience):
    """Descend stage after stage, each from the end of the one before; `points` gets the path by stage and step, from (0, 0).

    A stage of single edges ends if the loss of `left_out` (an objective of records that take no part, or None) has not fallen
    for `patience` steps in a row, and a stage that never lowered it ends the walk. The end of any other stage is its step 1.
    """
    space = objective.space

    def point_at(x):
        return Point(x, objective.mean_loss(x), None if left_out is None else left_out.losses(x))

    def descended(number, stage, start):
        """The start and all steps."""
        steps, moves = [start], space.active(stage.moves)

        def function(x):
            check()
            loss, gradient = objective(x)
            distance, slope = space.distance(x, stage.moves)
            return loss / unit + stage.penalty * distance, gradient / unit + stage.penalty * slope

        def accept(x):
            steps.append(point_at(x))
            told = f"step {len(steps) - 1}  validation loss {steps[-1].value:.6g}"
            told += f"  held out {steps[-1].held_out:.6g}" if left_out is not None else ""
            logger.info("tune  %s  %s  %s", label, stage.name, told)
            if left_out is None or stage.tunes_edges:
                points[number, len(steps) - 1] = steps[-1]
            best = np.argmin([step.held_out for step in steps])
            if stage.tunes_edges and left_out is not None and len(steps) - 1 - best >= patience:
                raise StopIteration

        bounds = np.where(moves, space.lower, start.x), np.where(moves, space.upper, start.x)
        descend(function, start.x, *bounds, min(max_iter, stage.most), accept)
        if left_out is not None and not stage.tunes_edges:
            points[number, 1] = steps[-1]
        return steps

    check()
    points[0, 0] = point_at(space.start)
    if not np.isfinite(points[0, 0].value):
        why = "the held-out loss of the start is infinite: some held-out record is impossible by the fit"
        raise DataError(f"tune: {why}. Give a regularizer that keeps it possible, or other folds.")
    unit = abs(points[0, 0].value) or 1.0
    for number, stage in enumerate(stages):
        *_, start = before = [*points.values()]
        steps = descended(number, stage, start)
        lowest, reached = (min(point.held_out for point in some) for some in (before, steps))
        if stage.tunes_edges and reached >= lowest:
            return  # a weaker penalty did not help, and a still weaker one will not


def choose(rounds, in_time=False):
    """The choice by all rounds, its gain over the start's loss, and the gain's standard error over records.

    The gain is measured on records that took no part in the choice: in each round, for what the other rounds choose (only the
    earlier rounds, if `in_time`). Where fewer than two rounds were finished, the choice is the start.
    """
    before, after = [], []
    for k, measuring in enumerate(rounds):
        choosing = rounds[:k] if in_time else rounds[:k] + rounds[k + 1 :]
        if choosing:
            before += losses_of([measuring], START)
            after += losses_of([measuring], best(choosing))
    gain, se = paired_gain(before, after)
    return (best(rounds), gain, se) if np.isfinite(se) else (START, 0.0, np.nan)


def best(rounds, keys=None):
    """The choice with the lowest mean loss over the records of some rounds; the first one among equals."""
    return min(keys or choices(rounds), key=lambda key: np.concatenate(losses_of(rounds, key)).mean())


def choices(rounds):
    """All choices that some round reached, of the branches that all rounds began; the start first."""
    branches = [name for name in rounds[0] if all(name in paths for paths in rounds)]
    reached = {name: sorted({p for paths in rounds for p in paths[name]}) for name in branches}
    return [(name, *place) for name, places in reached.items() for place in places]


def losses_of(rounds, key):
    """Held-out losses at a choice, an array for each round; a path that ended earlier counts with its end."""
    branch, *place = key
    paths = [paths[branch] for paths in rounds]
    return [path[max(p for p in path if p <= tuple(place))].losses for path in paths]


def paired_gain(before, after, by_fold=False):
    """How much lower the mean loss is in `after` than in `before` (arrays by fold), and its standard error; else 0, nan."""
    gaps = [a - b for a, b in zip(before, after, strict=True)]
    records = np.concatenate(gaps) if gaps else []
    error = mean_and_error([gap.mean() for gap in gaps] if by_fold else records)[1]
    return (0.0, np.nan) if error is None else (float(records.mean()), error)


def table_row(tried, losses, start=None, step=None, by_fold=False):
    """A row for what was tried: its held-out loss, and its gain over the losses of the start."""
    gain, se = (None, None) if start is None else paired_gain(start, losses, by_fold)
    loss = float(np.concatenate(losses).mean())
    return {"tried": tried, "step": step, "loss": loss, "gain": gain, "gain_se": se}
