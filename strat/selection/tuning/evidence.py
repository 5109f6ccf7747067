"""The evidence of training records for edge weights: the marginal likelihood, by Laplace's approximation.

The weight of an edge of axis a for coefficient c is its own weight times a number T_ac. With L_c the Laplacian of coefficient
c and R_c the curvature of the regularizer, the prior of coefficient c over the strata has the precision A_c = L_c + R_c I, and
the posterior the precision H = (Hessian of the losses) + R + L. At the fit, where the objective is F, and up to a constant,

    log evidence = - F + ½ Σ_c log det⁺ A_c - ½ log det H.

det⁺ is the product of the eigenvalues that are not 0: an improper prior, such as that of a free intercept, has an eigenvalue 0
for each component of the graph. With a quadratic loss the noise has an unknown variance φ/2: F becomes
F/φ + ½ (residuals - improper directions) log φ, with φ at its optimum.
"""

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from strat.compiler.walk import AtomNode
from strat.errors import GraphError, NoOracleError, OptionError
from strat.model.fit import Refits
from strat.model.linearization import Linearization
from strat.oracles.base import hessian_blocks
from strat.oracles.sparse_cholesky import inverse_entries
from strat.problem.edges import EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.records.strata import Strata
from strat.rules import text
from strat.solvers import NewtonCG
from strat.solvers.starts import solve

RECORDS = 20  # most records whose Hessians are used to count the residuals of a record
ACCURATE = 1e-8  # residual of a fit that is good enough to be differentiated
STEP = 2e-4  # step of the differences of Hessians, in units of the parameters' uncertainty


