"""The graph regularizers h(W): their parameters, their CVXPY expression, and their numbers for the solvers."""

from strat.graph_regularizers.base import GraphRegularizer
from strat.graph_regularizers.fixed import FixedGraph
from strat.graph_regularizers.log_det import LogDet

__all__ = ["FixedGraph", "GraphRegularizer", "LogDet"]
