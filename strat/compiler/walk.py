"""From a CVXPY tree to forms: affine nodes are carried through, nonlinear ones become atom nodes."""

import numpy as np

from strat.compiler.symbols import DATA, HYPER, VARIABLE, Value
from strat.errors import DeclarationError, StratError
from strat.rules import atoms, forms
from strat.rules.approximated import meant
from strat.rules.text import text


class Walker:
    """Reads the expressions of one declaration into one set of symbols.

    Parameters
    ----------
    symbols : Symbols
        Where variables, parameters and atoms get their ids.
    data : collection of int
        CVXPY ids of the Parameters that hold record data.
    rule_of : callable
        ``rule_of(expression)`` gives the rule of a nonlinear atom, or raises.
    values : dict, optional
        Values of hyperparameters by CVXPY id; those given are read as constants.
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
        if a.is_data:
            return forms.matmul(self.symbols, self.opaque(a), b, e.shape)
        if b.is_data:
            return forms.matmul(self.symbols, a, self.opaque(b), e.shape, data_left=False)
        q, inner, p = a.size // a.shape[-1], a.shape[-1], b.size // a.shape[-1]
        full = (q, inner, p)
        a = forms.take(a, np.broadcast_to(np.arange(a.size).reshape(q, inner, 1), full))
        b = forms.take(b, np.broadcast_to(np.arange(b.size).reshape(1, inner, p), full))
        return self.sum(self.times(a, b, full, e), e.shape, axis=(1,))

    def _divide(self, e):
        return self.times(self.reciprocal(self(e.args[1]), e), self(e.args[0]), e.shape, e)

    def _sum(self, e):
        return self.sum(self(e.args[0]), e.shape, atoms.axis_of(e))

    def _cumsum(self, e):
        form = self(e.args[0])
        if not form.shape:  # of one number
            return form.reshaped(e.shape)
        axis = atoms.axis_of(e)
        if axis is None:
            form, axis = form.reshaped((form.size,)), (0,)
        n = form.shape[axis[0]]
        positions = np.moveaxis(np.arange(form.size).reshape(form.shape), axis[0], -1)
        lower = np.tril(np.ones((n, n), dtype=bool))
        spread = np.where(lower, positions[..., None, :], -1)
        total = self.sum(forms.take(form, spread), spread.shape[:-1], axis=(spread.ndim - 1,))
        back = np.moveaxis(np.arange(total.size).reshape(total.shape), -1, axis[0])
        return forms.take(total, back).reshaped(e.shape)

    def _trace(self, e):
        form = self(e.args[0])
        positions = np.arange(int(np.prod(e.shape, dtype=int))).reshape(*e.shape, 1, 1)
        target = np.where(np.eye(form.shape[-1], dtype=bool), positions, -1)
        return forms.scatter(form, target, e.shape)

    def _kron(self, e):
        a, b = self(e.args[0]), self(e.args[1])
        (p, q), (r, s) = a.shape, b.shape
        pa = np.broadcast_to(np.arange(a.size).reshape(p, 1, q, 1), (p, r, q, s)).reshape(e.shape)
        pb = np.broadcast_to(np.arange(b.size).reshape(1, r, 1, s), (p, r, q, s)).reshape(e.shape)
        return self.times(forms.take(a, pa), forms.take(b, pb), e.shape, e)

    def _convolve(self, e):
        a, b = self(e.args[0]), self(e.args[1])
        full = (a.size, b.size)
        pa = np.broadcast_to(np.arange(a.size)[:, None], full)
        pb = np.broadcast_to(np.arange(b.size), full)
        outer = self.times(forms.take(a, pa), forms.take(b, pb), full, e)
        return forms.scatter(outer, np.add.outer(np.arange(a.size), np.arange(b.size)), e.shape)

    def _select(self, e):
        args = [self(a) for a in e.args]
        offsets = np.cumsum([1] + [f.size for f in args])
        positions = [np.arange(o, o + f.size).reshape(f.shape) for o, f in zip(offsets, args, strict=False)]
        index = atoms.selection(e, positions).astype(np.int64).reshape(e.shape) - 1
        whole = args[0] if len(args) == 1 else forms.concatenate(args)
        return forms.take(whole, index)

    def _probed(self, e, args):
        """Any other linear atom of one argument: its matrix, read off one unit vector at a time."""
        varying = [i for i, f in enumerate(args) if not f.is_constant]
        if len(varying) > 1:
            return self.rule_of(e)
        values = [f.array() for f in args]
        (position,) = varying or (0,)
        form, columns = args[position], []
        for unit in np.eye(form.size):
            values[position] = unit.reshape(form.shape)
            columns.append(np.asarray(e.numeric(values), dtype=float).reshape(-1))
        matrix = forms.constant(np.stack(columns, axis=1).reshape(-1, form.size))
        product = forms.matmul(self.symbols, matrix, form.reshaped((form.size, 1)), (matrix.shape[0], 1))
        return product.reshaped(e.shape)


_AFFINE = (
    (atoms.AddExpression, Walker._add),
    (atoms.NegExpression, Walker._negative),
    (atoms.multiply, Walker._multiply),
    (atoms.MulExpression, Walker._matmul),
    (atoms.DivExpression, Walker._divide),
    (atoms.Sum, Walker._sum),
    (atoms.cumsum, Walker._cumsum),
    (atoms.Trace, Walker._trace),
    (atoms.kron, Walker._kron),
    ((atoms.conv, atoms.convolve), Walker._convolve),
    (atoms.SELECTIONS, Walker._select),
)
