"""From symbols to arrays: the forms and atoms of one declaration bound to records, and the oracles of their sums."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.piecewise import first_kink
from strat.compiler.walk import DATA, AtomNode, Leaf, Product
from strat.oracles.base import Quadratic, SumOracle, host, is_foreign
from strat.oracles.design import ConstantDesign, RowDesign, SharedDesign
from strat.oracles.tape import BoundForm, BoundNode, Inner, Tape
from strat.rules import text
from strat.rules.powers import Square

#: Share of a column's sum of squares that is about its mean: if below SPREAD, sums lose digits; if below ROUNDING, it is noise.
SPREAD, ROUNDING = 1e-4, 1e-14


class Binder:
    """Values of expressions without variables, and oracles of the others, on all records at once.

    `leaves` has the array (N, size) of each data Parameter, dense or sparse, and `coordinates` the slice of each variable in
    a stratum's vector of length n, both by CVXPY id. `segments` groups the records, and is None without records.
    ``on_illegal(node, mask)``, with a third argument i for argument i of an atom, is called for data outside its domain.
    """

    blocks = None  # set for records on a device

    def __init__(self, symbols, leaves, coordinates, n, segments, on_illegal=None):
        self.symbols, self.leaves, self.segments, self.n = symbols, leaves, segments, n
        self.on_illegal, self._coordinates = on_illegal, coordinates
        self._values, self._nodes, self._atoms = {}, {}, np.zeros(0, dtype=bool)

    def flat(self, columns):
        """Coordinates in theta of columns that are variables."""
        owners, place = np.unique(self.symbols.owner(columns), return_inverse=True)
        owners = [self.symbols.nodes[o] for o in owners.tolist()]
        shift = [self._coordinates[node.leaf.id].start - node.start for node in owners]
        return columns + np.array(shift, dtype=np.intp)[place]

    def kinds(self, form):
        """Masks of the form's terms: in a variable, in an atom, in neither."""
        nodes = self.symbols.nodes
        if len(self._atoms) != len(nodes):  # walkers may have added some
            self._atoms = np.array([isinstance(node, AtomNode) for node in nodes], dtype=bool)
        known, is_atom = form.column > 0, np.zeros(len(form.column), dtype=bool)
        is_atom[known] = self._atoms[self.symbols.owner(form.column[known])]
        return known & ~is_atom, is_atom, ~known

    def atoms_of(self, form):
        """``[(node, terms)]``: the atom nodes of a form and the indices of their terms."""
        (terms,) = np.nonzero(self.kinds(form)[1])
        owners = self.symbols.owner(form.column[terms])
        return [(self.symbols.nodes[o], terms[owners == o]) for o in np.unique(owners)]

    def inside(self, roots):
        """The roots and all atoms inside them."""
        found, stack = {}, list(roots)
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = True
                stack.extend(inner for form in node.forms for inner, _ in self.atoms_of(form))
        return list(found)

    def has_data(self, form):
        """Whether the form's value differs between records of a stratum."""
        return bool((self.symbols.depends(form.column) | self.symbols.depends(form.coefficient)) & DATA)

    # Values of expressions without variables

    def _value(self, node):
        """Value of a node: (R, size), R the number of records or 1."""
        if isinstance(node, Leaf):
            return self.leaves[node.leaf.id]
        if not isinstance(node, AtomNode):
            return self.values(node.form)
        args = [self.values(f).reshape(-1, *f.shape) for f in node.forms]
        rows = max(len(a) for a in args)
        with np.errstate(all="ignore"):
            legal = node.rule.domain(args)
            out, _ = node.rule.forward(args)
        finite = np.isfinite(out).reshape(len(out), -1).all(axis=1)
        legal = finite if legal is None else finite & legal
        if not legal.all() and self.on_illegal is not None:
            self.on_illegal(node, ~legal)
        return np.broadcast_to(out, (rows, *node.shape)).reshape(rows, -1)

    def columns(self, ids, scale=None):
        """Values of coefficients, times `scale` where it is given: (R, len(ids)), sparse where the data are."""
        ids, factor = np.asarray(ids), 1.0 if scale is None else scale
        if not ids.any():
            return np.ones((1, len(ids))) * factor
        if len(ids) > 1 and np.all(ids == ids[0]):
            return self.columns(ids[:1]) * factor
        owners = self.symbols.owner(ids)
        places = {o: np.flatnonzero(owners == o) for o in dict.fromkeys(owners.tolist())}
        values = [
            self._pick(self.symbols.nodes[o], ids[where]) if o >= 0 else np.ones((1, len(where)))
            for o, where in places.items()
        ]
        out, sparse, several = values[0], any(map(sp.issparse, values)), len(values) > 1
        if several:
            rows, order = max(v.shape[0] for v in values), np.concatenate([*places.values()])
            blocks = [v if sp.issparse(v) else np.broadcast_to(v, (rows, v.shape[1])) for v in values]
            out = sp.hstack(blocks, format="csc") if sparse else np.concatenate(blocks, axis=1)
            out = out if np.all(np.diff(order) > 0) else out[:, np.argsort(order)]
        if sparse or scale is None:
            return out if scale is None else sp.csr_array(out @ sp.diags_array(scale))
        own = several or (isinstance(self.symbols.nodes[owners[0]], Product) and out.shape[1] == len(ids))
        return np.multiply(out, scale, out=out if own else None)

    def _pick(self, node, ids):
        positions = ids - node.start
        if isinstance(node, Product):  # never cached: there may be many more products than data
            left, right = self.columns(node.left[positions]), self.columns(node.right[positions])
            if sp.issparse(left) or sp.issparse(right):
                return sp.csc_array(left.multiply(right) if sp.issparse(left) else right.multiply(left))
            return left * right
        if node.start not in self._values:
            value = self._value(node)
            self._values[node.start] = sp.csc_array(value) if sp.issparse(value) else value
        value = self._values[node.start]
        whole = len(ids) == node.size and np.array_equal(positions, np.arange(node.size))
        return value if whole else value[:, positions]

    def terms(self, form):
        """``scale * coefficient`` of each term: (R, terms)."""
        if not np.all(form.scale == 1.0):
            return self.columns(form.coefficient, form.scale)
        values, width = self.columns(form.coefficient), len(form.scale)
        return values if values.shape[1] == width else np.broadcast_to(values, (values.shape[0], width))

    def values(self, form, sparse=False):
        """Value of a form without variables: (R, size); with `sparse` it is sparse where the data are."""
        out = host(self.terms(form))
        count = len(form.row)
        if count != form.size or not np.array_equal(form.row, np.arange(form.size)):
            out = out @ sp.csr_array((np.ones(count), (np.arange(count), form.row)), (count, form.size))
        return out if sparse else dense(out)

    # Binding of expressions with variables

    def node(self, node):
        if node not in self._nodes:
            for i, (low, high) in node.rule.intervals.items():
                value = self.values(node.forms[i]) if self.on_illegal and node.forms[i].is_data else None
                if value is not None and np.any(bad := (value < low) | (value > high)):
                    self.on_illegal(node, bad, i)
            bound = [self.form(f, node.has_data) for f in node.forms]
            self._nodes[node] = BoundNode(node.rule, bound, node.shape, node.has_data)
        return self._nodes[node]

    def nodes(self, roots):
        """Bound nodes that the roots need, arguments first."""
        return [self.node(node) for node in sorted(self.inside(roots), key=lambda node: node.start)]

    def oracles(self, roots, active):
        """Oracles whose sum is that of atoms with weights, {node: (R, size)}; `active` are the strata with records."""
        weights = {self.node(node): w.reshape(-1, *node.shape) for node, w in roots.items()}
        return [Tape(self.nodes(roots), weights, self.segments, self.n, active)]

    def form(self, form, on_records):
        """A form bound to records or strata."""
        variable, _, rest = self.kinds(form)
        design = self._design(form.at(variable), on_records) if variable.any() else None
        inner = []
        for node, terms in self.atoms_of(form):
            entries, factors = form.column[terms] - node.start, dense(self.terms(form.at(terms)))
            inner.append(Inner(self.node(node), entries, form.row[terms], factors, form.size))
        offset = self.values(form.at(rest)) if rest.any() else np.zeros((1, form.size))
        return BoundForm(form.shape, design, inner, offset, on_records, self.segments)

    def _design(self, form, on_records):
        """The matrix of a form that is linear in the variables."""
        column = self.flat(form.column)
        if not self.symbols.depends(form.coefficient) & DATA:
            values = np.asarray(self.terms(form)).reshape(-1)
            segments = self.segments if on_records else None
            return ConstantDesign(form.row, column, values, form.size, self.n, segments)
        shared = shared_rows(form)
        if shared is None:
            return RowDesign(self.terms(form), form.row, column, form.size, self.segments, self.n)
        return SharedDesign(self.terms(form.at(shared[0])), column[shared], self.segments, self.n)


