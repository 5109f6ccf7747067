"""Finding the prox of a sum of pieces: blocks of coordinates that do not touch, one closed form for each."""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from strat.compiler.joint import Component
from strat.compiler.pieces import Support, affine_rows, quadratic_matrix
from strat.compiler.rows import NoProx
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
        self.H = csr_array((self.n, self.n))
        self.nodes = {}
        for node, weight in weights.items():
            found = quadratic_matrix(binder, node, weight)
            if found is None:
                self.nodes[node] = weight
            else:
                self.H = self.H + found[0]
                self.q = self.q + found[1]
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
        """A BlockProx.

        Raises
        ------
        NoProx
            With the reason.
        """
        if self.sets.other:
            raise NoProx(f"the constraint {self.sets.other[0]} has no projection in closed form")
        pieces = [(node, self.support.node(node)) for node in self.nodes]
        labels = self._components([matrix for _, matrix in pieces])
        sizes = np.bincount(labels, minlength=self.n)
        single = sizes[labels] == 1
        blocks = separable(self, np.flatnonzero(single), pieces) if single.any() else []
        order = np.argsort(labels, kind="stable")
        ends = np.cumsum(sizes)
        for label in np.flatnonzero(sizes > 1):
            columns = order[ends[label] - sizes[label] : ends[label]]
            blocks.append(Component(self, columns, pieces).block())
        return BlockProx(blocks, self.sets.transposed)

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
        rows, columns = [np.arange(self.n)], [np.arange(self.n)]
        start = self.n
        for m in links:
            coo = coo_array(m)
            rows.append(coo.coords[0] + start)
            columns.append(coo.coords[1])
            start += m.shape[0]
        h = coo_array(self.H)
        rows.append(h.coords[0])
        columns.append(h.coords[1])
        rows, columns = np.concatenate(rows), np.concatenate(columns)
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(start, start))
        return connected_components(graph, directed=False)[1][: self.n]


__all__ = ["NoProx", "ProxBuilder"]
