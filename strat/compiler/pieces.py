"""The parts of a prox: affine matrices and quadratics, the coordinates that atoms touch, and the sets."""

import operator
from functools import cache

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.rules import atoms, forms, text
from strat.rules.base import Elementwise
from strat.rules.piecewise import Abs, Maximum
from strat.rules.powers import QuadForm, Square
from strat.rules.rows import Max


class NoProx(Exception):
    """No closed form was found; the text says why."""


def affine(binder, form):
    """(A, b) of a form A z + b on strata, A (size, n) sparse and b (size,); None where it has atoms or data."""
    variable, atom, rest = binder.kinds(form)
    if atom.any() or binder.has_data(form):
        return None
    rows, columns = form.row[variable], binder.flat(form.column[variable])
    values = np.array(binder.terms(form.at(variable))).reshape(-1)
    A = sp.csr_array((values, (rows, columns)), shape=(form.size, binder.n))
    A.eliminate_zeros()
    return A, np.asarray(binder.values(form.at(rest))).reshape(-1) if rest.any() else np.zeros(form.size)


def single_rows(A, b):
    """(row, column, scale, offset) of the rows of A z + b that have a single coordinate."""
    row = np.flatnonzero(np.diff(A.indptr) == 1)
    return row, A.indices[A.indptr[row]], A.data[A.indptr[row]], b[row]


def quadratic(binder, node, weight):
    """Hessian (n, n), slope (n,) of Σ weight × square or quadratic form of affine rows; None for other atoms."""
    known = isinstance(node.rule, (Square, QuadForm)) and len(weight) == 1
    found = affine(binder, node.forms[0]) if known else None
    if found is None:
        return None
    A, b = found
    if isinstance(node.rule, Square):
        p = sp.diags_array(weight.reshape(-1))
    else:
        matrix = np.asarray(binder.values(node.forms[1])).reshape(node.forms[1].shape)
        p = sp.csr_array(0.5 * weight.item() * (matrix + matrix.T))
    return sp.csr_array(2.0 * (A.T @ p @ A)), 2.0 * (A.T @ (p @ b))


def split(form, walker, binder):
    """The form with each maximum of two functions without atoms as a sum: max(a, b) = (a + b)/2 + |a − b|/2."""
    used, parts = np.zeros(len(form.row), dtype=bool), []
    for node, terms in binder.atoms_of(form):
        inner = node.forms
        if not isinstance(node.rule, Maximum) or len(inner) != 2 or any(map(binder.atoms_of, inner)):
            continue
        used[terms] = True
        difference = forms.add([inner[0], inner[1].scaled(-1.0)], node.shape)
        size = walker.apply(Abs(), [difference], node.shape, node.expression)
        both = forms.take(forms.add([*inner, size], node.shape).scaled(0.5), form.column[terms] - node.start)
        rows, zeros = np.arange(len(terms)), np.zeros(len(terms), dtype=int)
        weights = forms.Form(rows.shape, rows, zeros, form.coefficient[terms], form.scale[terms])
        product = forms.multiply(walker.symbols, weights, both, rows.shape)
        parts.append(forms.scatter(product, form.row[terms], form.shape))
    return forms.add([form.at(~used), *parts], form.shape) if parts else form


def supports(binder):
    """A function from an atom to a sparse matrix (entries, n): the coordinates on which each entry of its output depends."""

    @cache
    def support(node):
        parts = [np.zeros((2, 0), dtype=int)]
        for form in node.forms:
            variable = binder.kinds(form)[0]
            pairs = [(form.row[variable], binder.flat(form.column[variable]))]
            for inner, terms in binder.atoms_of(form):
                matrix = support(inner)[form.column[terms] - inner.start]
                pairs.append((np.repeat(form.row[terms], np.diff(matrix.indptr)), matrix.indices))
            rows, columns = np.concatenate(pairs, axis=1)
            if not isinstance(node.rule, Elementwise):
                rows = rows * node.size // max(form.size, 1)
            parts.append((rows, columns))
        pairs = np.concatenate(parts, axis=1)
        return sp.csr_array((np.ones(pairs.shape[1]), tuple(pairs)), (node.size, binder.n))

    return support


