"""The evidence of training records for edge weights: the marginal likelihood, by Laplace's approximation.

The weight of an edge of axis a for coefficient c is its own times a number T_ac. With L_c the Laplacian of coefficient c and
R_c the curvature of the regularizer, the prior of coefficient c over the strata has the precision A_c = L_c + R_c I, and the
records leave the precision H = (Hessian of the losses) + R + L. At the fit, where the objective is F, and up to a constant,

    log evidence = - F + ½ Σ_c log det⁺ A_c - ½ log det H.

det⁺ is the product of the eigenvalues that are not 0: an improper prior, such as that of a free intercept, has an eigenvalue 0
for each component of the graph. A loss of squares has noise of unknown variance φ/2: F becomes
F/φ + ½ (residuals - improper directions) log φ, with φ at its optimum.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri

from strat.derivatives.linearization import Linearization
from strat.oracles.base import hessian_blocks
from strat.oracles.sparse_cholesky import inverse_entries
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.solvers import NewtonCG
from strat.solvers.starts import solve

ACCURATE = 1e-8  # residual of a fit that is good enough to be differentiated
STEP = 2e-4  # of the differences of Hessians, in units of the parameters' uncertainty


class Evidence:
    """Log evidence and its gradient, as functions of multipliers of the numbers T_ac.

    Parameters
    ----------
    problem : JointProblem
        With a fixed graph, a smooth loss, and a regularizer that is a quadratic of single coefficients.
    terms : (A, E) ndarray
        The weights of each axis on the edges at the start, positive in sum.
    table : (A, n) ndarray
        T at the start.
    ridge : (n,) ndarray
        R, the regularizer's curvature.
    residuals : float or None
        Number of squared residuals of a loss of squares, None for other losses.
    """

    def __init__(self, problem, terms, table, ridge, residuals=None):
        self.terms, self.table, self.ridge, self.residuals = terms, table, ridge, residuals
        self.problem, self.edges, self.w = problem, problem.edges, terms.sum(axis=0)
        self.varied = np.flatnonzero(table.any(axis=0))  # the coupled coefficients
        self.shape = len(terms), len(self.varied)  # of x: axes and coupled coefficients
        self.theta = None
        K, n = problem.K, problem.n
        index = np.arange(K * n).reshape(K, n)
        i, j = self.edges.ends
        self._rows = np.r_[np.repeat(index, n, axis=1).ravel(), index[i].ravel()]
        self._columns = np.r_[np.tile(index, n).ravel(), index[j].ravel()]
        self._components = [self._component_of(used) for used in (terms.T @ table > 0).T]

    def _component_of(self, used):
        """Component (K,) of every stratum in the graph of some edges, those of positive weight for one coefficient."""
        i, j = (end[used] for end in self.edges.ends)
        links = sp.coo_array((np.ones(len(i)), (i, j)), shape=(self.problem.K,) * 2)
        return sp.csgraph.connected_components(links.tocsr(), directed=False)[1]

    def at(self, x):
        """The table T, (A, n), for the logarithms x (A, m) of the multipliers of its coupled coefficients."""
        table = self.table.copy()
        table[:, self.varied] *= np.exp(x)
        return table

    def fit(self, x):
        """The linearised optimality conditions at the fit, where the next fit starts."""
        couple = self.terms.T @ self.at(x) / self.w[:, None]
        problem = JointProblem(
            self.problem.loss, self.problem.regularizer, FixedGraph(), self.edges, self.w, couple
        )
        problem.start_point = self.problem.start_point
        start = None if self.theta is None else {"theta": self.theta}
        fit = Linearization(problem, solve(problem, NewtonCG(), start).theta, self.w)
        if not fit.residual <= ACCURATE:
            raise np.linalg.LinAlgError(f"the fit was not solved accurately: {fit.residual:.1e}")
        self.theta = fit.theta
        return fit

    def __call__(self, x):
        """Log evidence and its gradient in x, both of shape (A, m)."""
        fit = self.fit(x)
        theta, problem = fit.theta, fit.problem
        laplacians = problem.laplacians(self.w)
        blocks = hessian_blocks(problem.loss, theta) + hessian_blocks(problem.regularizer, theta)
        log_det, C, across = self._inverse(blocks, laplacians)
        prior_log_det, rank, prior = self._prior(laplacians)
        objective, precision = problem.objective(theta, self.w), 1.0
        value = 0.5 * prior_log_det - 0.5 * log_det
        if self.residuals is None:
            value -= objective
        else:
            freedom = self.residuals - (theta.size - rank)
            if not (freedom > 0 and objective > 0):
                raise np.linalg.LinAlgError("too few residuals remain to estimate the noise")
            precision = freedom / (2 * objective)  # 1 / φ
            value -= 0.5 * freedom * (1 - np.log(precision))
        # With M[e] = M_ii + M_jj - 2 M_ij at an edge e = (i, j), twice the derivative in its weight for coefficient c is
        # A_c⁺[e] - (theta_i - theta_j)² / φ - H⁻¹[e], plus what the change of the fit does to the Hessian of the loss.
        i, j = self.edges.ends
        gap, variance = theta[i] - theta[j], np.einsum("kcc->kc", C)
        slope = prior - precision * gap**2 - (variance[i] + variance[j] - 2 * across)
        if not getattr(problem.loss, "quadratic", False):
            v = fit.solve(self._hessian_slope(problem.loss, theta, C, blocks, laplacians.degrees))
            slope += (v[i] - v[j]) * gap
        gradient = 0.5 * self.at(x) * (self.terms @ slope)
        return float(value), gradient[:, self.varied]

    def _inverse(self, blocks, laplacians):
        """Log det of H, the diagonal blocks of its inverse, and its entries (E, n) between the ends of the edges."""
        K, n = blocks.shape[:2]
        A = sp.csr_array(sp.block_diag(list(blocks), format="csr") + laplacians.matrix())
        log_det, entries = inverse_entries(A, self._rows, self._columns)
        return log_det, entries[: K * n * n].reshape(K, n, n), entries[K * n * n :].reshape(-1, n)

    def _prior(self, laplacians):
        """Σ_c log det⁺ A_c, the rank of the prior, and (E, n) quadratic forms of A_c⁺ at the edges.

        Adding s times the projection on vectors that are constant over components makes A_c well conditioned. It adds s to
        their eigenvalue R_c, and changes no quadratic form at an edge.
        """
        i, j = self.edges.ends
        total, rank, forms = 0.0, 0, np.empty((len(i), self.problem.n))
        for c, (ridge, label) in enumerate(zip(self.ridge, self._components, strict=True)):
            A, degrees = np.zeros((len(label),) * 2), laplacians.degrees[:, c]
            size, s = np.bincount(label), degrees.mean() or 1.0
            together = label[:, None] == label
            A[together] = (s / size)[np.broadcast_to(label, together.shape)[together]]
            A[j, i] -= laplacians.entries[:, c]
            A.flat[:: len(A) + 1] += degrees + ridge
            factor, info = dpotrf(A, lower=1, overwrite_a=1)
            if info:
                raise np.linalg.LinAlgError("the prior is not positive definite")
            total += 2 * np.log(factor.diagonal()).sum() - len(size) * np.log(ridge + s)
            total += len(size) * np.log(ridge) if ridge > 0 else 0.0
            rank += len(label) - (0 if ridge > 0 else len(size))
            inverse = dpotri(factor, lower=1, overwrite_c=1)[0]
            forms[:, c] = inverse[i, i] + inverse[j, j] - 2 * inverse[j, i]
        return float(total), rank, forms

    def _hessian_slope(self, loss, theta, C, blocks, degrees):
        """The gradient in theta of Σ_k ⟨C_k, Hessian of loss k⟩ at fixed C, by central differences."""
        curvature = np.einsum("kcc->kc", blocks) + degrees
        steps = STEP / np.sqrt(np.maximum(curvature, 1e-300))
        out = np.empty_like(theta)
        for c in range(theta.shape[1]):

            def at(times, c=c):
                moved = theta.copy()
                moved[:, c] += times * steps[:, c]
                return np.einsum("kab,kab->k", C, hessian_blocks(loss, moved))

            out[:, c] = (at(1) - at(-1)) / (2 * steps[:, c])
        return out
