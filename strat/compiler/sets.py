"""Constraints and attributes of one stratum's variables, sorted by the sets that a prox knows."""

import numpy as np
import scipy.sparse as sp

from strat.compiler.pieces import affine_matrix, weighted_atoms
from strat.rules import atoms
from strat.rules.text import text


class Sets:
    """Constraints and attributes of one stratum's variables.

    ``low`` and ``high`` bound coordinates, ``equalities`` and ``inequalities`` are (A, b) of rows A z = b and
    A z <= b, ``balls`` are (atom node, weights of its entries, radius, text) of sets Σ weight × entry <= radius, ``cones``
    names of semidefinite cones by variable name, ``transposed`` the coordinates of the transpose (symmetric variables),
    ``other`` texts of what has no projection in closed form.
    """

    def __init__(self, n):
        self.low, self.high = np.full(n, -np.inf), np.full(n, np.inf)
        self.equalities, self.inequalities, self.balls, self.cones, self.other = [], [], [], {}, []
        self.transposed = None

    @property
    def restrict(self):
        """Whether there is more than symmetry."""
        bounded = np.isfinite(self.low).any() or np.isfinite(self.high).any()
        rows = self.equalities or self.inequalities or self.balls
        return bool(bounded or rows or self.cones or self.other)

    def attributes(self, variables, layout):
        """Add what the variables' attributes say."""
        self.symmetries(variables, layout)
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
            fixed = np.zeros(v.shape, dtype=bool)
            if a.get("diag") is not None and a["diag"] is not False:
                fixed = ~np.eye(v.shape[0], dtype=bool)
            if a.get("sparsity") is not None and a["sparsity"] is not False:
                self.other.append(f"the sparsity attribute of {v.name()}")
            if fixed.any():
                self.low[where] = np.where(fixed.reshape(-1), 0.0, self.low[where])
                self.high[where] = np.where(fixed.reshape(-1), 0.0, self.high[where])
            for cone in ("PSD", "NSD"):
                if a.get(cone):
                    self.cones[v.name()] = cone

    def symmetries(self, variables, layout):
        """Note which variables are symmetric."""
        for v in variables:
            if any(v.attributes.get(name) for name in ("symmetric", "PSD", "NSD")):
                where = layout.slices[v.name()]
                if self.transposed is None:
                    self.transposed = np.arange(len(self.low))
                block = np.arange(where.start, where.stop).reshape(v.shape)
                self.transposed[where] = block.T.reshape(-1)

    def constraint(self, constraint, walker, binder, layout):
        """Add one CVXPY constraint."""
        if isinstance(constraint, atoms.PSD):
            self._semidefinite(constraint)
        elif isinstance(constraint, (atoms.Inequality, atoms.NonPos)):
            self._inequality(walker(constraint.expr), binder, constraint)
        elif isinstance(constraint, atoms.NonNeg):
            self._inequality(walker(-constraint.args[0]), binder, constraint)
        elif isinstance(constraint, (atoms.Equality, atoms.Zero)):
            self._equality(walker(constraint.expr), binder, constraint)
        else:
            self._other(constraint)

    def _other(self, constraint, why=""):
        self.other.append(text(constraint) + (f" ({why})" if why else ""))

    def _semidefinite(self, constraint):
        e = constraint.args[0]
        if isinstance(e, atoms.Variable) and e.is_symmetric():
            self.cones[e.name()] = "PSD"
        else:
            self._other(
                constraint,
                f"declare {e.name()} with PSD=True instead" if isinstance(e, atoms.Variable) else "",
            )

    def _inequality(self, form, binder, constraint):
        affine = affine_matrix(binder, form)
        if affine is None:
            self._ball(form, binder, constraint)
            return
        A, b = affine
        counts = np.diff(A.indptr)
        if np.any(b[counts == 0] > 0):
            self._other(constraint, "it cannot hold")
        single = np.flatnonzero(counts == 1)
        column, scale = A.indices[A.indptr[single]], A.data[A.indptr[single]]
        bound = -b[single] / scale
        np.minimum.at(self.high, column[scale > 0], bound[scale > 0])
        np.maximum.at(self.low, column[scale < 0], bound[scale < 0])
        several = np.flatnonzero(counts > 1)
        if len(several):
            self.inequalities.append((A[several], -b[several]))

    def _ball(self, form, binder, constraint):
        """Rows Σ weight × entries of one atom <= radius."""
        rows = None if binder.has_data(form) else weighted_atoms(binder, form)
        if rows is None:
            self._other(constraint)
            return
        self.balls += [(node, weights, -offset, text(constraint)) for node, weights, offset in rows]

    def _equality(self, form, binder, constraint):
        affine = affine_matrix(binder, form)
        if affine is None:
            self._other(constraint)
            return
        A, b = affine
        some = np.diff(A.indptr) > 0
        if np.any(b[~some] != 0):
            self._other(constraint, "it cannot hold")
        if some.any():
            self.equalities.append((A[np.flatnonzero(some)], -b[some]))


def _value(bound):
    value = bound.value if isinstance(bound, atoms.Expression) else bound
    return value.toarray() if sp.issparse(value) else np.asarray(value, dtype=float)
