"""The prox of what has no closed form: canonicalised once by CVXPY, then solved directly and warm by Clarabel."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.convexity import numbers, rebuilt, with_sign
from strat.errors import NoOracleError


class FallbackProx:
    """argmin_z f(z) + ‖z − v‖²/(2t) over the constraints, one interior-point solve a stratum.

    The step and the point enter a cone program only through a diagonal and the linear term, so the program is built
    once and its solver object is updated: no CVXPY in a call.

    Parameters
    ----------
    program : Program
        Without data.
    values : dict
        Hyperparameters by CVXPY id.
    """

    kind = "Clarabel, one solve a stratum"

    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, program, values):
        plain = {v.name(): cp.Variable(v.shape, name=v.name()) for v in program.variables}
        own = {id(v): with_sign(v, plain[v.name()]) for v in program.variables}
        own |= {id(p): cp.Constant(values[p.id]) for p in program.hyperparameters}

        def copied(e):
            return rebuilt(e, own | numbers(e, own))

        constraints = [c.copy([copied(a) for a in c.args]) for c in program.constraints]
        for v in program.variables:
            constraints += attribute_constraints(v, plain[v.name()])
        # A fixed quadratic in every variable keeps all of them in the canonical form, with P diagonal there.
        near = 0.5 * sum(cp.sum_squares(x) for x in plain.values())
        problem = cp.Problem(cp.Minimize(copied(program.expression) + near), constraints)
        data, _, _ = problem.get_problem_data(cp.CLARABEL)
        self.q = np.asarray(data["c"], dtype=float)
        self.A, self.b, self.dims = sp.csc_array(data["A"]), np.asarray(data["b"], dtype=float), data["dims"]
        self.columns = self._columns(data["param_prob"].var_id_to_col, program, plain)
        self.what = program.what
        self._quadratic(sp.csc_array(data["P"]))
        self._solver = None

    def _quadratic(self, P):
        """Split the quadratic into t × own + near, both on one sparsity pattern (upper triangle)."""
        ones = np.zeros(len(self.q))
        ones[self.columns] = 1.0
        near = sp.csc_array(sp.diags_array(ones))
        own = sp.csc_array(sp.triu(P - near))
        pattern = sp.csc_array(abs(own) + near)
        rows, columns = sp.coo_array(pattern).coords
        self.pattern = pattern
        self.own, self.near = np.asarray(own[rows, columns]), np.asarray(near[rows, columns])

    @staticmethod
    def _columns(starts, program, plain):
        """Column of each coordinate of theta in the cone program (whose variables are in Fortran order)."""
        parts = []
        for v in program.variables:
            order = np.arange(v.size).reshape(v.shape, order="F").reshape(-1)
            parts.append(starts[plain[v.name()].id] + order)
        return np.concatenate(parts)

    def __getstate__(self):
        return {**self.__dict__, "_solver": None}

    def __call__(self, v, t):
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        return np.stack([self._solve(row, step) for row, step in zip(v, t, strict=True)])

    def _solve(self, v, t):
        # Scaled by t, so that the proximal term is ½‖z‖² − vᵀz whatever the step, and the rest is t times f.
        P, q = t * self.own + self.near, t * self.q
        q[self.columns] -= v
        if self._solver is None:
            self._solver = self._made(P, q, 1e-14)
        else:
            self._solver.update(P=P, q=q)
        solution = self._solver.solve()
        for gap in (
            1e-11,
            1e-8,
        ):  # some points do not allow the smallest gap, or not from the scaling of another
            if _accurate(solution):
                break
            self._solver = None
            solution = self._made(P, q, gap).solve()
        if not _accurate(solution):
            raise NoOracleError(
                f"the prox of {self.what} could not be computed: the solver Clarabel reports {solution.status}. "
                f"Check that the constraints can be satisfied."
            )
        return np.asarray(solution.x)[self.columns]

    def _made(self, P, q, gap):
        import clarabel  # comes with CVXPY

        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_iter = False, 200
        # An updated solver must keep its size.
        settings.presolve_enable = settings.chordal_decomposition_enable = False
        # Where a constraint holds with equality and no force, the error is the root of the gap; a tolerance on
        # feasibility below rounding would stop the solver before the gap closes.
        settings.tol_gap_abs = settings.tol_gap_rel = gap
        settings.tol_feas = 1e-10
        matrix = sp.csc_array((P, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)
        return clarabel.DefaultSolver(matrix, q, self.A, self.b, _cones(clarabel, self.dims), settings)


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


def _cones(clarabel, dims):
    """Clarabel's cones of CVXPY's cone dimensions."""
    cones = []
    if dims.zero:
        cones.append(clarabel.ZeroConeT(dims.zero))
    if dims.nonneg:
        cones.append(clarabel.NonnegativeConeT(dims.nonneg))
    cones += [clarabel.SecondOrderConeT(d) for d in dims.soc]
    cones += [clarabel.PSDTriangleConeT(d) for d in dims.psd]
    cones += [clarabel.ExponentialConeT() for _ in range(dims.exp)]
    cones += [clarabel.PowerConeT(alpha) for alpha in dims.p3d]
    return cones