def box(variable):
    """Lowest and highest values of a variable's entries by its attributes."""
    a, shape = variable.attributes, variable.shape
    low = np.full(shape, 0.0 if a.get("nonneg") or a.get("pos") else -np.inf)
    high = np.full(shape, 0.0 if a.get("nonpos") or a.get("neg") else np.inf)
    if a.get("bounds") is not None:
        ends = (end.value if isinstance(end, cp.Expression) else end for end in a["bounds"])
        ends = [end.toarray() if sp.issparse(end) else np.asarray(end, dtype=float) for end in ends]
        low, high = np.maximum(low, ends[0]), np.minimum(high, ends[1])
    zero = ~np.eye(shape[0], dtype=bool) if a.get("diag") else np.full(shape, bool(a.get("sparsity")))
    if a.get("sparsity"):
        zero[tuple(a["sparsity"])] = False
    return np.where(zero, 0.0, low), np.where(zero, 0.0, high)


def attribute_constraints(variable, plain):
    """A variable's attributes as constraints on a plain variable."""
    low, high = (end.reshape(-1) for end in box(variable))
    fixed, flat, a, out = low == high, cp.vec(plain, order="C"), variable.attributes, []
    ends = (operator.ge, np.isfinite(low) & ~fixed, low), (operator.le, np.isfinite(high) & ~fixed, high)
    for compare, some, end in ((operator.eq, fixed, low), *ends):
        out += [compare(flat[some], end[some])] if some.any() else []
    if any(a.get(name) for name in ("symmetric", "PSD", "NSD")):
        out.append(plain == plain.T)
    for name, compare in (("PSD", operator.rshift), ("NSD", operator.lshift)):
        out += [compare(0.5 * (plain + plain.T), 0)] if a.get(name) else []
    return out


def _cone(c, program, found):
    """The cone, "PSD" or "NSD", where the rows A z + b of a constraint are a multiple of one variable's entries; else None."""
    v, (A, b) = c.variables()[0], found or (None, None)
    alone = found and A.nnz == A.shape[0] == v.size and not b.any() and np.ptp(A.data) == 0
    same = alone and np.array_equal(A.indices, np.arange(program.layout.n)[program.layout.slices[v.name()]])
    return ("PSD" if A.data[0] > 0 else "NSD") if same else None


