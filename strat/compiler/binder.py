"""From symbols to arrays: forms and atoms of one declaration, bound to records."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.symbols import DATA, AtomNode
from strat.oracles.bound_form import BoundForm, Inner
from strat.oracles.design import ConstantDesign, RowDesign, SharedDesign
from strat.oracles.tape import BoundNode


class Binder:
    """Binds the forms and atoms of one set of symbols.

    Parameters
    ----------
    symbols : Symbols
    evaluator : Evaluator
        Values of data and hyperparameters.
    coordinates : dict
        Slice of each variable in a stratum's flat vector, by CVXPY id.
    n : int
        Scalars in a stratum.
    segments : Segments or None
        The grouping of records; None without records.
    """

    def __init__(self, symbols, evaluator, coordinates, n, segments):
        self.symbols, self.evaluator, self.segments, self.n = symbols, evaluator, segments, n
        self._coordinates = coordinates
        self._nodes, self._atoms = {}, np.zeros(0, dtype=bool)

    def flat(self, columns):
        """Coordinates in theta of columns that are variables."""
        owners = self.symbols.owner(columns)
        out = np.empty(len(columns), dtype=np.intp)
        for o in np.unique(owners):
            node, mine = self.symbols.nodes[o], owners == o
            out[mine] = columns[mine] - node.start + self._coordinates[node.leaf.id].start
        return out

    def kinds(self, form):
        """Masks of the form's terms: in a variable, in an atom, in neither."""
        known, is_atom = form.column > 0, np.zeros(len(form.column), dtype=bool)
        is_atom[known] = self._is_atom()[self.symbols.owner(form.column[known])]
        return known & ~is_atom, is_atom, ~known

    def _is_atom(self):
        """Which nodes are atoms; walkers may have added some since the last call."""
        nodes = self.symbols.nodes
        if len(self._atoms) != len(nodes):
            self._atoms = np.array([isinstance(node, AtomNode) for node in nodes], dtype=bool)
        return self._atoms

    def atoms_of(self, form):
        """``[(node, terms)]``: the atom nodes of a form and the indices of their terms."""
        (terms,) = np.nonzero(self.kinds(form)[1])
        if not len(terms):
            return []
        owners = self.symbols.owner(form.column[terms])
        return [(self.symbols.nodes[o], terms[owners == o]) for o in np.unique(owners)]

    def has_data(self, form):
        """Whether the form's value differs between records of a stratum."""
        if self.symbols.depends(form.coefficient) & DATA:
            return True
        return any(self.node_has_data(node) for node, _ in self.atoms_of(form))

    def node_has_data(self, node):
        """Whether an atom's value differs between records of a stratum."""
        return bool(node.depends & DATA)

    def node(self, node):
        """The bound atom node."""
        if node not in self._nodes:
            on_records = self.node_has_data(node)
            bound = [self.form(f, on_records) for f in node.forms]
            self._nodes[node] = BoundNode(node.rule, bound, node.shape, on_records)
        return self._nodes[node]

    def inside(self, roots):
        """The roots and all atoms inside them."""
        found, stack = {}, list(roots)
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = True
                stack.extend(inner for form in node.forms for inner, _ in self.atoms_of(form))
        return list(found)

    def nodes(self, roots):
        """Bound nodes that the roots need, arguments first."""
        return [self.node(node) for node in sorted(self.inside(roots), key=lambda node: node.start)]

    def form(self, form, on_records):
        """A form bound to records or strata."""
        variable, _, rest = self.kinds(form)
        design = self.design(form.where(variable)) if variable.any() else None
        inner = [
            Inner(
                self.node(node),
                form.column[terms] - node.start,
                form.row[terms],
                _dense(self.evaluator.terms(_sub(form, terms))),
                form.size,
            )
            for node, terms in self.atoms_of(form)
        ]
        offset = self.evaluator.form(form.where(rest)) if rest.any() else np.zeros((1, form.size))
        return BoundForm(form.shape, design, inner, offset, on_records, self.segments)

    def design(self, form):
        """The matrix of a form that is linear in the variables."""
        column = self.flat(form.column)
        if not self.symbols.depends(form.coefficient) & DATA:
            values = np.asarray(self.evaluator.terms(form)).reshape(-1)
            return ConstantDesign(form.row, column, values, form.size, self.n)
        shared = shared_rows(form)
        if shared is not None:
            first = _sub(form, shared[0])
            return SharedDesign(self.evaluator.terms(first), column[shared], self.segments, self.n)
        values = self.evaluator.terms(form)
        return RowDesign(values, form.row, column, form.size, self.segments, self.n)


def shared_rows(form):
    """Term indices (rows, p) where all rows use the same coefficients and scales, else None."""
    m = form.size
    if not len(form.row) or len(form.row) % m:
        return None
    order = np.lexsort((form.column, form.scale, form.coefficient, form.row)).reshape(m, -1)
    same = (
        np.all(form.row[order] == np.arange(m)[:, None])
        and np.all(form.coefficient[order] == form.coefficient[order[0]])
        and np.all(form.scale[order] == form.scale[order[0]])
    )
    if not same:
        return None
    # Terms in the order of the first row's columns, so that a plain x @ theta needs no reordering of theta.
    return order[:, np.argsort(form.column[order[0]], kind="stable")]


def _sub(form, terms):
    """The given terms of a form, in the given order (no sorting, rows kept)."""
    out = form.reshaped(form.shape)
    out.row, out.column = form.row[terms], form.column[terms]
    out.coefficient, out.scale = form.coefficient[terms], form.scale[terms]
    return out


def _dense(values):
    return values.toarray() if sp.issparse(values) else values
