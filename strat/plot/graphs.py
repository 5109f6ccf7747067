"""The graph: strata as points and edges as lines whose width and colour are their weights, and the weights as a heatmap."""

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from strat.errors import DataError, OptionError, check_whole, optional
from strat.graphs.features import centres, shapes_of
from strat.graphs.prior_graph import read_graph
from strat.graphs.report import read_weights
from strat.plot import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 60  # most strata that are named
PIXELS = 400  # strata that a heatmap shows one by one


def graph(
    graph: Any, most: int = 2000, pos: ArrayLike | None = None, ax: "Axes | None" = None, **options: Any
) -> "Axes":
    """Draw a graph: places where they lie, strata whose labels are pairs on a grid, and others by a layout from the weights.

    Parameters
    ----------
    graph : fitted model, LearnedGraph, networkx.Graph, (labels, W), or W alone
        The graph.
    most : int
        Most edges to draw, the heaviest first; the title says if some are left out.
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
    check_whole("most", most, 1)
    patheffects = optional("matplotlib.patheffects", "strat.plot", "plot")
    prior, ax = read_weights(graph), canvas.axes(ax, (7.0, 6.0))
    labels, i, j, w = prior.labels, prior.i, prior.j, prior.weights()
    heaviest = np.argsort(w, kind="stable")[-most:]  # the heaviest last, on top
    total, heaviest = np.count_nonzero(w), heaviest[w[heaviest] > 0]
    i, j, w = i[heaviest], j[heaviest], w[heaviest]
    places, grid = _given(pos, graph, labels), None
    if places is not None:
        ax.set_aspect("equal")
    else:
        grid = canvas.coordinates(labels)
        on_grid = grid and np.column_stack(grid[1][::-1]).astype(float)
        places = _layout(len(labels), i, j, w) if grid is None else on_grid
    alike = bool(len(w)) and w.max() - w.min() <= 1e-9 * w.max()
    if len(w):
        thickest = float(np.clip(250 / len(labels), 0.7, 2.0 if alike else 3.5))
        _draw_edges(ax, _curves(places, i, j, bent=grid is not None), w, thickest, alike, options)
    size = float(np.clip(3000 / len(labels), 3, 60))
    ax.scatter(*places.T, s=size, color="0.2", edgecolors="white", linewidths=0.5, zorder=2)
    if grid is None:
        ax.set_axis_off()
        style = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 8 if len(labels) <= 20 else 6.5}
        halo = [patheffects.withStroke(linewidth=2, foreground="white")]
        for label, place in zip(labels, places, strict=True) if len(labels) <= NAMED else ():
            ax.annotate(canvas.short(label), place, **style, path_effects=halo)
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
    """Places (K, 2) given by the user or by the nodes' shapes; None where there are none."""
    shapes = shapes_of(graph, labels)
    if pos is None:
        return None if shapes is None else centres(shapes)
    try:
        places = np.array([pos[label] for label in labels] if isinstance(pos, dict) else pos, dtype=float)
    except (KeyError, TypeError, ValueError):
        places = np.empty(0)
    if places.shape != (len(labels), 2) or not np.isfinite(places).all():
        raise OptionError("pos must be {label: (x, y)} of all nodes, or a finite (K, 2) array in order.")
    return places


def _draw_edges(ax, curves, w, thickest, alike, options):
    """Draw the edges, heavier ones thicker, darker and less transparent; all are grey where the weights are equal."""
    from matplotlib import cm, collections, colormaps, colors

    strength = w / w.max()
    style = {"linewidths": 0.4 + thickest * strength, "capstyle": "round", "zorder": 1}
    if alike:
        ax.add_collection(collections.LineCollection(curves, **{**style, "colors": "0.55", **options}))
        return
    # Leave out the palest colours, which thin lines would not show.
    shades = colors.ListedColormap(colormaps["magma_r"](np.linspace(0.2, 1.0, 256)))
    least = float(np.clip(150 / len(w), 0.2, 0.8))
    style |= {"array": w, "cmap": shades, "alpha": least + (1 - least) * strength, **options}
    lines = ax.add_collection(collections.LineCollection(curves, **style))
    if "norm" not in options:
        lines.set_clim(0.0, w.max())
    opaque = cm.ScalarMappable(lines.norm, lines.cmap)
    ax.figure.colorbar(opaque, ax=ax, shrink=0.8).set_label("weight")