class Sets:
    """Constraints and attributes of one stratum's variables, sorted by the sets that a prox knows.

    ``low`` and ``high`` bound coordinates, ``equalities`` and ``inequalities`` are (A, b) of rows A z = b and A z <= b,
    ``balls`` (atom node, weights of its entries, radius, text) of sets Σ weight × entry <= radius, ``cones`` the semidefinite
    cones by variable, ``transposed`` the coordinates of transposes (symmetric variables), ``other`` texts of other constraints.
    """

    def __init__(self, variables, layout):
        n, self.transposed, self.cones = layout.n, None, {}
        self.low, self.high = np.full(n, -np.inf), np.full(n, np.inf)
        self.equalities, self.inequalities, self.balls, self.other = [], [], [], []
        for v in variables:
            if any(v.attributes.get(name) for name in ("symmetric", "PSD", "NSD")):
                where = layout.slices[v.name()]
                self.transposed = np.arange(n) if self.transposed is None else self.transposed
                self.transposed[where] = self.transposed[where].reshape(v.shape).T.reshape(-1)

    @property
    def restrict(self):
        """Whether there are constraints or attributes other than symmetry."""
        bounded = np.isfinite(self.low).any() or np.isfinite(self.high).any()
        rows = self.equalities or self.inequalities or self.balls
        return bool(bounded or rows or self.cones or self.other)

    def restrict_to(self, program, walker, binder):
        """Add the constraints of a program and its variables' attributes."""
        for v in program.variables:
            where = program.layout.slices[v.name()]
            self.low[where], self.high[where] = (end.reshape(-1) for end in box(v))
            self.cones |= {v.name(): cone for cone in ("PSD", "NSD") if v.attributes.get(cone)}
        for c in program.constraints:
            if not c.variables():
                continue
            equal = isinstance(c, (atoms.Equality, atoms.Zero))
            if equal or isinstance(c, (atoms.Inequality, atoms.NonPos, atoms.NonNeg)):
                below = -c.args[0] if isinstance(c, atoms.NonNeg) else c.expr
                self._add(walker(below), binder, text(c), equal)
            elif isinstance(c, atoms.PSD) and (cone := _cone(c, program, affine(binder, walker(c.args[0])))):
                v = c.variables()[0]
                if v.is_symmetric() and self.cones.setdefault(v.name(), cone) == cone:
                    continue
                self.other.append(f"{text(c)} (declare {v.name()} with {cone}=True instead)")
            else:
                self.other.append(text(c))
        if self.transposed is not None:
            self.low = np.maximum(self.low, self.low[self.transposed])
            self.high = np.minimum(self.high, self.high[self.transposed])

    def _add(self, form, binder, name, equal=False):
        """Add rows that must be 0 (`equal`) or at most 0, as bounds of single coordinates and as rows that tie several."""
        found = affine(binder, form)
        if found is None:
            self._add_atoms(form, binder, name, equal)
            return
        A, b = found
        counts = np.diff(A.indptr)
        if np.any((b[counts == 0] != 0) if equal else (b[counts == 0] > 0)):
            self.other.append(f"{name} (it cannot hold)")
        several, (_, column, scale, offset) = np.flatnonzero(counts > 1), single_rows(A, b)
        bound, above, below = -offset / scale, (scale > 0) | equal, (scale < 0) | equal
        np.minimum.at(self.high, column[above], bound[above])
        np.maximum.at(self.low, column[below], bound[below])
        if len(several):
            (self.equalities if equal else self.inequalities).append((A[several], -b[several]))

    def _add_atoms(self, form, binder, name, equal):
        """Add rows Σ weight × entries of one atom <= radius, and rows max(a, b, …) <= 0 as rows a <= 0, b <= 0, …"""
        (variable, _, rest), found = binder.kinds(form), binder.atoms_of(form)
        if equal or len(found) != 1 or binder.has_data(form):
            self.other.append(name)
            return
        node, terms = found[0]
        part, rest, entries = form.at(terms), form.at(variable | rest), form.column[terms] - node.start
        values = binder.terms(part).reshape(-1)
        alone = np.array_equal(part.row, np.arange(form.size)) and np.all(values >= 0)
        if alone and isinstance(node.rule, (Abs, Maximum, Max)):
            inner = node.forms
            if isinstance(node.rule, Abs):
                inner = [inner[0], inner[0].scaled(-1.0)]
            elif isinstance(node.rule, Max):
                inner = [forms.take(inner[0], places) for places in inner[0].positions.T]
            rows = np.tile(np.arange(form.size), len(inner))
            args = forms.concatenate([forms.take(f, entries) for f in inner])
            factor = forms.Form(form.shape, part.row, 0 * part.row, part.coefficient, part.scale)
            product = forms.multiply(binder.symbols, forms.take(factor, rows), args, rows.shape)
            self._add(forms.add([forms.take(rest, rows), product], rows.shape), binder, name)
        elif variable.any() or len(np.unique(part.row)) < form.size:
            self.other.append(name)
        else:
            weights, radius = np.zeros((form.size, node.size)), -binder.values(rest).reshape(-1)
            np.add.at(weights, (part.row, entries), values)
            self.balls += [(node, *ball, name) for ball in zip(weights, radius.tolist(), strict=True)]
