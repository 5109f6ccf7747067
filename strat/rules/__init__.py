"""The registry of rules: one class for each nonlinear CVXPY atom, found by ``isinstance``, the most derived class first.

Tests, the table in the documentation and the compiler all read it, so that adding an atom touches one file. The module also
writes expressions as short text.
"""

import re
from importlib import import_module
from pkgutil import iter_modules

from strat.errors import NoOracleError

_REGISTRY = {}

#: What to write for atoms that hold functions or problems of their own.
_INSTEAD = {
    "perspective": (
        "Write s f(u/s) itself: cp.quad_over_lin(u, s) for squares, cp.rel_entr(s, u) for -log(u), cp.rel_entr(u, s) "
        "for -cp.entr(u), cp.norm(u) for norms."
    ),
    "PartialProblem": (
        "Declare the variables that partial_optimize minimises over as variables of the model, and add its objective "
        "and constraints."
    ),
    "SuppFuncAtom": (
        "Write the support function itself: cp.norm(u, 2) for a ball, cp.norm1(u) for a box, cp.max(u) for a simplex."
    ),
}


def rule(*classes):
    """Register a rule for CVXPY atom classes (or, as a string, for an operation that has no class)."""

    def register(cls):
        _REGISTRY.update(dict.fromkeys(classes, cls))
        return cls

    return register


def rules():
    """All registered rule classes, by name."""
    return dict(sorted((cls.__name__, cls) for cls in _REGISTRY.values()))


def rule_of(expression):
    """The rule class for an expression's class or its nearest base class; raises NoOracleError where there is none."""
    kinds = (expression,) if isinstance(expression, str) else type(expression).__mro__
    for kind in kinds:
        if kind in _REGISTRY:
            return _REGISTRY[kind]
    raise no_rule(expression)


def no_rule(expression):
    name = type(expression).__name__
    usual = "Rewrite it with other atoms, or add a rule under strat/rules (CONTRIBUTING.md says how)."
    way = _INSTEAD.get(name, usual)
    return NoOracleError(f"there is no rule for the atom {name} in {text(expression)}. {way}")


_RENAMED = (
    (r"PowerApprox\(", "power("),
    (r"PnormApprox\(", "norm("),
    (r"GeoMeanApprox\(", "geo_mean("),
    (r"\bSum\(", "sum("),
    (r"\b([HV])stack\(", lambda m: f"{m.group(1).lower()}stack("),
    (r"\bQuadForm\(", "quad_form("),
    (r", None, False\)", ")"),
    (r", (\d+), False\)", r", axis=\1)"),
    (r"(quad_over_lin\(.*?), 1\.0\)", r"\1, 1)"),
    (r"Promote\(([^(),]*), \([^()]*\)\)", r"\1"),
    (r"(?<![\w.])(\d+)\.0(?![\d])", r"\1"),
    (r"\+ -", "- "),
)


#: Arrays of numbers, of up to four axes.
_ARRAY = r"\[[^\[\]]*\]"
for _ in range(3):
    _ARRAY = rf"\[(?:[^\[\]]|{_ARRAY})*\]"


def text(expression, width=None):
    """One line for an expression, cut to a width."""
    line = re.sub(r"\s+", " ", str(expression))
    # Indices such as w[0:3] stay.
    line = re.sub(_ARRAY, lambda m: m.group() if len(m.group()) <= 16 else "[…]", line)
    for pattern, new in _RENAMED:
        line = re.sub(pattern, new, line)
    return line if width is None else short(line, width)


def short(line, width):
    return line if len(line) <= width else line[: width - 1] + "…"


for _module in iter_modules(__path__):  # importing them registers their rules
    import_module(f"{__name__}.{_module.name}")
