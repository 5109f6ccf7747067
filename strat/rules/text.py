"""Expressions as short text: the functions' public names, no matrices."""

import re

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
    """Text cut to a width."""
    return line if len(line) <= width else line[: width - 1] + "…"
