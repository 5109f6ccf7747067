"""Affine forms of one record, carried symbolically.

A form of shape s is the sum of its terms: term j adds ``scale[j] * coefficient[j] * column[j]`` to entry
``row[j]`` (entries counted in C order). Columns and coefficients are symbols, where 0 stands for one, so the form
holds for all records at once and its size does not depend on their number.
"""

import math

import numpy as np


class Form:
    """Terms of an affine form, sorted by row, without duplicates."""

    __slots__ = ("shape", "row", "column", "coefficient", "scale")
    terms = property(lambda self: (self.row, self.column, self.coefficient, self.scale))
    size = property(lambda self: math.prod(self.shape))  # the number of entries
    positions = property(lambda self: np.arange(self.size).reshape(self.shape))  # the entries' numbers
    is_data = property(lambda self: not self.column.any())  # whether no term has a variable in it
    is_constant = property(lambda self: self.is_data and not self.coefficient.any())  # nor any data

    def __init__(self, shape, row, column, coefficient, scale):
        self.shape = tuple(shape)
        if not (row[1:] > row[:-1]).all():
            order = np.lexsort((coefficient, column, row))
            row, column, coefficient, scale = row[order], column[order], coefficient[order], scale[order]
            same = row[1:] == row[:-1]
            same &= (column[1:] == column[:-1]) & (coefficient[1:] == coefficient[:-1])
            if same.any():
                first = np.flatnonzero(np.concatenate([[True], ~same]))
                scale = np.add.reduceat(scale, first)
                row, column, coefficient = row[first], column[first], coefficient[first]
        keep = scale != 0
        if not keep.all():
            row, column, coefficient, scale = row[keep], column[keep], coefficient[keep], scale[keep]
        self.row, self.column, self.coefficient, self.scale = row, column, coefficient, scale

    def fingerprint(self):
        """Bytes equal for equal forms."""
        return (self.shape, *(part.tobytes() for part in self.terms))

    def reshaped(self, shape, some=slice(None)):
        """Same entries in C order under another shape, and perhaps only some of the terms."""
        out = object.__new__(Form)
        out.shape = tuple(shape)
        out.row, out.column, out.coefficient, out.scale = (part[some] for part in self.terms)
        return out

    def scaled(self, factor):
        return Form(self.shape, self.row, self.column, self.coefficient, self.scale * factor)

    def at(self, some):
        """The form with only the terms that a mask or positions select, in their order."""
        return self.reshaped(self.shape, some)

    def array(self):
        """Value of a constant form."""
        out = np.zeros(self.size)
        out[self.row] = self.scale
        return out.reshape(self.shape)


def constant(value):
    """Form of a number, array or sparse array."""
    if hasattr(value, "tocoo"):
        coo = value.tocoo()
        row = np.ravel_multi_index(tuple(np.asarray(c, dtype=np.int64) for c in coo.coords), coo.shape)
        scale, shape = np.asarray(coo.data, dtype=float), coo.shape
    else:
        value = np.asarray(value, dtype=float)
        row = np.flatnonzero(value)
        scale, shape = value.reshape(-1)[row], value.shape
    zeros = np.zeros(row.size, dtype=np.int64)
    return Form(shape, row.astype(np.int64), zeros, zeros, scale)


def block(node, as_columns):
    """Form of a node's entries, as columns or as coefficients."""
    rows = np.arange(node.size)
    ids = (node.ids, 0 * node.ids) if as_columns else (0 * node.ids, node.ids)
    return Form(node.shape, rows, *ids, np.ones(node.size))


def take(form, positions):
    """Entries at flat positions (an integer array of any shape; -1 gives a zero)."""
    positions = np.asarray(positions)
    row, term = _join(positions.reshape(-1), form.row)
    return Form(positions.shape, row, form.column[term], form.coefficient[term], form.scale[term])


def scatter(form, targets, shape):
    """Add entry i into flat position ``targets[i]`` of a new form."""
    row = np.asarray(targets).reshape(-1)[form.row]
    return Form(shape, row, form.column, form.coefficient, form.scale)


def concatenate(forms):
    """Entries of several forms one after the other, as a vector."""
    offsets = np.cumsum([0] + [f.size for f in forms])
    row = np.concatenate([f.row + o for f, o in zip(forms, offsets, strict=False)])
    parts = [np.concatenate([getattr(f, n) for f in forms]) for n in ("column", "coefficient", "scale")]
    return Form((int(offsets[-1]),), row, *parts)


def broadcast(form, shape):
    """NumPy broadcasting."""
    return form if form.shape == tuple(shape) else take(form, np.broadcast_to(form.positions, shape))


def add(forms, shape):
    """Sum of forms, broadcast to one shape."""
    parts = zip(*(broadcast(f, shape).terms for f in forms), strict=True)
    return Form(shape, *map(np.concatenate, parts))


def multiply(symbols, left, right, shape):
    """Entrywise product of two forms, of which one has no variables."""
    left, right = broadcast(left, shape), broadcast(right, shape)
    pairs = _join(left.row, right.row)
    return _products(symbols, left, right, pairs, left.row[pairs[0]], shape)


def matmul(symbols, left, right, shape):
    """Matrix product of two forms of at most two axes, of which one has no variables."""
    inner, p = left.shape[-1], right.shape[1] if len(right.shape) > 1 else 1
    rows, keys = np.divmod(left.row, inner)
    other_keys, columns = np.divmod(right.row, p)
    pairs = _join(keys, other_keys)
    return _products(symbols, left, right, pairs, rows[pairs[0]] * p + columns[pairs[1]], shape)


def _products(symbols, left, right, pairs, row, shape):
    """Form of the products of the pairs of terms (i, j), at the entries `row`."""
    i, j = pairs
    coefficient = symbols.product(left.coefficient[i], right.coefficient[j])
    column = left.column[i] + right.column[j]  # one of the two is 0
    return Form(shape, row, column, coefficient, left.scale[i] * right.scale[j])


def _join(left, right):
    """Index pairs (i, j) with left[i] == right[j]."""
    order = np.argsort(right, kind="stable")
    start, end = (np.searchsorted(right, left, side, order) for side in ("left", "right"))
    count = end - start
    # start[0], …, start[0] + count[0] - 1, start[1], …
    place = np.arange(count.sum()) + np.repeat(start - np.cumsum(count) + count, count)
    return np.repeat(np.arange(left.size), count), order[place]