class Evidence:
    """Log evidence of some records and its gradient, as functions of the logarithms x of multipliers of the numbers T_ac."""

    def __init__(self, model, prior, part):
        fits = clone(model).set_params(graph=prior, solver=NewtonCG())
        self.bound_model = Refits(fits, part.data, part.strata).bound_model
        self.problem = problem = self.bound_model.problem()
        positive, weight = prior.weights(model.scale) > 0, prior.scaled_terms(model.scale)
        self.edges = EdgeList(prior.K, prior.i[positive], prior.j[positive])
        codes = [prior.factors.index(axis) if axis is not None else -1 for axis in axes(prior)]
        terms = [np.bincount(prior.term_edge, weight * (prior.term_factor == code)) for code in codes]
        self.terms = terms = np.stack(terms)[:, positive]  # (A, E): weights by axis and edge, at the start
        self.table, self.ridge, self.w = table_of(model, prior), ridge_of(model), terms.sum(axis=0)
        self.residuals = None  # the number of squared residuals, by the mean rank of a few records' Hessians
        if problem.loss.quadratic:
            N = len(self.bound_model.records.weight)
            few = np.linspace(0, N - 1, min(N, RECORDS)).astype(int)
            arrays, each = [array[few] for array in self.bound_model.records.arrays], np.arange(len(few))
            bind = model.base.loss_program.bind_records
            oracle = bind(arrays, Strata(range(len(few)), each), np.ones(len(few)), model._values)
            blocks = hessian_blocks(oracle, np.zeros((len(few), problem.n)))
            self.residuals = N * float(np.mean(np.linalg.matrix_rank(blocks, hermitian=True)))
        self.varied = np.flatnonzero(self.table.any(axis=0))  # the coupled coefficients
        self.shape = len(terms), len(self.varied)  # of x: axes and coupled coefficients
        self.theta, self._index = None, np.arange(problem.K * problem.n).reshape(problem.K, problem.n)
        # Where the prior is improper, the first stratum of each component gets a precision s, which does not affect
        # differences within the component: det⁺ is the determinant with s, times the component's size, divided by s.
        self._pinned, self._log_det = np.zeros((problem.K, problem.n)), 0.0
        component = problem.laplacians(problem.w0).components
        for c in np.flatnonzero(self.ridge == 0):
            first, size = np.unique(component[:, c], return_index=True, return_counts=True)[1:]
            self._pinned[first, c] = s = (terms.T @ self.table[:, c]).mean() or 1.0
            self._log_det += np.log(size / s).sum()

    def at(self, x):
        """The table T, (A, n), for the logarithms x (A, m) of the multipliers of its coupled coefficients."""
        table = self.table.copy()
        table[:, self.varied] *= np.exp(x)
        return table

    def fit(self, x):
        """The linearised optimality conditions at the fit for x; the next fit starts there."""
        couple = self.terms.T @ self.at(x) / self.w[:, None]
        oracles = self.problem.loss, self.problem.regularizer
        problem = JointProblem(*oracles, FixedGraph(), self.edges, self.w, couple)
        problem.start_point = self.problem.start_point
        start = None if self.theta is None else {"theta": self.theta}
        fit = Linearization(problem, solve(problem, NewtonCG(), start).theta, self.w)
        if not fit.residual <= ACCURATE:
            raise np.linalg.LinAlgError(f"the fit was not solved accurately: {fit.residual:.1e}")
        self.theta = fit.theta
        return fit

    def __call__(self, x):
        """Log evidence at x (A, m), and its gradient (A, m)."""
        fit = self.fit(x)
        theta, problem = fit.theta, fit.problem
        laplacians = problem.laplacians(self.w)
        blocks = hessian_blocks(problem.loss, theta) + hessian_blocks(problem.regularizer, theta)
        i, j = self.edges.ends
        log_det, C, across = self._inverse(sp.block_diag(list(blocks)), laplacians, theta.shape[1])
        variance = np.einsum("kcc->kc", C)
        precisions = sp.diags_array((self.ridge + self._pinned).ravel())
        prior_log_det, prior, between = self._inverse(precisions, laplacians, 1)
        prior = prior[i, :, 0] + prior[j, :, 0] - 2 * between
        objective, precision = problem.objective(theta, self.w), 1.0
        value = 0.5 * (prior_log_det + self._log_det - log_det)
        if self.residuals is None:
            value -= objective
        else:
            freedom = self.residuals - np.count_nonzero(self._pinned)
            if not (freedom > 0 and objective > 0):
                raise np.linalg.LinAlgError("too few residuals remain to estimate the noise")
            precision = freedom / (2 * objective)  # 1 / φ
            value -= 0.5 * freedom * (1 - np.log(precision))
        # With M[e] = M_ii + M_jj - 2 M_ij at an edge e = (i, j), twice the derivative in its weight for coefficient c is
        # A_c⁺[e] - (theta_i - theta_j)² / φ - H⁻¹[e], plus what the change of the fit does to the Hessian of the loss.
        gap = theta[i] - theta[j]
        slope = prior - precision * gap**2 - (variance[i] + variance[j] - 2 * across)
        if not problem.loss.quadratic:
            v = fit.solve(self._hessian_slope(problem.loss, theta, C, blocks, laplacians.degrees))
            slope += (v[i] - v[j]) * gap
        gradient = 0.5 * self.at(x) * (self.terms @ slope)
        return float(value), gradient[:, self.varied]

    def _inverse(self, precisions, laplacians, width):
        """Log det of precisions + Laplacians, and of the inverse the diagonal blocks (`width` columns) and edges' entries."""
        (K, n), (i, j), index = self._index.shape, self.edges.ends, self._index
        rows, columns = np.repeat(index, width, axis=1), np.tile(index, width) if width == n else index
        rows, columns = np.r_[rows.ravel(), index[i].ravel()], np.r_[columns.ravel(), index[j].ravel()]
        log_det, entries = inverse_entries(sp.csr_array(precisions + laplacians.matrix()), rows, columns)
        blocks, between = np.split(entries, [K * n * width])
        return log_det, blocks.reshape(K, n, width), between.reshape(-1, n)

    def _hessian_slope(self, loss, theta, C, blocks, degrees):
        """The gradient in theta of Σ_k ⟨C_k, Hessian of loss k⟩ at fixed C, by central differences."""
        curvature = np.einsum("kcc->kc", blocks) + degrees
        steps = STEP / np.sqrt(np.maximum(curvature, 1e-300))
        out = np.empty_like(theta)
        for c in range(theta.shape[1]):
            move = steps * (np.arange(theta.shape[1]) == c)
            blocks = hessian_blocks(loss, theta + move) - hessian_blocks(loss, theta - move)
            out[:, c] = np.einsum("kab,kab->k", C, blocks) / (2 * steps[:, c])
        return out


