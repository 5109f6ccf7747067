"""The compiler: a CVXPY expression becomes a printable program, and with data an oracle."""

from strat.compiler.program import Program, compile

__all__ = ["Program", "compile"]
