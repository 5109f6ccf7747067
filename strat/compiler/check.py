"""What a declaration must satisfy before anything is compiled."""

import numpy as np
import scipy.sparse as sp

from strat.errors import DeclarationError, NotConvexError, ShapeError, type_name
from strat.rules import atoms, no_rule
from strat.rules.text import text


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


def check_constants(expression, what, infinite=False):
    """Raise DeclarationError for numbers in an expression that are NaN, or infinite where that is not allowed."""
    for constant in expression.constants():
        value = constant.value
        values = value.data if sp.issparse(value) else np.asarray(value)
        if values.dtype.kind != "f" or np.isfinite(values).all() or (infinite and not np.isnan(values).any()):
            continue
        kind = "NaN" if np.isnan(values).any() else "an infinite number"
        raise DeclarationError(
            f"{what} holds {kind}: {text(expression)}. Correct the number; a weight must be finite, and a part that "
            f"should not count is left out."
        )


def check_semidefinite(expression, what):
    """Raise NotConvexError where psd_wrap hides a matrix that is not positive semidefinite."""
    stack, seen = [expression], set()
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if any(not isinstance(a, atoms.Expression) for a in e.args):
            raise no_rule(e)
        stack.extend(e.args)
        if isinstance(e, atoms.psd_wrap) and e.args[0].is_constant() and not e.args[0].parameters():
            lowest = _negative(e.args[0].value)
            if lowest is not None:
                raise NotConvexError(
                    f"{what} is not convex: {text(e)} says that its matrix is positive semidefinite, but it has the "
                    f"eigenvalue {lowest:.3g}. psd_wrap is for matrices that rounding alone makes indefinite; "
                    f"correct the matrix."
                )


def _negative(matrix):
    """The lowest eigenvalue where it is more negative than rounding explains, else None."""
    matrix = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix, dtype=float)
    size = np.linalg.norm(matrix)  # at least the largest eigenvalue, at most that times √n
    try:
        np.linalg.cholesky(matrix + 1e-8 * size / np.sqrt(len(matrix)) * np.eye(len(matrix)))
        return None
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    return float(values[0]) if values[0] < -1e-8 * np.abs(values).max() else None


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
