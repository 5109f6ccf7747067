"""Parameters over strata: lines along one coordinate, a heatmap over two."""

import numpy as np
from scipy import sparse

from strat.derivatives.standard_errors import standard_errors
from strat.errors import OptionError
from strat.model.estimator import check_fitted
from strat.plot import canvas

LINES = 12  # most entries of a variable that are drawn at once


def parameters(model, variable=None, index=None, errors=False, ax=None, **options):
    """Draw one variable's values over the strata.

    Strata whose labels are pairs, as those of a product graph, become a heatmap, the first coordinate down and the second
    across; pairs that are no strata stay blank. Other strata become a line, or points where they have no order. Dots, or
    hollow points, mark strata without records.

    Parameters
    ----------
    model : fitted model
        Whose parameters are drawn.
    variable : str, optional
        The variable's name; the first by default.
    index : int or tuple, optional
        The entry of a vector or matrix variable. By default a heatmap shows the first, lines show all up to twelve.
    errors : bool
        Draw a band (bars around points) of two standard errors, by ``strat.standard_errors``; not on a heatmap.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    **options
        For ``Axes.imshow`` (pairs) or ``Axes.plot``.

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
    if variable not in model.theta_:
        known = ", ".join(model.theta_)
        raise OptionError(f"{variable!r} is no variable of the model; its variables are {known}.")
    values, labels = model.theta_[variable], list(model.strata_)
    grid = canvas.coordinates(labels)
    names = _entries(variable, values.shape[1:], index, most=LINES if grid is None else 1)
    if grid is not None and errors:
        raise OptionError(
            "errors=True draws bands on lines and bars on points, but these strata are pairs and make a heatmap. "
            "strat.standard_errors(model) gives the numbers."
        )
    if grid is not None:
        (name, entry), *_ = names.items()
        values, titles = values[(slice(None), *entry)], canvas.axis_names(model)
        return _heatmap(values, grid, titles, name, _without_records(model), ax, options)
    bands = standard_errors(model)[variable] if errors else None
    return _lines(model, labels, values, bands, names, variable, ax, options)


def _entries(variable, shape, index, most):
    """The entries to draw, as {name: index}."""
    if index is None:
        chosen = list(np.ndindex(shape))[:most]
    else:
        index = tuple(index) if isinstance(index, tuple | list) else (index,)
        try:
            single = np.ndim(np.zeros(shape)[index]) == 0
        except (IndexError, TypeError):
            single = False
        if not single:
            raise OptionError(f"index={index!r} is no entry of {variable}, which has shape {shape}.")
        chosen = [index]
    return {variable + (f"[{', '.join(map(str, entry))}]" if entry else ""): entry for entry in chosen}


def _heatmap(values, grid, titles, name, without, ax, options):
    (rows, columns), (row, column) = grid
    table = np.full((len(rows), len(columns)), np.nan)
    table[row, column] = values
    low, high = np.nanmin(values), np.nanmax(values)
    if low < 0 < high:  # both signs: colours around 0
        size = max(-low, high)
        shades = {"cmap": "RdBu_r", "vmin": -size, "vmax": size}
    else:
        shades = {"cmap": "viridis"}
    height, width = (float(np.clip(1.6 + 0.28 * n, 3.5, 10.0)) for n in table.shape)
    ax = canvas.axes(ax, (width + 1.2, height))
    if "norm" in options:
        shades = {"cmap": shades["cmap"]}
    image = ax.imshow(table, interpolation="nearest", aspect="auto", **{**shades, **options})
    if without.any():
        ax.plot(column[without], row[without], ".", color="0.25", markersize=2.5)
    canvas.set_ticks(ax.xaxis, columns)
    if len(rows) <= 60:
        ax.yaxis.set_ticks(range(len(rows)), [canvas.text(label) for label in rows])
        ax.yaxis.set_tick_params(labelsize=8 if len(rows) > 25 else None)
    else:
        canvas.set_ticks(ax.yaxis, rows)
    ax.set_ylabel(titles[0])
    ax.set_xlabel(titles[1])
    ax.set_title(f"{name} over strata" + " (dot: no records)" * bool(without.any()))
    ax.figure.colorbar(image, ax=ax).set_label(name)
    return ax


def _lines(model, labels, values, bands, names, variable, ax, options):
    ax = canvas.axes(ax, (7.0, 4.2))
    ordered = canvas.are_numbers(labels)
    x = np.array(labels, dtype=float) if ordered else np.arange(len(labels))
    order = np.argsort(x, kind="stable")
    line = "-" if ordered or _is_path(model.W_) else ""
    without = _without_records(model)
    size = float(np.clip(150 / len(labels), 1.5, 5.0))
    marker = "" if line and len(labels) > 200 else "o"
    marked = bool(marker) and without.any()
    middle, places = (len(names) - 1) / 2, x
    for position, (name, entry) in enumerate(names.items()):
        y = values[(slice(None), *entry)]
        x = places if line else places + 0.6 / len(names) * (position - middle)  # side by side
        style = {"linestyle": line, "marker": marker, "markersize": size, "label": name, **options}
        (drawn,) = ax.plot(x[order], y[order], **style)
        if marked:
            style = {"color": drawn.get_color(), "markersize": size, "markerfacecolor": "white", "zorder": 3}
            ax.plot(x[without], y[without], "o", **style)
        if bands is not None:
            error = bands[(slice(None), *entry)]
            error = np.where(np.isfinite(error), error, np.nan)
            if line:
                low, high = (y - 2 * error)[order], (y + 2 * error)[order]
                ax.fill_between(x[order], low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
            else:
                ax.errorbar(x, y, 2 * error, linestyle="", color=drawn.get_color(), alpha=0.5, zorder=1)
    if not ordered:
        canvas.set_ticks(ax.xaxis, labels)
    elif all(float(label).is_integer() for label in labels):
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("stratum")
    ax.set_ylabel(next(iter(names)) if len(names) == 1 else variable)
    notes = ["hollow: no records"] * bool(marked)
    notes += [f"{'band' if line else 'bar'}: two standard errors"] * (bands is not None)
    ax.set_title(f"{variable} over strata" + (f" ({', '.join(notes)})" if notes else ""))
    if len(names) > 1:
        ax.legend(fontsize="small", ncols=-(-len(names) // 6), frameon=False)
    ax.grid(alpha=0.3)
    return ax


def _is_path(W):
    """Whether each stratum is joined to the next."""
    W = sparse.csr_array(W)
    return W.shape[0] > 1 and bool(np.all(W.diagonal(1) > 0)) and W.nnz == 2 * (W.shape[0] - 1)


def _without_records(model):
    """Mask of the strata without records; none where the model does not know, or where no stratum has any."""
    records, K = getattr(model, "_training", None), len(model.strata_)
    if records is None or not records.weight.any():
        return np.zeros(K, dtype=bool)
    return np.bincount(records.strata.index[records.weight > 0], minlength=K) == 0
