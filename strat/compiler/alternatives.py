"""What a maximum is taken of: sums of atoms and linear functions, maxima inside maxima made one."""

import numpy as np

from strat.compiler.pieces import sums_of_atoms
from strat.rules.largest import Max
from strat.rules.piecewise import Maximum, Minimum


def alternatives(binder, node, entries):
    """For entries of a maximum (or minimum), lists of what each is taken of; None for other atoms.

    Parameters
    ----------
    binder : Binder
    node : atom node
    entries : iterable of int

    Returns
    -------
    list of list of (parts, linear, offset) or None
        As of ``sums_of_atoms``.
    """
    if isinstance(node.rule, Max):
        rows = sums_of_atoms(binder, node.forms[0])
        length = len(rows) // node.size
        found = [rows[e * length : (e + 1) * length] for e in entries]
    elif isinstance(node.rule, (Maximum, Minimum)):
        rows = [sums_of_atoms(binder, form) for form in node.forms]
        found = [[of_form[e] for of_form in rows] for e in entries]
    else:
        return None
    smallest = isinstance(node.rule, Minimum)
    return [[flat for row in choice for flat in _flattened(binder, *row, smallest)] for choice in found]


def _flattened(binder, parts, linear, offset, smallest):
    """What a row stands for where it is a multiple of another maximum, plus a linear function; else the row."""
    if len(parts) == 1:
        (node, weights), (entry, *others) = parts[0], np.flatnonzero(parts[0][1])
        weight = weights[entry]
        same = isinstance(node.rule, Minimum) == smallest and not others and weight > 0
        inner = alternatives(binder, node, [entry]) if same else None
        if inner is not None:
            return [
                ([(a, weight * w) for a, w in own], weight * slope + linear, weight * start + offset)
                for own, slope, start in inner[0]
            ]
    return [(parts, linear, offset)]
