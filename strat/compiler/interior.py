"""Smooth convex constraints of a set of coordinates for the interior-point method: what it takes and what it does not."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.bind import first_kink
from strat.compiler.pieces import affine_matrix
from strat.compiler.rows import piecewise_entries
from strat.oracles.design import ConstantDesign
from strat.oracles.interior_point import Restricted
from strat.oracles.on_columns import OnColumns
from strat.oracles.prox_interior import InteriorProx
from strat.oracles.quadratic import Quadratic
from strat.oracles.tape import Tape
from strat.rules.piecewise import Norm2
from strat.rules.powers import QuadForm, QuadOverLin

#: Coordinates up to which dense factorisations of many iterations are made.
DENSE = 300


def interior(component, other):
    """An InteriorProx where levels are smooth, and all else is smooth or piecewise linear; None for others.

    Parameters
    ----------
    component : Component
    other : callable
        Gives another prox, for what the method does not solve.
    """
    binder, builder = component.binder, component.builder
    cones = any(component.mine[builder.layout.slices[name]].any() for name in builder.sets.cones)
    if component.L > DENSE or cones or component.matrices or component.transposed is not None:
        return None
    rows, smooth = _Rows(component), []
    for node in component.several + component.single:
        if not rows.kinks(node):
            smooth.append(node)
    levels = [([(node, weight)], None, radius) for node, weight, radius, _ in component.balls]
    levels += [(level.parts, level.linear, level.radius) for level in component.levels]
    roots = smooth + [node for parts, _, _ in levels for node, _ in parts]
    atoms = binder.inside(roots)
    # Norms are smooth but at 0, where sums with them seldom are at their level.
    several = [node for parts, _, _ in levels if len(parts) > 1 for node, _ in parts]
    norms = [n for n in several if isinstance(n.rule, Norm2) and not binder.atoms_of(n.forms[0])]
    kink = first_kink(binder, [node for node in roots if node not in norms])
    if kink is not None or not all(node.rule.curved for node in atoms):
        return None
    # Squares over a linear function are as steep as can be where that is 0, and may be 0 themselves there.
    if any(isinstance(node.rule, QuadOverLin) for node in atoms) or not all(map(rows.domain, atoms)):
        return None
    rows.within(component)
    fixed = rows.low == rows.high
    A = np.concatenate([component.equal[0].toarray(), np.eye(component.L)[fixed]])
    equal, e = _orthonormal(A, np.append(component.equal[1], rows.low[fixed]))
    if equal is None:
        return None
    f = _function(
        component, {node: builder.nodes[node] for node in smooth}, component.q + rows.slope, objective=True
    )
    own = [
        _function(component, dict(_weights(parts)), _linear(component, linear), -radius)
        for parts, linear, radius in levels
    ]
    problem = Restricted(f, own, *rows.made(), (equal, e), rows.box)
    return InteriorProx(component.columns, problem, other)


def _weights(parts):
    """``{node: (1, size) weights}`` of a level's parts."""
    total = {}
    for node, weight in parts:
        total[node] = total.get(node, 0.0) + weight[None]
    return total


def _linear(component, linear):
    return np.zeros((1, component.L)) if linear is None else linear.toarray()[:, component.columns]


def _function(component, weights, linear, constant=0.0, objective=False):
    """constant + linear · z + zᵀHz/2 + Σ weight × entries of smooth atoms that touch the component."""
    binder, L = component.binder, component.L
    H = np.zeros((L, L)) if objective is False else component.H.toarray()
    for node in [node for node in weights if isinstance(node.rule, QuadForm)]:
        more, slope, value = _form(component, node, weights.pop(node))
        H, linear, constant = H + more, linear + slope, constant + value
    quadratic = Quadratic(np.full(1, constant), linear, H[None])
    if not weights:
        return quadratic
    bound = {}
    for node, weight in weights.items():
        if objective:  # of the objective, whose atoms may touch other components
            mine = np.zeros(node.size)
            mine[component.entries[node]] = 1.0
            weight = weight * mine
        bound[binder.node(node)] = weight.reshape(len(weight), *node.shape)
    tape = Tape(binder.nodes(list(weights)), bound, None, binder.n, component.builder.active)
    support = component.builder.support
    apart = all(np.diff(support.node(node).indptr).max(initial=0) <= 1 for node in weights)
    return OnColumns(quadratic, tape, component.columns, apart)


def _form(component, node, weight):
    """(matrix, slope, constant) of weight × a quadratic form of affine rows, zᵀ matrix z/2 + slope · z + constant."""
    A, b = affine_matrix(component.binder, node.forms[0])
    A = A[:, component.columns].toarray()
    P = np.asarray(component.binder.evaluator.form(node.forms[1])).reshape(node.forms[1].shape)
    P = float(weight.item()) * (P + P.T)
    return A.T @ P @ A, b @ P @ A, 0.5 * float(b @ P @ b)


