"""The weights of a graph as a heatmap."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from strat.errors import DataError, OptionError
from strat.graphs.reading import read_graph, read_weights
from strat.plot import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIXELS = 400  # strata that a heatmap shows one by one


def weights(graph: Any, prior: Any = None, ax: "Axes | None" = None, **options: Any) -> "Axes":
    """Draw W, or its difference to a prior graph, as a heatmap over pairs of strata.

    Beyond 400 strata a cell stands for several pairs and shows the weight, or change, of the largest size.

    Parameters
    ----------
    graph : fitted model, LearnedGraph, networkx.Graph, (labels, W), or W alone
        The graph.
    prior : graph or True, optional
        W0: then W − W0 is drawn, blue where it is below 0 and red above. True is a model's own prior, with its scale.
        The darkest colours are for changes of the size of a usual weight or more, so that small changes look small; where
        a few are far larger than the rest, they all get these.
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
    labels, W = weighted.labels, weighted.matrix()
    if prior is not None:
        W0 = _prior(graph, prior, labels)
        W = W - W0
    size = float(np.clip(2.4 + 0.2 * len(labels), 5.4, 8.4 if len(labels) <= canvas.ALL else 5.4))
    turned = canvas.room(labels)
    ax = canvas.axes(ax, (size + 1.0 + turned, size + turned))
    step = -(-len(labels) // PIXELS)
    shown = _pooled(W, step)
    if prior is None:
        shown = np.ma.masked_equal(shown, 0.0)
        shades, ends = {"cmap": "magma_r", "vmin": 0.0}, "neither"
    else:
        size, ends = _extent(shown, _usual(W0) or _usual(weighted.matrix()))
        shades = {"cmap": "RdBu_r", "vmin": -size, "vmax": size}
    if "norm" in options:
        shades, ends = {"cmap": shades["cmap"]}, "neither"
    options = {**shades, **options}
    K = len(labels)
    image = ax.imshow(shown, extent=(-0.5, K - 0.5, K - 0.5, -0.5), interpolation="nearest", **options)
    for axis in (ax.xaxis, ax.yaxis):
        canvas.set_strata_ticks(axis, labels, canvas.axis_names(graph)[0])
    ax.set_title("Weights W" if prior is None else "Change of the weights W − W0")
    bar = ax.figure.colorbar(image, ax=ax, extend=ends)
    bar.set_label("weight (white: no edge)" if prior is None else "W − W0")
    return ax


def _prior(graph, prior, labels):
    """W0 in the order of the labels."""
    if prior is True:
        if not hasattr(graph, "theta_"):
            raise OptionError(
                "prior=True asks for a model's own prior, but this is no model. Give the graph W0."
            )
        if graph.graph is None:
            return sparse.csr_array((len(labels), len(labels)))
        return read_graph(graph.graph).matrix(graph.scale)
    weighted = read_weights(prior)
    nodes, W0 = weighted.labels, weighted.matrix()
    if sparse.issparse(prior) or isinstance(prior, np.ndarray):
        nodes = labels
    place = {label: k for k, label in enumerate(nodes)}
    missing = [label for label in labels if label not in place]
    if missing or W0.shape[0] != len(labels):
        what = f"lacks {missing[0]!r}" if missing else f"has {W0.shape[0]:,} strata, not {len(labels):,}"
        raise DataError(f"the prior graph {what}. Give W0 on the strata of W.")
    order = [place[label] for label in labels]
    return W0[order][:, order]


def _usual(W):
    """The median of the weights above 0; 0 where there are none."""
    return float(np.median(W.data[W.data > 0])) if (W.data > 0).any() else 0.0


def _extent(change, weight):
    """The size of the darkest colour, at least a usual weight, and which ends go beyond it."""
    sizes = np.abs(change[change != 0])
    if not sizes.size:
        return weight or 1.0, "neither"
    most, usual = sizes.max(), np.quantile(sizes, 0.99)
    size = max(most if most <= 3 * usual else usual, weight)
    return size, "both" if most > size else "neither"


def _pooled(W, step):
    """W as an array whose cells hold the entry of largest size of step × step blocks."""
    if step == 1:
        return W.toarray()
    W = sparse.coo_array(W)
    cells = -(-W.shape[0] // step)
    row, column = (index // step for index in W.coords)
    rising = np.argsort(np.abs(W.data), kind="stable")
    shown = np.zeros((cells, cells))
    shown[row[rising], column[rising]] = W.data[rising]  # the largest comes last
    return shown
