"""Laplacian regularised stratified models declared in CVXPY, with a jointly learned graph."""

from strat import graphs, losses, plot
from strat.base_model import BaseModel
from strat.baselines import common, entropy, joint, log_diagonal, lrsm, separate, trace_constraint
from strat.comparing import compare
from strat.compiler import Program, compile
from strat.errors import (
    CollapseWarning,
    ConvergenceWarning,
    DataError,
    DataWarning,
    DeclarationError,
    GraphError,
    NoOracleError,
    NotConvexError,
    NotPerRecordError,
    OptionError,
    ShapeError,
    StratError,
)
from strat.estimator import StratifiedModel
from strat.graph_learning import LearnedGraph, learn_graph
from strat.graph_regularizers import Entropy, FixedGraph, LogDet, LogDiagonal, TraceConstraint
from strat.hypergradient import hypergradient
from strat.loading import load
from strat.searching import search
from strat.sensitivity import sensitivity
from strat.sensitivity_bound import sensitivity_bound
from strat.solvers import ADMM, MAPG, AlternatingMinimization, NewtonCG, Result
from strat.splitters import RollingOrigin, StrataKFold
from strat.standard_errors import covariances, standard_errors
from strat.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "MAPG",
    "AlternatingMinimization",
    "BaseModel",
    "CollapseWarning",
    "ConvergenceWarning",
    "DataError",
    "DataWarning",
    "DeclarationError",
    "Entropy",
    "FixedGraph",
    "GraphError",
    "LearnedGraph",
    "LogDet",
    "LogDiagonal",
    "NewtonCG",
    "NoOracleError",
    "NotConvexError",
    "NotPerRecordError",
    "OptionError",
    "Program",
    "Result",
    "RollingOrigin",
    "ShapeError",
    "StrataKFold",
    "StratError",
    "StratifiedModel",
    "TraceConstraint",
    "common",
    "compare",
    "compile",
    "covariances",
    "entropy",
    "graphs",
    "hypergradient",
    "joint",
    "learn_graph",
    "load",
    "log_diagonal",
    "losses",
    "lrsm",
    "plot",
    "search",
    "sensitivity",
    "sensitivity_bound",
    "separate",
    "standard_errors",
    "trace_constraint",
    "tune",
]
