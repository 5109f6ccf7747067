"""How the fitted parameters respond to changes of edge weights, and how exact a weight must be (Theorem 1 of the paper)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from strat.errors import OptionError
from strat.graphs.candidates import candidate_edges, ends_of_pairs
from strat.model.hypergradient import FittedModel
from strat.oracles.base import floats
from strat.records.tables import Table

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
        Edges whose weights to differentiate in, including edges that the graph lacks. By default those of the graph W.

    Returns
    -------
    Sensitivity
        A mapping ``{(label, label): {variable: (K, *shape)}}``; it prints the most influential edges.

    Raises
    ------
    NoOracleError
        If the loss is not smooth.
    GraphError
        If an edge's label is not a stratum.

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
    if edges is None:
        i, j = fitted.bound_model.edges.ends
    elif isinstance(edges, list | np.ndarray):
        i, j = ends_of_pairs(edges, prior)  # in their order
    else:
        i, j = candidate_edges(edges, prior, lambda: fitted.theta)
    pairs = [(prior.labels[a], prior.labels[b]) for a, b in zip(i.tolist(), j.tolist(), strict=True)]
    linearization = fitted.linearized()
    theta, E = linearization.theta, np.arange(len(pairs))
    # d theta / d w_ij = −A⁻¹ E_ij theta, and E_ij theta is the coupled difference at i and its negative at j.
    differences = fitted.couple(np.minimum(i, j), np.maximum(i, j)) * (theta[i] - theta[j])
    right = np.zeros((len(pairs), *theta.shape))
    right[E, i], right[E, j] = -differences, differences
    W = np.asarray(model.W_[i, j]).ravel()
    return Sensitivity(pairs, linearization.solve(right), W, list(model.strata_), model.base.layout)


class Sensitivity(Table, Mapping):
    """Derivatives of the fitted parameters in edge weights, by edge.

    `pairs` are the edges, `weights` (E,) their weights, `derivatives` (E, K, n) the derivatives of the strata's flat
    parameters, and `influence` (E,) the norms of these.
    """

    layout = (
        ("edge", lambda edge: "{!r} – {!r}".format(*edge)),
        *(("weight", 4), ("influence", 4), ("most moved", repr), ("its share", 2)),
    )

    def __init__(self, pairs, derivatives, weights, strata, layout):
        self.pairs, self.derivatives, self.weights = pairs, derivatives, weights
        self.strata, self._layout = strata, layout
        self.influence = np.linalg.norm(derivatives, axis=(1, 2))
        self._order = np.argsort(-self.influence, kind="stable")
        self._place = {end[::way]: e for way in (-1, 1) for e, end in enumerate(pairs)}

    def __getitem__(self, edge):
        if edge not in self._place:
            raise KeyError(f"no derivative in the edge {edge!r} was asked for; `pairs` lists those that were")
        return self._layout.unpack(self.derivatives[self._place[edge]])

    def __iter__(self):
        return iter(self.pairs)

    def __len__(self):
        return len(self.pairs)

    @property
    def ranking(self):
        """The edges, from the most influential to the least, by the norm of the derivative."""
        return [self.pairs[e] for e in self._order]

    def cells(self):
        """Rows of values, one an edge, the most influential first."""
        moves = np.linalg.norm(self.derivatives, axis=2)
        most = [self.strata[k] for k in moves.argmax(axis=1).tolist()]
        share = moves.max(axis=1) / np.where(self.influence > 0, self.influence, 1.0)
        numbers = self.weights.tolist(), self.influence.tolist(), most, share.tolist()
        rows = list(zip(self.pairs, *numbers, strict=True))
        return [list(rows[e]) for e in self._order]

    def __str__(self):
        if not self.pairs:
            return "no edges"
        about = "influence: norm of the derivative of all strata's parameters in the edge's weight"
        return "\n".join([*self.printed(SHOWN), about])


def sensitivity_bound(
    share: ArrayLike, ratio: ArrayLike, delta: ArrayLike, delta_center: ArrayLike
) -> np.ndarray:
    """Bound the relative change of one edge weight under which a stratum without records stays accurate.

    Stratum k has no records and no regularizer, so that its parameters are the mean of its neighbours', weighted by the
    edges' weights. One weight, W_ik, becomes W_ik + ε, ε > 0. If, before and after this change, the other strata's parameters
    are accurate to a relative ``delta`` and those of k to ``delta_center``, then

        ε / W_ik ≤ 2 (δ + δ' + δ p A) / ((1 − (1 + 2δ) p − δ) A − 1 + p − 2 (δ + δ')) / p,

    where p = W_ik / Σ_j W_jk is the neighbour's share of the weight and A = ‖θ*_i‖ / max_{j≠i} ‖θ*_j‖ is how much larger its
    true parameters are than all others. The bound falls like δ' / A: the larger A, the more exactly W must be known.

    Parameters
    ----------
    share : float or array_like, between 0 and 1
        p, the neighbour's share of the weight at the stratum.
    ratio : float or array_like, > 0
        A, the ratio of norms.
    delta : float or array_like, at least 0
        δ, the relative accuracy of the other strata.
    delta_center : float or array_like, at least 0
        δ', the relative accuracy of the stratum without records.

    Returns
    -------
    float or ndarray
        The bound on ε / W_ik; inf where the denominator is not positive, where the theorem gives no bound.

    References
    ----------
    Cheng, Zhang, Agrawal and Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized Stratified
    Models", Theorem 1.

    Examples
    --------
    >>> import strat
    >>> strat.sensitivity_bound(share=0.1, ratio=[2.0, 10.0, 100.0], delta=0.0, delta_center=0.05).round(3)
    array([1.25 , 0.125, 0.011])
    """
    given, values = {"share": share, "ratio": ratio, "delta": delta, "delta_center": delta_center}, []
    for name, value in given.items():
        array = floats(value)
        valid = (array >= 0) & ((array > 0) | name.startswith("delta")) & ((array <= 1) | (name != "share"))
        valid &= array < np.inf
        if not valid.all():
            ends = {"share": "above 0 and at most 1", "ratio": "above 0"}.get(name, "of at least 0")
            raise OptionError(f"{name} is {value!r:.60}, but it must be a number {ends}.")
        values.append(array)
    try:
        p, A, delta, center = np.broadcast_arrays(*values)
    except ValueError:
        shapes = [value.shape for value in values]
        raise OptionError(f"{', '.join(given)} have shapes {shapes}, which do not go together.") from None
    numerator = 2 * (delta + center + delta * p * A)
    denominator = (1 - (1 + 2 * delta) * p - delta) * A - 1 + p - 2 * (delta + center)
    bound = np.full(numerator.shape, np.inf)
    np.divide(numerator, denominator * p, out=bound, where=denominator > 0)
    return float(bound) if bound.ndim == 0 else bound
