"""The log-determinant graph regularizer."""

import numpy as np
from scipy.linalg.blas import daxpy

from strat.problem.graph_regularizers.base import (
    NONNEGATIVE,
    POSITIVE,
    GraphOracle,
    GraphRegularizer,
    check_range,
)

SHARE = ("between 0 and 1", lambda value: 0 <= value <= 1)


class LogDetOracle(GraphOracle):
    """LogDet at one point of the edge weights, from one Cholesky factor of M = mu I + G(w); edges count twice in the norms:

    h(w) = -lambda1 log det M + lambda2 sum_e ((1 - eta) (w_e - w0_e)^2 + 2 eta w_e).
    """

    def __init__(self, h, edges, w0, outside=0.0):
        super().__init__(h, edges, w0, outside)
        self.square, self.linear = 2 * self.lambda2 * (1 - self.eta), 2 * self.lambda2 * self.eta
        self.constant = self.square / 2 * outside  # of the pull to W0 where W has no edge
        self._factor, self._pull = None, edges.zeros()  # w - w0

    def smooth(self):
        value, self._inverse, self._scale = 0.0, None, None
        if self.lambda1:
            self.factorizations += 1
            try:
                self._factor = self.edges.factor(self._w, self._degrees + self.mu, self._factor)
            except np.linalg.LinAlgError:
                return np.inf
            value = -self.lambda1 * self._factor.log_det
        np.subtract(self._w, self.w0, out=self._pull)
        self._total = float(np.add.reduce(self._degrees)) / 2
        self.ill_conditioned = 2 * self.lambda1 * self._total / (self.edges.K * self.mu)
        value += self.square / 2 * float(self._pull @ self._pull)
        return value + self.linear * self._total + self.constant

    def split_gradient(self, out):
        """The gradient over the edges is -lambda1 rho_e + 2 lambda2 ((1 - eta) (w_e - w0_e) + eta)."""
        diagonal, entries = self._inverted()
        np.multiply(entries, 2 * self.lambda1, out=out)
        if out.size:
            daxpy(self._pull, out, a=self.square)  # in place
        return self.linear / 2 - self.lambda1 * diagonal

    def resistances(self, out):
        """rho_ij = (M^-1)_ii + (M^-1)_jj - 2 (M^-1)_ij."""
        diagonal, entries = self._inverted()
        np.multiply(entries, -2.0, out=out)
        return self.edges.add_ends(diagonal, out)

    def curvature(self, out):
        """The Hessian of -log det has the entries A_ef = (b_e' S b_f)^2 >= 0, S = M^-1, so that A <= diag(A p / p) for any
        p > 0. With p = w + mu/K, A p = rho exactly; with p = w + s it is at most a multiple of rho that depends on how
        well the graph is connected. With s near the mean weight, edges of weight zero can move, too.
        """
        s = self.mu / self.edges.K + self._total / max(self.edges.count, 1)
        rho = self.resistances(out)
        self._scale = self.lambda1 * np.linalg.norm(rho)
        rho *= self.lambda1 / (self._w + s)
        rho += self.square or (1e-300 if self.lambda1 else 1.0)  # never zero, as it is divided by
        return rho

    def scale(self):
        """Size of the terms that balance the distances: lambda1 ||rho||."""
        if self._scale is None:
            self._scale = self.lambda1 * np.linalg.norm(self.resistances(self.edges.zeros()))
        return self._scale

    def _inverted(self):
        if self._inverse is None and self.lambda1:
            self._inverse = self._factor.inverse()
        return self._inverse or (np.zeros(self.edges.K), self.edges.zeros())


class LogDet(GraphRegularizer):
    """Log-determinant graph regularizer, which learns W.

    h(W) = -lambda1 log det(mu I + G(W)) + lambda2 ((1 - eta)/2 ||W - W0||_F^2 + eta ||W||_1), with W >= 0; norms are
    over the full matrix, so that every edge counts twice.

    Parameters
    ----------
    lambda1 : float, >= 0
        Weight of the log-determinant, which keeps the graph connected.
    lambda2 : float, >= 0
        Weight of the pull towards W0 and towards sparsity; > 0 where lambda1 > 0 and Theta is fitted, too.
    eta : float, between 0 and 1
        Share of the l1 norm in that pull.
    mu : float, > 0
        Ridge that keeps mu I + G(W) positive definite.

    Examples
    --------
    >>> from strat.problem.graph_regularizers import LogDet
    >>> LogDet(lambda1=5.0, lambda2=2e-3, eta=0.1, mu=0.2)
    LogDet(eta=0.1, lambda1=5.0, lambda2=0.002, mu=0.2)
    """

    _oracle_class = LogDetOracle
    _ranges = {"lambda1": NONNEGATIVE, "lambda2": NONNEGATIVE, "eta": SHARE, "mu": POSITIVE}
    _powers = {"lambda1": 1, "lambda2": 1}
    _falls_with_weights = True

    def __init__(self, lambda1: float, lambda2: float, eta: float, mu: float) -> None:
        self.lambda1, self.lambda2, self.eta, self.mu = lambda1, lambda2, eta, mu

    @classmethod
    def from_bayes(cls, n: int, c1: float, c2: float, mu: float) -> "LogDet":
        """Choose the constants of the MAP estimate under a Gaussian Markov random field prior.

        The prior is Theta | W ~ N(0, (mu I + G(W))^-1) for each of the n parameters of a stratum, and W has a density
        proportional to exp(-c1/2 ||W||_F^2 - c2 ||W||_1), W >= 0; the prior graph W0 must be zero. The ridge
        (mu/2) ||theta_k||^2 that belongs to this prior is not part of h: add it to the model's regularizer.

        Parameters
        ----------
        n : int
            Number of parameters of a stratum.
        c1, c2 : float, >= 0, not both zero
            Rates of the prior of W.
        mu : float, > 0
            Precision added to that of the graph.

        Returns
        -------
        LogDet
            With lambda1 = n/2, lambda2 = c1 + c2, eta = c2 / (c1 + c2).
        """
        for name, value in (("n", n), ("c1", c1), ("c2", c2)):
            check_range(name, value, *NONNEGATIVE)
        check_range("c1 + c2", c1 + c2, "above 0, or the prior of W would not be proper", POSITIVE[1])
        return cls(lambda1=n / 2, lambda2=c1 + c2, eta=c2 / (c1 + c2), mu=mu)

    def _formula(self, cp, W, W0):
        M = self.mu * np.eye(W.shape[0]) + cp.diag(cp.sum(W, axis=1)) - W
        pull = (1 - self.eta) / 2 * cp.sum_squares(W - W0) + self.eta * cp.sum(cp.abs(W))
        return -self.lambda1 * cp.log_det(M) + self.lambda2 * pull
