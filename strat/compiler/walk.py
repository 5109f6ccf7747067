"""From a CVXPY tree to forms: affine nodes are carried through, nonlinear ones become atom nodes."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.symbols import DATA, HYPER, VARIABLE, Value
from strat.errors import DeclarationError, StratError
from strat.rules import atoms, forms
from strat.rules.approximated import meant
from strat.rules.text import text


class Walker:
    """Reads the expressions of one declaration into one set of symbols.

    `data` has the CVXPY ids of the Parameters that hold record data, ``rule_of(expression)`` gives the rule of a nonlinear
    atom, or raises, and `values` of hyperparameters by CVXPY id are read as constants.
    """

    def __init__(self, symbols, data, rule_of, values=None):
        self.symbols = symbols
        self.data = frozenset(data)
        self.rule_of = rule_of
        self.values = values or {}
        self._seen = {}

    def __call__(self, expression):
        """Form of an expression."""
        key = id(expression)
        if key not in self._seen:  # the expression is kept with its form, so that its id stays taken
            self._seen[key] = (expression, self._walk(expression))
        return self._seen[key][1]

    def copy(self):
        """A walker that has read as much, with symbols of its own."""
        twin = Walker(self.symbols.copy(), self.data, self.rule_of, self.values)
        twin._seen = dict(self._seen)
        return twin

    def _walk(self, e):
        try:
            return self._read(e)
        except StratError:
            raise
        except Exception as error:  # what CVXPY lets pass, such as an axis that is no number
            raise DeclarationError(
                f"{text(e)} cannot be read ({type(error).__name__}: {error}). Its arguments are not what CVXPY documents "
                f"for it, or the package does not know this spelling: write it with other atoms."
            ) from error

    def _read(self, e):
        if isinstance(e, atoms.Constant):
            return forms.constant(e.value)
        if isinstance(e, (atoms.Variable, atoms.Parameter)):
            return self._leaf(e)
        exact = meant(e)
        if exact is not None:
            rule, u = exact
            return rule.form(self, e, [self(u)])
        for kinds, method in _AFFINE:
            if isinstance(e, kinds):
                return method(self, e)
        args = [self(a) for a in e.args]
        if isinstance(e, atoms.AffAtom):
            return self._probed(e, args)
        rule = self.rule_of(e)
        return rule.form(self, e, args)

    def _leaf(self, e):
        if isinstance(e, atoms.Variable):
            return forms.block(self.symbols.leaf(e, VARIABLE), as_columns=True)
        if e.id in self.data:
            return forms.block(self.symbols.leaf(e, DATA), as_columns=False)
        if e.id in self.values:
            return forms.constant(self.values[e.id])
        return forms.block(self.symbols.leaf(e, HYPER), as_columns=False)

    def apply(self, rule, args, shape, expression):
        """Form of the entries of a rule's output (an atom node)."""
        depends = 0
        for form in args:
            depends |= self.symbols.depends(form.column) | self.symbols.depends(form.coefficient)
        node = self.symbols.atom(rule, tuple(args), shape, depends, expression)
        return forms.block(node, as_columns=bool(depends & VARIABLE))

    def opaque(self, form):
        """The form with at most one term a row, evaluated as a whole where it is a sum of data terms."""
        if form.is_constant or not form.is_data or np.all(np.diff(form.row) > 0):
            return form
        depends = self.symbols.depends(form.coefficient)
        return forms.block(self.symbols.add(Value(form, depends)), as_columns=False)

    def times(self, a, b, shape, expression=None):
        """Entrywise product."""
        if a.is_data:
            return forms.multiply(self.symbols, self.opaque(a), b, shape)
        if b.is_data:
            return forms.multiply(self.symbols, self.opaque(b), a, shape)
        args = [forms.broadcast(a, shape), forms.broadcast(b, shape)]
        return self.apply(self.rule_of("product")(), args, shape, expression)

    def reciprocal(self, form, expression):
        """1 / form, entrywise, by numbers or data."""
        if form.is_constant:
            with np.errstate(divide="ignore"):
                return forms.constant(1.0 / form.array())
        return self.apply(self.rule_of("reciprocal")(), [self.opaque(form)], form.shape, expression)

    def sum(self, form, shape=(), axis=None):
        """Sum over axes (a tuple of non-negative ints, or None for all)."""
        if axis is None:
            return forms.scatter(form, np.zeros(form.size, dtype=int), shape)
        kept = [1 if d in axis else n for d, n in enumerate(form.shape)]
        target = np.arange(int(np.prod(kept, dtype=int))).reshape(kept)
        return forms.scatter(form, np.broadcast_to(target, form.shape), shape)

    def _add(self, e):
        return forms.add([self(a) for a in e.args], e.shape)

    def _negative(self, e):
        return self(e.args[0]).scaled(-1.0)

    def _multiply(self, e):
        return self.times(self(e.args[0]), self(e.args[1]), e.shape, e)

    def _matmul(self, e):
        a, b = self(e.args[0]), self(e.args[1])
        some_data = a.is_data or b.is_data
        a, b = (self.opaque(a), b) if a.is_data else (a, self.opaque(b))
        if some_data and max(len(a.shape), len(b.shape)) <= 2:
            return forms.matmul(self.symbols, a, b, e.shape)
        a = a if len(a.shape) > 1 else a.reshaped((1, a.size))
        b = b if len(b.shape) > 1 else b.reshaped((b.size, 1))
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        full = (*lead, a.shape[-2], a.shape[-1], b.shape[-1])
        a = forms.take(a, np.broadcast_to(a.positions[..., :, :, None], full))
        b = forms.take(b, np.broadcast_to(b.positions[..., None, :, :], full))
        return self.sum(self.times(a, b, full, e), e.shape, axis=(len(full) - 2,))

    def _divide(self, e):
        return self.times(self.reciprocal(self(e.args[1]), e), self(e.args[0]), e.shape, e)

    def _sum(self, e):
        return self.sum(self(e.args[0]), e.shape, atoms.axis_of(e))

    def _kron(self, e):
        a, b = self(e.args[0]), self(e.args[1])
        full = (a.shape[0], b.shape[0], a.shape[1], b.shape[1])
        pa = np.broadcast_to(a.positions[:, None, :, None], full).reshape(e.shape)
        pb = np.broadcast_to(b.positions[None, :, None, :], full).reshape(e.shape)
        return self.times(forms.take(a, pa), forms.take(b, pb), e.shape, e)

    def _convolve(self, e):
        a, b = self(e.args[0]), self(e.args[1])
        pa, pb = np.indices((a.size, b.size))
        outer = self.times(forms.take(a, pa), forms.take(b, pb), pa.shape, e)
        return forms.scatter(outer, pa + pb, e.shape)

    def _select(self, e):
        args = [self(a) for a in e.args]
        offsets = np.cumsum([1] + [f.size for f in args[:-1]])
        positions = [f.positions + offset for f, offset in zip(args, offsets, strict=True)]
        index = np.asarray(e.numeric(positions), dtype=np.int64).reshape(e.shape) - 1
        whole = args[0] if len(args) == 1 else forms.concatenate(args)
        return forms.take(whole, index)

    def _probed(self, e, args):
        """Any other linear atom of one argument: its matrix, read off one unit vector at a time."""
        varying = [i for i, f in enumerate(args) if not f.is_constant]
        if len(varying) > 1:
            return self.rule_of(e)
        values, (position,) = [f.array() for f in args], varying or (0,)
        form, columns = args[position], []
        for i in range(form.size):
            unit = np.zeros(form.size)
            unit[i] = 1.0
            values[position] = unit.reshape(form.shape)
            columns.append(sp.csc_array(np.asarray(e.numeric(values), dtype=float).reshape(-1, 1)))
        matrix = forms.constant(sp.hstack(columns))
        product = forms.matmul(self.symbols, matrix, form.reshaped((form.size, 1)), (matrix.shape[0], 1))
        return product.reshaped(e.shape)


_AFFINE = (
    (atoms.AddExpression, Walker._add),
    (atoms.NegExpression, Walker._negative),
    (atoms.multiply, Walker._multiply),
    (atoms.MulExpression, Walker._matmul),
    (atoms.DivExpression, Walker._divide),
    (atoms.Sum, Walker._sum),
    (atoms.kron, Walker._kron),
    ((atoms.conv, atoms.convolve), Walker._convolve),
    (atoms.SELECTIONS, Walker._select),
)
