"""A form bound to records: its value from theta and from the atoms inside, and the way back."""

import numpy as np
import scipy.sparse as sp

from strat.oracles.design import GatheredDesign


class Inner:
    """The part of a form that is linear in one atom node's output."""

    def __init__(self, node, component, row, values, m):
        self.node, self.component, self.values = node, component, values
        self.spread = sp.csr_array((np.ones(len(row)), (np.arange(len(row)), row)), shape=(len(row), m))
        self.gather = sp.csr_array(self.spread.T)

    def push(self, out):
        """(R, node size) to (R, m)."""
        return (out[:, self.component] * self.values) @ self.spread

    def pull(self, g):
        """(R, m) to (R, node size)."""
        terms = (g @ self.gather) * self.values
        back = np.zeros((len(terms), self.node.size))
        np.add.at(back, (slice(None), self.component), terms)
        return back


class BoundForm:
    """u = A theta + Σ (inner atoms) + offset, rows on strata or on records.

    Parameters
    ----------
    shape : tuple
        Shape of the form.
    design : object or None
        The part linear in the variables.
    inner : list of Inner
        The parts linear in atoms' outputs.
    offset : (R, m) or (1, m) ndarray
        The rest.
    on_records : bool
        Whether rows are records; otherwise they are strata.
    segments : Segments or None
        The grouping of records.
    """

    def __init__(self, shape, design, inner, offset, on_records, segments):
        if design is not None and on_records and not design.on_records:
            design = GatheredDesign(design, segments)
        self.shape, self.design, self.inner = tuple(shape), design, inner
        self.offset = None if not np.any(offset) else offset
        self.on_records, self.segments = on_records, segments
        self.m = int(np.prod(self.shape, dtype=int))

    def _level(self, out, node):
        """An inner atom's output on this form's rows."""
        flat = out.reshape(len(out), node.size)
        return flat[self.segments.index] if self.on_records and not node.on_records else flat

    def _linear(self, theta, outs):
        u = None if self.design is None else self.design.matvec(theta)
        for part in self.inner:
            v = part.push(self._level(outs[part.node], part.node))
            u = v if u is None else u + v
        return u

    def value(self, theta, outs):
        """Value (R, *shape), R possibly 1 where nothing varies."""
        u = self._linear(theta, outs)
        if u is None:
            rows = self.segments.N if self.on_records else len(theta)
            offset = np.zeros((1, self.m)) if self.offset is None else self.offset
            u = np.broadcast_to(offset, (rows, self.m))
        elif self.offset is not None:
            u = u + self.offset
        return u.reshape(len(u), *self.shape)

    def tangent(self, v, tangents):
        """Derivative of the value along v and the tangents of the inner atoms; None if there is none."""
        present = {p.node for p in self.inner if p.node in tangents}
        if self.design is None and not present:
            return None
        u = None if self.design is None else self.design.matvec(v)
        for part in self.inner:
            if part.node in tangents:
                w = part.push(self._level(tangents[part.node], part.node))
                u = w if u is None else u + w
        return u.reshape(len(u), *self.shape)

    def pull(self, g, gradient, adjoints):
        """Add what a gradient of the value means for theta (in place) and for the inner atoms."""
        g = g.reshape(len(g), self.m)
        if self.design is not None:
            gradient += self.design.rmatvec(g)
        for part in self.inner:
            back = part.pull(g)
            if self.on_records and not part.node.on_records:
                back = self.segments.sum(back)
            back = back.reshape(len(back), *part.node.shape)
            known = adjoints.get(part.node)
            adjoints[part.node] = back if known is None else known + back
