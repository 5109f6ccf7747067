"""Parameters over strata, as lines, heatmaps or maps, and the objective in the course of a fit."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from strat.errors import DataError, OptionError
from strat.graphs.features import shapes_of
from strat.model.estimator import check_fitted
from strat.model.fitted import entry_names
from strat.model.standard_errors import standard_errors
from strat.plot import canvas
from strat.records.labels import are_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = 12  # most entries of a variable that are drawn at once


def parameters(
    model: Any,
    variable: str | None = None,
    index: int | tuple | str | None = None,
    errors: bool = False,
    ax: "Axes | None" = None,
    **options: Any,
) -> "Axes":
    """Draw one variable's values over the strata.

    Strata whose nodes carry shapes (``graphs.from_geometry``) become a map. Strata whose labels are pairs, as those of a
    product graph, become a heatmap, the first coordinate down and the second across; pairs that are not strata stay blank.
    Other strata become a line, or points where they have no order. Dots, or hollow points, mark strata without records.
    Colours diverge around 0 where signs differ.

    Parameters
    ----------
    model : fitted model
        The model whose parameters are drawn.
    variable : str, optional
        The variable's name; the first by default.
    index : int, tuple or str, optional
        The entry of a vector or matrix variable, or the name of its feature. By default a heatmap or map shows the first
        entry, and lines show up to twelve entries.
    errors : bool
        Draw a band (bars around points) of two standard errors, by ``strat.standard_errors``; not on a heatmap.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    **options
        For ``Axes.imshow`` (pairs), ``PatchCollection`` (maps) or ``Axes.plot``.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> model = strat.lrsm(base, strat.graphs.path(range(2000, 2005))).fit(
    ...     [1.0, 2.0, 4.0], strata=[2000, 2002, 2004]
    ... )
    >>> strat.plot.parameters(model).get_ylabel()
    'theta'
    """
    check_fitted(model, "plot.parameters")
    variable = next(iter(model.theta_)) if variable is None else variable
    model.base.layout.check_names([variable])
    values, labels, counts = model.theta_[variable], list(model.strata_), getattr(model, "_counts", None)
    without = np.zeros(len(labels), dtype=bool) if counts is None else counts == 0
    shapes, grid = shapes_of(model, labels), canvas.coordinates(labels)
    lines = grid is None and shapes is None
    names = _entries(model, variable, index, most=LINES if lines else 1)
    if lines:
        bands = standard_errors(model)[variable] if errors else None
        return _lines(model.W_, labels, values, bands, names, variable, without, ax, options)
    if errors:
        raise OptionError(
            "errors=True is for lines and points, but these strata make a heatmap or a map: see strat.standard_errors(model)."
        )
    (name, entry), *_ = names.items()
    values = values[(slice(None), *entry)]
    low, high = np.nanmin(values), np.nanmax(values)
    size, shades = max(-low, high), {"cmap": "viridis"}
    if low < 0 < high:
        shades = {"cmap": "RdBu_r"} if "norm" in options else {"cmap": "RdBu_r", "vmin": -size, "vmax": size}
    shades |= options
    if shapes is not None:
        return _map(values, shapes, name, without, ax, shades)
    return _heatmap(values, grid, canvas.axis_names(model), name, without, ax, shades)


def _entries(model, variable, index, most):
    """The entries to draw, as {name: index}."""
    names, shape = entry_names(model.base, model._columns)[variable], model.theta_[variable].shape[1:]
    if index is None:
        chosen = list(names)[:most]
    elif isinstance(index, str):
        chosen = [entry for entry, name in names.items() if index in name[len(variable) + 1 : -1].split(", ")]
    else:
        try:
            place = np.arange(len(names)).reshape(shape)[tuple(np.atleast_1d(index))]
            chosen = [list(names)[place]]
        except (IndexError, TypeError, ValueError):
            chosen = []
    if not chosen:
        raise OptionError(f"index={index!r} is not an entry of {variable}, which has shape {shape}.")
    return {names[entry]: entry for entry in chosen[:most]}


def _map(values, shapes, name, without, ax, shades):
    """A map: each stratum's shape in the colour of its value; dotted where it has no records."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ax = canvas.axes(ax, (7.0, 5.4))
    patches, owners = [], []
    for k, shape in enumerate(shapes):
        for part in getattr(shape, "geoms", [shape]):
            if hasattr(part, "exterior"):
                rings = [Path(np.array(ring.coords)[:, :2]) for ring in (part.exterior, *part.interiors)]
                patches.append(PathPatch(Path.make_compound_path(*rings)))
                owners.append(k)
    limits = tuple(shades.pop(key, None) for key in ("vmin", "vmax"))
    style = {"edgecolor": "white", "linewidth": 0.4, "array": values[owners], "clim": limits, **shades}
    drawn = ax.add_collection(PatchCollection(patches, **style))
    if without.any():
        dotted = [patch for patch, k in zip(patches, owners, strict=True) if without[k]]
        style = {"facecolor": "none", "edgecolor": "0.35", "hatch": "....", "linewidth": 0.0}
        ax.add_collection(PatchCollection(dotted, **style))
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(f"{name} by stratum" + " (dots: no records)" * bool(without.any()))
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8).set_label(name)
    return ax


