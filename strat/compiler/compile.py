"""compile: check a declaration, read it into symbols, and keep it as a program."""

from collections.abc import Sequence

import cvxpy as cp

from strat.compiler import check
from strat.compiler.program import Program
from strat.compiler.value_checks import Curvature
from strat.errors import DeclarationError


def compile(expression: cp.Expression | float, data: Sequence = (), constraints: Sequence = ()) -> "Program":
    """Compile a scalar CVXPY expression.

    Parameters
    ----------
    expression : cvxpy.Expression or float
        A convex function of CVXPY variables and of the data of one record.
    data : sequence of cvxpy.Parameter
        The data of one record, in the order of ``bind``'s arguments. Without data the expression is a function of
        one stratum, such as a regularizer.
    constraints : sequence of cvxpy constraints
        On the variables of one stratum; they act in ``prox``.

    Returns
    -------
    Program

    Raises
    ------
    DeclarationError, ShapeError, NotPerRecordError, NotConvexError, NoOracleError
        Where the expression has no meaning as the function of one record, is not convex, or has an atom
        without a rule.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta = cp.Variable(2, name="theta")
    >>> oracle = strat.compile(cp.norm1(theta)).bind()
    >>> oracle.prox(np.array([[3.0, -0.5]]), 1.0)
    array([[2., 0.]])
    """
    data = check.check_data(data)
    constraints = check.check_constraints(constraints, data)
    program = compiled(expression, data, constraints, "the loss" if data else "the expression")
    unused = [p.name() for p in data if p.id not in {q.id for q in program.expression.parameters()}]
    if unused:
        raise DeclarationError(
            f"the data Parameter {unused[0]} does not occur in the expression; remove it from data, or use it."
        )
    return program


def compiled(expression, data, constraints, what, smoothing=None, variables=()):
    """The program of an expression in a role; data and constraints are checked, and data need not all occur in it."""
    expression = check.as_expression(expression, what)
    check.check_expression(expression, what)
    found = {v.id: v for source in (*variables, expression, *constraints) for v in source.variables()}
    check.check_variables(found.values())
    check.check_per_record(expression, data)
    curvature = Curvature(expression, what)
    curvature.check_declaration()
    check.warn_of_meanings(expression, constraints)
    program = Program(expression, data, constraints, tuple(found.values()), what, smoothing)
    program.curvature = curvature
    return program
