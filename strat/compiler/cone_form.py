"""The cone program of one stratum's function, as CVXPY writes it."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.convexity import numbers, rebuilt, with_sign
from strat.errors import NoOracleError
from strat.oracles.cones import Cones, Matrix
from strat.rules import atoms
from strat.rules.approximated import refuse_approximations


def stratum_cones(program, values, low=None, high=None, transposed=None):
    """The expression of a program without data, its constraints and its variables' attributes, as `Cones`.

    Parameters
    ----------
    program : Program
    values : dict
        Hyperparameters by CVXPY id.
    low, high : (n,) ndarray, optional
        Bounds that solutions are to keep exactly.
    transposed : (n,) int ndarray, optional
        Coordinates of the transposes of symmetric variables, whose symmetry solutions are to keep exactly.

    Returns
    -------
    Cones
        One function a stratum.

    Raises
    ------
    NoOracleError
        Where CVXPY has no cone program for it.
    """
    refuse_approximations(program.expression, *(a for c in program.constraints for a in c.args))
    plain = {v.name(): cp.Variable(v.shape, name=v.name()) for v in program.variables}
    expression, constraints = _folded(program, values, plain)
    # The sum of all variables keeps each of them in the canonical form; it is taken off again below.
    every = sum(cp.sum(x) for x in plain.values())
    data = canonical(cp.Problem(cp.Minimize(expression + every), constraints), program.what)
    starts = data["param_prob"].var_id_to_col
    theta = np.concatenate(
        [starts[x.id] + np.arange(x.size).reshape(x.shape, order="F").reshape(-1) for x in plain.values()]
    )
    size, n = len(data["c"]), len(theta)
    place = column_order(theta, size)
    P = sp.coo_array(sp.triu(data["P"])) if data.get("P") is not None else sp.coo_array((size, size))
    A = sp.coo_array(data["A"])
    c = np.zeros(size)
    c[place] = data["c"]
    c[:n] -= 1.0
    return Cones(
        n=n,
        size=size,
        kinds=cone_kinds(data["dims"]),
        A=Matrix(A.coords[0], place[A.coords[1]], A.data[None, :]),
        P=Matrix(place[P.coords[0]], place[P.coords[1]], P.data[None, :]),
        b=np.asarray(data["b"], dtype=float)[None, :],
        c=c[None, :],
        low=low,
        high=high,
        transposed=transposed,
    )


def _folded(program, values, plain):
    """The expression and all constraints with hyperparameters as numbers, in plain variables."""
    replaced = {id(v): with_sign(v, plain[v.name()]) for v in program.variables}
    replaced |= {id(p): cp.Constant(values[p.id]) for p in program.hyperparameters}

    def copied(e):
        return rebuilt(e, replaced | numbers(e, replaced))

    constraints = [c.copy([copied(a) for a in c.args]) for c in program.constraints]
    for v in program.variables:
        constraints += attribute_constraints(v, plain[v.name()])
    return copied(program.expression), constraints


def canonical(problem, what):
    """CVXPY's data of a problem for Clarabel."""
    try:
        return problem.get_problem_data(cp.CLARABEL)[0]
    except Exception as error:
        raise NoOracleError(
            f"{what} needs a cone program, and CVXPY could not write it ({type(error).__name__}: {error}). Write it "
            f"with other atoms, for example np.tril(np.ones((n, n))) @ x for cp.cumsum(x), or leave parts out, "
            f"which tells the one that CVXPY cannot write."
        ) from error


def column_order(theta, size):
    """New place of every column: those of theta come first."""
    place = np.full(size, -1)
    place[theta] = np.arange(len(theta))
    place[place < 0] = np.arange(len(theta), size)
    return place


def cone_kinds(dims):
    """The cones of CVXPY's data in order, as `Cones` has them."""
    kinds = [("zero", dims.zero)] if dims.zero else []
    kinds += [("nonnegative", dims.nonneg)] if dims.nonneg else []
    kinds += [("second order", d) for d in dims.soc] + [("psd", d) for d in dims.psd]
    return kinds + [("exponential", 3)] * dims.exp + [("power", alpha) for alpha in dims.p3d]


