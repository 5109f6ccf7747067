"""How the fitted parameters answer changes of edge weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from strat.derivatives.fitted_model import FittedModel
from strat.graphs.candidates import candidate_edges
from strat.records.labels import plain
from strat.records.tables import Table, aligned, number

SHOWN = 10


def sensitivity(model: Any, edges: list | None = None) -> "Sensitivity":
    """Derivatives of the fitted parameters in edge weights, and which edges matter most.

    With H the Hessian of losses and regularizer at the fit, d theta / d w_ij = −(H + G(W))⁻¹ E_ij theta over the
    directions in which the parameters can move, E_ij being the Laplacian of the single edge. On a model with a learned
    graph, W is held at its value.

    Parameters
    ----------
    model : StratifiedModel
        Fitted, with a loss that has second derivatives.
    edges : list of label pairs, {"prior", "two-hop", "knn", "all"} or graph, optional
        Edges to differentiate in, also ones that the graph does not have. By default those of the graph W.

    Returns
    -------
    Sensitivity
        A mapping ``{(label, label): {variable: (K, *shape)}}``; it prints the most influential edges.

    Raises
    ------
    NoOracleError
        If the loss is not smooth.
    GraphError
        If an edge's label is no stratum.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> model = strat.lrsm(base, strat.graphs.path(["a", "b", "c"]))
    >>> model = model.fit([1.0, 2.0, 6.0], strata=["a", "b", "c"])
    >>> found = strat.sensitivity(model)
    >>> found["a", "b"]["theta"].round(3)
    array([ 0.284, -0.213, -0.071])
    >>> found.ranking
    [('b', 'c'), ('a', 'b')]
    """
    fitted = FittedModel(model, "sensitivity")
    prior = fitted.bound_model.prior
    if isinstance(edges, (list, np.ndarray)):
        candidate_edges(edges, prior)  # checks the labels
        pairs = [tuple(pair) for pair in (edges.tolist() if isinstance(edges, np.ndarray) else edges)]
        places = [[prior.position[plain(label)] for label in pair] for pair in pairs]
        i, j = np.array(places, dtype=np.intp).reshape(-1, 2).T
    else:
        own = fitted.bound_model.edges.ends
        i, j = own if edges is None else candidate_edges(edges, prior, lambda: fitted.theta)
        pairs = [(prior.labels[a], prior.labels[b]) for a, b in zip(i.tolist(), j.tolist(), strict=True)]
    linearization = fitted.linearized()
    theta, E = linearization.theta, np.arange(len(pairs))
    # d theta / d w_ij = −A⁻¹ E_ij theta, and E_ij theta is the coupled difference at i, its negative at j.
    differences = fitted.couple(np.minimum(i, j), np.maximum(i, j)) * (theta[i] - theta[j])
    right = np.zeros((len(pairs), *theta.shape))
    right[E, i], right[E, j] = -differences, differences
    derivatives = linearization.solve(right)
    W = model.W_[i, j] if isinstance(model.W_, np.ndarray) else np.asarray(model.W_[i, j]).ravel()
    return Sensitivity(pairs, derivatives, W, list(model.strata_), model.base.layout, theta)


class Sensitivity(Table, Mapping):
    """Derivatives of the fitted parameters in edge weights, by edge.

    Parameters
    ----------
    pairs : list of tuple
        The edges.
    derivatives : (E, K, n) ndarray
        Of the strata's flat parameters.
    weights : (E,) ndarray
        The edges' weights.
    strata : list
        Labels.
    layout : Layout
        Where each variable lies.
    theta : (K, n) ndarray
        The fitted parameters.

    Attributes
    ----------
    influence : (E,) ndarray
        Norm of each edge's derivative over all strata and parameters.
    weights : (E,) ndarray
    """

    columns = ("edge", "weight", "influence", "most moved", "its share")

    def __init__(self, pairs, derivatives, weights, strata, layout, theta):
        self.pairs, self.derivatives, self.weights = pairs, derivatives, weights
        self.strata, self.layout, self.theta = strata, layout, theta
        self._place = {pair: e for e, pair in enumerate(pairs)}
        self.moves = np.linalg.norm(derivatives, axis=2)
        self.influence = np.linalg.norm(self.moves, axis=1)
        self._order = np.argsort(-self.influence, kind="stable")

    def __getitem__(self, edge):
        reversed_edge = edge[::-1] if isinstance(edge, tuple) else None
        e = self._place.get(edge, self._place.get(reversed_edge))
        if e is None:
            raise KeyError(f"no derivative in the edge {edge!r} was asked for; `pairs` lists those that were")
        return self.layout.unpack(self.derivatives[e])

    def __iter__(self):
        return iter(self.pairs)

    def __len__(self):
        return len(self.pairs)

    @property
    def ranking(self):
        """The edges, from the most influential to the least.

        Returns
        -------
        list of tuple
            By the norm of the derivative.
        """
        return [self.pairs[e] for e in self._order]

    def cells(self):
        """Rows of values, one an edge, the most influential first."""
        share = self.moves / np.where(self.influence > 0, self.influence, 1.0)[:, None]
        most = share.argmax(axis=1)
        return [
            [
                self.pairs[e],
                float(self.weights[e]),
                float(self.influence[e]),
                self.strata[most[e]],
                float(share[e, most[e]]),
            ]
            for e in self._order
        ]

    def texts(self):
        """Head and rows as texts."""
        return [list(self.columns)] + [
            [f"{a!r} – {b!r}", number(weight), number(size), repr(label), number(share, 2)]
            for (a, b), weight, size, label, share in self.cells()
        ]

    def __str__(self):
        if not self.pairs:
            return "no edges"
        lines = [aligned(self.texts()[: SHOWN + 1])]
        if len(self) > SHOWN:
            lines.append(f"… and {len(self) - SHOWN} more (ranking, to_frame() have all)")
        lines.append("influence: norm of the derivative of all strata's parameters in the edge's weight")
        return "\n".join(lines)

    __repr__ = __str__
