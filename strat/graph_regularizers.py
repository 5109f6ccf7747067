"""The graph regularizers h(W): their parameters, their CVXPY expression, and their numbers for the solvers."""

from numbers import Real

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from sklearn.base import BaseEstimator

from strat.errors import OptionError


class GraphRegularizer(BaseEstimator):
    """Base class: h(W) with W >= 0 and a zero diagonal.

    A subclass gives `validate`, `expression`, and, where W is learned, `slot`: an object that holds the numbers of h
    at one point (`set`, `gradient`, `curvature`, `scale`) in memory of its own.
    """

    learned = True

    def validate(self, joint=False):
        """Raise an OptionError if a parameter is out of its range; `joint`: if Theta is fitted together with W."""

    def constraints(self, W):
        """The constraints on W, as a list of CVXPY constraints."""
        import cvxpy as cp

        return [W >= 0, cp.diag(W) == 0]

    def feasible(self, edges, w):
        """Whether the weights w are in the domain of h, so that a solver may start there."""
        return bool(np.isfinite(self.slot(edges, edges.zeros()).set(w)))

    @staticmethod
    def prox(v, out):
        """Prox of the part of h that the gradient leaves out, here W >= 0; `v` may be `out`."""
        return np.maximum(v, 0.0, out=out)


class FixedGraph(GraphRegularizer):
    """The graph is given: W = W0, h = 0.

    Examples
    --------
    >>> from strat.graph_regularizers import FixedGraph
    >>> FixedGraph()
    FixedGraph()
    """

    learned = False

    def expression(self, W, W0=None):
        """h(W) = 0 as a CVXPY expression."""
        import cvxpy as cp

        return cp.Constant(0.0)

    def feasible(self, edges, w):
        """Every W may be given."""
        return True


class LogDet(GraphRegularizer):
    """h(W) = -lambda1 log det(mu I + G(W)) + lambda2 ((1 - eta)/2 ||W - W0||_F^2 + eta ||W||_1).

    Parameters
    ----------
    lambda1 : float, >= 0
        Weight of the log-determinant, which keeps the graph connected.
    lambda2 : float, >= 0
        Weight of the pull towards W0 and towards sparsity; > 0 where lambda1 > 0.
    eta : float, between 0 and 1
        Share of the l1 norm in that pull.
    mu : float, > 0
        Ridge that keeps mu I + G(W) positive definite.

    Examples
    --------
    >>> from strat.graph_regularizers import LogDet
    >>> LogDet(lambda1=5.0, lambda2=2e-3, eta=0.1, mu=0.2)
    LogDet(eta=0.1, lambda1=5.0, lambda2=0.002, mu=0.2)
    """

    def __init__(self, lambda1, lambda2, eta, mu):
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.eta = eta
        self.mu = mu

    @classmethod
    def from_bayes(cls, n, c1, c2, mu):
        """The MAP estimate under a Gaussian Markov random field prior.

        The prior is Theta | W ~ N(0, (mu I + G(W))^-1) for each of the n numbers of a stratum, and W with density
        proportional to exp(-c1/2 ||W||_F^2 - c2 ||W||_1), W >= 0; the prior graph W0 must be zero. The ridge
        (mu/2) ||theta_k||^2 that belongs to this prior is not part of h: add it to the model's regularizer.

        Parameters
        ----------
        n : int
            Numbers per stratum.
        c1, c2 : float, >= 0, not both zero
            Rates of the prior of W.
        mu : float, > 0
            Precision added to the graph's.

        Returns
        -------
        LogDet
            With lambda1 = n/2, lambda2 = c1 + c2, eta = c2 / (c1 + c2).
        """
        for name, value in (("n", n), ("c1", c1), ("c2", c2)):
            _check(name, value, "of at least 0", lambda v: v >= 0)
        _check("c1 + c2", c1 + c2, "above 0, or the prior of W would not be proper", lambda v: v > 0)
        return cls(lambda1=n / 2, lambda2=c1 + c2, eta=c2 / (c1 + c2), mu=mu)

    def validate(self, joint=False):
        """Raise an OptionError if a parameter is out of its range; `joint`: if Theta is fitted together with W."""
        _check("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        _check("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)
        _check("eta", self.eta, "between 0 and 1", lambda v: 0 <= v <= 1)
        _check("mu", self.mu, "above 0", lambda v: v > 0)
        if joint and self.lambda1 > 0:
            why = "above 0 where lambda1 > 0: otherwise equal parameters and W going to infinity lower the objective for ever"
            _check("lambda2", self.lambda2, why, lambda v: v > 0)

    def expression(self, W, W0=None):
        """h(W) as a CVXPY expression, without constraints.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K), symmetric
        W0 : ndarray, shape (K, K), optional
            The prior graph; zero by default.
        """
        import cvxpy as cp

        W = cp.Constant(W) if isinstance(W, np.ndarray) else W
        K = W.shape[0]
        W0 = np.zeros((K, K)) if W0 is None else W0
        M = self.mu * np.eye(K) + cp.diag(cp.sum(W, axis=1)) - W
        pull = (1 - self.eta) / 2 * cp.sum_squares(W - W0) + self.eta * cp.sum(cp.abs(W))
        return -self.lambda1 * cp.log_det(M) + self.lambda2 * pull

    def slot(self, edges, w0, outside=0.0):
        """Make memory for h and its derivatives at one point.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        w0 : edge array
            The prior graph on these edges.
        outside : float
            Sum of the squares of the prior graph's weights on other edges, where W is zero.

        Returns
        -------
        LogDetSlot
            The memory.
        """
        return LogDetSlot(self, edges, w0, outside)


