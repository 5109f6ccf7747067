"""One set of coordinates that pieces tie together, and the closed form that its prox has."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.chains import chain
from strat.compiler.piecewise_rows import NoProx
from strat.compiler.separable import soft_parts
from strat.oracles.prox_groups import ConeBlock, GroupBlock
from strat.oracles.prox_sets import HyperplaneBlock, SubspaceBlock
from strat.rules.piecewise import Abs
from strat.rules.text import text

#: Coordinates of one component up to which a dense system is factorised.
DENSE = 3000


class Component:
    """The coordinates ``columns`` with all that touches them.

    Parameters
    ----------
    builder : ProxBuilder
    columns : int ndarray
    pieces : list of (node, (size, n) matrix of what each entry depends on)
    """

    def __init__(self, builder, columns, pieces):
        self.builder, self.columns, self.L = builder, columns, len(columns)
        self.binder, sets = builder.binder, builder.sets
        self.mine = np.zeros(builder.n, dtype=bool)
        self.mine[columns] = True
        touching = [(node, m) for node, m in pieces if self.mine[m.indices].any()]
        self.entries = {node: np.flatnonzero(np.diff(m[:, columns].tocsr().indptr)) for node, m in touching}
        single = [
            node
            for node, _ in touching
            if isinstance(node.rule, Abs) and builder.rows(node.forms[0]) is not None
        ]
        self.single, self.several = single, [node for node, _ in touching if node not in single]
        self.equal, self.less = self._rows(sets.equalities), self._rows(sets.inequalities)
        self.balls = [ball for ball in sets.balls if self._touches(ball)]
        self.low, self.high = sets.low[columns], sets.high[columns]
        self.bounded = bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())
        self.q, self.Q = builder.q[:, columns], builder.diagonal[columns]
        block = builder.H[columns][:, columns]
        off = block - sp.diags_array(block.diagonal())
        self.diagonal = not np.any(off.data)
        self.H = block

    def _rows(self, pairs):
        A, b = [], []
        for matrix, values in pairs:
            part = matrix[:, self.columns]
            rows = np.flatnonzero(np.diff(part.indptr))
            A.append(part[rows])
            b.append(values[rows])
        A = sp.csr_array(sp.vstack(A)) if A else sp.csr_array((0, self.L))
        return A, np.concatenate(b) if b else np.zeros(0)

    def _touches(self, ball):
        node, weight, _, _ = ball
        return self.mine[self.builder.support.node(node)[np.flatnonzero(weight)].indices].any()

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
        """The block of these coordinates.

        Raises
        ------
        NoProx
            With the reason.
        """
        cones = any(self.mine[self.builder.layout.slices[name]].any() for name in self.builder.sets.cones)
        plain = () if cones else (Component._subspace, Component._hyperplane, Component._group, chain)
        for way in (Component._cone, *plain):
            found = way(self)
            if found is not None:
                return found
        raise NoProx(self._reason())

    def _cone(self):
        """Functions of eigenvalues and semidefinite cones of one symmetric variable."""
        builder, layout = self.builder, self.builder.layout
        spectral = [node for node in self.several if node.rule.has("prox_eigenvalues")]
        names = [
            n
            for n, s in layout.slices.items()
            if self.mine[s].any() and (n in builder.sets.cones or spectral)
        ]
        if not names:
            return None
        where, cone = layout.slices[names[0]], builder.sets.cones.get(names[0])
        own = np.arange(where.start, where.stop)
        p = builder.sets.transposed
        simple = (
            len(names) == 1
            and np.array_equal(self.columns, own)
            and len(spectral) == len(self.several) <= 1
            and not (self.single or self.bounded or self.balls or len(self.equal[1]) or len(self.less[1]))
            and self.diagonal
            and np.ptp(self.Q) == 0
            and p is not None
            and not (spectral and cone == "NSD")
        )
        scale, offset, weight = 1.0, 0.0, None
        if simple and spectral:
            rows = builder.rows(spectral[0].forms[0])
            simple = rows is not None and np.array_equal(rows[1], own) and not np.ptp(rows[2])
            if simple:
                scale, offset, weight = float(rows[2][0]), rows[3], builder.nodes[spectral[0]]
                simple = np.array_equal(offset, offset[p[own] - own[0]])
                simple = simple and (cone is None or (scale == 1.0 and not np.any(offset)))
        if not simple:
            return None
        rule = spectral[0].rule if spectral else None
        d = layout.shapes[names[0]][0]
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
        a, equal = A[0], len(self.equal[1]) == 1
        ends = np.stack([a * self.low, a * self.high])
        smallest, largest = ends.min(axis=0).sum(), ends.max(axis=0).sum()
        if smallest > b[0] or (equal and largest < b[0]) or np.any(self.low > self.high):
            raise NoProx("no point satisfies the bounds and the affine constraint")
        one = [part[None, None, :] for part in (a, self.low, self.high)]
        return HyperplaneBlock(
            self.columns[None, :], self.q[:, None, :], self.Q[None, None, :], *one, b[None, :], equal
        )

    def _group(self):
        """One function of groups of coordinates, or one set {function <= radius}."""
        if (
            len(self.several) + len(self.balls) != 1
            or not self.diagonal
            or len(self.equal[1])
            or len(self.less[1])
        ):
            return None
        node, weight, radius = self.several[0] if self.several else self.balls[0][0], None, None
        if self.balls:
            found = self._ball(*self.balls[0][:3])
            if found is None:
                return None
            groups, scale, offset, absolute, shape, radius = found
        else:
            if node.rule.separable or not node.rule.has("prox"):
                return None
            found = self._selected(node, self.entries[node])
            if found is None:
                return None
            groups, scale, offset, absolute, shape = found
            weight = self.builder.nodes[node][:, self.entries[node]]
        where = np.searchsorted(self.columns, groups)
        if groups.size != self.L or not np.array_equal(np.sort(groups.reshape(-1)), self.columns):
            return None
        Q = self.Q[where]
        if np.any(np.abs(scale) != np.abs(scale[:, :1])) or np.any(np.ptp(Q, axis=1)):
            return None
        if absolute and node.rule.invariance != "ordered":
            return None
        way = "absolute" if absolute else node.rule.invariance
        simple = self._simple(way, where, scale, offset)
        if simple is None or not self._symmetric(where, scale, offset, simple):
            return None
        return GroupBlock(
            node.rule,
            shape,
            groups,
            scale,
            offset,
            self.q[:, where],
            Q[None],
            weight,
            radius,
            *simple,
            absolute=absolute,
        )

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
        """Rows of u for a form scale · |u|, scale >= 0."""
        found = self.inside_absolute(form)
        rows = None if found is None else self.builder.rows(found[0].forms[0])
        if rows is None or len(rows[0]) < found[0].size:
            return None
        _, pick, factor = found
        return form.row, rows[1][pick], rows[2][pick] * factor, rows[3][pick] * factor

    def inside_absolute(self, form):
        """(node of |u|, entries of it, scale) of a form scale · |u|, scale >= 0; None for others."""
        variable, atom, rest = self.binder.kinds(form)
        inner = self.binder.atoms_of(form)
        alone = len(inner) == 1 and not variable.any() and not rest.any()
        if not alone or not np.array_equal(form.row, np.arange(form.size)):
            return None
        node = inner[0][0]
        factor = np.broadcast_to(self.binder.evaluator.terms(form).reshape(-1), form.size)
        if not isinstance(node.rule, Abs) or np.any(factor < 0):
            return None
        return node, form.column - node.start, factor

    def _ball(self, node, weight, radius):
        """(groups, scale, offset, of the absolute value, shape, radius (1, 1)) of {Σ weight × entries <= radius}."""
        entries = np.flatnonzero(weight)
        if not node.rule.has("project") or np.ptp(weight[entries]) or weight[entries[0]] < 0 or radius < 0:
            return None
        radius = np.full((1, 1), radius / weight[entries[0]])
        if not node.rule.separable:
            found = self._selected(node, entries) if len(entries) == 1 else None
            return None if found is None else (*found, radius)
        rows = self.builder.rows(node.forms[0])
        if rows is None or len(rows[0]) < node.size:
            return None
        groups, scale, offset = (part[entries][None, :] for part in rows[1:])
        return groups, scale, offset, False, (len(entries),), radius

    def _simple(self, way, where, scale, offset):
        """(l1, low, high) by groups where they combine with the function in a closed form, else None."""
        l1 = low = high = None
        if self.single:
            soft = soft_parts(self.builder, self.single)
            if soft is None or np.any(soft[1][self.columns]):
                return None
            l1 = soft[0][:, self.columns][:, where]
        if self.bounded:
            low, high = self.low[where][None], self.high[where][None]
        if way == "absolute":
            touched = np.zeros(where.shape, dtype=bool) if l1 is None else l1[0] > 0
            if low is not None:
                touched = touched | np.isfinite(low[0]) | np.isfinite(high[0])
                if not (np.isin(low, (-np.inf, 0.0)).all() and np.isin(high, (np.inf, 0.0)).all()):
                    return None
            return None if np.any(offset[touched]) else (l1, low, high)
        parts = [part for part in (l1, low, high) if part is not None]
        if not parts:
            return l1, low, high
        uniform = all(np.array_equal(part, np.broadcast_to(part[..., :1], part.shape)) for part in parts)
        same = np.all(scale == scale[:, :1]) and np.all(offset == offset[:, :1])
        return (l1, low, high) if way == "ordered" and uniform and same and not self.balls else None

    def _symmetric(self, where, scale, offset, simple):
        """Whether symmetric variables stay symmetric."""
        p = self.transposed
        if p is None:
            return True
        if np.any(p < 0) or len(where) > 1:
            return False

        def back(part):
            flat = np.empty((*part.shape[:-2], self.L))
            flat[..., where[0]] = part[..., 0, :]
            return flat

        parts = [back(part) for part in (scale, offset, *simple) if part is not None]
        return all(np.array_equal(part[..., p], part) for part in parts)

    def _reason(self):
        layout = self.builder.layout
        names = [n for n, s in layout.slices.items() if self.mine[s].any()]
        rules = [f"{node.rule.name} in {text(node.expression)}" for node in self.several + self.single]
        rules += [what for _, _, _, what in self.balls]
        if len(self.equal[1]) or len(self.less[1]):
            rules.append("affine constraints")
        if self.bounded:
            rules.append("bounds")
        rules += [f"the cone of {n}" for n in names if n in self.builder.sets.cones]
        if not self.diagonal:
            rules.append("a quadratic that couples coordinates")
        return f"pieces share {', '.join(names)} and have no joint closed form: {'; '.join(rules)}"
