"""Checks that a declaration must pass before it is compiled, and warnings of expressions that often mean something else."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.expressions import eigenvalues
from strat.compiler.value_checks import check_fixed
from strat.compiler.walk import Walker
from strat.errors import (
    DataWarning,
    DeclarationError,
    NotConvexError,
    NotPerRecordError,
    ShapeError,
    type_name,
)
from strat.rules import atoms, no_rule, short, text

#: Atoms that broadcast one argument to the shape of another.
BROADCASTING = (atoms.AddExpression, atoms.multiply, atoms.DivExpression, atoms.Elementwise)
#: Functions of several numbers that are meaningless for a single one, and the word for what each computes.
OVER_RECORDS = {
    (atoms.max, atoms.norm_inf): "maximum",
    atoms.min: "minimum",
    atoms.sum_largest: "sum of the largest entries",
    atoms.log_sum_exp: "log-sum-exp",
    (atoms.cumsum, atoms.cummax): "running total or maximum",
    atoms.GeoMean: "geometric mean",
    atoms.dotsort: "weighted sum of sorted entries",
}
#: Atoms from which standard deviations and variances are built.
SIZES = (atoms.norm1, atoms.Pnorm, atoms.quad_over_lin)
#: The usual mistake behind an entry that is not a constraint, by its type, and how to correct it.
NO_CONSTRAINTS = {
    (bool, np.bool_): " A comparison without a variable, such as 1 >= 0, gives True or False: leave it out.",
    atoms.Expression: " An expression alone says nothing: compare it, with >=, <= or ==.",
    (list, tuple, dict, set): " Give one flat list of constraints.",
    type(None): " Where there are none, give an empty list.",
}
#: How to write the mean of a stratum's largest losses as the loss of one record.
CVAR = (
    " The cvar at level beta of a stratum's losses r is t + cp.pos(r - t) / (1 - beta), summed over records, with a "
    "cp.Variable t."
)


def as_expression(value, what):
    """The value as a CVXPY expression; numbers are constants."""
    if isinstance(value, atoms.Expression):
        return value
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return atoms.Constant(value)
    if getattr(value, "dtype", None) == np.dtype(object):
        raise DeclarationError(
            f"{what} is a NumPy or pandas array of CVXPY expressions, which np.dot, np.array, np.sum or an operation "
            f"with a Series makes. Use CVXPY's own: x @ theta, cp.hstack([…]), cp.sum(…)."
        )
    raise DeclarationError(
        f"{what} must be a CVXPY expression such as cp.logistic(-y * (x @ theta)) or cp.norm1(theta), but it is "
        f"{type_name(value)}."
    )


def check_data(data):
    """The declared data Parameters as a tuple."""
    if isinstance(data, atoms.Parameter) or not hasattr(data, "__iter__"):
        data = (data,)
    data = tuple(data)
    for entry in data:
        if not isinstance(entry, atoms.Parameter):
            raise DeclarationError(
                f"data must hold cp.Parameter objects, the data of one record, but it holds {type_name(entry)}. "
                f'Declare for example x = cp.Parameter(9, name="x") and use it in the loss.'
            )
    names = [p.name() for p in data]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"data names the Parameter {name} twice; each argument needs its own.")
    return data


def check_expression(expression, what):
    """Raise unless an expression is a real scalar with finite constants and without accidental broadcasting."""
    if expression.size != 1:
        raise ShapeError(
            f"{what} must be a scalar, but it has shape {expression.shape}: {text(expression)}. It is that of one record (or "
            "one stratum): sum the entries with cp.sum(…), and check that no (n, 1) meets an (n,)."
        )
    for leaf in (expression, *expression.parameters()):
        if leaf.is_complex():
            name = what if leaf is expression else f"the Parameter {leaf.name()} in {what}"
            raise DeclarationError(f"{name} is complex; only real expressions have a meaning here.")
    _check_numbers(expression, what)
    _check_broadcasts(expression, what)


def _check_numbers(expression, what, infinite=False):
    """Raise for NaN, for infinite numbers unless `infinite` allows them, and for psd_wrap of an indefinite matrix."""
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
    for e in atoms.nodes(expression):
        if any(not isinstance(a, atoms.Expression) for a in e.args):
            raise no_rule(e)
        if isinstance(e, atoms.psd_wrap) and e.args[0].is_constant() and not e.args[0].parameters():
            values = eigenvalues(e.args[0].value)
            if values[0] < -1e-8 * np.abs(values).max():
                raise NotConvexError(
                    f"{what} is not convex: {text(e)} says that its matrix is positive semidefinite, but it has the eigenvalue "
                    f"{values[0]:.3g}. psd_wrap is for matrices that rounding alone makes indefinite; correct the matrix."
                )


def _check_broadcasts(expression, what):
    """Raise ShapeError where (n,) meets (n, 1), which would silently become (n, n)."""
    for e in atoms.nodes(expression):
        if not isinstance(e, BROADCASTING) or len(e.args) < 2:
            continue
        # The shapes before CVXPY's own broadcasting.
        shapes = [a.args[0].shape if isinstance(a, atoms.broadcast_to) else a.shape for a in e.args]
        vectors = {s[0] for s in shapes if len(s) == 1 and s[0] > 1}
        columns = {s[0] for s in shapes if len(s) == 2 and s[1] == 1 and s[0] > 1}
        if len(e.shape) == 2 and vectors & columns and e.shape[1] > 1:
            n = min(vectors & columns)
            raise ShapeError(
                f"{text(e)} in {what} combines shapes ({n},) and ({n}, 1) to {e.shape}: every entry of one with every "
                f"entry of the other. Give both the same shape: declare cp.Parameter({n}) instead of ({n}, 1), or use "
                f'cp.vec(u, order="C").'
            )


def check_variables(variables):
    """Raise DeclarationError for variables that share a name, have Parameters as bounds, or are integer, boolean or complex."""
    by_name = {}
    for v in variables:
        name = v.name()
        if by_name.setdefault(name, v.id) != v.id:
            raise DeclarationError(
                f"two variables have the name {name!r}; results are keyed by name, so give each its own: "
                f'cp.Variable(…, name="…").'
            )
        if v.parameters():
            raise DeclarationError(
                f"the variable {name!r} has a Parameter in its bounds; give a constraint instead, such as {name} >= lower."
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


def check_constraints(constraints, data):
    """One constraint, or any collection of them, as a tuple; each must be convex and free of record data."""
    alone = isinstance(constraints, (str, dict, atoms.Expression, atoms.Constraint))
    constraints = (constraints,) if alone or not hasattr(constraints, "__iter__") else tuple(constraints)
    for c in constraints:
        if not isinstance(c, atoms.Constraint):
            shown = text(c) if isinstance(c, atoms.Expression) else short(repr(c), 60)
            way = next((way for kinds, way in NO_CONSTRAINTS.items() if isinstance(c, kinds)), "")
            what = "constraints must hold CVXPY constraints such as theta >= 0"
            raise DeclarationError(f"{what}, not {shown}.{way}")
        check_no_data(c, data, "a constraint")
        if isinstance(c, atoms.FiniteSet):
            raise DeclarationError(
                f"the constraint {text(c)} makes a variable discrete; only real continuous variables can be fitted. "
                f"Bound the variable by its smallest and largest value instead."
            )
        for e in c.args:
            _check_numbers(e, f"the constraint {text(c)}", infinite=True)
        if not c.is_dcp():
            raise NotConvexError(
                f"the constraint {text(c)} is not convex by the rules of disciplined convex programming. It must be "
                f"affine == affine, or convex <= concave."
            )
        if not c.parameters():
            check_fixed((c,), {})
        _check_broadcasts(c.expr if isinstance(c, (atoms.Inequality, atoms.Equality)) else c, "a constraint")
    return constraints


def check_per_record(expression, data):
    """Raise NotPerRecordError for functions that were meant to run over all records at once."""
    walker = Walker(p.id for p in data)
    for e in atoms.nodes(expression):
        known = isinstance(e, (*SIZES, *OVER_RECORDS)) and e.variables()
        known = known and any(p.id in walker.data for p in e.parameters())
        word = _taken(e, walker) if known else None
        if word is not None:
            raise NotPerRecordError(
                f"{text(e)} takes the {word} of one number. The loss is that of ONE record and is summed over "
                f"records, so a function of all records together (maximum, cvar, log-sum-exp, variance, "
                f"total variation over records) cannot be written in it. Write a sum over records, such as "
                f"cp.abs(r), cp.huber(r) or cp.logistic(r).{CVAR if isinstance(e, atoms.sum_largest) else ''}"
            )


def _taken(e, walker):
    """The word for a function of several numbers that e takes of too few, or None where all is well."""
    size, sized = e.args[0].size, isinstance(e, SIZES) and e.args[0].is_affine()
    if size == 1 and isinstance(e, tuple(OVER_RECORDS)):
        return next(word for kind, word in OVER_RECORDS.items() if isinstance(e, kind))
    if size == 1 and isinstance(e, atoms.Pnorm) and (atoms.exponent(e) or 1.0) < 1:
        return "harmonic or other mean"
    if size == 0 and sized:
        return "total variation or difference"
    # x minus its own mean is identically 0 where x is one number.
    zero = size == 1 and sized and not len(walker(e.args[0]).row)
    return "variance or standard deviation" if zero else None


def warn_of_meanings(expression, constraints):
    """One DataWarning for each kind of expression that CVXPY reads differently from what many people mean."""
    said = set()
    for e in atoms.nodes(expression, *constraints):
        line = _meaning(e) if isinstance(e, atoms.Expression) and e.args and e.variables() else None
        if line is not None and (kind := line.split(":")[0]) not in said:
            said.add(kind)
            DataWarning.warn(line)


def _meaning(e):
    """The warning for one node, or None."""
    u = e.args[0]
    if isinstance(e, atoms.max) and isinstance(u, atoms.norm1) and u.size > 1:
        axis = atoms.axis_of(u)
        if axis in ((0,), (1,)) and u.args[0].ndim == 2:
            line, p = ("column", "1") if axis == (0,) else ("row", '"inf"')
            return (
                f"cp.norm(W, {p}) of a matrix is its largest {line} sum of absolute values: {text(e, 60)}. "
                f"The sum of all absolute values is cp.norm1(W), the largest entry cp.max(cp.abs(W))."
            )
    if isinstance(e, atoms.sigma_max):
        return (
            f"the spectral norm of a matrix is its largest singular value: {text(e, 60)}. If you wrote cp.norm(W) and "
            f'meant the root of the sum of squares, write cp.norm(W, "fro").'
        )
    if u.size == 0 and isinstance(e, (*SIZES, atoms.Sum)):
        return (
            f"a sum over no entries is 0: {text(e, 60)}. cp.tv and differences of an array with a single row or column "
            f'are empty; flatten it first with cp.vec(u, order="C"), or declare the variable with shape (n,).'
        )
    p = atoms.exponent(e) if isinstance(e, atoms.Power) and u.is_affine() and not u.is_nonneg() else None
    if p is not None and p > 1 and p % 2 != 0:
        return (
            f"a power of {p:g} has the hidden domain >= 0: {text(e, 60)} is +inf where {text(u, 40)} is negative. Write "
            f"cp.power(cp.abs(u), {p:g}) for a penalty of both signs, or declare the variable nonneg=True."
        )
    return None
