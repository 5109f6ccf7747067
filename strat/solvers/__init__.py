"""Solvers of the joint problem."""

from strat.solvers.base import Solver, State
from strat.solvers.mapg import MAPG
from strat.solvers.result import Result

__all__ = ["MAPG", "Result", "Solver", "State"]
