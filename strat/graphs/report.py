"""The numbers that describe a graph: components, degrees, resistances, spanning forests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from strat.compiler.coupling import on_edges
from strat.errors import DataError, OptionError, is_nonnegative, optional
from strat.graphs.prior_graph import read_graph
from strat.oracles.base import hessian_blocks
from strat.oracles.sparse_cholesky import inverse_entries
from strat.problem.edges import EdgeList
from strat.records.strata import some_of
from strat.records.tables import Shown

if TYPE_CHECKING:
    import pandas as pd

#: Largest spread of a collapsed model, and how much higher (relative) its records' losses may be at the mean parameters.
COLLAPSED, HIGHER = 0.01, 0.05


@dataclass(repr=False)
class GraphReport(Shown):
    """The numbers of one graph; it prints as a short table.

    Parameters
    ----------
    strata : list
        The K nodes.
    density : float
        Edges over pairs of strata.
    components : list of list
        The strata of each connected component, the largest first.
    component : (K,) ndarray of int
        The position of each stratum's component in `components`.
    degrees : (K,) ndarray
        The sum of the weights at each stratum.
    neighbors : (K,) ndarray of int
        The number of edges at each stratum.
    resistances : (K,) ndarray
        The mean effective resistance between a stratum and the others of its component; nan for an isolated one.
    edge_ends : (E, 2) ndarray of int
        The positions of each edge's ends.
    edge_weights, edge_resistances : (E,) ndarray
        Weight and effective resistance of each edge. Their product, at most 1, is the share of the edge: the
        probability that a spanning forest, drawn by its weight, uses it. An edge of share 1 is a bridge.
    log_forests : float
        Logarithm of the total weight of the spanning forests (one tree in each component).
    nearly_isolated : list
        Strata without edges, or with a degree that is small beside the others'.
    spread : float or None
        Of a fitted model, the median over strata of ‖theta_k − mean‖ / ‖mean‖.
    distances : (K,) ndarray or None
        Of a fitted model, ‖theta_k − mean‖.
    reliance : (K,) ndarray or None
        Of a model fitted here, degree / (degree + curvature of the stratum's own loss), the mean over its parameters: 0
        where the records decide, 1 where the neighbours do.
    collapsed : bool or None
        Of a fitted model, whether the spread is at most 1 %, and the records' losses, where they are known, are at most 5 %
        higher at the mean parameters.

    Examples
    --------
    >>> from strat import graphs
    >>> report = graphs.report(graphs.cycle(3, weight=[1.0, 2.0, 3.0]))
    >>> report.shares.round(3)
    array([0.455, 0.818, 0.727])
    """

    strata: list
    density: float
    components: list
    component: np.ndarray
    degrees: np.ndarray
    neighbors: np.ndarray
    resistances: np.ndarray
    edge_ends: np.ndarray
    edge_weights: np.ndarray
    edge_resistances: np.ndarray
    log_forests: float
    nearly_isolated: list
    spread: float | None = None
    distances: np.ndarray | None = None
    reliance: np.ndarray | None = None
    collapsed: bool | None = None

    @property
    def shares(self) -> np.ndarray:
        """The probability that a spanning forest, drawn by its weight, uses an edge, shape (E,)."""
        return self.edge_weights * self.edge_resistances

    def to_frame(self) -> "pd.DataFrame":
        """Return the numbers of each stratum, one row per stratum.

        Returns
        -------
        pandas.DataFrame
            Indexed by stratum: component, degree, neighbors, resistance, nearly_isolated, and of a model distance
            (from the mean parameters) and reliance.
        """
        pd = optional("pandas", "to_frame", "pandas")
        isolated = set(self.nearly_isolated)
        columns = {"component": self.component, "degree": self.degrees, "neighbors": self.neighbors}
        columns |= {"resistance": self.resistances, "nearly_isolated": [x in isolated for x in self.strata]}
        columns |= {"distance": self.distances, "reliance": self.reliance}
        index = pd.Index(self.strata, tupleize_cols=False, name="stratum")
        return pd.DataFrame({name: v for name, v in columns.items() if v is not None}, index=index)

    def __str__(self):
        K, m, isolated = len(self.strata), len(self.components), self.nearly_isolated
        sizes = ", ".join(f"{len(part):,}" for part in self.components[:6]) + (", …" if m > 6 else "")
        resistances, bridges = self.resistances[np.isfinite(self.resistances)], np.sum(self.shares > 1 - 1e-9)
        rows = {
            "strata": f"{K:,}",
            "edges": f"{len(self.edge_weights):,} of {K * (K - 1) // 2:,} pairs, density {self.density:.3g}",
            "components": f"{m:,}" + (f", of {sizes} strata" if m > 1 else ""),
            "degree": _range(self.degrees),
            "weight": _range(self.edge_weights),
            "resistance": f"{_range(resistances)}  (mean to the others)",
            "bridges": f"{bridges:,} edges that alone hold a component together",
            f"spanning {'trees' if m == 1 else 'forests'}": f"log of their total weight {self.log_forests:.6g}",
            "nearly isolated": f"{len(isolated):,}" + (f": {some_of(isolated)}" if isolated else ""),
        }
        if self.reliance is not None:
            rows["reliance"] = f"{_range(self.reliance)}  (0: own records, 1: neighbours)"
        if self.spread is not None:
            end = "collapsed to the common model" if self.collapsed else "not collapsed"
            rows["spread"] = f"median {self.spread:.3g} of the mean parameters' norm: {end}"
        return "\n".join(f"{name:<17}{text}" for name, text in rows.items())


def report(graph: Any, isolated: float = 0.01) -> "GraphReport":
    """Report on a graph: components, degrees, effective resistances, spanning forests, and strata left alone.

    Parameters
    ----------
    graph : fitted model, LearnedGraph, networkx.Graph, (labels, W), or W alone
        W is a symmetric array or SciPy sparse array; its strata are then 0, …, K - 1.
    isolated : float
        A stratum is nearly isolated if its degree is below this share of the median degree (of those not 0).

    Returns
    -------
    GraphReport
        The report; it prints as a table, and ``to_frame()`` has one row per stratum.

    References
    ----------
    Cheng, Zhang, Agrawal and Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized Stratified
    Models", Section 3.2: for small mu, log det(mu I + G(W)) = m log(mu) + log_forests + Σ log(n_i), for m components of
    n_i strata.

    Examples
    --------
    >>> from strat import graphs
    >>> print(graphs.report(graphs.path(4, weight=2.0)))
    strata           4
    edges            3 of 6 pairs, density 0.5
    components       1
    degree           2 to 4, median 3
    weight           2 to 2, median 2
    resistance       0.667 to 1, median 0.833  (mean to the others)
    bridges          3 edges that alone hold a component together
    spanning trees   log of their total weight 2.07944
    nearly isolated  0
    """
    if not (is_nonnegative(isolated) and isolated < 1):
        raise OptionError(f"isolated is {isolated!r}, but it is a share of the median degree, from 0 to 1.")
    prior = read_weights(graph)
    strata, K, w = prior.labels, prior.K, prior.weights()
    i, j, w = (values[w > 0] for values in (prior.i, prior.j, w))
    edges = EdgeList(K, i, j)
    degrees, neighbors = edges.degrees(w), edges.neighbors.astype(int)
    component = edges.components(w)[1]
    component = np.argsort(np.argsort(-np.bincount(component), kind="stable"))[component]  # the largest first
    members = np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component))[:-1])
    log_forests, edge_resistances, resistances = _resistances(prior.matrix(), degrees, component, i, j)
    bound = isolated * np.median(degrees[degrees > 0]) if len(w) else 0.0
    parts = [[strata[k] for k in part] for part in members]
    alone = [strata[k] for k in np.flatnonzero((degrees < bound) | (degrees == 0))]
    # A resistance above 1/w is rounding error.
    of_edges = np.column_stack([i, j]), w, np.minimum(edge_resistances, 1 / w)
    numbers = component, degrees, neighbors, resistances, *of_edges, log_forests, alone
    of_model = _of_model(graph, edges, w) if hasattr(graph, "theta_") else {}
    return GraphReport(strata, 2 * len(w) / max(K * (K - 1), 1), parts, *numbers, **of_model)


def read_weights(source):
    """Read the graph of anything that has one: a model, a graph as users give it, or W alone, whose strata are 0, …, K - 1."""
    if hasattr(source, "theta_"):
        source = source.strata_, source.W_
    elif hasattr(source, "fit"):
        raise DataError("the model is not fitted. Call fit first.")
    elif sparse.issparse(source) or isinstance(source, np.ndarray):
        source = list(range(source.shape[0])), source
    return read_graph(source)


def _resistances(W, degrees, component, i, j):
    """Log total weight of spanning forests, resistance of each edge, mean resistance of each stratum.

    One node g of each component is grounded through a conductance s_g > 0, which makes the Laplacian G positive definite.
    With B = (G + sum_g s_g e_g e_g')^-1, the total weight of the spanning forests is 1 / (det B prod_g s_g) (matrix-tree
    theorem), and the resistance between i and j of one component is B_ii + B_jj - 2 B_ij.
    """
    K, n, ground = len(degrees), np.bincount(component)[component], np.unique(component, return_index=True)[1]
    conductance = np.zeros(K)
    conductance[ground] = np.where(degrees[ground] > 0, degrees[ground], 1.0)
    grounded = sparse.csr_array(sparse.diags_array(degrees + conductance) - W)
    log_det, B = inverse_entries(grounded, np.append(np.arange(K), i), np.append(np.arange(K), j))
    diagonal, between = B[:K], B[K:]
    sums = spsolve(sparse.csc_array(grounded), np.ones(K), permc_spec="MMD_AT_PLUS_A")
    total = n * diagonal + np.bincount(component, diagonal)[component] - 2 * sums
    mean = np.divide(total, n - 1, out=np.full(K, np.nan), where=n > 1)
    return log_det - np.log(conductance[ground]).sum(), diagonal[i] + diagonal[j] - 2 * between, mean


def relative_spread(theta):
    """The median over strata of ‖theta_k − mean‖ / ‖mean‖, None where the mean is 0, and these distances (K,)."""
    mean = theta.mean(axis=0)
    distances = np.linalg.norm(theta - mean, axis=1)
    return float(np.median(distances) / np.linalg.norm(mean)) if mean.any() else None, distances


def has_collapsed(theta, loss):
    """Whether the spread is small and the losses are hardly higher at the mean: in raw units a large intercept hides slopes."""
    spread = relative_spread(theta)[0]
    if spread is None or spread > COLLAPSED or loss is None:
        return spread is not None and spread <= COLLAPSED
    mean = np.tile(theta.mean(axis=0), (len(theta), 1))
    apart, alike = float(np.sum(loss.value(theta))), float(np.sum(loss.value(mean)))
    return alike - apart <= HIGHER * abs(apart)


def _of_model(model, edges, w):
    """How far the parameters are from each other, and whether records or neighbours decide them."""
    theta, records, reliance, loss = model._flat(), getattr(model, "_training", None), None, None
    if records is not None:
        bind = model.base.loss_program.bind_records
        loss = bind(records.arrays, records.strata, records.weight, model.values)
        if loss.has("hessian_operator"):
            curvature = np.einsum("kaa->ka", hessian_blocks(loss, theta))
            graph = getattr(model, "_of_fit", {}).get("graph", model.graph)
            prior = None if graph is None else read_graph(graph)
            couple = on_edges(model.base, model.values, prior, *edges.ends)
            pull = np.stack([edges.degrees(w * each) for each in couple.T], axis=1)
            total = pull + np.maximum(curvature, 0.0)
            reliance = np.divide(pull, total, out=np.zeros(theta.shape), where=total > 0).mean(axis=1)
    spread, distances = relative_spread(theta)
    collapsed = has_collapsed(theta, loss)
    return {"spread": spread, "distances": distances, "reliance": reliance, "collapsed": collapsed}


def _range(values):
    if not len(values):
        return "none"
    return f"{values.min():.3g} to {values.max():.3g}, median {np.median(values):.3g}"
