"""From a CVXPY tree to forms: affine nodes are carried through, nonlinear ones become atom nodes.

Every number that may occur in an expression of one record is a symbol with an integer id. Id 0 is the number one. Each
variable, parameter, product of data and atom owns a contiguous block of ids, one for each of its entries in C order. An id
either is a *column* (its value depends on the variables) or a *coefficient* (it depends on record data or hyperparameters
alone). Nothing here has the size of the data.
"""

import copy
import math

import numpy as np
import scipy.sparse as sp

from strat.errors import DeclarationError, StratError
from strat.rules import atoms, forms, no_rule, rule_of, text
from strat.rules.approximated import meant

DATA, HYPER, VARIABLE = 1, 2, 4


class Node:
    """A block of symbols; ``depends`` tells what its values change with (DATA | HYPER | VARIABLE)."""

    ids = property(lambda self: np.arange(self.start, self.start + self.size))  # of the entries
    has_data = property(lambda self: bool(self.depends & DATA))  # whether records differ in it

    def __init__(self, shape, depends, **own):
        self.shape, self.size = tuple(shape), math.prod(shape)
        self.depends, self.start = depends, None
        self.__dict__.update(own)


class Leaf(Node):
    """A CVXPY Variable, or a Parameter that holds record data or a hyperparameter: ``leaf`` with its ``name``."""


class Product(Node):
    """Products of two coefficients, ``left`` and ``right``, entry by entry."""


class Value(Node):
    """A ``form`` without variables, evaluated as a whole and used as coefficients from there on."""


class AtomNode(Node):
    """A ``rule`` applied to ``forms``: a nonlinear atom, the ``expression``."""


