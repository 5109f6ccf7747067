"""Reading and rebuilding CVXPY expressions: factors, copies on other leaves, signs and attributes, contents."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.rules import atoms
from strat.rules.atoms import nodes

#: Atoms with a number or Parameter that is not among their arguments.
WITH_NUMBER = (atoms.Power, atoms.huber)


def factors(expression):
    """Largest sub-expressions without variables that hold a Parameter, each once, in tree order."""
    parts = nodes(expression, enter=lambda e: e.variables()) if expression.parameters() else ()
    return [e for e in parts if not e.variables() and e.parameters()]


def matrix_factors(expression):
    """Ids of the expressions that are the matrix of a quadratic form."""
    return {id(e.args[1]) for e in nodes(expression) if isinstance(e, (atoms.QuadForm, atoms.MatrixFrac))}


def rebuilt(expression, replacements):
    """The expression with some sub-expressions, by id, replaced."""
    memo = dict(replacements)

    def build(e):
        if id(e) not in memo:
            number = build(e.p if isinstance(e, atoms.Power) else e.M) if isinstance(e, WITH_NUMBER) else None
            # If M is also a factor, its replacement may have another sign, which a threshold cannot have.
            if isinstance(e, atoms.huber) and number is not e.M and number.is_nonneg():
                memo[id(e)] = cp.huber(build(e.args[0]), number)
            elif isinstance(e, atoms.Power) and number.value is not None:
                memo[id(e)] = _power(e, build(e.args[0]), number)
            else:
                args = [build(a) for a in e.args]
                same = all(new is old for new, old in zip(args, e.args, strict=True))
                memo[id(e)] = e if same else e.copy(args)
        return memo[id(e)]

    return build(expression)


def _power(e, base, exponent):
    """The power of a base, or of its absolute value: CVXPY's cone forms of u⁶, u¹⁰, u¹² and so on do not allow u < 0."""
    p = float(exponent.value)
    if p > 0 and p % 2 == 0 and np.log2(p) % 1 and not base.is_nonneg() and not base.is_constant():
        return cp.power(cp.abs(base), p)
    if isinstance(e.p, atoms.Parameter):
        return cp.power(base, p)
    return e if base is e.args[0] else e.copy([base])


def folded(expression, leaves, stay=()):
    """The expression on other leaves, by id; its factors become constants, except those with Parameters of ids in `stay`.

    To CVXPY ``1.0 + -1.0`` has no sign, so that ``(1 - y) * log(1 - p)`` would not be concave where y = 1.
    """
    matrices, numbers = matrix_factors(expression), {}
    for factor in factors(expression):
        if not any(id(p) in stay for p in factor.parameters()):
            value = cp.Constant(rebuilt(factor, leaves).value)
            # Definiteness was checked with the values; CVXPY would check it again, with another tolerance.
            semidefinite = id(factor) in matrices and sign_of(value.value, matrix=True) in "+0"
            numbers[id(factor)] = atoms.psd_wrap(value) if semidefinite else value
    return rebuilt(expression, leaves | numbers)


def sign_of(values, matrix=False):
    """Sign of an array of values: "+", "-", "0" (all zero) or "?" (both); definiteness for matrices."""
    values = eigenvalues(values) if matrix else np.asarray(values, dtype=float)
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    slack = (1e-8 if matrix else 1e-12) * max(-low, high)
    if low == high:
        return "0"
    return "+" if low >= -slack else "-" if high <= slack else "?"


def eigenvalues(matrix):
    """Eigenvalues of the symmetric part of matrices, ascending."""
    matrix = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix, dtype=float)
    return np.linalg.eigvalsh(0.5 * (matrix + np.swapaxes(matrix, -1, -2)))


def with_sign(variable, plain):
    """A plain variable, wrapped so that CVXPY assumes the sign or symmetry of `variable`, which some atoms need."""
    if variable.ndim == 2 and variable.is_psd():
        return atoms.psd_wrap(plain)
    if variable.is_nonneg():
        return atoms.nonneg_wrap(plain)
    if variable.is_nonpos():
        return atoms.nonpos_wrap(plain)
    return atoms.symmetric_wrap(plain) if variable.ndim == 2 and variable.is_symmetric() else plain


def contents(base):
    """Every node of a declaration's expressions once, as numbers and text that tell whether two declarations are the same.

    Variables and Parameters go by the order in which they occur, as CVXPY numbers unnamed ones anew in every session.
    """
    found, places = [], {}

    def read(part):
        if isinstance(part, slice):
            part = [part.start, part.stop, part.step]
        if isinstance(part, (list, tuple)):
            return [read(inner) for inner in part]
        if not isinstance(part, atoms.Expression | atoms.Constraint):
            return part
        if id(part) not in places:
            if isinstance(part, atoms.Constant):
                says = part.value
            elif isinstance(part, atoms.Variable | atoms.Parameter):
                says = [(name, read(value)) for name, value in part.attributes.items()]
            else:  # a constraint's data end with its id
                says = read((part.get_data() or [])[: -1 if isinstance(part, atoms.Constraint) else None])
            node = (type(part).__name__, getattr(part, "shape", None), says, read(part.args))
            places[id(part)] = len(found)
            found.append(node)
        return places[id(part)]

    ends = read([base.loss, base.regularizer, base.constraints, base.data, *base.hyperparameters.values()])
    return found, ends, base.smoothing
