"""The graph regularizers h(W): their parameters, their CVXPY expression, and their numbers for the solvers."""

from strat.problem.graph_regularizers.base import FixedGraph, GraphRegularizer
from strat.problem.graph_regularizers.entropy import Entropy
from strat.problem.graph_regularizers.log_det import LogDet
from strat.problem.graph_regularizers.log_diagonal import LogDiagonal
from strat.problem.graph_regularizers.trace_constraint import TraceConstraint

__all__ = ["Entropy", "FixedGraph", "GraphRegularizer", "LogDet", "LogDiagonal", "TraceConstraint"]
