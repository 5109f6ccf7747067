"""The compiler: a CVXPY expression becomes a printable program, and with data an oracle."""

from strat.compiler.compile import compile
from strat.compiler.program import Program

__all__ = ["Program", "compile"]
