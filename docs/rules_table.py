"""The table of rules, written from the registry when the documentation is built."""

import inspect
import warnings

import strat
from strat.rules import rules, text

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
            with warnings.catch_warnings():  # about hidden domains, which an example may have
                warnings.simplefilter("ignore", strat.DataWarning)
                prox = strat.compile(example).bind().flat.prox
            oracles = GRADIENT[cls.kinks], curved, prox.kind
        else:
            oracles = "in predictions only", "no", "no"
        yield f"`{expression}`", summary, *oracles


def markdown():
    """The table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
