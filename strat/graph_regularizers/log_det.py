"""The log-determinant graph regularizer."""

import numpy as np

from strat.graph_regularizers.base import GraphRegularizer, check_range, unbounded
from strat.slots.log_det import LogDetSlot


class LogDet(GraphRegularizer):
    """Log-determinant graph regularizer, which learns W.

    h(W) = -lambda1 log det(mu I + G(W)) + lambda2 ((1 - eta)/2 ||W - W0||_F^2 + eta ||W||_1), with W >= 0; norms are
    over the full matrix, so that every edge counts twice.

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
        """Choose the constants of the MAP estimate under a Gaussian Markov random field prior.

        The prior is Theta | W ~ N(0, (mu I + G(W))^-1) for each of the n numbers of a stratum, and W with density
        proportional to exp(-c1/2 ||W||_F^2 - c2 ||W||_1), W >= 0; the prior graph W0 must be zero. The ridge
        (mu/2) ||theta_k||^2 that belongs to this prior is not part of h: add it to the model's regularizer.

        Parameters
        ----------
        n : int
            Numbers in a stratum.
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
            check_range(name, value, "of at least 0", lambda v: v >= 0)
        check_range("c1 + c2", c1 + c2, "above 0, or the prior of W would not be proper", lambda v: v > 0)
        return cls(lambda1=n / 2, lambda2=c1 + c2, eta=c2 / (c1 + c2), mu=mu)

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W; then lambda2 must be above 0 where lambda1 is.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        check_range("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        check_range("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)
        check_range("eta", self.eta, "between 0 and 1", lambda v: 0 <= v <= 1)
        check_range("mu", self.mu, "above 0", lambda v: v > 0)
        if joint and self.lambda1 > 0:
            check_range("lambda2", self.lambda2, unbounded, lambda v: v > 0)

    def expression(self, W, W0=None):
        """Give h(W) as a CVXPY expression, without constraints.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K), symmetric
            The graph.
        W0 : ndarray, shape (K, K), optional
            The prior graph; zero by default.

        Returns
        -------
        cvxpy.Expression
            A convex scalar.
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
