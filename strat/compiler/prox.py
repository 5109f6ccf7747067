"""Finding the prox of a sum of pieces: blocks of coordinates that do not touch, one closed form for each."""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from strat.compiler.pieces import Support, affine_rows, quadratic_matrix
from strat.expressions.text import text
from strat.oracles import prox_blocks
from strat.oracles.tape import Tape
from strat.rules.matrices import LogDetRule
from strat.rules.piecewise import Abs, Norm2


class NoProx(Exception):
    """No closed form was found; the text says why."""


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
    quadratic : (K, n, n) ndarray or None
        A further Hessian (sufficient statistics of a loss).
    """

    def __init__(self, binder, weights, linear, sets, layout, active=None):
        self.binder, self.sets, self.layout, self.active = binder, sets, layout, active
        self.n, self.q = binder.n, linear
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
        blocks, single = [], sizes[labels] == 1
        if single.any():
            blocks.append(self._separable(np.flatnonzero(single), pieces))
        handled = set()
        for label in np.unique(labels[~single]):
            if label not in handled:
                blocks.extend(self._joint(label, labels, pieces, handled))
        return prox_blocks.BlockProx(blocks, self.sets.transposed)

    def _components(self, matrices):
        """Label of the block that each coordinate belongs to."""
        links = [m.astype(bool) for m in matrices]
        links += [csr_array(A != 0) for A, _ in self.sets.equalities]
        for name in self._matrix_variables():
            where = self.layout.slices[name]
            row = np.zeros((1, self.n), dtype=bool)
            row[0, where] = True
            links.append(csr_array(row))
        rows, columns, start = [np.arange(self.n)], [np.arange(self.n)], 2 * self.n
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

    def _matrix_variables(self):
        """Names of variables whose entries go together: semidefinite ones and arguments of log det."""
        names = set(self.sets.cones)
        for node in self.nodes:
            if isinstance(node.rule, LogDetRule):
                touched = np.unique(self.support.node(node).indices)
                names.update(n for n, s in self.layout.slices.items() if np.any((touched >= s.start) & (touched < s.stop)))
        return sorted(names)

    def _part(self, columns):
        """Linear and diagonal quadratic parts on columns."""
        return self.q[:, columns], self.H.diagonal()[columns][None, :]

    def _averaged(self, values, columns):
        """For symmetric variables: the mean of an entry's value and its transpose's."""
        if self.sets.transposed is None:
            return values[:, columns]
        return 0.5 * (values[:, columns] + values[:, self.sets.transposed[columns]])

    def _separable(self, columns, pieces):
        touching = [(node, m) for node, m in pieces if np.isin(m.indices, columns).any()]
        q, Q = self._averaged(self.q, columns), self._averaged(self.H.diagonal()[None, :], columns)
        low, high = self.sets.low[columns], self.sets.high[columns]
        soft = self._soft(touching)
        if soft is not None:
            weight, centre = soft
            weight = self._averaged(weight, columns)
            return prox_blocks.SoftBlock(columns, q, Q, weight, centre[columns], low, high)
        if self.sets.transposed is not None and not np.array_equal(self.sets.transposed[columns], columns):
            raise NoProx("a function other than |z| of the entries of a symmetric variable")
        low, high = self._domain(touching, low, high, columns)
        weights = {self.binder.node(node): self._masked(node, m, columns) for node, m in touching}
        tape = Tape(self.binder.nodes([node for node, _ in touching]), weights, None, self.n, self.active)
        return prox_blocks.NewtonBlock(columns, self.n, tape, q, Q, low[None, :], high[None, :])

    def _masked(self, node, matrix, columns):
        """Weights of a node's entries that touch these columns only."""
        mine = np.zeros(node.size, dtype=bool)
        coo = coo_array(matrix)
        mine[coo.coords[0][np.isin(coo.coords[1], columns)]] = True
        weight = self.nodes[node]
        return (weight * mine).reshape(len(weight), *node.shape)

    def _soft(self, touching):
        """(weights (K, n), centres (n,)) where every piece is one absolute value a coordinate, else None."""
        K = max((len(self.nodes[node]) for node, _ in touching), default=1)
        weight, centre = np.zeros((K, self.n)), np.full(self.n, np.nan)
        for node, _ in touching:
            rows = affine_rows(self.binder, node.forms[0]) if isinstance(node.rule, Abs) else None
            if rows is None:
                return None
            row, column, scale, offset = rows
            at = -offset / scale
            for c, value in zip(column, at, strict=True) if len(np.unique(column)) < len(column) else ():
                if not (np.isnan(centre[c]) or centre[c] == value):
                    return None
                centre[c] = value
            if np.any(~np.isnan(centre[column]) & (centre[column] != at)):
                return None
            centre[column] = at
            np.add.at(weight, (slice(None), column), self.nodes[node][:, row] * np.abs(scale))
        return weight, np.nan_to_num(centre) + 0.0

    def _domain(self, touching, low, high, columns):
        """Bounds on columns, the domains of the pieces included."""
        place = np.full(self.n, -1)
        place[columns] = np.arange(len(columns))
        low, high = low.copy(), high.copy()
        stack = [node for node, _ in touching]
        while stack:
            node = stack.pop()
            stack.extend(inner for f in node.forms for inner, _ in self.binder.atoms_of(f))
            interval = getattr(node.rule, "interval", (-np.inf, np.inf))
            form = node.forms[-1] if node.rule.name in ("KlDiv", "RelEntr") else node.forms[0]
            interval = (0.0, np.inf) if node.rule.name in ("KlDiv", "RelEntr") else interval
            rows = affine_rows(self.binder, form)
            if rows is None or interval == (-np.inf, np.inf):
                continue
            _, column, scale, offset = rows
            ends = (np.array(interval)[:, None] - offset) / scale
            at = place[column]
            keep = at >= 0
            np.maximum.at(low, at[keep], ends.min(axis=0)[keep])
            np.minimum.at(high, at[keep], ends.max(axis=0)[keep])
        return low, high

    def _joint(self, label, labels, pieces, handled):
        """Blocks for one set of coordinates that pieces tie together."""
        columns = np.flatnonzero(labels == label)
        touching = [(node, m) for node, m in pieces if np.isin(m.indices, columns).any()]
        handled.add(label)
        matrix = [n for n in self._matrix_variables() if self.layout.slices[n].start in columns]
        if matrix:
            return [self._spectral(matrix[0], columns, touching)]
        tied = [A for A, _ in self.sets.equalities if np.any(A[:, columns])]
        off = self.H[columns][:, columns]
        diagonal = np.allclose(off.toarray(), np.diag(off.diagonal())) if len(columns) < 4000 else False
        bounded = np.isfinite(self.sets.low[columns]).any() or np.isfinite(self.sets.high[columns]).any()
        if not touching and not bounded and not tied:
            return [prox_blocks.QuadraticBlock(columns, self.q[:, columns], off.toarray())]
        if not touching and not bounded and not off.count_nonzero():
            A = np.concatenate([A[:, columns] for A in tied])
            b = np.concatenate([b for A, b in self.sets.equalities if np.any(A[:, columns])])
            return [prox_blocks.AffineBlock(columns, self.q[:, columns], A, b)]
        if touching and not tied and diagonal and all(isinstance(n.rule, (Norm2, Abs)) for n, _ in touching):
            group = self._group(columns, touching)
            if group is not None:
                return [group]
        raise NoProx(self._reason(columns, touching, tied, bounded, diagonal))

    def _group(self, columns, touching):
        norms = [(node, m) for node, m in touching if isinstance(node.rule, Norm2)]
        if len(norms) != 1:
            return None
        node = norms[0][0]
        length = node.forms[0].size // node.size
        rows = affine_rows(self.binder, node.forms[0])
        if rows is None or len(rows[0]) < node.forms[0].size:
            return None
        mine = np.isin(rows[1], columns).reshape(node.size, length)
        if not np.array_equal(mine.all(axis=1), mine.any(axis=1)) or mine.sum() != len(columns):
            return None
        group = mine.all(axis=1)
        column, scale, offset = (part.reshape(node.size, length)[group] for part in rows[1:])
        q, Q = self._part(column.reshape(-1))
        if not (np.all(np.abs(scale) == np.abs(scale[:, :1])) and np.all(np.ptp(Q.reshape(len(column), length), axis=1) == 0)):
            return None
        weight = self.nodes[node][:, group] * np.abs(scale[:, 0])
        shift = (offset / scale).reshape(-1)
        l1 = None
        if len(touching) > 1:
            soft = self._soft([(n, m) for n, m in touching if n is not node])
            if soft is None or np.any(soft[1] != 0) or np.any(shift):
                return None
            l1 = soft[0][:, column.reshape(-1)]
            if np.any(np.ptp(l1.reshape(len(l1), len(column), length), axis=2) > 0):
                return None
        low, high = self.sets.low[columns], self.sets.high[columns]
        nonneg = bool(np.all(low == 0) and np.all(high == np.inf))
        if (not nonneg and (np.isfinite(low).any() or np.isfinite(high).any())) or (nonneg and (np.any(shift) or l1 is not None)):
            return None
        return prox_blocks.GroupBlock(column, q, Q, weight, shift, l1, nonneg)

    def _spectral(self, name, columns, touching):
        where = self.layout.slices[name]
        own = np.arange(where.start, where.stop)
        cone = self.sets.cones.get(name)
        d = self.layout.shapes[name][0]
        Q = self.H.diagonal()[own]
        off = self.H[own][:, own] - csr_array(np.diag(Q))
        simple = (
            np.array_equal(columns, own)
            and all(isinstance(node.rule, LogDetRule) for node, _ in touching)
            and np.ptp(Q) == 0
            and not off.count_nonzero()
            and not any(np.any(A[:, own]) for A, _ in self.sets.equalities)
            and not np.isfinite(self.sets.low[own]).any()
            and not np.isfinite(self.sets.high[own]).any()
        )
        weight = None
        for node, _ in touching if simple else ():
            rows = affine_rows(self.binder, node.forms[0])
            if rows is None or not np.array_equal(rows[1], own) or np.any(rows[3]) or np.any(rows[2] != rows[2][0]):
                simple = False
                break
            weight = -self.nodes[node] + (0.0 if weight is None else weight)
        if not simple or self.sets.transposed is None or (weight is not None and cone == "NSD"):
            rules = ", ".join(sorted({node.rule.name for node, _ in touching})) or "constraints"
            raise NoProx(f"the semidefinite or log-det variable {name} is shared with other pieces ({rules})")
        return prox_blocks.SpectralBlock(own, d, self.q[:, own], Q[None, :], weight, cone)

    def _reason(self, columns, touching, tied, bounded, diagonal):
        names = [n for n, s in self.layout.slices.items() if np.any((columns >= s.start) & (columns < s.stop))]
        rules = [f"{node.rule.name} in {text(node.expression)}" for node, _ in touching]
        if tied:
            rules.append("an affine equality")
        if bounded:
            rules.append("bounds")
        if not diagonal:
            rules.append("a quadratic that couples coordinates")
        return f"pieces share {', '.join(names)} and have no joint closed form: {'; '.join(rules)}"
