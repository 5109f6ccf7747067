"""Solvers of the joint problem."""

from strat.solvers.admm import ADMM
from strat.solvers.alternating import AlternatingMinimization
from strat.solvers.base import Solver
from strat.solvers.cone import Cone
from strat.solvers.mapg import MAPG
from strat.solvers.proximal_newton import NewtonCG
from strat.solvers.result import Result
from strat.solvers.run import State

__all__ = ["ADMM", "MAPG", "AlternatingMinimization", "Cone", "NewtonCG", "Result", "Solver", "State"]
