"""The table of rules, written from the registry when the documentation is built."""

import inspect

import strat
from strat.rules import rules
from strat.rules.text import text

HEAD = ("example", "function", "gradient", "Hessian product", "prox of the bare atom")
GRADIENT = {"none": "yes", "zero": "except where it is 0", "some": "no; smoothed where piecewise linear"}


def rows():
    """Cells of the table, one row for each rule."""
    for cls in rules().values():
        example, _ = cls.example()
        expression = " ".join(text(example).split())
        summary = inspect.getdoc(cls).splitlines()[0].rstrip(".")
        if example.is_convex():
            curved = "yes" if cls.kinks == "none" and hasattr(cls, "curve") else "no"
            oracles = GRADIENT[cls.kinks], curved, strat.compile(example).bind().flat.prox.kind
        else:
            oracles = "in predictions only", "no", "no"
        yield f"`{expression}`", summary, *oracles


def markdown():
    """The table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
