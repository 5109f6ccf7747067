"""The prox of what has no closed form: canonicalised once by CVXPY, then solved directly and warm by Clarabel."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.convexity import numbers, rebuilt, with_sign
from strat.errors import NoOracleError

#: Gaps asked for at first, in order, and then for the distance from the point found, and how often.
COARSE, ROUGH, FINE, REFINEMENTS = (1e-12, 1e-10, 1e-8), 1e-7, 1e-18, 4
#: Part of a gap that is asked for where the finest is out of reach.
REDUCED = 1e-3
#: Movement that ends the refinements, and what counts as no slack or no force.
ENOUGH = 1e-8


class FallbackProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, one interior-point solve a stratum.

    The step and the point enter a cone program only through a diagonal and the linear term, so the program is built
    once, by the first call, and its solver object is updated: no CVXPY in a call.

    Parameters
    ----------
    program : Program
        Without data.
    values : dict
        Hyperparameters by CVXPY id.
    columns : (L,) int ndarray or None
        The coordinates asked for, where other coordinates are not tied to them; None for all.
    inside : (n,) ndarray or None
        Where the other coordinates stay, a legal point; None lets them free, which costs more.
    box : (low, high) or None
        Bounds of the coordinates, which a solver keeps but for rounding: here they hold exactly.
    """

    kind = "Clarabel, one solve a stratum"
    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, program, values, columns=None, inside=None, box=None):
        self.program, self.values, self.box = program, values, box
        self.columns = np.arange(program.layout.n) if columns is None else columns
        self.inside = inside
        self.q, self._solvers, self._step = None, {}, 1.0

    def _prepare(self):
        """Canonicalise, by CVXPY."""
        program = self.program
        free = np.ones(program.layout.n, dtype=bool)
        if self.inside is not None:
            free[:] = False
            free[self.columns] = True
        unknowns, plain = {}, {}
        for v in program.variables:
            unknowns[v.name()], plain[v.name()] = self._written(v, free)
        own = {id(v): with_sign(v, plain[v.name()]) for v in program.variables}
        own |= {id(p): cp.Constant(self.values[p.id]) for p in program.hyperparameters}

        def copied(e):
            return rebuilt(e, own | numbers(e, own))

        constraints = [c.copy([copied(a) for a in c.args]) for c in program.constraints]
        for v in program.variables:
            constraints += attribute_constraints(v, plain[v.name()])
        constraints = [c for c in constraints if c.variables() or self.inside is None]
        unknowns = {name: x for name, x in unknowns.items() if x is not None}
        # A fixed quadratic in every variable keeps all of them in the canonical form, with P diagonal there.
        near = 0.5 * sum(cp.sum_squares(x) for x in unknowns.values())
        problem = cp.Problem(cp.Minimize(copied(program.expression) + near), constraints)
        try:
            data, _, _ = problem.get_problem_data(cp.CLARABEL)
        except Exception as error:
            raise NoOracleError(
                f"the prox of {program.what} needs a cone program, and CVXPY could not write it "
                f"({type(error).__name__}: {error}). Write it with other atoms, for example np.tril(np.ones((n, n))) @ x "
                f"for cp.cumsum(x), or leave parts out, which tells the one that CVXPY cannot write."
            ) from error
        self.q = np.asarray(data["c"], dtype=float)
        self.A, self.b, self.cones = without_empty_rows(sp.csr_array(data["A"]), data["b"], data["dims"])
        starts = data["param_prob"].var_id_to_col
        self.places = self._places({name: starts[x.id] for name, x in unknowns.items()}, free)
        self._quadratic(sp.csc_array(data["P"]))

    def _written(self, v, free):
        """The unknown of a variable, and the variable in terms of it."""
        where = self.program.layout.slices[v.name()]
        mine = free[where]
        if mine.all():
            x = cp.Variable(v.shape, name=v.name())
            return x, x
        fixed = np.where(mine, 0.0, self.inside[where])
        if not mine.any():
            return None, cp.Constant(fixed.reshape(v.shape))
        x = cp.Variable(int(mine.sum()), name=v.name())
        return x, cp.reshape(np.eye(v.size)[:, mine] @ x + fixed, v.shape, order="C")

    def _places(self, starts, free):
        """Column in the cone program (whose variables are in Fortran order) of each coordinate asked for."""
        place = np.full(len(free), -1)
        for v in self.program.variables:
            where = self.program.layout.slices[v.name()]
            mine = free[where]
            if mine.all():
                place[where] = starts[v.name()] + np.arange(v.size).reshape(v.shape, order="F").reshape(-1)
            elif mine.any():
                place[np.arange(where.start, where.stop)[mine]] = starts[v.name()] + np.arange(mine.sum())
        self.unknown = np.flatnonzero(free)
        return place[self.unknown]

    def _quadratic(self, P):
        """Split the quadratic into t × own + near, both on one sparsity pattern (upper triangle)."""
        ones = np.zeros(len(self.q))
        ones[self.places] = 1.0
        near = sp.csc_array(sp.diags_array(ones))
        own = sp.csc_array(sp.triu(P - near))
        pattern = sp.csc_array(abs(own) + near)
        rows, columns = sp.coo_array(pattern).coords
        self.pattern = pattern
        self.own, self.near = np.asarray(own[rows, columns]), np.asarray(near[rows, columns])
        self.both, self.ones = sp.csr_array(own + sp.triu(own, 1).T), ones

    def __getstate__(self):
        return {**self.__dict__, "_solvers": {}}

    def __call__(self, v, t):
        if self.q is None:
            self._prepare()
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        full = np.zeros((len(v), self.program.layout.n))
        full[:, self.columns] = v
        full = full[:, self.unknown]
        z = np.stack([self._solve(row, step) for row, step in zip(full, t, strict=True)])
        z = z[:, np.searchsorted(self.unknown, self.columns)]
        return z if self.box is None else np.clip(z, *self.box)

    def _solve(self, v, t):
        if t != self._step:  # a solver object keeps the scaling of its first numbers
            self._solvers, self._step = {}, t
        # Scaled by t, so that the proximal term is ½‖z‖² − vᵀz whatever the step, and the rest is t times f.
        P, q = t * self.own + self.near, t * self.q
        q[self.places] -= v
        solution = self._first(P, q)
        # Rounding may hide the gap that is left.
        x, gap = np.asarray(solution.x), max(_gap(solution), COARSE[0])
        if self._settled(solution):
            return x[self.places]
        # Where a constraint holds with equality and no force, the error is the root of the gap. Written in terms of
        # the distance from the point found, all numbers are small, and the gap can be closed far below rounding of q.
        for _ in range(REFINEMENTS):
            slope, rest, scale = q + t * (self.both @ x) + self.ones * x, self.b - self.A @ x, 1.0
            solution = self._made(P, slope, rest, FINE).solve()
            if not _accurate(
                solution
            ):  # then a part of the gap at a time, of numbers that are no longer small
                scale = 1.0 / np.sqrt(gap)
                solution = self._made(P, scale * slope, scale * rest, REDUCED, feasibility=1e-6).solve()
            if not (_accurate(solution) and _gap(solution) / scale**2 < gap):
                break
            moved = np.asarray(solution.x) / scale
            x, gap = x + moved, _gap(solution) / scale**2
            # The objective is strongly convex in z, so that the error is at most the root of twice the gap.
            if min(np.abs(moved[self.places]).max(), np.sqrt(2.0 * gap)) <= ENOUGH:
                break
        return x[self.places]

    def _first(self, P, q):
        """A solution to the usual accuracy."""
        solution = self._solver(P, q, self.b, COARSE[0]).solve()
        for gap in COARSE:  # some points do not allow the smallest gap, or not from the scaling of another
            if _accurate(solution):
                return solution
            self._solvers.pop(COARSE[0], None)
            solution = self._made(P, q, self.b, gap).solve()
        for gap in (COARSE[-1], ROUGH):  # nor, on the way to a gap, a feasibility that is almost rounding
            if _accurate(solution):
                return solution
            solution = self._made(P, q, self.b, gap, feasibility=1e-8).solve()
        if not _accurate(solution):
            raise NoOracleError(
                f"the prox of {self.program.what} could not be computed: the solver Clarabel reports {solution.status}. "
                f"Check that the constraints can be satisfied."
            )
        return solution

    def _settled(self, solution):
        """Whether each linear constraint is clearly slack or clearly held, which leaves an error of the gap's size."""
        if any(self.cones[name] for name in ("soc", "psd", "exp", "p3d")):
            return False
        slack, force = (np.asarray(part)[self.cones["zero"] :] for part in (solution.s, solution.z))
        return np.minimum(slack, force).max(initial=0.0) <= ENOUGH

    def _solver(self, P, q, b, gap):
        """The solver object for a gap, with these numbers."""
        if gap in self._solvers:
            self._solvers[gap].update(P=P, q=q, b=b)
        else:
            self._solvers[gap] = self._made(P, q, b, gap)
        return self._solvers[gap]

    def _made(self, P, q, b, gap, feasibility=1e-10):
        import clarabel  # comes with CVXPY

        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_iter = False, 200
        # An updated solver must keep its size.
        settings.presolve_enable = settings.chordal_decomposition_enable = False
        # A tolerance on feasibility below rounding would stop the solver before the gap closes.
        settings.tol_gap_abs = settings.tol_gap_rel = gap
        settings.tol_feas = feasibility
        matrix = sp.csc_array((P, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)
        return clarabel.DefaultSolver(matrix, q, self.A, b, _cones(clarabel, self.cones), settings)


def _gap(solution):
    """Between the primal and the dual objective."""
    return abs(solution.obj_val - solution.obj_val_dual)


def _accurate(solution):
    status = str(solution.status)
    close = max(solution.r_prim, solution.r_dual) <= 1e-8 and status == "InsufficientProgress"
    return status in ("Solved", "AlmostSolved") or close


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


def without_empty_rows(A, b, dims):
    """(A, b, sizes of the cones) without the rows that say nothing, which fixed coordinates leave behind."""
    b = np.asarray(b, dtype=float)
    linear = np.arange(len(b)) < dims.zero + dims.nonneg
    equal = np.arange(len(b)) < dims.zero
    holds = np.where(equal, np.abs(b), -b) <= 1e-9 * (1.0 + np.abs(b).max(initial=0.0))
    keep = ~(linear & holds & (np.diff(A.indptr) == 0))
    sizes = {name: getattr(dims, name) for name in ("soc", "psd", "exp", "p3d")}
    sizes |= {"zero": int(keep[equal].sum()), "nonneg": int(keep[linear & ~equal].sum())}
    return sp.csc_array(A[keep]), b[keep], sizes


def _cones(clarabel, sizes):
    """Clarabel's cones."""
    cones = []
    if sizes["zero"]:
        cones.append(clarabel.ZeroConeT(sizes["zero"]))
    if sizes["nonneg"]:
        cones.append(clarabel.NonnegativeConeT(sizes["nonneg"]))
    cones += [clarabel.SecondOrderConeT(d) for d in sizes["soc"]]
    cones += [clarabel.PSDTriangleConeT(d) for d in sizes["psd"]]
    cones += [clarabel.ExponentialConeT() for _ in range(sizes["exp"])]
    cones += [clarabel.PowerConeT(alpha) for alpha in sizes["p3d"]]
    return cones