class LogDetSlot:
    """LogDet at one point of the edge weights: one Cholesky factorisation serves value, gradient and curvature.

    The derivatives are those of `LogDet` in the weights w_e of the edges i < j; every edge stands twice in the matrix
    norms, hence the factors 2. On W >= 0 the l1 norm is linear, so that it belongs to the gradient.
    """

    def __init__(self, h, edges, w0, outside=0.0):
        self.edges, self.w0 = edges, w0
        self.constant = h.lambda2 * (1 - h.eta) * outside  # of the pull to W0 where W has no edge
        self.lambda1, self.mu = float(h.lambda1), float(h.mu)
        self.square, self.linear = 2.0 * h.lambda2 * (1 - h.eta), 2.0 * h.lambda2 * h.eta
        self._matrix = np.zeros((edges.K, edges.K), order="F")  # first the factor, then the inverse
        self._prior = bool(np.any(w0))
        self._pull = edges.zeros() if self._prior else None  # w - w0
        self.factorizations = self.inversions = 0

    def set(self, w, degrees=None):
        """Move to the weights w (and their degrees, where known) and return h(w), +inf outside the domain."""
        value, self._inverted, self._w, self._scale = 0.0, False, w, None
        degrees = self.edges.degrees(w) if degrees is None else degrees
        if self.lambda1:
            self.edges.precision(w, self.mu, degrees, out=self._matrix)
            info = dpotrf(self._matrix, lower=1, clean=0, overwrite_a=1)[1]
            self.factorizations += 1
            if info:
                return np.inf
            value = -2 * self.lambda1 * float(np.log(self._matrix.ravel("K")[:: self.edges.K + 1]).sum())
        if self._prior:
            np.subtract(w, self.w0, out=self._pull)
        else:
            self._pull = w
        value += self.square / 2 * self.edges.dot(self._pull, self._pull)
        self._total = float(degrees.sum()) / 2
        value += self.linear * self._total + self.constant
        return value if np.isfinite(value) else np.inf

    def gradient(self, out):
        """The gradient over the edges, written to out."""
        if not self.lambda1:
            np.multiply(self._pull, self.square, out=out)
            return self.edges.add_ends(np.full(self.edges.K, self.linear / 2), out)
        S, pull = self._inverse(), self._pull
        flat = self.edges.flat
        entries, g, pull = flat(self.edges.entries(S)), flat(out), flat(pull)
        for chunk in self.edges.chunks:
            np.multiply(entries[chunk], 2 * self.lambda1, out=g[chunk])
            g[chunk] += self.square * pull[chunk]
        return self.edges.add_ends(self.linear / 2 - self.lambda1 * S.diagonal(), out)

    def resistances(self, out):
        """rho_ij = (M^-1)_ii + (M^-1)_jj - 2 (M^-1)_ij, zero off the edges."""
        if not self.lambda1:
            out[...] = 0.0
            return out
        S = self._inverse()
        np.multiply(self.edges.entries(S), -2.0, out=out)
        out = self.edges.add_ends(S.diagonal().copy(), out)
        out *= self.edges.mask
        return out

    def curvature(self, out):
        """A diagonal that bounds the Hessian over the edges up to a modest factor, written to out.

        The Hessian of -log det has the entries A_ef = (b_e' S b_f)^2 >= 0, S = M^-1, so that A <= diag(A p / p) for any
        p > 0. With p = w + mu/K, A p = rho exactly; with p = w + s it is at most a multiple of rho that depends on how
        well the graph is connected. s near the mean weight lets edges of weight zero move, too.
        """
        rho = self.resistances(out)
        self._scale = self.lambda1 * self.edges.norm(rho)
        if self.lambda1:
            s = self.mu / self.edges.K + self._total / max(self.edges.count, 1)
            rho *= self.lambda1
            rho /= self._w + s
        rho += self.square
        return rho

    def scale(self):
        """Size of the terms that balance in the stationarity condition: lambda1 ||rho||."""
        if self._scale is None:
            self._scale = self.lambda1 * self.edges.norm(self.resistances(self.edges.zeros()))
        return self._scale

    def _inverse(self):
        if not self._inverted:
            dpotri(self._matrix, lower=1, overwrite_c=1)
            self.inversions += 1
            self._inverted = True
        return self._matrix


def _check(name, value, allowed, good):
    if not (isinstance(value, Real) and np.isfinite(value) and good(value)):
        raise OptionError(f"{name} = {value!r} is out of range: it must be a number {allowed}.")