def _layout(K, i, j, w):
    """Places (K, 2) by minimal stress (few strata) or by springs; the same in every call."""
    drawn = nx.empty_graph(K)
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


def weights(graph: Any, prior: Any = None, ax: "Axes | None" = None, **options: Any) -> "Axes":
    """Draw W, or its difference to a prior graph, as a heatmap over pairs of strata.

    Beyond 400 strata a cell stands for several pairs and shows the weight, or change, of the largest size.

    Parameters
    ----------
    graph : fitted model, LearnedGraph, networkx.Graph, (labels, W), or W alone
        The graph.
    prior : graph or True, optional
        W0: then W − W0 is drawn, blue where it is below 0 and red above. True is a model's own prior, with its scale.
        The darkest colours stand for changes as large as a typical weight or larger, so that small changes look small;
        where a few changes are far larger than the rest, they all get the darkest colours.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    **options
        For ``Axes.imshow``, such as ``cmap`` or ``norm``.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import strat
    >>> ax = strat.plot.weights(strat.graphs.grid(4, 5, weight=(2.0, 1.0)))
    >>> ax.get_title()
    'Weights W'
    """
    weighted = read_weights(graph)
    labels, W, K = weighted.labels, weighted.matrix(), len(weighted.labels)
    size, turned = float(np.clip(2.4 + 0.2 * K, 5.4, 8.4 if K <= canvas.ALL else 5.4)), canvas.room(labels)
    ax = canvas.axes(ax, (size + 1.0 + turned, size + turned))
    title, name, ends = "Weights W", "weight (white: no edge)", "neither"
    if prior is None:
        shown = np.ma.masked_equal(_pooled(W), 0.0)
        shades = {"cmap": "magma_r", "vmin": 0.0}
    else:
        W0 = _prior(graph, prior, labels)
        title, name, shown = "Change of the weights W − W0", "W − W0", _pooled(W - W0)
        # The darkest colour stands for at least the median weight of W0 (or of W, if W0 has no edges); a few may exceed it.
        weight = next((float(np.median(X.data[X.data > 0])) for X in (W0, W) if (X.data > 0).any()), 0.0)
        sizes = np.abs(shown[shown != 0])
        largest, usual = sizes.max(initial=0.0), np.quantile(sizes, 0.99) if sizes.size else 0.0
        most = max(largest if largest <= 3 * usual else usual, weight) or 1.0
        ends = "both" if largest > most else "neither"
        shades = {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    if "norm" in options:
        shades, ends = {"cmap": shades["cmap"]}, "neither"
    places = {"extent": (-0.5, K - 0.5, K - 0.5, -0.5), "interpolation": "nearest"}
    image = ax.imshow(shown, **places, **{**shades, **options})
    for axis in (ax.xaxis, ax.yaxis):
        canvas.set_strata_ticks(axis, labels, canvas.axis_names(graph)[0])
    ax.set_title(title)
    ax.figure.colorbar(image, ax=ax, extend=ends).set_label(name)
    return ax


def _prior(graph, prior, labels):
    """W0 in the order of the labels."""
    if prior is True:
        if not hasattr(graph, "theta_"):
            raise OptionError("prior=True needs a model, but this is not a model. Give the graph W0.")
        if graph.graph is None:
            return sparse.csr_array((len(labels), len(labels)))
        return read_graph(graph.graph).matrix(graph.scale)
    weighted = read_weights(prior)
    alone = sparse.issparse(prior) or isinstance(prior, np.ndarray)  # W without labels
    place = dict(zip(labels, range(weighted.K), strict=False)) if alone else weighted.position
    missing = [label for label in labels if label not in place]
    if missing or len(labels) != weighted.K:
        what = f"lacks {missing[0]!r}" if missing else f"has {weighted.K:,} strata, not {len(labels):,}"
        raise DataError(f"the prior graph {what}. Give W0 on the strata of W.")
    order = [place[label] for label in labels]
    return weighted.matrix()[order][:, order]


def _pooled(W):
    """W as an array of at most PIXELS cells a side, each of which holds the entry of largest size of its block."""
    K, W = W.shape[0], sparse.coo_array(W)
    step = -(-K // PIXELS)
    row, column = (index // step for index in W.coords)
    rising = np.argsort(np.abs(W.data), kind="stable")
    shown = np.zeros((-(-K // step),) * 2)
    shown[row[rising], column[rising]] = W.data[rising]  # the largest comes last
    return shown
