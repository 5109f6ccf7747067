"""One set of coordinates that pieces tie together, and the closed form of its prox."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.pieces import NoProx
from strat.oracles.prox_groups import ChainBlock, ConeBlock, GroupBlock, HyperplaneBlock, SubspaceBlock
from strat.rules import text
from strat.rules.piecewise import Abs

DENSE = 3000  # coordinates of one component up to which a dense system is factorised
SHOWN = 4  # most functions that are named in the reason why there is no closed form


class Component:
    """The coordinates ``columns`` with all functions and constraints that touch them."""

    def __init__(self, builder, columns):
        self.builder, self.columns, self.L, sets = builder, columns, len(columns), builder.sets
        mine = np.isin(np.arange(builder.n), columns)
        touching = {node: m for node, m in builder.pieces if mine[m.indices].any()}
        self.entries = {n: np.flatnonzero(np.diff(m[:, columns].tocsr().indptr)) for n, m in touching.items()}
        absolute = [node for node in touching if isinstance(node.rule, Abs)]
        self.single = [node for node in absolute if builder.rows(node.forms[0]) is not None]
        self.several = [node for node in touching if node not in self.single]
        self.equal, self.less = self._rows(sets.equalities), self._rows(sets.inequalities)
        balls = [(*ball, np.flatnonzero(ball[1])) for ball in sets.balls]
        self.balls = [b for b in balls if mine[builder.support(b[0])[b[-1]].indices].any()]
        self.low, self.high = sets.low[columns], sets.high[columns]
        self.bounded = bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())
        self.q, self.Q = builder.q[:, columns], builder.diagonal[columns]
        self.H = builder.H[columns][:, columns]
        self.diagonal = np.array_equal(*self.H.nonzero())
        self.names = [n for n, s in builder.layout.slices.items() if mine[s].any()]
        self.cones = [n for n in self.names if n in sets.cones]
        p = sets.transposed
        self.symmetric = p is not None and not np.array_equal(p[columns], columns)

    def _rows(self, pairs):
        none = sp.csr_array((0, self.builder.n)), np.zeros(0)
        matrices, values = zip(none, *pairs, strict=True)
        A = sp.csr_array(sp.vstack(matrices))[:, self.columns]
        rows = np.flatnonzero(np.diff(A.indptr))
        return A[rows], np.concatenate(values)[rows]

    def block(self):
        """The block of these coordinates; raises NoProx with the reason where there is none."""
        ways = [self._cone]
        if not self.cones:
            ways += [self._subspace, self._hyperplane]
        if not (self.cones or self.symmetric or len(self.equal[1]) or not self.diagonal):
            ways += [self._group, self._chain]
        block = next(filter(None, (way() for way in ways)), None)
        if block is not None:
            return block
        nodes = self.several + self.single
        rules = [f"{node.rule.name} in {text(node.expression)}" for node in nodes[:SHOWN]]
        rules += [f"{len(nodes) - SHOWN} more functions"] if len(nodes) > SHOWN else []
        rules += [ball[3] for ball in self.balls]
        rules += ["affine constraints"] if len(self.equal[1]) or len(self.less[1]) else []
        rules += ["bounds"] if self.bounded else []
        rules += [f"the cone of {n}" for n in self.cones]
        rules += [] if self.diagonal else ["a quadratic that couples coordinates"]
        shared, rules = ", ".join(self.names), "; ".join(rules)
        raise NoProx(f"pieces share {shared} and have no joint closed form: {rules}")

    def _cone(self):
        """A function of the eigenvalues of one symmetric variable, its semidefinite cone, or both."""
        spectral = [node for node in self.several if hasattr(node.rule, "prox_eigenvalues")]
        names, builder = self.names if spectral else self.cones, self.builder
        others = self.single or self.bounded or self.balls or len(self.equal[1]) or len(self.less[1])
        if others or len(names) != 1 or len(spectral) != len(self.several) or len(spectral) > 1:
            return None
        where, cone = builder.layout.slices[names[0]], builder.sets.cones.get(names[0])
        whole = np.array_equal(self.columns, np.arange(where.start, where.stop))
        if builder.sets.transposed is None or not (whole and self.diagonal) or np.ptp(self.Q) > 0:
            return None
        rule = weight = None
        if spectral:
            found = builder.affine(spectral[0].forms[0])
            itself = found is not None and (found[0] != sp.eye_array(builder.n).tocsr()[where]).nnz == 0
            if cone == "NSD" or not itself or found[1].any():
                return None
            rule, weight = spectral[0].rule, builder.nodes[spectral[0]]
        d = builder.layout.shapes[names[0]][0]
        return ConeBlock(self.columns, d, self.q, self.Q[None, :], cone, rule, weight)

    def _subspace(self):
        """A quadratic on an affine subspace, to which coordinates with equal bounds belong as well."""
        fixed, free = self.low == self.high, np.isinf(self.low) & np.isinf(self.high)
        others = self.several or self.single or len(self.less[1]) or self.balls
        if others or self.L > DENSE or not np.all(fixed | free):
            return None
        A = np.concatenate([self.equal[0].toarray(), np.eye(self.L)[fixed]])
        b = np.concatenate([self.equal[1], self.low[fixed]])
        if len(b):
            z = np.linalg.lstsq(A, b, rcond=None)[0]
            if np.abs(A @ z - b).max() > 1e-9 * (1.0 + np.abs(b).max()):
                raise NoProx("the affine equalities contradict each other")
        return SubspaceBlock(self.columns[None, :], self.q[:, None, :], self.H.toarray(), A, b[None, :])

    def _hyperplane(self):
        """Bounds and one affine equality or inequality."""
        A, b = (sp.vstack((self.equal[0], self.less[0])).toarray(), np.append(self.equal[1], self.less[1]))
        if self.several or self.single or self.balls or not self.diagonal or len(b) != 1 or not np.all(A):
            return None
        equal = len(self.equal[1]) == 1
        ends = np.sort([A[0] * self.low, A[0] * self.high], axis=0).sum(axis=1)
        if ends[0] > b[0] or (equal and ends[1] < b[0]):
            raise NoProx("no point satisfies the bounds and the affine constraint")
        parts = [part[None, None, :] for part in (self.Q, A[0], self.low, self.high)]
        return HyperplaneBlock(self.columns[None, :], self.q[:, None, :], *parts, b[None, :], equal)

    def _group(self):
        """One function of groups of coordinates, or one set {function <= radius}."""
        if len(self.several) + len(self.balls) != 1 or len(self.less[1]):
            return None
        weight = radius = found = None
        if self.balls:
            node, weights, radius, _, entries = self.balls[0]
            size = weights[entries]
            if not hasattr(node.rule, "project") or np.ptp(size) or min(size[0], radius) < 0:
                return None
            radius = np.full((1, 1), radius / size[0])
            if node.rule.separable or len(entries) == 1:
                found = self._selected(node, entries)
        elif not self.several[0].rule.separable and hasattr(self.several[0].rule, "prox"):
            node = self.several[0]
            found = self._selected(node, self.entries[node])
            weight = self.builder.nodes[node][:, self.entries[node]]
        if found is None or found[0].size != self.L:
            return None
        groups, scale, offset, absolute, shape = found
        where = np.searchsorted(self.columns, groups)
        Q = self.Q[where]
        once = np.array_equal(np.sort(groups.reshape(-1)), self.columns)
        if not (once and even(np.abs(scale), Q)) or (absolute and node.rule.invariance != "ordered"):
            return None
        simple, way = self._simple(where), "absolute" if absolute else node.rule.invariance
        if simple is None or not self._combines(way, scale, offset, *simple):
            return None
        parts = (groups, scale, offset, self.q[:, where], Q[None], weight, radius, *simple)
        return GroupBlock(node.rule, shape, *parts, absolute=absolute)

    def _selected(self, node, entries):
        """(groups, scale, offset, whether of absolute values, shape) of entries of single coordinates; None of others."""
        (form, *more), absolute = node.forms, False
        rows = self.builder.rows(form)
        if rows is None:
            # Perhaps the form is |u|, and the rows are those of u.
            inner, own = self.builder.binder.symbols.single(form) or (None, None)
            plain = inner is not None and isinstance(inner.rule, Abs) and np.all(form.scale == 1.0)
            rows, absolute = self.builder.rows(inner.forms[0]) if plain else None, True
            known = rows is not None and len(rows[0]) == inner.size
            rows = (form.row, *(part[own] for part in rows[1:])) if known else None
        if more or rows is None or len(rows[0]) < form.size:
            return None
        parts = [part.reshape(node.size, -1)[entries] for part in rows[1:]]
        if node.rule.separable:  # the entries are one group
            parts = [part.reshape(1, -1) for part in parts]
        whole = node.shape == () and not node.rule.separable  # functions of a matrix
        return *parts, absolute, form.shape if whole else parts[0].shape[1:]

    def _simple(self, where):
        """Weights of absolute values and bounds (l1, low, high) of coordinates; None where kinks are not at 0."""
        l1 = low = high = None
        if self.single:
            soft = self.builder.soft_parts(self.single)
            if soft is None or np.any(soft[1][self.columns]):
                return None
            l1 = soft[0][:, self.columns][:, where]
        if self.bounded:
            low, high = self.low[where][None], self.high[where][None]
        return l1, low, high

    def _combines(self, way, scale, offset, l1, low, high):
        """Whether absolute values and bounds combine with the function in a closed form."""
        if way == "absolute":
            touched = np.zeros(scale.shape, dtype=bool) if l1 is None else l1[0] > 0
            if low is not None:
                touched = touched | np.isfinite(low[0]) | np.isfinite(high[0])
                if not (np.isin(low, (-np.inf, 0.0)).all() and np.isin(high, (np.inf, 0.0)).all()):
                    return False
            return not np.any(offset[touched])
        parts = [part for part in (l1, low, high) if part is not None]
        return not parts or (way == "ordered" and even(*parts, scale, offset) and not self.balls)

    def _chain(self):
        """Absolute values and bounds of the differences of neighbours."""
        limits, weights = len(self.less[1]), [np.zeros((1, len(self.less[1])))]
        matrices, offsets = [self.less[0]], [-self.less[1]]
        for node in self.several:
            found = self.builder.affine(node.forms[0]) if isinstance(node.rule, Abs) else None
            if found is None:
                return None
            some = self.entries[node]
            matrices.append(found[0][some][:, self.columns])
            offsets.append(found[1][some])
            weights.append(self.builder.nodes[node][:, some])
        A, offset = sp.csr_array(sp.vstack(matrices)), np.concatenate(offsets)
        A.sort_indices()
        if self.balls or np.any(np.diff(A.indptr) != 2):
            return None
        ends, values = A.indices.reshape(-1, 2), A.data.reshape(-1, 2)
        edge, slope, gap = ends[:, 0], values[:, 1], np.zeros(self.L - 1)
        gap[edge] = -offset / slope
        odd = (ends[:, 1] != edge + 1) | (values.sum(axis=1) != 0) | (gap[edge] != -offset / slope)
        simple = self._simple(np.arange(self.L)[None, :])
        # Absolute values and bounds combine with differences only if they are the same along the whole path.
        parts = None if simple is None else [part for part in simple if part is not None]
        if np.any(odd) or parts is None or not even(*parts) or (parts and np.any(gap)):
            return None
        if self.single and np.ptp(self.Q):
            return None
        # Slopes where the second end minus the first exceeds the gap, and where it falls short: ∞ for an inequality.
        K, limit = max(map(len, weights)), np.where(np.arange(len(edge)) < limits, np.inf, 0.0)
        sizes = np.concatenate([np.broadcast_to(w, (K, w.shape[1])) for w in weights], axis=1) * np.abs(slope)
        up, down = np.zeros((2, K, 1, self.L - 1))
        np.add.at(up[:, 0], (slice(None), edge), sizes + np.where(slope > 0, limit, 0.0))
        np.add.at(down[:, 0], (slice(None), edge), sizes + np.where(slope < 0, limit, 0.0))
        shift = np.concatenate([[0.0], np.cumsum(gap)])[None, :]
        q, Q = self.q[:, None, :], self.Q[None, None, :]
        return ChainBlock(self.columns[None, :], q, Q, shift, up, down, *simple)


def even(*parts):
    """Whether each array is constant along its last axis."""
    return all(np.array_equal(part, np.broadcast_to(part[..., :1], part.shape)) for part in parts)
