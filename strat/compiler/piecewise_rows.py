"""Piecewise linear functions of affine rows, read off atoms."""

import numpy as np

from strat.compiler.smoothing import atom_function
from strat.rules.piecewise import Abs, Maximum, Minimum
from strat.rules.piecewise_linear import PiecewiseLinear


class NoProx(Exception):
    """No closed form was found; the text says why."""


def stacked(functions):
    """Knots (J, 1, m) and slopes (J + 1, 1, m) of piecewise linear functions, padded."""
    J = max(len(f.knots) for f in functions)
    knots, slopes = np.full((J, 1, len(functions)), np.inf), np.empty((J + 1, 1, len(functions)))
    for i, f in enumerate(functions):
        knots[: len(f.knots), 0, i] = f.knots
        slopes[:, 0, i] = f.right
        slopes[: len(f.knots) + 1, 0, i] = f.slopes
    return knots, slopes


def piecewise_entries(binder, node, entries):
    """``[(columns, values, function)]`` of an atom's entries: piecewise linear functions of rows; None for others."""
    if not isinstance(node.rule, (Abs, Maximum, Minimum)) or binder.node_has_data(node):
        return None
    out = []
    for entry in entries:
        found = atom_function(binder, node, int(entry))
        if found is None:
            return None
        direction, function = found
        varying = direction.column > 0
        if direction.coefficient.any():
            return None
        out.append((binder.flat(direction.column[varying]), direction.scale[varying], function.simplified()))
    return out


def interval_below(binder, node, entries, weights, level):
    """(low, high) of the coordinate z where Σ weight × entry, piecewise linear in z alone, is <= level; None for others."""
    found = piecewise_entries(binder, node, entries)
    if found is None or any(len(columns) != 1 for columns, _, _ in found):
        return None
    scales = {float(values[0]) for _, values, _ in found}
    if len(scales) != 1:
        return None
    total = PiecewiseLinear.affine(0.0, 0.0)
    for (_, _, function), weight in zip(found, weights, strict=True):
        total = total + function.scaled(weight)
    low, high = total.below(level)
    if low > high:
        return np.inf, -np.inf
    ends = (low / (scale := scales.pop()), high / scale)
    return min(ends), max(ends)
