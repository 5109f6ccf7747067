"""Laplacian regularised stratified models declared in CVXPY, with a jointly learned graph."""

from strat import graphs, losses, plot
from strat.compiler import Program, compile
from strat.compiler.base_model import BaseModel
from strat.derivatives.hypergradient import hypergradient
from strat.derivatives.sensitivity import sensitivity
from strat.derivatives.sensitivity_bound import sensitivity_bound
from strat.derivatives.standard_errors import covariances, standard_errors
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
from strat.model.baselines import common, entropy, joint, log_diagonal, lrsm, separate, trace_constraint
from strat.model.estimator import StratifiedModel
from strat.model.graph_learning import LearnedGraph, learn_graph
from strat.model.loading import load
from strat.problem.graph_regularizers import Entropy, FixedGraph, LogDet, LogDiagonal, TraceConstraint
from strat.records.splitters import RollingOrigin, StrataKFold
from strat.selection.blend import blend
from strat.selection.compare import compare
from strat.selection.search import search
from strat.selection.tuning import tune
from strat.solvers import ADMM, MAPG, AlternatingMinimization, Cone, NewtonCG, Result

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "MAPG",
    "AlternatingMinimization",
    "BaseModel",
    "CollapseWarning",
    "Cone",
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
    "blend",
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


def __dir__():
    return sorted([*__all__, "__version__"])