def axes(prior):
    """The factors, followed by None if some edges have no factor."""
    return (*prior.factors, None) if (prior.term_factor < 0).any() else prior.factors


def table_of(model, prior):
    """Weights of every coefficient in ``couple`` on the edges of every axis, (A, n)."""
    return np.stack([model.base.couple_weights(model._values, axis) for axis in axes(prior)])


def check(model, prior):
    """Raise an error if the evidence is not defined, or there is no weight to scale."""
    base = model.base
    atoms = (node for node in base.loss_program.symbols.nodes if isinstance(node, AtomNode))
    jumps = [n for n in atoms if n.rule.curvature == "jumps" or n.rule.kinks_of(n.forms) != "none"]
    if base.smoothing is not None or jumps:
        what = "kinks that smoothing= rounds off" if base.smoothing is not None else text(jumps[0].expression)
        what = f"a loss with third derivatives, but the second derivatives of {what} jump. Tune by held-out loss."
        raise NoOracleError(f'method="evidence" needs {what}')
    attributes = (a for v in base.regularizer_program.variables for a in v.attributes.values())
    given = (a for a in attributes if not (a is None or a is False or sp.issparse(a) or np.size(a) == 0))
    if base.regularizer_program.constraints or any(True for _ in given):
        raise NoOracleError(
            'method="evidence" reads the regularizer as minus the logarithm of a Gaussian prior, which constraints and '
            "attributes of variables, such as bounds, cut. Leave them out, or tune by held-out loss."
        )
    ridge_of(model)
    weights = prior.weights(model.scale)
    names = [f"the factor {name!r}" for name in prior.factors] or ["the graph"]
    for code, name in enumerate(names, start=0 if prior.factors else -1):
        if not weights[prior.term_edge[prior.term_factor == code]].any():
            what = f"multiplies weights, but all those of {name} are 0. Give it a positive scale."
            raise GraphError(f'method="evidence" {what}')
    without_factor = prior.factors and (prior.term_factor < 0).any()
    if without_factor and not isinstance(model.scale, dict) and model.scale != 1:
        raise OptionError(
            'method="evidence" keeps the weights of edges without a factor, but scale= multiplies them; give a dict by factor.'
        )
    if not table_of(model, prior).any():
        raise OptionError('method="evidence": couple= uncouples every variable, so that no weight is left.')


def ridge_of(model):
    """The regularizer's curvature (n,), where it is a sum of squares of single coefficients."""
    regularizer = model.base.regularizer_program.bind_regularizer(model._values)
    if not regularizer.has("hessian_operator"):
        reason = regularizer.missing("hessian_operator")
    elif not regularizer.quadratic:
        reason = "its curvature is not the same everywhere"
    else:
        n = model.base.layout.n
        H = np.broadcast_to(hessian_blocks(regularizer, np.zeros((1, n)))[0], (n, n))
        ridge = np.diag(H).copy()
        if np.abs(H - np.diag(ridge)).max(initial=0.0) <= 1e-12 * ridge.max(initial=0.0):
            return ridge
        reason = "it ties several coefficients together"
    raise NoOracleError(
        'method="evidence" takes regularizers that are sums of squares of single coefficients, such as '
        f"lam * cp.sum_squares(theta), or none; of this one, {reason}. Tune by held-out loss."
    )
