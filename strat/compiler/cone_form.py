"""Declarations in CVXPY's cone form: cone programs of one stratum and of all records, and the records' losses as one vector."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.binder import dense
from strat.compiler.expressions import folded, rebuilt, with_sign
from strat.compiler.pieces import attribute_constraints
from strat.errors import NoOracleError
from strat.oracles.cones import Cones, Matrix
from strat.rules import atoms
from strat.rules.approximated import refuse_approximations


def stratum_cones(program, values, low=None, high=None, transposed=None):
    """The expression of a program without data, its constraints and its variables' attributes, as `Cones` of one stratum.

    `values` are hyperparameters by CVXPY id; solutions satisfy the bounds `low` and `high`, and the symmetry, exactly.
    """
    refuse_approximations(program.expression, *(a for c in program.constraints for a in c.args))
    numbers = {id(p): cp.Constant(values[p.id]) for p in program.hyperparameters}
    expression = folded(program.expression, numbers)
    constraints = [c.copy([folded(a, numbers) for a in c.args]) for c in program.constraints]
    for v in program.variables:
        constraints += attribute_constraints(v, v)
    ends = {"low": low, "high": high, "transposed": transposed}
    return _canonical(expression, constraints, program.variables, program.what, **ends)


def record_cones(program, walker, binder, weight):
    """The weighted losses of all records, with data as Parameters of one program, as `Cones`."""
    refuse_approximations(program.expression)
    template = _Template(program, walker, binder)
    if not cp.Problem(cp.Minimize(template.expression), template.constraints).is_dpp():
        raise NoOracleError(f"{program.what} has no cone program that is linear in the data")
    parts = template.expression, template.constraints, [template.theta], program.what, template.parameters
    cones = _canonical(*parts, binder.segments.N, strata=binder.segments.index)
    A, P, c = cones.A, cones.P, weight[:, None] * cones.c
    if not len(A.values) == len(P.values) == 1:
        return cones.scaled(weight)
    # Data are factors of functions alone: sums over the records of a stratum take their place.
    strata, index = np.unique(cones.strata, return_inverse=True)
    P = Matrix(P.rows, P.columns, np.bincount(index, weight)[:, None] * P.values)
    sums = sp.csr_array((np.ones(len(c)), (index, np.arange(len(c))))) @ c
    return replace(cones, strata=strata, P=P, c=sums)


def stacked(e, walker, binder, theta, leaves):
    """A scalar of each record as a CVXPY vector in all strata's parameters theta (K n,); None where an atom is not elementwise.

    Maximal affine parts become P @ theta + q, and Parameters that are not data are replaced by the `leaves`, by id.
    """
    form, segments = walker(e), binder.segments
    variable, atom, rest = binder.kinds(form)
    if e.size == 1 and not atom.any():
        part = form.at(variable)
        q = np.broadcast_to(binder.values(form.at(rest)).reshape(-1), segments.N)
        if not variable.any():
            return cp.Constant(q)
        terms = binder.terms(part)
        terms = np.broadcast_to(dense(terms), (segments.N, terms.shape[1])) if terms.shape[0] == 1 else terms
        row, k = (terms := sp.coo_array(terms)).coords
        places = row, segments.index[row] * binder.n + binder.flat(part.column)[k]
        return sp.csr_array((terms.data, places), (segments.N, theta.size)) @ theta + q
    args = [stacked(a, walker, binder, theta, leaves) for a in e.args]
    if e.size > 1 or any(a is None for a in args):
        return None
    if isinstance(e, (atoms.multiply, atoms.MulExpression)):
        return cp.multiply(*args)
    if isinstance(e, (atoms.AddExpression, atoms.NegExpression, atoms.DivExpression, atoms.Elementwise)):
        return rebuilt(e, leaves | {id(a): new for a, new in zip(e.args, args, strict=True)})
    return args[0] if isinstance(e, atoms.AffAtom) and len(args) == 1 else None


def _canonical(objective, constraints, variables, what, parameters=(), N=1, **others):
    """A problem in CVXPY's cone form, as `Cones` in the variables, at the values (N, *shape) of the Parameters."""
    try:
        P, q, A, start, places, size, order, kinds = _written(objective, constraints, variables)
    except Exception as error:
        raise NoOracleError(
            f"{what} needs a cone program, and CVXPY could not write it ({type(error).__name__}: {error}). Write it "
            f"with other atoms, for example np.tril(np.ones((n, n))) @ x for cp.cumsum(x), or leave parts out, "
            f"which tells the one that CVXPY cannot write."
        ) from error
    # All Parameters' values in the order of the columns, with a last row of ones, (params + 1, N).
    numbers = np.ones((A.shape[1], N))
    for parameter, values in parameters:
        place = places.get(parameter.id)
        if place is not None:
            axes = (*range(values.ndim - 1, 0, -1), 0)  # Fortran order of the entries, records last
            numbers[place : place + parameter.size] = values.transpose(axes).reshape(-1, len(values))
    # New places of rows, cone by cone, and of columns: the variables' entries come first.
    m, n, line, column = len(order), sum(v.size for v in variables), np.argsort(order), np.full(size, -1)
    column[start : start + n] = np.arange(n)
    column[column < 0] = np.arange(n, size)
    row, entry, values = _entries(A, m, numbers)
    b, in_A = np.zeros((len(values), m)), entry < size
    b[:, line[row[~in_A]]] = values[:, ~in_A]
    A = Matrix(line[row[in_A]], column[entry[in_A]], -values[:, in_A])
    _, entry, slopes = _entries(q, 1, numbers)
    c = np.zeros((N, size))
    c[:, column[entry[entry < size]]] = slopes[:, entry < size]
    P = sp.csr_array((size * size, len(numbers))) if P is None else P
    i, j, curvature = _entries(P, size, numbers)
    P = Matrix(column[i[i <= j]], column[j[i <= j]], curvature[:, i <= j])
    return Cones(n=n, size=size, kinds=kinds, A=A, P=P, b=b, c=c, **others)