def shared_rows(form):
    """Term indices (rows, p) where all rows use the same coefficients and scales, else None."""
    m = form.size
    if not len(form.row) or len(form.row) % m:
        return None
    order = np.lexsort((form.column, form.scale, form.coefficient, form.row)).reshape(m, -1)
    same = all(np.all(part[order] == part[order[0]]) for part in (form.coefficient, form.scale))
    same = same and np.all(form.row[order] == np.arange(m)[:, None])
    # Terms in the order of the first row's columns, so that a plain x @ theta needs no reordering of theta.
    return order[:, np.argsort(form.column[order[0]], kind="stable")] if same else None


def dense(values):
    return values.toarray() if sp.issparse(values) else values


class Assembly:
    """The parts of Σ_records form, sorted by how they are evaluated.

    The form is a scalar of one record, weighted by `weight` (N,), or of one stratum if `weight` is None. With `statistics`,
    squares may become sums over records.
    """

    def __init__(self, form, binder, weight, statistics=True):
        self.binder, self.weight, self.segments = binder, weight, binder.segments
        self.active = None if self.segments is None else self.segments.counts > 0
        variable, _, rest = binder.kinds(form)
        K, N = (1, 1) if self.segments is None else (self.segments.K, max(self.segments.N, 1))
        self.constant, self.linear = self._sums(binder.values(form.at(rest)))[:, 0], np.zeros((K, binder.n))
        part = form.at(variable)
        columns = binder.flat(part.column)
        # A few columns at a time: x @ B @ y has one for each entry of B, each as long as the data.
        step = max(1, 2**20 // N)
        for first in range(0, len(columns), step):
            terms = np.arange(len(columns))[first : first + step]
            sums = self._sums(binder.terms(part.at(terms)))
            np.add.at(self.linear, (slice(None), columns[terms]), sums)
        self.roots, self.quadratics = {}, []
        for node, terms in binder.atoms_of(form):  # each is a quadratic, or a root of the tape with weights
            own = form.at(terms)
            values = host(dense(binder.columns(own.coefficient))) * own.scale
            weights = np.zeros((len(values), node.size))
            np.add.at(weights, (slice(None), own.column - node.start), values)
            if not node.has_data:
                self.roots[node] = self._sums(weights)
                continue
            weights = weights * weight[:, None]
            squares = statistics and isinstance(node.rule, Square)
            quadratic = _least_squares(binder.node(node).forms[0], weights) if squares else None
            if quadratic is None:
                self.roots[node] = weights
            else:
                self.quadratics.append(quadratic)

    def _sums(self, values):
        """Σ weight × values over each stratum's records: (R, T) values, R = N or 1, to (K, T)."""
        segments, weight = self.segments, self.weight
        if is_foreign(values):
            return self.binder.sums(values, weight)
        if segments is None:
            return np.asarray(values, dtype=float)
        if values.shape[0] == 1 and segments.N != 1:
            return segments.sum(weight[:, None]) * dense(values)
        if sp.issparse(values):
            places = (segments.index, np.arange(segments.N))
            return (sp.csr_array((weight, places), (segments.K, segments.N)) @ values).toarray()
        return segments.sum(values * weight[:, None])

    def parts(self):
        """The oracles whose sum this is."""
        tapes = self.binder.oracles(self.roots, self.active) if self.roots else []
        parts = [*self.quadratics, *tapes]
        if self.linear.any() or self.constant.any() or not parts:
            # Where a function such as a logarithm sets no scale for theta, the mean slope sets it.
            slope = np.abs(self.linear).sum(axis=0) / (1 if self.weight is None else self.weight.sum() or 1)
            masks = [tape.scale_free for tape in tapes if hasattr(tape, "scale_free")]  # a device has none
            sizes = slope * np.any(masks or False, axis=0)
            parts.insert(0, Quadratic(self.constant, self.linear, sizes=sizes))
        return parts

    def oracle(self, cones=None, parts=None):
        """The sum as one oracle, without a prox; `parts` are the oracles whose sum it is, where they are known."""
        kink = first_kink(self.binder, self.roots)
        curved = all(node.rule.curved for node in self.binder.nodes(self.roots))
        why = f"{text(kink.expression)} is not differentiable" if kink else None
        whys = dict.fromkeys(("value_and_gradient", "hessian_operator"), why) if kink else {}
        return SumOracle(parts or self.parts(), self.binder.n, kink is None, curved, None, whys, cones)


def _least_squares(form, weights):
    """Σ weights × (affine form)² over records, weights (N, m), as a quadratic per stratum; None where that does not pay."""
    design, segments = form.design, form.segments
    known = design is not None and not form.inner and design.has_gram and design.m <= 64
    if not known or segments.K * design.n**2 > max(design.coefficients.size, segments.N):
        return None
    hessian = 2.0 * design.gram(weights)
    total = np.maximum(segments.sum(weights.sum(axis=1)), 1e-300)
    square = np.einsum("kaa->ka", hessian)
    left = square - 2.0 * design.rmatvec(weights) ** 2 / total[:, None]
    if np.any((left > ROUNDING * square) & (left < SPREAD * square)):
        return None  # a column is so far from 0, relative to its spread, that the sums lose digits
    # At the minimiser of a slightly regularised problem the residuals are small, so that little is lost to cancellation.
    slope = 2.0 * design.rmatvec(weights * (0.0 if form.offset is None else form.offset))
    ridge = (1e-9 * square + 1e-300)[:, :, None] * np.eye(design.n)
    centre = -np.linalg.solve(hessian + ridge, slope[..., None])[..., 0]
    centre[~np.isfinite(centre)] = 0.0
    residual = form.value(centre, {}).reshape(-1, form.m)
    c, g = segments.sum((weights * residual**2).sum(axis=1)), 2.0 * design.rmatvec(weights * residual)
    return Quadratic(c, g, hessian, centre, design.sizes())


def evaluation(form, binder, order):
    """Values (N, *shape) of a form as a function of theta (K, n), +inf outside the domain; `order` are the records' places."""
    bound = binder.form(form, on_records=True)
    tape = Tape(binder.nodes([node for node, _ in binder.atoms_of(form)]), {}, binder.segments, binder.n)

    def values(theta):
        with np.errstate(all="ignore"):
            states, outs, _ = tape.run(theta)
            value = bound.value(theta, outs)
        value = np.where(np.isnan(value), np.inf, value)
        for node, (args, _, _) in states.items():
            legal = node.rule.domain(args)
            if legal is not None:
                legal = legal if node.on_records else legal[binder.segments.index]
                value[~np.broadcast_to(legal, len(value))] = np.inf
        out = np.empty((len(order), *form.shape))
        out[order] = value
        return out

    return values
