"""Signs and domains of the data: what makes a declared loss meaningless for the records given."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.convexity import rebuilt, sign_of
from strat.compiler.evaluate import Evaluator, leaves
from strat.compiler.symbols import AtomNode
from strat.errors import DataError, DeclarationError, NotConvexError
from strat.rules import atoms
from strat.rules.text import text


class Origin:
    """Where sorted records came from, for messages.

    Parameters
    ----------
    order : (N,) int ndarray
        Original position of each sorted record.
    strata : Strata
    data : sequence of cvxpy.Parameter
    arrays : sequence of arrays
        The data as given, unsorted.
    """

    def __init__(self, order, strata, data, arrays):
        self.order, self.strata, self.data, self.arrays = order, strata, data, arrays

    def first(self, mask, parameters):
        """The first of the masked sorted records, with its scalar data."""
        first = int(self.order[mask].min()) if len(mask) == len(self.order) else int(self.order[0])
        label = self.strata.labels[self.strata.index[first]]
        ids = {p.id for p in parameters}
        shown = []
        for p, array in zip(self.data, self.arrays, strict=True):
            if p.id in ids and not sp.issparse(array):
                value = np.asarray(array[first])
                shown.append(
                    f"{p.name()} = {value:g}" if value.ndim == 0 else f"{p.name()} = {_short(value)}"
                )
        count = int(np.sum(mask))
        more = f" ({count} records are affected)" if count > 1 and len(mask) > 1 else ""
        return f"record {first} (stratum {label!r}) has {', '.join(shown) or 'another value'}{more}"

    def illegal(self, node, mask):
        """Raise DataError for data outside the domain of an atom of data alone."""
        e = node.expression
        raise DataError(
            f"{text(e)} is undefined or infinite: {self.first(_rows(mask, len(self.order)), e.parameters())}. "
            f"Correct or drop these records."
        )


def _short(value):
    line = np.array2string(value.reshape(-1)[:4], precision=4, separator=", ")
    return line if value.size <= 4 else line[:-1] + ", …]"


def _rows(mask, N):
    mask = np.asarray(mask).reshape(len(mask), -1).any(axis=1)
    return np.broadcast_to(mask, N) if len(mask) == 1 else mask


def check_signs(program, arrays, strata, weight, given=None):
    """Raise where data make a loss non-convex, as binding them does: records that are not fitted, only evaluated."""
    if program._curvature.always:
        return
    order = strata.order[weight[strata.order] > 0]
    walker = program._walked(program.values(given))
    evaluator = Evaluator(walker.symbols, leaves(program.data, arrays, order))
    check_convexity(program._curvature, walker, evaluator, Origin(order, strata, program.data, arrays))


def check_convexity(curvature, walker, evaluator, origin):
    """Raise where the signs of data or hyperparameters make an expression non-convex."""
    if curvature.always:
        return
    forms = [walker(f) for f in curvature.factors]
    signs = []
    for factor, form in zip(curvature.factors, forms, strict=True):
        matrix = id(factor) in curvature.matrices
        value = _dense(evaluator, form) if matrix else evaluator.sparse_form(form)
        signs.append(sign_of(value.data if sp.issparse(value) else value, matrix))
    if curvature.convex(signs):
        return
    found = curvature.offending(signs)
    variables = ", ".join(v.name() for v in curvature.expression.variables())
    if found is None:
        raise NotConvexError(
            f"{curvature.what} is not convex in ({variables}) for these values of data and hyperparameters: "
            f"{text(curvature.expression)}."
        )
    factor, wanted = found
    position = next(i for i, f in enumerate(curvature.factors) if f is factor)
    value = _dense(evaluator, forms[position])
    matrix = id(factor) in curvature.matrices
    if matrix:
        words = "is positive semidefinite" if wanted == "+" else "is negative semidefinite"
        wrong = np.linalg.eigvalsh(0.5 * (value + np.swapaxes(value, 1, 2)))
    else:
        words, wrong = (">= 0", value) if wanted == "+" else ("<= 0", value)
    bad = _rows((wrong < 0) if wanted == "+" else (wrong > 0), len(value))
    if origin is None or walker.symbols.depends(forms[position].coefficient) & 1 == 0:
        shown = ", ".join(f"{p.name()} = {_number(p, walker)}" for p in factor.parameters())
        raise NotConvexError(
            f"{curvature.what} is convex in ({variables}) only where {text(factor)} {words}, but {shown}. "
            f"Give the hyperparameter another value, or write the term with the other sign."
        )
    hint = (
        " Labels of a Bernoulli loss lie in [0, 1], counts are at least 0."
        if "log(" in str(curvature.expression)
        else ""
    )
    raise DataError(
        f"{curvature.what} is convex in ({variables}) only where {text(factor)} {words}, but "
        f"{origin.first(bad, factor.parameters())}.{hint} Correct or drop these records."
    )


def _dense(evaluator, form):
    return evaluator.form(form).reshape(-1, *form.shape)


def _number(parameter, walker):
    value = np.asarray(walker.values.get(parameter.id, np.nan))
    return f"{value:g}" if value.ndim == 0 else _short(value)


def check_fixed(constraints, values):
    """Raise where a constraint without variables does not hold for the hyperparameters' values."""
    for c in constraints:
        if c.variables():
            continue
        own = {id(p): atoms.Constant(values[p.id]) for p in c.parameters()}
        if not c.copy([rebuilt(a, own) for a in c.args]).value(tolerance=1e-8):
            shown = ", ".join(f"{p.name()} = {values[p.id]}" for p in c.parameters())
            raise DeclarationError(
                f"the constraint {text(c)} has no variable in it and does not hold{f' for {shown}' if shown else ''}, "
                f"so no point satisfies the constraints. Correct it, or leave it out."
            )


def check_data_arguments(binder, form, origin):
    """Raise DataError where a data argument of an atom of the variables is outside the atom's domain."""
    stack, seen = [node for node, _ in binder.atoms_of(form)], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack.extend(
            inner for f in node.forms for inner, _ in binder.atoms_of(f) if isinstance(inner, AtomNode)
        )
        for i, (low, high) in node.rule.intervals.items():
            argument = node.forms[i]
            if not argument.is_data:
                continue
            value = binder.evaluator.form(argument)
            bad = (value < low) | (value > high)
            if bad.any():
                part = node.expression.args[i] if i < len(node.expression.args) else node.expression
                limit = f"at least {low:g}" if np.isinf(high) else f"in [{low:g}, {high:g}]"
                what = (
                    origin.first(_rows(bad, len(origin.order)), part.parameters()) if origin else text(part)
                )
                raise DataError(
                    f"{text(node.expression)} needs {text(part)} {limit}, but {what}. Correct or drop these records."
                )
