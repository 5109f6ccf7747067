"""Axes, ticks and colours: what all pictures share."""

import numbers

import numpy as np

from strat.errors import OptionError
from strat.records.axes import axis_factors

ALL, TICKS = 40, 20  # up to so many labels an axis shows all, otherwise so many of them
LONGEST = 28  # characters of one


def axes(ax, size):
    """Return the axes to draw into, by default those of a new figure of the given size in inches."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError('strat.plot needs matplotlib: pip install "strat[plot]".') from error
    if ax is not None and not hasattr(ax, "get_figure"):
        raise OptionError(
            f"ax is {ax!r}, but it is the matplotlib Axes to draw into, or None for a new figure."
        )
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def text(label):
    """Return a label as text, tuples without their brackets."""
    return ", ".join(map(str, label)) if type(label) is tuple else str(label)


def short(label):
    """The text of a label, cut where it is long."""
    whole = text(label)
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def shown(labels, most=ALL):
    """The step from one tick label to the next, and their texts: all up to `most`, otherwise TICKS of them."""
    step = 1 if len(labels) <= most else -(-len(labels) // TICKS)
    return step, [short(label) for label in labels[::step]]


def room(labels):
    """Inches that turned tick labels take; 0 where they need not be turned."""
    texts = shown(labels)[1]
    return 0.06 * max(map(len, texts)) if _are_wide(texts) else 0.0


def set_ticks(axis, labels, places=None, most=ALL):
    """Put labels at 0, 1, … of an axis, or at `places`, turned on the x axis where they are wide."""
    places = range(len(labels)) if places is None else places
    step, texts = shown(labels, most)
    axis.set_ticks(places[::step], texts)
    axis.set_tick_params(which="major", labelsize=8 if len(texts) > 25 or _are_wide(texts) else None)
    if axis.axis_name == "x" and _are_wide(texts):
        axis.set_tick_params(which="major", rotation=90)


def _are_wide(texts):
    return sum(len(label) + 2 for label in texts) > 60


def set_strata_ticks(axis, labels, name):
    """Label an axis with one place for each stratum: by the first coordinate where strata that share it are adjacent."""
    groups = _groups(labels)
    if groups is None:
        set_ticks(axis, labels)
        axis.set_label_text("stratum")
        return
    names, starts = groups
    set_ticks(axis, names, (np.array(starts) + np.array([*starts[1:], len(labels)]) - 1) / 2)
    axis.set_ticks(np.array(starts[1:]) - 0.5, minor=True)
    axis.set_tick_params(which="major", length=0)
    axis.set_tick_params(which="minor", length=4)
    axis.set_label_text(f"stratum, by {name}")


def coordinates(labels):
    """Coordinates of labels that are pairs: (rows, columns), and the row and column of each label; None for other labels."""
    if len(labels) < 2 or not all(type(label) is tuple and len(label) == 2 for label in labels):
        return None
    values = [list(dict.fromkeys(label[axis] for label in labels)) for axis in (0, 1)]
    values = [sorted(along) if are_numbers(along) else along for along in values]
    places = [{value: k for k, value in enumerate(along)} for along in values]
    return values, [np.array([places[axis][label[axis]] for label in labels]) for axis in (0, 1)]


def axis_names(graph, count=2):
    """Names of the coordinates of a product graph's strata: the factor of the edges along each, where it has a name."""
    graph = getattr(graph, "graph", graph) if hasattr(graph, "theta_") else graph
    factors, words = axis_factors(graph), ("first", "second", "third", "fourth")[:count]
    return [factors.get(axis, f"{word} coordinate") for axis, word in enumerate(words)]


def are_numbers(labels):
    """Whether all labels are real numbers."""
    return all(isinstance(label, numbers.Real) and not isinstance(label, bool) for label in labels)


def _groups(labels):
    """First coordinates and where each begins, if strata that share one are adjacent and some do; else None."""
    if not all(type(label) is tuple and len(label) > 1 for label in labels):
        return None
    starts = [k for k, label in enumerate(labels) if k == 0 or label[0] != labels[k - 1][0]]
    names = [labels[k][0] for k in starts]
    return (names, starts) if len(set(names)) == len(names) < len(labels) else None
