"""compile: check a declaration, read it into symbols, and keep it as a program."""

from collections.abc import Sequence

import cvxpy as cp
import numpy as np

from strat.compiler.check import (
    as_expression,
    check_constants,
    check_data,
    check_no_data,
    check_scalar,
    check_semidefinite,
    check_variables,
)
from strat.compiler.convexity import Curvature
from strat.compiler.data_checks import check_fixed
from strat.compiler.meanings import check_broadcasts, warn_of_meanings
from strat.compiler.per_record import check_per_record
from strat.compiler.program import Program
from strat.errors import DeclarationError, NotConvexError
from strat.rules import atoms
from strat.rules.text import short, text


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
    data = check_data(data)
    program = compiled(expression, data, constraints, "the loss" if data else "the expression")
    unused = [p.name() for p in data if p.id not in {q.id for q in program.expression.parameters()}]
    if unused:
        raise DeclarationError(
            f"the data Parameter {unused[0]} does not occur in the expression; remove it from data, or use it."
        )
    return program


def compiled(expression, data, constraints, what, smoothing=None, variables=()):
    """The program of an expression in a role; data need not all occur in it."""
    expression = as_expression(expression, what)
    check_scalar(expression, what)
    check_constants(expression, what)
    check_semidefinite(expression, what)
    check_broadcasts(expression, what)
    constraints = check_constraints(constraints, data)
    found = {v.id: v for v in variables}
    for source in (expression, *constraints):
        found.update((v.id, v) for v in source.variables() if v.id not in found)
    check_variables(found.values())
    check_per_record(expression, data)
    curvature = Curvature(expression, what)
    curvature.check_declaration()
    warn_of_meanings(expression, constraints, stacklevel=3)
    return Program(expression, data, constraints, tuple(found.values()), what, smoothing, curvature)


def check_constraints(constraints, data):
    """The constraints as a tuple, each convex and free of record data."""
    constraints = _listed(constraints)
    for c in constraints:
        if not isinstance(c, atoms.Constraint):
            raise DeclarationError(
                f"constraints must hold CVXPY constraints such as theta >= 0, not {_shown(c)}.{_why_none(c)}"
            )
        check_no_data(c, data, "a constraint")
        if isinstance(c, atoms.FiniteSet):
            raise DeclarationError(
                f"the constraint {text(c)} makes a variable discrete; only real continuous variables can be fitted. "
                f"Bound the variable by its smallest and largest value instead."
            )
        for e in c.args:
            check_constants(e, f"the constraint {text(c)}", infinite=True)
            check_semidefinite(e, f"the constraint {text(c)}")
        if not c.is_dcp():
            raise NotConvexError(
                f"the constraint {text(c)} is not convex by the rules of disciplined convex programming. It must be "
                f"affine == affine, or convex <= concave."
            )
        if not c.parameters():
            check_fixed((c,), {})
        check_broadcasts(c.expr if isinstance(c, (atoms.Inequality, atoms.Equality)) else c, "a constraint")
    return constraints


def _listed(constraints):
    """The constraints as a tuple, from one constraint or any collection of them."""
    if isinstance(constraints, atoms.Constraint):
        return (constraints,)
    alone = isinstance(constraints, (str, dict, atoms.Expression)) or not hasattr(constraints, "__iter__")
    return (constraints,) if alone else tuple(constraints)


def _shown(value):
    """What was given, for messages."""
    return text(value) if isinstance(value, atoms.Expression) else short(repr(value), 60)


def _why_none(value):
    """Where something that is no constraint usually comes from."""
    if isinstance(value, (bool, np.bool_)):
        return " A comparison without a variable, such as 1 >= 0, gives True or False: leave it out."
    if isinstance(value, atoms.Expression):
        return " An expression alone says nothing: compare it, with >=, <= or ==."
    if isinstance(value, (list, tuple, dict, set)):
        return " Give one flat list of constraints."
    return " Where there are none, give an empty list." if value is None else ""
