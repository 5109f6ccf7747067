"""What a declaration must satisfy before anything is compiled."""

import numpy as np

from strat.errors import DeclarationError, ShapeError, type_name
from strat.expressions import atoms
from strat.expressions.text import text


def as_expression(value, what):
    """The value as a CVXPY expression; numbers are constants."""
    if isinstance(value, atoms.Expression):
        return value
    if (
        isinstance(value, np.ndarray)
        and value.dtype == object
        or hasattr(value, "dtype")
        and value.dtype == object
    ):
        raise DeclarationError(
            f"{what} is a NumPy or pandas array of CVXPY expressions, which np.dot, np.array, np.sum or an operation "
            f"with a Series makes. Use CVXPY's own: x @ theta, cp.hstack([…]), cp.sum(…)."
        )
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return atoms.Constant(value)
    raise DeclarationError(
        f"{what} must be a CVXPY expression such as cp.logistic(-y * (x @ theta)), but it is {type_name(value)}."
    )


def check_data(data):
    """The declared data Parameters as a tuple."""
    if isinstance(data, atoms.Parameter):
        data = (data,)
    try:
        data = tuple(data)
    except TypeError:
        data = (data,)
    for entry in data:
        if not isinstance(entry, atoms.Parameter):
            raise DeclarationError(
                f"data must hold cp.Parameter objects, the data of one record, but it holds {type_name(entry)}. "
                f'Declare for example x = cp.Parameter(9, name="x") and use it in the loss.'
            )
        if (
            entry.attributes.get("complex")
            or entry.attributes.get("imag")
            or entry.attributes.get("hermitian")
        ):
            raise DeclarationError(
                f"the data Parameter {entry.name()} is complex; records must be real numbers."
            )
    names = [p.name() for p in data]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"data names the Parameter {name} twice; each argument needs its own Parameter."
            )
    return data


def check_scalar(expression, what):
    """Raise ShapeError unless the expression is a scalar."""
    if expression.size != 1:
        raise ShapeError(
            f"{what} must be a scalar, but it has shape {expression.shape}: {text(expression)}. "
            f"It is that of one record (or one stratum): sum the entries with cp.sum(…), "
            f"and check that no (n, 1) meets an (n,)."
        )
    for leaf in (expression, *expression.parameters()):
        if leaf.is_complex():
            name = what if leaf is expression else f"the Parameter {leaf.name()} in {what}"
            raise DeclarationError(f"{name} is complex; only real expressions have a meaning here.")


def check_variables(variables):
    """Raise DeclarationError for variables of one name, and for integer, boolean and complex ones."""
    by_name = {}
    for v in variables:
        name = v.name()
        if by_name.setdefault(name, v.id) != v.id:
            raise DeclarationError(
                f"two variables have the name {name!r}; results are keyed by name, so give each its own: "
                f'cp.Variable(…, name="…").'
            )
        for attribute in ("integer", "boolean", "complex", "imag", "hermitian"):
            if v.attributes.get(attribute):
                raise DeclarationError(
                    f"the variable {name!r} is declared {attribute}; only real continuous variables can be fitted."
                )


def check_no_data(expression, data, what):
    """Raise DeclarationError where a stratum-level expression holds record data."""
    ids = {p.id for p in data}
    for p in expression.parameters():
        if p.id in ids:
            raise DeclarationError(
                f"{what} contains the record data {p.name()}: {text(expression)}. "
                f"It belongs to a stratum, not to a record; put what depends on records into the loss."
            )