def attribute_constraints(variable, plain):
    """A variable's attributes as constraints on a plain variable."""
    a, out = variable.attributes, []
    if a.get("nonneg") or a.get("pos"):
        out.append(plain >= 0)
    if a.get("nonpos") or a.get("neg"):
        out.append(plain <= 0)
    if a.get("bounds") is not None:
        low, high = (bound.value if isinstance(bound, cp.Expression) else bound for bound in a["bounds"])
        low, high = (np.broadcast_to(np.asarray(bound, dtype=float), variable.shape) for bound in (low, high))
        flat = cp.vec(plain, order="C")
        low, high = low.reshape(-1), high.reshape(-1)
        out += [flat[np.isfinite(low)] >= low[np.isfinite(low)]] if np.isfinite(low).any() else []
        out += [flat[np.isfinite(high)] <= high[np.isfinite(high)]] if np.isfinite(high).any() else []
    if any(a.get(name) for name in ("symmetric", "PSD", "NSD")):
        out.append(plain == plain.T)
    if a.get("PSD"):
        out.append(0.5 * (plain + plain.T) >> 0)
    if a.get("NSD"):
        out.append(0.5 * (plain + plain.T) << 0)
    if a.get("diag"):
        off = ~np.eye(variable.shape[0], dtype=bool)
        out.append(plain[off] == 0)
    if a.get("sparsity"):
        mask = np.ones(variable.shape, dtype=bool)
        mask[tuple(a["sparsity"])] = False
        out.append(plain[mask] == 0)
    return out


