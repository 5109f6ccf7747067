"""One set of coordinates that pieces tie together, and the closed form that its prox has."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.chains import chain
from strat.compiler.pieces import NoProx
from strat.compiler.separable import soft_parts
from strat.oracles.prox_groups import ConeBlock, GroupBlock
from strat.oracles.prox_sets import HyperplaneBlock, SubspaceBlock
from strat.rules.piecewise import Abs
from strat.rules.text import text

#: Coordinates of one component up to which a dense system is factorised.
DENSE = 3000


class Component:
    """The coordinates ``columns`` with all that touches them."""

    def __init__(self, builder, columns):
        self.builder, self.columns, self.L = builder, columns, len(columns)
        self.binder, sets = builder.binder, builder.sets
        self.mine = np.isin(np.arange(builder.n), columns)
        touching = {node: m for node, m in builder.pieces if self.mine[m.indices].any()}
        self.entries = {
            node: np.flatnonzero(np.diff(m[:, columns].tocsr().indptr)) for node, m in touching.items()
        }
        self.single = [
            node
            for node in touching
            if isinstance(node.rule, Abs) and builder.rows(node.forms[0]) is not None
        ]
        self.several = [node for node in touching if node not in self.single]
        self.equal, self.less = self._rows(sets.equalities), self._rows(sets.inequalities)
        self.balls = [(*ball[:3], np.flatnonzero(ball[1])) for ball in sets.balls if self._touches(ball)]
        self.low, self.high = sets.low[columns], sets.high[columns]
        self.bounded = bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())
        self.q, self.Q, self.H = (
            builder.q[:, columns],
            builder.diagonal[columns],
            builder.H[columns][:, columns],
        )
        self.diagonal = np.array_equal(*self.H.nonzero())
        self.names = [n for n, s in builder.layout.slices.items() if self.mine[s].any()]
        self.cones = [n for n in self.names if n in sets.cones]

    def _rows(self, pairs):
        A, b = [sp.csr_array((0, self.L))], [np.zeros(0)]
        for matrix, values in pairs:
            part = matrix[:, self.columns]
            rows = np.flatnonzero(np.diff(part.indptr))
            A.append(part[rows])
            b.append(values[rows])
        return sp.csr_array(sp.vstack(A)), np.concatenate(b)

    def _touches(self, ball):
        return self.mine[self.builder.support.node(ball[0])[np.flatnonzero(ball[1])].indices].any()

    @property
    def transposed(self):
        """Positions of the transposes of symmetric variables; None where there are none, -1 where outside."""
        p = self.builder.sets.transposed
        if p is None or np.array_equal(p[self.columns], self.columns):
            return None
        place = np.full(self.builder.n, -1)
        place[self.columns] = np.arange(self.L)
        return place[p[self.columns]]

    def block(self):
        """The block of these coordinates; raises NoProx with the reason where there is none."""
        plain = () if self.cones else (Component._subspace, Component._hyperplane, Component._group, chain)
        for way in (Component._cone, *plain):
            found = way(self)
            if found is not None:
                return found
        raise NoProx(self._reason())

    def _cone(self):
        """Functions of eigenvalues and semidefinite cones of one symmetric variable."""
        spectral = [node for node in self.several if node.rule.has("prox_eigenvalues")]
        names, p = self.names if spectral else self.cones, self.builder.sets.transposed
        others = self.single or self.bounded or self.balls or len(self.equal[1]) or len(self.less[1])
        if len(names) != 1 or others or p is None or not self.diagonal or np.ptp(self.Q) > 0:
            return None
        where, cone = self.builder.layout.slices[names[0]], self.builder.sets.cones.get(names[0])
        own = np.arange(where.start, where.stop)
        if not len(spectral) == len(self.several) <= 1 or not np.array_equal(self.columns, own):
            return None
        rule, weight, scale, offset = None, None, 1.0, 0.0
        if spectral:
            rows = self.builder.rows(spectral[0].forms[0])
            if cone == "NSD" or rows is None or not np.array_equal(rows[1], own) or np.ptp(rows[2]) > 0:
                return None
            scale, offset = float(rows[2][0]), rows[3]
            moved = scale != 1.0 or np.any(offset)
            if not np.array_equal(offset, offset[p[own] - own[0]]) or (cone is not None and moved):
                return None
            rule, weight = spectral[0].rule, self.builder.nodes[spectral[0]]
        d = self.builder.layout.shapes[names[0]][0]
        return ConeBlock(own, d, self.q, self.Q[None, :], cone, rule, weight, scale, offset)

    def _subspace(self):
        """A quadratic on an affine subspace."""
        if self.several or self.single or self.bounded or len(self.less[1]) or self.balls or self.L > DENSE:
            return None
        A, b = self.equal[0].toarray(), self.equal[1]
        if len(b):
            z = np.linalg.lstsq(A, b, rcond=None)[0]
            if np.abs(A @ z - b).max() > 1e-9 * (1.0 + np.abs(b).max()):
                raise NoProx("the affine equalities contradict each other")
        return SubspaceBlock(self.columns[None, :], self.q[:, None, :], self.H.toarray(), A, b[None, :])

    def _hyperplane(self):
        """Bounds and one affine equality or inequality."""
        A, b = (
            sp.vstack([self.equal[0], self.less[0]]).toarray(),
            np.concatenate([self.equal[1], self.less[1]]),
        )
        if self.several or self.single or self.balls or not self.diagonal or len(b) != 1 or not np.all(A):
            return None
        equal, ends = (
            len(self.equal[1]) == 1,
            np.sort([A[0] * self.low, A[0] * self.high], axis=0).sum(axis=1),
        )
        if ends[0] > b[0] or (equal and ends[1] < b[0]) or np.any(self.low > self.high):
            raise NoProx("no point satisfies the bounds and the affine constraint")
        parts = [part[None, None, :] for part in (self.Q, A[0], self.low, self.high)]
        return HyperplaneBlock(self.columns[None, :], self.q[:, None, :], *parts, b[None, :], equal)

    def _group(self):
        """One function of groups of coordinates, or one set {function <= radius}."""
        rows = len(self.equal[1]) or len(self.less[1])
        if len(self.several) + len(self.balls) != 1 or not self.diagonal or rows:
            return None
        weight = radius = found = None
        if self.balls:
            node, weights, radius, entries = self.balls[0]
            if (
                not node.rule.has("project")
                or np.ptp(weights[entries])
                or min(weights[entries[0]], radius) < 0
            ):
                return None
            radius = np.full((1, 1), radius / weights[entries[0]])
            if node.rule.separable:
                found = self._entries_of(node, entries)
            elif len(entries) == 1:
                found = self._selected(node, entries)
        else:
            node = self.several[0]
            if not node.rule.separable and node.rule.has("prox"):
                found = self._selected(node, self.entries[node])
                weight = self.builder.nodes[node][:, self.entries[node]]
        if found is None or found[0].size != self.L:
            return None
        groups, scale, offset, absolute, shape = found
        where = np.searchsorted(self.columns, groups)
        Q = self.Q[where]
        if (
            not np.array_equal(np.sort(groups.reshape(-1)), self.columns)
            or np.any(np.abs(scale) != np.abs(scale[:, :1]))
            or np.any(np.ptp(Q, axis=1))
            or (absolute and node.rule.invariance != "ordered")
        ):
            return None
        simple = self.simple(where)
        way = "absolute" if absolute else node.rule.invariance
        if simple is None or not self._combines(way, scale, offset, *simple):
            return None
        if not self._symmetric(where, scale, offset, *simple):
            return None
        parts = (groups, scale, offset, self.q[:, where], Q[None], weight, radius, *simple)
        return GroupBlock(node.rule, shape, *parts, absolute=absolute)

    def _entries_of(self, node, entries):
        """A separable function's entries as one group."""
        rows = self.builder.rows(node.forms[0])
        if rows is None or len(rows[0]) < node.size:
            return None
        groups, scale, offset = (part[entries][None, :] for part in rows[1:])
        return groups, scale, offset, False, (len(entries),)

    def _selected(self, node, entries):
        """(groups, scale, offset, of the absolute value, shape) of entries whose arguments are single coordinates."""
        parts, absolute = [], False
        for form in node.forms:
            rows = self.builder.rows(form)
            if rows is None and len(node.forms) == 1:
                rows, absolute = self._inside_absolute(form), True
            if rows is None or len(rows[0]) < form.size:
                return None
            parts.append([part.reshape(node.size, -1)[entries] for part in rows[1:]])
        groups, scale, offset = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        whole = node.shape == () and len(node.forms) == 1  # functions of a matrix
        return groups, scale, offset, absolute, node.forms[0].shape if whole else groups.shape[1:]

    def _inside_absolute(self, form):
        """Rows of u for a form scale · |u|, scale >= 0; None for others."""
        inner = self.binder.atoms_of(form)
        alone = len(inner) == 1 and self.binder.kinds(form)[1].all()
        if not alone or not np.array_equal(form.row, np.arange(form.size)):
            return None
        node, factor = inner[0][0], np.broadcast_to(self.binder.terms(form).reshape(-1), form.size)
        if not isinstance(node.rule, Abs) or np.any(factor < 0):
            return None
        rows, pick = self.builder.rows(node.forms[0]), form.column - node.start
        if rows is None or len(rows[0]) < node.size:
            return None
        return form.row, rows[1][pick], rows[2][pick] * factor, rows[3][pick] * factor

    def simple(self, where):
        """Weights of absolute values and bounds (l1, low, high) of coordinates; None where kinks are not at 0."""
        l1 = low = high = None
        if self.single:
            soft = soft_parts(self.builder, self.single)
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
        even = all(uniform(part) for part in (*parts, scale, offset))
        return not parts or (way == "ordered" and even and not self.balls)

    def _symmetric(self, where, *parts):
        """Whether symmetric variables stay symmetric."""
        p = self.transposed
        if p is None:
            return True
        if np.any(p < 0) or len(where) > 1:
            return False
        back = np.argsort(where[0])
        parts = [part[..., 0, back] for part in parts if part is not None]
        return all(np.array_equal(part[..., p], part) for part in parts)

    def _reason(self):
        rules = [f"{node.rule.name} in {text(node.expression)}" for node in self.several + self.single]
        rules += [ball[3] for ball in self.builder.sets.balls if self._touches(ball)]
        if len(self.equal[1]) or len(self.less[1]):
            rules.append("affine constraints")
        if self.bounded:
            rules.append("bounds")
        rules += [f"the cone of {n}" for n in self.cones]
        if not self.diagonal:
            rules.append("a quadratic that couples coordinates")
        return f"pieces share {', '.join(self.names)} and have no joint closed form: {'; '.join(rules)}"


def uniform(part):
    """Whether an array is the same along its last axis."""
    return np.array_equal(part, np.broadcast_to(part[..., :1], part.shape))
