"""Losses that were meant for all records at once: refused, because a loss is summed over records."""

import warnings

from strat.compiler.symbols import Symbols
from strat.compiler.walk import Walker
from strat.errors import DataWarning, NotPerRecordError
from strat.rules import atoms, rule_of
from strat.rules.text import text

#: Functions of several numbers that have no meaning for one, and what they take of their argument.
OVER_RECORDS = (
    ((atoms.max, atoms.norm_inf), "maximum"),
    (atoms.min, "minimum"),
    (atoms.sum_largest, "sum of the largest entries"),
    (atoms.log_sum_exp, "log-sum-exp"),
    ((atoms.cumsum, atoms.cummax), "running total or maximum"),
    (atoms.GeoMean, "geometric mean"),
    (atoms.dotsort, "weighted sum of sorted entries"),
)
#: An array with so many rows or more that is as long as the records is one of records.
MANY = 10
#: How the mean of the largest losses of a stratum is written for one record.
CVAR = (
    " The cvar at level beta of a stratum's losses r is t + cp.pos(r - t) / (1 - beta), summed over records, with a "
    "cp.Variable t."
)
#: What standard deviations and variances are made of.
SIZES = (atoms.norm1, atoms.Pnorm, atoms.quad_over_lin)
_SUSPECTS = (
    *SIZES,
    *(kind for kinds, _ in OVER_RECORDS for kind in (kinds if isinstance(kinds, tuple) else (kinds,))),
)


def check_per_record(expression, data):
    """Raise NotPerRecordError for functions that were meant to run over records."""
    ids = {p.id for p in data}
    walker = Walker(Symbols(), ids, rule_of)
    seen = set()

    def visit(e):
        if id(e) in seen or not e.args:
            return
        seen.add(id(e))
        if isinstance(e, _SUSPECTS) and any(p.id in ids for p in e.parameters()) and e.variables():
            word = _taken(e, walker)
            if word is not None:
                raise NotPerRecordError(
                    f"{text(e)} takes the {word} of one number. The loss is that of ONE record and is summed over "
                    f"records, so a function of all records together (maximum, cvar, log-sum-exp, variance, "
                    f"total variation over records) cannot be written in it. Write a sum over records, such as "
                    f"cp.abs(r), cp.huber(r) or cp.logistic(r).{CVAR if isinstance(e, atoms.sum_largest) else ''}"
                )
        for a in e.args:
            visit(a)

    visit(expression)


def _taken(e, walker):
    """What is taken of a single number, or None where all is well."""
    size = e.args[0].size
    if size == 1:
        for kinds, word in OVER_RECORDS:
            if isinstance(e, kinds):
                return word
        if isinstance(e, atoms.Pnorm) and (atoms.exponent(e) or 1.0) < 1:
            return "harmonic or other mean"
    if size > 1 or not isinstance(e, SIZES) or not e.args[0].is_affine():
        return None
    if size == 0:
        return "total variation or difference"
    # x minus its own mean is identically 0 where x is one number.
    return "variance or standard deviation" if not len(walker(e.args[0]).row) else None


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
