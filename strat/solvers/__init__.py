"""Solvers of the joint problem."""

from .base import Solver, State
from .mapg import MAPG
from .result import Result

__all__ = ["MAPG", "Result", "Solver", "State"]