class RecordCones:
    """The loss of one record as a cone program in which data are Parameters, and so all records at once.

    Largest affine parts become P @ theta + q, and largest parts without variables a Parameter s of their sign. Where such a
    part multiplies a function, the function becomes an unknown of its own, bounded by it, so that the program stays linear in
    its Parameters (CVXPY's DPP): one sparse product gives the numbers of all records.

    Parameters
    ----------
    program : Program
        With data.
    values : dict
        Hyperparameters by CVXPY id.
    walker : Walker
    binder : Binder
        Bound to the records.
    """

    def __init__(self, program, values, walker, binder):
        refuse_approximations(program.expression)
        self.program, self.walker, self.binder = program, walker, binder
        self.parameters, self.constraints = [], []
        self.theta = cp.Variable(binder.n)
        fixed = {id(p): cp.Constant(values[p.id]) for p in program.hyperparameters}
        self.data = {id(p) for p in program.data}
        expression = rebuilt(program.expression, fixed | numbers(program.expression, fixed, self.data))
        self.variables = {
            id(v): with_sign(v, cp.reshape(self.theta[program.layout.slices[v.name()]], v.shape, order="C"))
            for v in program.variables
        }
        try:
            self.expression = self._copied(expression)
        except Exception as error:  # CVXPY takes no Parameter where it takes the numbers
            raise NoOracleError(
                f"{program.what} has no cone program that is linear in the data ({type(error).__name__}: {error})"
            ) from error

    def cones(self, weight, segments):
        """All records' functions as `Cones`, weighted."""
        problem = cp.Problem(cp.Minimize(self.expression), self.constraints)
        if not problem.is_dpp():
            raise NoOracleError(f"{self.program.what} has no cone program that is linear in the data")
        for parameter, _ in self.parameters:
            parameter.value = np.full(parameter.shape, -1.0 if parameter.is_nonpos() else 1.0)
        form = canonical(problem, self.program.what)
        parametrised, n, N = form["param_prob"], self.binder.n, segments.N
        size, m = len(form["c"]), len(form["b"])
        theta = parametrised.var_id_to_col[self.theta.id] + np.arange(n)
        place, numbers_ = column_order(theta, size), self._numbers(parametrised, N)
        row, column, values = _entries(parametrised.A, m, numbers_)
        b, in_A = np.zeros((N, m)), column < size
        b[:, row[~in_A]] = values[:, ~in_A]
        _, column_c, slopes = _entries(parametrised.q, 1, numbers_)
        c = np.zeros((N, size + 1))
        c[:, column_c] = slopes
        quadratic = Matrix(*np.zeros((2, 0), dtype=int), np.zeros((1, 0)))
        if parametrised.P is not None:
            i, j, curvature = _entries(parametrised.P, size, numbers_)
            upper = i <= j
            quadratic = Matrix(place[i[upper]], place[j[upper]], curvature[:, upper])
        c = c[:, :size][:, np.argsort(place)]
        found = Cones(
            n=n,
            size=size,
            kinds=cone_kinds(form["dims"]),
            A=Matrix(row[in_A], place[column[in_A]], -values[:, in_A]),
            P=quadratic,
            b=b,
            c=c,
            strata=segments.index,
        )
        return found.scaled(weight)

    def _copied(self, e):
        """The expression in theta and Parameters."""
        if id(e) in self.variables:
            return self.variables[id(e)]
        if not e.parameters():
            return rebuilt(e, self.variables)
        if not e.variables():
            return self._factor(e)
        form = self.walker(e)
        if not self.binder.kinds(form)[1].any():
            return self._affine(form, e)
        if isinstance(e, (atoms.multiply, atoms.MulExpression, atoms.DivExpression)):
            return self._product(e)
        if (
            isinstance(e, (atoms.QuadForm, atoms.MatrixFrac))
            and e.args[0].ndim == 1
            and not e.args[1].variables()
        ):
            return self._quadratic(e)
        return e.copy([self._copied(a) for a in e.args])

    def _factor(self, e):
        values = self.binder.evaluator.form(self.walker(e))
        sign = {"nonneg": bool((values >= 0).all()), "nonpos": bool((values <= 0).all())}
        if all(sign.values()):
            sign["nonpos"] = False
        return self._parameter(e.shape, values, **sign)

    def _quadratic(self, e):
        """uᵀ S u or uᵀ S⁻¹ u with a matrix S of each record: the squares of R u, where Rᵀ R is S or its inverse."""
        P, q = self._rows(self.walker(e.args[0]))
        S = self.binder.evaluator.form(self.walker(e.args[1])).reshape(-1, *e.args[1].shape)
        values, vectors = np.linalg.eigh(0.5 * (S + S.swapaxes(1, 2)))
        root = np.sqrt(np.maximum(values, 0.0))
        R = (1.0 / root if isinstance(e, atoms.MatrixFrac) else root)[..., None] * vectors.swapaxes(1, 2)
        offset = np.matmul(R, q[..., None])[..., 0]
        u = self._parameter(P.shape[1:], np.matmul(R, P)) @ self.theta + self._parameter(q.shape[1:], offset)
        return cp.sum_squares(u)

    def _affine(self, form, e):
        """P @ theta + q, of the shape of e."""
        P, q = self._rows(form)
        u = self._parameter(P.shape[1:], P) @ self.theta
        if q.any():
            u = u + self._parameter(q.shape[1:], q)
        return cp.reshape(u, e.shape, order="C")

    def _rows(self, form):
        """P (R, m, n) and q (R, m) of an affine form P @ theta + q, R the number of records or 1."""
        binder, m = self.binder, form.size
        if binder.kinds(form)[1].any():
            raise NoOracleError(f"{self.program.what} has a quadratic form of an argument that is not affine")
        variable, _, rest = binder.kinds(form)
        part = form.where(variable)
        terms = binder.evaluator.terms(part)
        terms = terms.toarray() if sp.issparse(terms) else np.asarray(terms)
        P = np.zeros((len(terms), m, binder.n))
        np.add.at(P, (slice(None), part.row, binder.flat(part.column)), terms)
        q = binder.evaluator.form(form.where(rest)) if rest.any() else np.zeros((1, m))
        return P, np.asarray(q)

    def _product(self, e):
        """A product of a part without variables and a function, which becomes an unknown."""
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

    def _parameter(self, shape, values, **sign):
        parameter = cp.Parameter(shape, **sign)
        self.parameters.append((parameter, np.asarray(values, dtype=float).reshape(-1, *shape)))
        return parameter

    def _numbers(self, parametrised, N):
        """All Parameters' values in the order of the parametrised program, with a last row of ones, (params + 1, N)."""
        out = np.ones((parametrised.total_param_size + 1, N))
        for parameter, values in self.parameters:
            start = parametrised.param_id_to_col.get(parameter.id)
            if start is not None:
                axes = (*range(values.ndim - 1, 0, -1), 0)  # Fortran order of the entries, records last
                flat = values.transpose(axes).reshape(-1, len(values))
                out[start : start + parameter.size] = flat
        return out


def _entries(tensor, m, numbers_):
    """Rows and columns of a parametrised matrix's entries, and their values (N, entries) or (1, entries)."""
    tensor = sp.csr_array(tensor)
    flat = np.flatnonzero(np.diff(tensor.indptr))
    varying = np.isin(np.arange(tensor.shape[1] - 1), tensor.indices).any()
    values = tensor[flat] @ (numbers_ if varying else numbers_[:, :1])
    column, row = np.divmod(flat, m)
    return row, column, np.asarray(values).T