def _written(objective, constraints, variables):
    """CVXPY's cone program of a convex problem: min ½ xᵀ P x + qᵀ x + r, subject to A x + b in cones that Clarabel takes.

    Returns P (or None), (q, r) and (A, b), with a row for each entry in Fortran order and a column for each entry of the
    Parameters and for 1; the first place of the variables, in C order, in x; the first columns of the Parameters by CVXPY id;
    the length of x; the rows of A cone by cone; and the (kind, size or exponent) of each cone.
    """
    ends = np.cumsum([v.size for v in variables])
    # One variable without attributes: CVXPY would replace variables with attributes by unknowns of its own.
    theta, plain = cp.Variable(int(ends[-1])), {}
    for v, end in zip(variables, ends, strict=True):
        plain[id(v)] = with_sign(v, cp.reshape(theta[end - v.size : end], v.shape, order="C"))
    constraints = [c.copy([rebuilt(a, plain) for a in c.args]) for c in constraints]
    problem = cp.Problem(cp.Minimize(rebuilt(objective, plain) + 0 * cp.sum(theta)), constraints)
    for p in problem.parameters():
        p.value = np.full(p.shape, -1.0 if p.is_nonpos() else 1.0)
    data = problem.get_problem_data(cp.CLARABEL)[0]
    wide = data["dims"].pnd  # power cones of many dimensions, which CVXPY splits for SCS
    data = problem.get_problem_data(cp.SCS)[0] if wide else data
    written, dims, order = data["param_prob"], data["dims"], np.arange(len(data["b"]))
    kinds = [("zero", dims.zero)] * (dims.zero > 0) + [("nonnegative", dims.nonneg)] * (dims.nonneg > 0)
    kinds += [("second order", d) for d in dims.soc] + [("psd", d) for d in dims.psd]
    kinds += [("exponential", 3)] * dims.exp + [("power", alpha) for alpha in dims.p3d]
    first = dims.zero + dims.nonneg + sum(dims.soc)
    for d in dims.psd if wide else ():  # SCS has the lower triangle by columns, Clarabel the upper one
        i, j = np.tril_indices(d)
        order[first : first + len(i)] = first + np.lexsort((i, j)).argsort()
        first += len(i)
    start, places = written.var_id_to_col[theta.id], written.param_id_to_col
    return written.P, written.q, written.A, start, places, len(data["c"]), order, kinds


def _entries(tensor, m, numbers):
    """Rows and columns of a parametrised matrix's entries, and their values (N, entries) or (1, entries)."""
    tensor = sp.csr_array(tensor)
    last, flat = tensor.shape[1] - 1, np.flatnonzero(np.diff(tensor.indptr))
    starts = tensor.indptr[np.append(flat, -1)]
    full = sp.csr_array((tensor.data, tensor.indices, starts), (len(flat), last + 1))
    values = full @ (numbers if np.any(tensor.indices < last) else numbers[:, :1])
    column, row = np.divmod(flat, m)
    some = values.any(axis=1)  # an affine part has a Parameter for each parameter in each of its entries
    return row[some], column[some], np.asarray(values)[some].T


