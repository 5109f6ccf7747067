"""What a prox needs to know of a function of one stratum: pieces, the coordinates they touch, and sets."""

import numpy as np
import scipy.sparse as sp

from strat.expressions import atoms
from strat.expressions.text import text
from strat.rules.base import Elementwise
from strat.rules.powers import QuadForm, Square


class Support:
    """Which coordinates each entry of a form or atom depends on, as sparse boolean matrices."""

    def __init__(self, binder):
        self.binder = binder
        self._nodes = {}

    def form(self, form):
        """(entries, n) matrix."""
        variable, _, _ = self.binder.kinds(form)
        rows, columns = form.row[variable], self.binder.flat(form.column[variable])
        out = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(form.size, self.binder.n))
        for node, terms in self.binder.atoms_of(form):
            pick = (np.ones(len(terms)), (form.row[terms], form.column[terms] - node.start))
            out = out + sp.csr_array(pick, shape=(form.size, node.size)) @ self.node(node)
        return out

    def node(self, node):
        """(output entries, n) matrix."""
        if node not in self._nodes:
            parts = [self.form(f) for f in node.forms]
            if isinstance(node.rule, Elementwise):
                total = sum(parts[1:], parts[0])
            else:
                total = sp.csr_array((node.size, self.binder.n))
                for form, part in zip(node.forms, parts, strict=True):
                    group = np.arange(form.size) * node.size // max(form.size, 1)
                    pool = sp.csr_array((np.ones(form.size), (group, np.arange(form.size))), (node.size, form.size))
                    total = total + pool @ part
            self._nodes[node] = total
        return self._nodes[node]


def affine_rows(binder, form):
    """(row, column, scale, offset) of a form whose rows are a number times one coordinate plus an offset.

    Rows without a variable are left out. None for any other form, and where numbers depend on data.
    """
    variable, atom, rest = binder.kinds(form)
    row = form.row[variable]
    if atom.any() or np.any(np.diff(row) == 0) or binder.has_data(form):
        return None
    scale = np.asarray(binder.evaluator.terms(form.where(variable))).reshape(-1)
    offset = np.asarray(binder.evaluator.form(form.where(rest))).reshape(-1) if rest.any() else np.zeros(form.size)
    return row, binder.flat(form.column[variable]), np.broadcast_to(scale, len(row)), offset[row]


def quadratic_matrix(binder, node, weight):
    """Hessian (n, n), slope (n,) of Σ weight × square or quadratic form of affine rows; None for other atoms."""
    form = node.forms[0]
    if not isinstance(node.rule, (Square, QuadForm)) or binder.atoms_of(form):
        return None
    if len(weight) > 1 or binder.has_data(form):
        return None
    variable, _, rest = binder.kinds(form)
    values = np.asarray(binder.evaluator.terms(form.where(variable))).reshape(-1)
    rows, columns = form.row[variable], binder.flat(form.column[variable])
    a = sp.csr_array((values, (rows, columns)), shape=(form.size, binder.n))
    b = np.asarray(binder.evaluator.form(form.where(rest))).reshape(-1) if rest.any() else np.zeros(form.size)
    if isinstance(node.rule, Square):
        p = sp.diags_array(weight.reshape(-1))
    else:
        matrix = np.asarray(binder.evaluator.form(node.forms[1])).reshape(node.forms[1].shape)
        p = sp.csr_array(0.5 * weight.item() * (matrix + matrix.T))
    return sp.csr_array(2.0 * (a.T @ p @ a)), 2.0 * (a.T @ (p @ b))


class Sets:
    """Constraints and attributes of one stratum's variables.

    ``low`` and ``high`` bound coordinates, ``equalities`` are (A, b) rows, ``cones`` names of semidefinite cones by
    variable name, ``transposed`` the coordinates of the transpose (symmetric variables), ``other`` what has no
    closed form, as text.
    """

    def __init__(self, n):
        self.low, self.high = np.full(n, -np.inf), np.full(n, np.inf)
        self.equalities, self.cones, self.other = [], {}, []
        self.transposed = None

    @property
    def restrict(self):
        """Whether there is more than symmetry."""
        bounded = np.isfinite(self.low).any() or np.isfinite(self.high).any()
        return bool(bounded or self.equalities or self.cones or self.other)

    def attributes(self, variables, layout):
        """Add what the variables' attributes say."""
        for v in variables:
            where, a = layout.slices[v.name()], v.attributes
            if a.get("nonneg") or a.get("pos"):
                self.low[where] = np.maximum(self.low[where], 0.0)
            if a.get("nonpos") or a.get("neg"):
                self.high[where] = np.minimum(self.high[where], 0.0)
            if a.get("bounds") is not None:
                low, high = (np.broadcast_to(_value(bound), v.shape).reshape(-1) for bound in a["bounds"])
                self.low[where] = np.maximum(self.low[where], low)
                self.high[where] = np.minimum(self.high[where], high)
            if a.get("diag") is not None and a["diag"] is not False:
                off = ~np.eye(v.shape[0], dtype=bool).reshape(-1)
                self.low[where] = np.where(off, 0.0, self.low[where])
                self.high[where] = np.where(off, 0.0, self.high[where])
            if a.get("sparsity") is not None and a["sparsity"] is not False:
                self.other.append(f"the sparsity attribute of {v.name()}")
            for cone in ("PSD", "NSD"):
                if a.get(cone):
                    self.cones[v.name()] = cone
            if any(a.get(name) for name in ("symmetric", "PSD", "NSD")):
                if self.transposed is None:
                    self.transposed = np.arange(len(self.low))
                block = np.arange(where.start, where.stop).reshape(v.shape)
                self.transposed[where] = block.T.reshape(-1)

    def constraint(self, constraint, walker, binder, layout):
        """Add one CVXPY constraint."""
        if isinstance(constraint, atoms.PSD):
            e = constraint.args[0]
            if isinstance(e, atoms.Variable):
                self.cones[e.name()] = "PSD"
                if not e.is_symmetric():
                    self.other.append(f"{text(constraint)} (declare {e.name()} with PSD=True instead)")
                return
            self.other.append(text(constraint))
            return
        if isinstance(constraint, (atoms.Inequality, atoms.NonPos)):
            form = walker(constraint.expr)
        elif isinstance(constraint, atoms.NonNeg):
            form = walker(-constraint.args[0])
        elif isinstance(constraint, (atoms.Equality, atoms.Zero)):
            form = walker(constraint.expr)
            self._equality(form, binder, constraint)
            return
        else:
            self.other.append(text(constraint))
            return
        rows = affine_rows(binder, form)
        if rows is None or len(rows[0]) < form.size:
            self.other.append(text(constraint))
            return
        _, column, scale, offset = rows
        bound = -offset / scale
        np.minimum.at(self.high, column[scale > 0], bound[scale > 0])
        np.maximum.at(self.low, column[scale < 0], bound[scale < 0])

    def _equality(self, form, binder, constraint):
        if binder.atoms_of(form):
            self.other.append(text(constraint))
            return
        variable, _, rest = binder.kinds(form)
        values = np.asarray(binder.evaluator.terms(form.where(variable))).reshape(-1)
        A = np.zeros((form.size, binder.n))
        np.add.at(A, (form.row[variable], binder.flat(form.column[variable])), values)
        b = -np.asarray(binder.evaluator.form(form.where(rest))).reshape(-1) if rest.any() else np.zeros(form.size)
        self.equalities.append((A, b))


def _value(bound):
    value = bound.value if isinstance(bound, atoms.Expression) else bound
    return value.toarray() if sp.issparse(value) else np.asarray(value, dtype=float)
