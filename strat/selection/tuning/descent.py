"""Projected L-BFGS with accepted steps, rejected trials and a deadline."""

import time
from contextlib import contextmanager, suppress

import numpy as np
from scipy.optimize import minimize

from strat.solvers.progress import logger

#: Relative reduction of a step, and size of the projected gradient of a function of size 1, at which a descent ends.
FTOL, GTOL = 1e-6, 1e-5
#: What a fit raises where it fails.
FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class OutOfTime(Exception):
    """The time limit is reached."""


class Clock:
    """The seconds since the start, and how the work ended: status "finished", "time_limit" or "interrupted"."""

    def __init__(self, limit=None):
        self.started, self.limit, self.status = time.perf_counter(), limit, "finished"

    @property
    def seconds(self):
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def check(self, share=1.0):
        """Raise OutOfTime where this share of the time limit has passed."""
        if self.limit is not None and self.seconds > share * self.limit:
            raise OutOfTime

    @contextmanager
    def interruptible(self):
        """End the block, and note why, where the time is up or Ctrl-C is pressed."""
        try:
            yield
        except OutOfTime:
            self.status = "time_limit"
        except KeyboardInterrupt:
            self.status = "interrupted"


def descend(function, x, bounds, accept, max_iter):
    """Minimise a function over a box by projected L-BFGS.

    ``function(x)`` returns value and gradient, and must be finite at the start. A later trial at which it raises or is not
    finite is rejected and logged, and the line search shortens its step. ``accept(x)`` is called after each accepted step,
    and returns True to stop. The result is where the descent ended.
    """
    lower, upper = bounds
    free = lower < upper
    x = np.clip(x, lower, upper)
    start_value = None

    def full(part):
        point = x.copy()
        point[free] = part
        return point

    def guarded(part):
        nonlocal start_value
        try:
            value, gradient = function(full(part))
            if np.isfinite(value) and np.isfinite(gradient).all():
                start_value = value if start_value is None else start_value
                return value, gradient[free]
            reason = "the loss or its gradient is not finite"
        except FAILURES as error:
            if start_value is None:
                raise
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if start_value is None:
            raise ValueError("the validation loss at the start is not finite")
        logger.warning("tune: a trial is rejected (%s)", reason)
        return start_value + 2 * abs(start_value) + 1, np.zeros(int(free.sum()))

    def callback(part):
        nonlocal x
        x = full(part)
        if accept(x):
            raise _Stop

    if free.any() and max_iter >= 1:
        options = {"maxiter": max_iter, "ftol": FTOL, "gtol": GTOL, "maxcor": 20, "maxls": 20}
        options = {
            "method": "L-BFGS-B",
            "bounds": list(zip(lower[free], upper[free], strict=True)),
            "options": options,
        }
        with suppress(_Stop):
            minimize(guarded, x[free], jac=True, callback=callback, **options)
    return x


class _Stop(Exception):
    """A callback's way to end a minimisation."""