class _Template:
    """The loss of one record as a cone program with data as Parameters, which serves all records at once.

    Maximal affine parts become P @ theta + q, and maximal parts without variables become a Parameter s of their sign. Where s
    multiplies a function, a new variable that is bounded by the function replaces it, so that the program stays linear in its
    Parameters (CVXPY's DPP): one sparse product gives the numbers of all records.
    """

    def __init__(self, program, walker, binder):
        self.what, self.walker, self.binder = program.what, walker, binder
        self.parameters, self.constraints, self.theta = [], [], cp.Variable(binder.n)
        parts = {v: self.theta[program.layout.slices[v.name()]] for v in program.variables}
        self.variables = {id(v): with_sign(v, cp.reshape(u, v.shape, order="C")) for v, u in parts.items()}
        numbers = {id(p): cp.Constant(walker.values[p.id]) for p in program.hyperparameters}
        try:
            self.expression = self._copied(folded(program.expression, numbers, {id(p) for p in program.data}))
        except Exception as error:  # CVXPY may reject a Parameter where it accepts its value
            raise NoOracleError(
                f"{program.what} has no cone program that is linear in the data ({type(error).__name__}: {error})"
            ) from error

    def _copied(self, e):
        """The expression in theta and Parameters."""
        if id(e) in self.variables or not e.parameters():
            return rebuilt(e, self.variables)
        if not e.variables():
            return self._factor(e)
        if not self.binder.kinds(self.walker(e))[1].any():
            return self._affine(e)
        if isinstance(e, (atoms.multiply, atoms.MulExpression, atoms.DivExpression)):
            return self._product(e)
        matrix = isinstance(e, (atoms.QuadForm, atoms.MatrixFrac)) and not e.args[1].variables()
        if matrix and e.args[0].ndim == 1:
            return cp.sum_squares(self._affine(e.args[0], self._root(e)))
        return e.copy([self._copied(a) for a in e.args])

    def _factor(self, e):
        values = self.binder.values(self.walker(e))
        sign = "nonneg" if (values >= 0).all() else "nonpos" if (values <= 0).all() else None
        return self._parameter(values, e.shape, **({sign: True} if sign else {}))

    def _root(self, e):
        """R for each record, with Rᵀ R = S for uᵀ S u and Rᵀ R = S⁻¹ for uᵀ S⁻¹ u, so that either is ‖R u‖²."""
        S = self.binder.values(self.walker(e.args[1])).reshape(-1, *e.args[1].shape)
        values, vectors = np.linalg.eigh(0.5 * (S + S.swapaxes(1, 2)))
        root = np.sqrt(np.maximum(values, 0.0))
        return (1.0 / root if isinstance(e, atoms.MatrixFrac) else root)[..., None] * vectors.swapaxes(1, 2)

    def _affine(self, e, R=None):
        """P @ theta + q, of the shape of e, or R times it."""
        binder, form = self.binder, self.walker(e)
        variable, atom, rest = binder.kinds(form)
        if atom.any():
            raise NoOracleError(f"{self.what} has a quadratic form of an argument that is not affine")
        part = form.at(variable)
        terms = np.asarray(dense(binder.terms(part)))
        P = np.zeros((len(terms), form.size, binder.n))
        np.add.at(P, (slice(None), part.row, binder.flat(part.column)), terms)
        q = np.asarray(binder.values(form.at(rest))) if rest.any() else np.zeros((1, form.size))
        if R is not None:
            P, q = np.matmul(R, P), np.matmul(R, q[..., None])[..., 0]
        u = self._parameter(P) @ self.theta
        return cp.reshape(u + self._parameter(q) if q.any() else u, e.shape, order="C")

    def _product(self, e):
        """A product of a part without variables and a function, which a new variable bounded by it replaces."""
        args = []
        for a in e.args:
            inner = self._copied(a)
            if a.variables():
                t = cp.Variable(inner.shape)
                self.constraints.append(inner <= t if inner.is_convex() else t <= inner)
                inner = t
            args.append(inner)
        if isinstance(e, atoms.DivExpression):
            return cp.multiply(self._factor(1 / e.args[1]), args[0])
        return e.copy(args)

    def _parameter(self, values, shape=None, **sign):
        shape = values.shape[1:] if shape is None else shape
        parameter = cp.Parameter(shape, **sign)
        self.parameters.append((parameter, np.asarray(values, dtype=float).reshape(-1, *shape)))
        return parameter
