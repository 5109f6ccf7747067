"""The graph step alone: the best graph for given parameters, or for any rows of numbers."""

import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from strat.errors import ConvergenceWarning, GraphError, OptionError, ShapeError
from strat.graphs.from_parameters import read_parameters
from strat.graphs.prior_graph import PriorGraph, read_graph
from strat.model.bound_model import learned_edges, prior_weights
from strat.problem.graph_regularizers.base import NONNEGATIVE, GraphRegularizer, check_range
from strat.problem.joint_problem import JointProblem
from strat.records.strata import some_of
from strat.records.tables import Shown
from strat.solvers.joint_steps import graph_step


@dataclass
class LearnedGraph(Shown):
    """A graph learned from given parameters.

    Parameters
    ----------
    W : (K, K) ndarray or csr_array
        The weights: symmetric, zero diagonal. Sparse where some pairs of more than 2000 strata are not candidates.
    objective : float
        Laplacian term plus h(W), constants included.
    residual : float
        Distance from optimality, relative to the terms that balance; the problem is convex.
    labels : list
        The strata, in the order of the rows.
    parts : dict
        The objective's terms: laplacian, graph.
    iterations : int
        Newton or proximal gradient iterations.
    seconds : float
        Wall-clock time.
    """

    W: np.ndarray = field(repr=False)
    objective: float
    residual: float
    labels: list = field(repr=False)
    parts: dict
    iterations: int
    seconds: float

    def __str__(self):
        K, edges, parts = self.W.shape[0], sp.csr_array(self.W).nnz // 2, self.parts
        degrees = self.W.sum(axis=1)
        degrees = f"degrees {degrees.min(initial=np.inf):.3g} to {degrees.max(initial=0.0):.3g}"
        return (
            f"graph       {K} strata, {edges} of {K * (K - 1) // 2} edges, {degrees}\nobjective   {self.objective:.9g}\n"
            f"  parts     laplacian {parts['laplacian']:.6g}  graph {parts['graph']:.6g}\nresidual    {self.residual:.1e}\n"
            f"work        {self.seconds:.3f} s, {self.iterations} iterations"
        )


def learn_graph(
    theta: Any,
    graph_regularizer: Any,
    graph: Any = None,
    *,
    tol: float = 1e-8,
    max_iter: int = 5000,
    edges: Any = "all",
) -> "LearnedGraph":
    """Find the graph that fits given parameters best: minimise ½ Tr(Θᵀ G(W) Θ) + h(W) over W ≥ 0.

    The rows of Θ may be the parameters of fitted models, or any features or signals whose rows are the nodes.

    Parameters
    ----------
    theta : array_like or DataFrame, shape (K, n), or dict
        One row per stratum, ``{variable name: (K, *shape)}`` as in ``theta_``, or a fitted model. The index of
        a DataFrame names the strata.
    graph_regularizer : LogDet, LogDiagonal, TraceConstraint or Entropy
        The regularizer h.
    graph : networkx.Graph or (labels, W), optional
        The prior graph W0; the rows of theta are in the order of its nodes, unless an index
        names them. By default the index or 0, …, K-1, without edges.
    tol : float
        Tolerance of the residual.
    max_iter : int
        Most iterations, where h has no exact step (``LogDet``).
    edges : {"all", "prior", "two-hop", "knn"}, list of label pairs, or graph
        Where W may be nonzero: "all" pairs; the "prior" graph's edges; these and the pairs with a common neighbour
        ("two-hop"), or these and each row's pairs with its 5 nearest ("knn"); the pairs given; another graph's edges.

    Returns
    -------
    LearnedGraph
        The result, with ``W``, ``objective`` and ``residual``; it prints as a short table.

    Raises
    ------
    OptionError, GraphError, ShapeError, DataError
        Where an argument is out of its range, or graph and theta do not match.

    References
    ----------
    V. Kalofolias, "How to learn a graph from smooth signals", AISTATS 2016.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.LogDet(1.0, 1.0, 0.1, 0.1))
    >>> graph.W.round(2)
    array([[0.  , 0.61, 0.18],
           [0.61, 0.  , 0.22],
           [0.18, 0.22, 0.  ]])
    """
    h = graph_regularizer
    if not isinstance(h, GraphRegularizer) or not h.learned:
        raise OptionError(f"graph_regularizer must be strat.LogDet(…) or another that learns W, not {h!r}.")
    h.validate()
    check_range("tol", tol, *NONNEGATIVE)
    labels, blocks = read_parameters(theta)
    theta = np.concatenate(blocks, axis=1)
    prior = PriorGraph.without_edges(labels) if graph is None else read_graph(graph)
    if len(theta) != prior.K:
        raise ShapeError(f"theta has {len(theta)} rows, but the graph has {prior.K} nodes. Give each a row.")
    if labels not in (prior.labels, list(range(len(theta)))):  # a DataFrame's index names the rows
        position = {label: row for row, label in enumerate(labels)}
        for node in (node for node in prior.labels if node not in position):
            raise GraphError(
                f"theta has no row for {node!r}, a node of the graph; its index has {some_of(labels)}. Give it the "
                f"graph's labels, or pass theta.to_numpy() with rows in the order of the nodes."
            )
        theta = theta[[position[node] for node in prior.labels]]
    edges = learned_edges(edges, prior, lambda: theta)
    w0, outside = prior_weights(prior, edges)
    h._check_edges(edges, prior.labels)
    loss = SimpleNamespace(n=theta.shape[1])  # the graph step needs only n of the loss
    problem = JointProblem(loss, None, h, edges, w0, outside=outside)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # replaced below
        result = graph_step(problem, theta, tol=tol, max_iter=max_iter)
    residual = result.residual["W"]  # theta is given, so its residual does not count
    if result.status == "max_iter" and residual > tol:
        way = "Raise max_iter or loosen tol" if result.iterations >= max_iter else "No step helps; loosen tol"
        ConvergenceWarning.warn(
            f"learn_graph stopped with residual {residual:.1e} > tol={tol:g} after {result.iterations} iterations. {way}."
        )
    parts = {name: result.parts[name] for name in ("laplacian", "graph")}
    found = edges.matrix(result.w), result.objective, residual, list(prior.labels), parts
    return LearnedGraph(*found, result.iterations, result.seconds)
