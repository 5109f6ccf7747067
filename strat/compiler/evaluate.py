"""Values of whatever has no variable in it, on all records at once."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.symbols import AtomNode, Leaf, Product


class Evaluator:
    """Values of coefficients.

    Parameters
    ----------
    symbols : Symbols
        The declaration's symbols.
    leaves : dict
        Array of each parameter by CVXPY id: (N, size) for record data, dense or sparse, and (1, size) for
        hyperparameters.
    on_illegal : callable, optional
        ``on_illegal(node, mask)`` is called where data lie outside the domain of an atom.
    """

    def __init__(self, symbols, leaves, on_illegal=None):
        self.symbols, self.leaves, self.on_illegal = symbols, leaves, on_illegal
        self._values = {}

    def node(self, node):
        """Value of a node without variables: (R, size), R the number of records or 1."""
        if node.start not in self._values:
            self._values[node.start] = self._evaluate(node)
        return self._values[node.start]

    def _evaluate(self, node):
        if isinstance(node, Leaf):
            return self.leaves[node.leaf.id]
        if isinstance(node, AtomNode):
            args = [self.form(f).reshape(-1, *f.shape) for f in node.forms]
            rows = max(len(a) for a in args)
            with np.errstate(all="ignore"):
                legal = node.rule.domain(args)
                out, _ = node.rule.forward(args)
            finite = np.isfinite(out).reshape(len(out), -1).all(axis=1)
            legal = finite if legal is None else finite & legal
            if not legal.all() and self.on_illegal is not None:
                self.on_illegal(node, ~legal)
            return np.broadcast_to(out, (rows, *node.shape)).reshape(rows, -1)
        return self.form(node.form)

    def columns(self, ids, scale=None):
        """Values of coefficients, times `scale` where it is given: (R, len(ids)), sparse where the data are."""
        ids = np.asarray(ids)
        if not ids.any():
            return np.ones((1, len(ids))) if scale is None else np.array(scale)[None, :]
        if len(ids) > 1 and np.all(ids == ids[0]):
            value = self.columns(ids[:1])
            return value if scale is None else value * scale
        known = ids > 0
        owners = np.full(len(ids), -1)
        owners[known] = self.symbols.owner(ids[known])
        parts = [(np.flatnonzero(owners == o), o) for o in np.unique(owners)]
        values = [
            self._pick(self.symbols.nodes[o], ids[where]) if o >= 0 else np.ones((1, len(where)))
            for where, o in parts
        ]
        if any(sp.issparse(v) for v in values):
            rows = max(v.shape[0] for v in values)
            blocks = [v if sp.issparse(v) else np.broadcast_to(v, (rows, v.shape[1])) for v in values]
            stacked = values[0]
            if len(values) > 1:
                stacked = sp.hstack([sp.csc_array(b) for b in blocks], format="csc")
                stacked = stacked[:, np.argsort(np.concatenate([where for where, _ in parts]))]
            return stacked if scale is None else sp.csr_array(stacked @ sp.diags_array(scale))
        if len(values) == 1:
            return values[0] if scale is None else values[0] * scale
        out = np.empty((max(len(v) for v in values), len(ids)))
        for (where, _), value in zip(parts, values, strict=True):
            near = where[-1] - where[0] == len(where) - 1
            block = out[:, where[0] : where[-1] + 1] if near else out[:, where]
            np.multiply(value, 1.0 if scale is None else scale[where], out=block)
            if not near:
                out[:, where] = block
        return out

    def _pick(self, node, ids):
        positions = ids - node.start
        if isinstance(node, Product):  # never kept: there may be many more products than data
            left, right = self.columns(node.left[positions]), self.columns(node.right[positions])
            if sp.issparse(left) or sp.issparse(right):
                return sp.csc_array(left.multiply(right) if sp.issparse(left) else right.multiply(left))
            return left * right
        value = self.node(node)
        if sp.issparse(value):
            value = self._values[node.start] = sp.csc_array(value)
        if len(ids) == node.size and np.array_equal(positions, np.arange(node.size)):
            return value
        return value[:, positions]

    def terms(self, form):
        """``scale * coefficient`` of each term: (R, terms)."""
        if not np.all(form.scale == 1.0):
            return self.columns(form.coefficient, form.scale)
        values, width = self.columns(form.coefficient), len(form.scale)
        return values if values.shape[1] == width else np.broadcast_to(values, (values.shape[0], width))

    def form(self, form):
        """Value of a form without variables: (R, size), dense."""
        out = self.sparse_form(form)
        return out.toarray() if sp.issparse(out) else out

    def sparse_form(self, form):
        """Value of a form without variables: (R, size), sparse where the data are."""
        values = self.terms(form)
        if len(form.row) == form.size and np.array_equal(form.row, np.arange(form.size)):
            return values
        spread = sp.csr_array(
            (np.ones(len(form.row)), (np.arange(len(form.row)), form.row)), shape=(len(form.row), form.size)
        )
        out = values @ spread
        return out if sp.issparse(out) else np.asarray(out)


def leaves(parameters, arrays, order):
    """Data values for the evaluator: records in order, one row each, as floats; a view where they are neighbours."""
    ascending = len(order) and order[-1] - order[0] == len(order) - 1 and bool(np.all(order[1:] > order[:-1]))
    part = slice(order[0], order[-1] + 1) if ascending else order

    def rows(array):
        if sp.issparse(array):
            return array[part]
        array = array[part] if ascending else array.take(order, axis=0)
        return np.asarray(array, dtype=float).reshape(len(array), -1)

    return {p.id: rows(array) for p, array in zip(parameters, arrays, strict=True)}
