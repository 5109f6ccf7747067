"""Laplacian regularised stratified models declared in CVXPY, with a jointly learned graph."""

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

__version__ = "0.1.0"
