"""The drawing of a comparison."""

from strat.plot.canvas import axes


def dots(names, values, metric, ax=None):
    """Draw means with standard errors, one line a model.

    Parameters
    ----------
    names : list of str
        The models, from the top.
    values : dict
        ``{part: [(mean, standard error or None)]}``; the first part is drawn filled.
    metric : str
        Name of what is drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With the drawing.
    """
    ax = axes(ax, (6, 0.8 + 0.4 * len(names)))
    for k, (part, pairs) in enumerate(values.items()):
        place = [(i, *pair) for i, pair in enumerate(pairs) if pair[0] is not None]
        if place:
            rows, means, errors = zip(*place, strict=True)
            ax.errorbar(
                means,
                [row + 0.12 * k for row in rows],
                xerr=[error or 0.0 for error in errors],
                fmt="o",
                markersize=5,
                capsize=2,
                color="C0" if k == 0 else "0.55",
                mfc=None if k == 0 else "white",
                label=part,
            )
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(metric)
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
    ax.legend(frameon=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
