"""The objective on the way to the fit."""

from typing import TYPE_CHECKING, Any

import numpy as np

from strat.errors import DataError, OptionError
from strat.plot import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(
    fits: Any, x: str = "iterations", gap: bool = False, ax: "Axes | None" = None, **options: Any
) -> "Axes":
    """Draw the objective against iterations or seconds.

    Parameters
    ----------
    fits : fitted model, Result, or dict or sequence of them
        The keys of a dict name the lines.
    x : {"iterations", "seconds"}
        What runs along the axis.
    gap : bool
        Draw the distance to the lowest objective among all fits, on a log scale. Say it only of fits that minimise one
        function.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    **options
        For ``Axes.plot``.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.logistic(-y * theta), cp.square(theta), data=(y,))
    >>> model = strat.joint(base, strat.graphs.path(3)).fit([1.0, 1.0, -1.0], strata=[0, 1, 2])
    >>> strat.plot.history({"joint": model}, x="seconds").get_xlabel()
    'seconds'
    """
    if x not in ("iterations", "seconds"):
        raise OptionError(f'x is {x!r}, but it is "iterations" or "seconds".')
    if isinstance(fits, list | tuple):
        fits = {f"fit {k}": fit for k, fit in enumerate(fits, start=1)}
    fits = fits if isinstance(fits, dict) else {"": fits}  # one alone has no name
    results = {str(name): getattr(fit, "result_", fit) for name, fit in fits.items()}
    if not results:
        raise DataError("there are no fits to draw.")
    for name, result in results.items():
        if not getattr(result, "history", None):
            raise DataError(f"{name or 'this'} is no fitted model and no Result. Call fit first.")
    ax = canvas.axes(ax, (6.4, 4.2))
    lowest = min(min(result.history) for result in results.values())
    for name, result in results.items():
        objective = np.array(result.history, dtype=float)
        along = np.arange(len(objective)) if x == "iterations" else np.array(result.history_seconds)
        if len(along) != len(objective):
            raise DataError(f'{name or "the fit"} has no times of its iterations; use x="iterations".')
        if gap:
            objective = objective - lowest
            objective[objective <= 0] = np.nan  # a log scale has no 0
        style = {"label": name, "markersize": 3, "marker": "o" if len(objective) < 25 else ""}
        ax.plot(along, objective, **{**style, **options})
    ax.set_xlabel("iteration" if x == "iterations" else "seconds")
    ax.set_ylabel("objective above the lowest" if gap else "objective")
    ax.set_title("Objective")
    if gap:
        ax.set_yscale("log")
    if any(results):
        ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    return ax