def _orthonormal(A, b):
    """The same equalities with orthonormal rows; (None, None) where they contradict each other."""
    if not len(b):
        return A, b
    U, s, V = np.linalg.svd(A, full_matrices=False)
    some = s > 1e-12 * s.max(initial=0.0)
    E, e = V[some], (U.T @ b)[some] / s[some]
    if np.abs(A @ (E.T @ e) - b).max() > 1e-9 * (1.0 + np.abs(b).max()):
        return None, None
    return E, e


class _Rows:
    """Collects kinks, affine constraints, bounds and domains as rows slope (a · z − knot)₊ over the component."""

    def __init__(self, component):
        self.component, self.binder = component, component.binder
        self.slope, self.parts = np.zeros((1, component.L)), []
        self.low, self.high = component.low.copy(), component.high.copy()
        self.place = np.full(component.builder.n, -1)
        self.place[component.columns] = np.arange(component.L)

    @property
    def box(self):
        """Bounds of the coordinates."""
        return self.low, self.high

    def _add(self, A, knots, slopes):
        self.parts.append((A, np.asarray(knots, dtype=float), np.atleast_2d(slopes)))

    def kinks(self, node):
        """Add an atom's entries, which are piecewise linear; whether they are."""
        entries, builder = self.component.entries[node], self.component.builder
        found = piecewise_entries(self.binder, node, entries)
        if found is None:
            return False
        for (columns, values, function), weight in zip(found, builder.nodes[node][:, entries].T, strict=True):
            a = np.zeros((1, self.component.L))
            np.add.at(a[0], self.place[columns], values)
            sign = np.sign(weight[weight != 0]).max(initial=0.0)
            self.slope = self.slope + (weight * function.slopes[0])[:, None] * a
            for knot, jump in zip(function.knots, np.diff(function.slopes), strict=True):
                if sign and jump:
                    self._add(
                        a, [knot], np.maximum(weight * jump, 1e-12 * np.abs(weight * jump).max())[:, None]
                    )
        return True

    def domain(self, node):
        """Add the intervals that an atom's arguments must lie in; whether these are all that its domain is."""
        rule = node.rule
        if rule.restricted and not rule.intervals:
            return False
        for i, (low, high) in rule.intervals:
            if node.forms[i].is_data or not (np.isfinite(low) or np.isfinite(high)):
                continue
            if (low, high) == (0.0, np.inf) and self.component.inside_absolute(node.forms[i]) is not None:
                continue
            affine = affine_matrix(self.binder, node.forms[i])
            if affine is None:
                return False
            A, b = affine[0][:, self.component.columns].toarray(), affine[1]
            some = np.any(A, axis=1)
            if np.isfinite(low):
                self._below(-A[some], b[some] - low)
            if np.isfinite(high):
                self._below(A[some], high - b[some])
        return True

    def _below(self, A, knots):
        """Add A z <= knots; rows of one coordinate as bounds."""
        single = np.count_nonzero(A, axis=1) == 1
        for a, knot in zip(A[single], knots[single], strict=True):
            (i,) = np.flatnonzero(a)
            if a[i] > 0:
                self.high[i] = min(self.high[i], knot / a[i])
            else:
                self.low[i] = max(self.low[i], knot / a[i])
        if not single.all():
            self._add(A[~single], knots[~single], np.full((1, int((~single).sum())), np.inf))

    def within(self, component):
        """Add the affine inequalities, and the bounds."""
        A, b = component.less
        if len(b):
            self._below(A.toarray(), b)
        eye = np.eye(component.L)
        for sign, ends in ((-1.0, self.low), (1.0, self.high)):
            some = np.isfinite(ends) & (self.low < self.high)
            if some.any():
                self._add(sign * eye[some], sign * ends[some], np.full((1, int(some.sum())), np.inf))

    def made(self):
        """The design, the knots and the slopes."""
        if not self.parts:
            none = np.zeros(0, dtype=int)
            return ConstantDesign(none, none, np.zeros(0), 0, self.component.L), np.zeros(0), np.zeros((1, 0))
        A, knots, slopes = zip(*self.parts, strict=True)
        matrix = sp.coo_array(np.concatenate(A))
        K = max(len(part) for part in slopes)
        slopes = np.concatenate([np.broadcast_to(part, (K, part.shape[1])) for part in slopes], axis=1)
        return ConstantDesign(*matrix.coords, matrix.data, *matrix.shape), np.concatenate(knots), slopes
