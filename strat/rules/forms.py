"""Affine forms of one record, carried symbolically.

A form of shape s is the sum of its terms: term j adds ``scale[j] * coefficient[j] * column[j]`` to entry
``row[j]`` (entries counted in C order). Columns and coefficients are symbols, 0 standing for one, so the form
holds for all records at once and its size has nothing to do with theirs.
"""

import math

import numpy as np


class Form:
    """Terms of an affine form, sorted by row, without duplicates."""

    __slots__ = ("shape", "row", "column", "coefficient", "scale")

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

    @property
    def size(self):
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def is_data(self):
        """Whether no term has a variable in it."""
        return not self.column.any()

    @property
    def is_constant(self):
        """Whether every term is a plain number."""
        return not self.column.any() and not self.coefficient.any()

    def fingerprint(self):
        """Bytes equal for equal forms."""
        parts = (self.row, self.column, self.coefficient, self.scale)
        return (self.shape, *(part.tobytes() for part in parts))

    def reshaped(self, shape):
        """Same entries in C order under another shape."""
        out = object.__new__(Form)
        out.shape = tuple(shape)
        out.row, out.column, out.coefficient, out.scale = self.row, self.column, self.coefficient, self.scale
        return out

    def scaled(self, factor):
        """Form times a number."""
        return Form(self.shape, self.row, self.column, self.coefficient, self.scale * factor)

    def where(self, mask):
        """Only the terms of the mask."""
        return Form(self.shape, self.row[mask], self.column[mask], self.coefficient[mask], self.scale[mask])

    def array(self):
        """Value of a constant form."""
        out = np.zeros(self.size)
        out[self.row] = self.scale
        return out.reshape(self.shape)


def constant(value):
    """Form of a number, array or sparse array."""
    if hasattr(value, "tocoo"):
        coo = value.tocoo()
        coordinates = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
        row = np.ravel_multi_index(tuple(np.asarray(c, dtype=np.int64) for c in coordinates), coo.shape)
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
    ids, zeros = node.ids.reshape(-1), np.zeros(node.size, dtype=np.int64)
    column, coefficient = (ids, zeros) if as_columns else (zeros, ids)
    return Form(node.shape, rows, column, coefficient, np.ones(node.size))


def take(form, positions):
    """Entries at flat positions (an integer array of any shape; -1 gives a zero)."""
    positions = np.asarray(positions)
    flat = positions.reshape(-1)
    start = np.searchsorted(form.row, flat, side="left")
    count = np.where(flat >= 0, np.searchsorted(form.row, flat, side="right") - start, 0)
    row = np.repeat(np.arange(flat.size), count)
    term = _ranges(start, count)
    return Form(positions.shape, row, form.column[term], form.coefficient[term], form.scale[term])


def scatter(form, targets, shape):
    """Add entry i into flat position ``targets[i]`` of a new form (-1 drops it)."""
    row = np.asarray(targets).reshape(-1)[form.row]
    keep = row >= 0
    return Form(shape, row[keep], form.column[keep], form.coefficient[keep], form.scale[keep])


def concatenate(forms):
    """Entries of several forms one after the other, as a vector."""
    offsets = np.cumsum([0] + [f.size for f in forms])
    row = np.concatenate([f.row + o for f, o in zip(forms, offsets, strict=False)])
    parts = [np.concatenate([getattr(f, n) for f in forms]) for n in ("column", "coefficient", "scale")]
    return Form((int(offsets[-1]),), row, *parts)


def broadcast(form, shape):
    """NumPy broadcasting."""
    if form.shape == tuple(shape):
        return form
    positions = np.arange(form.size).reshape(form.shape)
    return take(form, np.broadcast_to(positions, shape))


def add(forms, shape):
    """Sum of forms, broadcast to one shape."""
    forms = [broadcast(f, shape) for f in forms]
    parts = [
        np.concatenate([getattr(f, n) for f in forms]) for n in ("row", "column", "coefficient", "scale")
    ]
    return Form(shape, *parts)


def multiply(symbols, left, right, shape):
    """Entrywise product of a form without variables (left) and any form."""
    return _joined(symbols, broadcast(left, shape), broadcast(right, shape), shape)


def matmul(symbols, left, right, shape, data_left=True):
    """Matrix product of two forms, of which the one on the data side has no variables."""
    a = left if len(left.shape) > 1 else left.reshaped((1, left.size))
    b = right if len(right.shape) > 1 else right.reshaped((right.size, 1))
    if len(a.shape) > 2 or len(b.shape) > 2:
        return _stacked_matmul(symbols, a, b, shape, data_left)
    (_q, inner), p = a.shape, b.shape[1]
    rows_a, keys_a = np.divmod(a.row, inner)
    keys_b, columns_b = np.divmod(b.row, p)
    ia, ib = _join(keys_a, keys_b)
    data, other = (a, b) if data_left else (b, a)
    d, o = (ia, ib) if data_left else (ib, ia)
    coefficient = symbols.product(data.coefficient[d], other.coefficient[o])
    return Form(
        shape, rows_a[ia] * p + columns_b[ib], other.column[o], coefficient, a.scale[ia] * b.scale[ib]
    )


def _stacked_matmul(symbols, a, b, shape, data_left):
    """Matrix products over leading axes, as entrywise products that are summed."""
    pa, pb = np.arange(a.size).reshape(a.shape), np.arange(b.size).reshape(b.shape)
    lead = np.broadcast_shapes(pa.shape[:-2], pb.shape[:-2])
    full = (*lead, pa.shape[-2], pa.shape[-1], pb.shape[-1])
    a = take(a, np.broadcast_to(pa[..., :, :, None], full))
    b = take(b, np.broadcast_to(pb[..., None, :, :], full))
    product = _joined(symbols, a, b, full) if data_left else _joined(symbols, b, a, full)
    out = np.arange(int(np.prod(lead, dtype=int)) * full[-3] * full[-1]).reshape(*lead, full[-3], 1, full[-1])
    return scatter(product, np.broadcast_to(out, full), shape)


def _joined(symbols, data, other, shape):
    """Entrywise product of two forms of one shape."""
    d, o = _join(data.row, other.row)
    coefficient = symbols.product(data.coefficient[d], other.coefficient[o])
    return Form(shape, other.row[o], other.column[o], coefficient, data.scale[d] * other.scale[o])


def _join(left, right):
    """Index pairs (i, j) with left[i] == right[j]."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    start = np.searchsorted(ordered, left, side="left")
    count = np.searchsorted(ordered, left, side="right") - start
    return np.repeat(np.arange(left.size), count), order[_ranges(start, count)]


def _ranges(start, count):
    """start[0], …, start[0] + count[0] - 1, start[1], … as one array."""
    total = int(count.sum())
    shift = np.repeat(start - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return np.arange(total) + shift
