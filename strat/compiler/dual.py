"""The dual method for a set of coordinates: functions of affine rows and groups of rows that know their own prox."""

import numpy as np
import scipy.sparse as sp

from strat.compiler import eigenvalue_terms
from strat.compiler.alternatives import alternatives
from strat.compiler.bind import first_kink
from strat.compiler.pieces import affine_matrix
from strat.compiler.rows import StratumRows
from strat.oracles.design import ConstantDesign
from strat.oracles.group_terms import GroupFunctions, GroupTerm
from strat.oracles.largest_of import LargestOf, LargestTerm
from strat.oracles.level_set import LevelSet
from strat.oracles.on_columns import OnColumns
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.prox_orthogonal import OrthogonalRows, orthogonal
from strat.oracles.prox_rows import RowsProx
from strat.oracles.quadratic import Quadratic
from strat.oracles.row_functions import ScalarRows
from strat.oracles.second_order_cone import SecondOrderCone
from strat.oracles.tape import Tape
from strat.rules.exponentials import Exp, LogSumExp
from strat.rules.piecewise import Abs, Minimum, Norm2
from strat.rules.powers import QuadForm, Square
from strat.rules.spectral import LambdaMax

#: Coordinates up to which dense factorisations are made.
DENSE = 3000
#: How far inside their domains functions of rows are kept: rows agree with their proxes up to rounding only.
INSIDE = 3e-11


def dual(component):
    """A RowsProx of a component, where each of its pieces is smooth or knows its own prox; else None."""
    if component.L > DENSE:
        return None
    collected = _Groups(component)
    smooth = []
    for node in component.several + component.single:
        if _is_smooth(component.binder, node) and _is_slow_as_rows(node.rule):
            smooth.append(node)
        elif not collected.add(node):
            if not _is_smooth(component.binder, node):
                return None
            smooth.append(node)
    if not all(collected.ball(*ball[:3]) for ball in component.balls):
        return None
    if not all(collected.level(level.parts, level.linear, level.radius) for level in component.levels):
        return None
    for A, b, _ in component.matrices:
        collected.matrix(A, b)
    rows, (equal, level), (less, bound) = collected.rows, component.equal, component.less
    if len(level):
        rows.within(equal, level, level)
    if len(bound):
        rows.within(less, -np.inf, bound)
    bounded = np.flatnonzero(np.isfinite(component.low) | np.isfinite(component.high))
    if len(bounded):
        rows.bounds(bounded, component.low[bounded], component.high[bounded])
    p = component.transposed
    if p is not None and np.any(p < 0):
        return None
    quadratic = Quadratic(np.zeros(len(component.q)), component.q, component.H.toarray()[None])
    function = OnColumns(quadratic, _tape(component, smooth), component.columns) if smooth else quadratic
    solver = component.builder.solver
    rescue = None if solver is None else solver(component.columns, None)
    if not rows.terms:
        return NewtonProx(function, p, rescue=rescue, columns=component.columns)
    even = component.diagonal and np.ptp(component.Q) == 0
    if even and not smooth and p is None and len(rows.terms) == 1 and orthogonal(rows.terms[0]):
        return OrthogonalRows(component.columns, rows.terms[0], component.q, component.Q[0])
    low, high = (ends[component.columns] for ends in component.builder.domain())
    low = np.maximum(low, collected.least)
    box = (low, high) if np.isfinite(low).any() or np.isfinite(high).any() else None
    squares = [rows.squares(node, component.builder.nodes[node], component.entries[node]) for node in smooth]
    instead = None if any(part is None for part in squares) else (quadratic, squares)
    return RowsProx(component.columns, rows.terms, function, p, box, rescue, instead)


def _is_smooth(binder, node):
    """Whether an atom has two derivatives everywhere."""
    nodes = binder.nodes([node])
    return first_kink(binder, [node]) is None and all(n.rule.curved and not n.rule.restricted for n in nodes)


