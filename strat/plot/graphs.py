"""The graph itself: strata as points, edges as lines whose width and colour are their weights."""

import numbers
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from strat.errors import OptionError
from strat.graphs.geometry import centres, shapes_of
from strat.graphs.reading import read_weights
from strat.plot import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 60  # most strata that are named


def graph(
    graph: Any, most: int = 2000, pos: ArrayLike | None = None, ax: "Axes | None" = None, **options: Any
) -> "Axes":
    """Draw a graph: places where they lie, strata whose labels are pairs on a grid, others where a layout by weights puts them.

    Parameters
    ----------
    graph : fitted model, LearnedGraph, networkx.Graph, (labels, W), or W alone
        The graph.
    most : int
        How many edges are drawn at most, the heaviest; the title says if some are left out.
    pos : dict or (K, 2) array_like, optional
        Coordinates of the nodes, by label or in order. By default the centroids of shapes that nodes carry
        (``graphs.from_geometry``).
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    **options
        For the ``LineCollection`` of the edges, such as ``cmap`` or ``norm``.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import strat
    >>> strat.plot.graph(strat.graphs.cycle(12)).get_title()
    '12 strata, 12 edges of weight 1'
    """
    if isinstance(most, bool) or not isinstance(most, numbers.Integral) or most < 1:
        raise OptionError(f"most is {most!r}, but it is a number of edges, at least 1.")
    weighted = read_weights(graph)
    labels, W = weighted.labels, weighted.matrix()
    ax = canvas.axes(ax, (7.0, 6.0))
    upper = sparse.coo_array(sparse.triu(W, 1))
    positive = np.flatnonzero(upper.data > 0)
    total = len(positive)
    heaviest = positive[np.argsort(upper.data[positive], kind="stable")[-most:]]  # the heaviest last, on top
    i, j, w = upper.coords[0][heaviest], upper.coords[1][heaviest], upper.data[heaviest]
    given = _given(pos, graph, labels)
    grid = canvas.coordinates(labels) if given is None else None
    if given is not None:
        places = given
        ax.set_aspect("equal")
    else:
        places = (
            _layout(len(labels), i, j, w) if grid is None else np.column_stack(grid[1][::-1]).astype(float)
        )
    alike = bool(len(w)) and w.max() - w.min() <= 1e-9 * w.max()
    if len(w):
        thickest = float(np.clip(250 / len(labels), 0.7, 2.0 if alike else 3.5))
        _draw_edges(ax, _curves(places, i, j, bent=grid is not None), w, thickest, alike, options)
    size = float(np.clip(3000 / len(labels), 3, 60))
    ax.scatter(*places.T, s=size, color="0.2", edgecolors="white", linewidths=0.5, zorder=2)
    if grid is None:
        _name_strata(ax, labels, places)
    else:
        for axis, values, title in zip((ax.yaxis, ax.xaxis), grid[0], canvas.axis_names(graph), strict=True):
            canvas.set_ticks(axis, values)
            axis.set_label_text(title)
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
    ax.margins(0.06)
    left_out = f"the {len(w):,} heaviest of " if len(w) < total else ""
    weight = f" of weight {w.max():g}" if alike else ""
    ax.set_title(f"{len(labels):,} strata, {left_out}{total:,} edges{weight}")
    return ax


def _given(pos, graph, labels):
    """Places (K, 2) that the user or the nodes' shapes give; None where they give none."""
    shapes = shapes_of(graph, labels)
    if pos is None:
        return None if shapes is None else centres(shapes)
    try:
        places = np.array([pos[label] for label in labels] if isinstance(pos, dict) else pos, dtype=float)
    except (KeyError, TypeError, ValueError):
        places = np.empty(0)
    if places.shape != (len(labels), 2) or not np.isfinite(places).all():
        raise OptionError(
            f"pos must be {{label: (x, y)}} for all {len(labels):,} nodes, or their finite coordinates (K, 2), in order."
        )
    return places


def _draw_edges(ax, curves, w, thickest, alike, options):
    """Edges, the heavier the thicker, darker and less transparent; all grey where their weights are one number."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap

    strength = w / w.max()
    style = {"linewidths": 0.4 + thickest * strength, "capstyle": "round", "zorder": 1}
    if alike:
        ax.add_collection(LineCollection(curves, **{**style, "colors": "0.55", **options}))
        return
    shades = ListedColormap(colormaps["magma_r"](np.linspace(0.2, 1.0, 256)))  # thin lines need some colour
    least = float(np.clip(150 / len(w), 0.2, 0.8))
    style |= {"array": w, "cmap": shades, "alpha": least + (1 - least) * strength, **options}
    lines = LineCollection(curves, **style)
    if "norm" not in options:
        lines.set_clim(0.0, w.max())
    ax.add_collection(lines)
    opaque = ScalarMappable(lines.norm, lines.cmap)
    ax.figure.colorbar(opaque, ax=ax, shrink=0.8).set_label("weight")


def _name_strata(ax, labels, places):
    from matplotlib.patheffects import withStroke

    ax.set_axis_off()
    halo = [withStroke(linewidth=2, foreground="white")]
    for label, place in zip(labels, places, strict=True) if len(labels) <= NAMED else ():
        beside = {"xytext": (4, 4), "textcoords": "offset points"}
        label = canvas.short(label)
        ax.annotate(label, place, **beside, fontsize=8 if len(labels) <= 20 else 6.5, path_effects=halo)


def _layout(K, i, j, w):
    """Places (K, 2) by stress (few strata) or by springs; the same every time."""
    drawn = nx.Graph()
    drawn.add_nodes_from(range(K))
    strongest = w.max() if len(w) else 1.0
    drawn.add_weighted_edges_from(zip(i.tolist(), j.tolist(), (w / strongest).tolist(), strict=True))
    if 1 < K <= 150:
        for *_, data in drawn.edges(data=True):
            data["length"] = 1 / np.sqrt(max(data["weight"], 1e-3))  # heavy edges are short, within reason
        parts = [max(part, key=drawn.degree) for part in nx.connected_components(drawn)]
        nx.add_path(drawn, parts, length=3.0)  # keeps components near one another
        places = nx.kamada_kawai_layout(drawn, weight="length")
    else:
        places = nx.spring_layout(drawn, seed=0, k=2.5 / np.sqrt(K), iterations=100)
    return np.array([places[k] for k in range(K)])


def _curves(places, i, j, bent):
    """Edges as polylines: straight, or bent where they would run through other places of the grid."""
    a, b = places[i], places[j]
    along = np.linspace(0, 1, 13 if bent else 2)[None, :, None]
    lines = a[:, None] + along * (b - a)[:, None]
    if bent:
        (dx, dy), far = (b - a).T, np.abs(b - a).sum(axis=1) > 1
        across = np.column_stack([-dy, dx]) * far[:, None]
        lines += 0.4 * along * (1 - along) * across[:, None]
    return lines
