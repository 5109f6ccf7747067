"""The table of rules, written from the registry when the documentation is built."""

import inspect

from strat.rules import rules
from strat.rules.text import text

HEAD = ("example", "function", "gradient", "Hessian product", "prox of the bare atom")
GRADIENT = {"none": "yes", "zero": "except where it is 0", "some": "no; smoothed where piecewise linear"}


def rows():
    """Cells of the table, one row for each rule."""
    for cls in rules().values():
        expression = " ".join(text(cls.example()[0]).split())
        summary = inspect.getdoc(cls).splitlines()[0].rstrip(".")
        first, second = GRADIENT[cls.kinks], "yes" if cls.kinks == "none" and cls.curved else "no"
        if cls.predicts:
            first, second = "in predictions only", "no"
        yield f"`{expression}`", summary, first, second, cls.prox or "no"


def markdown():
    """The table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
