"""Domains of the data, and constraints without variables: what makes a declaration meaningless for the values given."""

import warnings

import numpy as np
import scipy.sparse as sp

from strat.compiler.expressions import rebuilt
from strat.errors import DataError, DataWarning, DeclarationError, NotPerRecordError
from strat.rules import atoms
from strat.rules.text import text

#: An array with so many rows or more that is as long as the records is one of records.
MANY = 10


class Origin:
    """Where sorted records came from, for messages.

    `order` is the original position of each sorted record, and `arrays` are the data as given, unsorted.
    """

    def __init__(self, order, strata, data, arrays):
        self.order, self.strata, self.data, self.arrays = order, strata, data, arrays

    def first(self, mask, parameters):
        """The first of the masked sorted records, with its scalar data."""
        first = int(self.order[mask].min()) if len(mask) == len(self.order) else int(self.order[0])
        label, ids = self.strata.labels[self.strata.index[first]], {p.id for p in parameters}
        pairs = zip(self.data, self.arrays, strict=True)
        have = [f"{p.name()} = {shown(a[first])}" for p, a in pairs if p.id in ids and not sp.issparse(a)]
        count = int(np.sum(mask))
        more = f" ({count} records are affected)" if count > 1 and len(mask) > 1 else ""
        return f"record {first} (stratum {label!r}) has {', '.join(have) or 'another value'}{more}"

    def illegal(self, node, mask):
        """Raise DataError for data outside the domain of an atom of data alone."""
        e = node.expression
        raise DataError(
            f"{text(e)} is undefined or infinite: {self.first(on_rows(mask, len(self.order)), e.parameters())}. "
            f"Correct or drop these records."
        )


def shown(value):
    """A number, or the first entries of an array, for messages."""
    value = np.asarray(value)
    if value.ndim == 0:
        return f"{value:g}"
    line = np.array2string(value.reshape(-1)[:4], precision=4, separator=", ")
    return line if value.size <= 4 else line[:-1] + ", …]"


def on_rows(mask, N):
    """A mask of entries as one of N records."""
    mask = np.asarray(mask.toarray() if sp.issparse(mask) else mask).reshape(mask.shape[0], -1).any(axis=1)
    return np.broadcast_to(mask, N) if len(mask) == 1 else mask


def check_fixed(constraints, values):
    """Raise where a constraint without variables does not hold for the hyperparameters' values."""
    for c in constraints:
        if c.variables():
            continue
        own = {id(p): atoms.Constant(values[p.id]) for p in c.parameters()}
        if not c.copy([rebuilt(a, own) for a in c.args]).value(tolerance=1e-8):
            have = ", ".join(f"{p.name()} = {values[p.id]}" for p in c.parameters())
            raise DeclarationError(
                f"the constraint {text(c)} has no variable in it and does not hold{f' for {have}' if have else ''}, "
                f"so no point satisfies the constraints. Correct it, or leave it out."
            )


def check_data_arguments(binder, form, origin):
    """Raise DataError where a data argument of an atom of the variables is outside the atom's domain."""
    for node in binder.inside([node for node, _ in binder.atoms_of(form)]):
        for i, (low, high) in node.rule.intervals.items():
            if not node.forms[i].is_data:
                continue
            value = binder.values(node.forms[i])
            bad = (value < low) | (value > high)
            if bad.any():
                part = node.expression.args[i] if i < len(node.expression.args) else node.expression
                limit = f"at least {low:g}" if np.isinf(high) else f"in [{low:g}, {high:g}]"
                what = origin.first(on_rows(bad, len(origin.order)), part.parameters())
                raise DataError(
                    f"{text(node.expression)} needs {text(part)} {limit}, but {what}. Correct or drop these records."
                )


def check_tables(loss, data, N):
    """Raise where a loss holds no record data, and warn where it holds arrays as long as the N records that are fitted."""
    tables = [c for c in loss.constants() if c.shape and c.shape[0] == N >= MANY]
    spelling = (
        'Write the loss of ONE record, such as cp.square(y - x @ theta) with x = cp.Parameter(3, name="x") and y = '
        'cp.Parameter(name="y"), declare data=(x, y), and pass the arrays to fit(X, Y, strata=…).'
    )
    if not data:
        raise NotPerRecordError(
            f"the loss has no data Parameter: {text(loss)}. It is the same for each of the {N:,} records, and counts {N:,} "
            f"times. {spelling}"
        )
    own = {length for leaf in (*loss.variables(), *loss.parameters()) for length in leaf.shape}
    if tables and N not in own:
        warnings.warn(
            f"the loss holds an array of shape {tables[0].shape}, as long as the {N:,} records, and is summed over records, so "
            f"that the whole array counts {N:,} times. {spelling}",
            DataWarning,
            stacklevel=4,
        )
