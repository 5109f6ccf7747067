"""Axes, ticks and labels: what all pictures share."""

import numpy as np

from strat.errors import OptionError, optional
from strat.records.labels import are_numbers, axis_factors

ALL, TICKS = 40, 20  # an axis shows all of up to ALL labels, and at most TICKS of more
LONGEST = 28  # most characters of a label


def axes(ax, size):
    """Return the axes to draw into, by default those of a new figure of the given size in inches."""
    plt = optional("matplotlib.pyplot", "strat.plot", "plot")
    if ax is not None and not hasattr(ax, "get_figure"):
        raise OptionError(f"ax is {ax!r}, but it is the matplotlib Axes to draw into, or None for new ones.")
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def short(label):
    """A label as text, tuples without their brackets; long texts are cut in the middle, as the end may be a number."""
    text = ", ".join(map(str, label)) if type(label) is tuple else str(label)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 10]}…{text[-9:]}"


def shown(labels, most=ALL):
    """The step from one tick label to the next, the texts (of all labels up to `most`), and whether these are wide."""
    step = 1 if len(labels) <= most else -(-len(labels) // TICKS)
    texts = [short(label) for label in labels[::step]]
    return step, texts, sum(len(text) + 2 for text in texts) > 60


def room(labels):
    """Inches that rotated tick labels take; 0 where they need not be rotated."""
    _, texts, wide = shown(labels)
    return 0.06 * max(map(len, texts)) if wide else 0.0


def set_ticks(axis, labels, places=None, most=ALL):
    """Put labels at 0, 1, … of an axis, or at `places`; wide ones are rotated on the x axis."""
    step, texts, wide = shown(labels, most)
    axis.set_ticks((np.arange(len(labels)) if places is None else places)[::step], texts)
    axis.set_tick_params(which="major", labelsize=8 if len(texts) > 25 or wide else None)
    if axis.axis_name == "x" and wide:
        axis.set_tick_params(which="major", rotation=90)


def set_strata_ticks(axis, labels, name):
    """Label an axis with one place for each stratum: by the first coordinate where strata that share it are adjacent."""
    K, tuples = len(labels), all(type(label) is tuple and len(label) > 1 for label in labels)
    starts = [k for k in range(K) if k == 0 or not tuples or labels[k][0] != labels[k - 1][0]]
    if len(starts) == K or len({labels[k][0] for k in starts}) < len(starts):
        set_ticks(axis, labels)
        axis.set_label_text("stratum")
        return
    set_ticks(axis, [labels[k][0] for k in starts], (np.array(starts) + [*starts[1:], K] - 1) / 2)
    axis.set_ticks(np.array(starts[1:]) - 0.5, minor=True)
    axis.set_tick_params(which="major", length=0)
    axis.set_tick_params(which="minor", length=4)
    axis.set_label_text(f"stratum, by {name}")


def coordinates(labels):
    """Coordinates of labels that are pairs: (rows, columns), and the row and column of each label; None for other labels."""
    if len(labels) < 2 or not all(type(label) is tuple and len(label) == 2 for label in labels):
        return None
    along = list(zip(*labels, strict=True))
    values = [sorted(set(a)) if are_numbers(a) else list(dict.fromkeys(a)) for a in along]
    places = [{value: k for k, value in enumerate(axis)} for axis in values]
    return values, [np.array([place[x] for x in a]) for place, a in zip(places, along, strict=True)]


def axis_names(graph):
    """Names of the first two coordinates of a product graph's strata: the factor of the edges along each, if named."""
    factors = axis_factors(getattr(graph, "graph", graph) if hasattr(graph, "theta_") else graph)
    return [factors.get(axis, f"{word} coordinate") for axis, word in enumerate(("first", "second"))]
