"""What a prox needs to know of a function of one stratum: the coordinates its atoms touch, and their matrices."""

import numpy as np
import scipy.sparse as sp

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
                    pool = sp.csr_array(
                        (np.ones(form.size), (group, np.arange(form.size))), (node.size, form.size)
                    )
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
    offset = (
        np.asarray(binder.evaluator.form(form.where(rest))).reshape(-1) if rest.any() else np.zeros(form.size)
    )
    return row, binder.flat(form.column[variable]), np.broadcast_to(scale, len(row)), offset[row]


def affine_matrix(binder, form):
    """(A, b) of a form A z + b on strata, A sparse and b (size,); None where it has atoms or data."""
    variable, atom, rest = binder.kinds(form)
    if atom.any() or binder.has_data(form):
        return None
    values = np.asarray(binder.evaluator.terms(form.where(variable))).reshape(-1)
    rows, columns = form.row[variable], binder.flat(form.column[variable])
    A = sp.csr_array((np.broadcast_to(values, len(rows)), (rows, columns)), shape=(form.size, binder.n))
    A.eliminate_zeros()
    b = np.asarray(binder.evaluator.form(form.where(rest))).reshape(-1) if rest.any() else np.zeros(form.size)
    return A, b


def weighted_atoms(binder, form):
    """``[(atom node, weights of its entries, offset)]`` of a form's rows Σ weight × entry + offset; None for other forms."""
    variable, atom, rest = binder.kinds(form)
    found, order, out = binder.atoms_of(form), np.cumsum(atom) - 1, []
    if variable.any():
        return None
    b = binder.evaluator.form(form.where(rest)).reshape(-1) if rest.any() else np.zeros(form.size)
    scale = np.broadcast_to(binder.evaluator.terms(form.where(atom)).reshape(-1), atom.sum())
    for row in range(form.size):
        here = [(node, terms[form.row[terms] == row]) for node, terms in found]
        here = [(node, terms) for node, terms in here if len(terms)]
        if len(here) != 1:
            return None
        ((node, terms),) = here
        weights = np.zeros(node.size)
        np.add.at(weights, form.column[terms] - node.start, scale[order[terms]])
        out.append((node, weights, float(b[row])))
    return out


def quadratic_diagonal(binder, node, weight):
    """Diagonal Hessian (n,), slope (1, n) of Σ weight × square, each of one coordinate; None for other atoms."""
    rows = affine_rows(binder, node.forms[0]) if isinstance(node.rule, Square) and len(weight) == 1 else None
    if rows is None:
        return None
    row, column, scale, offset = rows
    diagonal, slope, weight = np.zeros(binder.n), np.zeros((1, binder.n)), 2.0 * weight.reshape(-1)[row]
    np.add.at(diagonal, column, weight * scale**2)
    np.add.at(slope[0], column, weight * scale * offset)
    return diagonal, slope


def quadratic_matrix(binder, node, weight):
    """Hessian (n, n), slope (n,) of Σ weight × square or quadratic form of affine rows; None for other atoms."""
    form = node.forms[0]
    if not isinstance(node.rule, (Square, QuadForm)) or len(weight) > 1:
        return None
    affine = affine_matrix(binder, form)
    if affine is None:
        return None
    a, b = affine
    if isinstance(node.rule, Square):
        p = sp.diags_array(weight.reshape(-1))
    else:
        matrix = np.asarray(binder.evaluator.form(node.forms[1])).reshape(node.forms[1].shape)
        p = sp.csr_array(0.5 * weight.item() * (matrix + matrix.T))
    return sp.csr_array(2.0 * (a.T @ p @ a)), 2.0 * (a.T @ (p @ b))
