"""Losses that were meant for all records at once: refused, because a loss is summed over records."""

from strat.compiler.symbols import Symbols
from strat.compiler.walk import Walker
from strat.errors import NotPerRecordError
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
                    f"cp.abs(r), cp.huber(r) or cp.logistic(r)."
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
