"""Piecewise linear functions of one number, read off atoms, and smoothing.

Smoothing replaces them, and Euclidean norms, by their Moreau envelopes. Every spelling of one function must get the same
envelope: all rows that are multiples of one direction, apart from a constant, become functions of the same number u.
"""

from functools import reduce

import numpy as np

from strat.rules import forms
from strat.rules.piecewise import Abs, Envelope, Maximum, PiecewiseLinear
from strat.rules.powers import Norm2
from strat.rules.rows import Max


class Direction:
    """A row of a form up to its scale and its constant: the argument u of piecewise linear functions."""

    def __init__(self, form):
        plain = (form.column == 0) & (form.coefficient == 0)
        self.offset, rest = float(form.scale[plain].sum()), ~plain
        self.column, self.coefficient, scale = form.column[rest], form.coefficient[rest], form.scale[rest]
        varying = np.flatnonzero(self.column)
        self.factor = float(scale[varying[0]]) if len(varying) else 0.0
        self.scale = scale / self.factor if self.factor else scale
        parts = self.column, self.coefficient, np.round(self.scale, 12)
        self.key = tuple(part.tobytes() for part in parts)  # equal for rows in the same direction

    def form(self):
        """The direction as a form of one entry."""
        return forms.Form((1,), 0 * self.column, self.column, self.coefficient, self.scale)


def _of_form(binder, form):
    """(Direction, or None for a constant, PiecewiseLinear) of a form of one entry; None where it is not piecewise linear."""
    inner, own = binder.atoms_of(form), form.at(~binder.kinds(form)[1])
    direction = Direction(own)
    line = PiecewiseLinear([0.0], [direction.offset], direction.factor, direction.factor)
    parts = [line] if len(own.row) or not inner else []
    if not direction.factor and own.coefficient.any():
        return None
    direction = direction if direction.factor else None
    for node, terms in inner:
        for term in terms:
            found = None if form.coefficient[term] else of_atom(binder, node, form.column[term] - node.start)
            if found is None or (direction is not None and found[0].key != direction.key):
                return None
            direction = found[0]
            parts.append(found[1].scaled(form.scale[term]))
    return direction, reduce(PiecewiseLinear.__add__, parts)


def of_atom(binder, node, entry):
    """(Direction, PiecewiseLinear) of one entry of an atom, or None."""
    if not isinstance(node.rule, (Abs, Maximum, Max)):
        return None
    length = node.forms[0].size // node.size
    places = range(entry * length, (entry + 1) * length)
    found = [_of_form(binder, forms.take(form, [place])) for form in node.forms for place in places]
    if not all(found):
        return None
    directions, functions = [d for d, _ in found if d is not None], [f for _, f in found]
    if not directions or any(d.key != directions[0].key for d in directions):
        return None
    if isinstance(node.rule, Abs):
        functions.append(functions[0].scaled(-1.0))
    return directions[0], reduce(PiecewiseLinear.maximum, functions)


def kinks_at_zero(binder, node):
    """Whether each entry of an atom is a piecewise linear function of one number that is 0 at its kinks, as max(|u| − ε, 0)."""
    found = [of_atom(binder, node, entry) for entry in range(node.size)]
    functions = [function.simplified() for _, function in found] if all(found) else []
    sizes = ((np.abs(f.values).max(), max(1.0, np.abs(f.slopes).max())) for f in functions)
    return all(found) and all(value <= 1e-12 * size for value, size in sizes)


def first_kink(binder, roots):
    """The first node at which the sum over the roots is not differentiable, or None.

    A kink where the output is 0 disappears inside an atom that is flat at 0, such as the square of a positive part.
    """
    seen, stack = set(), [(node, False) for node in roots]
    while stack:
        node, flattened = stack.pop()
        if (node, flattened) in seen or (flattened and kinks_at_zero(binder, node)):
            continue
        seen.add((node, flattened))
        kink = node.rule.kinks_of(node.forms)
        if kink == "some" or (kink == "zero" and not flattened):
            return node
        for form in node.forms:
            # Each row of the form is a number times one atom's entry.
            alone = np.array_equal(form.row, np.arange(form.size)) and binder.kinds(form)[1].all()
            stack += [(inner, node.rule.flat_at_zero and alone) for inner, _ in binder.atoms_of(form)]
    return None


def smoothed(form, walker, binder, delta):
    """The form with its piecewise linear pieces and norms replaced by envelopes of width delta."""
    groups, used, parts = {}, np.zeros(len(form.row), dtype=bool), []
    zero, absolute = np.zeros(1, dtype=int), PiecewiseLinear([0.0], [0.0], -1.0, 1.0)

    def add(function, u, coefficient, scale, expression):
        envelope = walker.apply(Envelope(function, delta), [u], (1,), expression)
        parts.append(forms.Form((), zero, envelope.column, np.array([coefficient]), np.array([scale])))

    for node, terms in binder.atoms_of(form):
        for term in terms:
            coefficient, scale = int(form.coefficient[term]), form.scale[term]
            found = of_atom(binder, node, int(form.column[term] - node.start))
            used[term] = found is not None or isinstance(node.rule, Norm2)
            if found is not None:
                direction, function = found
                key, part = (direction.key, coefficient), function.scaled(scale)
                known = groups.get(key)
                groups[key] = (direction, known[1] + part if known else part, node.expression)
            elif used[term]:  # the envelope of ‖u‖ is that of |r| at r = ‖u‖
                r = forms.Form((1,), zero, form.column[[term]], zero, np.ones(1))
                add(absolute, r, coefficient, scale, node.expression)
    left = form.at(~used)
    for (_, coefficient), (direction, function, expression) in groups.items():
        slope, left = _absorbed(direction, coefficient, left, binder.symbols)
        function = function + PiecewiseLinear([0.0], [0.0], slope, slope) if slope else function
        add(function.simplified(), direction.form(), coefficient, 1.0, expression)
    return forms.add([left, *parts], ())


def _absorbed(direction, coefficient, left, symbols):
    """(slope, rest): the multiple of the direction among the form's linear terms, and the form without it."""
    weighed = symbols.product(np.full(len(direction.column), coefficient), direction.coefficient)
    varying = np.flatnonzero(direction.column)
    slopes = np.zeros(len(varying))
    for position, t in enumerate(varying):
        match = (left.column == direction.column[t]) & (left.coefficient == weighed[t])
        slopes[position] = left.scale[match].sum() / direction.scale[t]
    slope = slopes[0]
    if slope == 0 or np.ptp(slopes) > 1e-12 * abs(slope):
        return 0.0, left
    taken = forms.Form(left.shape, 0 * direction.column, direction.column, weighed, -slope * direction.scale)
    rest = forms.add([left, taken], left.shape)
    tiny = np.abs(rest.scale) <= 1e-13 * abs(slope) * np.abs(direction.scale).max()
    return float(slope), rest.at(~tiny)