class Symbols:
    """The blocks of one expression, in order of creation (arguments come before the nodes that use them)."""

    def __init__(self):
        self.nodes, self._known, self._products = [], {}, {}
        self._starts, self._end = np.zeros(0, dtype=np.int64), 1

    def copy(self):
        """The same blocks, to which others may be added."""
        twin = copy.copy(self)
        for name in ("nodes", "_known", "_products"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def add(self, node):
        """Give a node its ids."""
        node.start = self._end
        self._end += max(node.size, 1)
        self.nodes.append(node)
        return node

    def known(self, key, kind, shape, depends, **own):
        """The node with a key, created at its first occurrence and then reused."""
        if key not in self._known:
            self._known[key] = self.add(kind(shape, depends, **own))
        return self._known[key]

    def owner(self, ids):
        """Position in ``nodes`` of the node that owns each id, -1 for the id 0."""
        if len(self._starts) != len(self.nodes):
            self._starts = np.array([node.start for node in self.nodes])
        return self._starts.searchsorted(ids, side="right") - 1

    def depends(self, ids):
        """Union of ``depends`` over the nodes of some ids."""
        out = 0
        for position in set(self.owner(ids[ids > 0]).tolist()):
            out |= self.nodes[position].depends
        return out

    def single(self, form):
        """(atom node, entries) of a form each row of which is a number times one entry of a single atom; None of others."""
        owners = np.unique(self.owner(form.column))
        alone = len(owners) == 1 and owners[0] >= 0 and not form.coefficient.any()
        node = self.nodes[owners[0]] if alone and np.array_equal(form.row, np.arange(form.size)) else None
        return (node, form.column - node.start) if isinstance(node, AtomNode) else None

    def product(self, left, right):
        """Ids of the products of two arrays of coefficients; equal products get equal ids."""
        out = np.where(left == 0, right, left)
        both = (left > 0) & (right > 0)
        if not both.any():
            return out
        low, high = np.minimum(left[both], right[both]), np.maximum(left[both], right[both])
        pairs, inverse = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
        keys = list(zip(*pairs.tolist(), strict=True))
        ids = np.array([self._products.get(key, 0) for key in keys])
        new = np.flatnonzero(ids == 0)
        if len(new):
            (left, right), depends = pairs[:, new], self.depends(pairs[:, new].ravel())
            ids[new] = self.add(Product(left.shape, depends, left=left, right=right)).ids
            self._products.update((keys[i], int(ids[i])) for i in new)
        out[both] = ids[inverse.reshape(-1)]
        return out


class Walker:
    """Reads expressions into one set of ``symbols``.

    `data` are the CVXPY ids of the Parameters that hold record data. Hyperparameters with a value in `values`, by CVXPY id,
    are read as constants.
    """

    def __init__(self, data, values=None):
        self.symbols, self.data = Symbols(), frozenset(data)
        self.values, self._seen = values or {}, {}

    def __call__(self, expression):
        """Form of an expression."""
        if id(expression) not in self._seen:  # kept with its form, so that no other object gets its id
            try:
                self._seen[id(expression)] = (expression, self._read(expression))
            except StratError:
                raise
            except Exception as error:  # CVXPY accepts, say, an axis that is not a number
                raise DeclarationError(
                    f"{text(expression)} cannot be read ({type(error).__name__}: {error}). Its arguments are not what CVXPY "
                    f"documents for it, or the package does not know this spelling: write it with other atoms."
                ) from error
        return self._seen[id(expression)][1]

    def copy(self):
        """A walker that has read the same expressions, with its own copy of the symbols."""
        twin = Walker(self.data, self.values)
        twin.symbols, twin._seen = self.symbols.copy(), dict(self._seen)
        return twin

    def _read(self, e):
        if isinstance(e, atoms.Constant):
            return forms.constant(e.value)
        variable = isinstance(e, atoms.Variable)
        if variable or isinstance(e, atoms.Parameter):
            if e.id in self.values:
                return forms.constant(self.values[e.id])
            depends = VARIABLE if variable else DATA if e.id in self.data else HYPER
            node = self.symbols.known(e.id, Leaf, e.shape, depends, leaf=e, name=e.name())
            return forms.block(node, as_columns=variable)
        rule, u = meant(e) or (None, None)
        if rule is not None:
            return rule.form(self, e, [self(u)])
        args = [self(a) for a in e.args]
        for kinds, method in _AFFINE:
            if isinstance(e, kinds):
                return method(self, e, *args)
        return self._linear(e, args) if isinstance(e, atoms.AffAtom) else rule_of(e).form(self, e, args)

    def apply(self, rule, args, shape, expression):
        """Form of the entries of a rule's output (an atom node)."""
        depends = self.symbols.depends(np.hstack([ids for f in args for ids in (f.column, f.coefficient)]))
        key = (rule.key, tuple(shape), *(f.fingerprint() for f in args))
        own = {"rule": rule, "forms": tuple(args), "expression": expression}
        node = self.symbols.known(key, AtomNode, shape, depends, **own)
        return forms.block(node, as_columns=bool(depends & VARIABLE))

    def opaque(self, form):
        """The form, with each sum of data terms as one value: data forms then have at most one term per row."""
        if form.is_constant or not form.is_data or np.all(np.diff(form.row) > 0):
            return form
        depends = self.symbols.depends(form.coefficient)
        return forms.block(self.symbols.add(Value(form.shape, depends, form=form)), as_columns=False)

    def times(self, a, b, shape, expression=None):
        """Entrywise product."""
        if a.is_data or b.is_data:
            data, other = (a, b) if a.is_data else (b, a)
            return forms.multiply(self.symbols, self.opaque(data), other, shape)
        args = [forms.broadcast(a, shape), forms.broadcast(b, shape)]
        return self.apply(rule_of("product")(), args, shape, expression)

    def reciprocal(self, form, expression):
        """1 / form, entrywise, by numbers or data."""
        if form.is_constant:
            with np.errstate(divide="ignore"):
                return forms.constant(1.0 / form.array())
        return self.apply(rule_of("reciprocal")(), [self.opaque(form)], form.shape, expression)

    def sum(self, form, shape=(), axis=None):
        """Sum over axes (a tuple of non-negative ints, or None for all)."""
        kept = [1 if axis is None or d in axis else n for d, n in enumerate(form.shape)]
        target = np.arange(math.prod(kept)).reshape(kept)
        return forms.scatter(form, np.broadcast_to(target, form.shape), shape)

    def _matmul(self, e, a, b):
        some_data = a.is_data or b.is_data
        a, b = (self.opaque(a), b) if a.is_data else (a, self.opaque(b))
        if some_data and max(len(a.shape), len(b.shape)) <= 2:
            return forms.matmul(self.symbols, a, b, e.shape)
        a = a if len(a.shape) > 1 else a.reshaped((1, a.size))
        b = b if len(b.shape) > 1 else b.reshaped((b.size, 1))
        full = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:], b.shape[-1])
        a = forms.take(a, np.broadcast_to(a.positions[..., :, :, None], full))
        b = forms.take(b, np.broadcast_to(b.positions[..., None, :, :], full))
        return self.sum(self.times(a, b, full, e), e.shape, axis=(len(full) - 2,))

    def _kron(self, e, a, b):
        pa, pb = np.kron(a.positions, 1 + 0 * b.positions), np.kron(1 + 0 * a.positions, b.positions)
        return self.times(forms.take(a, pa), forms.take(b, pb), e.shape, e)

    def _convolve(self, e, a, b):
        pa, pb = np.indices((a.size, b.size))
        outer = self.times(forms.take(a, pa), forms.take(b, pb), pa.shape, e)
        return forms.scatter(outer, pa + pb, e.shape)

    def _linear(self, e, args):
        """Any other linear atom: a selection of entries and zeros, or a matrix whose columns are the images of unit vectors."""
        whole = args[0] if len(args) == 1 else forms.concatenate(args)
        ends = np.cumsum([f.size for f in args[:-1]], dtype=int)

        def applied(entries):
            values = [part.reshape(f.shape) for part, f in zip(np.split(entries, ends), args, strict=True)]
            return np.asarray(e.numeric(values), dtype=float).reshape(-1)

        # 0, then ascending numbers, none of which is a multiple of another or a sum of others.
        marks = np.append(0.0, np.log(np.arange(whole.size) + 2.5))
        out = applied(marks[1:])
        places = marks.searchsorted(out).clip(max=whole.size)
        if np.array_equal(marks[places], out):
            return forms.take(whole, places - 1).reshaped(e.shape)
        if len(args) > 1:
            raise no_rule(e)
        units = (1.0 * (np.arange(whole.size) == i) for i in range(whole.size))
        matrix = forms.constant(sp.hstack([sp.csc_array(applied(unit)[:, None]) for unit in units]))
        return forms.matmul(self.symbols, matrix, whole.reshaped((whole.size,)), e.shape)


_AFFINE = (
    (atoms.AddExpression, lambda walker, e, *args: forms.add(args, e.shape)),
    (atoms.NegExpression, lambda walker, e, u: u.scaled(-1.0)),
    (atoms.multiply, lambda walker, e, a, b: walker.times(a, b, e.shape, e)),
    (atoms.MulExpression, Walker._matmul),
    (atoms.DivExpression, lambda walker, e, a, b: walker.times(walker.reciprocal(b, e), a, e.shape, e)),
    (atoms.Sum, lambda walker, e, u: walker.sum(u, e.shape, atoms.axis_of(e))),
    (atoms.kron, Walker._kron),
    ((atoms.conv, atoms.convolve), Walker._convolve),
)
