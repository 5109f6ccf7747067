"""Smoothing: piecewise linear functions of one scalar argument, and Euclidean norms, become their Moreau envelopes.

Every spelling of one function must get the same envelope, so pieces over one argument are merged first: all rows
that are multiples of one direction (apart from a constant) become functions of the same number u.
"""

import numpy as np

from strat.rules import forms
from strat.rules.largest import Max, Min
from strat.rules.piecewise import Abs, Maximum, Minimum
from strat.rules.piecewise_linear import Envelope, PiecewiseLinear
from strat.rules.power_norms import Norm2


class Direction:
    """A row of a form up to its scale and its constant: the argument u of piecewise linear functions."""

    def __init__(self, form):
        plain = (form.column == 0) & (form.coefficient == 0)
        self.offset = float(form.scale[plain].sum())
        rest = ~plain
        self.column, self.coefficient, scale = form.column[rest], form.coefficient[rest], form.scale[rest]
        varying = np.flatnonzero(self.column)
        self.factor = float(scale[varying[0]]) if len(varying) else 0.0
        self.scale = scale / self.factor if self.factor else scale

    @property
    def key(self):
        """Equal for rows in the same direction."""
        return (self.column.tobytes(), self.coefficient.tobytes(), np.round(self.scale, 12).tobytes())

    def form(self):
        """The direction as a form of one entry."""
        return forms.Form(
            (1,), np.zeros(len(self.column), dtype=int), self.column, self.coefficient, self.scale
        )


def _row(form, r):
    return form.where(form.row == r)


def piecewise(binder, form):
    """(Direction, PiecewiseLinear) of a form of one entry, or None where it is something else."""
    inner = binder.atoms_of(form)
    direct = form.where(~binder.kinds(form)[1])
    variable = binder.kinds(direct)[0].any()
    direction, total = None, None
    if variable or not inner:
        direction = Direction(direct)
        total = PiecewiseLinear.affine(direction.factor, direction.offset)
        if not variable:
            if direct.coefficient.any():
                return None
            direction = None
    elif len(direct.row):
        if direct.coefficient.any():
            return None
        total = PiecewiseLinear.affine(0.0, float(direct.scale.sum()))
    for node, terms in inner:
        for term in terms:
            if form.coefficient[term]:
                return None
            found = atom_function(binder, node, int(form.column[term] - node.start))
            if found is None or (direction is not None and found[0].key != direction.key):
                return None
            direction = found[0]
            part = found[1].scaled(form.scale[term])
            total = part if total is None else total + part
    return direction, total


def atom_function(binder, node, entry):
    """(Direction, PiecewiseLinear) of one entry of an atom, or None."""
    if not isinstance(node.rule, (Abs, Maximum, Minimum, Max, Min)):
        return None
    found, along = [], isinstance(node.rule, (Max, Min))
    for form in node.forms:
        length = form.size // node.size if along else 1
        rows = range(entry * length, (entry + 1) * length)
        found += [_row(form.reshaped((form.size,)), r) for r in rows]
    for i, row in enumerate(found):
        row.row = np.zeros_like(row.row)
        part = piecewise(binder, row)
        if part is None:
            return None
        found[i] = part
    directions = [d for d, _ in found if d is not None]
    if not directions or any(d.key != directions[0].key for d in directions):
        return None
    functions = [f for _, f in found]
    if isinstance(node.rule, Abs):
        return directions[0], functions[0].maximum(functions[0].scaled(-1.0))
    total = functions[0]
    for f in functions[1:]:
        total = total.maximum(f) if isinstance(node.rule, (Maximum, Max)) else total.minimum(f)
    return directions[0], total


def kinks_at_zero(binder, node):
    """Whether an atom is a piecewise linear function of one number whose kinks are where it is 0.

    So is max(|u| − ε, 0), though its inner |u| has another one.
    """
    found = [atom_function(binder, node, entry) for entry in range(node.size)]
    if not all(found):
        return False
    functions = [function.simplified() for _, function in found]
    return all(np.abs(f.values).max() <= 1e-12 * max(1.0, np.abs(f.slopes).max()) for f in functions)


def merged(form, binder):
    """Piecewise linear pieces of a scalar form, by argument and coefficient, and what is left of the form.

    Returns
    -------
    list of (Direction, int, PiecewiseLinear)
        The argument, the coefficient that weighs the function, and the function.
    Form
        The remaining terms.
    """
    groups, used = {}, np.zeros(len(form.row), dtype=bool)
    for node, terms in binder.atoms_of(form):
        for term in terms:
            found = atom_function(binder, node, int(form.column[term] - node.start))
            if found is None:
                continue
            direction, function = found
            key = (direction.key, int(form.coefficient[term]))
            part = function.scaled(form.scale[term])
            groups[key] = (direction, key[1], groups[key][2] + part if key in groups else part)
            used[term] = True
    left = form.where(~used)
    out = []
    for direction, coefficient, function in groups.values():
        slope, left = _absorbed(direction, coefficient, left, binder.symbols)
        if slope:
            function = function + PiecewiseLinear.affine(slope, 0.0)
        out.append((direction, coefficient, function.simplified()))
    return out, left


def _absorbed(direction, coefficient, left, symbols):
    """(slope, rest): the multiple of the argument that stands as linear terms in the form."""
    weighed = symbols.product(np.full(len(direction.column), coefficient), direction.coefficient)
    varying = np.flatnonzero(direction.column)
    slopes = np.zeros(len(varying))
    for position, t in enumerate(varying):
        match = (left.column == direction.column[t]) & (left.coefficient == weighed[t])
        slopes[position] = left.scale[match].sum() / direction.scale[t]
    slope = slopes[0]
    if slope == 0 or np.ptp(slopes) > 1e-12 * abs(slope):
        return 0.0, left
    zeros = np.zeros(len(direction.column), dtype=int)
    taken = forms.Form(left.shape, zeros, direction.column, weighed, -slope * direction.scale)
    rest = forms.add([left, taken], left.shape)
    tiny = np.abs(rest.scale) <= 1e-13 * abs(slope) * np.abs(direction.scale).max()
    return float(slope), rest.where(~tiny)


def _with_smooth_norms(form, walker, binder, delta):
    """A scalar form's parts, the envelope of ‖u‖ for ‖u‖: it is that of |r| at r = ‖u‖."""
    zero, used, parts = np.zeros(1, dtype=int), np.zeros(len(form.row), dtype=bool), []
    absolute = PiecewiseLinear([0.0], [0.0], -1.0, 1.0)
    for node, terms in binder.atoms_of(form):
        for term in terms if isinstance(node.rule, Norm2) else ():
            r = forms.Form((1,), zero, form.column[[term]], zero, np.ones(1))
            envelope = walker.apply(Envelope(absolute, delta), [r], (1,), node.expression)
            parts.append(forms.Form((), zero, envelope.column, form.coefficient[[term]], form.scale[[term]]))
            used[term] = True
    return [form.where(~used), *parts]


def smoothed(form, walker, binder, delta):
    """The form with its piecewise linear pieces and norms replaced by envelopes of width delta."""
    groups, left = merged(form, binder)
    parts = _with_smooth_norms(left, walker, binder, delta)
    for direction, coefficient, function in groups:
        u = direction.form()
        envelope = walker.apply(Envelope(function, delta), [u], (1,), walker.symbols.nodes[-1])
        zero = np.zeros(1, dtype=int)
        parts.append(forms.Form((), zero, envelope.column, np.array([coefficient]), np.ones(1)))
    return forms.add(parts, ())
