"""What CVXPY accepts and often means something else: a warning when it is declared, and shapes that are refused."""

import warnings

from strat.errors import DataWarning, ShapeError
from strat.rules import atoms
from strat.rules.text import text

_CAUTIONED = (
    *(atoms.max, atoms.sigma_max, atoms.Power),
    *(atoms.norm1, atoms.Pnorm, atoms.quad_over_lin, atoms.Sum),
)


#: Atoms that stretch an argument to the shape of another.
_BROADCASTING = (atoms.AddExpression, atoms.multiply, atoms.DivExpression, atoms.Elementwise)


def check_broadcasts(expression, what):
    """Raise ShapeError where (n,) meets (n, 1), which would become (n, n) without a word."""
    for e in _nodes(expression):
        if not isinstance(e, _BROADCASTING) or len(e.args) < 2:
            continue
        shapes = [_own_shape(a) for a in e.args]
        vectors = {s[0] for s in shapes if len(s) == 1 and s[0] > 1}
        columns = {s[0] for s in shapes if len(s) == 2 and s[1] == 1 and s[0] > 1}
        if len(e.shape) == 2 and vectors & columns and e.shape[1] > 1:
            n = min(vectors & columns)
            raise ShapeError(
                f"{text(e)} in {what} combines shapes ({n},) and ({n}, 1) to {e.shape}: every entry of one with every "
                f"entry of the other. Give both the same shape: declare cp.Parameter({n}) instead of ({n}, 1), or use "
                f'cp.vec(u, order="C").'
            )


def warn_of_meanings(expression, constraints, stacklevel):
    """One DataWarning for each kind of expression that CVXPY reads differently from what many people mean."""
    said = set()
    for source in (expression, *constraints):
        for e in _nodes(source):
            line = _caution(e)
            if line is not None and (kind := line.split(":")[0]) not in said:
                said.add(kind)
                warnings.warn(line, DataWarning, stacklevel=stacklevel + 1)


def _caution(e):
    """The warning for one node, or None."""
    if not isinstance(e, _CAUTIONED) or not e.variables():
        return None
    if isinstance(e, atoms.max) and isinstance(e.args[0], atoms.norm1) and e.args[0].size > 1:
        axis = atoms.axis_of(e.args[0])
        if axis in ((0,), (1,)) and e.args[0].args[0].ndim == 2:
            line, p = ("column", "1") if axis == (0,) else ("row", '"inf"')
            return (
                f"cp.norm(W, {p}) of a matrix is its largest {line} sum of absolute values: {text(e, 60)}. "
                f"The sum of all absolute values is cp.norm1(W), the largest entry cp.max(cp.abs(W))."
            )
    if isinstance(e, atoms.sigma_max):
        return (
            f"cp.norm(W) of a matrix is its spectral norm, the largest singular value: {text(e, 60)}. "
            f'The root of the sum of squares is cp.norm(W, "fro").'
        )
    if e.args[0].size == 0 and isinstance(e, (atoms.norm1, atoms.Pnorm, atoms.quad_over_lin, atoms.Sum)):
        return (
            f"a sum over no entries is 0: {text(e, 60)}. cp.tv and differences of an array with a single row or column "
            f'are empty; flatten it first with cp.vec(u, order="C"), or declare the variable with shape (n,).'
        )
    if isinstance(e, atoms.Power) and e.args[0].is_affine() and not e.args[0].is_nonneg():
        p = atoms.exponent(e)
        if p is not None and p > 1 and p % 2 != 0:
            return (
                f"a power of {p:g} has the hidden domain >= 0: {text(e, 60)} is +inf where {text(e.args[0], 40)} is "
                f"negative. Write cp.power(cp.abs(u), {p:g}) for a penalty of both signs, or declare the variable "
                f"nonneg=True."
            )
    return None


def _nodes(expression):
    """Every sub-expression, once."""
    stack, seen = [expression], set()
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            stack.extend(reversed(e.args))


def _own_shape(e):
    """Shape of an argument before CVXPY broadcast it."""
    return e.args[0].shape if isinstance(e, atoms.broadcast_to) else e.shape