def _heatmap(values, grid, titles, name, without, ax, shades):
    (rows, columns), (row, column) = grid
    table = np.full((len(rows), len(columns)), np.nan)
    table[row, column] = values
    height, width = np.clip(1.6 + 0.28 * np.array(table.shape), 3.5, 10.0)
    ax = canvas.axes(ax, (width + 1.2, height))
    image = ax.imshow(table, interpolation="nearest", aspect="auto", **shades)
    if without.any():
        ax.plot(column[without], row[without], ".", color="0.25", markersize=2.5)
    canvas.set_ticks(ax.xaxis, columns)
    canvas.set_ticks(ax.yaxis, rows, most=60)
    ax.set(ylabel=titles[0], xlabel=titles[1])
    note = " (dot: no records)" * bool(without.any())
    ax.set_title(f"{name} by {titles[0]} and {titles[1]}{note}", wrap=True)
    ax.figure.colorbar(image, ax=ax).set_label(name)
    return ax


def _lines(W, labels, values, bands, names, variable, without, ax, options):
    K, ordered = len(labels), are_numbers(labels)
    places = np.array(labels, dtype=float) if ordered else np.arange(K)
    W = sparse.csr_array(W)
    joined_to_next = K > 1 and (W.diagonal(1) > 0).all() and W.nnz == 2 * (K - 1)
    order, line = np.argsort(places, kind="stable"), "-" if ordered or joined_to_next else ""
    ax = canvas.axes(ax, (7.0 if ordered or K <= 15 else 9.0, 4.2 + (0 if ordered else canvas.room(labels))))
    marker, size = "" if line and K > 200 else "o", np.clip(150 / K, 1.5, 5.0)
    marked = bool(marker) and without.any()
    for position, (name, entry) in enumerate(names.items()):
        x, y = places, values[(slice(None), *entry)]
        if not line:
            x = x + 0.6 / len(names) * (position - (len(names) - 1) / 2)  # side by side
        style = {"linestyle": line, "marker": marker, "markersize": size, "label": name}
        (drawn,) = ax.plot(x[order], y[order], **{**style, **options})
        color = drawn.get_color()
        if marked:
            ax.plot(x[without], y[without], "o", color=color, mfc="white", markersize=size, zorder=3)
        if bands is not None:
            error = bands[(slice(None), *entry)]
            error = 2 * np.where(np.isfinite(error), error, np.nan)
            if line:
                low, high = (y - error)[order], (y + error)[order]
                ax.fill_between(x[order], low, high, color=color, alpha=0.2, linewidth=0)
            else:
                ax.errorbar(x, y, error, linestyle="", color=color, alpha=0.5, zorder=1)
    if not ordered:
        canvas.set_ticks(ax.xaxis, labels)
    elif all(float(label).is_integer() for label in labels):
        ax.xaxis.get_major_locator().set_params(integer=True)
    title = next(iter(names)) if len(names) == 1 else variable
    notes = ["hollow: no records"] * bool(marked)
    notes += [f"{'band' if line else 'bar'}: two standard errors"] * (bands is not None)
    notes = f" ({', '.join(notes)})" * bool(notes)
    ax.set(xlabel="stratum", ylabel=title, title=f"{title} by stratum{notes}")
    if len(names) > 1:  # beside the data
        ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.grid(alpha=0.3)
    return ax


def history(
    fits: Any, x: str = "iterations", gap: bool = False, ax: "Axes | None" = None, **options: Any
) -> "Axes":
    """Draw the objective against iterations or seconds.

    Parameters
    ----------
    fits : fitted model, Result, or dict or sequence of them
        The keys of a dict name the lines.
    x : {"iterations", "seconds"}
        The quantity on the x axis.
    gap : bool
        Draw the distance to the lowest objective of all fits, on a log scale. Only for fits that minimise the same function.
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
    fits = fits if isinstance(fits, dict) else {"": fits}  # a single fit has no name
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
    ylabel, yscale = ("objective above the lowest", "log") if gap else ("objective", "linear")
    ax.set(xlabel=x.replace("ations", "ation"), ylabel=ylabel, yscale=yscale, title="Objective")
    if x == "iterations" and ax.get_xscale() == "linear":
        ax.xaxis.get_major_locator().set_params(integer=True)
    if any(results):
        ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    return ax
