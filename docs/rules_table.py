"""The table of rules, written from the registry when the documentation is built."""

import inspect

from strat.expressions.text import text
from strat.rules import rules
from strat.rules.base import Rule

HEAD = ("example", "function", "gradient", "Hessian product", "prox of the bare atom")
GRADIENT = {"none": "yes", "zero": "except where it is 0", "some": "no; smoothed where piecewise linear"}


def rows():
    """Cells of the table, one row for each rule that an atom of CVXPY has."""
    for cls in rules().values():
        if cls.example is Rule.example:  # products and quotients inside predictions, no atoms
            continue
        expression = " ".join(text(cls.example()[0]).split())
        summary = inspect.getdoc(cls).splitlines()[0].rstrip(".")
        second = "yes" if cls.kinks == "none" and cls.curved else "no"
        yield f"`{expression}`", summary, GRADIENT[cls.kinks], second, cls.prox or "no"


def markdown():
    """The table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
