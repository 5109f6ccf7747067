"""Finding the prox of a sum of pieces: blocks of coordinates that do not touch, one closed form for each."""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from strat.compiler.component import Component
from strat.compiler.pieces import Support, affine_rows, quadratic_diagonal, quadratic_matrix
from strat.compiler.piecewise_rows import NoProx, interval_below
from strat.compiler.separable import separable
from strat.oracles.prox_base import BlockProx


class ProxBuilder:
    """Builds the prox of Σ weight × atom + linear + quadratic over a set, all on strata.

    Parameters
    ----------
    binder : Binder
    weights : dict
        ``{atom node: (K or 1, size) weights}``.
    linear : (K or 1, n) ndarray
    sets : Sets
    layout : Layout
    active : (K,) bool ndarray or None
        Strata that have records.
    """

    def __init__(self, binder, weights, linear, sets, layout, active=None):
        self.binder, self.sets, self.layout, self.active = binder, sets, layout, active
        self.n, self.q, self._rows = binder.n, linear, {}
        self.support = Support(binder)
        self.nodes, diagonal, matrices = {}, np.zeros(self.n), []
        for node, weight in weights.items():
            ridge = quadratic_diagonal(binder, node, weight)
            found = ridge or quadratic_matrix(binder, node, weight)
            if found is None:
                self.nodes[node] = weight
                continue
            self.q = self.q + found[1]
            if ridge:
                diagonal += ridge[0]
            else:
                matrices.append(found[0])
        n = np.arange(self.n + 1)
        self.H = sum(matrices, csr_array((diagonal, n[:-1], n), shape=(self.n, self.n)))
        if sets.transposed is not None:
            self._symmetric_parts()
        self.diagonal = self.H.diagonal()

    def _symmetric_parts(self):
        """What the linear, quadratic and equality parts are on symmetric variables."""
        p = self.sets.transposed
        n = np.arange(self.n)
        half = csr_array((np.full(2 * self.n, 0.5), (np.tile(n, 2), np.concatenate([n, p]))))
        self.q = 0.5 * (self.q + self.q[:, p])
        off = self.H.tocoo()
        if np.any(off.coords[0] != off.coords[1]):
            self.H = csr_array(half @ self.H @ half)
        else:  # a diagonal stays one: an entry and its transpose share theirs
            diagonal, n = self.H.diagonal(), np.arange(self.n)
            self.H = csr_array((0.5 * (diagonal + diagonal[p]), (n, n)), shape=self.H.shape)
        self.sets.equalities = [(csr_array(A @ half), b) for A, b in self.sets.equalities]
        self.sets.inequalities = [(csr_array(A @ half), b) for A, b in self.sets.inequalities]

    def rows(self, form):
        """``affine_rows`` of a form, computed once."""
        if id(form) not in self._rows:
            self._rows[id(form)] = (form, affine_rows(self.binder, form))
        return self._rows[id(form)][1]

    def build(self):
        """The prox in closed form.

        Returns
        -------
        BlockProx

        Raises
        ------
        NoProx
            Where some coordinates have none, with the reason.
        """
        if self.sets.other:
            raise NoProx(f"the constraint {self.sets.other[0]} has no projection in closed form")
        pieces = [(node, self.support.node(node)) for node in self.nodes]
        labels = self._components([matrix for _, matrix in pieces])
        sizes = np.bincount(labels, minlength=self.n)
        single = sizes[labels] == 1
        single[self._bound(single)] = False
        order = np.argsort(labels, kind="stable")
        ends = np.cumsum(sizes)
        parts = [np.flatnonzero(single)] if single.any() else []
        parts += [order[ends[k] - sizes[k] : ends[k]] for k in np.unique(labels[~single])]
        blocks, reasons = [], []
        for columns in parts:
            try:
                blocks += self._blocks(columns, pieces, single[columns[0]])
            except NoProx as error:
                reasons.append(str(error))
        if reasons:
            raise NoProx("; ".join(reasons))
        return BlockProx(blocks, self.sets.transposed)

    def _blocks(self, columns, pieces, single):
        """Blocks of coordinates of one component, or of all that nothing ties together."""
        if np.any(self.sets.low[columns] > self.sets.high[columns]):
            raise NoProx("no point satisfies the constraints on one coordinate")
        if single:
            return separable(self, columns, pieces)
        return [Component(self, columns, pieces).block()]

    def domain(self):
        """Bounds of all coordinates, those from atoms that are not finite everywhere among them."""
        low, high = self.sets.low.copy(), self.sets.high.copy()
        for node in self.binder.inside([*self.nodes, *(node for node, *_ in self.sets.balls)]):
            for i, ends in node.rule.intervals.items():
                rows = self.rows(node.forms[i]) if np.isfinite(ends).any() else None
                if rows is not None:
                    _, column, scale, offset = rows
                    bounds = np.sort([(end - offset) / scale for end in ends], axis=0)
                    np.maximum.at(low, column, bounds[0])
                    np.minimum.at(high, column, bounds[1])
        return low, high

    def _bound(self, single):
        """Turn constraints on one coordinate alone into bounds; return the coordinates where that cannot be done."""
        sets, left = self.sets, []
        for A, b in sets.equalities:
            rows = np.flatnonzero((np.diff(A.indptr) == 1) & single[A.indices[A.indptr[:-1]]])
            column, value = A.indices[A.indptr[rows]], b[rows] / A.data[A.indptr[rows]]
            np.maximum.at(sets.low, column, value)
            np.minimum.at(sets.high, column, value)
        for node, weight, radius, _ in sets.balls:
            entries = np.flatnonzero(weight)
            touched = np.unique(self.support.node(node)[entries].indices)
            if len(touched) != 1 or not single[touched[0]]:
                continue
            interval = interval_below(self.binder, node, entries, weight[entries], radius)
            if interval is None:
                left.append(touched[0])
                continue
            sets.low[touched] = np.maximum(sets.low[touched], interval[0])
            sets.high[touched] = np.minimum(sets.high[touched], interval[1])
        return left

    def _components(self, matrices):
        """Label of the block that each coordinate belongs to."""
        links = [m.astype(bool) for m in matrices]
        links += [csr_array(A.astype(bool)) for A, _ in self.sets.equalities + self.sets.inequalities]
        for node, weight, _, _ in self.sets.balls:
            touched = self.support.node(node)[np.flatnonzero(weight)]
            links.append(csr_array(touched.sum(axis=0).reshape(1, -1).astype(bool)))
        for name in self.sets.cones:
            row = np.zeros((1, self.n), dtype=bool)
            row[0, self.layout.slices[name]] = True
            links.append(csr_array(row))
        h = coo_array(self.H)
        if not links and np.array_equal(*h.coords):
            return np.arange(self.n)
        rows, columns = [np.arange(self.n)], [np.arange(self.n)]
        start = self.n
        for m in links:
            coo = coo_array(m)
            rows.append(coo.coords[0] + start)
            columns.append(coo.coords[1])
            start += m.shape[0]
        rows.append(h.coords[0])
        columns.append(h.coords[1])
        rows, columns = np.concatenate(rows), np.concatenate(columns)
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(start, start))
        return connected_components(graph, directed=False)[1][: self.n]
