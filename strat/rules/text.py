"""Expressions as short text: the functions' public names, no matrices."""

import re

_RENAMED = (
    (re.compile(r"PowerApprox\("), "power("),
    (re.compile(r"PnormApprox\("), "norm("),
    (re.compile(r"GeoMeanApprox\("), "geo_mean("),
    (re.compile(r"\bSum\("), "sum("),
    (re.compile(r"\b([HV])stack\("), lambda m: f"{m.group(1).lower()}stack("),
    (re.compile(r"\bQuadForm\("), "quad_form("),
    (re.compile(r", None, False\)"), ")"),
    (re.compile(r", (\d+), False\)"), r", axis=\1)"),
    (re.compile(r"(quad_over_lin\(.*?), 1\.0\)"), r"\1, 1)"),
    (re.compile(r"Promote\(([^(),]*), \([^()]*\)\)"), r"\1"),
    (re.compile(r"(?<![\w.])(\d+)\.0(?![\d])"), r"\1"),
    (re.compile(r"\+ -"), "- "),
)


def text(expression, width=None):
    """One line for an expression, cut to a width."""
    line = re.sub(r"\s+", " ", str(expression))
    line = _without_arrays(line)
    for pattern, new in _RENAMED:
        line = pattern.sub(new, line)
    return line if width is None else short(line, width)


def short(line, width):
    """Text cut to a width."""
    return line if len(line) <= width else line[: width - 1] + "…"


def _without_arrays(line):
    """Arrays of numbers replaced by […]; indices such as w[0:3] stay."""
    out, depth, start = [], 0, 0
    for position, character in enumerate(line):
        if character == "[":
            if depth == 0:
                start = position
            depth += 1
        if depth == 0:
            out.append(character)
        if character == "]" and depth:
            depth -= 1
            if depth == 0:
                inside = line[start : position + 1]
                out.append(inside if len(inside) <= 16 else "[…]")
    return "".join(out)
