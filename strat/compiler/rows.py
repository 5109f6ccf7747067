"""Functions of affine rows, read off atoms and sets for the dual method: on strata, and on records."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.pieces import affine_matrix
from strat.compiler.smoothing import atom_function, piecewise
from strat.oracles.design import ConstantDesign
from strat.oracles.lifted_rows import LiftedRows
from strat.oracles.row_functions import PiecewiseRows, ScalarRows
from strat.oracles.row_terms import RowTerm, row_norms
from strat.rules.base import Elementwise
from strat.rules.piecewise import Abs, Maximum, Minimum
from strat.rules.piecewise_linear import PiecewiseLinear
from strat.rules.powers import Square


def _above_0(function):
    """A convex function that is nowhere negative, or its negative if that is one; None for others."""
    for f in (function, function.scaled(-1.0)):
        convex = np.all(np.diff(f.slopes) >= 0)
        if convex and f.left <= 0 <= f.right and f.values.min() >= -1e-12 * max(1.0, np.abs(f.values).max()):
            return f
    return None


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


class StratumRows:
    """Collects rows on strata, over the coordinates ``columns``."""

    def __init__(self, binder, columns):
        self.binder, self.columns, self.n = binder, columns, len(columns)
        self.terms = []

    def add(self, A, offset, functions):
        """Add functions of rows A z + offset, A over this collection's coordinates."""
        coo = sp.coo_array(A)
        design = ConstantDesign(coo.coords[0], coo.coords[1], coo.data, A.shape[0], self.n)
        self.terms.append(RowTerm(design, np.reshape(offset, (1, -1)), functions, None, row_norms(design)))

    def piecewise(self, node, weight, entries):
        """Add entries of an atom as piecewise linear functions; whether that was possible."""
        found = self.piecewise_functions(node, weight[:, entries], entries)
        if found is not None:
            self.add(found[0][:, self.columns], *found[1:])
        return found is not None

    def piecewise_functions(self, node, weight, entries):
        """(A, b, PiecewiseRows) of entries of an atom of affine rows A z + b; None for others."""
        found = piecewise_entries(self.binder, node, entries)
        if found is None:
            return None
        rows = np.concatenate([np.full(len(f[0]), i) for i, f in enumerate(found)])
        columns, values = np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])
        knots, slopes = stacked([f[2] for f in found])
        first = np.array([f[2].values[0] for f in found])
        A = sp.csr_array((values, (rows, columns)), shape=(len(found), self.binder.n))
        return A, np.zeros(len(found)), PiecewiseRows(knots, slopes, weight, first)

    def scalar(self, node, weight, entries):
        """Add entries of an elementwise atom of affine rows; whether that was possible."""
        found = self.scalar_functions(node, weight[:, entries], entries)
        if found is not None:
            self.add(found[0][:, self.columns], *found[1:])
        return found is not None

    def scalar_functions(self, node, weight, entries):
        """(A, b, ScalarRows) of entries of an elementwise atom of affine rows A z + b; None for others."""
        if not isinstance(node.rule, Elementwise) or not node.rule.curved:
            return None
        varying = [i for i, form in enumerate(node.forms) if not form.is_data]
        if len(varying) != 1:
            return None
        (place,), evaluator = varying, self.binder.evaluator
        affine = affine_matrix(self.binder, node.forms[place])
        if affine is None:
            return None
        A, b = affine
        others = [
            evaluator.form(f).reshape(1, -1)[:, entries] for i, f in enumerate(node.forms) if i != place
        ]
        low, high = dict(node.rule.intervals).get(place, (-np.inf, np.inf))
        limits = [np.full((1, len(entries)), end) for end in (low, high)]
        A, b = A[entries], b[entries]
        return A, b, ScalarRows(node.rule, others, weight, *limits, place=place)

    def sizes(self, node, weight, entries, inside):
        """Add entries of an elementwise atom of absolute values, ``inside(form)`` giving (A, b); whether that was possible."""
        if not (isinstance(node.rule, Elementwise) and node.rule.curved and len(node.forms) == 1):
            return False
        found = inside(node.forms[0])
        if found is None:
            return False
        ends = dict(node.rule.intervals).get(0, (-np.inf, np.inf))
        low, high = (np.full((1, len(entries)), end) for end in ends)
        functions = ScalarRows(node.rule, (), weight, low, high, absolute=True)
        self.add(found[0][entries][:, self.columns], found[1][entries], functions)
        return True

    def squares(self, node, weight, entries):
        """`LiftedRows` of squares of piecewise linear functions of rows, each of one sign; None for others."""
        if not isinstance(node.rule, Square) or self.binder.node_has_data(node):
            return None
        slopes, offsets, place, rows = [], [], [], []
        for i, entry in enumerate(entries):
            form = node.forms[0].reshaped((node.size,))
            row = form.where(form.row == entry)
            row.row = np.zeros_like(row.row)
            found = piecewise(self.binder, row.reshaped((1,)) if row.size != 1 else row)
            function = None if found is None or found[0] is None else _above_0(found[1].simplified())
            if function is None or found[0].coefficient.any():
                return None
            ends = np.append(np.arange(len(function.knots)), len(function.knots) - 1)  # a knot of each piece
            ends[1:-1] = ends[:-2]
            varying = found[0].column > 0
            a = np.zeros(self.binder.n)
            a[self.binder.flat(found[0].column[varying])] = found[0].scale[varying]
            slopes.append(function.slopes)
            offsets.append(function.values[ends] - function.slopes * function.knots[ends])
            place.append(np.full(len(ends), i))
            rows.append(np.outer(function.slopes, a[self.columns]))
        return LiftedRows.squares(
            np.concatenate(rows), np.concatenate(offsets), np.concatenate(place), weight[:, entries]
        )

    def within(self, A, low, high):
        """Add low <= A z <= high, A over this collection's coordinates."""
        low, high = np.broadcast_to(low, A.shape[0]), np.broadcast_to(high, A.shape[0])
        knots = np.stack([np.where(np.isfinite(low), low, -1e300), np.where(np.isfinite(high), high, np.inf)])
        before = np.where(np.isfinite(low), -np.inf, 0.0)
        slopes = np.stack([before, np.zeros(len(low)), np.full(len(low), np.inf)])
        functions = PiecewiseRows(knots[:, None], slopes[:, None], np.ones((1, len(low))))
        self.add(sp.csr_array(A), np.zeros(len(low)), functions)

    def bounds(self, positions, low, high):
        """Add low <= z <= high at positions."""
        m = len(positions)
        self.within(sp.csr_array((np.ones(m), (np.arange(m), positions)), shape=(m, self.n)), low, high)
