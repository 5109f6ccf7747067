"""Projected L-BFGS with accepted steps, rejected trials and a deadline."""

from contextlib import suppress

import numpy as np
from scipy.optimize import minimize

from strat.solvers.progress import logger

#: Relative reduction of a step, and size of the projected gradient of a function of size 1, at which a descent ends.
FTOL, GTOL = 1e-6, 1e-5
#: What a fit raises where it fails.
FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)


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