def _is_slow_as_rows(rule):
    """Whether the prox of an atom's entries takes iterations of its own, inside those of the dual method."""
    return rule.separable and rule.scalar_prox is None


def _is_plain(functions):
    """Whether a prox takes no iterations, and slopes are bounded: others take too many steps beneath a maximum."""
    if isinstance(functions, ScalarRows):
        return (
            functions.rule.scalar_prox is not None and not np.isfinite([functions.low, functions.high]).any()
        )
    rule = getattr(functions, "rule", None)
    return rule is None or rule.prox_fall is not None or rule.epigraph is not None


def _tape(component, nodes):
    """The smooth atoms, with those of their entries that touch the component."""
    binder, builder, weights = component.binder, component.builder, {}
    for node in nodes:
        mine = np.zeros(node.size)
        mine[component.entries[node]] = 1.0
        weight = builder.nodes[node]
        weights[binder.node(node)] = (weight * mine).reshape(len(weight), *node.shape)
    return Tape(binder.nodes(nodes), weights, None, binder.n, builder.active)


class _Groups:
    """Rows and groups of rows of a component's pieces."""

    def __init__(self, component):
        self.component, self.binder = component, component.binder
        self.rows = StratumRows(component.binder, component.columns)
        self.least = np.full(component.L, -np.inf)
        layout = component.builder.layout
        for name, cone in component.builder.sets.cones.items():
            where = np.arange(component.builder.n)[layout.slices[name]]
            if component.mine[where].any():
                places = np.searchsorted(component.columns, where)
                self._local(*eigenvalue_terms.cone(places, layout.shapes[name][0], component.L, cone))

    def add(self, node):
        """Add an atom that is no smooth one; whether that was possible."""
        weight, entries = self.component.builder.nodes[node], self.component.entries[node]
        rows, rule = self.rows, node.rule
        if rows.piecewise(node, weight, entries) or rows.scalar(node, weight, entries):
            return True
        weight = weight[:, entries]
        if rows.sizes(node, weight, entries, self._inside_absolute):
            return True
        if rule.eigenvalue_slopes is not None:
            return self._known(eigenvalue_terms.spectral(self.binder, node, weight))
        found = None if rule.prox_slopes is None else self._arguments(node, entries)
        if found is None:
            return self._largest(node, weight, entries)
        A, b, absolute = found
        functions = GroupFunctions(rule, len(entries), _shape(node, A, entries), weight, absolute=absolute)
        self._term(A, b, functions)
        return True

    def matrix(self, A, b):
        """Add that a matrix A z + b is positive semidefinite."""
        self._term(*eigenvalue_terms.semidefinite(A, b))

    def ball(self, node, weight, radius):
        """Add {Σ weight × entries of an atom <= radius}; whether that was possible."""
        entries, rule, all_weights = np.flatnonzero(weight), node.rule, weight
        weight = weight[entries]
        if isinstance(rule, QuadForm):
            return self._ellipsoid(node, weight, radius)
        if isinstance(rule, LambdaMax) and weight[0] > 0:
            return self._known(eigenvalue_terms.largest_at_most(self.binder, node, radius / weight[0]))
        known = isinstance(rule, (Abs, Square)) or len(entries) == 1
        if rule.project_slopes is None or not known or radius < 0 or np.any(weight < 0):
            return self.level([(node, all_weights)], None, radius)
        found = self._arguments(node, entries)
        if found is None or found[2]:
            return False
        A, b, _ = found
        if rule.separable:  # weights of the entries go into them
            scale = np.sqrt(weight) if isinstance(rule, Square) else weight
            A, b, shape = sp.csr_array(sp.diags_array(scale) @ A), b * scale, (len(entries),)
        else:
            shape, radius = _shape(node, A, entries), radius / weight[0]
        self._term(A, b, GroupFunctions(rule, 1, shape, radius=radius))
        return True

    def level(self, parts, linear, radius):
        """Add {Σ weight × entries of atoms + linear · z <= radius}; whether that was possible."""
        simpler = self._simpler(parts, linear, radius)
        if simpler is not None:
            self._term(*simpler)
            return True
        found = self._functions(parts)
        if found is None:
            return False
        rows, offsets, functions = found
        sloped = linear is not None and bool(np.any(linear.data))
        if sloped:
            rows.append(linear)
            offsets.append(np.array([-radius]))
        A, b = sp.csr_array(sp.vstack(rows)), np.concatenate(offsets)
        self._term(A, b, LevelSet(functions, sloped, 0.0 if sloped else radius))
        return True

    def _functions(self, parts):
        """Rows A, offsets b and [(rows, functions)] of Σ weight × entries of atoms; None where one is not known."""
        rows, offsets, functions = [], [], []
        for node, weight in parts:
            entries = np.flatnonzero(weight)
            weight = weight[None, entries]
            known = self.rows.piecewise_functions(node, weight, entries)
            known = known or self.rows.scalar_functions(node, weight, entries)
            if known is not None:
                A, b, function = known
            elif node.rule.prox_slopes is not None and (found := self._arguments(node, entries)) is not None:
                A, b, absolute = found
                function = GroupFunctions(
                    node.rule, len(entries), _shape(node, A, entries), weight, absolute=absolute
                )
            else:
                return None
            rows.append(A)
            offsets.append(b)
            functions.append((A.shape[0], function))
        return rows, offsets, functions

    def _largest(self, node, weight, entries):
        """The larger of convex functions, entry by entry; whether that was possible."""
        sign = -1.0 if isinstance(node.rule, Minimum) else 1.0
        choices = None if np.any(sign * weight < 0) else alternatives(self.binder, node, entries)
        if choices is None:
            return False
        terms = [self._branches(rows, sign) for rows in choices]
        if any(term is None for term in terms):
            return False
        for (A, b, branches, least), own in zip(terms, weight.T, strict=True):
            self._term(A, b, LargestOf(branches, least, sign * own[:, None]))
        return True

    def _branches(self, choices, sign):
        """(A, b, branches, least) of LargestOf one of several sums of atoms and linear functions; None if unknown."""
        rows, offsets, branches, least = [], [], [], -np.inf
        for parts, linear, offset in choices:
            sloped = bool(np.any(linear.data))
            if not parts and not sloped:
                least = max(least, sign * offset)
                continue
            found = self._functions([(node, sign * weights) for node, weights in parts])
            if found is None:
                return None
            A, b, functions = found
            if not all(_is_plain(f) for _, f in functions):
                return None
            if sloped:
                A, b = [*A, sign * linear], [*b, np.array([sign * offset])]
            rows += A
            offsets += b
            size = sum(m for m, _ in functions) + sloped
            branches.append((size, LevelSet(functions, sloped, 0.0 if sloped else -sign * offset)))
        return sp.csr_array(sp.vstack(rows)), np.concatenate(offsets), branches, least

    def _simpler(self, parts, linear, radius):
        """(A, b, functions) of a set that one norm or one log-sum-exp bounds, with a simpler projection; else None."""
        (node, weights), rule = parts[0], parts[0][0].rule
        entries, linear = (
            np.flatnonzero(weights),
            None if linear is None or not np.any(linear.data) else linear,
        )
        if len(parts) > 1 or len(entries) != 1 or weights[entries[0]] <= 0:
            return None
        known = isinstance(rule, LogSumExp) or (isinstance(rule, Norm2) and linear is not None)
        found = self._arguments(node, entries) if known else None
        if found is None or found[2]:
            return None
        (A, b, _), weight = found, weights[entries[0]]
        if isinstance(rule, Norm2):
            b = np.concatenate([weight * b, [-radius]])
            return sp.csr_array(sp.vstack([weight * A, linear])), b, SecondOrderCone()
        # weight log Σ exp(u) + l <= r says the same as Σ exp(u + (l − r)/weight) <= 1.
        m = len(b)
        if linear is not None:
            A = A + sp.csr_array(np.ones((m, 1))) @ (linear / weight)
        free = np.full((1, m), np.inf)
        exponentials = ScalarRows(Exp(), (), np.ones((1, m)), -free, free)
        return sp.csr_array(A), b - radius / weight, LevelSet([(m, exponentials)], False, 1.0)

    def _ellipsoid(self, node, weight, radius):
        """zᵀPz <= radius as a ball of ‖P^½ z‖."""
        affine, matrix = affine_matrix(self.binder, node.forms[0]), node.forms[1]
        if affine is None or not matrix.is_data or weight[0] < 0 or radius < 0:
            return False
        P = np.asarray(self.binder.evaluator.form(matrix)).reshape(matrix.shape) * weight[0]
        values, vectors = np.linalg.eigh(0.5 * (P + P.T))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T[values > 1e-14 * np.abs(values).max()]
        A, b = affine
        A, b = sp.csr_array(root @ A.toarray()), root @ b
        self._term(A, b, GroupFunctions(Square(), 1, (len(root),), radius=radius))
        return True

    def _arguments(self, node, entries):
        """(A, b, of the absolute value) of some entries' arguments, entry by entry; None where they are not affine."""
        parts, offsets, order, start, absolute = [], [], [], 0, False
        positive = [i for i, (low, _) in node.rule.intervals if low == 0.0]
        for i, form in enumerate(node.forms):
            affine = affine_matrix(self.binder, form)
            if affine is None and len(node.forms) == 1 and node.rule.invariance == "ordered":
                affine, absolute = self._inside_absolute(form), True
            if affine is None:
                return None
            parts.append(affine[0])
            offsets.append(affine[1] - (self._inside(*affine) if i in positive else 0.0))
            if node.rule.separable:
                order.append(start + entries[:, None])
            else:
                order.append(start + np.arange(form.size).reshape(node.size, -1)[entries])
            start += form.size
        order = np.concatenate(order, axis=1).reshape(-1)
        return sp.csr_array(sp.vstack(parts))[order], np.concatenate(offsets)[order], absolute

    def _inside(self, A, b):
        """What rows A z + b >= 0 are moved by to stay in the domain; where they are coordinates, these end there."""
        if np.any(np.diff(A.indptr) != 1) or np.any(A.data <= 0):
            return INSIDE
        place = np.searchsorted(self.component.columns, A.indices)
        self.least[place] = np.maximum(self.least[place], (INSIDE - b) / A.data)
        return 0.0

    def _inside_absolute(self, form):
        """(A, b) of u for a form scale · |u|, scale >= 0."""
        found = self.component.inside_absolute(form)
        if found is None:
            return None
        node, pick, factor = found
        affine = affine_matrix(self.binder, node.forms[0])
        if affine is None:
            return None
        return sp.csr_array(sp.diags_array(factor) @ affine[0][pick]), affine[1][pick] * factor

    def _known(self, found):
        """Add (A, b, functions) where they were found; whether they were."""
        if found is not None:
            self._term(*found)
        return found is not None

    def _term(self, A, b, functions):
        self._local(sp.csr_array(A)[:, self.component.columns], b, functions)

    def _local(self, A, b, functions):
        coo = sp.coo_array(A)
        coo.sum_duplicates()
        design = ConstantDesign(coo.coords[0], coo.coords[1], coo.data, A.shape[0], self.component.L)
        matrix, kind = design.dense_matrix(), GroupTerm
        sizes = [A.shape[0] // functions.groups] * functions.groups
        if isinstance(functions, LargestOf):
            sizes, kind = [m for m, _ in functions.branches], LargestTerm
        parts = np.split(matrix, np.cumsum(sizes)[:-1])
        norms = np.repeat([np.linalg.norm(part, 2) for part in parts], sizes)[None, :]
        self.rows.terms.append(kind(design, np.reshape(b, (1, -1)), functions, norms))


def _shape(node, A, entries):
    """Shape of one group's argument."""
    whole = node.shape == () and len(node.forms) == 1
    return node.forms[0].shape if whole else (A.shape[0] // len(entries),)
