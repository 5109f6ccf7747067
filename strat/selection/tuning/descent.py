"""Projected L-BFGS with accepted steps, rejected trials and a deadline."""

import contextlib
import time

import numpy as np
from scipy.optimize import minimize

from strat.solvers.progress import logger

#: Relative reduction of a step, and size of the projected gradient of a function of size 1, at which a descent ends.
FTOL, GTOL = 1e-6, 1e-5


class OutOfTime(Exception):
    """The time limit is reached."""


class Clock:
    """Raises OutOfTime where the deadline has passed.

    Parameters
    ----------
    limit : float, optional
        Seconds from now.
    """

    def __init__(self, limit=None):
        self.started, self.limit = time.perf_counter(), limit

    @property
    def seconds(self):
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def check(self, share=1.0):
        """Raise OutOfTime where this share of the time limit has passed."""
        if self.limit is not None and self.seconds > share * self.limit:
            raise OutOfTime


def descend(function, x, bounds, accept, max_iter):
    """Minimise a function over a box by projected L-BFGS.

    A trial at which the function raises or is not finite is rejected and logged; the line search shortens its step.

    Parameters
    ----------
    function : callable
        ``function(x)`` gives value and gradient.
    x : ndarray
        The start, at which the function must be finite.
    bounds : (lower, upper)
        The box.
    accept : callable
        ``accept(x)`` after each accepted step; return True to stop.
    max_iter : int
        Most steps.

    Returns
    -------
    ndarray
        Where it ended.
    """
    lower, upper = bounds
    free = lower < upper
    whole = np.clip(x, lower, upper)
    best = {"x": whole.copy(), "value": None}

    def full(part):
        point = whole.copy()
        point[free] = part
        return point

    def guarded(part):
        try:
            value, gradient = function(full(part))
            if np.isfinite(value) and np.isfinite(gradient).all():
                best["value"] = value if best["value"] is None else best["value"]
                return value, gradient[free]
            reason = "the loss or its gradient is not finite"
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            if best["value"] is None:
                raise
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if best["value"] is None:
            raise ValueError("the validation loss at the start is not finite")
        logger.warning("tune: a trial is rejected (%s)", reason)
        return best["value"] + 2 * abs(best["value"]) + 1, np.zeros(int(free.sum()))

    def callback(xk):
        best["x"] = full(xk)
        if accept(best["x"]):
            raise _Stop

    if not free.any() or max_iter < 1:
        return best["x"]
    options = {"maxiter": max_iter, "ftol": FTOL, "gtol": GTOL, "maxcor": 20, "maxls": 20}
    box = list(zip(lower[free], upper[free], strict=True))
    with contextlib.suppress(_Stop):
        minimize(
            guarded, whole[free], jac=True, method="L-BFGS-B", bounds=box, callback=callback, options=options
        )
    return best["x"]


class _Stop(Exception):
    pass
