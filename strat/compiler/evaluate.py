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

    def columns(self, ids):
        """Values of coefficients: (R, len(ids)), sparse where the data are."""
        ids = np.asarray(ids)
        if not ids.any():
            return np.ones((1, len(ids)))
        if len(ids) > 1 and np.all(ids == ids[0]):
            return self.columns(ids[:1])
        known = ids > 0
        owners = np.full(len(ids), -1)
        owners[known] = self.symbols.owner(ids[known])
        present = np.unique(owners)
        if len(present) == 1:
            return self._pick(self.symbols.nodes[present[0]], ids)
        parts = [(np.flatnonzero(owners == o), o) for o in present]
        values = [
            self._pick(self.symbols.nodes[o], ids[where]) if o >= 0 else np.ones((1, len(where)))
            for where, o in parts
        ]
        rows = max(v.shape[0] for v in values)
        if any(sp.issparse(v) for v in values):
            blocks = [v if sp.issparse(v) else np.broadcast_to(v, (rows, v.shape[1])) for v in values]
            stacked = sp.hstack([sp.csc_array(b) for b in blocks], format="csc")
            return stacked[:, np.argsort(np.concatenate([where for where, _ in parts]))]
        out = np.empty((rows, len(ids)))
        for (where, _), value in zip(parts, values, strict=True):
            out[:, where] = value
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
        values = self.columns(form.coefficient)
        if np.all(form.scale == 1.0):
            width = len(form.scale)
            return values if values.shape[1] == width else np.broadcast_to(values, (values.shape[0], width))
        if sp.issparse(values):
            return (
                sp.csr_array(values @ sp.diags_array(form.scale))
                if values.shape[1] > 1
                else values * form.scale
            )
        return values * form.scale

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
    """Data values for the evaluator: records in order, one row each."""
    return {
        p.id: (a[order] if sp.issparse(a) else a[order].reshape(len(order), -1))
        for p, a in zip(parameters, arrays, strict=True)
    }
