"""What a graph says in numbers: components, degrees, resistances, spanning forests."""

import numbers
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from strat.compiler.coupling import on_edges
from strat.errors import OptionError
from strat.graphs.reading import read_graph, read_weights
from strat.oracles.selected_inverse import FULL, inverse_entries
from strat.records.strata import some_of

#: The share of the mean parameters' norm that half of the strata lie within, when a model has collapsed.
COLLAPSED = 0.01


@dataclass(repr=False)
class GraphReport:
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
        Of a model fitted here, degree / (degree + curvature of the stratum's own loss): 0 where the records decide,
        1 where the neighbours do.

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
    distances: np.ndarray | None = field(default=None)
    reliance: np.ndarray | None = field(default=None)

    @property
    def shares(self):
        """The probability that a spanning forest, drawn by its weight, uses an edge, shape (E,)."""
        return self.edge_weights * self.edge_resistances

    @property
    def collapsed(self):
        """Whether half of the strata are within 1 % of the mean parameters; None without a model."""
        return None if self.spread is None else self.spread <= COLLAPSED

    def to_frame(self):
        """The part of the report that has one row a stratum.

        Returns
        -------
        pandas.DataFrame
            Indexed by stratum: component, degree, neighbors, resistance, nearly_isolated, and of a model distance
            (from the mean parameters) and reliance.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError('to_frame needs pandas: pip install "strat[pandas]".') from error
        columns = {
            "component": self.component,
            "degree": self.degrees,
            "neighbors": self.neighbors,
            "resistance": self.resistances,
            "nearly_isolated": [label in set(self.nearly_isolated) for label in self.strata],
        }
        if self.distances is not None:
            columns["distance"] = self.distances
        if self.reliance is not None:
            columns["reliance"] = self.reliance
        index = pd.Index(self.strata, tupleize_cols=False, name="stratum")
        return pd.DataFrame(columns, index=index)

    def __str__(self):
        K, E, m = len(self.strata), len(self.edge_weights), len(self.components)
        sizes = [len(part) for part in self.components]
        shown = ", ".join(f"{size:,}" for size in sizes[:6]) + (", …" if m > 6 else "")
        isolated = len(self.nearly_isolated)
        lines = [
            ("strata", f"{K:,}"),
            ("edges", f"{E:,} of {K * (K - 1) // 2:,} pairs, density {self.density:.3g}"),
            ("components", f"{m:,}" + (f", of {shown} strata" if m > 1 else "")),
            ("degree", _range(self.degrees)),
            ("weight", _range(self.edge_weights)),
            (
                "resistance",
                _range(self.resistances[np.isfinite(self.resistances)]) + "  (mean to the others)",
            ),
            (
                "bridges",
                f"{int(np.sum(self.shares > 1 - 1e-9)):,} edges that alone hold a component together",
            ),
            (
                f"spanning {'tree' if m == 1 else 'forest'}s",
                f"log of their total weight {self.log_forests:.6g}",
            ),
            ("nearly isolated", f"{isolated:,}" + (f": {some_of(self.nearly_isolated)}" if isolated else "")),
        ]
        if self.reliance is not None:
            lines.append(("reliance", _range(self.reliance) + "  (0: own records, 1: neighbours)"))
        if self.spread is not None:
            end = "collapsed to the common model" if self.collapsed else "not collapsed"
            lines.append(("spread", f"median {self.spread:.3g} of the mean parameters' norm: {end}"))
        return "\n".join(f"{name:<17}{text}" for name, text in lines)

    __repr__ = __str__


def report(graph, isolated=0.01):
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
        It prints as a table; ``to_frame()`` has one row a stratum.

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
    if isinstance(isolated, bool) or not isinstance(isolated, numbers.Real) or not 0 <= isolated < 1:
        raise OptionError(f"isolated is {isolated!r}, but it is a share of the median degree, from 0 to 1.")
    found = read_weights(graph)
    strata, K, W = found.labels, found.K, sparse.csr_array(found.matrix())
    W.eliminate_zeros()
    upper = sparse.coo_array(sparse.triu(W, 1))
    i, j, w = *upper.coords, upper.data
    degrees = np.asarray(W.sum(axis=1)).ravel()
    m, component = connected_components(W, directed=False)
    sizes = np.bincount(component)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    component = rank[component]
    log_forests, edge_resistances, resistances = _resistances(W, degrees, component, i, j)
    positive = degrees[degrees > 0]
    bound = isolated * np.median(positive) if positive.size else 0.0
    members = np.split(np.argsort(component, kind="stable"), np.cumsum(np.sort(sizes)[::-1])[:-1])
    found = GraphReport(
        strata=strata,
        density=2 * len(w) / (K * (K - 1)) if K > 1 else 0.0,
        components=[[strata[k] for k in part.tolist()] for part in members],
        component=component,
        degrees=degrees,
        neighbors=np.diff(W.indptr),
        resistances=resistances,
        edge_ends=np.column_stack([i, j]),
        edge_weights=w,
        edge_resistances=np.minimum(edge_resistances, 1 / w),  # more is rounding
        log_forests=log_forests,
        nearly_isolated=[strata[k] for k in np.flatnonzero((degrees < bound) | (degrees == 0)).tolist()],
    )
    if hasattr(graph, "theta_"):
        _add_model(found, graph)
    return found


def _resistances(W, degrees, component, i, j):
    """Log total weight of spanning forests, resistance of each edge, mean resistance of each stratum.

    One node of each component is grounded. What is left of the Laplacian is positive definite; its determinant is the
    total weight of the spanning forests (matrix-tree theorem), and with A its inverse, zero in the grounded rows, the
    resistance between i and j is A_ii + A_jj − 2 A_ij.
    """
    K, m = W.shape[0], component.max() + 1
    ground = np.full(m, -1)
    ground[component[np.argsort(degrees, kind="stable")]] = np.argsort(
        degrees, kind="stable"
    )  # the largest degree
    free = np.ones(K, dtype=bool)
    free[ground] = False
    place = np.cumsum(free) - 1
    M = int(free.sum())
    diagonal, between = np.zeros(K), np.zeros(len(i))
    mean, log_forests = np.full(K, np.nan), 0.0
    if M:
        laplacian = sparse.csr_array(sparse.diags_array(degrees) - W)[free][:, free]
        if laplacian.nnz > FULL * M * M:
            laplacian = laplacian.toarray()
        inside = free[i] & free[j]
        rows = np.concatenate([np.arange(M), place[i[inside]]])
        columns = np.concatenate([np.arange(M), place[j[inside]]])
        log_forests, entries = inverse_entries(laplacian, np.arange(M + 1), rows, columns)
        diagonal[free], between[inside] = entries[:M], entries[M:]
        sums = np.zeros(K)
        sums[free] = _solve(laplacian, np.ones(M))
        sizes, traces = np.bincount(component), np.bincount(component, diagonal)
        n = sizes[component]
        several = n > 1
        total = n * diagonal + traces[component] - 2 * sums
        mean[several] = total[several] / (n[several] - 1)
    return log_forests, diagonal[i] + diagonal[j] - 2 * between, mean


def _solve(matrix, b):
    if sparse.issparse(matrix):
        return splu(
            sparse.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
        ).solve(b)
    return scipy.linalg.solve(matrix, b, assume_a="pos", check_finite=False)


def _add_model(found, model):
    """What the parameters say: how far they are from each other, and who decides them."""
    theta = np.concatenate([value.reshape(len(value), -1) for value in model.theta_.values()], axis=1)
    mean = theta.mean(axis=0)
    found.distances = np.linalg.norm(theta - mean, axis=1)
    size = np.linalg.norm(mean)
    if size > 0:
        found.spread = float(np.median(found.distances) / size)
    records = getattr(model, "_training", None)
    if records is None:
        return
    loss = model.base.loss_program.bind_records(records.arrays, records.strata, records.weight, model.values)
    if loss.has("hessian_operator"):
        product, n = loss.hessian_operator(theta), theta.shape[1]
        curvature = sum(product(np.broadcast_to(e, theta.shape))[:, c] for c, e in enumerate(np.eye(n))) / n
        W = sparse.triu(sparse.csr_array(model.W_), 1).tocoo()
        prior = None if model.graph is None else read_graph(model.graph)
        w = W.data * on_edges(model.base, model.values, prior, *W.coords).mean(axis=-1)
        pull = sum(np.bincount(end, w, len(theta)) for end in W.coords)
        total = pull + np.maximum(curvature, 0.0)
        found.reliance = np.divide(pull, total, out=np.zeros_like(total), where=total > 0)


def _range(values):
    if not len(values):
        return "none"
    return f"{values.min():.3g} to {values.max():.3g}, median {np.median(values):.3g}"
