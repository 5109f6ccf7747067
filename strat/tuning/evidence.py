"""The evidence of training records for scales and couplings: the marginal likelihood, by Laplace's approximation.

With coefficient c coupled by p_c, G the Laplacian of the scaled graph and R_c the curvature of the regularizer, the prior of
coefficient c over the strata has the precision A_c = p_c G + R_c I, and the records leave the precision H = (Hessian of the
losses) + R + G ⊗ diag(p). At the fit, where the objective is F, and up to a constant,

    log evidence = - F + ½ Σ_c log det⁺ A_c - ½ log det H.

det⁺ leaves the eigenvalues 0 of an improper prior out (a free intercept: one for each component of the graph). Losses that are
squares have a noise of unknown size φ/2: F becomes F/φ + ½ (residuals - improper directions) log φ, with φ at its optimum.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from strat.graph_regularizers import FixedGraph
from strat.linearization import Linearization, hessian_blocks
from strat.problem import JointProblem
from strat.selected_inverse import inverse_entries
from strat.solvers import NewtonCG
from strat.starts import solve

ACCURATE = 1e-8  # residual of a fit that is good enough to be differentiated
STEP = 2e-4  # of the differences of Hessians, in units of the parameters' uncertainty


class Evidence:
    """Log evidence and its gradient, as functions of multipliers of scales and couplings.

    Parameters
    ----------
    problem : JointProblem
        With a fixed graph, a smooth loss, and a regularizer that is a quadratic of single coefficients.
    terms : (F, E) ndarray
        The weights of each factor on the edges at the start; edges' weights without a factor are `fixed`, (E,).
    fixed : (E,) ndarray
        See `terms`.
    ridge : (n,) ndarray
        R, the regularizer's curvature.
    residuals : float or None
        Number of squared residuals of a loss of squares, None for other losses.

    Attributes
    ----------
    varied : ndarray of int
        The coupled coefficients.
    size : int
        Length of x: the logarithms of the multipliers of the F scales, and of the couplings of `varied`.
    """

    def __init__(self, problem, terms, fixed, ridge, residuals=None):
        self.terms, self.fixed, self.ridge, self.residuals = terms, fixed, ridge, residuals
        self.problem, self.edges = problem, problem.edges
        self.couple = np.ones(problem.n) if problem.couple is None else problem.couple
        self.varied = np.flatnonzero(self.couple > 0)
        self.size = len(terms) + len(self.varied)
        self.theta = None
        K, n = problem.K, problem.n
        self._starts = np.arange(0, K * n + 1, n)
        index = np.arange(K * n).reshape(K, n)
        i, j = self.edges.ends
        self._rows = np.r_[np.repeat(index, n, axis=1).ravel(), index[i].ravel()]
        self._columns = np.r_[np.tile(index, n).ravel(), index[j].ravel()]

    def at(self, x):
        """Edge weights (E,) and couplings (n,)."""
        scales, couple = np.exp(x[: len(self.terms)]), self.couple.copy()
        couple[self.varied] *= np.exp(x[len(self.terms) :])
        return self.fixed + scales @ self.terms, couple

    def fit(self, x):
        """The linearised optimality conditions at the fit, which is where the next one starts."""
        w, couple = self.at(x)
        problem = JointProblem(
            self.problem.loss, self.problem.regularizer, FixedGraph(), self.edges, w, couple
        )
        problem.start_point = self.problem.start_point
        start = None if self.theta is None else {"theta": self.theta}
        found = Linearization(problem, solve(problem, NewtonCG(), start).theta, w)
        if not found.residual <= ACCURATE:
            raise np.linalg.LinAlgError(f"the fit was not solved accurately: {found.residual:.1e}")
        self.theta = found.theta
        return found

    def __call__(self, x):
        """Log evidence and its gradient in x."""
        w, couple = self.at(x)
        found = self.fit(x)
        theta, problem = found.theta, found.problem
        blocks = hessian_blocks(problem.loss, theta) + hessian_blocks(problem.regularizer, theta)
        log_det, C, across = self._inverse(blocks, w, couple)
        prior_log_det, rank, prior = self._prior(w, couple)
        objective, shrink = problem.objective(theta, w), 1.0
        value = 0.5 * prior_log_det - 0.5 * log_det
        if self.residuals is None:
            value -= objective
        else:
            freedom = self.residuals - (theta.size - rank)
            if not (freedom > 0 and objective > 0):
                raise np.linalg.LinAlgError("the residuals leave nothing to tell the noise from")
            shrink = freedom / (2 * objective)  # 1 / phi
            value -= 0.5 * freedom * (1 - np.log(shrink))
        # The derivative in the weight of edge e for coefficient c, for all of them.
        i, j = self.edges.ends
        gap, own = theta[i] - theta[j], np.einsum("kcc->kc", C)
        slope = prior - shrink * gap**2 - (own[i] + own[j] - 2 * across)
        if not getattr(problem.loss, "quadratic", False):
            v = found.solve(self._bend(problem.loss, theta, C, blocks, found.degrees[:, None] * couple))
            slope += (v[i] - v[j]) * gap
        slope *= 0.5 * couple
        scales = np.exp(x[: len(self.terms)])
        gradient = np.r_[scales * (self.terms @ slope.sum(axis=1)), (w @ slope)[self.varied]]
        return float(value), gradient

    def _inverse(self, blocks, w, couple):
        """Log det of H, the diagonal blocks of its inverse, and its entries (E, n) between the ends of the edges."""
        (K, n), E = blocks.shape[:2], len(w)
        i, j = self.edges.ends
        W = sp.coo_array((np.r_[w, w], (np.r_[i, j], np.r_[j, i])), shape=(K, K)).tocsr()
        laplacian = sp.diags_array(W.sum(axis=1)) - W
        A = sp.csr_array(
            sp.block_diag(list(blocks), format="csr") + sp.kron(laplacian, sp.diags_array(couple))
        )
        log_det, entries = inverse_entries(A, self._starts, self._rows, self._columns)
        return log_det, entries[: K * n * n].reshape(K, n, n), entries[K * n * n :].reshape(E, n)

    def _prior(self, w, couple):
        """Σ log det⁺ A_c, the rank of the prior, and (E, n) quadratic forms of A_c⁺ at the edges."""
        i, j = self.edges.ends
        g, U = eigh(self.edges.dense_laplacian(w))
        W = sp.coo_array((w, (i, j)), shape=(self.problem.K,) * 2)
        components = sp.csgraph.connected_components(W.tocsr(), directed=False)[0]
        g = np.maximum(g, 0.0)
        g[:components] = 0.0
        A = g[:, None] * couple + self.ridge
        proper = A > 0
        squares = (U[i] - U[j]) ** 2
        inverse = np.where(proper, 1 / np.where(proper, A, 1.0), 0.0)
        return float(np.log(A[proper]).sum()), int(proper.sum()), squares @ inverse

    def _bend(self, loss, theta, C, blocks, graph):
        """The gradient in theta of Σ_k ⟨C_k, Hessian of loss k⟩ at fixed C, by central differences."""
        own = np.einsum("kcc->kc", blocks) + graph
        steps = STEP / np.sqrt(np.maximum(own, 1e-300))
        out = np.empty_like(theta)
        for c in range(theta.shape[1]):

            def at(times, c=c):
                moved = theta.copy()
                moved[:, c] += times * steps[:, c]
                return np.einsum("kab,kab->k", C, hessian_blocks(loss, moved))

            out[:, c] = (at(1) - at(-1)) / (2 * steps[:, c])
        return out
